"""Abort commands from files alone: which transactions have one, and that each command is valid."""

from __future__ import annotations

import shlex
from itertools import product
from typing import Any

import pytest
import typer.main

from tests.cases import Cases
from txnscan.cli.app import app
from txnscan.report.offline import commands
from txnscan.verdict.evidence import Outcome, Reason, Verdict

HANGING = {
    "topic": "orders",
    "topic_id": "t0",
    "partition": 3,
    "verdict": "hanging",
    "reason": "orphan",
    "outcome": "unknown",
    "outcome_reason": "no file has it",
    "log_failure": None,
    "transactional_id": None,
    "coordinator_producer_epoch": None,
    "producer_id": 7,
    "producer_epoch": 3,
    "coordinator_epoch": -1,
    "start_offset": 550,
}


def of(**changes: Any) -> list[str]:
    return commands(HANGING | changes)


def test_only_a_hanging_transaction_without_owner_or_commit_has_a_command() -> None:
    abandoned = (Reason.ORPHAN, Reason.STALE_EPOCH)
    with Cases() as cases:
        for verdict, reason, outcome in product(Verdict, Reason, [None, *Outcome]):
            with cases.case(f"{verdict} {reason} {outcome}"):
                found = of(verdict=verdict.value, reason=reason.value, outcome=outcome and outcome.value)
                no_commit = outcome in (Outcome.UNKNOWN, Outcome.NOT_COMMITTED)
                assert bool(found) == (verdict is Verdict.HANGING and no_commit and reason in abandoned)


@pytest.mark.parametrize(
    ("outcome", "tools"), [("unknown", ["txnscan"]), ("not_committed", ["txnscan", "kafka-transactions.sh"])]
)
def test_kafkas_tool_is_listed_second_and_only_without_a_commit(outcome: str, tools: list[str]) -> None:
    assert [command.split()[0] for command in of(outcome=outcome)] == tools


def test_an_owner_at_the_epoch_of_the_transaction_is_fenced_first() -> None:
    epochs = {2: [], 3: [], 4: ["txnscan"]}
    for epoch, tools in epochs.items():
        given = of(reason="stale_epoch", transactional_id="X", coordinator_producer_epoch=epoch)
        assert [command.split()[0] for command in given] == tools


def test_a_directory_without_a_partition_has_no_command() -> None:
    assert of(partition=-1) == []


def test_the_txnscan_command_has_valid_options() -> None:
    (command,) = of()
    program, name, *options = shlex.split(command)
    assert (program, name) == ("txnscan", "abort")
    cli: Any = typer.main.get_command(app)
    given = cli.commands["abort"].make_context("abort", options).params
    assert (given["topic"], given["partition"], given["start_offset"]) == ("orders", 3, 550)
