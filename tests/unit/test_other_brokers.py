"""Brokers of other vendors keep transaction state elsewhere, which is no proof here and is reported.

Redpanda has the APIs of KIP-664 and no topic `__transaction_state`, and its WriteTxnMarkers aborts for any marker
(its handler ignores the result): a COMMIT would delete committed data. A COMMIT needs a record of
`__transaction_state`, so none is ever planned there.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import context, failed, observation, view
from tests.fakes.cluster import FakeCluster
from tests.fakes.coordinators import take
from txnscan.kafka.topology import ClusterView
from txnscan.sweeps.preflight import Level, _coordinators
from txnscan.verdict.evidence import Outcome, OutcomeEvidence, Verdict
from txnscan.verdict.outcome import outcome
from txnscan.verdict.rules import judge_observation

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion


def checked(ids: int) -> Any:
    cluster = FakeCluster()
    found = take(cluster)
    asked = SimpleNamespace(
        agreed_metadata=lambda topics: None,
        separate_by_claim=lambda *_, **__: SimpleNamespace(transactional_ids=ids),
        coordinator_listing=lambda *_: found,
        newest=lambda topics: ClusterView(1, "fake", (), ()),
    )
    (finding,) = _coordinators(asked, asked.newest(()))  # type: ignore[arg-type]
    return finding


def test_ids_without_a_transaction_log_are_reported(wording: SnapshotAssertion) -> None:
    finding = checked(ids=3)
    assert finding.level is Level.INCOMPLETE
    assert finding.said == wording
    assert checked(ids=0).level is Level.OK


def test_without_a_transaction_log_an_unowned_transaction_is_indeterminate() -> None:
    snapshot = take(FakeCluster())
    seen = context(coverage_failure=snapshot.coverage_failure, visibility_failures=snapshot.visibility_failures)
    judged = judge_observation(observation(), (), seen)
    assert judged.judgement.verdict is Verdict.INDETERMINATE


@pytest.mark.parametrize("state", ["CompleteCommit", "PrepareCommit", "Empty"])
def test_without_a_transaction_log_no_outcome_is_committed(state: str) -> None:
    owner = view(state, epoch=4)
    evidence = OutcomeEvidence(
        observation=observation(),
        owner_epoch=owner.producer_epoch,
        first_epoch=3,
        first_sequence=0,
        batch_failure=None,
        logged=(),
        log_failure=failed("__transaction_state does not exist"),
        contradiction=None,
    )
    assert outcome(evidence).outcome is not Outcome.COMMITTED
