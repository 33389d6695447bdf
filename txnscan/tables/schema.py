"""Every stored column once: its name, its Spark SQL type, its meaning, and the source of its value.

Names and types are a contract that dashboards read. `SCHEMA_VERSION` rises with each change here. `versions.py` says
what may be done with tables of another version.

Times are UTC timestamps, except where a name ends in `_ms`: then it is a number of milliseconds, or a record's own
timestamp as the client wrote it, which need not be a possible date.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from types import GenericAlias
from typing import Any

from txnscan.engine.clock import StageTime
from txnscan.kafka.answers import CoordinatorView
from txnscan.kafka.failure import Failure, Permission, Unobserved
from txnscan.sweeps.restored import LogPosition
from txnscan.sweeps.result import HealthyCount, Scan
from txnscan.txnlog.facts import ClosedProducer, LogRead, LogScan, SeenCommit, SeenMarker
from txnscan.verdict.evidence import Evidence, Judged, Verdict
from txnscan.waiting.blocking import end_of
from txnscan.waiting.complete_up_to import Completeness, PartitionRead, TopicRead
from txnscan.waiting.disk import DiskRead
from txnscan.waiting.impact import BlockedGroup, BlockedReader
from txnscan.waiting.writability import BehindLast

SCHEMA_VERSION = 22
# The first version since which each change only added tables or columns that may be null. Releases of that version can
# read all later tables, until a change does more.
READABLE_SINCE = 21


@dataclass(frozen=True, slots=True)
class Column:
    """A stored column. type: in Spark SQL, or a dataclass, which becomes a struct, or a tuple of them, an array. value:
    computes the column from the sweep, and from the item that the row is about.
    """

    name: str
    type: str | type | GenericAlias
    meaning: str
    value: Callable[[Any, Any], Any]
    required: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table, its columns in order, CHECK constraints by name, and the columns that it is partitioned by.

    Many clusters are written to one table at once, and each write names its cluster.

    made_anew: the table is created again if it is missing: only ages are lost, and start again. change_feed: Delta
    keeps the changes of each commit (its change data feed). since: the schema version that added it.
    """

    name: str
    meaning: str
    columns: tuple[Column, ...]
    checks: tuple[tuple[str, str], ...] = ()
    partitioned_by: tuple[str, ...] = ("cluster_id",)
    made_anew: bool = False
    change_feed: bool = False
    since: int = 0

    def rows(self, scan: Scan | None, items: Any) -> list[dict[str, Any]]:
        """The rows of these items. scan: their sweep, if they are of a sweep."""
        return [{column.name: column.value(scan, item) for column in self.columns} for item in items]


def timestamp(epoch_ms: int) -> datetime:
    """Epoch milliseconds as a UTC timestamp."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)


def epoch_ms(at: datetime) -> int:
    """The reverse of `timestamp`."""
    return round(at.timestamp() * 1_000)


def incident_id(cluster_id: str, judged: Judged) -> str:
    """The id of a hanging transaction's incident."""
    return judged.observation.transaction_key.incident_id(cluster_id)


def _owner(judged: Judged) -> CoordinatorView | None:
    """The coordinator's view that the row's own columns are taken from; all views are in `evidence`."""
    views = judged.evidence.coordinators
    return views[0] if views else None


def _coordinator(name: str) -> Callable[[Scan, Judged], Any]:
    def value(scan: Scan, judged: Judged) -> Any:
        view = _owner(judged)
        described = view is not None and (view.describe_failure is None or name in ("transactional_id", "broker_id"))
        return getattr(view, name) if described else None

    return value


def _observation(path: str) -> Callable[[Scan, Judged], Any]:
    value = attrgetter(path)
    return lambda scan, judged: value(judged.observation)


def _judgement(name: str) -> Callable[[Scan, Judged], Any]:
    return lambda scan, judged: getattr(judged.judgement, name)


def _field(path: str) -> Callable[[Any, Any], Any]:
    value = attrgetter(path)
    return lambda _, item: value(item)


def _time(name: str) -> Callable[[Any, Any], Any]:
    return lambda _, item: timestamp(getattr(item, name))


def _date(name: str) -> Callable[[Any, Any], Any]:
    return lambda _, item: timestamp(getattr(item, name)).date()


def _outcome(name: str) -> Callable[[Scan, Judged], Any]:
    """A field of the outcome of a hanging transaction; null for others."""
    return lambda scan, judged: getattr(judged.known_outcome, name) if judged.known_outcome is not None else None


def _first_batch(name: str) -> Callable[[Scan, Judged], Any]:
    """A field of the evidence for that outcome; null for transactions that do not hang."""

    def found(scan: Scan, judged: Judged) -> Any:
        evidence = scan.evidence_of_outcome(judged)
        return getattr(evidence, name) if evidence is not None else None

    return found


def _ends_by(scan: Scan, judged: Judged) -> datetime | None:
    end_ms = end_of(judged, scan.writes)
    return timestamp(end_ms) if end_ms is not None else None


