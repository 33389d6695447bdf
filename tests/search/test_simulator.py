"""The simulator's own behaviour: a test for each fact about Kafka's transactions that the proof needs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from tests.cases import Cases
from tests.sim.answers import answer
from tests.sim.coordinator import VALID_PREVIOUS_STATES, InvalidTransition, prepare
from tests.sim.history import Simulation, sweep
from tests.sim.records import (
    Data,
    Held,
    Log,
    Produce,
    TransactionLogRecord,
    TransactionMetadata,
    common_prefix,
    producer_state,
    still_open,
)
from tests.sim.scenarios import (
    BACK,
    COMPACTED,
    COMPACTED_MEANWHILE,
    CRASHES,
    DELETED,
    LATE_DATA,
    LEADERLESS,
    LOG,
    MORE_WRITTEN,
    MOVING_COORDINATOR,
    NEW_REPLICA,
    PARTIAL_LOAD,
    TIMED_OUT,
    UNWRITABLE,
    UNWRITTEN,
    VERIFIED,
    WIDE,
    A,
    P,
    away,
    heard,
    opened,
    rest,
    torn_commit,
)
from tests.sim.stepping import ADD, DELETED_FIRST, END_MARKERS, INIT, end, go_on, send, shown_open
from tests.sim.table import Event
from tests.sim.transitions import TABLES, TRANSITIONS, can_happen, happen, possible
from tests.sim.truth import hanging, settled
from tests.sim.wander import at_random
from tests.sim.world import LOST_LOG_END, NEVER_ADDED, World
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.failure import Failure
from txnscan.kafka.protocol.fetch import fetch
from txnscan.kafka.protocol.offset_for_leader_epoch import epoch_ends
from txnscan.kafka.topology import Key, Partition
from txnscan.reads.rows import LogBatch
from txnscan.txnlog.decode import decode
from txnscan.txnlog.rows import LogRow
from txnscan.txnlog.scan import read_log

STATE = ("__transaction_state", 0)


def owner(world: World, broker_id: int = 1) -> TransactionMetadata:
    return world.held[broker_id, A].metadata


def test_every_transition_cites_its_model_in_a_sentence() -> None:
    for name, transition in TRANSITIONS.items():
        assert len(transition.models) > 20 and transition.models.endswith("."), name
    assert sum(len(table) for table in TABLES.values()) == len(TRANSITIONS), "two transitions have one name"


def test_a_partition_is_in_the_transaction_before_its_data_can_land() -> None:
    world = opened(VERIFIED, (INIT, ADD, *send(2)))
    assert owner(world) == (7, 0, "Ongoing", frozenset({P}), 2, -1, (A, 1))
    assert still_open(world.logs[P, 1])[7].start_offset == 0


def test_under_transactions_v2_an_end_raises_the_epoch_already_in_prepare() -> None:
    world = opened(VERIFIED, (INIT, ADD, *send(2), end(2)))
    assert (owner(world).state, owner(world).producer_epoch) == ("PrepareCommit", 1)
    assert still_open(world.logs[P, 1])[7].producer_epoch == 0
    go_on(world, *END_MARKERS)
    assert (owner(world).state, owner(world).producer_epoch) == ("CompleteCommit", 1)


def test_under_transactions_v1_an_end_keeps_the_epoch() -> None:
    world = opened(LATE_DATA, (INIT, ADD, *send(1), end(1), *END_MARKERS))
    assert (owner(world).state, owner(world).producer_epoch) == ("CompleteCommit", 0)
    assert still_open(world.logs[P, 1]) == {}


def test_a_new_instance_fences_the_former_one_and_aborts_its_transaction() -> None:
    world = opened(LATE_DATA, (INIT, ADD, *send(1), INIT))
    assert (owner(world).state, owner(world).producer_epoch) == ("PrepareAbort", 1)
    go_on(world, *END_MARKERS, INIT)
    assert (owner(world).state, owner(world).producer_epoch) == ("Empty", 2)
    assert producer_state(world.logs[P, 1])[7].producer_epoch == 1


def test_late_data_after_the_marker_hangs_without_verification() -> None:
    late = (INIT, ADD, ("send data", (A, P, 1)), end(1, commit=False), *END_MARKERS, ("append data", (0,)))
    world = opened(LATE_DATA, late)
    assert hanging(world) == {(P, 7, 1)}


def test_late_data_is_refused_with_verification() -> None:
    late = (INIT, ADD, ("send data", (A, P, 2)), end(2, commit=False), *END_MARKERS, ("append data", (0,)))
    world = opened(VERIFIED, late)
    assert still_open(world.logs[P, 1]) == {} and hanging(world) == frozenset()


def test_recovery_keeps_ongoing_transactions_until_their_timeout() -> None:
    world = opened(MOVING_COORDINATOR, (INIT, ADD, *send(1)))
    _move_coordinator(world)
    assert (owner(world, 2).state, owner(world, 2).partitions) == ("Ongoing", frozenset({P}))
    assert (1, A) not in world.held
    go_on(world, ("timeout", (2, A)))
    assert owner(world, 2).state == "PrepareAbort"


def test_recovery_completes_prepared_transactions_with_all_partitions() -> None:
    world = opened(MOVING_COORDINATOR, (INIT, ADD, *send(1), end(1), *END_MARKERS[:2]))
    assert owner(world).partitions == frozenset()
    _move_coordinator(world)
    assert (owner(world, 2).state, owner(world, 2).partitions) == ("PrepareCommit", frozenset({P}))


def _move_coordinator(world: World) -> None:
    _hand_over(world)
    go_on(world, ("load", (2, 0)))


def _hand_over(world: World, leader: int = 2) -> None:
    go_on(world, ("move leader", (STATE, leader)))
    for broker_id in (1, 2):
        go_on(world, ("publish metadata", (broker_id,)), ("apply to replicas", (broker_id,)))
        go_on(world, ("elect coordinators", (broker_id,)))


def test_a_marker_for_a_leaderless_partition_is_skipped_and_the_commit_completes() -> None:
    world = opened(LEADERLESS, (INIT, ADD, *send(2)))
    go_on(world, ("kill broker", (2,)), ("fence broker", (2,)), ("publish metadata", (1,)), end(2))
    go_on(world, ("skip marker", (1, A, P)), ("write completion", (1, A)))
    assert owner(world).state == "CompleteCommit"
    assert hanging(world) == {(P, 7, 0)}, "committed, and open for ever"


def test_a_marker_at_a_lower_epoch_is_refused_and_sending_stops() -> None:
    world = opened(LATE_DATA, (INIT, ADD, *send(1), end(1)))
    world.held[1, A] = world.held[1, A]._replace(metadata=owner(world)._replace(producer_epoch=-1))
    go_on(world, ("write marker", (1, A, P)))
    assert not world.held[1, A].sending


def test_a_marker_of_v2_is_refused_if_data_of_its_own_epoch_is_open() -> None:
    """The data of a client that wrote without adding the partition before the marker of its earlier transaction."""
    scenario = replace(LATE_DATA, versions=(1, 2), faults=frozenset({NEVER_ADDED}))
    for version, refused in ((1, False), (2, True)):
        world = opened(scenario, (INIT, ADD, *send(version), end(version)))
        go_on(world, ("send data without adding", (A, P)), ("append data", (0,)), ("write marker", (1, A, P)))
        assert world.held[1, A].sending is not refused
        assert (still_open(world.logs[P, 1]) != {}) is refused
        (judged,) = sweep(Simulation(world)).transactions or (None,)
        assert judged is None or str(judged.judgement.reason) == "stuck"
        assert (judged is not None) is refused


def test_an_append_is_acknowledged_only_when_every_in_sync_replica_has_it() -> None:
    world = opened(CRASHES, (INIT, ADD))
    happen(world, ("send data", (A, P, 2)))
    happen(world, ("append data", (0,)))
    assert world.high_watermarks[P, 1] == 0
    rest(world)
    assert world.high_watermarks[P, 1] == 1


def test_a_killed_leader_is_replaced_by_an_in_sync_replica_at_the_next_epoch() -> None:
    world = opened(CRASHES, (INIT, ADD, *send(2)))
    go_on(world, ("kill broker", (1,)), ("fence broker", (1,)))
    leadership = world.leadership(world.image, P)
    assert (leadership.leader, leadership.epoch, leadership.isr) == (2, 1, frozenset({2}))


def test_a_replica_joins_the_in_sync_set_only_when_its_leader_knows_that_it_is_alive() -> None:
    """Otherwise a leader that is cut off would not name its successor, and could not be detected."""
    world = opened(CRASHES, (INIT, ADD))
    go_on(world, ("kill broker", (2,)), ("fence broker", (2,)), ("publish metadata", (1,)), ("apply to replicas", (1,)))
    go_on(world, ("elect coordinators", (1,)), ("start broker", (2,)), ("unfence broker", (2,)))
    assert not can_happen(world, ("expand isr", (P, 2)))
    go_on(world, ("publish metadata", (1,)), ("expand isr", (P, 2)))
    assert world.leadership(world.image, P).isr == frozenset({1, 2})


def test_a_slow_follower_leaves_the_in_sync_set_and_its_leader_counts_it_until_it_hears() -> None:
    world = opened(replace(CRASHES, faults=CRASHES.faults | {"slow follower"}), (INIT, ADD))
    happen(world, ("send data", (A, P, 2)))
    assert not can_happen(world, ("shrink isr", (P, 2)))
    happen(world, ("append data", (0,)))
    assert can_happen(world, ("shrink isr", (P, 2)))
    happen(world, ("shrink isr", (P, 2)))
    leadership = world.leadership(world.image, P)
    assert (leadership.leader, leadership.epoch, leadership.isr) == (1, 0, frozenset({1}))
    assert world.high_watermarks[P, 1] == 0
    happen(world, ("publish metadata", (1,)))
    happen(world, ("apply to replicas", (1,)))
    assert world.high_watermarks[P, 1] == 1


def states(world: World, broker_id: int) -> list[str | None]:
    """The records of the id on a replica of the log. None for a hole, "" for a tombstone."""
    log = [record for _, record in world.logs[STATE, broker_id]]
    assert all(record is None or isinstance(record, TransactionLogRecord) for record in log)
    return [None if r is None else r.metadata.state if r.metadata else "" for r in log]  # type: ignore[union-attr]


def fetched_states(world: World, broker_id: int) -> list[tuple[int, str]]:
    """The records of the id for the sweep's own reader from this broker: offsets and states."""
    leads = world.leads(broker_id, STATE)
    assert leads is not None
    partition = Partition(STATE[0], "", STATE[1], broker_id, leads.epoch)
    fetched = fetch(lambda b, request: answer(world, b, request), partition, 0, 1 << 20, records=True)
    return [
        (offset, str(decode(offset, offset, A, value).state))
        for batch in fetched.batches
        for offset, _, value in batch.records or ()
        if value is not None
    ]


