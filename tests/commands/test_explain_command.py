"""`explain` without brokers: refusals and failures."""

from __future__ import annotations

import json

from tests.cases import Cases
from tests.process import run_here

NOWHERE = "127.0.0.1:1"


def test_options_that_form_no_symptom_exit_with_2() -> None:
    table = ((), ("--group", "g", "--topic", "t"), ("--group", "g", "--error", "PRODUCER_FENCED"))
    with Cases() as cases:
        for words in table:
            with cases.case(words):
                ran = run_here("explain", "--bootstrap-server", NOWHERE, *words)
                assert (ran.returncode, ran.stdout) == (2, "") and ran.stderr.count("\n") == 1


def test_without_a_broker_explain_exits_with_1() -> None:
    ran = run_here("explain", "--bootstrap-server", NOWHERE, "--group", "g")
    assert (ran.returncode, ran.stdout) == (1, "") and ran.stderr.startswith("txnscan: --bootstrap-server")


def test_an_error_that_shows_its_cause_needs_no_broker() -> None:
    table = (
        ("TransactionAbortableException", 0, "client_error", "TRANSACTION_ABORTABLE"),
        ("transactionalId=a-1 TransactionAbortableException", 0, "client_error", "TRANSACTION_ABORTABLE"),
        ("ProducerFencedException", 0, "fenced", "PRODUCER_FENCED"),
        ("UNKNOWN_PRODUCER_ID", 0, "no_transaction", "UNKNOWN_PRODUCER_ID"),
        ("[kafka-log-cleaner-thread-0]: Error due to", 0, "cleaner_stuck", "LOG_CLEANER"),
        ("VOTER_NOT_FOUND", 0, "client_error", "VOTER_NOT_FOUND"),
        ("hello", 4, "unrecognised", None),
    )
    with Cases() as cases:
        for text, status, code, error in table:
            for words in ((), ("--bootstrap-server", NOWHERE)):
                with cases.case((text, words)):
                    ran = run_here("explain", *words, "--error", text, "--format", "json")
                    found = json.loads(ran.stdout)
                    assert (ran.returncode, found["cause"], found["error"]) == (status, code, error)


def test_other_symptoms_need_a_broker() -> None:
    for words in (
        ("--group", "g"),
        ("--error", "transactionalId=a-1 something went wrong"),
    ):
        ran = run_here("explain", *words)
        assert (ran.returncode, ran.stdout) == (2, "") and ran.stderr.startswith("txnscan: --bootstrap-server")


def test_an_error_gets_its_meaning_and_the_command_that_asks_brokers() -> None:
    table = (
        ("CONCURRENT_TRANSACTIONS", "CONCURRENT_TRANSACTIONS", "--error CONCURRENT_TRANSACTIONS"),
        ("transactionalId=a-1 ProducerFencedException", "PRODUCER_FENCED", "--transactional-id a-1"),
        ("UNSTABLE_OFFSET_COMMIT", "UNSTABLE_OFFSET_COMMIT", "--error UNSTABLE_OFFSET_COMMIT"),
    )
    with Cases() as cases:
        for text, error, asks in table:
            with cases.case(text):
                ran = run_here("explain", "--error", text, "--format", "json")
                found = json.loads(ran.stdout)
                assert (ran.returncode, found["cause"], found["error"]) == (4, "not_observed", error)
                assert found["failure"] == "NOT_ASKED" and asks in found["next"][0]


def test_the_log_line_is_not_printed() -> None:
    """It may contain a password."""
    ran = run_here("explain", "--bootstrap-server", NOWHERE, "--error", "password=s3cret")
    assert ran.returncode == 4 and "s3cret" not in ran.stdout + ran.stderr
