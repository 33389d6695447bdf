"""Which claims count. A claimed transaction gets no proven read, so this is the correctness proof of claims.

A table of worlds: the claims of brokers and the leaders of the log, against two transactions of one producer,
open on `p-0` and on `q-0`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import Cases
from tests.fakes.cluster import FakeCluster, FakeId, FakePartition, no_progress, one_by_one, producer
from tests.fakes.old_brokers import PRODUCER_IDS, FakeOld, connected, open_on, swept_fake
from txnscan.coordinators.agreed_metadata import AgreedMetadata, read_all_views
from txnscan.coordinators.claims import (
    ClaimAnswers,
    ClaimedAndUnclaimed,
    CountedClaims,
    ask_claims,
    counted_claims,
    separate_by_claim,
)
from txnscan.kafka.answers import CoordinatorView, OpenProducer
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.protocol.frames import api_name
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC as STATE
from txnscan.kafka.topology import Key
from txnscan.reads.observation import TransactionKey
from txnscan.reads.rows import WideRow
from txnscan.sweeps.history import Incident, NoHistory, Sighting
from txnscan.sweeps.observations import CLAIMED

LEADERS = (1, 2, 3, 1)
P, Q = ("p", 0), ("q", 0)
# Open at epoch 3 on both partitions.
OPEN = producer(7)


def id_for(k: int, prefix: str = "app") -> str:
    """A transactional id on partition k of four."""
    return next(n for i in itertools.count() if coordinator_partition(n := f"{prefix}-{i}", len(LEADERS)) == k)


def row(key: Key, *producers: OpenProducer) -> WideRow:
    topic, index = key
    return WideRow(leader=1, topic=topic, partition=index, open_producers=producers)


@pytest.fixture
def cluster() -> FakeCluster:
    return shared_by_three()


def shared_by_three() -> FakeCluster:
    """Partitions 0 and 3 of `__transaction_state` are led by broker 1, 1 by broker 2, 2 by broker 3."""
    fake = FakeCluster()
    fake.lead(STATE, LEADERS)
    fake.lead("p", [1])
    fake.lead("q", [1])
    return fake


def ask(cluster: FakeCluster, producer_ids: Collection[int] = (7,)) -> list[ClaimAnswers]:
    return [ask_claims(cluster.send, broker_id, producer_ids) for broker_id in cluster.brokers]


def latest(cluster: FakeCluster) -> AgreedMetadata:
    return read_all_views(cluster.send, cluster.brokers, [STATE], one_by_one, lambda brokers: None)


def found_by(cluster: FakeCluster) -> CountedClaims:
    return counted_claims(ask(cluster), latest(cluster), 0)


def held_on(found: CountedClaims, one: OpenProducer = OPEN) -> set[str]:
    return {name for name in ("p-0", "q-0") if found.claimant(name, one) is not None}


# --- the proof --------------------------------------------------------------------------------------------------------


def hold(broker_id: int = 1, k: int = 0, **changes: Any) -> Callable[[FakeCluster], None]:
    """A broker claims p-0 for an id of this log partition: Ongoing, at epoch 3."""
    held = replace(FakeId(7, 3, "Ongoing", (P,)), **changes)
    return lambda c: c.ids.setdefault(broker_id, {}).update({id_for(k): held})


def all_of(*changes: Callable[[FakeCluster], object]) -> Callable[[FakeCluster], None]:
    def change(cluster: FakeCluster) -> None:
        for one in changes:
            one(cluster)

    return change


def believes(*broker_ids: int, leader: int, epoch: int) -> Callable[[FakeCluster], None]:
    """These brokers report another leader of log partition 0, at this leader epoch."""

    def change(cluster: FakeCluster) -> None:
        for broker_id in broker_ids:
            cluster.believes[broker_id] = other = FakeCluster()
            other.partitions = {**cluster.partitions, (STATE, 0): FakePartition(leader, epoch)}

    return change


def metadata_is_down(*broker_ids: int) -> Callable[[FakeCluster], None]:
    def fails(broker_id: int, request: Any, _: Any) -> bool:
        return broker_id in broker_ids and api_name(request) == "Metadata"

    return lambda c: setattr(c, "fail_when", fails)


def fails(broker_id: int, api: str) -> Callable[[FakeCluster], None]:
    return lambda c: setattr(c, "fail_when", lambda b, request, _: (b, api_name(request)) == (broker_id, api))


def left_out_of_the_description(cluster: FakeCluster) -> None:
    def edit(broker_id: int, answer: Any) -> Any:
        answer.transaction_states = []
        return answer

    cluster.edit["DescribeTransactions"] = edit


def goes_on(**changes: Any) -> Callable[[FakeCluster], None]:
    """The id changes between its listing and its description."""

    def change(cluster: FakeCluster) -> None:
        def edit(broker_id: int, answer: Any) -> Any:
            for one in answer.transaction_states:
                held = cluster.ids[broker_id]
                held[one.transactional_id] = replace(held[one.transactional_id], **changes)
            return answer

        cluster.edit["ListTransactions"] = edit

    return change


ON_P: set[str] = {"p-0"}
NOTHING: set[str] = set()


CLAIMED_WHEN: tuple[tuple[Callable[[FakeCluster], None], set[str], str], ...] = (
    # Claims of the coordinator itself.
    (hold(), ON_P, "it is ongoing, and lists the partition"),
    (hold(state="PrepareCommit"), ON_P, "its marker is owed"),
    (hold(state="PrepareAbort"), ON_P, "so is an abort's"),
    (hold(partitions=(P, Q)), {"p-0", "q-0"}, "it lists both"),
    (hold(k=3), ON_P, "the same broker leads that partition of the log as well"),
    (hold(2, 1), ON_P, "another broker's id"),
    # Per partition.
    (hold(partitions=(Q,)), {"q-0"}, "the producer may have left something open on another partition"),
    (hold(partitions=(("p", 1),)), NOTHING, "another partition of the topic is another partition"),
    (hold(partitions=()), NOTHING, "Ongoing without partitions holds nothing"),
    (hold(state="PrepareCommit", partitions=()), NOTHING, "nor does Prepare* without any"),
    # Per producer id and epoch.
    (hold(producer_id=8), NOTHING, "another producer's"),
    (hold(producer_epoch=4), ON_P, "a later epoch: transactions v2 raise it in Prepare*"),
    (hold(producer_epoch=2), NOTHING, "a coordinator that has fallen behind ends nothing"),
    # States.
    (hold(state="CompleteCommit"), NOTHING, "complete: it owes nothing"),
    (hold(state="CompleteAbort"), NOTHING, "complete: it owes nothing"),
    (hold(state="Empty"), NOTHING, "at rest"),
    (hold(state="Dead"), NOTHING, "it expires"),
    (hold(state="PrepareEpochFence"), NOTHING, "a state that no rule knows"),
    # Between the listing and the description.
    (all_of(hold(), goes_on(producer_id=9)), NOTHING, "its producer id rotated"),
    (
        all_of(hold(producer_id=9), goes_on(producer_id=7)),
        NOTHING,
        "nor is it held under an id that was not listed",
    ),
    (all_of(hold(producer_id=9, state="PrepareAbort"), goes_on(producer_id=7)), NOTHING, "nor is it then"),
    (all_of(hold(), goes_on(state="CompleteCommit", partitions=())), NOTHING, "it completed"),
    (all_of(hold(), goes_on(state="CompleteCommit")), NOTHING, "complete, whatever it lists"),
    (all_of(hold(), goes_on(state="PrepareCommit")), ON_P, "it was decided, and its marker is owed"),
    (all_of(hold(), goes_on(partitions=(Q,))), {"q-0"}, "it began another transaction"),
    # Only the leader of the log partition counts, at the highest epoch that any broker reports.
    (hold(2), NOTHING, "broker 2 does not lead the id's log"),
    (
        all_of(hold(), believes(2, leader=2, epoch=6)),
        NOTHING,
        "one broker knows of a later leader: a zombie",
    ),
    (all_of(hold(), believes(1, leader=1, epoch=4)), ON_P, "its own Metadata is behind; it leads all the same"),
    (
        all_of(hold(2), believes(2, leader=2, epoch=4)),
        NOTHING,
        "it led, at an epoch that is over",
    ),
    (all_of(hold(2), believes(2, leader=2, epoch=6)), ON_P, "it leads, and the others have not heard of it"),
    (all_of(hold(), believes(2, leader=2, epoch=5)), NOTHING, "two leaders at one epoch: nobody is believed"),
    (all_of(hold(), believes(1, 2, 3, leader=-1, epoch=6)), NOTHING, "nobody leads"),
    (all_of(hold(), metadata_is_down(1, 2, 3)), NOTHING, "nobody says who leads"),
    (all_of(hold(), metadata_is_down(2, 3)), ON_P, "its own word is enough where nobody says otherwise"),
    # A second claimant.
    (all_of(hold(), hold(2)), NOTHING, "two brokers hold the same id"),
    (all_of(hold(), hold(1, 3)), NOTHING, "two ids have one producer id"),
    (all_of(hold(), hold(2, 1)), NOTHING, "two ids on two brokers, each of which leads its id's log"),
    (all_of(hold(), hold(2, partitions=(Q,))), NOTHING, "the other claims another partition"),
    (all_of(hold(), hold(2, error=15)), NOTHING, "the other could not be described"),
    (all_of(hold(), hold(1, 3, producer_id=8)), ON_P, "another producer's id is no claim on this one"),
    # Failures leave the transaction to the proof.
    (all_of(hold(), lambda c: c.unreachable.add(1)), NOTHING, "its broker does not answer"),
    (all_of(hold(), lambda c: c.unreachable.add(3)), ON_P, "another broker does not answer"),
    (all_of(hold(), fails(1, "ListTransactions")), NOTHING, "it does not list"),
    (all_of(hold(), fails(1, "DescribeTransactions")), NOTHING, "it does not describe"),
    (all_of(hold(), lambda c: c.list_errors.update({1: 14})), NOTHING, "it is loading its log"),
    (hold(error=14), NOTHING, "it cannot describe the id"),
    (hold(error=105), NOTHING, "it does not know the id any more"),
    (hold(error=9999), NOTHING, "an unlisted error is no success"),
    (all_of(hold(), left_out_of_the_description), NOTHING, "the id is not in the answer"),
)


def test_a_claim_counts_only_from_the_one_current_coordinator() -> None:
    with Cases() as cases:
        for spoil, expected, why in CLAIMED_WHEN:
            with cases.case(why):
                cluster = shared_by_three()
                spoil(cluster)
                assert held_on(found_by(cluster)) == expected


def test_the_coordinator_of_an_id_depends_on_the_partition_count_of_the_log(cluster: FakeCluster) -> None:
    names = map("app-{}".format, itertools.count())
    name = next(n for n in names if (coordinator_partition(n, 4), coordinator_partition(n, 3)) == (3, 1))
    cluster.ids = {1: {name: FakeId(7, 3, "Ongoing", (P,))}}
    assert held_on(found_by(cluster)) == {"p-0"}
    del cluster.partitions[STATE, 3]
    assert held_on(found_by(cluster)) == set()


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3),
            st.integers(0, 3),
            st.sampled_from(["Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "Empty"]),
            st.integers(2, 4),
            st.sampled_from([(), (P,), (Q,), (P, Q)]),
            st.sampled_from([0, 0, 0, 15]),
            st.sampled_from([7, 7, 8]),
        ),
        max_size=3,
    )
)
def test_a_claimed_transaction_has_exactly_one_leading_claimant_at_no_lower_epoch(
    claims: list[tuple[int, int, str, int, tuple[Key, ...], int, int]],
) -> None:
    cluster = FakeCluster()
    cluster.lead(STATE, LEADERS)
    for broker_id, k, state, epoch, partitions, error, described in claims:
        held = FakeId(described, epoch, state, partitions, error, listed_producer_id=7)
        cluster.ids.setdefault(broker_id, {})[id_for(k)] = held
    listed = [
        (broker_id, name, held)
        for broker_id, names in cluster.ids.items()
        for name, held in names.items()
        if held.state in ("Ongoing", "PrepareCommit", "PrepareAbort")
    ]

    def holds(key: Key) -> bool:
        if len(listed) != 1:
            return False
        ((broker_id, name, held),) = listed
        leads = LEADERS[coordinator_partition(name, len(LEADERS))] == broker_id
        own = held.producer_id == 7 and held.producer_epoch >= OPEN.producer_epoch and not held.error
        return leads and own and key in held.partitions

    assert held_on(found_by(cluster)) == {f"{t}-{i}" for t, i in (P, Q) if holds((t, i))}


def test_without_known_leaders_claims_of_any_broker_count(cluster: FakeCluster) -> None:
    hold(2)(cluster)
    assert held_on(counted_claims(ask(cluster), None, 0)) == {"p-0"}


def test_a_claim_has_the_fields_of_the_description(cluster: FakeCluster) -> None:
    hold(1, producer_epoch=4, state="PrepareAbort", partitions=(P, Q))(cluster)
    assert found_by(cluster).claimant("p-0", OPEN) == CoordinatorView(
        transactional_id=id_for(0),
        broker_id=1,
        producer_id=7,
        producer_epoch=4,
        state="PrepareAbort",
        timeout_ms=60_000,
        start_time_ms=1_700_000_000_000,
        partitions=("p-0", "q-0"),
    )


def test_an_ongoing_claim_on_data_of_an_earlier_epoch_counts_if_it_began_after_the_read(cluster: FakeCluster) -> None:
    """The fake's transaction began at 1,700,000,000,000 ms."""
    began_ms, later_ms = 1_700_000_000_000, 1_700_000_000_001
    with Cases() as cases:
        for why, read_from_ms, changes, counts in (
            ("it began before the read", later_ms, {"producer_epoch": 4}, False),
            ("it began in the same millisecond", began_ms, {"producer_epoch": 4}, True),
            ("the data has its epoch", later_ms, {"producer_epoch": 3}, True),
            ("it has decided", later_ms, {"producer_epoch": 4, "state": "PrepareAbort"}, True),
            ("its start is not known", later_ms, {"producer_epoch": 4, "start_time_ms": -1}, True),
        ):
            with cases.case(why):
                hold(**changes)(cluster)
                claimant = counted_claims(ask(cluster), latest(cluster), read_from_ms).claimant("p-0", OPEN)
                assert (claimant and claimant.transactional_id) == (id_for(0) if counts else None)


