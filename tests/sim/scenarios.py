"""The searched worlds: small worlds exhaustively up to a bound, larger worlds at random."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.sim.table import Event
from tests.sim.transitions import happen, settle
from tests.sim.world import (
    CHANGES_VERSION,
    DEPOSED_CONTROLLER,
    IDLE_PRODUCERS,
    KEPT_EPOCHS,
    LOST_LOG_END,
    NEVER_ADDED,
    Scenario,
    World,
)
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key

P = ("p", 0)
Q = ("q", 0)
A = "a"
# The only partition of the transaction log, in worlds with a single one.
LOG = (TRANSACTION_STATE_TOPIC, 0)


@dataclass(frozen=True)
class Small:
    """A world to search exhaustively.

    opening: the first events; after each event, replicas catch up and appends are acknowledged (`rest`). bounds: pairs
    of the number of events before the sweep, and the number between its answers. brief: the pair for a search of a few
    seconds.
    """

    scenario: Scenario
    opening: tuple[Event, ...]
    bounds: tuple[tuple[int, int], ...]
    brief: tuple[int, int]


def _begun(version: int, coordinator: int = 1) -> tuple[Event, ...]:
    """A producer that has added its partition, and a record in flight."""
    return (
        ("InitProducerId", (coordinator, A)),
        ("AddPartitionsToTxn", (coordinator, A, P)),
        ("send data", (A, P, version)),
    )


def begun_and_written(version: int, coordinator: int = 1) -> tuple[Event, ...]:
    """An open transaction."""
    return (*_begun(version, coordinator), ("append data", (0,)))


def _aborted(coordinator: int = 1) -> tuple[Event, ...]:
    """Transactions v1: aborted while a record is in flight. The record will hang if it arrives after the marker."""
    return (
        *_begun(1, coordinator),
        ("EndTxn", (coordinator, A, False, 1)),
        ("write marker", (coordinator, A, P)),
        ("marker acknowledged", (coordinator, A, P)),
        ("write completion", (coordinator, A)),
    )


def ended_and_late(coordinator: int = 1) -> tuple[Event, ...]:
    """The same, and the record has arrived."""
    return (*_aborted(coordinator), ("append data", (0,)))


def heard(*broker_ids: int) -> tuple[Event, ...]:
    """These brokers learn the controller's decisions."""
    steps = ("publish metadata", "apply to replicas", "elect coordinators")
    return tuple((step, (b,)) for step in steps for b in broker_ids)


# Broker 2 stops, and broker 1 learns it.
DOWN: tuple[Event, ...] = (("kill broker", (2,)), ("fence broker", (2,)), *heard(1))
UP: tuple[Event, ...] = (("start broker", (2,)), ("unfence broker", (2,)), *heard(1, 2))


def down_again(version: int) -> tuple[Event, ...]:
    """A transaction is committed while broker 2, which has the only replica of its partition, is down. The next
    transaction of the same producer has also written to that partition, and the broker is down again.
    """
    return (
        *(*begun_and_written(version), *DOWN),
        *(("EndTxn", (1, A, True, version)), ("skip marker", (1, A, P)), ("write completion", (1, A))),
        *(*UP, ("AddPartitionsToTxn", (1, A, P)), ("send data", (A, P, version)), ("append data", (0,)), *DOWN),
    )


# The leader of the partition is cut off from the controller, and another broker leads.
DEPOSED: tuple[Event, ...] = (("cut broker off", (1,)), ("fence broker", (1,)), *heard(2, 3))


def away(version: int) -> tuple[Event, ...]:
    """A transaction is committed while broker 2, which has the only replica of its partition, is down: its marker is
    skipped.
    """
    return (
        *(*begun_and_written(version), *DOWN),
        *(("EndTxn", (1, A, True, version)), ("skip marker", (1, A, P)), ("write completion", (1, A))),
        ("InitProducerId", (1, A)),
    )


