"""Alert rules and dashboard, tested with a real Prometheus that scrapes a real `txnscan watch`."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tests.cases import Cases
from tests.debian import program
from tests.process import ROOT, run_to_end
from tests.sim.wire import ClusterShape, WireCluster
from tests.watching import Process
from txnscan.cli.app import app
from txnscan.demo.ports import choose_ports
from txnscan.demo.wait import wait_until
from txnscan.report.metrics import NAMES
from txnscan.watch.clusters import read_clusters

FOLDER = ROOT / "docs" / "monitoring"
RULES = FOLDER / "alerts.yml"
PAGE = (FOLDER / "README.md").read_text("utf-8")
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text("utf-8"))
QUERIES = [(panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
# Panels that are empty if the scanner has no errors and no counter has risen.
EMPTY = {"Not observed, by step", "Notifications", "Not known, and markers that are overdue"}
ALERTS = re.findall(r"alert: (\w+)", RULES.read_text("utf-8"))


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [program("promtool", "prometheus"), *arguments]
    return run_to_end(command)


# --- alert rules


def test_the_alert_rules_fire_as_specified() -> None:
    ran = promtool("test", "rules", str(FOLDER / "alerts_test.yml"))
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_promtool_accepts_the_rules() -> None:
    ran = promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_is_tested_and_documented_in_the_runbook(alert: str) -> None:
    tested = (FOLDER / "alerts_test.yml").read_text("utf-8")
    assert re.search(rf"alertname: {alert}\n\s+exp_alerts:", tested), "that it fires"
    assert re.search(rf"^#+ {alert}$", PAGE, re.M)
    assert f"runbook_url: RUNBOOK_URL#{alert.lower()}" in RULES.read_text("utf-8")


def test_the_documented_command_makes_each_runbook_url_absolute(tmp_path: Path) -> None:
    (command,) = re.findall(r"^    (sed .*) alerts\.yml >\S+$", PAGE, re.M)
    assert f"#   {command} alerts.yml >" in RULES.read_text("utf-8")
    out = tmp_path / "txnscan.yml"
    out.write_text(subprocess.run([*shlex.split(command), str(RULES)], check=True, capture_output=True).stdout.decode())
    rules = [line for line in out.read_text("utf-8").splitlines() if not line.lstrip().startswith("#")]
    urls = re.findall(r"runbook_url: (\S+)", "\n".join(rules))
    assert len(urls) == len(ALERTS) and "RUNBOOK_URL" not in "\n".join(rules)
    assert {urllib.parse.urlsplit(url)[:2] for url in urls} == {("https", "HOST")}
    assert {urllib.parse.urlsplit(url).fragment for url in urls} == {alert.lower() for alert in ALERTS}


COMMANDS = sorted(
    {one.split("  #")[0].strip() for one in re.findall(r"(?:`|^    )(txnscan [a-z-]+ --?[^`\n]+)", PAGE, re.M)}
)


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_line_of_the_runbook_is_valid(line: str) -> None:
    _, name, *arguments = shlex.split(line)
    get_command(app).commands[name].make_context(name, arguments)  # type: ignore[attr-defined]


def test_the_runbook_has_command_lines() -> None:
    assert len(COMMANDS) >= 8


def test_the_example_file_of_the_page_is_valid(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
    (tmp_path / "orders.properties").write_text("request.timeout.ms=5000\n", "utf-8")
    (tmp_path / "chat.json.j2").write_text('{"text": {{ events[0].summary | tojson }}}', "utf-8")
    for secret, url in (("slack", "https"), ("pagerduty", "https"), ("apprise", "jsons")):
        (tmp_path / secret).write_text(f"{url}://hooks.example/x", "utf-8")
        shown = shown.replace(f"/run/secrets/{secret}", secret)
    path = tmp_path / "clusters.toml"
    path.write_text(shown, "utf-8")
    found = read_clusters(path, {})
    assert list(found.clusters) == ["orders", "logs"] and len(found.targets) == 4


# --- names


def test_the_page_lists_exactly_the_metrics() -> None:
    assert set(re.findall(r"^\| `(\w+)`", PAGE, re.M)) == set(NAMES)


def test_rules_and_dashboard_use_existing_metrics() -> None:
    asked = " ".join([RULES.read_text("utf-8"), *(query for _, query in QUERIES)])
    named = set(re.findall(r"\b(?:txnscan|kafka)_\w+", asked))
    assert named and named <= set(NAMES)


# --- the dashboard


def unlike(ours: Any, theirs: Any, at: str = "dashboard") -> Iterator[str]:
    """Fields that Grafana's types dropped or changed: unknown fields, or fields with an invalid value."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name, value in ours.items():
            if name in theirs:
                yield from unlike(value, theirs[name], f"{at}.{name}")
            else:
                yield f"{at}.{name} is unknown"
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from unlike(mine, other, f"{at}[{index}]")
    elif ours != theirs:
        yield f"{at} is {theirs!r}"