# --- requests ---------------------------------------------------------------------------------------------------------


def test_brokers_are_asked_for_pending_states_and_for_ids_of_open_producers(cluster: FakeCluster) -> None:
    cluster.ids[1] = {"waits": FakeId(9, 3, "PrepareAbort", (Q,))}
    hold()(cluster)
    hold(1, 3, producer_id=8)(cluster)
    ask_claims(cluster.send, 1, {7})
    assert cluster.asked == [(1, "ListTransactions"), (1, "DescribeTransactions")]
    listing, described = cluster.requests
    assert set(listing.state_filters) == {"Ongoing", "PrepareCommit", "PrepareAbort"}
    assert listing.producer_id_filters == [], "the ids in a transaction are counted, and those in Prepare* told"
    assert described.transactional_ids == sorted([id_for(0), "waits"])


def test_without_matching_ids_no_describe_request_is_sent(cluster: FakeCluster) -> None:
    hold(producer_id=8)(cluster)
    assert set(ask_claims(cluster.send, 1, {7}).listed) == {id_for(0)}
    assert cluster.asked == [(1, "ListTransactions")]


def test_each_id_in_a_transaction_is_counted_once(cluster: FakeCluster) -> None:
    cluster.ids = {
        1: {"a": FakeId(8), "b": FakeId(9, state="Empty"), "c": FakeId(10)},
        2: {"a": FakeId(8), "d": FakeId(11, state="PrepareAbort")},
    }
    assert found_by(cluster).transactional_ids == 3