def lost_commit(version: int, *followers: int) -> tuple[Event, ...]:
    """A transaction of three records is committed while its partition has no leader, and its marker is skipped. Broker
    2 and the followers are down.
    """
    written: tuple[Event, ...] = (("send data", (A, P, version)), ("append data", (0,)))
    gone = tuple((name, (b,)) for b in (*followers, 2) for name in ("kill broker", "fence broker"))
    return (
        *(("InitProducerId", (1, A)), ("AddPartitionsToTxn", (1, A, P)), *written * 3, *gone, *heard(1)),
        *(("EndTxn", (1, A, True, version)), ("skip marker", (1, A, P)), ("write completion", (1, A))),
    )


def _second_commit(version: int, between: tuple[Event, ...] = ()) -> tuple[Event, ...]:
    """A transaction has a marker on its partition. The next one commits while the partition has no leader."""
    return (
        *(*begun_and_written(version), ("EndTxn", (1, A, True, version)), ("write marker", (1, A, P))),
        *(("marker acknowledged", (1, A, P)), ("write completion", (1, A)), *between),
        *(("AddPartitionsToTxn", (1, A, P)), ("send data", (A, P, version)), ("append data", (0,)), *DOWN),
        *(("EndTxn", (1, A, True, version)), ("skip marker", (1, A, P)), ("write completion", (1, A)), *UP),
        *(("kill broker", (1,)), ("fence broker", (1,)), *heard(2)),
    )


def _unflushed(version: int) -> tuple[Event, ...]:
    """The same, and the only replica of the transaction log loses the commit."""
    return (
        *(*_second_commit(version), ("lose log end", (LOG, 1, 4)), ("start broker", (1,)), ("unfence broker", (1,))),
        *(*heard(1, 2), ("load", (1, 0))),
    )


def _unfenced(version: int) -> tuple[Event, ...]:
    """A commit has no marker on its partition. The broker of the only replica of the transaction log crashes, loses the
    commit, and registers again before it is fenced.
    """
    return (
        *(*away(version)[:-1], *UP, ("kill broker", (1,)), ("lose log end", (LOG, 1, 1))),
        *(("start broker before it is fenced", (1,)), ("unfence broker", (1,)), *heard(1, 2), ("load", (1, 0))),
    )


def _unclean(version: int) -> tuple[Event, ...]:
    """The same, and a replica that was not in sync, and lacks the commit, leads."""
    return (
        *_second_commit(version, (("kill broker", (3,)), ("fence broker", (3,)), *heard(1, 2))),
        *(("start broker", (3,)), ("unfence broker", (3,)), ("unclean election of a coordinator", (LOG, 3))),
        *(*heard(2, 3), ("load", (3, 0)), ("start broker", (1,)), ("unfence broker", (1,)), *heard(1, 2, 3)),
    )


def torn_commit(version: int, *followers: int) -> tuple[Event, ...]:
    """The same, and broker 2 is back, without the followers, and leads the partition. The producer is at its next
    epoch.
    """
    return (*lost_commit(version, *followers), ("InitProducerId", (1, A)), *UP)


# Transactions v1: the same, and later the producer writes to the partition again, without adding it.
MORE_WRITTEN: tuple[Event, ...] = (
    *(*lost_commit(1), *UP, ("time passes", ()), ("send data without adding", (A, P)), ("append data", (0,))),
)


def _upgraded(commit: bool) -> tuple[Event, ...]:
    """A transaction of v1 ends while broker 2, which has the only replica of its partition, is down. The producer
    continues under v2, at the same epoch.
    """
    return (
        *(*begun_and_written(1), *DOWN, ("EndTxn", (1, A, commit, 1)), ("skip marker", (1, A, P))),
        *(("write completion", (1, A)), *UP, ("change transactions version", (A,))),
    )


