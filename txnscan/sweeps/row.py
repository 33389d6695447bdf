"""The row of an open transaction that a sweep judged: every output starts from it, and here each value has its source.

Tables store all columns. JSON, and all that reads it, have `SHOWN_COLUMNS`. Names and types are a contract, as in
`tables/schema.py`. Times are UTC timestamps, except where a name ends in `_ms`: then it is a number of milliseconds, or
a record's own timestamp as the client wrote it, which need not be a possible date.
"""

from __future__ import annotations

from typing import Any

from txnscan.kafka.failure import Failure
from txnscan.sweeps.column import (
    Value,
    boolean,
    date,
    integer,
    long,
    of_sweep,
    optional_boolean,
    optional_integer,
    optional_long,
    optional_struct,
    optional_structs,
    optional_text,
    optional_time,
    text,
    through,
    time,
)
from txnscan.sweeps.result import Scan
from txnscan.verdict.evidence import Evidence, Judged
from txnscan.waiting.blocking import end_of
from txnscan.waiting.disk import DiskRead
from txnscan.waiting.impact import BlockedGroup, BlockedReader


def incident_id(cluster_id: str, judged: Judged) -> str:
    """The id of a hanging transaction's incident."""
    return judged.observation.transaction_key.incident_id(cluster_id)


def _coordinator(name: str) -> Value:
    """A field of the first coordinator's view; all views are in `evidence`."""

    def value(scan: Scan, judged: Judged) -> Any:
        view = next(iter(judged.evidence.coordinators), None)
        described = view is not None and (view.describe_failure is None or name in ("transactional_id", "broker_id"))
        return getattr(view, name) if described else None

    return value


# Of hanging transactions, and of live ones with a row.
_impact = through(Scan.impact)
# The evidence for the outcome of a hanging transaction.
_outcome_evidence = through(Scan.evidence_of_outcome)


def _ends_by_ms(scan: Scan, judged: Judged) -> int | None:
    return end_of(judged, scan.writes)


def _lso_unmoved_ms(scan: Scan, judged: Judged) -> int | None:
    impact = scan.impact(judged)
    if impact is None or impact.lso_since_ms is None:
        return None
    return max(judged.observation.second.read_at_ms - impact.lso_since_ms, 0)


HISTORY = (
    "Number of the cluster's history, which rises if a sweep notices that the cluster went back, and with "
    "--new-history. Facts of an earlier history prove nothing"
)

SWEEP_COLUMNS = (
    text("sweep_id", "The sweep that this row belongs to", of_sweep("sweep_id")),
    text("cluster_id", "The cluster's id, from Metadata", of_sweep("cluster_id")),
    date("sweep_date", "UTC date on which the sweep started", of_sweep("started_at_ms")),
    time("started_at", "When the sweep started", of_sweep("started_at_ms")),
    long("history", HISTORY, of_sweep("history")),
)

