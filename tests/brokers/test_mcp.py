"""`txnscan mcp` on real brokers: a client of the MCP SDK starts it, and asks about a transaction that hangs."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import CallToolResult, TextContent, Tool

from tests.brokers.shared import PASSWORD, PLAIN, Shared
from tests.cases import Cases
from tests.process import ROOT, run_here
from txnscan import ScanConfig, sweep
from txnscan.demo.admin import create_topic
from txnscan.demo.plant import Planted, orphan
from txnscan.demo.producer import Producer

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

HANGS, LIVE = "mcp-hangs", "mcp-live"
LIVE_ID = "mcp-live-service"
WATCHED_MS = 3_600_000
TOOLS = ("explain", "check", "find_hanging", "list_transactions", "describe_transaction")
OF_TABLES = ("history", "plan")
# The requests that tools may send. All of them only read.
READS = {
    *("ApiVersions", "SaslHandshake", "SaslAuthenticate", "Metadata", "DescribeCluster", "DescribeConfigs"),
    *("DescribeAcls", "ListTransactions", "DescribeTransactions", "DescribeProducers", "ListOffsets", "Fetch"),
    *("OffsetForLeaderEpoch", "ListGroups", "DescribeGroups", "OffsetFetch", "FindCoordinator", "DescribeLogDirs"),
}
# The calls of one session, by a name for each.
CALLS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "explain": ("explain", {"topic": HANGS, "partition": 0}),
    "explain an error": ("explain", {"transactional_id": LIVE_ID, "error": "CONCURRENT_TRANSACTIONS"}),
    "check": ("check", {"limit": 200}),
    "find_hanging": ("find_hanging", {"topic": [HANGS, LIVE]}),
    "find one": ("find_hanging", {"topic": [HANGS, LIVE], "limit": 1}),
    "list": ("list_transactions", {"state": ["Ongoing"], "transactional_id_pattern": "mcp-.*"}),
    "list one": ("list_transactions", {"limit": 1}),
    "describe": ("describe_transaction", {"transactional_id": [LIVE_ID, "mcp-absent"]}),
    "history": ("history", {}),
    "history of one": ("history", {"limit": 1}),
    "plan": ("plan", {"topic": ["mcp-*"]}),
    "no tool": ("apply", {}),
    "no argument": ("find_hanging", {"bootstrap_server": "127.0.0.1:1"}),
    "a file": ("check", {"command_config": "/etc/passwd"}),
    "no symptom": ("explain", {}),
    "no id": ("describe_transaction", {}),
    "a fraction": ("explain", {"topic": HANGS, "partition": 1.0}),
    "no topic": ("find_hanging", {"topic": ["mcp-absent"]}),
    "no legal topic": ("explain", {"topic": "a b\nc"}),
    "no incident": ("history", {"incident": "zz"}),
    "too old": ("plan", {"max_age": "1ms"}),
}
REFUSED = tuple(CALLS)[tuple(CALLS).index("no tool") :]


@dataclass(frozen=True)
class Session:
    """A client's view of the server: its tools, its answers, and its stderr."""

    instructions: str
    tools: tuple[Tool, ...]
    answers: Mapping[str, CallToolResult]
    stderr: str

    def text(self, call: str) -> str:
        (content,) = self.answers[call].content
        assert isinstance(content, TextContent)
        return content.text

    def found(self, call: str) -> dict[str, Any]:
        answer = self.answers[call]
        assert not answer.is_error, self.text(call)
        found: dict[str, Any] = json.loads(self.text(call))
        assert found == answer.structured_content
        return found


def session(
    stderr: Path, *options: str, calls: Mapping[str, tuple[str, Mapping[str, Any]]], mode: str = "auto"
) -> Session:
    """Starts the server with these options as a client does, and makes the calls in their order."""
    arguments = ["-m", "txnscan", "--log-level", "debug", "mcp", *options]
    server = StdioServerParameters(command=sys.executable, args=arguments, env={"PYTHONPATH": str(ROOT)})

    async def made() -> Session:
        with stderr.open("w") as errors:
            async with Client(stdio_client(server, errlog=errors), mode=mode, read_timeout_seconds=120) as client:
                tools = (await client.list_tools()).tools
                answers = {name: await client.call_tool(tool, dict(with_)) for name, (tool, with_) in calls.items()}
                instructions = client.instructions or ""
        return Session(instructions, tuple(tools), answers, stderr.read_text("utf-8"))

    return anyio.run(made)