def test_the_cleaner_drops_superseded_records_and_keeps_offsets() -> None:
    world = opened(COMPACTED, away(2))
    assert states(world, 1) == ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit", "Empty"]
    ends = [end for name, (*_, end) in possible(world) if name == "clean log"]
    assert ends == [2, 3, 4], "right behind each record that supersedes one, and never the active segment's last"
    go_on(world, ("clean log", (STATE, 1, 3)))
    assert states(world, 1) == [None, None, "PrepareCommit", "CompleteCommit", "Empty"]
    assert fetched_states(world, 1) == [(2, "PrepareCommit"), (3, "CompleteCommit"), (4, "Empty")]
    assert not can_happen(world, ("clean log", (STATE, 1, 3))), "there is nothing more to drop up to there"


def test_a_log_is_cleaned_only_below_its_high_watermark() -> None:
    world = opened(MOVING_COORDINATOR, (INIT, ADD))
    world.scenario = replace(world.scenario, faults=frozenset({"compaction"}))
    happen(world, end(1))
    happen(world, ("fetch", (STATE, 2)))
    assert (len(world.logs[STATE, 2]), world.high_watermarks[STATE, 2]) == (3, 2)
    cleanable = [subject for name, subject in possible(world) if name == "clean log"]
    assert cleanable == [(STATE, 1, 2), (STATE, 2, 2)]
    world.high_watermarks[STATE, 2] = 1
    assert not can_happen(world, ("clean log", (STATE, 2, 2)))