def _impact(path: str) -> Callable[[Scan, Judged], Any]:
    """A field of the impact of a hanging transaction, or of a live one with a row; null for others."""
    value = attrgetter(path)

    def found(scan: Scan, judged: Judged) -> Any:
        impact = scan.impact(judged)
        return value(impact) if impact is not None else None

    return found


def _carried_impact(name: str) -> Callable[[Scan, Judged], Any]:
    def found(scan: Scan, judged: Judged) -> Any:
        carried = scan.carried_impact(judged)
        return getattr(carried, name) if carried is not None else None

    return found


def _lso_unmoved_ms(scan: Scan, judged: Judged) -> int | None:
    impact = scan.impact(judged)
    if impact is None or impact.lso_since_ms is None:
        return None
    return max(judged.observation.second.read_at_ms - impact.lso_since_ms, 0)


def _lso_since(scan: Scan, judged: Judged) -> datetime | None:
    carried = scan.carried_impact(judged)
    return timestamp(carried.lso_since_ms) if carried is not None and carried.lso_since_ms is not None else None


def _count(verdict: Verdict) -> Callable[[Scan, Scan], int]:
    return lambda scan, item: scan.counts[verdict]


_HISTORY = (
    "Number of the cluster's history, which rises if a sweep notices that the cluster went back, and with "
    "--new-history. Facts of an earlier history prove nothing"
)

SWEEP_COLUMNS = (
    Column("sweep_id", "STRING", "The sweep that this row belongs to", lambda s, _: s.sweep_id, True),
    Column("cluster_id", "STRING", "The cluster's id, from Metadata", lambda s, _: s.cluster_id, True),
    Column(
        "sweep_date",
        "DATE",
        "UTC date on which the sweep started",
        lambda s, _: timestamp(s.started_at_ms).date(),
        True,
    ),
    Column("started_at", "TIMESTAMP", "When the sweep started", lambda s, _: timestamp(s.started_at_ms), True),
    Column("history", "BIGINT", _HISTORY, lambda s, _: s.history, True),
)

TRANSACTION_COLUMNS = (
    Column("topic", "STRING", "Topic", _observation("topic"), True),
    Column(
        "topic_id",
        "STRING",
        "Topic id, as Kafka prints it; empty before Kafka 2.8",
        _observation("topic_id"),
        True,
    ),
    Column("partition", "INT", "Partition number", _observation("partition"), True),
    Column("producer_id", "BIGINT", "Producer id of the open transaction", _observation("producer_id"), True),
    Column("producer_epoch", "INT", "Producer epoch on the partition", _observation("producer_epoch"), True),
    Column(
        "coordinator_epoch",
        "INT",
        "Coordinator epoch of the last marker of this producer id on the partition, -1 before the first",
        _observation("coordinator_epoch"),
        True,
    ),
    Column(
        "start_offset",
        "BIGINT",
        "Offset of the transaction's first record on the partition",
        _observation("start_offset"),
        True,
    ),
    Column(
        "last_timestamp_ms",
        "BIGINT",
        "Timestamp of its last record, as the client wrote it (epoch ms)",
        _observation("last_timestamp_ms"),
        True,
    ),
    Column(
        "verdict",
        "STRING",
        "gone, pending_marker, ongoing, late_ongoing, indeterminate or hanging",
        lambda s, j: str(j.judgement.verdict),
        True,
    ),
    Column("reason", "STRING", "Reason of the verdict", lambda s, j: str(j.judgement.reason), True),
    Column(
        "late",
        "BOOLEAN",
        "Older than any transaction can get under a working coordinator",
        _judgement("late"),
        True,
    ),
    Column(
        "candidate",
        "BOOLEAN",
        "Hanging and late: a candidate in KIP-664's sense",
        lambda s, j: j.candidate,
        True,
    ),
    Column("age_ms", "BIGINT", "Time for which it is known to be open", _judgement("age_ms"), True),
    Column(
        "outcome",
        "STRING",
        "Decision about this data: committed, not_committed, mixed, or, if it hangs and the decision is not proven, "
        "maybe_committed or unknown. Null for transactions that are undecided or not hanging",
        _judgement("outcome"),
    ),
    Column("outcome_reason", "STRING", "Reason of the outcome of a hanging transaction", _judgement("outcome_reason")),
    Column(
        "log_failure",
        Failure,
        "Why __transaction_state could not be read for a hanging transaction; plan then refuses it",
        _outcome("log_failure"),
    ),
    Column(
        "transactional_id",
        "STRING",
        "Transactional id that has this producer id",
        _coordinator("transactional_id"),
    ),
    Column("coordinator", "INT", "Broker that described the transactional id", _coordinator("broker_id")),
    Column("coordinator_state", "STRING", "State of the transactional id at its coordinator", _coordinator("state")),
    Column(
        "coordinator_producer_epoch",
        "INT",
        "Producer epoch at the coordinator",
        _coordinator("producer_epoch"),
    ),
    Column("transaction_timeout_ms", "BIGINT", "Timeout of the transactional id", _coordinator("timeout_ms")),
    Column(
        "transaction_start_ms",
        "BIGINT",
        "When the coordinator started the id's current transaction (epoch ms), -1 for none",
        _coordinator("start_time_ms"),
    ),
    Column("leader", "INT", "Leader of the partition, -1 for none", _observation("leader"), True),
    Column("leader_epoch", "INT", "Leader epoch at which the partition was read", _observation("leader_epoch"), True),
    Column(
        "high_watermark",
        "BIGINT",
        "High watermark before the first of the two reads",
        _observation("second.high_watermark"),
    ),
    Column(
        "last_stable_offset",
        "BIGINT",
        "Last stable offset after the second read",
        _observation("second.last_stable_offset"),
    ),
    Column(
        "blocked_records",
        "BIGINT",
        "Offsets from the last stable offset to the high watermark, which read_committed consumers do not get",
        lambda s, j: j.blocked_records,
    ),
    Column(
        "first_seen_at",
        "TIMESTAMP",
        "When txnscan first saw this transaction",
        lambda s, j: timestamp(j.observation.first_seen_ms),
        True,
    ),
    Column("explanation", "STRING", "The verdict in one sentence", _judgement("explanation"), True),
)

