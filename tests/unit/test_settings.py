"""Each shared option by command line, by variable and by the file of named clusters; and errors, which name these."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer.main

from tests.cases import Cases
from tests.process import run_here
from txnscan import ConfigError, named_cluster
from txnscan.cli.app import app
from txnscan.cli.command import (
    CLUSTER_VARIABLE,
    VARIABLES,
    OneCommand,
)
from txnscan.config.settings import BATCH_SIZE, SETTINGS
from txnscan.watch.clusters import CONFIG_VARIABLE, config_path

COMMANDS: Mapping[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
# The option, and a value as the command line and a variable have it. In a file, whole numbers are no texts.
VALUES: dict[str, str] = {
    "--bootstrap-server": "localhost:1",
    "--command-config": "/tmp/client.properties",
    "--tables": "/tmp/tables",
    "--topic": "orders.*",
    "--late-after": "20m",
    "--blocking-after": "5m",
    "--timeout": "3s",
    "--batch-size": "17",
    "--in-flight": "3",
    "--owner-pattern": "billing=billing-.*",
    "--complete-up-to": "orders",
    "--spark-checkpoint": "/tmp/checkpoint",
    "--engine": "threads",
    "--master": "local[2]",
    "--format": "json",
    "--fail-on": "hanging",
}
# Arguments without which commands do not begin.
NEEDED = {"bootstrap_server": "localhost:9", "tables": "/tmp/other"}


@contextmanager
def environment(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Iterator[None]:
    with monkeypatch.context() as patch:
        for name in [*VARIABLES.values(), CLUSTER_VARIABLE, CONFIG_VARIABLE]:
            patch.delenv(name, raising=False)
        patch.setenv("XDG_CONFIG_HOME", "/nowhere")
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


def having(option: str) -> Iterator[tuple[str, Any, Any]]:
    """The commands with an option that is this setting, and the parameter."""
    for name, command in COMMANDS.items():
        for one in command.params:
            if option in one.opts and getattr(one, "envvar", None) == VARIABLES[option]:
                yield name, command, one


def parsed(name: str, command: Any, without: str, arguments: list[str]) -> Mapping[str, Any]:
    needed: list[str] = []
    for one in command.params:
        if one.required and one.name != without:
            needed += [one.opts[0], NEEDED[one.name]] if one.name in NEEDED else [one.opts[0], "1"]
    if name == "apply":
        needed = [word for word in needed if word != "plan"]
    return dict(command.make_context(name, [*arguments, *needed]).params)


def test_each_setting_by_command_line_variable_and_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    with Cases() as cases:
        for option, value in VALUES.items():
            for name, command, one in having(option):
                if any(len(other.opts[0]) < 3 or not other.opts[0].startswith("--") for other in command.params):
                    # Commands with arguments take their options in the same way.
                    continue
                with cases.case(f"{name} {option}"):
                    with environment(monkeypatch):
                        given = parsed(name, command, one.name, [option, value])[one.name]
                    with environment(monkeypatch, **{VARIABLES[option]: value}):
                        assert parsed(name, command, one.name, [])[one.name] == given
                    if option.removeprefix("--") not in SETTINGS:
                        continue
                    key = option.removeprefix("--")
                    quoted = value if value.isdecimal() else json.dumps(value)
                    lines = ["[clusters.c]", f"{key} = {quoted}"]
                    lines += ['bootstrap-server = "localhost:9"'] if key != "bootstrap-server" else []
                    (tmp_path / "x.properties").write_text("client.id=x\n")
                    file.write_text("\n".join(lines).replace("/tmp/client.properties", str(tmp_path / "x.properties")))
                    with environment(monkeypatch, **{CONFIG_VARIABLE: str(file)}):
                        found = parsed(name, command, one.name, ["--cluster", "c"])[one.name]
                    if option == "--command-config":
                        assert found == str(tmp_path / "x.properties")
                    elif key.endswith(("-after", "timeout")):
                        assert found in ("1200000ms", "300000ms", "3000ms")
                    else:
                        assert found == given
    assert {*VALUES} == {*VARIABLES}
    assert all(list(having(option)) for option in VARIABLES)


def test_the_command_line_counts_before_a_variable_and_that_before_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[clusters.c]\nbootstrap-server = "file:1"\nlate-after = "1m"\nblocking-after = "1m"\n')
    variables = {CONFIG_VARIABLE: str(file), "TXNSCAN_LATE_AFTER": "2m", "TXNSCAN_BOOTSTRAP_SERVERS": "variable:1"}
    find = COMMANDS["find-hanging"]
    with environment(monkeypatch, **variables):
        found = find.make_context("f", ["--cluster", "c", "--bootstrap-server", "given:1"]).params
        assert [found[name] for name in ("bootstrap_server", "late_after", "blocking_after")] == [
            "given:1",
            "2m",
            "60000ms",
        ]
    with environment(monkeypatch, **variables, **{CLUSTER_VARIABLE: "c"}):
        assert find.make_context("f", []).params["blocking_after"] == "60000ms"


def test_with_a_file_of_clusters_their_options_stand_there_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"TXNSCAN_BOOTSTRAP_SERVERS": "variable:1", "TXNSCAN_TABLES": "/tmp/tables", "TXNSCAN_TIMEOUT": "2s"}
    for name in ("sweep", "watch"):
        with environment(monkeypatch, **variables, **{CLUSTER_VARIABLE: "c"}):
            found = COMMANDS[name].make_context(name, ["--config", "clusters.toml"]).params
            assert (found["bootstrap_server"], found["timeout"], found["tables"]) == (None, None, "/tmp/tables")


def test_what_the_command_line_replaces_does_not_count_from_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[clusters.c]\nbootstrap-server = "c:1"\ntables = "/tmp/t"\nlate-after = "1m"\ntimeout = "2s"\n')
    variables = {
        "TXNSCAN_BOOTSTRAP_SERVERS": "c:1",
        "TXNSCAN_TABLES": "/tmp/t",
        "TXNSCAN_MASTER": "local",
        "TXNSCAN_LATE_AFTER": "1m",
        "TXNSCAN_TIMEOUT": "2s",
    }
    cases: tuple[tuple[str, list[str], dict[str, Any]], ...] = (
        ("transaction-log", [str(file)], {"bootstrap_server": None, "timeout": None}),
        ("coordinator", ["--partitions", "50", "--group", "g"], {"bootstrap_server": None}),
        ("check", ["--before-stop", "3"], {"bootstrap_server": "c:1", "tables": None, "master": None}),
        ("check", ["--before-stop", "3", "--tables", "/tmp/u"], {"tables": "/tmp/u"}),
        ("find-hanging", ["--max-transaction-timeout", "3"], {"bootstrap_server": "c:1", "late_after": None}),
    )
    with Cases() as table:
        for given in (variables, {CONFIG_VARIABLE: str(file), CLUSTER_VARIABLE: "c"}):
            for name, arguments, expected in cases:
                with table.case((name, *arguments, *given)), environment(monkeypatch, **given):
                    found = COMMANDS[name].make_context(name, [*arguments]).params
                    assert {key: found[key] for key in expected} == expected
    # Its age is for files, and the log is of brokers.
    refused = variables | {"TXNSCAN_BOOTSTRAP_SERVERS": "localhost:1"}
    ran = run_here("transaction-log", "--producer-id", "7", environment=refused)
    assert ran.returncode == 1 and "TXNSCAN_BOOTSTRAP_SERVERS: " in ran.stderr


def test_an_error_names_the_variable_or_the_place_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[clusters.c]\nbootstrap-server = "localhost:1"\ntimeout = "2s"\n')
    broken = tmp_path / "broken.toml"
    broken.write_text('[clusters.c]\nbootstrap-server = "localhost"\nlate-afte = "1m"\n')
    here, of_broken = {CONFIG_VARIABLE: str(file)}, {CONFIG_VARIABLE: str(broken)}
    cases: tuple[tuple[str, dict[str, str], list[str], str, int], ...] = (
        ("a variable", {"TXNSCAN_TIMEOUT": "x"}, ["--bootstrap-server", "localhost:1"], "TXNSCAN_TIMEOUT: ", 2),
        ("a whole number", {"TXNSCAN_BATCH_SIZE": "x"}, [], "TXNSCAN_BATCH_SIZE", 2),
        ("the servers", here, ["--cluster", "c"], f"{file}: clusters.c.bootstrap-server: ", 1),
        ("no such cluster", here, ["--cluster", "d"], "--cluster: 'd' is not in", 2),
        (
            "no such file",
            {CONFIG_VARIABLE: "/nowhere/c.toml"},
            ["--cluster", "c"],
            "TXNSCAN_CONFIG: /nowhere/c.toml",
            2,
        ),
        ("no such cluster, by the variable", {**here, "TXNSCAN_CLUSTER": "d"}, [], "TXNSCAN_CLUSTER: 'd' is not in", 2),
        ("no file, by the variable", {"TXNSCAN_CLUSTER": "d"}, [], "TXNSCAN_CLUSTER: ", 2),
        ("no such file, for config", {CONFIG_VARIABLE: "/nowhere/c.toml"}, [], "TXNSCAN_CONFIG: /nowhere/c.toml", 2),
        ("a broken file, for config", of_broken, [], f"txnscan: {broken}: clusters.c", 2),
        ("a broken file", of_broken, ["--cluster", "c"], "did you mean late-after", 2),
        ("the command line", here, ["--cluster", "c", "--timeout", "y"], "--timeout: ", 2),
    )
    with Cases() as table:
        for name, variables, arguments, expected, status in cases:
            with table.case(name):
                command = "sweep" if "BATCH" in expected else "config" if "for config" in name else "find-hanging"
                ran = run_here(command, *arguments, environment={"HOME": str(tmp_path), **variables})
                assert expected in ran.stderr and ran.stderr.count("\n") == 1, ran.stderr
                assert (ran.returncode, ran.stdout) == (status, "")


def test_config_shows_each_value_and_where_it_is_from(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[clusters.c]\nbootstrap-server = "localhost:1"\n[clusters.d]\nbootstrap-server = "d:1"\n')
    variables = {CONFIG_VARIABLE: str(file), "TXNSCAN_TIMEOUT": "2s", "TXNSCAN_TABLES": "s3a://key:secret@bucket/x"}
    ran = run_here("config", "--cluster", "c", "--format", "json", environment=variables)
    found = json.loads(ran.stdout)
    assert (found["file"], found["clusters"], found["cluster"]) == (str(file), ["c", "d"], "c")
    rows = {row["option"]: (row["value"], row["from"]) for row in found["options"]}
    assert [*rows] == [*VARIABLES]
    assert rows["--bootstrap-server"] == ("localhost:1", f"{file}: clusters.c.bootstrap-server")
    assert rows["--timeout"] == ("2s", "TXNSCAN_TIMEOUT")
    assert rows["--tables"][1] == "TXNSCAN_TABLES" and "secret" not in ran.stdout
    assert rows["--late-after"] == (None, None)
    table = run_here("config", environment=variables).stdout
    assert "TXNSCAN_TIMEOUT" in table and "c, d" in table and "secret" not in table


def test_the_file_is_where_other_tools_have_theirs() -> None:
    assert config_path({CONFIG_VARIABLE: "/a/b.toml", "XDG_CONFIG_HOME": "/x"}) == Path("/a/b.toml")
    assert config_path({"XDG_CONFIG_HOME": "/x"}) == Path("/x/txnscan/config.toml")
    assert config_path({}) == Path("~/.config/txnscan/config.toml").expanduser()


@pytest.mark.parametrize("text", ["-1", "1.5", "٣", "9" * 19, "9" * 5_000])
def test_a_text_that_is_no_number_is_an_error_of_its_option(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        BATCH_SIZE.of_text(text, "batchSize")
    assert error.value.named == "batchSize"


def test_python_takes_a_cluster_by_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[clusters.c]\nbootstrap-server = "localhost:1"\ntables = "tables/here"\nlate-after = "1m"\n')
    with environment(monkeypatch, **{CONFIG_VARIABLE: str(file)}):
        found = named_cluster("c")
        assert (found.bootstrap_servers, found.tables, found.late_after_ms) == (
            "localhost:1",
            str(tmp_path / "tables/here"),
            60_000,
        )
        with pytest.raises(ConfigError):
            named_cluster("d")


def test_every_command_takes_its_options_in_this_way() -> None:
    assert all(isinstance(command, OneCommand) for command in COMMANDS.values())