def test_a_new_leader_with_an_old_high_watermark_returns_too_little_and_the_log_read_fails() -> None:
    world = opened(MOVING_COORDINATOR, (INIT, ADD))
    for event in (end(1), ("fetch", (STATE, 2)), ("move leader", (STATE, 2))):
        happen(world, event)
    for broker_id in (2, 1):
        for event in (("publish metadata", (broker_id,)), ("apply to replicas", (broker_id,))):
            happen(world, event)
    assert (len(world.logs[STATE, 2]), world.high_watermarks[STATE, 2]) == (3, 2)
    assert fetched_states(world, 2) == [(0, "Empty"), (1, "Ongoing")], "the decision is committed, and missing"
    assert log_of(world, 2).failure == Failure("__transaction_state-0: OFFSET_NOT_AVAILABLE", "OFFSET_NOT_AVAILABLE")
    happen(world, ("fetch", (STATE, 1)))
    assert [raw.offset for raw in log_of(world, 2).records] == [0, 1, 2]


def log_of(world: World, broker_id: int) -> LogRow:
    """The log of this leader, read for the first producer id."""
    leads = world.leads(broker_id, STATE)
    assert leads is not None
    led = Partition(STATE[0], "", STATE[1], broker_id, leads.epoch)
    batch = LogBatch(lane=0, leader=broker_id, partitions=(led,), producer_ids=(7,))
    (row,) = read_log(batch, lambda b, request: answer(world, b, request))
    return row


