"""The specification of `explain`: each case has facts, the expected cause, and its numbers.

By default producer id 7 is open on p-0 at epoch 3 from offset 100, which is the last stable offset. The high
watermark is 105, and the group has committed 100.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.builders import LATE_AFTER_MS, MINUTE_MS, NOW_MS, P, context, failed, judged, known, observation, view
from tests.cases import Cases
from txnscan.api import explain_symptom
from txnscan.coordinators.transactions import Transaction
from txnscan.explain.answers.blockers import owned
from txnscan.explain.answers.commands import explain_partition
from txnscan.explain.cause import CauseCode, Explanation, Subject
from txnscan.explain.causes import RULES, cause_of
from txnscan.explain.client_errors import ErrorKind
from txnscan.explain.facts import CleanerProgress, Facts, PartitionFacts, PendingOffsets
from txnscan.explain.known_errors import CLIENT_ERRORS, recogniser
from txnscan.explain.symptom import Symptom, SymptomKind
from txnscan.explain.writes import with_writes
from txnscan.kafka.answers import TWO_PHASE_COMMIT_TIMEOUT_MS, CoordinatorView, State
from txnscan.kafka.failure import NO_LEADER, Failure, Permission
from txnscan.kafka.topology import NO_LEADER_ID, NO_LISTENER_ID, TRANSACTION_STATE_TOPIC, PartitionReplicas
from txnscan.report.explain import explained_lines, explained_object
from txnscan.resolve.guard import Allowed, offered
from txnscan.resolve.offer import in_words, swept
from txnscan.txnlog.facts import LoggedTransaction
from txnscan.verdict.evidence import Judged
from txnscan.verdict.outcome import with_outcome
from txnscan.verdict.rules import judge, judge_observation
from txnscan.waiting.ahead import Ahead
from txnscan.waiting.cause import Cause
from txnscan.waiting.disk import DiskRead, ReplicaSize, disk_of
from txnscan.waiting.known_causes import KNOWN_CAUSES, LONG_LIVED, ExposedTo
from txnscan.waiting.writability import NoLog, WriteState, WriteStates

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

GROUP = Symptom(SymptomKind.GROUP, group="g")
QUERY = Symptom(SymptomKind.QUERY, checkpoint="s3://KEY:SECRET@bucket/query")
TOPIC = Symptom(SymptomKind.TOPIC, topic="p")
ID = Symptom(SymptomKind.TRANSACTIONAL_ID, transactional_id="X")
NUMBER = Symptom(SymptomKind.PRODUCER_ID, producer_id=7)
ERRORS = {one.name: one for one in recogniser().errors}
# The real rules of a sweep judge these.
HANGING = judged(view("CompleteCommit", 3))
ORPHAN = judged()
LATER = judged(view("CompleteCommit", 3), start_offset=103)
TWO_MINUTES_OLD = {"start_time_ms": NOW_MS - 2 * MINUTE_MS, "timeout_ms": 15 * MINUTE_MS}
OWNED = judged(view("Ongoing", 3, (P,), **TWO_MINUTES_OLD))
DUE = judged(view("Ongoing", 3, (P,), start_time_ms=NOW_MS - 15 * MINUTE_MS - 5_000, timeout_ms=15 * MINUTE_MS))
OLD = judged(view("Ongoing", 3, (P,), start_time_ms=NOW_MS - 6 * MINUTE_MS, timeout_ms=15 * MINUTE_MS))
OVERDUE = judged(view("Ongoing", 3, (P,), start_time_ms=NOW_MS - 18 * MINUTE_MS, timeout_ms=15 * MINUTE_MS))
TWO_PHASE = judged(
    view("Ongoing", 3, (P,), start_time_ms=NOW_MS - 2 * MINUTE_MS, timeout_ms=TWO_PHASE_COMMIT_TIMEOUT_MS)
)
OWED = judged(view("PrepareCommit", 4, (P,), **TWO_MINUTES_OLD))
STUCK = judged(view("PrepareAbort", 4, (P,), start_time_ms=NOW_MS - 60 * MINUTE_MS))
ENDED = judged(view("CompleteCommit", 3), second_start_offset=None)
UNSURE = judge_observation(observation(), (), context(coverage_failure=failed("broker 3 cannot be reached")))
NO_GROUP = PartitionFacts("p", 0, 105, 100, 100)
WAITS = replace(NO_GROUP, committed=100)
CLOSED = PartitionFacts("p", 0, 105, 105, 105)
DELETED = Ahead(None, failure=Failure("p-0: the records are deleted", "OFFSET_OUT_OF_RANGE"), record_at=90)
PLAIN_SETTINGS = {
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "remote.storage.enable": "false",
}
TIERED_SETTINGS = PLAIN_SETTINGS | {
    "remote.storage.enable": "true",
    "local.retention.ms": "3600000",
    "local.retention.bytes": "-2",
}
ON_DISK = disk_of(DiskRead(NOW_MS, None, None, (ReplicaSize(2, "/data", 5_000_000_000, 9 << 30, 1 << 30),)))
COMPACTED = replace(
    CLOSED,
    compacted=True,
    disk=disk_of(DiskRead(NOW_MS, None, None, (ReplicaSize(2, "/data", 9 << 30, 100 << 30, 1 << 30),))),
)
REFUSED = Failure("p-0", "TOPIC_AUTHORIZATION_FAILED", needs=Permission("Read", "Topic", "p"))


def facts(symptom: Symptom, *partitions: PartitionFacts, **changes: Any) -> Facts:
    base = Facts(symptom, NOW_MS, LATE_AFTER_MS, partitions=partitions, asked=len(partitions))
    writes = changes.pop("writes", None)
    return replace(base, **changes) if writes is None else with_writes(replace(base, **changes), writes)


def on(*found: Judged, base: PartitionFacts = WAITS, **changes: Any) -> PartitionFacts:
    return replace(base, open=found, **changes)


def x(state: str, **changes: Any) -> Transaction:
    base = Transaction("X", 2, 7, state, 4, None, 15 * MINUTE_MS)
    return replace(base, **changes)


def record(state: str, epoch: int, at_ms: int) -> LoggedTransaction:
    """A record of X, whose transaction began 20 minutes ago, with a timeout of 15 minutes."""
    start_ms = -1 if state == "Empty" else NOW_MS - 20 * MINUTE_MS
    return LoggedTransaction(0, 0, "X", 7, epoch, State(state), frozenset(), 2, start_ms, at_ms, 15 * MINUTE_MS)


def saying(name: str, symptom: Symptom = ID, **changes: Any) -> Symptom:
    return replace(symptom, error=ERRORS[name], **changes)


ALONE = Symptom(SymptomKind.ERROR)
PREPARED = x("PrepareCommit", start_time_ms=NOW_MS - 2 * MINUTE_MS, age_ms=2 * MINUTE_MS, partitions=(P,))
LATE_PREPARED = replace(PREPARED, start_time_ms=NOW_MS - 60 * MINUTE_MS, age_ms=60 * MINUTE_MS)
ONGOING = x("Ongoing", start_time_ms=NOW_MS - 2 * MINUTE_MS, age_ms=2 * MINUTE_MS, partitions=(P,))
TIMED_OUT = (
    record("Ongoing", 3, NOW_MS - 20 * MINUTE_MS),
    record("PrepareAbort", 4, NOW_MS - MINUTE_MS),
    record("CompleteAbort", 4, NOW_MS - MINUTE_MS),
)
EXPIRED = replace(TIMED_OUT[0], state=State.DEAD, updated_ms=NOW_MS - 48 * 60 * MINUTE_MS)
TAKEN_OVER = (
    record("Ongoing", 3, NOW_MS - 20 * MINUTE_MS),
    record("PrepareAbort", 4, NOW_MS - 10 * MINUTE_MS),
    *(record("Empty", epoch, NOW_MS + (epoch - 14) * MINUTE_MS) for epoch in (5, 6)),
)
OFFSETS_LOG = PartitionFacts("__consumer_offsets", 9, 105, 100, 100)
ENDS_BY_MS = NOW_MS + 13 * MINUTE_MS


# The replicas of the transaction log, which has one partition, and of p-0 and q-0: in sync or not, or without a leader.
HERE, AWAY = (1, 2), (1,)


def states(
    log: tuple[int, ...] = HERE, p: tuple[int, ...] = HERE, q: tuple[int, ...] = HERE, **changes: Any
) -> WriteStates:
    """The write states of two replicas each, with these in sync, of which two are needed."""
    found = {}
    for topic, in_sync in ((TRANSACTION_STATE_TOPIC, log), ("p", p), ("q", q)):
        leader = in_sync[0] if in_sync else NO_LEADER_ID
        found[topic, 0] = WriteState(PartitionReplicas(topic, 0, leader, HERE, in_sync, eligible=(2,)), 2)
    return replace(WriteStates(found, log_partitions=1), **changes)


UNKNOWN_SETTING = replace(
    states(AWAY),
    partitions={key: replace(one, min_in_sync=None, failure=REFUSED) for key, one in states(AWAY).partitions.items()},
)


def in_doubt(known: WriteStates) -> WriteStates:
    """The same, but a broker with an in-sync replica of the log does not answer."""
    log = replace(known.partitions[TRANSACTION_STATE_TOPIC, 0], silent=(2,))
    return replace(known, partitions={**known.partitions, log.replicas.key: log})


# The coordinator is of a release that drops markers.
DROPS: dict[str, Any] = {"dropping": frozenset({1})}
ON_BOTH = x("Ongoing", start_time_ms=NOW_MS - 2 * MINUTE_MS, age_ms=2 * MINUTE_MS, partitions=(P, "q-0"))


@dataclass(frozen=True)
class Case:
    why: str
    read: Facts
    code: CauseCode
    numbers: dict[str, Any] = field(default_factory=dict)


C = CauseCode
CASES = (
    # Groups that wait.
    Case("the group waits at what hangs", facts(GROUP, on(HANGING)), C.HANGING, {"lag": 5, "blocked_records": 5}),
    Case(
        "markers alone are before what hangs",
        facts(GROUP, on(HANGING, committed=98, ahead=Ahead(False, markers=2))),
        C.HANGING,
        {"committed_offset": 98, "lag": 7, "reason": "missed_commit"},
    ),
    Case(
        "the group has not come to what hangs",
        facts(GROUP, on(HANGING, committed=90, ahead=Ahead(True))),
        C.NO_TRANSACTION,
        {"lag": 15},
    ),
    # Streaming queries, by their checkpoints.
    Case(
        "the query waits at what hangs",
        facts(QUERY, on(HANGING)),
        C.HANGING,
        {"lag": 5, "committed_offset": 100, "checkpoint": "s3://***@bucket/query", "group": None},
    ),
    Case("a coordinator will end what the query waits for", facts(QUERY, on(OWNED)), C.OWNED, {"lag": 5}),
    Case("the query reads on", facts(QUERY, on(HANGING, committed=105)), C.NOT_READ_COMMITTED, {"lag": 0}),
    Case(
        "the query has records to read",
        facts(QUERY, replace(CLOSED, committed=90, ahead=Ahead(True))),
        C.NO_TRANSACTION,
    ),
    Case(
        "the query has read all but a marker",
        facts(QUERY, replace(CLOSED, committed=104, ahead=Ahead(False, 1))),
        C.MARKER_LAG,
    ),
    Case(
        "aborted records before the next record",
        facts(GROUP, replace(CLOSED, committed=5, ahead=Ahead(True, markers=1, aborted=40_000, record_at=44_000))),
        C.NO_TRANSACTION,
        {"aborted": 40_000, "next_record_offset": 44_000},
    ),
    Case("a transaction at its timeout", facts(GROUP, on(DUE)), C.OWNED, {"overdue_ms": 5_000}),
    Case(
        "a reader on a marker",
        facts(GROUP, replace(CLOSED, committed=99, ahead=Ahead(True, 1, record_at=100, begins_with_marker=True))),
        C.AT_MARKER,
        {"committed_offset": 99, "next_record_offset": 100},
    ),
    *(
        Case(
            f"the leader answers {code}",
            facts(GROUP, replace(CLOSED, committed=99, ahead=Ahead(None, failure=Failure(f"p-0: {code}", code)))),
            C.UNREADABLE,
            {"failure": code},
        )
        for code in ("CORRUPT_MESSAGE", "KAFKA_STORAGE_ERROR", "DAMAGED_BATCH")
    ),
    Case(
        "a transaction before others",
        facts(TOPIC, on(HANGING, LATER, base=NO_GROUP)),
        C.HANGING,
        {"open_transactions": 2},
    ),
    Case(
        "a live transaction keeps segments on local disks",
        facts(TOPIC, on(OLD, base=NO_GROUP, settings=TIERED_SETTINGS)),
        C.TIERING_STUCK,
        {"tiered": True, "transactional_id": "X"},
    ),
    Case(
        "a hanging transaction stops tiering",
        facts(TOPIC, on(HANGING, base=NO_GROUP, settings=TIERED_SETTINGS)),
        C.HANGING,
        {"tiered": True},
    ),
    Case(
        "a plain topic that fills its disk",
        facts(TOPIC, replace(CLOSED, settings=PLAIN_SETTINGS, disk=ON_DISK)),
        C.NO_TRANSACTION,
        {"tiered": False, "partition_bytes": 5_000_000_000},
    ),
    Case(
        "a topic without limits",
        facts(TOPIC, replace(CLOSED, settings={**PLAIN_SETTINGS, "retention.ms": "-1"})),
        C.NO_TRANSACTION,
    ),
    Case(
        "a share group that reads uncommitted records",
        facts(GROUP, on(HANGING, base=NO_GROUP), is_share=True, isolation_level="read_uncommitted"),
        C.NO_TRANSACTION,
        {"isolation_level": "read_uncommitted"},
    ),
    Case(
        "a share group that reads committed records",
        facts(GROUP, on(HANGING, base=NO_GROUP), is_share=True, isolation_level="read_committed"),
        C.HANGING,
        {"isolation_level": "read_committed"},
    ),
    Case(
        "a share group on partitions without transactions",
        facts(GROUP, CLOSED, is_share=True, isolation_level="read_uncommitted"),
        C.NO_TRANSACTION,
    ),
    Case(
        "a share group that a live transaction stops",
        facts(GROUP, on(OWNED, base=NO_GROUP), is_share=True, isolation_level="read_committed"),
        C.OWNED,
    ),
    Case(
        "a share group that reads committed records, without transactions",
        facts(GROUP, CLOSED, is_share=True, isolation_level="read_committed"),
        C.NO_TRANSACTION,
    ),
    Case(
        "a share group of an unknown level",
        facts(GROUP, on(HANGING, base=NO_GROUP), is_share=True, failures=(REFUSED,)),
        C.NOT_OBSERVED,
    ),
    Case("the query has read everything", facts(QUERY, replace(CLOSED, committed=105)), C.NO_TRANSACTION),
    Case("the checkpoint cannot be read", facts(QUERY, failures=(REFUSED,)), C.NOT_OBSERVED, {"failure": REFUSED.code}),
    Case("a coordinator will end it", facts(GROUP, on(OWNED)), C.OWNED, {"ends_by_ms": ENDS_BY_MS, "overdue_ms": 0}),
    Case(
        "its coordinator should have ended it",
        facts(GROUP, on(OVERDUE)),
        C.OWNED,
        {"overdue_ms": 3 * MINUTE_MS, "verdict": "late_ongoing"},
    ),
    Case("two-phase commit has no end", facts(GROUP, on(TWO_PHASE)), C.OWNED, {"ends_by_ms": None}),
    Case("the marker is on its way", facts(GROUP, on(OWED)), C.MARKER_OWED, {"state": "PrepareCommit"}),
    Case(
        "the marker is overdue", facts(GROUP, on(STUCK)), C.STUCK_PREPARE, {"state": "PrepareAbort", "ends_by_ms": None}
    ),
    Case("a coordinator was not seen", facts(GROUP, on(UNSURE)), C.NOT_OBSERVED, {"failure": "coverage"}),
    Case(
        "what hangs counts more than what is owned, whatever it blocks",
        facts(GROUP, on(OWNED, high_watermark=900), on(HANGING, partition=1)),
        C.HANGING,
        {"partition": 1},
    ),
    Case(
        "more lag elsewhere, with records to read, counts more than a live transaction",
        facts(GROUP, on(OWNED), replace(CLOSED, partition=1, committed=5, ahead=Ahead(True))),
        C.NO_TRANSACTION,
        {"partition": 1, "lag": 100},
    ),
    Case(
        "less lag elsewhere does not",
        facts(GROUP, on(OWNED), replace(CLOSED, partition=1, committed=104, ahead=Ahead(True))),
        C.OWNED,
        {"partition": 0, "lag": 5},
    ),
    Case(
        "it ended during the sweep", facts(GROUP, on(ENDED, base=CLOSED, committed=105)), C.NO_TRANSACTION, {"lag": 0}
    ),
    Case(
        "the last stable offset has passed it since",
        facts(GROUP, on(OWNED, base=CLOSED, lso_before=100, committed=105)),
        C.NO_TRANSACTION,
        {"lag": 0},
    ),
    Case(
        "the last stable offset has passed it, and stands at another one",
        facts(GROUP, on(OWNED, last_stable_offset=103, committed=103)),
        C.NO_TRANSACTION,
        {"last_stable_offset": 103},
    ),
    # Groups that do not wait.
    Case("the group is behind it", facts(GROUP, on(HANGING, committed=103)), C.NOT_READ_COMMITTED, {"lag": 2}),
    Case("it has records to read", facts(GROUP, replace(CLOSED, committed=5, ahead=Ahead(True))), C.NO_TRANSACTION),
    Case(
        "its next records are deleted, and nothing is open",
        facts(GROUP, replace(CLOSED, committed=5, ahead=DELETED)),
        C.NO_TRANSACTION,
        {"next_record_offset": 90},
    ),
    Case(
        "its next records are deleted, and a transaction hangs after those that are left",
        facts(GROUP, on(HANGING, committed=5, ahead=DELETED)),
        C.NOT_OBSERVED,
        {"failure": "OFFSET_OUT_OF_RANGE"},
    ),
    Case(
        "a marker is all that is left",
        facts(GROUP, replace(CLOSED, committed=104, ahead=Ahead(False, markers=1))),
        C.MARKER_LAG,
        {"lag": 1, "markers": 1, "aborted": 0},
    ),
    Case(
        "aborted records are all that is left",
        facts(GROUP, replace(CLOSED, committed=100, ahead=Ahead(False, markers=1, aborted=4))),
        C.ABORTED_DATA,
        {"lag": 5, "markers": 1, "aborted": 4},
    ),
    Case(
        "compaction left nothing",
        facts(GROUP, replace(CLOSED, committed=100, ahead=Ahead(False))),
        C.NO_TRANSACTION,
        {"lag": 5},
    ),
    Case(
        "a partition that could not be read keeps the rest from being concluded",
        facts(GROUP, replace(CLOSED, committed=104, ahead=Ahead(False, markers=1)), replace(CLOSED, failure=REFUSED)),
        C.NOT_OBSERVED,
        {"failure": "TOPIC_AUTHORIZATION_FAILED"},
    ),
    Case(
        "what comes next could not be read",
        facts(GROUP, replace(CLOSED, committed=100, ahead=Ahead(None, failure=REFUSED))),
        C.NOT_OBSERVED,
        {"failure": "TOPIC_AUTHORIZATION_FAILED"},
    ),
    Case(
        "its coordinator did not answer",
        facts(GROUP, failures=(failed("broker 1 cannot be reached"),)),
        C.NOT_OBSERVED,
        {"failure": "UNREACHABLE"},
    ),
    # Offsets.
    Case(
        "its offsets hang",
        facts(GROUP, on(OWNED), pending=(PendingOffsets("g", (P,), OFFSETS_LOG, HANGING),)),
        C.PENDING_OFFSETS,
        {"topic": "__consumer_offsets", "partition": 9, "verdict": "hanging"},
    ),
    Case(
        "its offsets are in a live transaction",
        facts(GROUP, pending=(PendingOffsets("g", (P,), OFFSETS_LOG, OWNED),)),
        C.PENDING_OFFSETS,
        {"verdict": "ongoing", "ends_by_ms": ENDS_BY_MS},
    ),
    Case(
        "the coordinator alone counts them as pending",
        facts(GROUP, pending=(PendingOffsets("g", (P,), OFFSETS_LOG, None),), coordinator=3),
        C.PENDING_OFFSETS,
        {"verdict": None, "coordinator": 3},
    ),
    Case(
        "the transaction that has them may not be read",
        facts(GROUP, pending=(PendingOffsets("g", (P,), OFFSETS_LOG, None, REFUSED),)),
        C.PENDING_OFFSETS,
        {"verdict": None},
    ),
    # Topics.
    Case("something hangs", facts(TOPIC, on(HANGING, base=NO_GROUP)), C.HANGING, {"start_offset": 100}),
    Case(
        "something hangs on a compacted topic",
        facts(TOPIC, on(HANGING, base=NO_GROUP, compacted=True)),
        C.HANGING,
        {"compacted": True},
    ),
    Case(
        "the cleaner waits", facts(TOPIC, on(OLD, base=NO_GROUP, compacted=True)), C.CLEANER_STUCK, {"compacted": True}
    ),
    Case("the cleaner waits for a moment", facts(TOPIC, on(OWNED, base=NO_GROUP, compacted=True)), C.OWNED),
    Case("nothing is cleaned", facts(TOPIC, on(OLD, base=NO_GROUP, compacted=False)), C.OWNED),
    Case("it is not known how it is cleaned", facts(TOPIC, on(OLD, base=NO_GROUP)), C.OWNED, {"compacted": None}),
    Case("its end is a marker", facts(TOPIC, replace(CLOSED, ahead=Ahead(False, markers=1))), C.MARKER_LAG),
    Case(
        "its end is aborted",
        facts(TOPIC, replace(CLOSED, ahead=Ahead(False, markers=1, aborted=3))),
        C.ABORTED_DATA,
        {"aborted": 3},
    ),
    Case("its end is a record", facts(TOPIC, replace(CLOSED, ahead=Ahead(True))), C.NO_TRANSACTION),
    Case("it is empty", facts(TOPIC, replace(CLOSED, ahead=Ahead(None))), C.NO_TRANSACTION),
    # Compaction without a transaction.
    Case(
        "the cleaner should have been there",
        facts(TOPIC, replace(COMPACTED, cleaning=CleanerProgress(1_000, 990, is_due=True)), asked=1),
        C.CLEANER_STUCK,
        {"compacted": True, "verdict": None, "partition_bytes": 9 << 30, "usable_bytes": 1 << 30},
    ),
    Case(
        "the cleaner may not have to be there yet",
        facts(TOPIC, replace(COMPACTED, cleaning=CleanerProgress(1_000, 990, is_due=False))),
        C.NO_TRANSACTION,
        {"compacted": True, "partition_bytes": 9 << 30},
    ),
    Case(
        "the start of the log is clean, and its end is a marker",
        facts(
            TOPIC, replace(COMPACTED, ahead=Ahead(False, markers=1), cleaning=CleanerProgress(1_000, 0, is_due=False))
        ),
        C.NO_TRANSACTION,
        {"markers": 1, "high_watermark": 105},
    ),
    Case(
        "of several partitions, the largest counts",
        facts(TOPIC, replace(CLOSED, compacted=True), replace(COMPACTED, partition=1)),
        C.NO_TRANSACTION,
        {"partition": 1, "partition_bytes": 9 << 30},
    ),
    Case(
        "its size is not known",
        facts(TOPIC, replace(CLOSED, compacted=True, disk=disk_of(None, (), "broker 2 cannot be reached"))),
        C.NO_TRANSACTION,
        {"partition_bytes": None},
    ),
    Case(
        "another partition was not read",
        facts(TOPIC, COMPACTED, replace(CLOSED, partition=1, compacted=True, failure=REFUSED)),
        C.NOT_OBSERVED,
    ),
    Case(
        "a live transaction is open on another partition",
        facts(TOPIC, replace(COMPACTED, partition=1), on(OWNED, base=NO_GROUP, compacted=True)),
        C.OWNED,
    ),
    Case(
        "the broker's log says that the cleaner gave up",
        facts(saying("LOG_CLEANER", TOPIC), COMPACTED),
        C.CLEANER_STUCK,
        {"partition": 0, "partition_bytes": 9 << 30},
    ),
    Case(
        "the cleaner gave up, and a transaction hangs",
        facts(saying("LOG_CLEANER", TOPIC), on(HANGING, base=NO_GROUP, compacted=True)),
        C.CLEANER_STUCK,
    ),
    Case("a thread of the cleaner has stopped", facts(saying("LOG_CLEANER", ALONE)), C.CLEANER_STUCK, {"topic": None}),
    # Ids.
    Case("it is open", facts(ID, transaction=ONGOING), C.OWNED, {"ends_by_ms": ENDS_BY_MS, "state": "Ongoing"}),
    Case("it is decided", facts(ID, transaction=PREPARED), C.MARKER_OWED, {"owner_epoch": 4}),
    Case("it is decided for long", facts(ID, transaction=LATE_PREPARED), C.STUCK_PREPARE, {"age_ms": 60 * MINUTE_MS}),
    Case("it is at rest", facts(ID, transaction=x("CompleteCommit")), C.NO_TRANSACTION, {"state": "CompleteCommit"}),
    Case("it left something", facts(ID, on(HANGING, base=NO_GROUP), transaction=x("Empty")), C.HANGING),
    Case(
        "another producer left something",
        facts(ID, on(HANGING, base=NO_GROUP), transaction=x("Empty", producer_id=8)),
        C.NO_TRANSACTION,
    ),
    Case("its error is not known", facts(replace(ID, unrecognised=True), transaction=x("Empty")), C.NO_TRANSACTION),
    Case("no coordinator knows it", facts(ID, absent=True), C.NO_TRANSACTION, {"state": None}),
    Case("its coordinator cannot be asked", facts(ID, failures=(failed("NOT_COORDINATOR"),)), C.NOT_OBSERVED),
    Case("nobody has the producer id", facts(NUMBER, whole_cluster=True), C.NO_TRANSACTION, {"producer_id": 7}),
    Case("nobody has it, and it hangs", facts(NUMBER, on(HANGING, base=NO_GROUP)), C.HANGING, {"producer_id": 7}),
    Case("an id may be hidden", facts(NUMBER, failures=(REFUSED,)), C.NOT_OBSERVED),
    # Logs that take no writes.
    Case(
        "the partition has no leader",
        facts(TOPIC, replace(CLOSED, failure=NO_LEADER), writes=states(p=())),
        C.NO_WRITES,
        {"no_writes": "p-0", "in_sync_replicas": 0, "restore_brokers": (2,)},
    ),
    Case(
        "another partition has no leader, and a transaction hangs",
        facts(TOPIC, replace(CLOSED, failure=NO_LEADER), on(HANGING, partition=1), writes=states(p=())),
        C.HANGING,
    ),
    Case(
        "the partition had no leader, and has one again",
        facts(TOPIC, replace(CLOSED, failure=NO_LEADER), writes=states()),
        C.NOT_OBSERVED,
    ),
    Case(
        "the coordinator's log takes no writes",
        facts(GROUP, on(OWNED), writes=states(AWAY)),
        C.NO_WRITES,
        {
            "no_writes": "__transaction_state-0",
            "ends_by_ms": None,
            "in_sync_replicas": 1,
            "min_in_sync_replicas": 2,
            "replication_factor": 2,
            "restore_brokers": (2,),
            "verdict": "ongoing",
        },
    ),
    Case(
        "the timeout is over, and the log takes no writes",
        facts(GROUP, on(OVERDUE), writes=states(AWAY)),
        C.NO_WRITES,
        {"verdict": "late_ongoing", "overdue_ms": 3 * MINUTE_MS, "ends_by_ms": None},
    ),
    Case(
        "the partition takes no writes",
        facts(GROUP, on(OWNED), writes=states(p=AWAY)),
        C.NO_WRITES,
        {"no_writes": "p-0", "ends_by_ms": None},
    ),
    Case(
        "another partition takes no writes: this one gets its marker",
        facts(GROUP, on(OWNED), writes=states(q=AWAY)),
        C.OWNED,
        {"no_writes": None, "ends_by_ms": ENDS_BY_MS},
    ),
    Case("its offsets cannot be committed", facts(TOPIC, on(OWNED, base=NO_GROUP), writes=states(AWAY)), C.NO_WRITES),
    Case(
        "compaction waits for a log that takes no writes",
        facts(TOPIC, on(OLD, base=NO_GROUP, compacted=True), writes=states(AWAY)),
        C.NO_WRITES,
    ),
    Case(
        "what hangs counts more than what cannot end",
        facts(GROUP, on(OWNED), on(HANGING, partition=1), writes=states(AWAY)),
        C.HANGING,
    ),
    Case(
        "the marker cannot be written",
        facts(GROUP, on(OWED), writes=states(p=AWAY)),
        C.NO_WRITES,
        {"no_writes": "p-0", "state": "PrepareCommit"},
    ),
    Case(
        "the marker is overdue, and cannot be written",
        facts(GROUP, on(STUCK), writes=states(p=AWAY)),
        C.NO_WRITES,
        {"no_writes": "p-0", "reason": "stuck"},
    ),
    Case(
        "the log takes no writes, and the marker needs none there",
        facts(GROUP, on(OWED), writes=states(AWAY)),
        C.MARKER_OWED,
        {"no_writes": None},
    ),
    Case(
        "its offsets are in a transaction that cannot end",
        facts(
            GROUP,
            pending=(PendingOffsets("g", (P,), OFFSETS_LOG, OWNED),),
            writes=states(AWAY),
        ),
        C.PENDING_OFFSETS,
        {"no_writes": "__transaction_state-0", "ends_by_ms": None},
    ),
    Case(
        "it is not known whether the log takes writes",
        facts(GROUP, on(OWNED), writes=UNKNOWN_SETTING),
        C.OWNED,
        {"no_writes": None, "ends_by_ms": None, "in_sync_replicas": 1, "min_in_sync_replicas": None},
    ),
    Case(
        "the id cannot end it",
        facts(ID, transaction=ONGOING, writes=states(AWAY)),
        C.NO_WRITES,
        {"no_writes": "__transaction_state-0", "ends_by_ms": None},
    ),
    Case(
        "the id cannot end it on another partition",
        facts(ID, transaction=ON_BOTH, writes=states(q=AWAY)),
        C.NO_WRITES,
        {"no_writes": "q-0", "ends_by_ms": None},
    ),
    Case(
        "the id cannot complete",
        facts(ID, transaction=PREPARED, writes=states(AWAY)),
        C.NO_WRITES,
        {"no_writes": "__transaction_state-0"},
    ),
    Case("the id is at rest, and cannot begin", facts(ID, transaction=x("Empty"), writes=states(AWAY)), C.NO_WRITES),
    Case("the id is new, and cannot begin", facts(ID, absent=True, writes=states(AWAY)), C.NO_WRITES),
    Case(
        "an id of the cluster cannot complete",
        facts(saying("TIMEOUT", ALONE), prepared=(PREPARED,), writes=states(p=AWAY)),
        C.NO_WRITES,
        {"transactional_id": "X", "no_writes": "p-0"},
    ),
    Case("some ids cannot begin", facts(saying("TIMEOUT", ALONE), writes=states(AWAY)), C.NO_WRITES),
    # Markers that will be lost.
    Case(
        "a partition has no leader, and its marker will be dropped",
        facts(ID, transaction=ON_BOTH, writes=states(q=(), **DROPS)),
        C.MARKER_AT_RISK,
        {"markers_at_risk": ("q-0",), "restore_brokers": (2,), "ends_by_ms": ENDS_BY_MS},
    ),
    Case(
        "its marker will be dropped, and it is not known whether the log takes writes",
        facts(ID, transaction=ON_BOTH, writes=in_doubt(states(q=(), **DROPS))),
        C.MARKER_AT_RISK,
        {"markers_at_risk": ("q-0",), "ends_by_ms": None},
    ),
    Case(
        "a partition has no leader, and its marker waits",
        facts(ID, transaction=ON_BOTH, writes=states(q=())),
        C.NO_WRITES,
        {"markers_at_risk": (), "no_writes": "q-0", "ends_by_ms": None},
    ),
    Case(
        "the group's own partition gets its marker, and another one loses it",
        facts(
            GROUP,
            on(judged(view("Ongoing", 3, (P, "q-0"), **TWO_MINUTES_OLD))),
            writes=states(q=(), **DROPS),
        ),
        C.OWNED,
        {"markers_at_risk": ("q-0",), "ends_by_ms": ENDS_BY_MS},
    ),
    Case(
        "a partition has its last leader",
        facts(
            ID,
            transaction=ON_BOTH,
            writes=WriteStates(
                {**states().partitions, ("q", 0): WriteState(PartitionReplicas("q", 0, 1, HERE, AWAY), 1)},
                log_partitions=1,
                **DROPS,
            ),
        ),
        C.OWNED,
        {"markers_at_risk": (), "no_writes": None, "ends_by_ms": ENDS_BY_MS},
    ),
    Case(
        "a listener is missing, and no leader",
        facts(
            ID,
            transaction=ON_BOTH,
            writes=WriteStates(
                {
                    **states().partitions,
                    ("q", 0): WriteState(PartitionReplicas("q", 0, NO_LISTENER_ID, HERE, HERE), 2),
                },
                log_partitions=1,
                **DROPS,
            ),
        ),
        C.OWNED,
        {"markers_at_risk": (), "no_writes": None, "ends_by_ms": ENDS_BY_MS},
    ),
    # No transaction log.
    Case(
        "the log cannot be created",
        facts(ID, absent=True, writes=WriteStates(no_log=NoLog(3, 1))),
        C.NO_TRANSACTION_LOG,
        {"replication_factor": 3, "brokers": 1},
    ),
    Case(
        "no id can begin without the log",
        facts(saying("TIMEOUT", ALONE), writes=WriteStates(no_log=NoLog(3, 2))),
        C.NO_TRANSACTION_LOG,
    ),
    Case(
        "the log is created when it is needed",
        facts(ID, absent=True, writes=WriteStates(no_log=NoLog(3, 3))),
        C.NO_TRANSACTION,
        {"brokers": 3},
    ),
    Case(
        "it is not known whether the log can be created",
        facts(ID, absent=True, writes=WriteStates(no_log=NoLog(None, 1))),
        C.NO_TRANSACTION,
    ),
    Case(
        "a broker that lags may know the log",
        facts(ID, absent=True, failures=(REFUSED,), writes=WriteStates(no_log=NoLog(3, 1))),
        C.NOT_OBSERVED,
    ),
    # Errors.
    Case("its id is at a later epoch", facts(saying("PRODUCER_FENCED"), transaction=x("Empty")), C.FENCED),
    Case(
        "a later instance has a transaction open",
        facts(saying("PRODUCER_FENCED", producer_id=7, producer_epoch=3), transaction=ONGOING),
        C.FENCED,
        {"producer_epoch": 3, "owner_epoch": 4},
    ),
    Case(
        "its id has another producer id",
        facts(saying("INVALID_PRODUCER_EPOCH", producer_id=6, producer_epoch=9), transaction=x("Empty")),
        C.FENCED,
        {"producer_epoch": 9, "owner_epoch": 4},
    ),
    Case(
        "its id is still at its epoch",
        facts(saying("INVALID_PRODUCER_EPOCH", producer_id=7, producer_epoch=4), transaction=ONGOING),
        C.OWNED,
    ),
    Case(
        "its id is at its first epoch",
        facts(saying("PRODUCER_FENCED"), transaction=replace(ONGOING, producer_epoch=0)),
        C.OWNED,
        {"owner_epoch": 0},
    ),
    Case(
        "its id is at the first epoch of another producer id",
        facts(saying("PRODUCER_FENCED", producer_id=6), transaction=replace(ONGOING, producer_epoch=0)),
        C.FENCED,
    ),
    Case(
        "its id is at the first epoch of a later producer id",
        facts(
            saying("PRODUCER_FENCED"),
            transaction=replace(ONGOING, producer_epoch=0),
            logged=tuple(replace(one, producer_id=6) for one in TIMED_OUT),
        ),
        C.FENCED,
    ),
    Case(
        "its transaction timed out",
        facts(saying("PRODUCER_FENCED"), transaction=x("CompleteAbort"), logged=TIMED_OUT),
        C.FENCED,
        {"fenced_by": "timeout", "fenced_at_ms": NOW_MS - MINUTE_MS},
    ),
    Case(
        "another instance took over",
        facts(saying("PRODUCER_FENCED", producer_epoch=3), transaction=x("Empty"), logged=TAKEN_OVER[:3]),
        C.FENCED,
        {"fenced_by": "instance"},
    ),
    Case(
        "instances fight",
        facts(saying("PRODUCER_FENCED", producer_epoch=3), transaction=x("Empty"), logged=TAKEN_OVER),
        C.FENCED,
        {"fenced_by": "instances"},
    ),
    Case(
        "a commit came after the timeout",
        facts(saying("INVALID_TXN_STATE"), transaction=x("CompleteAbort"), logged=TIMED_OUT),
        C.NO_TRANSACTION,
        {"fenced_by": "timeout"},
    ),
    Case("a commit of nothing", facts(saying("INVALID_TXN_STATE"), transaction=x("Empty")), C.NO_TRANSACTION),
    Case(
        "the id expired",
        facts(ID, absent=True, logged=(EXPIRED,)),
        C.NO_TRANSACTION,
        {"expired_at_ms": EXPIRED.updated_ms},
    ),
    Case(
        "the id expired, and left a transaction hanging",
        facts(
            ID,
            on(ORPHAN, base=NO_GROUP),
            absent=True,
            logged=(EXPIRED,),
            earlier_producer_ids=frozenset({7}),
        ),
        C.HANGING,
        {"producer_id": 7, "reason": "orphan"},
    ),
    Case(
        "the id expired, and whether it left one is not known",
        facts(ID, absent=True, logged=(EXPIRED,), failures=(REFUSED,)),
        C.NOT_OBSERVED,
        {"expired_at_ms": EXPIRED.updated_ms},
    ),
    Case(
        "its producer came back after it expired",
        facts(saying("INVALID_PRODUCER_ID_MAPPING"), absent=True, logged=(EXPIRED,)),
        C.NO_TRANSACTION,
        {"expired_at_ms": EXPIRED.updated_ms},
    ),
    Case("no broker was asked about it", facts(saying("INVALID_PRODUCER_ID_MAPPING")), C.CLIENT_ERROR),
    Case("the log may not be read", facts(ID, absent=True, log_failure=REFUSED), C.NO_TRANSACTION),
    Case("it is fenced, whoever it is", facts(saying("PRODUCER_FENCED", ALONE)), C.FENCED, {"transactional_id": None}),
    Case("the id that was fenced is hidden", facts(saying("PRODUCER_FENCED"), failures=(REFUSED,)), C.NOT_OBSERVED),
    Case("the id waits for a marker", facts(saying("CONCURRENT_TRANSACTIONS"), transaction=PREPARED), C.MARKER_OWED),
    Case("the id has begun again", facts(saying("CONCURRENT_TRANSACTIONS"), transaction=ONGOING), C.OWNED),
    Case("the id is done", facts(saying("CONCURRENT_TRANSACTIONS"), transaction=x("Empty")), C.NO_TRANSACTION),
    Case(
        "an id of the cluster is stuck",
        facts(saying("TIMEOUT", ALONE), prepared=(PREPARED, replace(LATE_PREPARED, transactional_id="Y"))),
        C.STUCK_PREPARE,
        {"transactional_id": "Y"},
    ),
    Case("an id is decided", facts(saying("CONCURRENT_TRANSACTIONS", ALONE), prepared=(PREPARED,)), C.MARKER_OWED),
    Case("no id is decided", facts(saying("CONCURRENT_TRANSACTIONS", ALONE)), C.NO_TRANSACTION),
    Case(
        "a coordinator is missing",
        facts(saying("TIMEOUT", ALONE), failures=(failed("the partition has no leader"),)),
        C.NOT_OBSERVED,
    ),
    Case(
        "the timeout is too long",
        facts(saying("INVALID_TRANSACTION_TIMEOUT"), transaction=ONGOING, max_timeout_ms=900_000),
        C.NO_TRANSACTION,
        {"max_timeout_ms": 900_000},
    ),
    Case(
        "the longest timeout is not known",
        facts(saying("INVALID_TRANSACTION_TIMEOUT", ALONE), failures=(REFUSED,)),
        C.NOT_OBSERVED,
    ),
    *(
        Case(one.name, facts(replace(ID, error=one), transaction=ONGOING), C.CLIENT_ERROR, {"transactional_id": "X"})
        for one in CLIENT_ERRORS
        if one.kind is ErrorKind.ITSELF and not replace(ID, error=one).brokers_know_more
    ),
    Case("an error of Kafka that is none of a transaction", facts(saying("VOTER_NOT_FOUND", ALONE)), C.CLIENT_ERROR),
    Case("the same beside an id", facts(saying("VOTER_NOT_FOUND"), on(OWNED), transaction=ONGOING), C.OWNED),
    Case("no error and no id", facts(replace(ALONE, unrecognised=True)), C.UNRECOGNISED),
    Case("the broker forgot the producer", facts(saying("UNKNOWN_PRODUCER_ID", ALONE)), C.NO_TRANSACTION),
    Case("no offsets are pending", facts(saying("UNSTABLE_OFFSET_COMMIT", ALONE)), C.NO_TRANSACTION),
)


def number(cause: Explanation, name: str) -> Any:
    return getattr(cause.numbers, name)


def test_each_symptom_gets_its_cause() -> None:
    with Cases() as cases:
        for case in CASES:
            with cases.case(case.why):
                cause = cause_of(case.read)
                assert cause.code is case.code, cause
                assert {name: number(cause, name) for name in case.numbers} == case.numbers


def test_every_code_and_every_rule_has_a_case() -> None:
    assert {case.code for case in CASES} == {*CauseCode}
    first = [next(n for n, rule in enumerate(RULES) if rule.finds(case.read) is not None) for case in CASES]
    assert {*first} == {*range(len(RULES))}


def test_an_answer_begins_with_one_sentence() -> None:
    with Cases() as cases:
        for case in CASES:
            with cases.case(case.why):
                sentence = cause_of(case.read).sentence
                assert sentence.endswith(".") and ". " not in sentence and "\n" not in sentence


def test_only_a_verdict_of_a_sweep_is_called_hanging() -> None:
    for case in CASES:
        cause = cause_of(case.read)
        if cause.code is CauseCode.HANGING:
            assert cause.numbers.verdict == "hanging"


def test_known_causes_are_listed_if_a_transaction_hangs_or_stays_prepared() -> None:
    lost, late = ["KAFKA-20734"], ["KAFKA-14402 (KIP-890)"]
    stuck = ["KAFKA-19999"]
    known = tuple(
        ExposedTo(cause.id, f"{cause.id} (checked): what it does", cause.explains)
        for cause in KNOWN_CAUSES
        if cause.id in (*lost, *late, *stuck, "long-timeout")
    )
    for open_, why, listed in (
        (HANGING, None, lost + late),
        (HANGING, Cause.UNKNOWN, lost + late),
        (HANGING, Cause.MARKER_MISSING, lost),
        (HANGING, Cause.NEVER_ADDED, late),
        (HANGING, Cause.LATE_WRITE, late),
        (HANGING, Cause.FENCED, []),
        (STUCK, None, stuck),
        (OWNED, None, []),
        (OWED, None, []),
    ):
        causes = {open_.observation.transaction_key: (why, "its reason")} if why is not None else {}
        found = explained_object(cause_of(facts(GROUP, on(open_, causes=causes), exposed_to=known)))
        assert found["known_causes"] == listed
        assert sum("A known cause" in line for line in found["evidence"]) == len(listed)
        assert any("Cause:" in line and "its reason" in line for line in found["evidence"]) == (why is not None)


def test_a_missing_permission_comes_with_the_command_that_grants_it() -> None:
    cause = cause_of(facts(GROUP, replace(CLOSED, failure=REFUSED), principal="User:ops"))
    assert "kafka-acls.sh" in cause.sentence and "User:ops" in cause.sentence


def test_next_commands_reach_the_same_cluster() -> None:
    connection = "--bootstrap-server b:9092 --command-config 'my file'"
    lag = replace(CLOSED, committed=5, ahead=Ahead(True))
    for case, tool in ((on(HANGING), ["txnscan", "force-terminate"]), (lag, ["kafka-consumer-groups.sh"])):
        words = shlex.split(cause_of(facts(GROUP, case, connection=connection)).next[0])
        assert words[: len(tool) + 4] == [*tool, "--bootstrap-server", "b:9092", "--command-config", "my file"]


def test_the_next_commands_do_what_the_guards_of_a_plan_allow() -> None:
    stale, young = view("Empty", 9), {"last_timestamp_ms": NOW_MS, "first_seen_ms": NOW_MS}
    table: tuple[tuple[tuple[CoordinatorView, ...], str | None, dict[str, Any], list[str]], ...] = (
        ((stale,), "not_committed", {}, ["sweep", "plan", "abort"]),
        ((stale,), "not_committed", young, ["sweep", "plan"]),
        ((stale,), "committed", {}, ["sweep", "plan"]),
        ((), "unknown", {}, ["sweep", "plan"]),
        ((stale,), "maybe_committed", {}, ["transaction-log"]),
        ((stale,), "mixed", {}, ["transaction-log"]),
        ((stale,), None, {}, ["check", "sweep"]),
        ((view("Empty", 3),), "unknown", {}, ["force-terminate", "sweep"]),
        ((view("CompleteCommit", 3),), "committed", {}, ["force-terminate", "sweep"]),
    )
    with Cases() as cases:
        for views, outcome, changes, expected in table:
            one = judged(*views, **changes)
            if outcome is not None:
                one = with_outcome(one, known(outcome))
            with cases.case(f"{one.judgement.reason} {outcome}"):
                cause = cause_of(facts(TOPIC, on(one, base=NO_GROUP), connection="--bootstrap-server b:9092"))
                assert [command.split()[1] for command in cause.next] == expected
                given = offered(swept(one))
                assert in_words(given) in cause.evidence
                assert ("plan" in expected) == isinstance(given, Allowed)
                reach = {command.split()[1]: "--bootstrap-server b:9092" in command for command in cause.next}
                assert reach == {name: name != "plan" for name in expected}


def test_a_reader_past_the_last_stable_offset_may_have_been_set_there() -> None:
    """A read_committed group that a tool reset to the high watermark waits, and looks like one that reads on."""
    told = cause_of(facts(GROUP, on(HANGING, high_watermark=110, committed=105)))
    assert told.code is CauseCode.NOT_READ_COMMITTED
    assert HANGING.judgement.explanation in " ".join(told.evidence)


def test_readers_stop_at_the_last_stable_offset_and_not_at_deleted_records() -> None:
    told = cause_of(facts(TOPIC, on(HANGING, base=NO_GROUP, last_stable_offset=103, lso_before=103)))
    numbers = told.numbers
    assert [int(number) for number in re.findall(r"\d+", told.sentence)][-1] == 103
    assert (numbers.start_offset, numbers.last_stable_offset, numbers.blocked_records) == (100, 103, 2)


def test_a_hanging_transaction_is_named_on_all_its_partitions() -> None:
    names = [("p", 0), ("p", 1), *(("q", n) for n in range(5))]
    several = [
        on(
            with_outcome(judged(view("Empty", 9), topic=topic, partition=n), known()),
            base=PartitionFacts(topic, n, 105 + n, 100, 100, committed=100),
        )
        for topic, n in names
    ]
    for symptom in (GROUP, NUMBER):
        for count in (1, 2, 7):
            cause = cause_of(facts(symptom, *several[:count]))
            listed = [one.name for one in several[:count]]
            assert sorted(cause.numbers.partitions) == sorted(listed)
            told = " ".join((cause.sentence, *cause.evidence))
            assert all(name in told for name in listed)
            commands = [one.split()[1] for one in cause.next]
            assert commands == ["sweep", "plan", *(["abort"] if count == 1 else [])]


def test_different_answers_of_the_guards_name_their_partitions() -> None:
    ends, to_fence = with_outcome(judged(view("Empty", 9)), known()), judged(view("Empty", 3), partition=1)
    cause = cause_of(facts(GROUP, on(ends, high_watermark=900), on(to_fence, partition=1)))
    answers = {one.topic_partition: in_words(offered(one)) for one in map(swept, (ends, to_fence))}
    assert all(f"{name}: {said}" in cause.evidence for name, said in answers.items())
    assert [one.split()[1] for one in cause.next] == ["sweep", "plan", "force-terminate"]


def test_a_fenced_producer_that_left_a_transaction_hanging_comes_with_its_end() -> None:
    left = facts(saying("PRODUCER_FENCED"), on(with_outcome(judged(view("Empty", 9)), known())), transaction=x("Empty"))
    assert [one.split()[1] for one in cause_of(left).next] == ["sweep", "plan", "abort", "transaction-log"]


def test_an_answer_about_a_later_transaction_names_the_one_that_hangs_before_it() -> None:
    later = judged(view("Ongoing", 3, (P,), **TWO_MINUTES_OLD), start_offset=103, producer_id=8)
    before = judged(view("Empty", 9))
    for at in (on(before, later), on(later, before)):
        told = owned(facts(ID, at), Subject(at, later))
        (said,) = (one for one in told.evidence if "transactions are open" in one)
        assert "1 hangs" in said and "producer id 7 holds" in said
        assert told.commands[0] == explain_partition(facts(ID, at), at)


def test_an_answer_about_an_id_names_the_command_that_reads_all_partitions() -> None:
    """A partition that its coordinator does not list may hang, and a question about the producer id finds it."""
    for whole in (True, False):
        for found in (facts(ID, transaction=ONGOING), facts(ID, on(OWNED), transaction=ONGOING)):
            cause = cause_of(replace(found, whole_cluster=whole))
            assert cause.code is C.OWNED
            assert any("explain" in one and "--producer-id 7" in one for one in cause.next) is not whole
    assert not any("--producer-id" in one for one in cause_of(facts(GROUP, on(OWNED))).next)


def test_the_lag_on_a_partition_without_a_leader_is_not_known() -> None:
    lost = PartitionFacts("q", 0, committed=4, failure=NO_LEADER)
    cause = cause_of(facts(GROUP, lost, writes=states(q=())))
    assert (cause.code, cause.numbers.lag, cause.numbers.committed_offset) == (C.NO_WRITES, None, 4)
    (said,) = (one for one in cause.evidence if "lag" in one)
    assert "0" not in said


def test_no_answer_names_a_time_if_the_log_may_take_no_writes() -> None:
    open_ = on(judged(view("Ongoing", 3, (P, "q-0"), **TWO_MINUTES_OLD)))
    for asked in (facts(GROUP, open_), facts(ID, transaction=ON_BOTH)):
        for lost in ((), HERE):
            known = states(q=lost, **DROPS)
            for writes, names_it in ((known, True), (in_doubt(known), False)):
                cause = cause_of(replace(asked, writes=writes))
                assert (cause.numbers.ends_by_ms is not None) == names_it
                assert any("UTC" in said for said in (cause.sentence, *cause.evidence)) == names_it


def test_a_live_transaction_can_be_fenced_before_its_timeout() -> None:
    def live(age_ms: int, timeout_ms: int = 15 * MINUTE_MS) -> Judged:
        return judged(view("Ongoing", 3, (P,), start_time_ms=NOW_MS - age_ms, timeout_ms=timeout_ms))

    evidence = replace(live(MINUTE_MS).evidence, joined_commit="'X' committed epoch 3")
    endangers = replace(live(MINUTE_MS), evidence=evidence, judgement=judge(evidence))
    assert endangers.endangers_commit
    table: tuple[tuple[str, Judged, WriteStates, bool], ...] = (
        ("minutes are left", live(MINUTE_MS), states(), True),
        ("its abort would tear a commit", endangers, states(), False),
        ("it ends in a moment", live(14 * MINUTE_MS + 30_000), states(), False),
        ("it is overdue", live(18 * MINUTE_MS), states(), True),
        ("an external coordinator decides", TWO_PHASE, states(), False),
        ("its end cannot be written", live(MINUTE_MS), states(p=AWAY), False),
    )
    with Cases() as cases:
        for name, one, writes, fences in table:
            with cases.case(name):
                cause = cause_of(facts(GROUP, on(one), writes=writes))
                assert any("force-terminate" in command for command in cause.next) == fences
                assert any("initTransactions" in said for said in cause.evidence) == fences
    in_danger = judged(view("Ongoing", 3, (P, "q-0"), **TWO_MINUTES_OLD))
    for writes, fences in ((states(q=()), True), (states(q=(), **DROPS), False)):
        cause = cause_of(facts(GROUP, on(in_danger), writes=writes))
        assert (bool(cause.numbers.markers_at_risk), cause.code) == (not fences, C.OWNED)
        assert any("force-terminate" in command for command in cause.next) == fences
    assert any("force-terminate" in one for one in cause_of(facts(ID, transaction=ONGOING)).next)


def test_a_long_timeout_is_a_known_cause_of_a_live_transaction_alone() -> None:
    known_ = (ExposedTo("long-timeout", "long-timeout", frozenset({LONG_LIVED})),)
    hours = judged(view("Ongoing", 3, (P,), start_time_ms=NOW_MS - MINUTE_MS, timeout_ms=7 * 60 * MINUTE_MS))
    for one, listed in ((hours, ["long-timeout"]), (OWNED, []), (HANGING, []), (STUCK, [])):
        assert [*cause_of(facts(GROUP, on(one), exposed_to=known_)).known_causes] == listed
    asked = x("Ongoing", start_time_ms=NOW_MS - MINUTE_MS, timeout_ms=7 * 60 * MINUTE_MS, age_ms=MINUTE_MS)
    assert cause_of(facts(ID, transaction=asked, exposed_to=known_)).known_causes == ("long-timeout",)


def test_offsets_in_a_hanging_transaction_have_known_causes() -> None:
    late = (ExposedTo("KAFKA-14402", "KAFKA-14402", frozenset({Cause.LATE_WRITE})),)
    for holder, count in ((HANGING, 1), (OWNED, 0)):
        pending = PendingOffsets("g", (P,), on(holder, base=OFFSETS_LOG), holder)
        assert len(cause_of(facts(GROUP, pending=(pending,), exposed_to=late)).known_causes) == count


def test_an_error_is_explained_without_brokers_as_far_as_its_text_shows() -> None:
    with Cases() as cases:
        for one in CLIENT_ERRORS:
            for asked in (replace(ALONE, error=one), replace(ID, error=one)):
                with cases.case(f"{one.name} {asked.kind}"):
                    if asked.needs_no_broker:
                        continue
                    found = explain_symptom(None, asked)
                    assert (found.code, found.error) == (CauseCode.NOT_OBSERVED, one.name)
                    assert found.sentence == f"{one.meaning}." and found.numbers.failure == "NOT_ASKED"
                    (command,) = found.next
                    assert "--bootstrap-server HOST:PORT" in command and one.name in command
                    assert ("--transactional-id X" in command) == (asked.kind is SymptomKind.TRANSACTIONAL_ID)


def test_offsets_of_groups_are_planned_with_their_option() -> None:
    one = with_outcome(judged(view("Empty", 9), topic="__consumer_offsets"), known())
    cause = cause_of(facts(TOPIC, on(one, base=NO_GROUP)))
    assert cause.next[-1].endswith("--include-consumer-offsets")


def test_names_in_commands_are_quoted() -> None:
    name = "a b; $(rm)"
    cause = cause_of(facts(replace(ID, transactional_id=name), transaction=x("Empty", transactional_id=name)))
    assert all("'a b; $(rm)'" in command for command in cause.next)


def test_json_has_every_number_and_times_as_text() -> None:
    found = explained_object(cause_of(facts(GROUP, on(OWNED))))
    assert (found["cause"], found["ends_by"], found["state"]) == ("owned", "2023-11-14T22:26:20.000Z", "Ongoing")
    assert {"sentence", "evidence", "next", "topic", "partition", "lag", "blocked_records", "failure"} <= {*found}
    assert {*explained_object(cause_of(facts(NUMBER)))} == {*found}


def test_control_characters_in_names_are_escaped() -> None:
    odd = x("Empty", transactional_id="a\x1b[31m\n")
    assert all(line.isprintable() for line in explained_lines(explained_object(cause_of(facts(ID, transaction=odd)))))


def test_the_answers(wording: SnapshotAssertion) -> None:
    assert {case.why: explained_lines(explained_object(cause_of(case.read))) for case in CASES} == wording