# --- pending markers --------------------------------------------------------------------------------------------------


def owes(state: str = "PrepareCommit", producer_id: int = 8, **changes: Any) -> FakeId:
    """An id with a pending marker on q-0. Its producer id is open on no partition."""
    return FakeId(producer_id, 4, state, (Q,), **changes)


def prepared(cluster: FakeCluster) -> list[str]:
    return [view.transactional_id for view in found_by(cluster).prepared]


@pytest.mark.parametrize("state", ["PrepareCommit", "PrepareAbort"])
def test_an_id_in_prepare_is_reported_without_an_open_transaction(cluster: FakeCluster, state: str) -> None:
    cluster.ids = {1: {id_for(0): owes(state)}}
    (view,) = found_by(cluster).prepared
    assert (view.transactional_id, view.broker_id, view.state, view.partitions) == (id_for(0), 1, state, ("q-0",))
    assert (view.producer_id, view.producer_epoch) == (8, 4)
    assert (view.timeout_ms, view.start_time_ms) == (60_000, 1_700_000_000_000)


def test_an_id_in_prepare_with_an_open_transaction_is_described_once(cluster: FakeCluster) -> None:
    cluster.ids = {1: {id_for(0): owes(producer_id=7)}}
    assert prepared(cluster) == [id_for(0)]
    asked = [r.transactional_ids for r in cluster.requests if getattr(r, "transactional_ids", None)]
    assert asked == [[id_for(0)]]


