"""Times of imports, and the modules that a command loads. `pyproject.toml` declares the allowed imports (import-linter,
`make lint`).
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest

from tests.cases import Cases
from tests.process import ROOT, run_to_end
from txnscan.verdict.rules import RULES

PACKAGE = ROOT / "txnscan"
# The rule that hides an id depends on the principal. Other failures name the permission without a principal.
ASKED_BY_SOMEBODY = {
    "coordinators/coordinator_listing.py": {"conclude"},
    "coordinators/visibility.py": {"visibility_failures", "denials", "_may_be_for"},
}
# These have no clock and no socket: they get both as arguments.
PURE_BUT_FOR_SEND = (
    *(f"coordinators/{name}.py" for name in ("claims", "agreed_metadata", "coordinator_listing", "visibility")),
    "reads/proven_read.py",
    "txnlog/scan.py",
    *(f"waiting/{name}.py" for name in ("ahead", "delivered", "groups", "pending_offsets", "who_waits")),
)
PURE = (
    *PURE_BUT_FOR_SEND,
    *(f"coordinators/{name}.py" for name in ("locate", "transactions")),
    *(f"explain/{name}.py" for name in ("cause", "causes", "client_errors", "facts", "finding", "symptom")),
    *(f"explain/answers/{path.name}" for path in sorted((PACKAGE / "explain/answers").glob("*.py"))),
    *(f"offline/{name}.py" for name in ("cluster_metadata", "columns", "contents", "files", "judging")),
    *(f"offline/{name}.py" for name in ("producer_snapshots", "state_log", "walk")),
    *(f"resolve/{name}.py" for name in ("apply", "guard", "plan")),
    *(f"sweeps/{name}.py" for name in ("column", "history", "log_facts", "news", "observations", "result", "row")),
    *("tables/exclusive.py", "tables/schema.py", "txnlog/decode.py", "txnlog/timeline.py", "watch/incident_tracker.py"),
)
IMPURE_MODULES = ("socket", "selectors", "asyncio", "time", "threading", "random", "secrets", "subprocess", "os", "ssl")
# Inside txnscan: modules that open connections, run a clock or need Spark.
IMPURE_HOMES = (
    *("api", "cli", "coordinators.cluster", "engine.spark", "engine.threads", "report", "tables.history"),
    *(
        "reads.tasks",
        "sweeps.enrichment",
        "sweeps.log_partition",
        "sweeps.log_reads",
        "sweeps.pipeline",
        "sweeps.reader",
        "tables.tables",
        "txnlog.task",
    ),
    *("offline.disk", "offline.paths", "offline.replica"),
)
# Modules that listen, for Prometheus.
WATCHED = "watch/endpoint.py"
JOURNAL = ("resolve/journal.py", "resolve/lock.py", "resolve/plan_of_sweep.py")
SPARK_HOMES = (
    *(
        "engine/spark/executors.py",
        "engine/spark/daemon.py",
        "engine/spark/guest.py",
        "engine/spark/jobs.py",
        "engine/spark/nodes.py",
        "engine/spark/python.py",
        "engine/spark/errors.py",
        "engine/spark/session.py",
    ),
    *("engine/spark/jvm.py", "tables/spark.py", "sql/source.py"),
)
# Modules that use numpy if it is installed.
COLUMNS = ("kafka/protocol/search_columns.py", "txnlog/columns.py")
# Modules that need Arrow, which Spark and delta-rs bring.
ARROW_HOMES = (
    *(
        "engine/",
        "sql/source.py",
        "engine/spark/daemon.py",
        "tables/delta.py",
        "tables/delta_rs.py",
        "tables/history.py",
        "tables/maintain.py",
        "tables/spark.py",
        "tables/facts.py",
        "tables/tables.py",
    ),
    *JOURNAL,
)


@dataclass(frozen=True)
class Import:
    """An imported module. `when` is "start", "call" (inside a function) or "typing" (under TYPE_CHECKING)."""

    file: str
    module: str
    when: str

    def is_of(self, *packages: str) -> bool:
        return any(self.module == p or self.module.startswith(f"{p}.") for p in packages)


@cache
def files() -> list[str]:
    return sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


@cache
def parsed(file: str) -> ast.Module:
    return ast.parse((PACKAGE / file).read_text("utf-8"))


def walk(node: ast.AST, file: str, when: str = "start") -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(file, name.name, when) for name in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"{file}: imports are absolute"
            yield from (Import(file, f"{child.module}.{name.name}", when) for name in child.names)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from walk(child, file, "typing")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from walk(child, file, "call" if when == "start" else when)
        else:
            yield from walk(child, file, when)


@cache
def imports() -> list[Import]:
    found = [one for file in files() for one in walk(parsed(file), file)]
    assert len(found) > 100 and {"typing", "call", "start"} == {one.when for one in found}, "the walk sees nothing"
    return found


def offenders(*packages: str, allowed: tuple[str, ...], unless: tuple[str, ...] = ()) -> list[Import]:
    """Imports of these packages outside the allowed files and folders, except at the times in `unless`."""
    return [
        one for one in imports() if one.is_of(*packages) and not one.file.startswith(allowed) and one.when not in unless
    ]


def test_the_files_named_by_these_rules_exist() -> None:
    assert {*PURE, *SPARK_HOMES, *COLUMNS, *JOURNAL, *ASKED_BY_SOMEBODY} - {*files()} == set()


# Rules that deny, and failures from tables, are not of the list.
PERMISSIONS = (
    *("kafka/failure.py", "kafka/security/acls.py", "kafka/security/needs.py", "report/plain.py", "resolve/offer.py"),
)


def test_permissions_are_those_of_the_list_of_acls() -> None:
    makers = {
        file
        for file in files()
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Permission"
    }
    assert makers and makers <= {*PERMISSIONS}


def test_pure_modules_import_no_impure_modules() -> None:
    outside = (*IMPURE_MODULES, "pyspark", "pyarrow", "kafka", "delta", *(f"txnscan.{home}" for home in IMPURE_HOMES))
    with Cases() as cases:
        for file in PURE:
            with cases.case(file):
                assert [one for one in walk(parsed(file), file) if one.is_of(*outside)] == []


def test_pure_modules_read_no_clock_and_print_nothing() -> None:
    with Cases() as cases:
        for file in PURE:
            with cases.case(file):
                called = {ast.unparse(node.func) for node in ast.walk(parsed(file)) if isinstance(node, ast.Call)}
                assert not {name for name in called if name.endswith((".now", ".utcnow", ".today"))}
                assert not called & {"print", "open", "input"}


def test_modules_that_only_send_import_only_the_send_type_from_the_client() -> None:
    with Cases() as cases:
        for file in PURE_BUT_FOR_SEND:
            with cases.case(file):
                from_client = {
                    one.module for one in walk(parsed(file), file) if one.is_of("txnscan.kafka.client.client")
                }
                assert from_client == {"txnscan.kafka.client.client.Send"}


def test_reading_modules_return_failures_as_data_without_a_principal() -> None:
    """`Cluster.say` formats them. A principal in a signature would put advice into evidence."""
    taking = {
        file: {
            function.name
            for function in ast.walk(parsed(file))
            if isinstance(function, ast.FunctionDef)
            for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
            if argument.arg == "principal"
        }
        for file in files()
        if file.startswith(("coordinators/", "engine/", "impact/", "reads/", "sweeps/", "txnlog/", "verdict/"))
    }
    assert {file: functions for file, functions in taking.items() if functions} == ASKED_BY_SOMEBODY


def test_only_kafka_and_the_demo_import_the_kafka_library() -> None:
    assert offenders("kafka", allowed=("kafka/", "demo/")) == []


def test_predicates_are_in_the_order_of_the_rules() -> None:
    lines = [inspect.getsourcelines(rule.applies)[1] for rule in RULES]
    assert lines == sorted(lines)


def test_no_two_test_modules_have_the_same_name() -> None:
    """pytest would import only one of them."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_no_test_module_imports_another() -> None:
    """What several of them need is in `tests/fakes/`, or in a module beside them."""
    strangers = [
        (path.name, one.module)
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for one in walk(ast.parse(path.read_text("utf-8")), path.name)
        if re.search(r"^tests\..*\btest_", one.module) and "test_" in one.module.rpartition(".")[0]
    ]
    assert strangers == []