# The impact of hanging transactions, and of live ones with a row.
IMPACT_COLUMNS = (
    Column(
        "holds_lso",
        "BOOLEAN",
        "Whether the last stable offset is at this transaction; if not, another transaction starts before it and must "
        "end first",
        lambda s, j: j.holds_lso if s.impact(j) is not None else None,
    ),
    Column(
        "lso_unmoved_ms",
        "BIGINT",
        "Minimum time for which the last stable offset has not moved, by earlier sweeps of this incident; null without "
        "earlier sweeps",
        _lso_unmoved_ms,
    ),
    Column(
        "blocked_groups",
        tuple[BlockedGroup, ...],
        "Groups that it blocks or may block, largest lag first, at most 100. reason is unstable if the transaction has "
        "offsets of the group, maybe_unstable if that could not be read, and at_lso if a read_committed consumer gets "
        "no record between the group's committed offset and the last stable offset. The isolation level of a group is "
        "not visible. lag is up to the high watermark",
        _impact("groups"),
    ),
    Column(
        "groups_blocked",
        "BIGINT",
        "Number of groups that it blocks or may block; null if a group may be missing, groups_error has the reason",
        _impact("groups_blocked"),
    ),
    Column("groups_asked", "BIGINT", "Number of groups that were asked about", _impact("groups_asked")),
    Column("groups_error", "STRING", "Why groups may be missing; null if no group is missing", _impact("groups_error")),
    Column(
        "blocked_readers",
        tuple[BlockedReader, ...],
        "Streaming queries of --spark-checkpoint that it blocks or may block, largest lag first, at most 100. reason "
        "is at_lso if a read_committed consumer gets no record between next_offset and the last stable offset. The "
        "isolation level of a query is not visible. Null without checkpoints",
        _impact("readers"),
    ),
    Column(
        "readers_blocked",
        "BIGINT",
        "Number of these queries; null without checkpoints, and if a query may be missing: readers_error has the "
        "reason",
        _impact("readers_blocked"),
    ),
    Column(
        "readers_error", "STRING", "Why queries may be missing; null if no query is missing", _impact("readers_error")
    ),
    Column("cleanup_policy", "STRING", "cleanup.policy of the topic", _impact("cleanup_policy")),
    Column(
        "compaction_blocked",
        "BOOLEAN",
        "Whether the topic is compacted: the cleaner does not pass the last stable offset",
        _impact("compaction_blocked"),
    ),
    Column(
        "tiering_blocked",
        "BOOLEAN",
        "Whether the topic is tiered: segments above the last stable offset stay on local disks",
        _impact("tiering_blocked"),
    ),
    Column(
        "retention_ms",
        "BIGINT",
        "retention.ms of a topic that deletes by age and is not tiered, -1 for none. Retention does not wait for the "
        "last stable offset, so blocked records may be deleted unread",
        _impact("retention_ms"),
    ),
    Column(
        "cause",
        "STRING",
        "Cause of a hanging transaction, by evidence: marker_missing, late_write, never_added, fenced or unknown",
        _impact("cause"),
    ),
    Column("cause_reason", "STRING", "Evidence of the cause, or why it is not known", _impact("cause_reason")),
    Column(
        "owner_id",
        "STRING",
        "Transactional id that has its producer id, or the last id in __transaction_state that had it",
        _impact("owner.transactional_id"),
    ),
    Column("framework", "STRING", "Framework that the format of owner_id suggests", _impact("owner.framework")),
    Column("advice", "STRING", "Owner to ask, and checks before the transaction is ended", _impact("owner.advice")),
    Column(
        "event_id",
        "STRING",
        "Its event: hanging transactions that share producer id, owner or cause, and time. The id is that of the "
        "earliest incident of the event",
        _impact("event_id"),
    ),
)

