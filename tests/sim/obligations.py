"""The proof obligations, and sweeps that omit one of them: each such sweep must accuse a healthy transaction.

The sweeps are the real sweep with one part replaced. `tests/search/test_obligations.py` has their false verdicts as
stories.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from tests.sim.history import NOW_MS, SimulatedCluster, SimulatedEngine, Simulation, sweep
from txnscan.coordinators import cluster, coordinator_listing, quorum
from txnscan.coordinators.agreed_metadata import AgreedMetadata
from txnscan.coordinators.claims import (
    ClaimAnswers,
    ClaimedAndUnclaimed,
    ClaimedTransaction,
    CountedClaims,
    counted_claims,
)
from txnscan.coordinators.coordinator_listing import CoordinatorAnswers, CoordinatorListing
from txnscan.coordinators.metadata_image import Latest, ask_offsets
from txnscan.kafka.answers import CoordinatorView, OpenProducer
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import Failure
from txnscan.kafka.protocol.describe_producers import by_topic, describe_producers
from txnscan.kafka.protocol.metadata import read_metadata
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key, Partition
from txnscan.parallel import OnProgress
from txnscan.reads.proven_read import ProvenReading, read_second, unproven_row
from txnscan.reads.rows import ProvenRow, ReadBatch, WideRow
from txnscan.sweeps.history import History
from txnscan.sweeps.result import Scan
from txnscan.verdict.evidence import Judged, Reason, Verdict
from txnscan.verdict.join import Judge, JudgeBatch


@dataclass(frozen=True)
class Protocol:
    """The evidence protocol of a sweep.

    lacks: the omitted part. starts_anywhere: it can be wrong even if no transaction is open when it begins. reads_log:
    whether hanging transactions are checked against the transaction log. history: the results of earlier sweeps, if
    any. sweep_id, now_ms: of this sweep, by its own clock.
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
        """Runs a sweep by this protocol. Raises ClusterUnreachable if no broker answers."""
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
# A sweep that cannot read the transaction log: the other obligations must suffice without it.
WITHOUT_LOG = Protocol("log", "the transaction log is held against the coordinators", reads_log=False)


class _OldPlan(SimulatedCluster):
    """The plan comes from the first broker that answers, however old its metadata is."""

    def latest(self, topics: Iterable[str] | None = None) -> Latest:
        """See Cluster."""
        return Latest(self.view(topics), {})


class _OneBrokersWord(_OldPlan):
    """Leader omitted: the metadata of the first broker that answers decides the leaders of partitions; the coordinators
    are still those of the newest image.
    """

    def agreed_metadata(self, topics: Iterable[str]) -> AgreedMetadata:
        """See Cluster."""
        agreed = super().agreed_metadata(topics)
        said = [topic for topic in self.view(topics).topics if topic.name != TRANSACTION_STATE_TOPIC]
        views = [(view, [t for t in view.topics if t.name == TRANSACTION_STATE_TOPIC]) for view in agreed.views]
        return replace(agreed, views=tuple(replace(view, topics=(*log, *said)) for view, log in views))


class _SomeImage(_OldPlan):
    """A part of leader omitted: the metadata after a read is any broker's, here that with the oldest image."""

    def agreed_metadata(self, topics: Iterable[str]) -> AgreedMetadata:
        """See Cluster."""
        reported = ask_offsets(self.send, self.broker_ids, self.in_parallel)
        ranks = {one: -at for one, at in reported.items() if isinstance(at, int)}
        return _first_of(self, topics, ranks) or super().agreed_metadata(topics)


class _EarlierOffsets(SimulatedCluster):
    """The order of two steps: the metadata after a read is that of the broker whose image was the newest before it."""

    def agreed_metadata(self, topics: Iterable[str]) -> AgreedMetadata:
        """See Cluster."""
        return _first_of(self, topics, self._reached) or super().agreed_metadata(topics)


def _first_of(of: SimulatedCluster, topics: Iterable[str], ranks: Mapping[int, int]) -> AgreedMetadata | None:
    """The metadata of the broker with the highest rank. None if it does not answer."""
    first = max(ranks, key=lambda one: (ranks[one], -one))
    try:
        return AgreedMetadata((read_metadata(of.send, first, topics),), ())
    except RequestFailed:
        return None


class _ElectedUnawares(SimulatedCluster):
    """A part of coverage omitted: a coordinator need not know that it was elected."""

    def concluded(
        self, answers: Iterable[CoordinatorAnswers], before: AgreedMetadata, after: AgreedMetadata
    ) -> CoordinatorListing:
        """See Cluster."""
        with patch.object(coordinator_listing, "_knows", lambda own, leader, k: True):
            return super().concluded(answers, before, after)


