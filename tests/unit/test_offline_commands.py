"""Abort commands from files alone: which transactions have one, and that each command is valid."""

from __future__ import annotations

import shlex
from itertools import product
from typing import Any

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
    "outcome": "not_committed",
    "outcome_reason": "'X' never committed at epoch 3",
    "log_failure": None,
    "transactional_id": None,
    "coordinator_producer_epoch": None,
    "transaction_timeout_ms": None,
    "producer_id": 7,
    "producer_epoch": 3,
    "coordinator_epoch": -1,
    "start_offset": 550,
}


TOOLS = ["txnscan", "kafka-transactions.sh"]


def of(**changes: Any) -> list[str]:
    return commands(HANGING | changes)


def test_only_a_hanging_transaction_without_owner_that_was_not_committed_has_commands() -> None:
    abandoned = (Reason.ORPHAN, Reason.STALE_EPOCH)
    with Cases() as cases:
        for verdict, reason, outcome in product(Verdict, Reason, [None, *Outcome]):
            with cases.case(f"{verdict} {reason} {outcome}"):
                found = of(verdict=verdict.value, reason=reason.value, outcome=outcome and outcome.value)
                no_commit = outcome == Outcome.NOT_COMMITTED
                assert bool(found) == (verdict is Verdict.HANGING and no_commit and reason in abandoned)


def test_kafkas_tool_is_listed_second() -> None:
    assert [command.split()[0] for command in of()] == TOOLS


def test_no_command_needs_an_option_that_it_lacks() -> None:
    """`txnscan abort` refuses an unknown outcome without its option."""
    assert of(outcome="unknown") == []


def test_an_owner_at_the_epoch_of_the_transaction_is_fenced_first() -> None:
    epochs = {2: [], 3: [], 4: TOOLS}
    for epoch, tools in epochs.items():
        given = of(reason="stale_epoch", transactional_id="X", coordinator_producer_epoch=epoch)
        assert [command.split()[0] for command in given] == tools


def test_a_directory_without_a_partition_has_no_command() -> None:
    assert of(partition=-1) == []


def test_the_txnscan_command_has_valid_options() -> None:
    command, _ = of()
    program, name, *options = shlex.split(command)
    assert (program, name) == ("txnscan", "abort")
    cli: Any = typer.main.get_command(app)
    given = cli.commands["abort"].make_context("abort", options).params
    assert (given["topic"], given["partition"], given["start_offset"]) == ("orders", 3, 550)
