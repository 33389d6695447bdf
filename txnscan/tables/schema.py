"""Every stored column once: its name, its Spark SQL type, what it means, and where its value comes from.

Names and types are a contract that dashboards read. `SCHEMA_VERSION` rises when anything here changes, and txnscan
refuses tables of any other version.

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
from txnscan.impact.impact import BlockedGroup
from txnscan.kafka.answers import CoordinatorView, EpochEnd
from txnscan.kafka.failure import Failure, Permission, Unobserved
from txnscan.sweeps.result import HealthyCount, Scan
from txnscan.txnlog.facts import LogRead, RawRecord, ScannedLog, SeenCommit, SeenMarker
from txnscan.verdict.evidence import Evidence, Judged, Verdict

SCHEMA_VERSION = 13


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

    made_anew: it is created again where it is missing, as only ages are lost with it, which begin anew. change_feed:
    Delta keeps what each commit changed (its change data feed).
    """

    name: str
    meaning: str
    columns: tuple[Column, ...]
    checks: tuple[tuple[str, str], ...] = ()
    partitioned_by: tuple[str, ...] = ("cluster_id",)
    made_anew: bool = False
    change_feed: bool = False

    def rows(self, scan: Scan | None, items: Any) -> list[dict[str, Any]]:
        """The rows of these items. scan: their sweep, where they are of one."""
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


def _of_owner(name: str) -> Callable[[Scan, Judged], Any]:
    def value(scan: Scan, judged: Judged) -> Any:
        view = _owner(judged)
        described = view is not None and (view.describe_failure is None or name in ("transactional_id", "broker_id"))
        return getattr(view, name) if described else None

    return value


def _observed(path: str) -> Callable[[Scan, Judged], Any]:
    value = attrgetter(path)
    return lambda scan, judged: value(judged.observation)


def _judgement(name: str) -> Callable[[Scan, Judged], Any]:
    return lambda scan, judged: getattr(judged.judgement, name)


def _of_read(name: str) -> Callable[[Scan, tuple[int, LogRead]], Any]:
    return lambda scan, item: getattr(item[1], name)


def _known(name: str) -> Callable[[Scan, Judged], Any]:
    """What is known of the outcome of what hangs, null for all else."""
    return lambda scan, judged: getattr(judged.known, name) if judged.known is not None else None


def _decided(name: str) -> Callable[[Scan, Judged], Any]:
    """What was read of what hangs to learn its outcome, null for all else."""

    def found(scan: Scan, judged: Judged) -> Any:
        evidence = scan.evidence_of_outcome(judged)
        return getattr(evidence, name) if evidence is not None else None

    return found


def _impact(path: str) -> Callable[[Scan, Judged], Any]:
    """What is known of the impact of what hangs, null for all else."""
    value = attrgetter(path)

    def found(scan: Scan, judged: Judged) -> Any:
        impact = scan.impact(judged)
        return value(impact) if impact is not None else None

    return found


def _left_of_impact(name: str) -> Callable[[Scan, Judged], Any]:
    def found(scan: Scan, judged: Judged) -> Any:
        left = scan.left_of_impact(judged)
        return getattr(left, name) if left is not None else None

    return found


def _lso_unmoved_ms(scan: Scan, judged: Judged) -> int | None:
    impact = scan.impact(judged)
    if impact is None or impact.lso_since_ms is None:
        return None
    return max(judged.observation.second.read_at_ms - impact.lso_since_ms, 0)


def _lso_since(scan: Scan, judged: Judged) -> datetime | None:
    left = scan.left_of_impact(judged)
    return timestamp(left.lso_since_ms) if left is not None and left.lso_since_ms is not None else None


def _count(verdict: Verdict) -> Callable[[Scan, Scan], int]:
    return lambda scan, item: scan.counts[verdict]