class _AnyQuorum(SimulatedCluster):
    """A part of leader omitted: whoever calls itself the leader of the controllers knows how far their log reaches."""

    def agreed_metadata(self, topics: Iterable[str]) -> AgreedMetadata:
        """See Cluster."""
        with patch.object(quorum, "led_still", lambda first, second: True):
            return super().agreed_metadata(topics)


_BEYOND_DOUBT = 1 << 40


class _DescribeAlone(SimulatedEngine):
    """Leader omitted: any answer to DescribeProducers counts as the leader's committed state."""

    def read_proven(self, batches: Sequence[ReadBatch], how: ProvenReading) -> list[ProvenRow]:
        """See SimulatedEngine."""
        rows: list[ProvenRow] = []
        for batch in batches:
            try:
                described = describe_producers(
                    self.simulation.send, batch.leader, by_topic(p.key for p in batch.partitions)
                )
            except RequestFailed as failed:
                rows += [unproven_row(p, failed.failure, NOW_MS) for p in batch.partitions]
            else:
                rows += [
                    _trusted(p, described[p.key].open_producers, described[p.key].failure) for p in batch.partitions
                ]
        return rows


def _trusted(partition: Partition, open_producers: tuple[OpenProducer, ...], failure: Failure | None) -> ProvenRow:
    return ProvenRow(
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
    """A part of leader omitted: data above the high watermark counts, although it may still be truncated."""

    def read_proven(self, batches: Sequence[ReadBatch], how: ProvenReading) -> list[ProvenRow]:
        """See SimulatedEngine."""
        rows = super().read_proven(batches, how)
        return [row if row.failure is not None else replace(row, high_watermark=_BEYOND_DOUBT) for row in rows]


class _WhateverIsListed(SimulatedCluster):
    """Coverage omitted: an id that no listing shows counts as absent."""

    def believed(self, snapshot: CoordinatorListing) -> CoordinatorListing:
        """See SimulatedCluster."""
        return replace(
            snapshot,
            views=tuple(replace(view, coverage_failure=None, split_failure=None) for view in snapshot.views),
            coordinators_proven=snapshot.coordinators_planned,
            coverage_errors=(),
            split_failures=(),
        )


class _NothingHidden(SimulatedCluster):
    """Visibility omitted: ids that the principal may not see count as absent."""

    def believed(self, snapshot: CoordinatorListing) -> CoordinatorListing:
        """See SimulatedCluster."""
        return replace(snapshot, visibility_failures=())


class _ReadOnce(SimulatedEngine):
    """The second read omitted: the first read is used twice."""

    def __init__(self, simulation: Simulation, now_ms: int = NOW_MS) -> None:
        super().__init__(simulation, now_ms)
        self.first: list[ProvenRow] | None = None

    def read_proven(self, batches: Sequence[ReadBatch], how: ProvenReading) -> list[ProvenRow]:
        """See SimulatedEngine."""
        wanted = {partition.key for batch in batches for partition in batch.partitions}
        if how is read_second and self.first is not None:
            return [row for row in self.first if row.key in wanted]
        rows = super().read_proven(batches, how)
        self.first = [*(self.first or []), *rows]
        return rows


class _PrepareIsAbsence(SimulatedEngine):
    """A partition that a Prepare* no longer lists counts as absent."""

    def judge(self, batches: Sequence[JudgeBatch], judge: Judge) -> list[Judged]:
        """See SimulatedEngine."""
        return [_accused(judged) for judged in super().judge(batches, judge)]


def _accused(judged: Judged) -> Judged:
    judgement = judged.judgement
    if (judgement.verdict, judgement.reason) != (Verdict.INDETERMINATE, Reason.DECIDED):
        return judged
    return replace(judged, judgement=replace(judgement, verdict=Verdict.HANGING))


# All producer ids that a simulated cluster ever assigns.
_EVERY_PRODUCER_ID = frozenset(range(100))


class _CoordinatorsFirst(SimulatedCluster):
    """The order omitted: coordinators are asked before the first read."""

    def max_timeout_ms(self) -> Any:
        """See Cluster."""
        agreed = self.agreed_metadata([TRANSACTION_STATE_TOPIC])
        self._early_claims = super().ask_claims(_EVERY_PRODUCER_ID, lambda done, total: None)
        self._early = super().ask_coordinators(
            agreed, dict.fromkeys(_EVERY_PRODUCER_ID, frozenset()), lambda done, total: None
        )
        return super().max_timeout_ms()

    def ask_claims(self, producer_ids: Collection[int], on_progress: OnProgress) -> list[ClaimAnswers]:
        """See Cluster."""
        return self._early_claims

    def ask_coordinators(
        self, before: AgreedMetadata, open_topics: Mapping[int, frozenset[str]], on_progress: OnProgress
    ) -> list[CoordinatorAnswers]:
        """See Cluster."""
        return self._early


class _AnybodysClaim(SimulatedCluster):
    """A condition of claims omitted: a claim of any broker counts as the coordinator's."""

    def separate_by_claim(
        self,
        suspects: Mapping[Key, WideRow],
        always: Collection[Key],
        agreed: AgreedMetadata,
        on_progress: OnProgress,
        read_from_ms: int,
    ) -> ClaimedAndUnclaimed:
        """See Cluster."""
        with patch.object(cluster, "counted_claims", _anybodys):
            return super().separate_by_claim(suspects, always, agreed, on_progress, read_from_ms)


@dataclass(frozen=True, slots=True)
class _OfTheProducer(CountedClaims):
    """Claims all open transactions of its producer."""

    def claimant(self, topic_partition: str, producer: OpenProducer) -> CoordinatorView | None:
        """See CountedClaims."""
        view, _ = self.claims.get(producer.producer_id, (None, None))
        return view


class _ClaimOnTheProducer(SimulatedCluster):
    """A condition of claims omitted: a claim on a producer id counts for all its open transactions."""

    def separate_by_claim(
        self,
        suspects: Mapping[Key, WideRow],
        always: Collection[Key],
        agreed: AgreedMetadata,
        on_progress: OnProgress,
        read_from_ms: int,
    ) -> ClaimedAndUnclaimed:
        """See Cluster. The claimant's view lists the partition too, because the rules would not accept the claim
        otherwise.
        """
        with patch.object(cluster, "counted_claims", _of_producers):
            separated = super().separate_by_claim(suspects, always, agreed, on_progress, read_from_ms)
        return replace(separated, claimed=tuple(_listing(held) for held in separated.claimed))


def _anybodys(answers: Sequence[ClaimAnswers], _: AgreedMetadata | None, read_from_ms: int) -> CountedClaims:
    return counted_claims(answers, None, read_from_ms)


def _of_producers(answers: Sequence[ClaimAnswers], latest: AgreedMetadata | None, read_from_ms: int) -> CountedClaims:
    found = counted_claims(answers, latest, read_from_ms)
    return _OfTheProducer(found.claims, found.prepared, found.transactional_ids, read_from_ms)


def _listing(held: ClaimedTransaction) -> ClaimedTransaction:
    topic, index = held.key
    claimant = held.claimant
    return replace(held, claimant=replace(claimant, partitions=(*claimant.partitions, f"{topic}-{index}")))


DROPPED = {
    protocol.name: protocol
    for protocol in (
        Protocol("plan", "the plan is as new as the metadata of every broker", _OldPlan, reads_log=False),
        Protocol("leader", "reads come from the leader", _OneBrokersWord, _DescribeAlone, reads_log=False),
        Protocol("newest", "the metadata after a read is at least as new as any broker's", _SomeImage, reads_log=False),
        Protocol(
            "high-watermark",
            "data is below the high watermark",
            SimulatedCluster,
            _AboveTheHighWatermark,
            reads_log=False,
        ),
        Protocol("coverage", "every coordinator was seen", _WhateverIsListed, reads_log=False),
        Protocol("elected", "a coordinator knows that it was elected", _ElectedUnawares, reads_log=False),
        Protocol("quorum", "the leader of the controllers was not replaced", _AnyQuorum, reads_log=False),
        Protocol("visibility", "no id is hidden", _NothingHidden, reads_log=False),
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

# Too many events happen during the sweep for a search.
EARLIER_OFFSETS = Protocol(
    "earlier offsets", "the offsets are asked for after a read", _EarlierOffsets, reads_log=False
)


def with_all(name: str) -> Protocol:
    """The sweep with this obligation, but without the log: the other obligations must suffice if the log cannot be
    read.
    """
    dropped = DROPPED[name]
    return replace(
        EVERYTHING, name="with all", starts_anywhere=dropped.starts_anywhere, reads_log=dropped is WITHOUT_LOG
    )