LIVE_COLUMNS = (
    Column(
        "blocking",
        "BOOLEAN",
        "Whether a live transaction (ongoing or late_ongoing) holds readers back: groups or streaming queries wait "
        "or may wait for it, or it is older than --blocking-after and the last stable offset is at it. Null if that is "
        "not known, and for others. It is no accusation: the coordinator will end it",
        lambda s, j: s.blocks(j),
    ),
    Column(
        "ends_by",
        "TIMESTAMP",
        "When a live transaction times out by its coordinator: its start plus its timeout. Its coordinator aborts it "
        "then, unless it has ended before. Null under two-phase commit, which has no timeout, and if the coordinator "
        "does not report both",
        _ends_by,
    ),
)

# The disk behind blocked compaction.
DISK_COLUMNS = (
    Column(
        "disk_broker",
        "INT",
        "Broker whose replica of a compacted partition fills its disk first. The numbers below are of this replica. "
        "Null for topics that are not compacted, and if no replica could be read",
        _impact("disk.broker_id"),
    ),
    Column("partition_bytes", "BIGINT", "Size of the replica, without remote storage", _impact("disk.partition_bytes")),
    Column(
        "total_bytes",
        "BIGINT",
        "Size of the volume of its log directory; null before Kafka 3.3",
        _impact("disk.total_bytes"),
    ),
    Column("usable_bytes", "BIGINT", "Free space of this volume; null before Kafka 3.3", _impact("disk.usable_bytes")),
    Column(
        "growth_bytes_per_hour",
        "BIGINT",
        "Growth of the replica since an earlier sweep, at least a minute and at most a day before; null without one. "
        "Negative if it shrinks",
        _impact("disk.growth_bytes_per_hour"),
    ),
    Column(
        "hours_until_full",
        "BIGINT",
        "usable_bytes by the growth of this partition alone, rounded down. Other partitions grow too, so the disk may "
        "be full earlier. Null if the replica is not known to grow",
        _impact("disk.hours_until_full"),
    ),
    Column("disk_error", "STRING", "Why a replica could not be read; null if all were read", _impact("disk.error")),
)

_VERDICTS = ", ".join(f"'{verdict}'" for verdict in Verdict)

OPEN_TRANSACTIONS = Table(
    "open_transactions",
    "The open transactions that a sweep judged, with the evidence. Healthy transactions are only counted in sweeps, "
    "unless --store-all was given, a group or a streaming query waits for them, or they are older than "
    "--blocking-after",
    (
        *SWEEP_COLUMNS,
        *TRANSACTION_COLUMNS,
        Column(
            "evidence",
            Evidence,
            "The evidence of the verdict, as observed",
            lambda s, j: j.evidence,
        ),
        *IMPACT_COLUMNS,
        Column(
            "first_epoch",
            "INT",
            "Producer epoch of the first batch of a hanging transaction; null if it could not be read",
            _first_batch("first_epoch"),
        ),
        Column(
            "first_sequence",
            "INT",
            "Base sequence of the first batch of a hanging transaction; null if it could not be read",
            _first_batch("first_sequence"),
        ),
        Column("first_batch_failure", Failure, "Why that batch could not be read", _first_batch("batch_failure")),
        Column(
            "incident_id",
            "STRING",
            "Its incident, if it hangs now or later",
            lambda s, j: incident_id(s.cluster_id, j),
            True,
        ),
        Column(
            "read_at",
            "TIMESTAMP",
            "When this sweep first read its partition, with or without proof",
            lambda s, j: timestamp(j.observation.first.read_at_ms),
            True,
        ),
        *LIVE_COLUMNS,
        *DISK_COLUMNS,
        Column(
            "disk_read",
            DiskRead,
            "Facts: the replicas that brokers reported, and when. boot_id, since_boot_ms: of the machine that read",
            _impact("disk.read"),
        ),
    ),
    (
        ("verdict_known", f"verdict IN ({_VERDICTS})"),
        ("candidate_is_hanging_and_late", "candidate = (verdict = 'hanging' AND late)"),
        ("partition_not_negative", "partition >= 0"),
        ("start_offset_not_negative", "start_offset >= 0"),
    ),
)

CANDIDATES = Table(
    "candidates",
    "Hanging and late transactions",
    (
        *SWEEP_COLUMNS,
        Column(
            "incident_id",
            "STRING",
            "Its incident",
            lambda s, j: incident_id(s.cluster_id, j),
            True,
        ),
        *TRANSACTION_COLUMNS,
        *IMPACT_COLUMNS,
    ),
    (("hanging_and_late", "verdict = 'hanging' AND late"),),
)


def _error(name: str) -> Callable[[Scan, Unobserved], Any]:
    return lambda scan, error: getattr(error, name)


SCAN_ERRORS = Table(
    "scan_errors",
    "Failed observations of sweeps",
    (
        *SWEEP_COLUMNS,
        Column("stage", "STRING", "Step of the sweep", _error("stage"), True),
        Column("broker", "INT", "Broker that was asked", _error("broker")),
        Column("topic", "STRING", "Topic, if the error is about a topic", _error("topic")),
        Column("partition", "INT", "Partition, if the error is about a partition", _error("partition")),
        Column(
            "code",
            "STRING",
            "Code of the failure: the name of an error of Kafka's protocol, or a code of txnscan",
            lambda s, error: error.failure.code,
            True,
        ),
        Column("error", "STRING", "The failure in words", lambda s, error: str(error.failure), True),
        Column(
            "needs",
            Permission,
            "The missing permission of the sweep's principal, if that is the reason",
            lambda s, error: error.failure.needs,
        ),
    ),
)


