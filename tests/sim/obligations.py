"""The proof obligations, and sweeps that leave one of them out: each must then accuse somebody innocent.

The sweeps are the real one with one piece replaced; what they find wrong stands as a story in
`tests/search/test_obligations.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from tests.sim.history import NOW_MS, SimulatedCluster, SimulatedEngine, Simulation, sweep
from txnscan.coordinators import cluster
from txnscan.coordinators.claims import (
    ClaimAnswers,
    ClaimedTransaction,
    ClaimSplit,
    CountedClaims,
    counted_claims,
)
from txnscan.coordinators.metadata_image import Latest
from txnscan.coordinators.metadata_quorum import Agreement
from txnscan.coordinators.snapshot import Snapshot
from txnscan.kafka.answers import CoordinatorView, OpenProducer
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import Failure
from txnscan.kafka.protocol.describe_producers import by_topic, describe_producers
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key, Partition
from txnscan.reads.fenced_read import fenced_failed
from txnscan.reads.observation import Observation
from txnscan.reads.rows import FencedRow, OnProgress, ReadBatch, WideRow
from txnscan.sweeps.history import History
from txnscan.sweeps.result import Scan
from txnscan.verdict.evidence import Context, Judged, Reason, Verdict


@dataclass(frozen=True)
class Protocol:
    """A sweep's evidence protocol. lacks: what it leaves out. starts_anywhere: it can go wrong though nothing is open
    when it begins. reads_log: whether the transaction log is held against what hangs. history: what earlier sweeps
    left, nothing if it is None. sweep_id, now_ms: of this sweep, by its own clock.
    """

    name: str
    lacks: str = ""
    cluster_class: type[SimulatedCluster] = SimulatedCluster
    engine_class: type[SimulatedEngine] = SimulatedEngine
    starts_anywhere: bool = False
    reads_log: bool = True
    history: History | None = None
    sweep_id: str = "simulated"
    now_ms: int = NOW_MS

    def sweep(self, simulation: Simulation) -> Scan:
        """A sweep by it. Raises ClusterUnreachable when no broker answers."""
        return sweep(
            simulation,
            self.cluster_class,
            self.engine_class,
            self.history,
            reads_log=self.reads_log,
            sweep_id=self.sweep_id,
            now_ms=self.now_ms,
        )


EVERYTHING = Protocol("everything")
# What a verdict rests on where the transaction log cannot be read: the other obligations must do without it.
WITHOUT_LOG = Protocol("log", "the transaction log is held against the coordinators", reads_log=False)


class _OldPlan(SimulatedCluster):
    """The plan is of the broker that answers first, however old its metadata is."""

    def latest(self, topics: Iterable[str] | None = None) -> Latest:
        """See Cluster."""
        return Latest(self.view(topics), {})


class _OneBrokersWord(_OldPlan):
    """L dropped: one broker's metadata says who leads partitions; who coordinates is still agreed on by all."""

    def agreement(self, topics: Iterable[str]) -> Agreement:
        """See Cluster."""
        agreed = super().agreement(topics)
        first, *_ = agreed.views
        said = [topic for topic in first.topics if topic.name != TRANSACTION_STATE_TOPIC]
        views = [(view, [t for t in view.topics if t.name == TRANSACTION_STATE_TOPIC]) for view in agreed.views]
        return replace(agreed, views=tuple(replace(view, topics=(*log, *said)) for view, log in views))


_BEYOND_DOUBT = 1 << 40


class _DescribeAlone(SimulatedEngine):
    """L dropped: whatever DescribeProducers says is taken for the leader's committed state."""

    def read_fenced(self, batches: Sequence[ReadBatch]) -> list[FencedRow]:
        """See SimulatedEngine."""
        rows: list[FencedRow] = []
        for batch in batches:
            try:
                described = describe_producers(
                    self.simulation.send, batch.leader, by_topic(p.key for p in batch.partitions)
                )
            except RequestFailed as failed:
                rows += [fenced_failed(p, failed.failure, NOW_MS) for p in batch.partitions]
            else:
                rows += [
                    _trusted(p, described[p.key].open_producers, described[p.key].failure) for p in batch.partitions
                ]
        return rows