def test_an_offline_replica_copies_the_holes_of_a_compacted_leader_after_its_own_records() -> None:
    world = opened(COMPACTED, (*away(2), *COMPACTED_MEANWHILE))
    assert states(world, 1) == [None, None, None, "CompleteCommit", "Empty"]
    assert states(world, 2) == ["Empty", "Ongoing", None, "CompleteCommit", "Empty"]
    assert world.high_watermarks[STATE, 1] == world.high_watermarks[STATE, 2] == 5
    _move_coordinator(world)
    assert fetched_states(world, 2) == [(0, "Empty"), (1, "Ongoing"), (3, "CompleteCommit"), (4, "Empty")]
    assert (owner(world, 2).state, owner(world, 2).producer_epoch) == ("Empty", 2), (
        "a hole changes nothing for who loads"
    )


def epoch_answer(world: World, broker_id: int, current: int, asked: int) -> tuple[int, int, int]:
    """The answer of this broker about an epoch of the log: its error code, the epoch and the end offset."""
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    wanted = topic.OffsetForLeaderPartition(partition=STATE[1], current_leader_epoch=current, leader_epoch=asked)
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic(topic=STATE[0], partitions=[wanted])])
    (shown,) = answer(world, broker_id, request).topics[0].partitions
    return shown.error_code, shown.leader_epoch, shown.end_offset


def test_only_the_leader_knows_the_end_of_an_epoch() -> None:
    world = opened(MOVING_COORDINATOR, (INIT, ADD))
    _move_coordinator(world)
    assert [epoch for epoch, _ in world.logs[STATE, 2]] == [0, 0]
    fenced, unknown = int(ErrorCode.FENCED_LEADER_EPOCH), int(ErrorCode.UNKNOWN_LEADER_EPOCH)
    follower = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    table = [
        ("an epoch that ended", 2, 1, 0, (0, 0, 2)),
        ("the leader's own, without a record", 2, 1, 1, (0, 1, 2)),
        ("one above it", 2, 1, 2, (0, -1, -1)),
        ("one below the first", 2, 1, -2, (0, -2, 0)),
        ("no epoch", 2, 1, -1, (0, -1, -1)),
        ("a leader epoch that is over", 2, 0, 0, (fenced, -1, -1)),
        ("a leader epoch to come", 2, 2, 0, (unknown, -1, -1)),
        ("a follower", 1, 1, 0, (follower, -1, -1)),
    ]
    with Cases() as cases:
        for name, broker_id, current, asked, expected in table:
            with cases.case(name):
                assert epoch_answer(world, broker_id, current, asked) == expected


def test_a_leader_of_a_compacted_copy_does_not_know_epochs_without_records() -> None:
    record = TransactionLogRecord(A, None)
    table: list[tuple[str, Log, dict[int, int]]] = [
        ("all is left", ((0, record), (1, record), (2, record)), {0: 1, 1: 2, 2: 3, 3: 4}),
        ("nothing of one between", ((0, record), (1, None), (2, record)), {0: 2, 2: 3, 3: 4}),
        ("nothing of the first", ((0, None), (1, record), (2, record)), {1: 2, 2: 3, 3: 4}),
        ("nothing at all", ((0, None), (1, None), (2, None)), {3: 4}),
    ]
    with Cases() as cases:
        for name, log, expected in table:
            with cases.case(name):
                world = opened(MOVING_COORDINATOR, ())
                for leader in (2, 1, 2):
                    _hand_over(world, leader)
                leads = world.leads(2, STATE)
                assert leads is not None and leads.epoch == 3
                world.logs[STATE, 2], world.epoch_starts[STATE, 2] = (*log, (3, record)), 3
                partition = Partition(STATE[0], "", STATE[1], 2, 3)
                assert epoch_ends(lambda b, r, w=world: answer(w, b, r), partition, range(4)) == expected