def _topic_read(name: str) -> Callable[[Scan, TopicRead], Any]:
    return lambda scan, read: getattr(read, name)


def _complete_up_to(scan: Scan, read: TopicRead) -> datetime | None:
    return timestamp(read.complete_up_to_ms) if read.complete_up_to_ms is not None else None


_COMPLETENESS = ", ".join(f"'{status}'" for status in Completeness)

TOPIC_READS = Table(
    "topic_reads",
    "Reads of the topics of --complete-up-to, with the time up to which each topic is complete. A sweep adds a row for "
    "each of these topics",
    (
        *SWEEP_COLUMNS,
        Column("topic", "STRING", "Topic", _topic_read("topic"), True),
        Column("topic_id", "STRING", "Topic id; empty if it is not known", _topic_read("topic_id"), True),
        Column(
            "read_at",
            "TIMESTAMP",
            "Before the first request of the read, by the clock of the sweep",
            lambda s, read: timestamp(read.read_at_ms),
            True,
        ),
        Column(
            "complete_up_to",
            "TIMESTAMP",
            "read_committed consumers can read every record that was acknowledged before this time; null if no such "
            "time is known",
            _complete_up_to,
        ),
        Column(
            "status",
            "STRING",
            "complete: up to read_at. blocked: only up to an earlier time. not_observed: a partition could not be read "
            "with proof",
            lambda s, read: str(read.status),
            True,
        ),
        Column("code", "STRING", "Why the topic could not be read: code of the failure", _topic_read("code")),
        Column(
            "partitions",
            tuple[PartitionRead, ...],
            "Facts: the proven read of each partition, or the code of the failure. mark: the read up to whose time the "
            "partition is complete, computed from all reads",
            _topic_read("partitions"),
            True,
        ),
    ),
    (("status_known", f"status IN ({_COMPLETENESS})"),),
)

INCIDENTS = Table(
    "incidents",
    "One row per hanging transaction, over all sweeps",
    (
        Column(
            "incident_id",
            "STRING",
            "The same for the same transaction in every sweep",
            lambda s, j: incident_id(s.cluster_id, j),
            True,
        ),
        Column("cluster_id", "STRING", "The cluster's id", lambda s, _: s.cluster_id, True),
        Column(
            "sweep_date",
            "DATE",
            "UTC date on which it was first seen hanging",
            lambda s, _: timestamp(s.started_at_ms).date(),
            True,
        ),
        Column(
            "start_offset",
            "BIGINT",
            "Offset of the transaction's first record when it was first seen",
            lambda s, j: j.observation.transaction_key.start_offset,
            True,
        ),
        Column(
            "topic_id",
            "STRING",
            "Topic id when it was first seen; empty if it was not known then",
            lambda s, j: j.observation.transaction_key.topic_id,
            True,
        ),
        *(
            column
            for column in TRANSACTION_COLUMNS
            if column.name
            in (
                "topic",
                "partition",
                "producer_id",
                "producer_epoch",
                "reason",
                "late",
                "transactional_id",
                "blocked_records",
                "explanation",
            )
        ),
        Column(
            "first_seen_at",
            "TIMESTAMP",
            "When txnscan first saw the transaction open",
            lambda s, j: timestamp(j.observation.first_seen_ms),
            True,
        ),
        Column(
            "last_seen_at",
            "TIMESTAMP",
            "End of the last sweep that saw it hanging",
            lambda s, _: timestamp(s.finished_at_ms),
            True,
        ),
        Column("last_sweep_id", "STRING", "The last sweep that saw it hanging", lambda s, _: s.sweep_id, True),
        Column(
            "history",
            "BIGINT",
            "Number of the cluster's history in which it was seen last, or its end was proven. All columns are of this "
            "history",
            lambda s, _: s.history,
            True,
        ),
        Column(
            "sweeps",
            "BIGINT",
            "Minimum number of sweeps that saw it hanging",
            lambda s, j: int(j.judgement.verdict is Verdict.HANGING),
            True,
        ),
        Column("is_open", "BOOLEAN", "Whether no sweep has proven its end", lambda s, _: True, True),
        Column(
            "resolved_at",
            "TIMESTAMP",
            "End of the sweep that proved its end",
            lambda s, _: None,
        ),
        Column(
            "resolved_how",
            "STRING",
            "ended (by itself or by another tool), completed or torn (committed data, by a COMMIT or an ABORT marker), "
            "topic_deleted, topic_recreated, or abort_marker or commit_marker if apply wrote the marker",
            lambda s, _: None,
        ),
        Column(
            "outcome",
            "STRING",
            "Decision about this data, by all facts of the last sweep that saw it: committed, maybe_committed, mixed, "
            "not_committed or unknown",
            _outcome("outcome"),
        ),
        Column("outcome_reason", "STRING", "Reason of the outcome", _outcome("why")),
        Column(
            "outcome_evidence",
            "ARRAY<STRING>",
            "The records of __transaction_state that are evidence of the outcome",
            _outcome("evidence"),
        ),
        Column(
            "last_sequence",
            "INT",
            "Sequence number of its last record when it was seen last",
            _observation("last_sequence"),
            True,
        ),
        Column(
            "leader_epoch",
            "INT",
            "Leader epoch of the partition when it was seen last. The sweep with the higher epoch is later",
            _observation("leader_epoch"),
            True,
        ),
        Column(
            "high_watermark",
            "BIGINT",
            "High watermark of the partition when it was seen last. At the same leader epoch, the sweep with the "
            "higher high watermark is later",
            _observation("second.high_watermark"),
        ),
        Column(
            "last_stable_offset",
            "BIGINT",
            "Last stable offset of the partition when it was seen last",
            _carried_impact("last_stable_offset"),
        ),
        Column(
            "lso_since",
            "TIMESTAMP",
            "When a sweep first saw last_stable_offset at this value; it may have had this value before",
            _lso_since,
        ),
        *(
            column
            for column in IMPACT_COLUMNS
            if column.name in ("groups_blocked", "cause", "cause_reason", "owner_id", "framework", "event_id")
        ),
    ),
    (
        ("seen_in_order", "last_seen_at >= first_seen_at"),
        ("sweeps_positive", "sweeps >= 1"),
        ("open_until_resolved", "is_open = (resolved_at IS NULL)"),
    ),
    # Each sweep replaces the open incidents. The others only grow.
    partitioned_by=("cluster_id", "is_open"),
    change_feed=True,
)