def test_only_the_client_opens_connections_to_brokers() -> None:
    assert (
        offenders(
            "kafka.net",
            "kafka.client",
            "kafka.conn",
            allowed=(
                "kafka/client/client.py",
                "kafka/security/kerberos.py",
                "kafka/security/oauth.py",
                "kafka/security/scram.py",
                "demo/",
            ),
        )
        == []
    )
    # Also the modules that probe a port to explain a failure. Spark's master is no broker.
    kafka = (
        "kafka/client/client.py",
        "kafka/client/connection.py",
        "kafka/client/listener.py",
        "kafka/client/names.py",
        "kafka/client/receiving.py",
        # The token endpoint and webhooks.
        "kafka/security/timed_http.py",
    )
    opening = (*kafka, "engine/spark/jvm.py", "demo/", WATCHED)
    assert offenders("socket", "ssl", allowed=opening) == []


def test_pyspark_is_imported_only_by_spark_modules_and_for_types() -> None:
    assert offenders("pyspark", "delta", allowed=SPARK_HOMES, unless=("typing",)) == []


def test_modules_that_need_spark_or_arrow_are_imported_inside_functions() -> None:
    stores = ("txnscan.tables.spark", "txnscan.tables.delta_rs", "txnscan.tables.tables", "txnscan.tables.history")
    heavy = (
        *stores,
        "txnscan.engine.spark.executors",
        "txnscan.engine.rows",
        "txnscan.sql.source",
        "pyarrow",
        "pandas",
        "deltalake",
    )
    assert offenders(*heavy, allowed=ARROW_HOMES, unless=("call", "typing")) == []
    # numpy is not in the base installation.
    assert offenders("numpy", allowed=("offline/columns.py", *COLUMNS)) == []
    assert offenders("txnscan.offline.columns", allowed=(), unless=("call",)) == []
    journal = ("txnscan.resolve.journal", "txnscan.resolve.lock", "txnscan.resolve.plan_of_sweep")
    assert offenders(*journal, allowed=JOURNAL, unless=("call", "typing")) == []