def test_prepared_ids_are_sorted_by_id(cluster: FakeCluster) -> None:
    ids = [id_for(0, prefix) for prefix in "cab"]
    cluster.ids = {1: {name: owes(producer_id=n) for n, name in enumerate(ids)}}
    assert prepared(cluster) == sorted(ids)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda c: c.ids.update({1: {id_for(0): owes("Ongoing")}}), "it has decided nothing"),
        (lambda c: c.ids.update({1: {id_for(0): owes("CompleteCommit")}}), "it has delivered"),
        (lambda c: c.ids.update({1: {id_for(0): owes(error=105)}}), "it is gone"),
        (goes_on(state="CompleteCommit", partitions=()), "it completed after its listing"),
        (lambda c: c.ids.update({2: c.ids.pop(1)}), "its broker does not lead its log"),
        (fails(1, "DescribeTransactions"), "its broker fails"),
    ],
)
def test_an_id_without_a_known_pending_marker_is_not_reported(
    cluster: FakeCluster, spoil: Callable[[FakeCluster], object], why: str
) -> None:
    cluster.ids = {1: {id_for(0): owes()}}
    spoil(cluster)
    assert prepared(cluster) == [], why


def test_an_answer_with_an_error_is_ignored_whatever_its_fields(cluster: FakeCluster) -> None:
    cluster.ids = {1: {id_for(0): owes(), id_for(3): FakeId(7, 3, "Ongoing", (P,))}}

    def refused(broker_id: int, answer: Any) -> Any:
        for told in answer.transaction_states:
            told.error_code = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return answer

    cluster.edit["DescribeTransactions"] = refused
    found = found_by(cluster)
    assert (found.prepared, held_on(found), found.transactional_ids) == ((), set(), 2)