def _trusted(partition: Partition, open_producers: tuple[OpenProducer, ...], failure: Failure | None) -> FencedRow:
    return FencedRow(
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        read_at_ms=NOW_MS,
        high_watermark=_BEYOND_DOUBT,
        open_producers=open_producers,
        failure=failure,
    )


class _AboveTheHighWatermark(SimulatedEngine):
    """Part of L dropped: data above the high watermark counts, though it may still be truncated."""

    def read_fenced(self, batches: Sequence[ReadBatch]) -> list[FencedRow]:
        """See SimulatedEngine."""
        rows = super().read_fenced(batches)
        return [row if row.failure is not None else replace(row, high_watermark=_BEYOND_DOUBT) for row in rows]


class _WhateverIsListed(SimulatedCluster):
    """V dropped: what no listing shows is taken for absent."""

    def believed(self, snapshot: Snapshot) -> Snapshot:
        """See SimulatedCluster."""
        return replace(
            snapshot,
            views=tuple(replace(view, coverage_failure=None, split_failure=None) for view in snapshot.views),
            coordinators_proven=snapshot.coordinators_planned,
            coverage_errors=(),
            split_failures=(),
        )


class _NothingHidden(SimulatedCluster):
    """A dropped: ids that the principal may not see are taken for absent."""

    def believed(self, snapshot: Snapshot) -> Snapshot:
        """See SimulatedCluster."""
        return replace(snapshot, visibility_failures=())