def _whole(key: Key, version: int, commit: bool) -> tuple[Event, ...]:
    """A complete transaction on a partition of broker 1."""
    return (
        *(("AddPartitionsToTxn", (1, A, key)), ("send data", (A, key, version)), ("append data", (0,))),
        *(("EndTxn", (1, A, commit, version)), ("write marker", (1, A, key)), ("marker acknowledged", (1, A, key))),
        ("write completion", (1, A)),
    )


# A transaction of v1 between two of v2 is committed while its partition has no leader. Broker 3 missed its records in
# the transaction log, and will not get them: the log was compacted.
HIDDEN_BETWEEN: tuple[Event, ...] = (
    *(("InitProducerId", (1, A)), *_whole(Q, 2, False), ("change transactions version", (A,))),
    *(("kill broker", (3,)), ("fence broker", (3,)), *heard(1, 2)),
    *(("AddPartitionsToTxn", (1, A, P)), ("send data", (A, P, 1)), ("append data", (0,)), *DOWN),
    *(("EndTxn", (1, A, True, 1)), ("skip marker", (1, A, P)), ("write completion", (1, A))),
    *(*UP, ("change transactions version", (A,)), ("AddPartitionsToTxn", (1, A, Q)), ("clean log", (LOG, 1, 8))),
    *(("start broker", (3,)), ("unfence broker", (3,)), *heard(1, 2, 3)),
)
# Broker 3 is back, gets an empty new replica of p-0, and leads it.
NEW_REPLICA: tuple[Event, ...] = (
    *(("start broker", (3,)), ("unfence broker", (3,)), ("replace replica", (P, 3)), *heard(1, 2, 3)),
    *(("expand isr", (P, 3)), *heard(1, 2, 3), ("move leader", (P, 3)), *heard(1, 2, 3)),
)
# An open transaction whose coordinator's log takes no writes: broker 2 is down, and two replicas must be in sync.
UNWRITABLE: tuple[Event, ...] = (*begun_and_written(1), ("kill broker", (2,)), ("fence broker", (2,)), *heard(1))
# Broker 2 is back, and in sync again.
BACK: tuple[Event, ...] = (
    *(("start broker", (2,)), ("unfence broker", (2,)), *heard(1, 2)),
    *(("expand isr", (LOG, 2)), *heard(1, 2)),
)
# The same after the log's leader was compacted: broker 2 copies the remaining records after its own.
COMPACTED_MEANWHILE: tuple[Event, ...] = (("clean log", (LOG, 1, 4)), *BACK)
# Broker 2 now leads the log, and all brokers know it; it still has to load the log.
MOVED: tuple[Event, ...] = (("move leader", (LOG, 2)), *heard(1, 2))
# The fence of a new instance is not written, and another coordinator loads the log.
_FALLS_BACK: tuple[Event, ...] = (("InitProducerId", (1, A)), *BACK, *MOVED)

