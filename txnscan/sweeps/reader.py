"""Read partitions through an engine, and retry if leaders move.

If a leader moved since the plan, the partition is read again with fresh metadata. If that fails too, the result is a
row with the error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from txnscan.config import ScanConfig
from txnscan.coordinators.agreed_metadata import AgreedMetadata, LeaderUnknown
from txnscan.coordinators.cluster import Cluster, ClusterUnreachable
from txnscan.coordinators.metadata_image import DISPUTED, Latest, differing
from txnscan.engine import Engine
from txnscan.kafka.answers import OpenProducer
from txnscan.kafka.clock import wall_clock_ms
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.failure import Failure, FailureCode, Unobserved
from txnscan.kafka.security.acls import needing
from txnscan.kafka.security.needs import DESCRIBE_TOPICS
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, ClusterView, Key, Partition, Topic
from txnscan.parallel import OnProgress
from txnscan.reads.planner import plan_proven, plan_wide
from txnscan.reads.proven_read import ProvenReading, failed_partitions, read_proven, read_second, unproven_row
from txnscan.reads.rows import OffsetsRow, ProvenRow, WideAnswer, WideRow
from txnscan.reads.tasks import ReadOffsets, ReadProven, ReadWide
from txnscan.sweeps.observations import RECREATED
from txnscan.sweeps.scope import in_scope
from txnscan.txnlog.facts import ClosedProducer

UNKNOWN_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
MOVED = Failure("the leader moved during the read", FailureCode.LEADER_MOVED)
PROVEN_TRIES = 3
_RETRY_WAIT_S = 0.25
PROVEN_BATCH_SIZE = 100
# At most this many partitions are read in the driver: measured, 0.14 s instead of 0.25 s for a job on executors.
# Usually there are only a few.
DRIVER_READS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Wide:
    """The wide read: rows with open transactions, failures, and the numbers of partitions and producers.

    latest: the metadata of the plan, or if anything changed since, that after the first reads. A partition that was
    read twice counts once; its producers count twice. closed: the requested producers that have no open transaction, as
    the leaders list them.
    """

    rows: tuple[WideRow, ...]
    errors: tuple[Unobserved, ...]
    planned: int
    answered: int
    producers: int
    latest: Latest
    closed: tuple[ClosedProducer, ...] = ()

    @property
    def view(self) -> ClusterView:
        """The brokers and topics."""
        return self.latest.view

    def closed_of(self, producer_id: int) -> tuple[ClosedProducer, ...]:
        """The partitions that list this producer without an open transaction."""
        return tuple(one for one in self.closed if one.producer_id == producer_id)


class SweepReader:
    """The wide and proven reads of one sweep."""

    def __init__(self, cluster: Cluster, engine: Engine, config: ScanConfig) -> None:
        self._cluster = cluster
        self._engine = engine
        self._config = config

    def wide(
        self, planned: Latest, on_progress: OnProgress, on_retry: OnProgress, producer_ids: Iterable[int] = ()
    ) -> Wide:
        """Sends DescribeProducers for all partitions in scope. A partition is read again if its read failed, or if its
        topic or leader changed since the plan. A second change is a failure.

        on_progress, on_retry: called with progress in partitions. producer_ids: the producers to report although they
        have no open transaction.
        """
        kept = tuple(producer_ids)
        before = in_scope(self._config, planned.view)
        first, failed = self._wide(before, on_progress, kept)
        now, hidden = self._now(planned, before, failed)
        after = in_scope(self._config, now.view)
        unread = {(error.topic, error.partition) for error in failed}
        # `stale`: the first answers that do not count. `to_read`: the partitions to read again.
        stale = differing(after, before) | {p.key for t in _among(before, now.disputed) for p in t.partitions}
        to_read = _among(after, differing(before, after) | now.disputed | unread)
        second, errors = self._again(to_read, failed, on_retry, kept) if to_read else ([], [])
        errors += [*hidden, *(self._unsettled(now, to_read) if now is not planned else ())]
        last = [row for answer in first for row in answer.rows if row.key not in stale]
        last += (row for answer in second for row in answer.rows)
        return Wide(
            rows=tuple(row for row in last if row.open_producers),
            closed=tuple(_closed(row, one) for row in last for one in row.closed_producers),
            errors=tuple(sorted(dict.fromkeys(errors), key=lambda e: (e.topic or "", e.partition or 0))),
            planned=sum(len(topic.indexes) for topic in after),
            answered=sum(answer.answered for answer in (*first, *second)) - len(stale - unread),
            producers=sum(answer.producers for answer in (*first, *second)),
            latest=now,
        )

    def _again(
        self, topics: Sequence[Topic], failed: Sequence[Unobserved], on_progress: OnProgress, kept: Sequence[int]
    ) -> tuple[list[WideAnswer], list[Unobserved]]:
        """Reads these topics again. If the sweep's time is up, asks no executors and returns each earlier failure."""
        if not self._cluster.deadline.is_up:
            return self._wide(topics, on_progress, kept)
        why = {(error.topic, error.partition): error for error in failed}
        keys = [(topic.name, index) for topic in topics for index in topic.indexes]
        time_is_up = self._cluster.deadline.time_is_up
        return [], [why.get(key, Unobserved("read", time_is_up, None, *key)) for key in keys]

    def _now(
        self, planned: Latest, before: Sequence[Topic], failed: Sequence[Unobserved]
    ) -> tuple[Latest, list[Unobserved]]:
        """The plan's metadata if all was read and the broker that showed it shows the same topics and leaders still.
        Otherwise see `_latest`.

        A leader that was deposed since the plan has all that it had at the plan. So this only finds what is newer than
        the sweep, and needs no proof.
        """
        if not failed and not planned.outside_kraft:
            shown = self._cluster.shown_by(planned.view.answered_by)
            if shown is not None:
                after = in_scope(self._config, shown)
                if not differing(before, after) and not differing(after, before):
                    return planned, []
        return self._latest(planned, before)

    def _latest(self, planned: Latest, before: Sequence[Topic]) -> tuple[Latest, list[Unobserved]]:
        """The latest metadata, and a failure for each of these topics that it hides.

        A listing of all topics omits topics that the principal may no longer describe. These keep their earlier
        metadata, because only a deleted topic is unknown if asked for by name. If no broker answers any more, the
        plan's metadata stays, with a failure.
        """
        try:
            now = self._cluster.latest()
        except ClusterUnreachable as error:
            return planned, [Unobserved("plan", error.failure)]
        missing = {topic.name: topic for topic in before}
        for topic in now.view.topics:
            missing.pop(topic.name, None)
        if not missing:
            return now, []
        try:
            codes = dict(self._cluster.latest(missing).view.topic_errors)
        except ClusterUnreachable as error:
            return planned, [Unobserved("plan", error.failure)]
        hidden = [topic for name, topic in missing.items() if codes.get(name) != UNKNOWN_TOPIC]
        topics = tuple(sorted((*now.view.topics, *hidden), key=lambda topic: topic.name))
        failures = [_hides(topic.name, codes.get(topic.name)) for topic in hidden]
        return replace(now, view=replace(now.view, topics=topics)), failures

    def _unsettled(self, now: Latest, reread: Sequence[Topic]) -> Iterator[Unobserved]:
        """A failure for each partition that changed again, and for each broker that did not answer."""
        try:
            latest = self._cluster.latest({topic.name for topic in reread}) if reread else now
        except ClusterUnreachable as error:
            yield Unobserved("plan", error.failure)
            return
        moved = differing(now.view.topics, latest.view.topics) - latest.disputed
        for failure, keys in ((MOVED, moved), (DISPUTED, latest.disputed)):
            for topic in _among(reread, keys):
                yield from (Unobserved("read", failure, None, topic.name, index) for index in topic.indexes)
        yield from latest.unreachable()

    def _wide(
        self, topics: Iterable[Topic], on_progress: OnProgress, kept: Sequence[int]
    ) -> tuple[list[WideAnswer], list[Unobserved]]:
        config = self._config
        batches, unled = plan_wide(
            topics, batch_size=config.batch_size, in_flight_max=config.in_flight_max, producer_ids=kept
        )
        count = sum(batch.size for batch in batches)
        answers = self._engine.map(
            ReadWide(self._cluster.clients),
            batches,
            WideAnswer,
            lambda done, total: on_progress(done * count // total, count),
        )
        self._cluster.read_bytes += sum(answer.read_bytes for answer in answers)
        rows = (row for answer in answers for row in answer.rows)
        failed = [Unobserved("read", row.failure, row.leader, *row.key) for row in rows if row.failure is not None]
        return answers, [*unled, *failed]

    def proven(
        self,
        keys: Iterable[Key],
        agreed: AgreedMetadata,
        on_progress: OnProgress,
        how: ProvenReading = read_proven,
    ) -> tuple[dict[Key, ProvenRow], AgreedMetadata]:
        """One row per partition: proven to come from the leader that the metadata after the read names, or a failure.
        Also the last agreed metadata of these topics and `__transaction_state`.

        agreed: the metadata before the read. how: what to read of each partition.
        """
        rows: dict[Key, ProvenRow] = {}
        missing = sorted(set(keys))
        topics = {TRANSACTION_STATE_TOPIC, *(topic for topic, _ in missing)}
        for attempt in range(1, PROVEN_TRIES + 1):
            if not missing:
                break
            if attempt > 1:
                self._cluster.sleep(_RETRY_WAIT_S * attempt)
            read = self.proven_once(missing, agreed, on_progress, how)
            agreed = self._cluster.agreed_metadata(topics)
            rows |= {key: confirmed(row, agreed) for key, row in read.items()}
            missing = sorted(failed_partitions(rows.values()))
        return rows, agreed

    def proven_once(
        self, keys: Iterable[Key], agreed: AgreedMetadata, on_progress: OnProgress, how: ProvenReading
    ) -> dict[Key, ProvenRow]:
        """One row per partition, from the leader that this metadata names. The caller confirms the rows, by metadata
        that is asked for later.
        """
        known: list[Partition] = []
        rows: dict[Key, ProvenRow] = {}
        for topic, index in sorted(set(keys)):
            try:
                known.append(agreed.partition(topic, index))
            except LeaderUnknown as failed:
                nobody = Partition(topic, "", index, leader=-1, leader_epoch=-1)
                rows[nobody.key] = unproven_row(nobody, failed.failure, wall_clock_ms())
        return rows | self._from_leaders(known, on_progress, how)

    def second(self, first: Mapping[Key, ProvenRow], on_progress: OnProgress) -> dict[Key, ProvenRow]:
        """The second read of these partitions, from the same leaders at the same leader epochs. If the first read
        failed, so has the second.
        """
        led = [row.led for row in first.values() if row.failure is None]
        read = self._from_leaders(led, on_progress, read_second)
        # What was below the high watermark at the first read is below it as long as the leader epoch lasts.
        unread = {key: replace(row, open_producers=()) for key, row in first.items() if key not in read}
        return unread | {key: replace(row, high_watermark=first[key].high_watermark) for key, row in read.items()}

    def _from_leaders(
        self, partitions: Sequence[Partition], on_progress: OnProgress, how: ProvenReading
    ) -> dict[Key, ProvenRow]:
        batches = plan_proven(partitions, batch_size=PROVEN_BATCH_SIZE, in_flight_max=self._config.in_flight_max)
        read = ReadProven(self._cluster.clients, how, wall_clock_ms)
        return {row.key: row for row in self._engine_for(partitions).map(read, batches, ProvenRow, on_progress)}

    def offsets(self, keys: Iterable[Key], view: ClusterView) -> dict[Key, OffsetsRow]:
        """The offsets of these partitions, from the leaders that one broker's metadata names. No verdict depends on
        them.
        """
        believed = AgreedMetadata(views=(view,), errors=())
        known = []
        for key in keys:
            with suppress(LeaderUnknown):
                known.append(believed.partition(*key))
        batches = plan_proven(known, batch_size=PROVEN_BATCH_SIZE, in_flight_max=self._config.in_flight_max)
        read = ReadOffsets(self._cluster.clients)
        rows = self._engine_for(known).map(read, batches, OffsetsRow, lambda done, total: None)
        if batches and self._cluster.deadline.is_up:
            # Partitions that executors did not read have no row and no error.
            self._cluster.deadline.missed = True
        return {(row.topic, row.partition): row for row in rows}

    def _engine_for(self, partitions: Sequence[Partition]) -> Engine:
        return self._engine.driver if len(partitions) <= DRIVER_READS_MAX else self._engine


def _closed(row: WideRow, one: OpenProducer) -> ClosedProducer:
    return ClosedProducer(*row.key, one.producer_id, one.producer_epoch, one.coordinator_epoch)


def _hides(name: str, code: str | None) -> Unobserved:
    if code is None:
        return Unobserved("read", RECREATED, None, name)
    return Unobserved("read", needing(Failure(code, code), DESCRIBE_TOPICS.on(name)), None, name)


def _among(topics: Iterable[Topic], keys: Collection[tuple[str | None, int | None]]) -> list[Topic]:
    """These topics, reduced to these partitions; topics without any of them are omitted."""
    names = {name for name, _ in keys}
    found = (topic.only(partial(_is_among, topic.name, keys)) for topic in topics if topic.name in names)
    return [topic for topic in found if topic.indexes]


def _is_among(name: str, keys: Collection[tuple[str | None, int | None]], index: int, leader: int) -> bool:
    return (name, index) in keys


def confirmed(row: ProvenRow, after: AgreedMetadata) -> ProvenRow:
    """The row, with a failure if this metadata, which was asked for after the read, names another leader or leader
    epoch. Pure.

    Leader epochs of a topic id only rise at a change. So if it names the same leader at the same leader epoch, that
    broker led the partition from before the read on.
    """
    if row.failure is not None:
        return row
    try:
        leader = after.partition(row.topic, row.partition)
    except LeaderUnknown as failed:
        return replace(row, failure=failed.failure)
    if leader.topic_id != row.topic_id:
        return replace(row, failure=RECREATED)
    if (leader.leader, leader.leader_epoch) != (row.leader, row.leader_epoch):
        return replace(row, failure=MOVED)
    return row