@dataclass(frozen=True)
class World:
    """hanging: planted on HANGS. before, after: what the cluster and the tables have, around the session."""

    options: tuple[str, ...]
    hanging: Planted
    session: Session
    before: Mapping[str, Any]
    after: Mapping[str, Any]


@pytest.fixture(scope="module")
def world(shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> World:
    hanging = orphan(shared.wire, HANGS)
    create_topic(shared.wire, LIVE, [[1]])
    live = Producer(shared.wire, LIVE_ID, timeout_ms=900_000)
    live.init_producer_id()
    live.write(LIVE, 0, [b"record"])
    directory = tmp_path_factory.mktemp("mcp")
    tables = directory / "tables"
    config = ScanConfig(shared.bootstrap_servers, tables=str(tables), topic_names=(HANGS,), engine="threads")
    with pytest.MonkeyPatch.context() as patch:
        earlier = SimpleNamespace(time_ns=lambda: time.time_ns() - WATCHED_MS * 1_000_000)
        patch.setattr("txnscan.kafka.clock.time", earlier)
        patch.setattr("txnscan.engine.clock.time", earlier)
        sweep(None, config)
    sweep(None, config)
    properties = directory / "client.properties"
    login = f'{PLAIN} required username="alice" password="{PASSWORD}";'
    properties.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n")
    properties.chmod(0o600)
    servers = shared.cluster.bootstrap_servers_of("SASL_PLAINTEXT")
    options = ("--bootstrap-server", servers, "--command-config", str(properties), "--tables", str(tables))

    def state() -> dict[str, Any]:
        """Producers of the topics, the end of each log, and every file of the tables."""
        asked = ("describe-producers", "--bootstrap-server", shared.bootstrap_servers, "--format", "json")
        rows = json.loads(run_here(*asked, "--topic", HANGS, "--topic", LIVE).stdout)["producers"]
        changing = ("age_ms",)
        files = {str(path): path.stat().st_mtime_ns for path in tables.rglob("*")}
        return {"producers": [{k: v for k, v in row.items() if k not in changing} for row in rows], "files": files}

    before = state()
    made = session(directory / "stderr", *options, calls=CALLS)
    return World(options, hanging, made, before, state())


def test_the_tools_have_names_schemas_and_only_read(world: World) -> None:
    assert tuple(tool.name for tool in world.session.tools) == (*TOOLS, *OF_TABLES)
    with Cases() as cases:
        for tool in world.session.tools:
            with cases.case(tool.name):
                hints = tool.annotations
                assert hints is not None
                assert (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint) == (True, False, True)
                assert tool.description
                schema = tool.input_schema
                assert schema["additionalProperties"] is False
                assert {"bootstrap_server", "command_config", "tables"}.isdisjoint(schema["properties"])
    assert world.session.instructions


def test_the_hanging_transaction_is_found_with_its_proof(world: World) -> None:
    found, planted = world.session.found("find_hanging"), world.hanging
    first, *others = found["transactions"]
    assert (first["topic"], first["partition"], first["producer_id"]) == (HANGS, 0, planted.producer_id)
    assert (first["verdict"], first["reason"], first["start_offset"]) == ("hanging", "orphan", planted.start_offset)
    assert [(one["topic"], one["verdict"]) for one in others] == [(LIVE, "ongoing")]
    assert (found["sweep"]["complete"], found["sweep"]["counts"]["hanging"], found["left_out"]) == (True, 1, {})


def test_a_cause_has_its_code_and_its_numbers(world: World) -> None:
    found = world.session.found("explain")
    assert (found["cause"], found["reason"], found["topic"], found["partition"]) == ("hanging", "orphan", HANGS, 0)
    assert found["producer_id"] == world.hanging.producer_id
    assert found["high_watermark"] - found["last_stable_offset"] == found["blocked_records"] > 0
    assert found["evidence"] and all("apply" not in one for one in found["next"])
    owned = world.session.found("explain an error")
    assert (owned["cause"], owned["transactional_id"], owned["state"]) == ("owned", LIVE_ID, "Ongoing")


def test_a_check_has_findings_with_levels(world: World) -> None:
    found = world.session.found("check")
    levels = {(one["area"], one["level"]) for one in found["findings"]}
    assert levels >= {("connection", "ok"), ("coordinators", "ok"), ("tables", "ok"), ("security", "note")}
    assert found["check"]["level"] in ("ok", "note")


def test_transactions_are_listed_and_described(world: World) -> None:
    (listed,) = world.session.found("list")["transactions"]
    assert (listed["transactional_id"], listed["state"], listed["timeout_ms"]) == (LIVE_ID, "Ongoing", 900_000)
    found = world.session.found("describe")
    (described,) = found["transactions"]
    assert [(one["topic"], one["partition"]) for one in described["partitions"]] == [(LIVE, 0)]
    assert [error["code"] for error in found["errors"]] == ["TRANSACTIONAL_ID_NOT_FOUND"]


def test_answers_are_bounded_and_count_what_is_left_out(world: World) -> None:
    one = world.session.found("find one")
    assert [row["topic"] for row in one["transactions"]] == [HANGS], "the worst comes first"
    assert one["left_out"]["transactions"] == 1 and "topic" in one["to_narrow"]
    one = world.session.found("list one")
    assert len(one["transactions"]) == 1 and one["left_out"]["transactions"] >= 1
    history = world.session.found("history of one")
    assert [len(history[name]) for name in ("sweeps", "incidents")] == [1, 1]
    assert history["left_out"] == {"sweeps": 1}


def test_history_and_plan_come_from_the_tables(world: World) -> None:
    history = world.session.found("history")
    (incident,) = history["incidents"]
    assert (len(history["sweeps"]), history["journal"]) == (2, [])
    assert (incident["topic"], incident["reason"], incident["resolved_at"]) == (HANGS, "orphan", None)
    plan = world.session.found("plan")
    (action,) = plan["actions"]
    assert (action["marker"], action["topic"], action["incident_id"]) == ("ABORT", HANGS, incident["incident_id"])
    assert (action["producer_id"], plan["refused"]) == (world.hanging.producer_id, [])
    assert len(plan["notes"]) == 2, "the scope of the sweep, and that the plan is no file"


def test_apply_refuses_the_plan_of_an_answer(world: World, shared: Shared, tmp_path: Path) -> None:
    plan = {name: one for name, one in world.session.found("plan").items() if name not in ("notes", "left_out")}
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    tables = world.options[world.options.index("--tables") + 1]
    ran = run_here("apply", str(file), "--bootstrap-server", shared.bootstrap_servers, "--tables", tables)
    assert ran.returncode == 6, ran.stderr


def test_no_tool_changes_the_cluster_or_the_tables(world: World) -> None:
    assert world.after == world.before
    sent = set(re.findall(r" answered (\w+): ", world.session.stderr))
    assert {"DescribeProducers", "ListTransactions"} <= sent <= READS


def test_an_error_is_one_sentence(world: World, wording: SnapshotAssertion) -> None:
    said = {}
    with Cases() as cases:
        for name in REFUSED:
            with cases.case(name):
                assert world.session.answers[name].is_error
                said[name] = world.session.text(name)
                assert said[name].isprintable() and said[name]
    said["too old"] = re.sub(r"sweep \S+ began .+? ago", "sweep ID began a while ago", said["too old"])
    assert said == wording


def test_the_password_appears_nowhere(world: World) -> None:
    answers = "".join(answer.model_dump_json() for answer in world.session.answers.values())
    assert "User:alice" in world.session.text("check"), "it logged in with the password"
    assert PASSWORD not in answers + world.session.stderr
    assert "Traceback" not in world.session.stderr


def test_without_tables_there_are_no_tools_for_them_and_a_wrong_password_is_an_error(
    world: World, tmp_path: Path
) -> None:
    wrong = tmp_path / "client.properties"
    properties = Path(world.options[world.options.index("--command-config") + 1])
    wrong.write_text(properties.read_text().replace(PASSWORD, "wr0ng-S3cret"))
    wrong.chmod(0o600)
    options = (*world.options[:2], "--command-config", str(wrong))
    calls = {name: CALLS[name] for name in ("find_hanging", "list", "check", "plan")}
    made = session(tmp_path / "stderr", *options, calls=calls, mode="legacy")
    assert tuple(tool.name for tool in made.tools) == TOOLS
    assert [made.answers[name].is_error for name in calls] == [True, True, False, True]
    assert made.found("check")["check"]["level"] == "failed"
    assert "wr0ng-S3cret" not in made.stderr + "".join(made.text(name) for name in calls)