TRANSACTION_COLUMNS = (
    text("topic", "Topic", "observation.topic"),
    text("topic_id", "Topic id, as Kafka prints it; empty before Kafka 2.8", "observation.topic_id"),
    integer("partition", "Partition number", "observation.partition"),
    long("producer_id", "Producer id of the open transaction", "observation.producer_id"),
    integer("producer_epoch", "Producer epoch on the partition", "observation.producer_epoch"),
    integer(
        "coordinator_epoch",
        "Coordinator epoch of the last marker of this producer id on the partition, -1 before the first",
        "observation.coordinator_epoch",
    ),
    long("start_offset", "Offset of the transaction's first record on the partition", "observation.start_offset"),
    long(
        "last_timestamp_ms",
        "Timestamp of its last record, as the client wrote it (epoch ms)",
        "observation.last_timestamp_ms",
    ),
    text("verdict", "gone, pending_marker, ongoing, late_ongoing, indeterminate or hanging", "judgement.verdict.value"),
    text("reason", "Reason of the verdict", "judgement.reason.value"),
    boolean("late", "Older than any transaction can get under a working coordinator", "judgement.late"),
    boolean("candidate", "Hanging and late: a candidate in KIP-664's sense"),
    long("age_ms", "Time for which it is known to be open", "judgement.age_ms"),
    optional_text(
        "outcome",
        "Decision about this data: committed, not_committed, mixed, or, if it hangs and the decision is not proven, "
        "maybe_committed or unknown. Null for transactions that are undecided or not hanging",
    ),
    optional_text("outcome_reason", "Reason of the outcome of a hanging transaction"),
    optional_struct(
        "log_failure",
        Failure,
        "Why __transaction_state could not be read for a hanging transaction; plan then refuses it",
        "known_outcome.log_failure",
    ),
    optional_text("transactional_id", "Transactional id that has this producer id", _coordinator("transactional_id")),
    optional_integer("coordinator", "Broker that described the transactional id", _coordinator("broker_id")),
    optional_text("coordinator_state", "State of the transactional id at its coordinator", _coordinator("state")),
    optional_integer("coordinator_producer_epoch", "Producer epoch at the coordinator", _coordinator("producer_epoch")),
    optional_long("transaction_timeout_ms", "Timeout of the transactional id", _coordinator("timeout_ms")),
    optional_long(
        "transaction_start_ms",
        "When the coordinator started the id's current transaction (epoch ms), -1 for none",
        _coordinator("start_time_ms"),
    ),
    integer("leader", "Leader of the partition, -1 for none", "observation.leader"),
    integer("leader_epoch", "Leader epoch at which the partition was read", "observation.leader_epoch"),
    optional_long(
        "high_watermark", "High watermark before the first of the two reads", "observation.second.high_watermark"
    ),
    optional_long(
        "last_stable_offset", "Last stable offset after the second read", "observation.second.last_stable_offset"
    ),
    optional_long(
        "blocked_records",
        "Offsets from the last stable offset to the high watermark, which read_committed consumers do not get",
    ),
    time("first_seen_at", "When txnscan first saw this transaction", "observation.first_seen_ms"),
    text("explanation", "The verdict in one sentence", "judgement.explanation"),
)

# The impact of hanging transactions, and of live ones with a row.
IMPACT_COLUMNS = (
    optional_boolean(
        "holds_lso",
        "Whether the last stable offset is at this transaction; if not, another transaction starts before it and must "
        "end first",
        lambda s, j: j.holds_lso,
    ),
    optional_long(
        "lso_unmoved_ms",
        "Minimum time for which the last stable offset has not moved, by earlier sweeps of this incident; null without "
        "earlier sweeps",
        _lso_unmoved_ms,
    ),
    optional_structs(
        "blocked_groups",
        BlockedGroup,
        "Groups that it blocks or may block, largest lag first, at most 100. reason is unstable if the transaction has "
        "offsets of the group, maybe_unstable if that could not be read, and at_lso if a read_committed consumer gets "
        "no record between the group's committed offset and the last stable offset. The isolation level of a group is "
        "not visible. lag is up to the high watermark",
        _impact("groups"),
    ),
    optional_long(
        "groups_blocked",
        "Number of groups that it blocks or may block; null if a group may be missing, groups_error has the reason",
        _impact("groups_blocked"),
    ),
    optional_long("groups_asked", "Number of groups that were asked about", _impact("groups_asked")),
    optional_text("groups_error", "Why groups may be missing; null if no group is missing", _impact("groups_error")),
    optional_structs(
        "blocked_readers",
        BlockedReader,
        "Streaming queries of --spark-checkpoint that it blocks or may block, largest lag first, at most 100. reason "
        "is at_lso if a read_committed consumer gets no record between next_offset and the last stable offset. The "
        "isolation level of a query is not visible. Null without checkpoints",
        _impact("readers"),
    ),
    optional_long(
        "readers_blocked",
        "Number of these queries; null without checkpoints, and if a query may be missing: readers_error has the "
        "reason",
        _impact("readers_blocked"),
    ),
    optional_text("readers_error", "Why queries may be missing; null if no query is missing", _impact("readers_error")),
    optional_text("cleanup_policy", "cleanup.policy of the topic", _impact("cleanup_policy")),
    optional_boolean(
        "compaction_blocked",
        "Whether the topic is compacted: the cleaner does not pass the last stable offset",
        _impact("compaction_blocked"),
    ),
    optional_boolean(
        "tiering_blocked",
        "Whether the topic is tiered: segments above the last stable offset stay on local disks",
        _impact("tiering_blocked"),
    ),
    optional_long(
        "retention_ms",
        "retention.ms of a topic that deletes by age and is not tiered, -1 for none. Retention does not wait for the "
        "last stable offset, so blocked records may be deleted unread",
        _impact("retention_ms"),
    ),
    optional_text(
        "cause",
        "Cause of a hanging transaction, by evidence: marker_missing, late_write, never_added, fenced or unknown",
        _impact("cause"),
    ),
    optional_text("cause_reason", "Evidence of the cause, or why it is not known", _impact("cause_reason")),
    optional_text(
        "owner_id",
        "Transactional id that has its producer id, or the last id in __transaction_state that had it",
        _impact("owner.transactional_id"),
    ),
    optional_text("framework", "Framework that the format of owner_id suggests", _impact("owner.framework")),
    optional_text("advice", "Owner to ask, and checks before the transaction is ended", _impact("owner.advice")),
    optional_text(
        "event_id",
        "Its event: hanging transactions that share producer id, owner or cause, and time. The id is that of the "
        "earliest incident of the event",
        _impact("event_id"),
    ),
)

