"""The size of answers to an assistant, and the failures that are no errors for users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp.client.client import Client
from mcp_types import TextContent

from tests.cases import Cases
from tests.process import run_here
from txnscan import ScanConfig
from txnscan.mcp.bounded import TEXT_MAX, FirstRows, bounded
from txnscan.mcp.server import server_of
from txnscan.mcp.tools import ROWS_MAX, Answer, Arguments, ReadOnlyTool, Source, for_an_assistant, tools_for
from txnscan.report.help import CHANGE_A_CLUSTER

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

SECRET = "s3cr3t"
LONG = "x" * (TEXT_MAX + 1)
# An object, how many items of a list it may have, the part that is kept, and the counts of the rest.
OBJECTS: tuple[tuple[dict[str, Any], int, dict[str, Any], dict[str, int]], ...] = (
    ({}, 1, {}, {}),
    ({"a": [1, 2, 3]}, 3, {"a": [1, 2, 3]}, {}),
    ({"a": [1, 2, 3], "b": 4}, 2, {"a": [1, 2], "b": 4}, {"a": 1}),
    ({"a": ({"p": (1, 2)}, {"p": (1, 2, 3)})}, 1, {"a": [{"p": [1]}]}, {"a": 1, "a.p": 1}),
    ({"a": {"b": [1, 2]}, "none": None}, 1, {"a": {"b": [1]}, "none": None}, {"a.b": 1}),
    ({"a": LONG[:-1]}, 1, {"a": LONG[:-1]}, {}),
    ({"a": [LONG]}, 1, {"a": [f"{LONG[:-2]}…"]}, {}),
)


def unspark() -> None:
    raise AssertionError("no test needs Spark")


SOURCE = Source(ScanConfig("127.0.0.1:1", engine="threads"), unspark)  # type: ignore[arg-type]


def test_lists_and_texts_have_a_limit() -> None:
    with Cases() as cases:
        for found, rows_max, kept, left_out in OBJECTS:
            with cases.case((str(found)[:40], rows_max)):
                assert bounded(found, rows_max) == (kept, left_out)


def test_rows_beyond_the_first_are_only_counted() -> None:
    rows = FirstRows(3)
    for batch in ([{"n": 1}, {"n": 2}], [{"n": 3}, {"n": 4}], [{"n": 5}]):
        rows.write(batch)
    rows.end([])
    assert ([row["n"] for row in rows.kept], rows.left_out) == ([1, 2, 3], 2)


def test_every_tool_says_how_to_narrow_its_answer() -> None:
    tables = Source(SOURCE.config, SOURCE.spark, lambda: None)  # type: ignore[arg-type, return-value]
    assert len(tools_for(tables)) == len(tools_for(SOURCE)) + 2
    with Cases() as cases:
        for tool in tools_for(tables):
            with cases.case(tool.name):
                long = ReadOnlyTool(tool.name, "", lambda *_: Answer({"rows": [1, 2]}, {"rows": 3}), narrow=tool.narrow)
                answer = long.answer(SOURCE, {"limit": 1})
                assert (answer["rows"], answer["left_out"]) == ([1], {"rows": 4})
                assert tool.narrow and answer["to_narrow"].startswith(tool.narrow)
                assert str(ROWS_MAX) in answer["to_narrow"]


def test_an_unforeseen_failure_shows_its_type_and_not_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(source: Source, arguments: Arguments, rows_max: int) -> Answer:
        raise RuntimeError(f"password={SECRET}")

    async def answered() -> tuple[bool, str]:
        async with Client(server_of(SOURCE)) as client:
            answer = await client.call_tool("check", {})
        (content,) = answer.content
        assert isinstance(content, TextContent)
        return answer.is_error, content.text

    monkeypatch.setattr("txnscan.mcp.server.tools_for", lambda _: (ReadOnlyTool("check", "", fails),))
    is_error, text = anyio.run(answered)
    assert is_error and "RuntimeError" in text and SECRET not in text


def test_a_missing_library_is_reported_with_its_installation(
    monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    monkeypatch.setattr("txnscan.cli.mcp.find_spec", lambda name: None)
    ran = run_here("mcp", "--bootstrap-server", "127.0.0.1:1")
    assert ran.returncode == 2
    assert ran.stderr == wording


def test_an_assistant_gets_no_command_that_changes_a_cluster() -> None:
    kept = [
        "txnscan sweep --tables LOCATION",
        "txnscan plan --tables LOCATION --out plan.json",
        "kafka-topics.sh --list",
    ]
    changing = [f"txnscan {name} --bootstrap-server b:9092" for name in CHANGE_A_CLUSTER]
    found = {"cause": "hanging", "next": [*changing, *kept, *changing]}
    assert for_an_assistant(found) == {"cause": "hanging", "next": kept}