ONE_BROKER = Scenario("one broker", topics=((P, (1,)),), coordinators=((1,),))
MOVING_PARTITION = Scenario(
    "a partition that moves",
    topics=((P, (1, 2)),),
    coordinators=((3,),),
    versions=(1,),
    faults=frozenset({"leader move", "cut"}),
)
MOVING_COORDINATOR = Scenario(
    "a coordinator that moves",
    topics=((P, (1,)),),
    coordinators=((1, 2),),
    versions=(1,),
    faults=frozenset({"leader move", "cut"}),
)
CRASHES = Scenario(
    "brokers that crash and hang",
    topics=((P, (1, 2)),),
    coordinators=((1, 2),),
    versions=(2,),
    faults=frozenset({"kill", "pause"}),
)
LATE_DATA = Scenario("late data", topics=((P, (1,)), (Q, (1,))), coordinators=((1,),), versions=(1,))
VERIFIED = replace(LATE_DATA, name="late data, verified", verify=True, versions=(2,))
LEADERLESS = Scenario(
    "a partition offline while its transaction ends",
    topics=((P, (2,)),),
    coordinators=((1,),),
    versions=(2,),
    faults=frozenset({"kill"}),
)
COMPACTED = Scenario(
    "a replica of the transaction log that was away",
    topics=((P, (2,)),),
    coordinators=((1, 2),),
    versions=(2,),
    faults=frozenset({"compaction", "leader move"}),
)
COMPACTED_V1 = replace(COMPACTED, name=f"{COMPACTED.name}, transactions v1", versions=(1,))
TIMED_OUT = Scenario(
    "appends that time out",
    topics=((P, (1,)),),
    coordinators=((1, 2),),
    versions=(1,),
    faults=frozenset({"append timeout", "leader move"}),
)
DELETED = Scenario(
    "a log whose beginning is deleted",
    topics=((P, (2, 3)),),
    coordinators=((1,),),
    versions=(2,),
    faults=frozenset({"deleted records", "reassignment", "leader move", "kill", "lost snapshots"}),
)
DELETED_V1 = replace(DELETED, name=f"{DELETED.name}, transactions v1", versions=(1,))
PARTIAL_LOAD = replace(
    TIMED_OUT, name="a coordinator that loads a part", faults=frozenset({"partial load", "leader move"})
)
CHANGED = Scenario(
    "a client that changes between v1 and v2",
    topics=((P, (2,)), (Q, (1,))),
    coordinators=((1,),),
    faults=frozenset({CHANGES_VERSION}),
)
# Only the dates of records that no leader adds distinguish them from an earlier commit.
CHANGED_LATER = replace(CHANGED, name=f"{CHANGED.name}, with dates", faults=CHANGED.faults | {NEVER_ADDED})
UNWRITTEN = replace(TIMED_OUT, name="a fence that is not written", min_isr=2, faults=frozenset({"kill", "leader move"}))
HIDDEN = replace(ONE_BROKER, name="a hidden id", hidden=frozenset({A}))

# A coordinator is cut off, another one ends its transactions, and late data hangs.
_OUTLIVED: tuple[Event, ...] = (
    *_begun(1),
    *(("cut broker off", (1,)), ("fence broker", (1,)), *heard(2, 3), ("load", (2, 0))),
    *(("EndTxn", (2, A, False, 1)), ("write marker", (2, A, P)), ("marker acknowledged", (2, A, P))),
    *(("write completion", (2, A)), ("append data", (0,))),
)
ZOMBIE = replace(MOVING_COORDINATOR, name="a coordinator that was cut off", topics=((P, (3,)),))


def _watched(scenario: Scenario) -> Scenario:
    """The same, with every partition read with proof."""
    watched = frozenset(key for key, _ in scenario.topics)
    return replace(scenario, name=f"{scenario.name}, watched", watched=watched)