def test_an_offline_replica_has_no_hole_without_compaction() -> None:
    world = opened(COMPACTED, (*away(2), *BACK))
    assert states(world, 2) == ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit", "Empty"]


def test_a_hole_equals_the_record_of_another_replica() -> None:
    record = TransactionLogRecord(A, None)
    assert common_prefix(((0, record), (1, record)), ((0, None), (1, None), (1, record))) == 2
    assert common_prefix(((0, record), (1, record)), ((0, None), (2, None))) == 1


def test_a_tombstone_is_dropped_last_and_never_reaches_an_offline_replica() -> None:
    expired = (*away(2), ("expire id", (1, A)), ("InitProducerId", (1, A)))
    world = opened(replace(COMPACTED, faults=COMPACTED.faults | {"tombstones dropped"}), expired)
    assert states(world, 1)[4:] == ["Empty", "", "Empty"]
    assert not can_happen(world, ("drop tombstone", (STATE, 1, 5)))
    go_on(world, ("clean log", (STATE, 1, 6)), ("drop tombstone", (STATE, 1, 5)))
    assert states(world, 1) == [*[None] * 6, "Empty"]
    for event in BACK:
        happen(world, event)
        rest(world)
    assert states(world, 2) == ["Empty", "Ongoing", *[None] * 4, "Empty"]


def test_a_moved_log_start_keeps_the_start_offset_of_open_transactions() -> None:
    world = opened(DELETED, DELETED_FIRST)
    assert world.log_starts[P, 2] == 2
    assert shown_open(world, 2) == [(0, 2)]
    (judged,) = sweep(Simulation(world)).transactions
    assert (judged.observation.start_offset, judged.observation.second.last_stable_offset) == (0, 2)
    assert judged.outcome == "maybe_committed", "its first record cannot be read"


def test_a_new_replica_has_a_later_start_offset_and_the_sequence_numbers_of_batches() -> None:
    world = opened(DELETED, (*DELETED_FIRST, *NEW_REPLICA))
    assert world.log_starts[P, 3] == 2
    assert shown_open(world, 3) == [(2, 2)]
    assert hanging(world) == {(P, 7, offset) for offset in (0, 1, 2)}, "one transaction, of which replicas differ"


def test_a_follower_below_the_log_start_starts_anew_there() -> None:
    back: tuple[Event, ...] = (("start broker", (3,)), ("unfence broker", (3,)), *heard(1, 2, 3))
    world = opened(DELETED, (*torn_commit(2, 3), *back))
    world.logs[P, 3] = world.logs[P, 2][:1]
    assert can_happen(world, ("fetch", (P, 3)))
    world.log_starts[P, 2] = 1
    happen(world, ("fetch", (P, 3)))
    assert shown_open(world, 3) == [(0, 2)], "what it has is up to the start"
    world.logs[P, 3], world.log_starts[P, 2] = world.logs[P, 2][:1], 2
    happen(world, ("fetch", (P, 3)))
    assert shown_open(world, 3) == [(2, 2)]


def test_a_broker_killed_without_snapshots_forgets_producers_without_records() -> None:
    killed: tuple[Event, ...] = (("kill broker", (2,)), ("rebuild producers' state", (P, 2)))
    table = [(1, [(1, 2)]), (2, [(2, 2)]), (3, [])]
    with Cases() as cases:
        for start, expected in table:
            with cases.case(start):
                world = opened(DELETED, (*torn_commit(2, 3), ("delete records", (P, 2, start)), *killed))
                assert shown_open(world, 2) == expected
                assert not can_happen(world, killed[1])