# --- unclaimed partitions ---------------------------------------------------------------------------------------------

CLAIM = CoordinatorView("X", 1, 7)
OWNED, STRANGER = producer(7), producer(8)


def claimed(topic_partition: str, one: OpenProducer) -> CoordinatorView | None:
    return CLAIM if one.producer_id == 7 else None


@pytest.mark.parametrize(
    ("suspects", "always", "held", "left", "why"),
    [
        ({}, [], [], [], "nothing is open"),
        ({P: [OWNED]}, [], [P], [], "all of the partition is held"),
        ({P: [STRANGER]}, [], [], [P], "none is"),
        ({P: [OWNED, STRANGER]}, [], [], [P], "a partition with anything left is read whole"),
        ({P: [OWNED, producer(7, 150)]}, [], [P, P], [], "all that is held on it is"),
        ({P: [OWNED], Q: [STRANGER]}, [], [P], [Q], "each by itself"),
        ({P: [OWNED]}, [P], [], [P], "the partition of an incident is always proven"),
        ({P: [OWNED]}, [Q], [P], [], "an incident elsewhere changes nothing"),
        ({Q: [OWNED]}, [P], [Q], [], "one where nothing is open any more is added by the sweep"),
    ],
)
def test_a_partition_with_any_unclaimed_transaction_is_unclaimed(
    suspects: dict[Key, list[OpenProducer]], always: list[Key], held: list[Key], left: list[Key], why: str
) -> None:
    rows = {key: row(key, *producers) for key, producers in suspects.items()}
    kept, rest = separate_by_claim(rows, always, claimed)
    assert [one.key for one in kept] == held, why
    assert list(rest) == left, why
    assert all(one.claimant is CLAIM and one.row is rows[one.key] for one in kept)
    assert all(rest[key] is rows[key] for key in rest), "as the wide read saw it"


def test_claims_are_resolved_by_producer_and_partition() -> None:
    asked: list[tuple[str, int]] = []

    def nobody(topic_partition: str, one: OpenProducer) -> None:
        asked.append((topic_partition, one.producer_id))

    separate_by_claim({P: row(P, OWNED, STRANGER), ("q-r", 12): row(("q-r", 12), OWNED)}, (), nobody)
    assert asked == [("p-0", 7), ("p-0", 8), ("q-r-12", 7)]


# --- with a cluster ---------------------------------------------------------------------------------------------------