def test_delta_rs_is_imported_by_its_own_store_alone() -> None:
    assert offenders("deltalake", allowed=("tables/delta_rs.py",)) == []


def test_only_apply_can_send_a_marker_and_only_through_its_brokers() -> None:
    sender = "txnscan.kafka.protocol.write_txn_markers"
    assert offenders(sender, allowed=("resolve/apply.py", "resolve/brokers.py")) == []
    senders = [file for file in files() if "write(marker_for(" in ast.unparse(parsed(file))]
    assert senders == ["resolve/apply.py"]


def test_optional_libraries_are_imported_only_by_their_modules() -> None:
    watching = ("watch/", "report/metrics.py", "report/notifications.py")
    assert offenders("prometheus_client", "txnscan.watch", allowed=watching, unless=("call", "typing")) == []
    assert offenders("jinja2", allowed=(*watching, "report/html.py"), unless=("call", "typing")) == []
    drawing = ("report/charts.py", "report/html.py")
    charts = ("altair", "vl_convert", "txnscan.report.charts", "txnscan.report.html")
    assert offenders(*charts, allowed=drawing, unless=("call", "typing")) == []
    assert offenders("apprise", allowed=("watch/through_apprise.py",), unless=("typing",)) == []
    protocol = ("mcp", "mcp_types", "jsonschema", "txnscan.mcp")
    assert offenders(*protocol, allowed=("mcp/",), unless=("call", "typing")) == []
    assert offenders("anyio", "jsonschema", "mcp", "mcp_types", allowed=("mcp/server.py", "cli/mcp.py")) == []