FACTS = Table(
    "facts",
    "Facts about the producer ids of hanging transactions, from sweeps and applies. A row is added only for new facts. "
    "Outcomes are computed from all rows of a producer id, and a missing row is no proof",
    (
        Column("cluster_id", "STRING", "The cluster's id", _field("cluster_id"), True),
        Column("sweep_id", "STRING", "The sweep that read them; null for facts from apply", _field("sweep_id")),
        Column("sweep_date", "DATE", "UTC date on which the sweep started, or of the apply", _date("learned_ms"), True),
        Column("history", "BIGINT", _HISTORY + ", and veto", _field("history"), True),
        Column("producer_id", "BIGINT", "Producer id of the hanging transaction", _field("producer_id"), True),
        Column(
            "reads",
            tuple[LogRead, ...],
            "Reads of __transaction_state: the records of an id that ever had this producer id, as in the log, and end "
            "offsets of leader epochs, by the batches of the log and by the answer of its leader. leader_epoch of a "
            "record: of its batch. contiguous_from: the read missed no offset from there to the record. value: null "
            "for a tombstone",
            _field("facts.reads"),
            True,
        ),
        Column(
            "markers",
            tuple[SeenMarker, ...],
            "COMMIT markers that apply saw on other partitions of the transaction. Each forbids an ABORT for ever",
            _field("facts.markers"),
            True,
        ),
        Column(
            "commits",
            tuple[SeenCommit, ...],
            "Ids that a coordinator described as CompleteCommit. Each forbids an ABORT of data that may be part of "
            "that commit and has no proven outcome",
            _field("facts.commits"),
            True,
        ),
        Column(
            "scans",
            tuple[LogScan, ...],
            "How far __transaction_state was read for this producer id. A later sweep reads only newer records, as "
            "long as the leader epoch is the same",
            _field("facts.scans"),
            True,
        ),
        Column(
            "closed",
            tuple[ClosedProducer, ...],
            "Partitions whose leader listed the producer without an open transaction, with the epochs of its last "
            "marker. A marker that no decision in __transaction_state explains forbids an ABORT",
            _field("facts.closed"),
        ),
    ),
)