def separated(fake: FakeOld, always: Collection[Key] = ()) -> ClaimedAndUnclaimed:
    with connected(fake) as cluster:
        agreed = cluster.latest().agreed
        fake.asked.clear()
        fake.requests.clear()
        rows = {("data", i): row(("data", i), *fake.partitions["data", i].producers) for i in PRODUCER_IDS}
        return cluster.separate_by_claim(rows, always, agreed, no_progress, 0)


def test_claims_are_asked_for_without_metadata() -> None:
    fake = FakeOld({})
    for index in PRODUCER_IDS:
        fake.own(index, coordinator=1 + index)
    assert len(separated(fake).claimed) == 3
    assert {name for _, name in fake.asked} == {"ListTransactions", "DescribeTransactions"}
    assert list(separated(fake, always=[("data", 1)]).unclaimed) == [("data", 1)]


def test_a_claim_by_a_broker_that_led_the_log_before_the_plan_does_not_count() -> None:
    fake = FakeOld({})
    fake.own(0, coordinator=1)
    fake.partitions[STATE, 0] = FakePartition(2, 6)
    found = separated(fake)
    assert (found.claimed, set(found.unclaimed)) == ((), {("data", index) for index in PRODUCER_IDS})


def test_progress_counts_brokers() -> None:
    shown: list[tuple[int, int]] = []
    with connected(FakeOld({})) as cluster:
        agreed = cluster.latest([STATE]).agreed
        cluster.separate_by_claim({}, (), agreed, lambda *progress: shown.append(progress), 0)
    assert shown == [(1, 3), (2, 3), (3, 3)]


# --- a sweep ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Remembers(NoHistory):
    """Incidents that are open."""

    incidents: tuple[TransactionKey, ...] = ()
    sightings: dict[TransactionKey, Sighting] = field(default_factory=dict)

    def unresolved(self, cluster_id: str) -> Callable[[], dict[TransactionKey, Incident]]:
        return lambda: {which: Incident(1_600_000_000_000) for which in self.incidents}

    def last_seen(self, cluster_id: str) -> Callable[[], dict[TransactionKey, Sighting]]:
        return lambda: self.sightings


TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"


def incident(index: int, producer_id: int, start_offset: int = 100, topic_id: str = "") -> TransactionKey:
    return TransactionKey("data", topic_id, index, producer_id, start_offset)


@contextmanager
def recorded(fake: FakeOld) -> Iterator[Callable[[str], list[Any]]]:
    """The requests of one kind from now on."""
    start = len(fake.requests)
    yield lambda api: [r for r in fake.requests[start:] if api_name(r) == api]


def partitions_in(requests: list[Any], attribute: str) -> set[Key]:
    """The partitions of `data` in these requests."""
    return {
        (topic.name, getattr(one, attribute, one))
        for request in requests
        for topic in request.topics
        if topic.name == "data"
        for one in (topic.partitions if hasattr(topic, "partitions") else topic.partition_indexes)
    }


def test_a_claimed_transaction_causes_no_further_requests() -> None:
    """A proven read begins and ends with ListOffsets, and an outcome is read from the log."""
    fake = FakeOld({})
    fake.own(0, coordinator=1)
    with recorded(fake) as asked:
        found = swept_fake(fake)
    assert open_on(found) == {0: ("ongoing", "owned"), 1: ("hanging", "orphan"), 2: ("hanging", "orphan")}
    assert partitions_in(asked("ListOffsets"), "partition_index") == {("data", 1), ("data", 2)}
    assert all(100 not in request.producer_id_filters for request in asked("ListTransactions"))
    (held,) = [judged for judged in found.transactions if judged.observation.partition == 0]
    assert (held.observation.first.failure, held.observation.second.failure, held.known_outcome) == (
        CLAIMED,
        CLAIMED,
        None,
    )
    assert held.outcome is None
    assert ("data", 0) not in found.proven and {("data", 1), ("data", 2)} <= found.proven.keys()
    assert found.complete and found.errors == ()


def test_a_fully_claimed_sweep_proves_its_snapshot_and_reads_no_partition_again() -> None:
    """`complete` needs the coverage of a proven snapshot. An empty filter would list every id."""
    fake = FakeOld({})
    for index in PRODUCER_IDS:
        fake.own(index, coordinator=1 + index)
    with recorded(fake) as asked:
        found = swept_fake(fake)
    assert open_on(found) == dict.fromkeys(PRODUCER_IDS, ("ongoing", "owned"))
    assert (found.complete, found.coordinators_planned, found.coordinators_proven) == (True, 3, 3)
    assert found.proven == {}
    assert asked("ListOffsets") == [] and asked("Fetch") == []
    listings = asked("ListTransactions")
    proven = [request for request in listings if not request.state_filters]
    assert (len(listings), len(proven)) == (6, 3)
    assert all(request.producer_id_filters for request in proven)