def test_only_its_command_imports_the_demo() -> None:
    strangers = offenders("txnscan.demo", allowed=("demo/",), unless=("typing",))
    assert {(one.file, one.when) for one in strangers} <= {("cli/demo.py", "call")}


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return run_to_end([sys.executable, *arguments], environment=environment)


@pytest.mark.parametrize(
    "arguments",
    [
        *(["find-hanging", "--help"], ["--help"], ["find-hanging", "--bootstrap-server", "127.0.0.1:0"]),
        *(["segments", "--help"], ["transaction-log", "/absent"]),
        ["watch", "--bootstrap-server", "127.0.0.1:1", "--listen", "256.0.0.0:0"],
    ],
)
def test_a_command_without_spark_does_not_load_it(arguments: list[str]) -> None:
    script = f"""
import sys
from txnscan.cli import main
try:
    main({arguments!r})
except SystemExit:
    pass
loaded = sorted(set(sys.modules) & {{"pyspark", "pyarrow", "pandas", "delta", "numpy", "txnscan.demo.brokers"}})
sys.exit(f"loaded {{loaded}}" if loaded else 0)
"""
    ran = python("-c", script)
    assert ran.returncode == 0, ran.stderr


def test_a_command_line_is_parsed_without_modules_of_single_commands() -> None:
    """Every command waits for these imports, and users wait for --version."""
    script = """
import sys
from txnscan.cli import main
try:
    main(["--version"])
except SystemExit:
    pass
sys.exit(str(sorted({"rich.console", "javaproperties", "kafka", "txnscan.sweeps.result"} & set(sys.modules)) or ""))
"""
    assert python("-c", script).stderr.strip() == ""


def test_find_hanging_lists_its_options() -> None:
    ran = python("-m", "txnscan", "find-hanging", "--help")
    assert ran.returncode == 0
    assert all(
        option in ran.stdout for option in ("--bootstrap-server", "--command-config", "--late-after", "--format")
    )


def test_importing_the_package_loads_neither_the_client_nor_spark() -> None:
    ran = python("-c", "import sys, txnscan; sys.exit(bool({'kafka', 'pyspark', 'pyarrow'} & set(sys.modules)))")
    assert ran.returncode == 0


# The longest text in an assertion. Longer ones belong into `wording`.
WORDS_MAX = 5


def test_no_assertion_contains_a_sentence() -> None:
    """A rewrite of the English is one diff, of `tests/__snapshots__/wording.ambr`."""
    frozen = [
        f"{path.relative_to(ROOT)}:{text.lineno}: {text.value}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for text in asserted(ast.parse(path.read_text("utf-8")))
        if isinstance(text.value, str) and len(text.value.split()) > WORDS_MAX
    ]
    assert not frozen, "compare it with the fixture `wording`:\n" + "\n".join(frozen)


def asserted(tree: ast.Module) -> Iterator[ast.Constant]:
    """The constants that assertions and `pytest.raises(match=...)` compare with."""
    for node in ast.walk(tree):
        root = node.test if isinstance(node, ast.Assert) else None
        if isinstance(node, ast.keyword) and node.arg == "match":
            root = node.value
        yield from (part for part in ast.walk(root) if isinstance(part, ast.Constant)) if root is not None else ()


def test_an_assertion_with_a_sentence_is_found() -> None:
    source = """
def test_it():
    names = "a sentence of six words here"
    assert names in said, "a reason may be of any length"
    assert said == "a sentence of six words here" and said
    with pytest.raises(ValueError, match="one two three four five six"):
        ...
"""
    assert [text.lineno for text in asserted(ast.parse(source))] == [5, 6]