class _ReadOnce(SimulatedEngine):
    """The second read dropped: what the first saw stands for it."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation)
        self.first: list[FencedRow] | None = None

    def read_fenced(self, batches: Sequence[ReadBatch]) -> list[FencedRow]:
        """See SimulatedEngine."""
        wanted = {partition.key for batch in batches for partition in batch.partitions}
        if self.first is not None and wanted <= {row.key for row in self.first if row.failure is None}:
            # The leader's name and epoch are those of now: what is dropped is the look alone.
            now = {p.key: (p.leader, p.leader_epoch) for batch in batches for p in batch.partitions}
            return [
                replace(row, leader=now[row.key][0], leader_epoch=now[row.key][1])
                for row in self.first
                if row.key in wanted
            ]
        rows = super().read_fenced(batches)
        self.first = [*(self.first or []), *rows]
        return rows


class _PrepareIsAbsence(SimulatedEngine):
    """A partition that a Prepare* does not list any more is taken for absent."""

    def judge(
        self, observations: Sequence[Observation], views: Sequence[CoordinatorView], context: Context
    ) -> list[Judged]:
        """See Engine."""
        return [_accused(judged) for judged in super().judge(observations, views, context)]


def _accused(judged: Judged) -> Judged:
    judgement = judged.judgement
    if (judgement.verdict, judgement.reason) != (Verdict.INDETERMINATE, Reason.DECIDED):
        return judged
    return replace(judged, judgement=replace(judgement, verdict=Verdict.HANGING))


# All that a simulated cluster ever hands out.
_EVERY_PRODUCER_ID = frozenset(range(100))


class _CoordinatorsFirst(SimulatedCluster):
    """The order dropped: coordinators are asked before the first read."""

    def max_timeout_ms(self) -> Any:
        """See Cluster."""
        agreed = self.agreement([TRANSACTION_STATE_TOPIC])
        self._early_claims = super().ask_claims(_EVERY_PRODUCER_ID, lambda done, total: None)
        self._early, _ = super().snapshot(_EVERY_PRODUCER_ID, frozenset(), agreed, lambda done, total: None)
        return super().max_timeout_ms()

    def ask_claims(self, producer_ids: Collection[int], on_progress: OnProgress) -> list[ClaimAnswers]:
        """See Cluster."""
        return self._early_claims

    def snapshot(
        self,
        open_producer_ids: frozenset[int],
        open_topics: frozenset[str],
        agreed: Agreement,
        on_progress: OnProgress,
    ) -> tuple[Snapshot, Agreement]:
        """See Cluster."""
        return self._early, self.agreement({TRANSACTION_STATE_TOPIC, *open_topics})


class _AnybodysClaim(SimulatedCluster):
    """A condition of claims dropped: whichever broker claims a transaction is taken for its coordinator."""

    def split_by_claim(
        self, suspects: Mapping[Key, WideRow], always: Collection[Key], on_progress: OnProgress
    ) -> ClaimSplit:
        """See Cluster."""
        with patch.object(cluster, "counted_claims", lambda answers, latest: counted_claims(answers, None)):
            return super().split_by_claim(suspects, always, on_progress)


@dataclass(frozen=True, slots=True)
class _OfTheProducer(CountedClaims):
    """Holds all that a producer has open."""

    def claimant(self, topic_partition: str, producer: OpenProducer) -> CoordinatorView | None:
        """See CountedClaims."""
        view, _ = self.claims.get(producer.producer_id, (None, None))
        return view


class _ClaimOnTheProducer(SimulatedCluster):
    """A condition of claims dropped: a coordinator that holds a producer id is taken to hold all that it has open."""

    def split_by_claim(
        self, suspects: Mapping[Key, WideRow], always: Collection[Key], on_progress: OnProgress
    ) -> ClaimSplit:
        """See Cluster. The holder is made to list the partition too: the rules would not take it for held otherwise."""
        with patch.object(cluster, "counted_claims", _of_producers):
            split = super().split_by_claim(suspects, always, on_progress)
        return replace(split, claimed=tuple(_listing(held) for held in split.claimed))


def _of_producers(answers: Sequence[ClaimAnswers], latest: Agreement | None) -> CountedClaims:
    found = counted_claims(answers, latest)
    return _OfTheProducer(found.claims, found.prepared, found.transactional_ids)


def _listing(held: ClaimedTransaction) -> ClaimedTransaction:
    topic, index = held.key
    claimant = held.claimant
    return replace(held, claimant=replace(claimant, partitions=(*claimant.partitions, f"{topic}-{index}")))


DROPPED = {
    protocol.name: protocol
    for protocol in (
        Protocol("plan", "the plan is as new as the metadata of every broker", _OldPlan, reads_log=False),
        Protocol("leader", "L: reads come from the leader", _OneBrokersWord, _DescribeAlone, reads_log=False),
        Protocol(
            "high-watermark",
            "L: data is below the high watermark",
            SimulatedCluster,
            _AboveTheHighWatermark,
            reads_log=False,
        ),
        Protocol("coverage", "V: every coordinator was seen", _WhateverIsListed, reads_log=False),
        Protocol("visibility", "A: no id is hidden", _NothingHidden, reads_log=False),
        Protocol("second-read", "the second read of the partition", SimulatedCluster, _ReadOnce, reads_log=False),
        Protocol(
            "order",
            "the partition is read before coordinators are asked",
            _CoordinatorsFirst,
            starts_anywhere=True,
            reads_log=False,
        ),
        Protocol(
            "prepare",
            "what a Prepare* does not list is not absent",
            SimulatedCluster,
            _PrepareIsAbsence,
            reads_log=False,
        ),
        WITHOUT_LOG,
        Protocol(
            "claimant",
            "claims: the claimant leads the log of its id",
            _AnybodysClaim,
            reads_log=False,
        ),
        Protocol(
            "claim",
            "claims: a claim is on the partitions that it lists",
            _ClaimOnTheProducer,
            reads_log=False,
        ),
    )
}


def with_all(name: str) -> Protocol:
    """The sweep with that obligation, and without the log: the others must do where it cannot be read."""
    dropped = DROPPED[name]
    return replace(
        EVERYTHING, name="with all", starts_anywhere=dropped.starts_anywhere, reads_log=dropped is WITHOUT_LOG
    )