def test_a_replica_is_replaced_only_while_another_is_in_sync_and_leads() -> None:
    world = opened(DELETED, torn_commit(2, 3))
    assert not can_happen(world, ("replace replica", (P, 2)))
    assert not can_happen(world, ("replace replica", (P, 3))), "its broker is down"
    go_on(world, ("start broker", (3,)), ("unfence broker", (3,)), *heard(1, 2, 3))
    ask(world, ("replace replica", (P, 3)))
    assert (world.logs[P, 3], world.leadership(world.image, P).isr) == ((), frozenset({2}))


def test_a_deposed_leader_appends_a_batch_that_the_next_leader_also_gets() -> None:
    """Its batch is truncated once it follows."""
    cut: tuple[Event, ...] = (("cut broker off", (1,)), ("fence broker", (1,)), *heard(2, 3))
    begun: tuple[Event, ...] = (("InitProducerId", (3, A)), ("AddPartitionsToTxn", (3, A, P)), ("send data", (A, P, 1)))
    world = opened(WIDE["two-leaders"], (*begun, *cut))
    ask(world, ("append data elsewhere", (0, 2)), ("append data", (0,)))
    assert [[epoch for epoch, _ in world.logs[P, b]] for b in (1, 2)] == [[0], [1]]
    assert hanging(world) == frozenset(), "its timeout ends it"


UNADDED: tuple[Event, ...] = (("send data without adding", (A, P)), ("append data", (0,)))


def test_unadded_data_hangs_without_verification() -> None:
    world = opened(WIDE["never-added-v1"], (INIT, *UNADDED))
    assert hanging(world) == {(P, 7, 0)}
    world = opened(WIDE["never-added-verified"], (INIT, *UNADDED))
    assert hanging(world) == frozenset()


def test_unadded_data_joins_an_open_transaction_of_its_epoch_despite_verification() -> None:
    world = opened(WIDE["never-added-verified"], MORE_WRITTEN)
    *_, (_, joined) = world.logs[P, 2]
    assert isinstance(joined, Data)
    assert (joined.txn, joined.added, joined.sequence) == ((A, 2), False, 3)


def test_only_a_later_date_distinguishes_unadded_data_from_a_lost_commit() -> None:
    written = [event for event in MORE_WRITTEN if event[0] != "time passes"]
    table = [("later", MORE_WRITTEN, False), ("at once", tuple(written), None)]
    with Cases() as cases:
        for name, opening, expected in table:
            with cases.case(name):
                world = opened(WIDE["never-added-v1"], opening)
                committed = [world.was_committed(P, data) for _, data in world.logs[P, 2] if isinstance(data, Data)]
                assert committed == [True, True, True, expected]


def test_a_commit_covers_only_its_listed_partitions() -> None:
    other = ("q", 0)
    added: tuple[Event, ...] = (("AddPartitionsToTxn", (1, A, other)), *UNADDED, end(1))
    world = opened(WIDE["never-added-v1"], (INIT, *added))
    (_, data), *_ = world.logs[P, 2]
    assert isinstance(data, Data)
    assert (world.decided, world.was_committed(P, data), world.was_committed(other, data)) == (
        {(A, 1): True},
        False,
        True,
    )


def test_a_batch_sent_before_the_last_batch_of_its_epoch_is_refused() -> None:
    """Its sequence number is lower than the sequence number of the last batch."""
    early: tuple[Event, ...] = (("send data", (A, P, 1)), ("time passes", ()), ("send data", (A, P, 1)))
    world = opened(WIDE["never-added-v1"], (INIT, ADD, *early, ("append data", (1,)), ("append data", (0,))))
    assert len(world.logs[P, 2]) == 1


def ask(world: World, *events: Event) -> None:
    """These events, without automatic ones."""
    for event in events:
        assert can_happen(world, event), f"{event} cannot happen; {list(possible(world))} can"
        happen(world, event)


TIMEOUT: Event = ("append timeout", (1, A))


@pytest.mark.parametrize("version", [1, 2])
def test_an_end_with_a_timed_out_append_is_in_the_log_and_not_in_memory(version: int) -> None:
    world = opened(replace(TIMED_OUT, versions=(version,)), (INIT, ADD, *send(version)))
    ask(world, end(version), TIMEOUT)
    assert (owner(world).state, owner(world).producer_epoch) == ("Ongoing", 0)
    assert states(world, 1) == ["Empty", "Ongoing", "PrepareCommit"]
    assert world.producers[A].ending is True, "nobody told the producer"
    rest(world)
    assert (owner(world).state, states(world, 2)[-1]) == ("Ongoing", "PrepareCommit"), "replicated, and of no effect"
    assert world.decided == {}
    go_on(world, end(version))
    assert (owner(world).state, world.decided) == ("PrepareCommit", {(A, 1): True})


