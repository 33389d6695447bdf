"""`explain` without brokers: refusals and failures."""

from __future__ import annotations

import json

from tests.cases import Cases
from tests.process import run_here

NOWHERE = "127.0.0.1:1"


def test_options_that_form_no_symptom_exit_with_2() -> None:
    table = ((), ("--group", "g", "--topic", "t"), ("--group", "g", "--error", "PRODUCER_FENCED"), ("--error", "hello"))
    with Cases() as cases:
        for words in table:
            with cases.case(words):
                ran = run_here("explain", "--bootstrap-server", NOWHERE, *words)
                assert (ran.returncode, ran.stdout) == (2, "") and ran.stderr.count("\n") == 1


def test_without_a_broker_explain_exits_with_1() -> None:
    ran = run_here("explain", "--bootstrap-server", NOWHERE, "--group", "g")
    assert (ran.returncode, ran.stdout) == (1, "") and ran.stderr.startswith("txnscan: --bootstrap-server")


def test_an_error_that_shows_its_cause_needs_no_broker() -> None:
    for words in ((), ("--bootstrap-server", NOWHERE)):
        ran = run_here("explain", *words, "--error", "TransactionAbortableException", "--format", "json")
        assert (ran.returncode, json.loads(ran.stdout)["cause"]) == (0, "client_error")


def test_other_symptoms_need_a_broker() -> None:
    for words in (("--group", "g"), ("--error", "CONCURRENT_TRANSACTIONS")):
        ran = run_here("explain", *words)
        assert (ran.returncode, ran.stdout) == (2, "") and ran.stderr.startswith("txnscan: --bootstrap-server")


def test_the_log_line_is_not_printed() -> None:
    """It may contain a password."""
    ran = run_here("explain", "--bootstrap-server", NOWHERE, "--error", "password=s3cret")
    assert ran.returncode == 2 and "s3cret" not in ran.stderr
