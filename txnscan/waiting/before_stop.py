"""What the stop of some brokers would do to transactions: the theory, and the table of rules. Pure.

Theory
======
Brokers stop together: one of a rolling restart, or all of a zone. Nothing else changes. Then of each partition
there remain the **electable** replicas: (in-sync ∪ eligible leader replicas) − the brokers that stop − offline ones. A
broker that is fenced, or whose disk is down, is offline in Metadata. Without eligible leader replicas (KIP-966, only in
DescribeTopicPartitions) the in-sync ones remain. The controller elects one of them, and the partition goes on.

**No replica remains.** What happens depends on the partition, first match wins:
- An unclean election is allowed, and a replica that is not in sync lives: it leads, and the end of the log is lost,
  with markers and records of transactions that were committed there (`end_lost`, KAFKA-20716).
- It is a partition of `__transaction_state`: its ids have no coordinator until a broker is back. No record is lost, and
  their transactions neither begin nor end nor time out (`blocked`).
- A coordinator drops the marker of a partition without a leader (`known_causes.drops_markers`): a transaction that ends
  meanwhile is complete, and hangs there for ever (`torn`). Any broker may be the coordinator once others have stopped,
  so one such release among the brokers suffices, and so does one whose release is not known.
- Otherwise coordinators wait, in Prepare*, until a broker is back (`blocked`).

**A replica remains, but fewer are in sync than `min.insync.replicas` in force** (`writability.takes_writes`): the
partition takes no markers and no records, and a log no decisions, until a broker is back (`blocked`). So it counts if a
replica that stops was not in sync, and was catching up: without it the partition goes on to take no writes.

**Which partitions concern a transaction.** A transaction has data on a partition exactly if the leader's producer state
shows it as open, until its marker. A transaction that has not written there yet, and may, is in its coordinator's list
of partitions first (`add_partition` comes before the write; in transactions v2 the leader itself verifies it). So a
partition concerns the transactions that are open there, and those in whose coordinator's list it is. A producer with a
coordinator epoch has ended a transaction on the partition; if it did so a moment ago, it is at work and will begin the
next one before the broker has stopped. That is no transaction of now, and counts all the same: an operator stops the
writer, and asks again.

An unclean election loses what was committed before, too. So it concerns every partition with a producer that ever ended
a transaction; and if it is not known whether the topic allows one, it is not known whether such a partition is harmed.

**What safe means.** At the time before the first read: no transaction that began before it will be torn or blocked by
the stop, and none that was committed loses records. A transaction that begins later, or takes a new partition later, is
not covered. It rests on
- two images of the metadata with the same leaders, leader epochs and replicas, which are as new as that of any broker
  (`metadata_image.py`): so the answers between them came from leaders, and the same replicas remain. No broker lags:
  one that does may be cut off, and what counts on it has no replica left as soon as it is fenced;
- coordinators that are proven to have listed all their ids (`coordinator_listing.py`);
- the order of the reads: the ids first, then the producers. A transaction that ends in between is listed, and one that
  ended before has left a producer that ended a transaction.

What could not be observed is never safe. Each of these conditions is needed: without it, random histories end in harm
(`tests/search/test_stopping.py`).

Not covered: a broker that fails while others stop; replicas that fall out of sync after the answer; a reassignment that
ends after it, and removes the replicas that would remain; the default of
`unclean.leader.election.enable` on dedicated controllers, which no broker shows; and an unclean election where all
producers have been idle for so long that the leader forgot them (`producer.id.expiration.ms`, a day). And an id that
is in Prepare* at a coordinator that stops, or for a replica of its log: the next one sends all its markers again, also
those that were written, and waits if one of these partitions takes no writes. It tears no commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from txnscan.kafka.failure import Failure
from txnscan.kafka.topology import NO_LEADER_ID, PartitionReplicas
from txnscan.waiting.writability import WriteState

# A producer that ended a transaction so recently is at work. Kafka Streams commits ten times a second, Flink and Kafka
# Connect once in some seconds to a minute.
RECENT_MS = 60_000


class StopVerdict(StrEnum):
    """Whether the brokers may stop."""

    SAFE = "safe"
    UNSAFE = "unsafe"
    NOT_OBSERVED = "not_observed"


class Effect(StrEnum):
    """What a stop does. TORN, END_LOST, BLOCKED: to a partition. MOVED: coordinators and the controller go to other
    brokers. EXPOSED: what is wrong already, without the stop. NO_MAJORITY: to the quorum of controllers.
    """

    TORN = "torn"
    END_LOST = "end_lost"
    BLOCKED = "blocked"
    MOVED = "moved"
    EXPOSED = "exposed"
    NO_MAJORITY = "no_majority"


class What(StrEnum):
    """What a note counts. TRANSACTION_COORDINATORS, GROUP_COORDINATORS: partitions that the brokers lead. IDS: ids in a
    transaction there. CONTROLLER: 1 if a broker is the active controller. UNCLAIMED: open transactions without a
    coordinator on partitions with no other replica. OUT_OF_SYNC: partitions with a replica that is not in sync.
    WITHOUT_LEADER: partitions without a leader that a transaction lists. VOTERS: of the controllers, those that would
    remain and fetch.
    """

    TRANSACTION_COORDINATORS = "transaction_coordinators"
    IDS = "transactional_ids"
    GROUP_COORDINATORS = "group_coordinators"
    CONTROLLER = "controller"
    UNCLAIMED = "unclaimed_transactions"
    OUT_OF_SYNC = "partitions_out_of_sync"
    WITHOUT_LEADER = "partitions_without_leader"
    VOTERS = "voters"


@dataclass(frozen=True, slots=True)
class Concerned:
    """A transaction that a partition concerns. transactional_id, state: None if no coordinator claims it. ends_by_ms:
    when it times out, if that is known. has_data: whether it is open on the partition; else its coordinator lists it.
    """

    producer_id: int
    transactional_id: str | None = None
    state: str | None = None
    ends_by_ms: int | None = None
    has_data: bool = True


@dataclass(frozen=True, slots=True)
class Held:
    """A partition with a replica on a broker that stops.

    before: its replicas now. after: its state when they have stopped (`after_stop`). unclean: whether an unclean
    election is allowed, None if that is not known. transactions: those that it concerns. ended: its producers that have
    ended a transaction, and newest_ended_ms the newest of these times. failure: why that is not known.
    """

    before: PartitionReplicas
    after: WriteState
    unclean: bool | None = None
    transactions: tuple[Concerned, ...] = ()
    ended: int = 0
    newest_ended_ms: int = -1
    failure: Failure | None = None

    @property
    def is_left(self) -> bool:
        """Whether a replica remains that can be elected."""
        return not self.after.replicas.has_no_leader

    @property
    def loses_end(self) -> bool | None:
        """Whether an unclean election follows. None if that is not known."""
        one = self.after.replicas
        return not self.is_left and not {*one.replicas}.issubset(one.offline) and self.unclean


@dataclass(frozen=True, slots=True)
class StopRule:
    """The effect of a stop on a partition if the condition holds. reason: its code. drops: whether a coordinator drops
    markers, None if that is not known.
    """

    effect: Effect
    reason: str
    holds: Callable[[Held, bool | None], bool]


# The first that holds counts. Without any, the stop does nothing to the partition but elect another leader.
RULES = (
    StopRule(Effect.END_LOST, "unclean_election", lambda held, drops: held.loses_end is True),
    StopRule(Effect.BLOCKED, "no_coordinator", lambda held, drops: not held.is_left and held.after.is_transaction_log),
    StopRule(Effect.TORN, "marker_dropped", lambda held, drops: not held.is_left and drops is not False),
    StopRule(Effect.BLOCKED, "marker_waits", lambda held, drops: not held.is_left),
    StopRule(Effect.BLOCKED, "too_few_in_sync", lambda held, drops: held.after.takes_writes is False),
)


def after_stop(one: PartitionReplicas, stopping: Collection[int]) -> PartitionReplicas:
    """The replicas of a partition when these brokers have stopped. Its leader stays if it can; otherwise the controller
    elects the first in-sync replica in the order of the assignment, then an eligible one
    (`PartitionChangeBuilder.electAnyLeader`).
    """
    left = one.electable(stopping)
    in_sync = tuple(broker for broker in one.in_sync if broker in left)
    eligible = tuple(broker for broker in one.eligible if broker in left)
    offline = tuple(broker for broker in one.replicas if broker in stopping or broker in one.offline)
    if not left:
        leader = NO_LEADER_ID
    elif one.leader in left or (one.leader < 0 and not one.has_no_leader):
        leader = one.leader
    else:
        candidates = in_sync or eligible
        leader = next((broker for broker in one.replicas if broker in candidates), candidates[0])
        in_sync = in_sync or (leader,)
    return replace(one, leader=leader, in_sync=in_sync, offline=offline, eligible=eligible)


def effect(held: Held, drops: bool | None) -> StopRule | None:
    """The rule for a partition. drops: see StopRule."""
    return next((rule for rule in RULES if rule.holds(held, drops)), None)


def concerns(held: Held, what: Effect, now_ms: int) -> bool:
    """Whether this effect on a partition concerns transactions, those of now or those that begin in a moment."""
    if held.after.is_transaction_log or held.transactions:
        return True
    if what is Effect.END_LOST:
        return held.ended > 0
    return are_at_work(held.ended, held.newest_ended_ms, now_ms)


def are_at_work(ended: int, newest_ended_ms: int, now_ms: int) -> bool:
    """Whether one of these producers will begin a transaction in a moment. ended, newest_ended_ms: see Held. A time
    after now, by another clock, counts, too.
    """
    return ended > 0 and newest_ended_ms >= now_ms - RECENT_MS


@dataclass(frozen=True, slots=True)
class Harm:
    """A partition to whose transactions the stop does something. groups: of a partition of `__consumer_offsets`."""

    rule: StopRule
    held: Held
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Note:
    """A count beside the partitions. unsafe: whether the brokers must not stop because of it."""

    effect: Effect
    what: What
    count: int
    unsafe: bool = False


@dataclass(frozen=True, slots=True)
class StopEffects:
    """The partitions that a stop harms, the number of others to which the same happens without a transaction, by
    effect, and the partitions of which it is not known.
    """

    harms: tuple[Harm, ...] = ()
    idle: tuple[tuple[Effect, int], ...] = ()
    unknown: tuple[tuple[PartitionReplicas, Failure], ...] = ()


_WORST_FIRST = (Effect.TORN, Effect.END_LOST, Effect.BLOCKED)
_UNKNOWN_MINIMUM = Failure("min.insync.replicas is not known", "LEFT_OUT")
_UNKNOWN_UNCLEAN = Failure("unclean.leader.election.enable is not known", "LEFT_OUT")


def judge(partitions: Iterable[Held], drops: bool | None, now_ms: int) -> StopEffects:
    """What the stop does to each of these partitions. drops: see StopRule."""
    harms: list[Harm] = []
    idle: dict[Effect, int] = {}
    unknown: list[tuple[PartitionReplicas, Failure]] = []
    for held in partitions:
        rule = effect(held, drops)
        if rule is not None and concerns(held, rule.effect, now_ms):
            harms.append(Harm(rule, held))
        elif rule is not None and held.failure is not None:
            unknown.append((held.before, held.failure))
        elif held.loses_end is None and concerns(held, Effect.END_LOST, now_ms):
            unknown.append((held.before, _UNKNOWN_UNCLEAN))
        elif rule is not None:
            idle[rule.effect] = idle.get(rule.effect, 0) + 1
        elif held.after.takes_writes is None and _matters(held, now_ms):
            unknown.append((held.before, held.failure or held.after.failure or _UNKNOWN_MINIMUM))
    worst_first = tuple(sorted(harms, key=lambda harm: _WORST_FIRST.index(harm.rule.effect)))
    return StopEffects(worst_first, tuple(sorted(idle.items())), tuple(unknown))


def _matters(held: Held, now_ms: int) -> bool:
    return held.failure is not None or concerns(held, Effect.BLOCKED, now_ms)


def verdict(judged: StopEffects, notes: Iterable[Note], *, observed: bool) -> StopVerdict:
    """The verdict. Harm that was seen counts, whatever else was not observed. observed: whether all else was."""
    if judged.harms or any(note.unsafe for note in notes):
        return StopVerdict.UNSAFE
    return StopVerdict.SAFE if observed and not judged.unknown else StopVerdict.NOT_OBSERVED