def test_a_commit_with_a_timed_out_append_may_be_followed_by_an_effective_abort() -> None:
    world = opened(TIMED_OUT, (INIT, ADD, *send(1)))
    ask(world, end(1), TIMEOUT)
    go_on(world, ("timeout", (1, A)))
    assert states(world, 1) == ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort"]
    assert world.decided == {(A, 1): False}
    go_on(world, *END_MARKERS)
    assert settled(world).decided == {(A, 1): False}


def test_a_commit_with_a_timed_out_append_is_completed_by_the_next_coordinator() -> None:
    world = opened(TIMED_OUT, (INIT, ADD, *send(1)))
    ask(world, end(1), TIMEOUT)
    _move_coordinator(world)
    assert (owner(world, 2).state, world.decided) == ("PrepareCommit", {})
    go_on(world, ("write marker", (2, A, P)), ("marker acknowledged", (2, A, P)), ("write completion", (2, A)))
    assert (owner(world, 2).state, world.decided) == ("CompleteCommit", {(A, 1): True})


def test_a_loaded_decision_with_a_refused_marker_is_known_to_the_truth() -> None:
    world = opened(TIMED_OUT, (INIT, ADD, *send(1)))
    world.in_flight = (Produce(P, Data(7, 5, (A, 1)), 1),)
    go_on(world, ("append data", (0,)))
    ask(world, end(1), TIMEOUT)
    _move_coordinator(world)
    assert settled(world).decided == {(A, 1): True}


def test_a_fence_with_a_timed_out_append_raises_the_epoch_once() -> None:
    world = opened(TIMED_OUT, (INIT, ADD, *send(1)))
    ask(world, INIT, TIMEOUT)
    assert (owner(world).state, owner(world).producer_epoch) == ("Ongoing", 1)
    ask(world, INIT, TIMEOUT)
    assert owner(world).producer_epoch == 1
    go_on(world, INIT)
    assert (owner(world).state, owner(world).producer_epoch) == ("PrepareAbort", 1)


def test_a_producer_with_a_lost_abort_is_fenced_by_its_timeout() -> None:
    world = opened(TIMED_OUT, (INIT, ADD, *send(1)))
    ask(world, end(1, commit=False), TIMEOUT)
    go_on(world, ("timeout", (1, A)))
    assert (owner(world).state, owner(world).producer_epoch) == ("PrepareAbort", 1)
    go_on(world, *END_MARKERS, end(1, commit=False))
    assert world.producers[A].producer_epoch == 0, "an answer of transactions v1 names no epoch"
    go_on(world, ADD)
    assert world.producers[A].fenced


def test_an_answered_append_does_not_time_out_and_an_unanswered_add_makes_no_owner() -> None:
    late = (INIT, ADD, ("send data", (A, P, 1)), end(1, commit=False), *END_MARKERS, ("append data", (0,)))
    world = opened(TIMED_OUT, late)
    assert not can_happen(world, TIMEOUT)
    world.producers[A] = world.producers[A]._replace(added=frozenset())
    ask(world, ADD, TIMEOUT)
    assert (owner(world).state, states(world, 1)[-1]) == ("CompleteAbort", "Ongoing")
    assert hanging(world) == {(P, 7, 1)}
    _move_coordinator(world)
    assert hanging(world) == frozenset(), "who loads the log has it, and ends it"


def test_an_unwritten_fence_is_lost_when_another_coordinator_loads_the_log() -> None:
    world = opened(UNWRITTEN, (*UNWRITABLE, INIT))
    assert (owner(world).state, owner(world).producer_epoch, states(world, 1)[-1]) == ("Ongoing", 1, "Ongoing")
    for event in (*BACK, ("move leader", (LOG, 2)), *heard(1, 2), ("load", (2, 0))):
        happen(world, event)
        rest(world)
    assert (owner(world, 2).state, owner(world, 2).producer_epoch) == ("Ongoing", 0)
    go_on(world, ("EndTxn", (2, A, True, 1)))
    assert owner(world, 2).state == "PrepareCommit", "and the producer that was to be fenced commits"