_SWEEP_DATE = Column(
    "sweep_date",
    "DATE",
    "UTC date on which the sweep started",
    lambda s, _: timestamp(s.started_at_ms).date(),
    True,
)
SWEEP = (
    Column("sweep_id", "STRING", "The sweep that this row belongs to", lambda s, _: s.sweep_id, True),
    Column("cluster_id", "STRING", "The cluster's id, from Metadata", lambda s, _: s.cluster_id, True),
    _SWEEP_DATE,
    Column("started_at", "TIMESTAMP", "When the sweep started", lambda s, _: timestamp(s.started_at_ms), True),
)

TRANSACTION = (
    Column("topic", "STRING", "Topic", _observed("topic"), True),
    Column(
        "topic_id",
        "STRING",
        "Topic id, as Kafka prints it; empty before Kafka 2.8",
        _observed("topic_id"),
        True,
    ),
    Column("partition", "INT", "Partition number", _observed("partition"), True),
    Column("producer_id", "BIGINT", "Producer id of the open transaction", _observed("producer_id"), True),
    Column("producer_epoch", "INT", "Producer epoch that the partition knows", _observed("producer_epoch"), True),
    Column(
        "coordinator_epoch",
        "INT",
        "Coordinator epoch of the last marker from this producer id on the partition, -1 before the first",
        _observed("coordinator_epoch"),
        True,
    ),
    Column(
        "start_offset",
        "BIGINT",
        "Offset of the transaction's first record on the partition",
        _observed("start_offset"),
        True,
    ),
    Column(
        "last_timestamp_ms",
        "BIGINT",
        "Timestamp of its last record, as the client wrote it (epoch ms)",
        _observed("last_timestamp_ms"),
        True,
    ),
    Column(
        "verdict",
        "STRING",
        "gone, pending_marker, ongoing, late_ongoing, indeterminate or hanging",
        lambda s, j: str(j.judgement.verdict),
        True,
    ),
    Column("reason", "STRING", "Why, within the verdict", lambda s, j: str(j.judgement.reason), True),
    Column(
        "late",
        "BOOLEAN",
        "Older than any transaction that a working coordinator lets live",
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
    Column("age_ms", "BIGINT", "How long it is known to be open", _judgement("age_ms"), True),
    Column(
        "outcome",
        "STRING",
        "What was decided about this data: committed, not_committed, mixed, or where it hangs and that is not known "
        "maybe_committed or unknown; null where nothing is decided yet or nothing is known to hang",
        _judgement("outcome"),
    ),
    Column(
        "outcome_reason", "STRING", "How the outcome of what hangs is known, or why not", _judgement("outcome_reason")
    ),
    Column(
        "log_failure",
        Failure,
        "Why __transaction_state could not be read for what hangs: nothing is done about it then",
        _known("log_failure"),
    ),
    Column(
        "transactional_id",
        "STRING",
        "Transactional id that has this producer id",
        _of_owner("transactional_id"),
    ),
    Column("coordinator", "INT", "Broker that described the transactional id", _of_owner("broker_id")),
    Column("coordinator_state", "STRING", "State of the transactional id at its coordinator", _of_owner("state")),
    Column(
        "coordinator_producer_epoch",
        "INT",
        "Producer epoch that the coordinator knows",
        _of_owner("producer_epoch"),
    ),
    Column("transaction_timeout_ms", "BIGINT", "Timeout of the transactional id", _of_owner("timeout_ms")),
    Column(
        "transaction_start_ms",
        "BIGINT",
        "When the coordinator started the id's current transaction (epoch ms), -1 for none",
        _of_owner("start_time_ms"),
    ),
    Column("leader", "INT", "Leader of the partition, -1 for none", _observed("leader"), True),
    Column("leader_epoch", "INT", "Leader epoch at which the partition was read", _observed("leader_epoch"), True),
    Column(
        "high_watermark",
        "BIGINT",
        "High watermark before the second read",
        _observed("second.high_watermark"),
    ),
    Column(
        "last_stable_offset",
        "BIGINT",
        "Last stable offset after the second read",
        _observed("second.last_stable_offset"),
    ),
    Column(
        "blocked_records",
        "BIGINT",
        "Offsets from the last stable offset to the high watermark: what read_committed consumers do not get",
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

# The impact of what hangs. These were added later than TRANSACTION, so they stand at the end of the tables.
IMPACT = (
    Column(
        "holds_lso",
        "BOOLEAN",
        "Whether this transaction holds the last stable offset; if not, another one starts before it and has to end "
        "first",
        lambda s, j: j.holds_lso if s.impact(j) is not None else None,
    ),
    Column(
        "lso_unmoved_ms",
        "BIGINT",
        "For how long at least the last stable offset has not moved, by earlier sweeps of this incident; null where "
        "there are none",
        _lso_unmoved_ms,
    ),
    Column(
        "blocked_groups",
        tuple[BlockedGroup, ...],
        "Groups that it blocks or may block, those with the greatest lag first, at most 100. reason is unstable "
        "where the transaction holds offsets of the group, maybe_unstable where that could not be seen, and at_lso "
        "where a read_committed consumer has nothing to read from the group's committed offset up to the last stable "
        "offset, whatever the group's isolation level, which is not visible. lag is up to the high watermark",
        _impact("groups"),
    ),
    Column(
        "groups_blocked",
        "BIGINT",
        "How many groups it blocks or may block; null where not all could be asked about, groups_error has why",
        _impact("groups_blocked"),
    ),
    Column("groups_asked", "BIGINT", "How many groups were asked about", _impact("groups_asked")),
    Column("groups_error", "STRING", "Why groups may be missing, null where none are", _impact("groups_error")),
    Column("cleanup_policy", "STRING", "cleanup.policy of the topic", _impact("cleanup_policy")),
    Column(
        "compaction_blocked",
        "BOOLEAN",
        "Whether the topic is compacted: the cleaner does not pass the last stable offset",
        _impact("compaction_blocked"),
    ),
    Column(
        "retention_ms",
        "BIGINT",
        "retention.ms of the topic where it deletes by age and is not tiered, -1 for none: that does not wait for the "
        "last stable offset, so that what is blocked may be deleted unread",
        _impact("retention_ms"),
    ),
    Column(
        "cause",
        "STRING",
        "How it came to hang, as far as evidence tells: marker_missing, late_write, never_added, fenced or unknown",
        _impact("cause"),
    ),
    Column("cause_reason", "STRING", "What shows the cause, or why it is not known", _impact("cause_reason")),
    Column(
        "owner_id",
        "STRING",
        "Transactional id that has its producer id, or the last one in __transaction_state that had it",
        _impact("owner.transactional_id"),
    ),
    Column("framework", "STRING", "Framework that the shape of that id suggests", _impact("owner.framework")),
    Column("advice", "STRING", "Whom to ask, and what to check before it is ended", _impact("owner.advice")),
    Column(
        "event_id",
        "STRING",
        "The event that it belongs to: hanging transactions that share producer id, owner or cause, and time. The id "
        "is that of the earliest incident of the event",
        _impact("event_id"),
    ),
)

_VERDICTS = ", ".join(f"'{verdict}'" for verdict in Verdict)

OPEN_TRANSACTIONS = Table(
    "open_transactions",
    "The open transactions that a sweep judged, with the evidence; the healthy ones are counted in sweeps instead, "
    "unless they were asked for",
    (
        *SWEEP,
        *TRANSACTION,
        Column(
            "evidence",
            Evidence,
            "All that the verdict rests on, as it was observed",
            lambda s, j: j.evidence,
        ),
        *IMPACT,
        Column(
            "first_epoch",
            "INT",
            "Producer epoch of the first batch of what hangs; null where it could not be read",
            _decided("first_epoch"),
        ),
        Column(
            "first_sequence",
            "INT",
            "Base sequence of the first batch of what hangs; null where it could not be read",
            _decided("first_sequence"),
        ),
        Column("first_batch_failure", Failure, "Why that batch could not be read", _decided("batch_failure")),
        Column(
            "incident_id",
            "STRING",
            "The incident that this belongs to, if it hangs or comes to hang",
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
    "The open transactions that hang and are late",
    (
        *SWEEP,
        Column(
            "incident_id",
            "STRING",
            "The incident that this belongs to",
            lambda s, j: incident_id(s.cluster_id, j),
            True,
        ),
        *TRANSACTION,
        *IMPACT,
    ),
    (("hanging_and_late", "verdict = 'hanging' AND late"),),
)


def _error(name: str) -> Callable[[Scan, Unobserved], Any]:
    return lambda scan, error: getattr(error, name)


SCAN_ERRORS = Table(
    "scan_errors",
    "What a sweep could not observe",
    (
        *SWEEP,
        Column("stage", "STRING", "Step of the sweep", _error("stage"), True),
        Column("broker", "INT", "Broker that was asked", _error("broker")),
        Column("topic", "STRING", "Topic, where the error is about one", _error("topic")),
        Column("partition", "INT", "Partition, where the error is about one", _error("partition")),
        Column(
            "code",
            "STRING",
            "What went wrong: the name of an error of Kafka's protocol, or one of txnscan's codes",
            lambda s, error: error.failure.code,
            True,
        ),
        Column("error", "STRING", "The same in words", lambda s, error: str(error.failure), True),
        Column(
            "needs",
            Permission,
            "The permission that the sweep's principal lacks, where that is why",
            lambda s, error: error.failure.needs,
        ),
    ),
)

INCIDENTS = Table(
    "incidents",
    "One row per hanging transaction over time",
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
        *(
            column
            for column in TRANSACTION
            if column.name
            in (
                "topic",
                "topic_id",
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
            "When the last sweep that saw it hanging was finished",
            lambda s, _: timestamp(s.finished_at_ms),
            True,
        ),
        Column("last_sweep_id", "STRING", "The last sweep that saw it hanging", lambda s, _: s.sweep_id, True),
        Column("sweeps", "BIGINT", "At least so many sweeps saw it hanging", lambda s, _: 1, True),
        Column("is_open", "BOOLEAN", "Whether no sweep has proved that it is over", lambda s, _: True, True),
        Column(
            "resolved_at",
            "TIMESTAMP",
            "When the sweep that proved it is no longer open was finished",
            lambda s, _: None,
        ),
        Column(
            "resolved_how",
            "STRING",
            "ended (by itself or by somebody), topic_deleted, topic_recreated, or abort_marker or commit_marker where "
            "apply wrote it",
            lambda s, _: None,
        ),
        Column(
            "outcome",
            "STRING",
            "What was decided about this data, by all that was known when it was seen last: committed, "
            "maybe_committed, mixed, not_committed or unknown",
            _known("outcome"),
        ),
        Column("outcome_reason", "STRING", "How that is known, or why not", _known("why")),
        Column(
            "outcome_evidence",
            "ARRAY<STRING>",
            "The records of __transaction_state that the outcome rests on",
            _known("evidence"),
        ),
        Column(
            "last_sequence",
            "INT",
            "Sequence number of its last record when it was seen last",
            _observed("last_sequence"),
            True,
        ),
        Column(
            "leader_epoch",
            "INT",
            "Leader epoch of the partition when it was seen last. Of two sweeps the one with the higher epoch is later",
            _observed("leader_epoch"),
            True,
        ),
        Column(
            "high_watermark",
            "BIGINT",
            "High watermark of the partition when it was seen last. At one leader epoch the sweep with the higher one "
            "is later",
            _observed("second.high_watermark"),
        ),
        Column(
            "last_stable_offset",
            "BIGINT",
            "Last stable offset of the partition when it was seen last",
            _left_of_impact("last_stable_offset"),
        ),
        Column(
            "lso_since",
            "TIMESTAMP",
            "When a sweep first saw the last stable offset where it was seen last; it may have stood there before",
            _lso_since,
        ),
        *(
            column
            for column in IMPACT
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

# What every fact has that a sweep saw.
FACT = (
    Column("cluster_id", "STRING", "The cluster's id", lambda s, _: s.cluster_id, True),
    Column("sweep_id", "STRING", "The sweep that saw it", lambda s, _: s.sweep_id, True),
    _SWEEP_DATE,
)

LOG_READS = Table(
    "log_reads",
    "Facts: what sweeps read in __transaction_state about each id that ever had the producer id of a hanging "
    "transaction. A sweep adds a row only for what no earlier row shows. Outcomes are computed from all rows, and a "
    "missing row proves nothing",
    (
        *FACT,
        Column("swept_at_ms", "BIGINT", "When the sweep started (epoch ms)", lambda s, _: s.started_at_ms, True),
        Column("producer_id", "BIGINT", "The producer id that hangs", lambda s, item: item[0], True),
        Column("transactional_id", "STRING", "An id that ever had it", _of_read("transactional_id"), True),
        Column("topic_id", "STRING", "Topic id of __transaction_state", _of_read("topic_id"), True),
        Column("partition", "INT", "Partition of __transaction_state", _of_read("partition"), True),
        Column("leader_epoch", "INT", "Leader epoch at which it was read", _of_read("leader_epoch"), True),
        Column("end_offset", "BIGINT", "High watermark that the read reached", _of_read("end_offset"), True),
        Column(
            "records",
            tuple[RawRecord, ...],
            "The records of the id, as they stand in the log. leader_epoch: of the record's batch. "
            "contiguous_from: from there to the record this read missed no offset. value: null for a tombstone",
            _of_read("records"),
            True,
        ),
        Column(
            "epoch_ends",
            tuple[EpochEnd, ...],
            "Where leader epochs of earlier reads end in the log, by the batches that are left in it",
            _of_read("epoch_ends"),
            True,
        ),
        Column(
            "answered_ends",
            tuple[EpochEnd, ...],
            "Where leader epochs of earlier reads end in the log, by its leader's answer",
            _of_read("answered_ends"),
            True,
        ),
    ),
)

SWEEPS = Table(
    "sweeps",
    "One row per finished sweep, written last: what has no row here is not finished",
    (
        *SWEEP,
        Column(
            "finished_at",
            "TIMESTAMP",
            "When the verdicts were ready",
            lambda s, _: timestamp(s.finished_at_ms),
            True,
        ),
        Column("scope", "STRING", "What was asked for: all, or the limits set", lambda s, _: s.scope, True),
        Column(
            "complete",
            "BOOLEAN",
            "Everything in scope was observed and nothing is indeterminate",
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
        Column("partitions_failed", "BIGINT", "Partitions that did not", lambda s, _: s.partitions_failed, True),
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
            "Those whose coordinator was proven to be covered",
            lambda s, _: s.coordinators_proven,
            True,
        ),
        Column(
            "visibility_failures",
            tuple[Failure, ...],
            "Why transactional ids or topics may be hidden from the principal, empty when none are known to be",
            lambda s, _: s.visibility_failures,
        ),
        Column("principal", "STRING", "Kafka principal that swept, null without SASL", lambda s, _: s.named_principal),
        Column("producers", "BIGINT", "Producers that the partitions know", lambda s, _: s.producers, True),
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
        Column("candidates", "BIGINT", "Hanging and late", lambda s, _: len(s.candidates), True),
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
        Column("txnscan_version", "STRING", "Version of txnscan that swept", lambda s, _: s.version, True),
        Column("schema_version", "INT", "Version of these tables", lambda s, _: SCHEMA_VERSION, True),
        Column(
            "healthy",
            tuple[HealthyCount, ...],
            "The healthy open transactions by topic and verdict: ongoing, pending_marker whose marker is not overdue, "
            "and gone",
            lambda s, _: s.healthy,
        ),
        Column("warnings", "ARRAY<STRING>", "What the sweep warned of", lambda s, _: list(s.warnings)),
        Column(
            "read_bytes",
            "BIGINT",
            "Bytes of producers' states and of __transaction_state that were read, which is nearly all that is read",
            lambda s, _: s.read_bytes,
        ),
        Column(
            "boot_id",
            "STRING",
            "The boot of the machine that swept; null where the system does not tell it",
            lambda s, _: s.boot.boot_id if s.boot is not None else None,
        ),
        Column(
            "since_boot_ms",
            "BIGINT",
            "How long that machine had run when the verdicts were ready, by a clock that nobody can set",
            lambda s, _: s.boot.since_boot_ms if s.boot is not None else None,
        ),
        Column(
            "stages",
            tuple[StageTime, ...],
            "The stages of the sweep in their order, and how long each took. Writing these tables comes after them",
            lambda s, _: s.stages,
        ),
    ),
    (
        ("partitions_add_up", "partitions_answered + partitions_failed = partitions_planned"),
        ("finished_after_start", "finished_at >= started_at"),
    ),
)


# More than a cluster has open at once, nearly always. What is left out starts its age anew.
FIRST_SEEN_MAX = 100_000


def scope_key(scope: str) -> str:
    """A scope as the name of a folder."""
    return hashlib.sha256(scope.encode()).hexdigest()[:16]


FIRST_SEEN = Table(
    "first_seen",
    "Since when each transaction is open that the last sweep of its scope saw; each sweep replaces those of its scope",
    (
        Column("cluster_id", "STRING", "The cluster's id", lambda s, _: s.cluster_id, True),
        Column("scope_key", "STRING", "Digest of the sweep's scope", lambda s, _: scope_key(s.scope), True),
        Column("sweep_id", "STRING", "The last sweep of this scope", lambda s, _: s.sweep_id, True),
        *(
            column
            for column in TRANSACTION
            if column.name
            in ("topic", "topic_id", "partition", "producer_id", "producer_epoch", "start_offset", "first_seen_at")
        ),
    ),
    partitioned_by=("cluster_id", "scope_key"),
    made_anew=True,
)


def _of_marker(name: str) -> Callable[[Any, tuple[str, int, SeenMarker]], Any]:
    return lambda _, item: getattr(item[2], name)


LOG_SCANS = Table(
    "log_scans",
    "Facts: how far sweeps read __transaction_state for a producer id that hangs. A later sweep looks through what was "
    "appended since, as long as the leader epoch is the same",
    (
        *FACT,
        Column("producer_id", "BIGINT", "The producer id that hangs", lambda s, item: item[0], True),
        Column("topic_id", "STRING", "Topic id of __transaction_state", lambda s, item: item[1].topic_id, True),
        Column(
            "logs",
            tuple[ScannedLog, ...],
            "Partitions of __transaction_state, each with the leader epoch at which it was read, and up to where",
            lambda s, item: item[1].logs,
            True,
        ),
    ),
)

MARKERS = Table(
    "markers",
    "Facts: COMMIT markers that apply saw on other partitions of a transaction. Each forbids an ABORT for ever",
    (
        Column("cluster_id", "STRING", "The cluster's id", lambda _, item: item[0], True),
        Column("sweep_date", "DATE", "UTC date on which it was seen", lambda _, item: timestamp(item[1]).date(), True),
        Column("seen_at", "TIMESTAMP", "When it was seen", lambda _, item: timestamp(item[1]), True),
        Column("topic", "STRING", "Topic", _of_marker("topic"), True),
        Column("partition", "INT", "Partition number", _of_marker("partition"), True),
        Column("offset", "BIGINT", "Offset of the marker", _of_marker("offset"), True),
        Column("producer_id", "BIGINT", "Its producer id", _of_marker("producer_id"), True),
        Column("producer_epoch", "INT", "Its producer epoch", _of_marker("producer_epoch"), True),
    ),
)


def _of_commit(name: str) -> Callable[[Scan, SeenCommit], Any]:
    return lambda _, commit: getattr(commit, name)


COMMITS = Table(
    "commits",
    "Facts: ids that a coordinator described as CompleteCommit while something of their producer id hung; each forbids "
    "an ABORT of what may be of that commit, where nothing proves its outcome",
    (
        *FACT,
        Column("transactional_id", "STRING", "The id", _of_commit("transactional_id"), True),
        Column("producer_id", "BIGINT", "Its producer id", _of_commit("producer_id"), True),
        Column("producer_epoch", "INT", "Its producer epoch", _of_commit("producer_epoch"), True),
    ),
)


def _of(path: str) -> Callable[[Any, Any], Any]:
    value = attrgetter(path)
    return lambda _, item: value(item)


def _at(name: str) -> Callable[[Any, Any], Any]:
    return lambda _, item: timestamp(getattr(item, name))


RESOLUTIONS = Table(
    "resolutions",
    "The journal of apply: what was planned, each intent before its marker was sent, and each outcome after",
    (
        Column(
            "attempt_id",
            "STRING",
            "The same for an intent and its outcome; for a plan, its digest",
            _of("attempt_id"),
            True,
        ),
        Column("cluster_id", "STRING", "The cluster's id", _of("plan.cluster_id"), True),
        Column("sweep_date", "DATE", "UTC date of the step", lambda _, item: timestamp(item.at_ms).date(), True),
        Column("at", "TIMESTAMP", "When the step was written down", _at("at_ms"), True),
        Column("step", "STRING", "planned, intent or outcome", _of("step"), True),
        Column(
            "status",
            "STRING",
            "Of an outcome: resolved, gone, refused, raced, failed, not_resolved or unknown",
            _of("status"),
        ),
        Column("plan_digest", "STRING", "The plan that this belongs to", _of("plan.digest"), True),
        Column("sweep_id", "STRING", "The sweep that the plan was made of", _of("plan.sweep_id"), True),
        Column("incident_id", "STRING", "The incident that this is about", _of("action.incident_id"), True),
        *(
            Column(c.name, c.type, c.meaning, _of(f"action.{c.name}"), True)
            for c in TRANSACTION
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
        Column("outcome", "STRING", "What the plan knew of the decision about the data", _of("action.outcome"), True),
        Column("marker", "STRING", "COMMIT or ABORT", _of("action.marker"), True),
        Column("detail", "STRING", "What came of it, in one sentence", _of("detail")),
        Column("actor", "STRING", "Process that did it: host, and process id", _of("actor"), True),
        Column("txnscan_version", "STRING", "Version of txnscan that did it", _of("version"), True),
        Column("os_user", "STRING", "The user of the operating system that did it", _of("os_user")),
        Column(
            "principal",
            "STRING",
            "Kafka principal that did it, from SASL; null without SASL, and for a plan, which asks no broker",
            _of("principal"),
        ),
    ),
    (("step_known", "step IN ('planned', 'intent', 'outcome')"), ("marker_known", "marker IN ('COMMIT', 'ABORT')")),
)

APPLY_LOCKS = Table(
    "apply_locks",
    "Which apply is under way on a cluster: one at a time",
    (
        Column("cluster_id", "STRING", "The cluster's id", _of("cluster_id"), True),
        Column(
            "sweep_date",
            "DATE",
            "UTC date on which the row was made",
            lambda _, item: timestamp(item.taken_ms).date(),
            True,
        ),
        Column("holder", "STRING", "The apply that is under way, null when none is", _of("holder")),
        Column("actor", "STRING", "Its process: host, and process id", _of("actor")),
        Column("held_since", "TIMESTAMP", "When it took the lock, by its clock", _at("taken_ms")),
        Column("expires_at", "TIMESTAMP", "Until when no other apply tries, by its clock", _at("expires_ms")),
        Column("renewals", "BIGINT", "How often this row was written by it", _of("renewals")),
    ),
)

# In the order of writing: the sweeps row last makes the others visible.
TABLES = (
    LOG_READS,
    LOG_SCANS,
    MARKERS,
    COMMITS,
    OPEN_TRANSACTIONS,
    CANDIDATES,
    SCAN_ERRORS,
    FIRST_SEEN,
    INCIDENTS,
    RESOLUTIONS,
    APPLY_LOCKS,
    SWEEPS,
)
