"""The proofs of apply: the log that was read must still be current when the marker is sent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import judged, plan, scan, stored
from txnscan import ScanConfig
from txnscan.kafka.errors import RequestFailed
from txnscan.resolve.brokers import LiveBrokers
from txnscan.resolve.plan import Action
from txnscan.sweeps.result import Scan
from txnscan.txnlog.facts import LogRead, LogScan, ProducerFacts, ScannedLog
from txnscan.verdict.evidence import OutcomeEvidence

(ACTION,) = plan(stored()).actions
OPEN = judged()
SCANNED = LogScan("log", (ScannedLog(0, 5, 100, ()), ScannedLog(1, 6, 100, ())))
READ = LogRead("log", 2, 7, 100, "X", ())


class Swept(LiveBrokers):
    """Sweeps with these results, in order."""

    def __init__(self, *found: Scan) -> None:
        super().__init__(ScanConfig("broker:9092"))
        self._found = iter(found)

    def _swept(self, action: Action, reads_log: bool) -> Scan:
        return next(self._found)


def with_log(read: ProducerFacts) -> Scan:
    """A sweep that read the log."""
    evidence = OutcomeEvidence(OPEN.observation, None, 3, 0, None, (), None, None, news=read)
    return replace(scan(OPEN), outcome_evidence={OPEN.observation.transaction_key: evidence})


def test_the_epochs_of_a_read_log_are_those_of_its_scans_and_records() -> None:
    assert with_log(ProducerFacts(reads=(READ,), scans=(SCANNED,))).read_epochs == {0: 5, 1: 6, 2: 7}
    assert scan(OPEN).read_epochs == {}


@pytest.mark.parametrize(
    ("epochs", "moved", "why"),
    [
        ({0: 5, 1: 6, 2: 7, 3: 9}, None, "a log that was not read does not matter"),
        ({0: 5, 1: 7, 2: 8}, 1, "two have other leaders"),
        ({0: 5, 1: 6}, 2, "brokers do not agree on one"),
    ],
)
def test_no_marker_is_sent_after_the_leader_of_the_log_moved(
    epochs: dict[int, int], moved: int | None, why: str
) -> None:
    before = with_log(ProducerFacts(reads=(READ,), scans=(SCANNED,)))
    brokers = Swept(before, replace(scan(OPEN), log_epochs=epochs))
    assert brokers.prove(ACTION) == OPEN
    if moved is None:
        assert brokers.prove_without_log(ACTION) == OPEN, why
        return
    with pytest.raises(RequestFailed) as failed:
        brokers.prove_without_log(ACTION)
    assert f"__transaction_state-{moved}" in failed.value.error, why
    assert not failed.value.sent


def test_a_gone_transaction_is_gone_under_any_leader_of_the_log() -> None:
    brokers = Swept(with_log(ProducerFacts(reads=(READ,))), scan())
    assert brokers.prove(ACTION) == OPEN
    assert brokers.prove_without_log(ACTION) is None