def test_an_unproven_coordinator_makes_a_claimed_sweep_incomplete() -> None:
    fake = FakeOld({})
    for index in PRODUCER_IDS:
        fake.own(index, coordinator=1 + index)
    fake.probe_codes[2, 1] = int(ErrorCode.NOT_COORDINATOR)
    found = swept_fake(fake)
    assert open_on(found) == dict.fromkeys(PRODUCER_IDS, ("ongoing", "owned"))
    assert not found.complete and found.coordinators_proven == 2


def test_a_claimed_partition_with_an_incident_is_proven() -> None:
    """Only a proven read closes an incident. A claim alone does not."""
    fake = FakeOld({})
    fake.own(0, coordinator=1)
    with recorded(fake) as asked:
        found = swept_fake(fake, history=Remembers((incident(0, 55, 40),)))
    assert ("data", 0) in found.proven and ("data", 0) in partitions_in(asked("ListOffsets"), "partition_index")
    assert open_on(found)[0] == ("ongoing", "owned")
    (judged,) = [judged for judged in found.transactions if judged.observation.partition == 0]
    assert judged.observation.first.failure is None, "it is judged from the proven reads"


def test_a_claimed_neighbour_of_a_hanging_transaction_is_read_too() -> None:
    """The orphan hangs beside a claimed transaction: both are judged from a proven read of the partition."""
    fake = FakeOld({})
    fake.own(0, coordinator=1)
    fake.partitions["data", 0].producers.append(producer(55, 40))
    found = swept_fake(fake)
    on_it = [judged for judged in found.transactions if judged.observation.partition == 0]
    said = {judged.observation.producer_id: str(judged.judgement.verdict) for judged in on_it}
    assert said == {55: "hanging", 100: "ongoing"}
    assert all(j.observation.first.failure is None for j in found.transactions)


def test_a_claimed_partition_closes_no_incidents() -> None:
    """A partition of a recreated topic, or out of scope, has no proven read either."""
    fake = FakeOld({})
    fake.own(0, coordinator=1)
    found = swept_fake(fake, history=Remembers((TransactionKey("gone", "", 0, 55, 40),)))
    assert set(found.proven) == {("data", 1), ("data", 2)}


def test_a_claimed_transaction_keeps_its_first_sighting_at_the_same_offset_only() -> None:
    fake = FakeOld({})
    for index in PRODUCER_IDS:
        fake.own(index, coordinator=1 + index)
    plain = {j.observation.partition: j.observation for j in swept_fake(fake).transactions}
    topic_id = plain[0].topic_id
    long_ago = Sighting(1_600_000_000_000, 3)
    seen = {incident(0, 100, 100, topic_id): long_ago, incident(1, 101, 99, topic_id): long_ago}
    found = swept_fake(fake, history=Remembers(sightings=seen))
    first_seen = {j.observation.partition: j.observation.first_seen_ms for j in found.transactions}
    assert first_seen == {0: 1_600_000_000_000, 1: plain[1].first_seen_ms, 2: plain[2].first_seen_ms}


@pytest.mark.parametrize(
    ("held", "verdict"),
    [
        ({"state": "Ongoing"}, ("ongoing", "owned")),
        ({"state": "Ongoing", "start_time_ms": 1_600_000_000_000}, ("late_ongoing", "owned")),
        ({"state": "PrepareCommit"}, ("pending_marker", "decided")),
        ({"state": "PrepareAbort"}, ("pending_marker", "decided")),
    ],
)
def test_a_claimed_transaction_is_judged_by_the_same_rules(held: dict[str, Any], verdict: tuple[str, str]) -> None:
    fake = FakeOld({})
    name = fake.own(0, coordinator=1)
    fake.ids[1][name] = replace(fake.ids[1][name], **held)
    assert open_on(swept_fake(fake))[0] == verdict
    proven = swept_fake(fake, history=Remembers((incident(0, 55, 40),)))
    assert open_on(proven)[0] == verdict