def through_grafanas_types(dashboard: dict[str, Any]) -> Any:
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    return json.loads(json.dumps(Dashboard.from_json(dashboard), cls=JSONEncoder))


def test_the_dashboard_matches_grafanas_types() -> None:
    assert list(unlike(DASHBOARD, through_grafanas_types(DASHBOARD))) == []


@pytest.mark.parametrize(
    ("path", "name"), [((), "panles"), (("panels", 0), "gridpos"), (("panels", 0, "targets", 0), "expression")]
)
def test_an_unknown_grafana_field_is_detected(path: tuple[Any, ...], name: str) -> None:
    spoilt = json.loads(json.dumps(DASHBOARD))
    place = spoilt
    for step in path:
        place = place[step]
    place[name] = 1
    assert [one for one in unlike(spoilt, through_grafanas_types(spoilt)) if name in one]


def test_panels_do_not_overlap_and_have_unique_ids() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for grid in (panel["gridPos"] for panel in panels):
        cells = {(grid["x"] + x, grid["y"] + y) for x in range(grid["w"]) for y in range(grid["h"])}
        assert not cells & taken and grid["x"] + grid["w"] <= 24
        taken |= cells


# --- a real Prometheus that scrapes a real watch


@dataclass(frozen=True)
class Prometheus:
    """Its address."""

    url: str

    def ask(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=300) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[Any]:
        found: list[Any] = self.ask("query", query=expression)["result"]
        return found


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Scrapes `txnscan watch` of a busy cluster with a hanging transaction, over basic authentication."""
    directory = tmp_path_factory.mktemp("prometheus")
    shape = ClusterShape.busy(brokers=3, partitions=60, hanging=2)
    (directory / "users").write_text("prometheus:s3cret\n", "utf-8")
    (directory / "users").chmod(0o600)
    with (
        WireCluster(shape) as cluster,
        Process(
            *("--bootstrap-server", cluster.bootstrap_servers, "--interval", "1s", "--blocking-after", "1ms"),
            *("--basic-auth-file", str(directory / "users")),
        ) as watch,
    ):
        wait_until(lambda: watch.url, "watch listened", 60)
        (port,) = choose_ports(1, None)
        (directory / "prometheus.yml").write_text(
            f"""
            global: {{scrape_interval: 1s, evaluation_interval: 1s}}
            rule_files: ["{RULES}"]
            scrape_configs:
              - job_name: txnscan
                basic_auth: {{username: prometheus, password_file: {directory / "password"}}}
                static_configs: [{{targets: ["{urllib.parse.urlsplit(watch.url).netloc}"]}}]
            """,
            "utf-8",
        )
        (directory / "password").write_text("s3cret", "utf-8")
        process = subprocess.Popen(
            [
                program("prometheus", "prometheus"),
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=(directory / "log").open("wb"),
        )
        try:
            made = Prometheus(f"http://127.0.0.1:{port}")

            def scraped() -> bool:
                try:
                    rising = made.query("increase(txnscan_sweeps_total[1m]) > 0")
                except OSError:
                    return False
                return bool(rising)

            wait_until(scraped, f"Prometheus had scraped; its log is {directory / 'log'}", 120)
            yield made
        finally:
            process.terminate()
            process.wait(600)


def filled_in(expression: str) -> str:
    """A query as Grafana sends it, of all clusters."""
    return expression.replace("$cluster", ".*").replace("$__rate_interval", "1m")


def test_each_query_of_the_dashboard_has_a_result(prometheus: Prometheus) -> None:
    with Cases() as cases:
        for title, expression in QUERIES:
            with cases.case(title):
                assert prometheus.query(filled_in(expression)) or title in EMPTY


def test_the_dashboards_variable_lists_the_cluster(prometheus: Prometheus) -> None:
    (variable,) = [one for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]
    match = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
    assert match is not None
    (name,) = prometheus.ask(f"label/{match[2]}/values", **{"match[]": match[1]})
    assert name.startswith("127.0.0.1:")


def test_figures_in_prometheus_equal_the_hanging_transactions(prometheus: Prometheus) -> None:
    assert [one["value"][1] for one in prometheus.query("sum(txnscan_candidates)")] == ["2"]
    late = prometheus.query("sum(kafka_server_replicamanager_partitionswithlatetransactionscount)")
    assert [one["value"][1] for one in late] == ["2"]


def test_prometheus_loads_the_rules_and_the_alert_is_pending(prometheus: Prometheus) -> None:
    def pending() -> set[str]:
        return {alert["labels"]["alertname"] for alert in prometheus.ask("alerts")["alerts"]}

    wait_until(lambda: "TxnscanHangingTransaction" in pending(), "the alert was pending", 60)
    assert "TxnscanStale" not in pending() and "TxnscanCoverage" not in pending()