def test_a_coordinator_with_a_partly_loaded_log_answers_as_if_it_were_complete() -> None:
    world = opened(PARTIAL_LOAD, (INIT, ADD, *send(1), end(1)))
    _hand_over(world)
    assert [end for name, (*_, end) in possible(world) if name == "partial load"] == [0, 1, 2]
    go_on(world, ("partial load", (2, 0, 2)))
    assert owner(world, 2).state == "Ongoing"
    go_on(world, ("timeout", (2, A)))
    assert owner(world, 2).state == "PrepareAbort"


def test_a_coordinator_with_an_empty_load_does_not_know_the_id_and_proves_its_coverage() -> None:
    world = opened(PARTIAL_LOAD, (INIT, ADD, *send(1)))
    _hand_over(world)
    go_on(world, ("partial load", (2, 0, 0)))
    assert (2, A) not in world.held
    (judged,) = sweep(Simulation(world)).transactions
    assert judged.judgement.reason != "coverage"


def test_the_truth_of_a_partial_load_is_the_result_of_a_full_load() -> None:
    world = opened(PARTIAL_LOAD, (INIT, ADD, *send(1), end(1)))
    _hand_over(world)
    go_on(world, ("partial load", (2, 0, 2)))
    assert hanging(world) == frozenset()
    assert settled(world).decided == {(A, 1): True}, "committed, before the coordinator that forgot it can abort it"
    go_on(world, ("timeout", (2, A)))
    assert settled(world).decided == {(A, 1): True}, "who was told that it is committed is not told otherwise"


def test_an_id_expires_only_at_rest() -> None:
    world = opened(LATE_DATA, (INIT, ADD, *send(1)))
    assert not can_happen(world, ("expire id", (1, A)))
    go_on(world, end(1), *END_MARKERS, ("expire id", (1, A)))
    assert (1, A) not in world.held


def test_an_exhausted_producer_id_is_replaced() -> None:
    world = opened(WIDE["v2-epochs"], (("InitProducerId", (2, A)),))
    coordinator = next(b for b, name in world.held if name == A)
    for _ in range(WIDE["v2-epochs"].last_epoch):
        go_on(world, ("InitProducerId", (coordinator, A)))
    assert (world.held[coordinator, A].metadata.producer_id, world.held[coordinator, A].metadata.producer_epoch) == (
        7,
        2,
    )
    go_on(world, ("InitProducerId", (coordinator, A)))
    assert (world.held[coordinator, A].metadata.producer_id, world.held[coordinator, A].metadata.producer_epoch) == (
        8,
        0,
    )


@pytest.mark.parametrize("after", ["Ongoing", "PrepareCommit", "PrepareAbort"])
def test_an_invalid_transition_is_an_error_of_the_simulator(after: str) -> None:
    world = opened(LATE_DATA, (INIT,))
    held = Held(owner(world)._replace(state=after))
    assert after not in VALID_PREVIOUS_STATES["Dead"]
    with pytest.raises(InvalidTransition):
        prepare(world, 1, A, held, held.metadata._replace(state="Dead"))


@pytest.mark.parametrize(
    "world_name", [name for name in WIDE if name != "unclean-elections" and LOST_LOG_END not in WIDE[name].faults]
)
def test_acknowledged_records_are_never_lost_and_each_epoch_has_one_leader(world_name: str) -> None:
    """`NoCommittedRecordLost` and leader completeness, after every event of random histories."""
    import random

    for seed in range(300):
        chooser, world = random.Random(seed), World(WIDE[world_name])
        committed: dict[Key, Log] = {}
        for _ in range(80):
            event = at_random(world, chooser, 0.15)
            if event is None:
                break
            happen(world, event)
            for key, _ in world.scenario.partitions:
                leading = [(b, led.epoch) for b in world.brokers if (led := world.leads(b, key)) is not None]
                assert len({epoch for _, epoch in leading}) == len(leading), (seed, event)
                for b, _ in leading:
                    # Zombies too: the current leader must have the records that they acknowledged.
                    written = world.logs[key, b][: world.high_watermarks[key, b]]
                    before = committed.get(key, ())
                    assert common_prefix(written, before) == min(len(written), len(before)), (seed, event)
                    committed[key] = max(written, before, key=len)


def test_settling_does_not_change_the_world() -> None:
    world = opened(CRASHES, (INIT, ADD, *send(2)))
    before = world.key
    settled(world)
    assert world.key == before