LIVE_COLUMNS = (
    optional_boolean(
        "blocking",
        "Whether a live transaction (ongoing or late_ongoing) holds readers back: groups or streaming queries wait "
        "or may wait for it, or it is older than --blocking-after and the last stable offset is at it. Null if that is "
        "not known, and for others. It is no accusation: the coordinator will end it",
        lambda s, j: s.blocks(j),
    ),
    optional_time(
        "ends_by",
        "When a live transaction times out by its coordinator: its start plus its timeout. Its coordinator aborts it "
        "then, unless it has ended before. Null under two-phase commit, which has no timeout, and if the coordinator "
        "does not report both",
        _ends_by_ms,
    ),
)

# The disk behind blocked compaction.
DISK_COLUMNS = (
    optional_integer(
        "disk_broker",
        "Broker whose replica of a compacted partition fills its disk first. The numbers below are of this replica. "
        "Null for topics that are not compacted, and if no replica could be read",
        _impact("disk.broker_id"),
    ),
    optional_long("partition_bytes", "Size of the replica, without remote storage", _impact("disk.partition_bytes")),
    optional_long(
        "total_bytes", "Size of the volume of its log directory; null before Kafka 3.3", _impact("disk.total_bytes")
    ),
    optional_long("usable_bytes", "Free space of this volume; null before Kafka 3.3", _impact("disk.usable_bytes")),
    optional_long(
        "growth_bytes_per_hour",
        "Growth of the replica since an earlier sweep, at least a minute and at most a day before; null without one. "
        "Negative if it shrinks",
        _impact("disk.growth_bytes_per_hour"),
    ),
    optional_long(
        "hours_until_full",
        "usable_bytes by the growth of this partition alone, rounded down. Other partitions grow too, so the disk may "
        "be full earlier. Null if the replica is not known to grow",
        _impact("disk.hours_until_full"),
    ),
    optional_text("disk_error", "Why a replica could not be read; null if all were read", _impact("disk.error")),
)

# What JSON has, and the outputs that read it. The other columns are of the sweep, or facts for later sweeps.
SHOWN_COLUMNS = (*TRANSACTION_COLUMNS, *IMPACT_COLUMNS, *LIVE_COLUMNS, *DISK_COLUMNS)

# The whole row, as the table stores it.
ROW_COLUMNS = (
    *SWEEP_COLUMNS,
    *TRANSACTION_COLUMNS,
    optional_struct("evidence", Evidence, "The evidence of the verdict, as observed"),
    *IMPACT_COLUMNS,
    optional_integer(
        "first_epoch",
        "Producer epoch of the first batch of a hanging transaction; null if it could not be read",
        _outcome_evidence("first_epoch"),
    ),
    optional_integer(
        "first_sequence",
        "Base sequence of the first batch of a hanging transaction; null if it could not be read",
        _outcome_evidence("first_sequence"),
    ),
    optional_struct(
        "first_batch_failure", Failure, "Why that batch could not be read", _outcome_evidence("batch_failure")
    ),
    text("incident_id", "Its incident, if it hangs now or later", lambda s, j: incident_id(s.cluster_id, j)),
    time("read_at", "When this sweep first read its partition, with or without proof", "observation.first.read_at_ms"),
    *LIVE_COLUMNS,
    *DISK_COLUMNS,
    optional_struct(
        "disk_read",
        DiskRead,
        "Facts: the replicas that brokers reported, and when. boot_id, since_boot_ms: of the machine that read",
        _impact("disk.read"),
    ),
)