SWEEPS = Table(
    "sweeps",
    "One row per finished sweep, written last. A sweep without a row here is not finished",
    (
        *SWEEP_COLUMNS,
        Column(
            "finished_at",
            "TIMESTAMP",
            "When the verdicts were ready",
            lambda s, _: timestamp(s.finished_at_ms),
            True,
        ),
        Column("scope", "STRING", "Scope of the sweep: all, or its limits", lambda s, _: s.scope, True),
        Column(
            "complete",
            "BOOLEAN",
            "Whether everything in scope was observed and no transaction is indeterminate",
            lambda s, _: s.complete,
            True,
        ),
        Column("brokers", "INT", "Brokers in the cluster's metadata", lambda s, _: s.brokers, True),
        Column("partitions_planned", "BIGINT", "Partitions in scope", lambda s, _: s.partitions_planned, True),
        Column(
            "partitions_answered",
            "BIGINT",
            "Partitions that answered",
            lambda s, _: s.partitions_planned - s.partitions_failed,
            True,
        ),
        Column("partitions_failed", "BIGINT", "Partitions that did not answer", lambda s, _: s.partitions_failed, True),
        Column(
            "coordinators_planned",
            "INT",
            "Partitions of __transaction_state",
            lambda s, _: s.coordinators_planned,
            True,
        ),
        Column(
            "coordinators_proven",
            "INT",
            "Partitions of __transaction_state whose coordinator is proven to be covered",
            lambda s, _: s.coordinators_proven,
            True,
        ),
        Column(
            "visibility_failures",
            tuple[Failure, ...],
            "Why transactional ids or topics may be hidden from the principal; empty without a known reason",
            lambda s, _: s.visibility_failures,
        ),
        Column("principal", "STRING", "Kafka principal that swept, null without SASL", lambda s, _: s.named_principal),
        Column("producers", "BIGINT", "Producers in the state of the partitions", lambda s, _: s.producers, True),
        Column(
            "transactional_ids",
            "BIGINT",
            "Transactional ids that were in a transaction: Ongoing, PrepareCommit or PrepareAbort",
            lambda s, _: s.transactional_ids,
            True,
        ),
        *(
            Column(verdict.value, "BIGINT", f"Open transactions judged {verdict.value}", _count(verdict), True)
            for verdict in Verdict
        ),
        Column("candidates", "BIGINT", "Hanging and late transactions", lambda s, _: len(s.candidates), True),
        Column("errors", "BIGINT", "Rows in scan_errors", lambda s, _: len(s.errors), True),
        Column(
            "late_after_ms",
            "BIGINT",
            "Age from which a transaction counts as late",
            lambda s, _: s.late_after_ms,
            True,
        ),
        Column(
            "max_timeout_ms",
            "BIGINT",
            "The longest transaction.max.timeout.ms of the brokers",
            lambda s, _: s.max_timeout_ms,
            True,
        ),
        Column(
            "settings",
            "STRING",
            "The options of the sweep, as JSON, without connection settings",
            lambda s, _: s.settings,
            True,
        ),
        Column("txnscan_version", "STRING", "Version of txnscan of the sweep", lambda s, _: s.version, True),
        Column("schema_version", "INT", "Version of these tables", lambda s, _: SCHEMA_VERSION, True),
        Column(
            "healthy",
            tuple[HealthyCount, ...],
            "The healthy open transactions by topic and verdict: ongoing, pending_marker whose marker is not overdue, "
            "and gone",
            lambda s, _: s.healthy,
        ),
        Column("warnings", "ARRAY<STRING>", "Warnings of the sweep", lambda s, _: list(s.warnings)),
        Column(
            "read_bytes",
            "BIGINT",
            "Bytes of producer states and __transaction_state that the sweep read, nearly all of its reads",
            lambda s, _: s.read_bytes,
        ),
        Column(
            "boot_id",
            "STRING",
            "Boot id of the machine that swept; null if the system does not report it",
            lambda s, _: s.boot.boot_id if s.boot is not None else None,
        ),
        Column(
            "since_boot_ms",
            "BIGINT",
            "Time since the boot of this machine when the verdicts were ready, by a clock that cannot be set",
            lambda s, _: s.boot.since_boot_ms if s.boot is not None else None,
        ),
        Column(
            "stages",
            tuple[StageTime, ...],
            "The stages of the sweep in order, with the duration of each. The writing of these tables comes after them",
            lambda s, _: s.stages,
        ),
        Column(
            "engine",
            "STRING",
            "Engine that read the partitions: spark on executors, threads in the driver",
            lambda s, _: s.engine.name.value,
        ),
        Column(
            "engine_reason",
            "STRING",
            "Why: requested; no_session, without a Spark session; executors_connect, every executor can connect to a "
            "broker; executors_failed, an executor cannot, see warnings",
            lambda s, _: s.engine.reason.value,
        ),
        Column(
            "stops",
            tuple[BehindLast, ...],
            "Brokers whose stop would leave partitions with open transactions without a leader, and how many. Null if "
            "that is not known",
            lambda s, _: s.writes.stops,
        ),
        Column(
            "blocking",
            "BIGINT",
            "Live transactions that hold readers back, as far as it is known: at most the 1,000 oldest were looked at",
            lambda s, _: len(s.blocking),
        ),
        Column(
            "blocking_after_ms",
            "BIGINT",
            "Age from which a live transaction gets a row in open_transactions, even if no group waits for it",
            lambda s, _: s.blocking_after_ms,
        ),
        Column(
            "went_back",
            "STRING",
            "How the sweep noticed that the cluster's history went back: image_offset, leader_epoch, high_watermark, "
            "epoch_end or open_again; null if it did not",
            lambda s, _: s.fall.sign.value if s.fall is not None else None,
        ),
        Column(
            "went_back_reason",
            "STRING",
            "The position that fell, in words",
            lambda s, _: str(s.fall) if s.fall is not None else None,
        ),
        Column(
            "vetoes_dropped",
            "BIGINT",
            "Number of stored facts that do not forbid an ABORT any more, by --new-history; null without it",
            lambda s, _: s.vetoes_dropped,
        ),
        Column(
            "vetoes_from",
            "BIGINT",
            "Facts of earlier histories than this one do not forbid an ABORT either, by --new-history",
            lambda s, _: s.vetoes_from,
            True,
        ),
        Column(
            "image_offset",
            "BIGINT",
            "The highest offset of a metadata image that a broker reported; null outside KRaft mode",
            lambda s, _: s.image_offset,
        ),
        Column(
            "positions",
            tuple[LogPosition, ...],
            "The positions of partitions that the sweep proved, at most 1,000. Later sweeps compare them: a lower one "
            "shows that the history went back",
            lambda s, _: s.positions,
            True,
        ),
    ),
    (
        ("partitions_add_up", "partitions_answered + partitions_failed = partitions_planned"),
        ("finished_after_start", "finished_at >= started_at"),
    ),
)