# Aborted, with unsent markers and a record in flight.
LATE_IN_PREPARE = Small(
    MOVING_COORDINATOR, (*_begun(1), ("EndTxn", (1, A, False, 1))), ((6, 0), (5, 1), (3, 2)), brief=(4, 0)
)
_READY: tuple[Event, ...] = (("InitProducerId", (1, A)),)
SMALL = (
    Small(ONE_BROKER, _READY, ((14, 0), (12, 1), (10, 2), (6, 4)), brief=(8, 1)),
    Small(_watched(ONE_BROKER), _READY, ((12, 0), (10, 1), (6, 3)), brief=(7, 1)),
    Small(HIDDEN, _READY, ((12, 0), (9, 2)), brief=(8, 0)),
    Small(LATE_DATA, _begun(1), ((12, 0), (10, 1), (8, 2)), brief=(6, 1)),
    Small(_watched(LATE_DATA), _begun(1), ((10, 0), (7, 1)), brief=(5, 1)),
    Small(VERIFIED, _begun(2), ((12, 0), (10, 1), (8, 2)), brief=(6, 1)),
    Small(MOVING_PARTITION, begun_and_written(1, 3), ((6, 0), (4, 1), (2, 2)), brief=(2, 1)),
    Small(MOVING_PARTITION, ended_and_late(3), ((6, 0), (3, 1), (1, 2)), brief=(2, 1)),
    Small(MOVING_COORDINATOR, begun_and_written(1), ((7, 0), (5, 1), (3, 2)), brief=(3, 1)),
    Small(_watched(MOVING_COORDINATOR), begun_and_written(1), ((7, 0), (4, 1)), brief=(3, 0)),
    Small(ZOMBIE, _OUTLIVED, ((6, 0), (3, 1)), brief=(2, 1)),
    Small(MOVING_COORDINATOR, ended_and_late(), ((7, 0), (5, 1), (3, 2)), brief=(3, 1)),
    LATE_IN_PREPARE,
    Small(LEADERLESS, begun_and_written(2), ((10, 0), (6, 1), (2, 2)), brief=(3, 1)),
    Small(CRASHES, begun_and_written(2), ((8, 0), (4, 1), (1, 2)), brief=(2, 1)),
    Small(TIMED_OUT, begun_and_written(1), ((8, 0), (4, 1)), brief=(4, 0)),
    Small(TIMED_OUT, ended_and_late(), ((8, 0), (4, 1)), brief=(4, 0)),
    Small(
        replace(TIMED_OUT, name=f"{TIMED_OUT.name}, transactions v2", versions=(2,)),
        begun_and_written(2),
        ((8, 0),),
        brief=(4, 0),
    ),
    Small(COMPACTED, (*away(2), *COMPACTED_MEANWHILE, *MOVED), ((7, 0), (4, 1)), brief=(3, 0)),
    Small(COMPACTED, away(2), ((6, 0),), brief=(3, 0)),
    Small(COMPACTED_V1, (*away(1), *COMPACTED_MEANWHILE, *MOVED), ((7, 0), (4, 1)), brief=(3, 0)),
    Small(COMPACTED_V1, away(1), ((6, 0),), brief=(3, 0)),
    Small(DELETED, torn_commit(2, 3), ((4, 0), (2, 1)), brief=(2, 0)),
    Small(DELETED_V1, torn_commit(1, 3), ((4, 0), (2, 1)), brief=(2, 0)),
    Small(PARTIAL_LOAD, (*begun_and_written(1), *MOVED), ((6, 0), (4, 1)), brief=(4, 0)),
    Small(PARTIAL_LOAD, (*ended_and_late(), *MOVED), ((6, 0), (4, 1)), brief=(4, 0)),
    Small(
        replace(PARTIAL_LOAD, name=f"{PARTIAL_LOAD.name}, transactions v2", versions=(2,)),
        (*begun_and_written(2), *MOVED),
        ((6, 0), (3, 1)),
        brief=(4, 0),
    ),
    Small(CHANGED, _upgraded(False), ((7, 0), (5, 1)), brief=(4, 0)),
    Small(CHANGED_LATER, _upgraded(True), ((5, 0), (3, 1)), brief=(3, 0)),
    Small(UNWRITTEN, UNWRITABLE, ((8, 0), (4, 1)), brief=(3, 1)),
    Small(UNWRITTEN, (*UNWRITABLE, *_FALLS_BACK), ((7, 0), (3, 1)), brief=(4, 0)),
)
# For each obligation a world that needs it: with the obligation no verdict is wrong within the bound; without it, one
# is.
ARENAS = {
    # A late record hangs on the present leader. A broker that was cut off still believes that it leads the partition.
    "plan": Small(
        replace(MOVING_PARTITION, name="a leader that was cut off", topics=((P, (2, 1)),)),
        (*_aborted(3), ("move leader", (P, 1)), *heard(1, 2, 3), *DEPOSED),
        ((2, 0),),
        brief=(1, 0),
    ),
    "leader": Small(MOVING_PARTITION, (*begun_and_written(1, 3), *DEPOSED), ((6, 0),), brief=(6, 0)),
    "newest": Small(MOVING_PARTITION, (*begun_and_written(1, 3), *DEPOSED), ((6, 0),), brief=(6, 0)),
    "high-watermark": Small(MOVING_PARTITION, _aborted(3), ((3, 0),), brief=(3, 0)),
    "coverage": Small(MOVING_COORDINATOR, begun_and_written(1), ((3, 1),), brief=(3, 1)),
    # The first coordinator has fetched the records of its successor, but its coordinator has not heard of it yet.
    "elected": Small(
        replace(MOVING_COORDINATOR, name="a coordinator that is elected again", topics=((P, (3,)),)),
        (
            *(("move leader", (LOG, 2)), ("publish metadata", (1,)), ("apply to replicas", (1,)), *heard(2, 3)),
            *(("load", (2, 0)), *begun_and_written(1, 2), ("move leader", (LOG, 1)), *heard(2, 3)),
        ),
        ((2, 0),),
        brief=(1, 0),
    ),
    # A broker and the deposed leader of the controllers know nothing of the transaction. The broker that coordinates it
    # does not answer.
    "quorum": Small(
        replace(
            MOVING_COORDINATOR,
            name="a deposed leader of the controllers",
            faults=frozenset({"cut", "pause", DEPOSED_CONTROLLER}),
        ),
        (
            *(("depose controller", (1,)), ("fence broker", (1,)), *heard(2), ("load", (2, 0))),
            *(*begun_and_written(1, 2), ("pause broker", (2,))),
        ),
        ((2, 1),),
        brief=(1, 0),
    ),
    "visibility": Small(HIDDEN, _READY, ((4, 0),), brief=(4, 0)),
    "second-read": Small(
        _watched(ONE_BROKER), (*begun_and_written(1), ("EndTxn", (1, A, True, 1))), ((0, 4),), brief=(0, 4)
    ),
    "order": Small(ONE_BROKER, _READY, ((0, 4),), brief=(0, 4)),
    "prepare": LATE_IN_PREPARE,
    "log": Small(PARTIAL_LOAD, (*begun_and_written(1), *MOVED), ((2, 0),), brief=(2, 0)),
    # A coordinator that was cut off still claims transactions that another one has ended, and that hang since.
    "claimant": Small(ZOMBIE, _OUTLIVED, ((2, 0),), brief=(2, 0)),
    # A late record on one partition, while the next transaction of its producer is on another.
    "claim": Small(LATE_DATA, (*_aborted(), ("AddPartitionsToTxn", (1, A, Q))), ((2, 0),), brief=(2, 0)),
}

