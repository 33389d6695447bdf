"""Every table: its columns, its constraints, and the source of each value. The row of a judged transaction, which most
tables take columns from, is in `sweeps/row.py`.

Names and types are a contract that dashboards read. `SCHEMA_VERSION` rises with each change here. `versions.py` says
what may be done with tables of another version.

Times are UTC timestamps, except where a name ends in `_ms`: then it is a number of milliseconds, or a record's own
timestamp as the client wrote it, which need not be a possible date.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from txnscan.engine.clock import StageTime
from txnscan.kafka.failure import Failure, Permission
from txnscan.sweeps.column import (
    ColumnKind,
    StoredColumn,
    Value,
    boolean,
    date,
    integer,
    long,
    named,
    of_sweep,
    optional_integer,
    optional_long,
    optional_struct,
    optional_structs,
    optional_text,
    optional_texts,
    optional_time,
    row_of,
    structs,
    text,
    through,
    time,
)
from txnscan.sweeps.restored import LogPosition
from txnscan.sweeps.result import HealthyCount, Scan
from txnscan.sweeps.row import HISTORY, IMPACT_COLUMNS, ROW_COLUMNS, SWEEP_COLUMNS, TRANSACTION_COLUMNS, incident_id
from txnscan.txnlog.facts import ClosedProducer, LogRead, LogScan, SeenCommit, SeenMarker
from txnscan.verdict.evidence import Verdict
from txnscan.waiting.complete_up_to import Completeness, PartitionRead
from txnscan.waiting.writability import BehindLast

SCHEMA_VERSION = 22
# The first version since which each change only added tables or columns that may be null. Releases of that version can
# read all later tables, until a change does more.
READABLE_SINCE = 21


@dataclass(frozen=True, slots=True)
class Table:
    """A table, its columns in order, CHECK constraints by name, and the columns that it is partitioned by.

    Many clusters are written to one table at once, and each write names its cluster.

    made_anew: the table is created again if it is missing: only ages are lost, and start again. change_feed: Delta
    keeps the changes of each commit (its change data feed). since: the schema version that added it.
    """

    name: str
    meaning: str
    columns: tuple[StoredColumn, ...]
    checks: tuple[tuple[str, str], ...] = ()
    partitioned_by: tuple[str, ...] = ("cluster_id",)
    made_anew: bool = False
    change_feed: bool = False
    since: int = 0

    def rows(self, scan: Scan | None, items: Any) -> list[dict[str, Any]]:
        """The rows of these items. scan: their sweep, if they are of a sweep."""
        return [row_of(self.columns, scan, item) for item in items]


_VERDICTS = ", ".join(f"'{verdict}'" for verdict in Verdict)

OPEN_TRANSACTIONS = Table(
    "open_transactions",
    "The open transactions that a sweep judged, with the evidence. Healthy transactions are only counted in sweeps, "
    "unless --store-all was given, a group or a streaming query waits for them, or they are older than "
    "--blocking-after",
    ROW_COLUMNS,
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
        text("incident_id", "Its incident", lambda s, j: incident_id(s.cluster_id, j)),
        *TRANSACTION_COLUMNS,
        *IMPACT_COLUMNS,
    ),
    (("hanging_and_late", "verdict = 'hanging' AND late"),),
)


SCAN_ERRORS = Table(
    "scan_errors",
    "Failed observations of sweeps",
    (
        *SWEEP_COLUMNS,
        text("stage", "Step of the sweep"),
        optional_integer("broker", "Broker that was asked"),
        optional_text("topic", "Topic, if the error is about a topic"),
        optional_integer("partition", "Partition, if the error is about a partition"),
        text(
            "code",
            "Code of the failure: the name of an error of Kafka's protocol, or a code of txnscan",
            "failure.code",
        ),
        text("error", "The failure in words", lambda s, error: str(error.failure)),
        optional_struct(
            "needs",
            Permission,
            "The missing permission of the sweep's principal, if that is the reason",
            "failure.needs",
        ),
    ),
)


_COMPLETENESS = ", ".join(f"'{status}'" for status in Completeness)

TOPIC_READS = Table(
    "topic_reads",
    "Reads of the topics of --complete-up-to, with the time up to which each topic is complete. A sweep adds a row for "
    "each of these topics",
    (
        *SWEEP_COLUMNS,
        text("topic", "Topic"),
        text("topic_id", "Topic id; empty if it is not known"),
        time("read_at", "Before the first request of the read, by the clock of the sweep", "read_at_ms"),
        optional_time(
            "complete_up_to",
            "read_committed consumers can read every record that was acknowledged before this time; null if no such "
            "time is known",
            "complete_up_to_ms",
        ),
        text(
            "status",
            "complete: up to read_at. blocked: only up to an earlier time. not_observed: a partition could not be read "
            "with proof",
            "status.value",
        ),
        optional_text("code", "Why the topic could not be read: code of the failure"),
        structs(
            "partitions",
            PartitionRead,
            "Facts: the proven read of each partition, or the code of the failure. mark: the read up to whose time the "
            "partition is complete, computed from all reads",
        ),
    ),
    (("status_known", f"status IN ({_COMPLETENESS})"),),
)

_carried_impact = through(Scan.carried_impact)

INCIDENTS = Table(
    "incidents",
    "One row per hanging transaction, over all sweeps",
    (
        text(
            "incident_id", "The same for the same transaction in every sweep", lambda s, j: incident_id(s.cluster_id, j)
        ),
        text("cluster_id", "The cluster's id", of_sweep("cluster_id")),
        date("sweep_date", "UTC date on which it was first seen hanging", of_sweep("started_at_ms")),
        long(
            "start_offset",
            "Offset of the transaction's first record when it was first seen",
            "observation.transaction_key.start_offset",
        ),
        text(
            "topic_id",
            "Topic id when it was first seen; empty if it was not known then",
            "observation.transaction_key.topic_id",
        ),
        *named(
            TRANSACTION_COLUMNS,
            "topic",
            "partition",
            "producer_id",
            "producer_epoch",
            "reason",
            "late",
            "transactional_id",
            "blocked_records",
            "explanation",
        ),
        time("first_seen_at", "When txnscan first saw the transaction open", "observation.first_seen_ms"),
        time("last_seen_at", "End of the last sweep that saw it hanging", of_sweep("finished_at_ms")),
        text("last_sweep_id", "The last sweep that saw it hanging", of_sweep("sweep_id")),
        long(
            "history",
            "Number of the cluster's history in which it was seen last, or its end was proven. All columns are of this "
            "history",
            of_sweep("history"),
        ),
        long(
            "sweeps",
            "Minimum number of sweeps that saw it hanging",
            lambda s, j: int(j.judgement.verdict is Verdict.HANGING),
        ),
        boolean("is_open", "Whether no sweep has proven its end", lambda s, _: True),
        optional_time("resolved_at", "End of the sweep that proved its end", lambda s, _: None),
        optional_text(
            "resolved_how",
            "ended (by itself or by another tool), completed or torn (committed data, by a COMMIT or an ABORT marker), "
            "topic_deleted, topic_recreated, or abort_marker or commit_marker if apply wrote the marker",
            lambda s, _: None,
        ),
        optional_text(
            "outcome",
            "Decision about this data, by all facts of the last sweep that saw it: committed, maybe_committed, mixed, "
            "not_committed or unknown",
            "known_outcome.outcome",
        ),
        optional_text("outcome_reason", "Reason of the outcome", "known_outcome.why"),
        optional_texts(
            "outcome_evidence",
            "The records of __transaction_state that are evidence of the outcome",
            "known_outcome.evidence",
        ),
        integer(
            "last_sequence", "Sequence number of its last record when it was seen last", "observation.last_sequence"
        ),
        integer(
            "leader_epoch",
            "Leader epoch of the partition when it was seen last. The sweep with the higher epoch is later",
            "observation.leader_epoch",
        ),
        optional_long(
            "high_watermark",
            "High watermark of the partition when it was seen last. At the same leader epoch, the sweep with the "
            "higher high watermark is later",
            "observation.second.high_watermark",
        ),
        optional_long(
            "last_stable_offset",
            "Last stable offset of the partition when it was seen last",
            _carried_impact("last_stable_offset"),
        ),
        optional_time(
            "lso_since",
            "When a sweep first saw last_stable_offset at this value; it may have had this value before",
            _carried_impact("lso_since_ms"),
        ),
        *named(IMPACT_COLUMNS, "groups_blocked", "cause", "cause_reason", "owner_id", "framework", "event_id"),
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
        text("cluster_id", "The cluster's id"),
        optional_text("sweep_id", "The sweep that read them; null for facts from apply"),
        date("sweep_date", "UTC date on which the sweep started, or of the apply", "learned_ms"),
        long("history", HISTORY + ", and veto"),
        long("producer_id", "Producer id of the hanging transaction"),
        structs(
            "reads",
            LogRead,
            "Reads of __transaction_state: the records of an id that ever had this producer id, as in the log, and end "
            "offsets of leader epochs, by the batches of the log and by the answer of its leader. leader_epoch of a "
            "record: of its batch. contiguous_from: the read missed no offset from there to the record. value: null "
            "for a tombstone",
            "facts.reads",
        ),
        structs(
            "markers",
            SeenMarker,
            "COMMIT markers that apply saw on other partitions of the transaction. Each forbids an ABORT for ever",
            "facts.markers",
        ),
        structs(
            "commits",
            SeenCommit,
            "Ids that a coordinator described as CompleteCommit. Each forbids an ABORT of data that may be part of "
            "that commit and has no proven outcome",
            "facts.commits",
        ),
        structs(
            "scans",
            LogScan,
            "How far __transaction_state was read for this producer id. A later sweep reads only newer records, as "
            "long as the leader epoch is the same",
            "facts.scans",
        ),
        optional_structs(
            "closed",
            ClosedProducer,
            "Partitions whose leader listed the producer without an open transaction, with the epochs of its last "
            "marker. A marker that no decision in __transaction_state explains forbids an ABORT",
            "facts.closed",
        ),
    ),
)


def _count(verdict: Verdict) -> Value:
    return lambda scan, _: scan.counts[verdict]


SWEEPS = Table(
    "sweeps",
    "One row per finished sweep, written last. A sweep without a row here is not finished",
    (
        *SWEEP_COLUMNS,
        time("finished_at", "When the verdicts were ready", "finished_at_ms"),
        text("scope", "Scope of the sweep: all, or its limits"),
        boolean("complete", "Whether everything in scope was observed and no transaction is indeterminate"),
        integer("brokers", "Brokers in the cluster's metadata"),
        long("partitions_planned", "Partitions in scope"),
        long(
            "partitions_answered", "Partitions that answered", lambda s, _: s.partitions_planned - s.partitions_failed
        ),
        long("partitions_failed", "Partitions that did not answer"),
        integer("coordinators_planned", "Partitions of __transaction_state"),
        integer("coordinators_proven", "Partitions of __transaction_state whose coordinator is proven to be covered"),
        optional_structs(
            "visibility_failures",
            Failure,
            "Why transactional ids or topics may be hidden from the principal; empty without a known reason",
        ),
        optional_text("principal", "Kafka principal that swept, null without SASL", "named_principal"),
        long("producers", "Producers in the state of the partitions"),
        long(
            "transactional_ids", "Transactional ids that were in a transaction: Ongoing, PrepareCommit or PrepareAbort"
        ),
        *(long(verdict.value, f"Open transactions judged {verdict.value}", _count(verdict)) for verdict in Verdict),
        long("candidates", "Hanging and late transactions", lambda s, _: len(s.candidates)),
        long("errors", "Rows in scan_errors", lambda s, _: len(s.errors)),
        long("late_after_ms", "Age from which a transaction counts as late"),
        long("max_timeout_ms", "The longest transaction.max.timeout.ms of the brokers"),
        text("settings", "The options of the sweep, as JSON, without connection settings"),
        text("txnscan_version", "Version of txnscan of the sweep", "version"),
        integer("schema_version", "Version of these tables", lambda s, _: SCHEMA_VERSION),
        optional_structs(
            "healthy",
            HealthyCount,
            "The healthy open transactions by topic and verdict: ongoing, pending_marker whose marker is not overdue, "
            "and gone",
        ),
        optional_texts("warnings", "Warnings of the sweep", lambda s, _: list(s.warnings)),
        optional_long(
            "read_bytes",
            "Bytes of producer states and __transaction_state that the sweep read, nearly all of its reads",
        ),
        optional_text(
            "boot_id", "Boot id of the machine that swept; null if the system does not report it", "boot.boot_id"
        ),
        optional_long(
            "since_boot_ms",
            "Time since the boot of this machine when the verdicts were ready, by a clock that cannot be set",
            "boot.since_boot_ms",
        ),
        optional_structs(
            "stages",
            StageTime,
            "The stages of the sweep in order, with the duration of each. The writing of these tables comes after them",
        ),
        optional_text(
            "engine", "Engine that read the partitions: spark on executors, threads in the driver", "engine.name.value"
        ),
        optional_text(
            "engine_reason",
            "Why: requested; no_session, without a Spark session; executors_connect, every executor can connect to a "
            "broker; executors_failed, an executor cannot, see warnings",
            "engine.reason.value",
        ),
        optional_structs(
            "stops",
            BehindLast,
            "Brokers whose stop would leave partitions with open transactions without a leader, and how many. Null if "
            "that is not known",
            "writes.stops",
        ),
        optional_long(
            "blocking",
            "Live transactions that hold readers back, as far as it is known: at most the 1,000 oldest were looked at",
            lambda s, _: len(s.blocking),
        ),
        optional_long(
            "blocking_after_ms",
            "Age from which a live transaction gets a row in open_transactions, even if no group waits for it",
        ),
        optional_text(
            "went_back",
            "How the sweep noticed that the cluster's history went back: image_offset, leader_epoch, high_watermark, "
            "epoch_end or open_again; null if it did not",
            "fall.sign.value",
        ),
        optional_text(
            "went_back_reason",
            "The position that fell, in words",
            lambda s, _: str(s.fall) if s.fall is not None else None,
        ),
        optional_long(
            "vetoes_dropped",
            "Number of stored facts that do not forbid an ABORT any more, by --new-history; null without it",
        ),
        long("vetoes_from", "Facts of earlier histories than this one do not forbid an ABORT either, by --new-history"),
        optional_long(
            "image_offset", "The highest offset of a metadata image that a broker reported; null outside KRaft mode"
        ),
        structs(
            "positions",
            LogPosition,
            "The positions of partitions that the sweep proved, at most 1,000. Later sweeps compare them: a lower one "
            "shows that the history went back",
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
        text("cluster_id", "The cluster's id", of_sweep("cluster_id")),
        text("scope_key", "Digest of the sweep's scope", lambda s, _: scope_key(s.scope)),
        text("sweep_id", "The last sweep of this scope", of_sweep("sweep_id")),
        long("history", HISTORY, of_sweep("history")),
        *named(
            TRANSACTION_COLUMNS,
            "topic",
            "topic_id",
            "partition",
            "producer_id",
            "producer_epoch",
            "start_offset",
            "first_seen_at",
        ),
    ),
    partitioned_by=("cluster_id", "scope_key"),
    made_anew=True,
)


RESOLUTIONS = Table(
    "resolutions",
    "The journal of apply: each planned marker, each intent before its marker was sent, and each outcome after it",
    (
        text("attempt_id", "The same for an intent and its outcome; for a plan, its digest"),
        text("cluster_id", "The cluster's id", "plan.cluster_id"),
        date("sweep_date", "UTC date of the step", "at_ms"),
        time("at", "When the step was stored", "at_ms"),
        text("step", "planned, intent or outcome"),
        optional_text(
            "status", "Result of an outcome: resolved, gone, refused, raced, failed, not_resolved or unknown"
        ),
        text("plan_digest", "Digest of the plan", "plan.digest"),
        text("sweep_id", "The sweep of the plan", "plan.sweep_id"),
        text("incident_id", "The incident of the marker", "action.incident_id"),
        *(
            ColumnKind(column.type)(column.name, column.meaning, f"action.{column.name}")
            for column in named(
                TRANSACTION_COLUMNS,
                *("topic", "topic_id", "partition", "producer_id", "producer_epoch"),
                *("coordinator_epoch", "start_offset", "reason"),
            )
        ),
        text("outcome", "Outcome of the data, by the plan", "action.outcome"),
        text("marker", "COMMIT or ABORT", "action.marker"),
        optional_text("detail", "The result in one sentence"),
        text("actor", "Process of the step: host, and process id"),
        text("txnscan_version", "Version of txnscan of the step", "version"),
        optional_text("os_user", "User of the operating system"),
        optional_text(
            "principal",
            "Kafka principal of the step, from SASL; null without SASL, and for a plan, which asks no broker",
        ),
    ),
    (("step_known", "step IN ('planned', 'intent', 'outcome')"), ("marker_known", "marker IN ('COMMIT', 'ABORT')")),
)

APPLY_LOCKS = Table(
    "apply_locks",
    "The running apply of each cluster, at most one",
    (
        text("cluster_id", "The cluster's id"),
        date("sweep_date", "UTC date on which the row was made", "taken_ms"),
        optional_text("holder", "The running apply; null without one"),
        optional_text("actor", "Its process: host, and process id"),
        optional_time("held_since", "When it took the lock, by its clock", "taken_ms"),
        optional_time("expires_at", "End of the lease, by its clock", "expires_ms"),
        optional_long("renewals", "Number of times it wrote this row"),
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