# Nearly always more than a cluster has open at once. The age of the others starts again.
FIRST_SEEN_MAX = 100_000


def scope_key(scope: str) -> str:
    """A scope as the name of a folder."""
    return hashlib.sha256(scope.encode()).hexdigest()[:16]


FIRST_SEEN = Table(
    "first_seen",
    "First observation of each transaction that was open in the last sweep of a scope. Each sweep replaces the rows of "
    "its scope",
    (
        Column("cluster_id", "STRING", "The cluster's id", lambda s, _: s.cluster_id, True),
        Column("scope_key", "STRING", "Digest of the sweep's scope", lambda s, _: scope_key(s.scope), True),
        Column("sweep_id", "STRING", "The last sweep of this scope", lambda s, _: s.sweep_id, True),
        Column("history", "BIGINT", _HISTORY, lambda s, _: s.history, True),
        *(
            column
            for column in TRANSACTION_COLUMNS
            if column.name
            in ("topic", "topic_id", "partition", "producer_id", "producer_epoch", "start_offset", "first_seen_at")
        ),
    ),
    partitioned_by=("cluster_id", "scope_key"),
    made_anew=True,
)


RESOLUTIONS = Table(
    "resolutions",
    "The journal of apply: each planned marker, each intent before its marker was sent, and each outcome after it",
    (
        Column(
            "attempt_id",
            "STRING",
            "The same for an intent and its outcome; for a plan, its digest",
            _field("attempt_id"),
            True,
        ),
        Column("cluster_id", "STRING", "The cluster's id", _field("plan.cluster_id"), True),
        Column("sweep_date", "DATE", "UTC date of the step", _date("at_ms"), True),
        Column("at", "TIMESTAMP", "When the step was stored", _time("at_ms"), True),
        Column("step", "STRING", "planned, intent or outcome", _field("step"), True),
        Column(
            "status",
            "STRING",
            "Result of an outcome: resolved, gone, refused, raced, failed, not_resolved or unknown",
            _field("status"),
        ),
        Column("plan_digest", "STRING", "Digest of the plan", _field("plan.digest"), True),
        Column("sweep_id", "STRING", "The sweep of the plan", _field("plan.sweep_id"), True),
        Column("incident_id", "STRING", "The incident of the marker", _field("action.incident_id"), True),
        *(
            Column(c.name, c.type, c.meaning, _field(f"action.{c.name}"), True)
            for c in TRANSACTION_COLUMNS
            if c.name
            in (
                "topic",
                "topic_id",
                "partition",
                "producer_id",
                "producer_epoch",
                "coordinator_epoch",
                "start_offset",
                "reason",
            )
        ),
        Column("outcome", "STRING", "Outcome of the data, by the plan", _field("action.outcome"), True),
        Column("marker", "STRING", "COMMIT or ABORT", _field("action.marker"), True),
        Column("detail", "STRING", "The result in one sentence", _field("detail")),
        Column("actor", "STRING", "Process of the step: host, and process id", _field("actor"), True),
        Column("txnscan_version", "STRING", "Version of txnscan of the step", _field("version"), True),
        Column("os_user", "STRING", "User of the operating system", _field("os_user")),
        Column(
            "principal",
            "STRING",
            "Kafka principal of the step, from SASL; null without SASL, and for a plan, which asks no broker",
            _field("principal"),
        ),
    ),
    (("step_known", "step IN ('planned', 'intent', 'outcome')"), ("marker_known", "marker IN ('COMMIT', 'ABORT')")),
)

APPLY_LOCKS = Table(
    "apply_locks",
    "The running apply of each cluster, at most one",
    (
        Column("cluster_id", "STRING", "The cluster's id", _field("cluster_id"), True),
        Column(
            "sweep_date",
            "DATE",
            "UTC date on which the row was made",
            _date("taken_ms"),
            True,
        ),
        Column("holder", "STRING", "The running apply; null without one", _field("holder")),
        Column("actor", "STRING", "Its process: host, and process id", _field("actor")),
        Column("held_since", "TIMESTAMP", "When it took the lock, by its clock", _time("taken_ms")),
        Column("expires_at", "TIMESTAMP", "End of the lease, by its clock", _time("expires_ms")),
        Column("renewals", "BIGINT", "Number of times it wrote this row", _field("renewals")),
    ),
)

# In the order of writing: the sweeps row last makes the others visible.
TABLES = (
    FACTS,
    OPEN_TRANSACTIONS,
    CANDIDATES,
    SCAN_ERRORS,
    TOPIC_READS,
    FIRST_SEEN,
    INCIDENTS,
    RESOLUTIONS,
    APPLY_LOCKS,
    SWEEPS,
)