_ALL_FAULTS = frozenset({"kill", "pause", "cut", "leader move", "lost request"})
# By name; the first is the default.
_WIDE = (
    Scenario(
        "two-brokers",
        topics=((P, (1, 2)), (Q, (2, 1))),
        coordinators=((1, 2),),
        faults=_ALL_FAULTS,
    ),
    Scenario(
        "three-brokers",
        topics=((P, (1, 2, 3)), (Q, (3,))),
        coordinators=((1, 2, 3), (3, 1, 2)),
        producers=(A, "b"),
        min_isr=2,
        faults=_ALL_FAULTS,
    ),
    Scenario(
        "v1-unverified",
        topics=((P, (1, 2)), (Q, (2,))),
        coordinators=((1,), (2,)),
        producers=(A, "b"),
        versions=(1,),
        skips_leaderless=False,
        reloads=True,
        last_epoch=2,
        faults=_ALL_FAULTS,
    ),
    Scenario(
        "v2-epochs",
        topics=((P, (1, 2)), (Q, (2, 3))),
        coordinators=((1, 2), (2, 3)),
        producers=(A, "b"),
        verify=True,
        versions=(2,),
        last_epoch=2,
        faults=_ALL_FAULTS,
    ),
    Scenario(
        "hidden-id",
        topics=((P, (1, 2)),),
        coordinators=((1, 2),),
        producers=(A, "b"),
        hidden=frozenset({"b"}),
        faults=_ALL_FAULTS,
    ),
    Scenario(
        "unclean-elections",
        topics=((P, (1, 2)),),
        coordinators=((3,),),
        producers=(A, "b"),
        faults=_ALL_FAULTS | {"unclean election"},
    ),
    Scenario(
        "unacknowledged-appends",
        topics=((P, (2,)), (Q, (1,))),
        coordinators=((1, 2),),
        faults=_ALL_FAULTS | {"append timeout"},
    ),
    Scenario(
        "unwritten-fences",
        topics=((P, (1, 2)), (Q, (3,))),
        coordinators=((1, 2), (3, 1)),
        producers=(A, "b"),
        min_isr=2,
        versions=(1,),
        faults=_ALL_FAULTS | {"append timeout"},
    ),
    *(
        Scenario(
            f"holes-in-the-log-v{version}",
            topics=((P, (2,)), (Q, (1,))),
            coordinators=((1, 2),),
            versions=(version,),
            faults=_ALL_FAULTS | {"compaction", "append timeout"},
        )
        for version in (1, 2)
    ),
    *(
        Scenario(
            f"lost-markers-v{version}",
            topics=((P, (2,)), (Q, (1,))),
            coordinators=((1,),),
            versions=(version,),
            last_epoch=3,
            faults=_ALL_FAULTS | {"compaction"},
        )
        for version in (1, 2)
    ),
    *(
        Scenario(
            f"{name}-v{version}",
            topics=((P, replicas), (Q, (1,))),
            coordinators=((1,),),
            versions=(version,),
            faults=DELETED.faults | {"compaction", "lost request"},
        )
        for name, replicas in (("deleted-records", (2,)), ("new-replicas", (2, 3)))
        for version in (1, 2)
    ),
    *(
        Scenario(
            f"never-added-{name}",
            topics=((P, (2,)), (Q, (1,))),
            coordinators=((1,),),
            versions=versions,
            verify=verify,
            faults=frozenset({"kill", "leader move", "lost request", "compaction", NEVER_ADDED, *more}),
        )
        for name, versions, verify, more in (
            ("v1", (1,), False, ()),
            ("verified", (1,), True, ()),
            ("v1-v2", (1, 2), False, ()),
            ("deleted", (1,), False, ("deleted records", "lost snapshots")),
        )
    ),
    *(
        Scenario(
            name,
            topics=((P, (2,)), (Q, (1,))),
            coordinators=((1, 3),),
            versions=versions,
            faults=frozenset({"kill", "leader move", "lost request", "compaction", CHANGES_VERSION, *more}),
        )
        for name, versions, more in (
            ("upgraded-abort", (1, 2), ()),
            ("upgraded-commit", (1, 2), (NEVER_ADDED,)),
            ("downgraded", (2, 1), ()),
        )
    ),
    # Brokers that do not answer, and leaders of the controllers that were deposed.
    Scenario(
        "deposed-controllers",
        topics=((P, (1, 2)), (Q, (3,))),
        coordinators=((1, 2),),
        versions=(1, 2),
        faults=frozenset({"kill", "pause", "cut", "leader move", "lost request", DEPOSED_CONTROLLER}),
    ),
    Scenario(
        "two-leaders",
        topics=((P, (1, 2)), (Q, (2, 1))),
        coordinators=((3,),),
        producers=(A, "b"),
        versions=(1,),
        faults=frozenset({"cut", "pause", "leader move", "lost request", "two leaders"}),
    ),
    *(
        Scenario(
            f"lost-commits-partly-loaded-v{version}",
            topics=((P, (2,)), (Q, (1,))),
            coordinators=((1, 2),),
            versions=(version,),
            faults=frozenset({"kill", "leader move", "partial load", "compaction"}),
        )
        for version in (1, 2)
    ),
    *(
        Scenario(
            f"lost-log-ends-{name}-v{version}",
            topics=((P, (2,)), (Q, (1,))),
            coordinators=(replicas,),
            versions=(version,),
            faults=frozenset({"kill", "leader move", "lost request", "compaction", LOST_LOG_END, *more}),
        )
        for name, replicas, more in (("unflushed", (1,), ()), ("unclean", (1, 3), ("cut", "append timeout")))
        for version in (1, 2)
    ),
    *(
        Scenario(
            f"idle-producers-v{version}",
            topics=((P, (1, 2)), (Q, (2,))),
            coordinators=((1,),),
            producers=(A, "b"),
            versions=(version,),
            faults=_ALL_FAULTS | {IDLE_PRODUCERS, "compaction", "deleted records", "lost snapshots"},
        )
        for version in (1, 2)
    ),
    *(
        Scenario(
            f"moved-disks-v{version}",
            topics=((P, (2,)), (Q, (1,))),
            coordinators=((1,),),
            versions=(version,),
            faults=frozenset({"kill", "lost request", "compaction", "deleted records", "disk move", IDLE_PRODUCERS}),
        )
        for version in (1, 2)
    ),
    Scenario(
        "partial-loads",
        topics=((P, (1, 2)), (Q, (2,))),
        coordinators=((1, 2),),
        producers=(A, "b"),
        faults=_ALL_FAULTS | {"partial load"},
    ),
)
WIDE = {scenario.name: scenario for scenario in _WIDE}
# The first events of worlds whose purpose chance would hardly ever reach.
OPENINGS: dict[str, tuple[Event, ...]] = {
    **{f"holes-in-the-log-v{version}": away(version) for version in (1, 2)},
    **{f"lost-markers-v{version}": down_again(version) for version in (1, 2)},
    **{f"deleted-records-v{version}": torn_commit(version) for version in (1, 2)},
    **{f"lost-commits-partly-loaded-v{version}": (*away(version), *BACK) for version in (1, 2)},
    **{f"lost-log-ends-unflushed-v{version}": _unflushed(version) for version in (1, 2)},
    **{f"moved-disks-v{version}": torn_commit(version) for version in (1, 2)},
    **{f"lost-log-ends-unclean-v{version}": _unclean(version) for version in (1, 2)},
    "never-added-v1": (*lost_commit(1), *UP),
    "never-added-verified": MORE_WRITTEN,
    "never-added-deleted": begun_and_written(1),
    "never-added-v1-v2": (
        *(*MORE_WRITTEN, ("InitProducerId", (1, A)), ("AddPartitionsToTxn", (1, A, P))),
        *(("send data", (A, P, 2)), ("append data", (0,)), *DOWN),
    ),
    "upgraded-abort": _upgraded(False),
    "upgraded-commit": _upgraded(True),
    "downgraded": HIDDEN_BETWEEN,
    **{f"new-replicas-v{version}": torn_commit(version, 3) for version in (1, 2)},
}
# Outside what is proven: leader epochs that stay. By version; with the same events before.
KEPT = {
    version: Scenario(
        f"kept-epochs-v{version}",
        topics=((P, (2,)), (Q, (1,))),
        coordinators=((1,),),
        versions=(version,),
        faults=frozenset({"kill", "lost request", "compaction", LOST_LOG_END, KEPT_EPOCHS}),
    )
    for version in (1, 2)
}
OPENINGS |= {KEPT[version].name: _unfenced(version) for version in KEPT}
# These transitions happen without faults and without requests of clients.
_OF_ITSELF = ("fetch", "complete transition")


def opened(scenario: Scenario, opening: tuple[Event, ...] = ()) -> World:
    """The world after these events, at rest after each."""
    world = World(scenario)
    for event in opening:
        happen(world, event)
        rest(world)
    return world


def rest(world: World) -> None:
    """Lets replicas catch up, and appends be acknowledged."""
    settle(world, _OF_ITSELF)
