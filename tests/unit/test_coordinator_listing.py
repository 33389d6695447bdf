"""Coordinators: when the absence of an owner is proven (coverage, visibility), and the known owners."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin import ListTransactionsRequest

from tests.builders import failed, lacks, said
from tests.cases import Cases
from tests.fakes.cluster import FakeCluster, FakeId, FakePartition, lacking
from tests.fakes.coordinators import LEADERS, WHO, agree, log, take, tokens
from txnscan.coordinators.agreed_metadata import AgreedMetadata
from txnscan.coordinators.coordinator_listing import (
    COORDINATOR_PARTITIONS_MAX,
    CoordinatorAnswers,
    CoordinatorListing,
    ask_coordinators,
    conclude,
    strangers,
)
from txnscan.coordinators.visibility import Classes, Visibility
from txnscan.kafka.answers import CoordinatorView
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.failure import Failure, FailureCode, Permission, Unobserved
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition, probe_ids
from txnscan.kafka.protocol.describe_transactions import DescribedTransaction
from txnscan.kafka.protocol.frames import api_name
from txnscan.kafka.protocol.list_transactions import ListedTransaction
from txnscan.kafka.protocol.metadata import read_metadata
from txnscan.kafka.security.acls import explained
from txnscan.kafka.security.needs import DESCRIBE_IDS
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC as STATE
from txnscan.kafka.topology import ClusterView, Topic

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

OPEN: Mapping[int, frozenset[str]] = {7: frozenset()}
P = frozenset({"p"})
ALL = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
LISTED = ListedTransaction(7, "Ongoing")
REFUSED = lacks(DESCRIBE_IDS.permission, WHO)


def id_for(k: int) -> str:
    """A transactional id on partition k of four."""
    return next(name for n in itertools.count() if coordinator_partition(name := f"app-{n}", len(LEADERS)) == k)


@pytest.fixture
def cluster() -> FakeCluster:
    """Partitions 0 and 3 of `__transaction_state` are led by broker 1, 1 by broker 2, 2 by broker 3."""
    fake = FakeCluster()
    fake.lead(STATE, LEADERS)
    return fake


def shown_by(broker_id: int) -> ClusterView:
    """The broker's own Metadata of `__transaction_state`."""
    fake = FakeCluster()
    fake.lead(STATE, LEADERS)
    return read_metadata(fake.send, broker_id, [STATE])


def described_by(cluster: FakeCluster, topics: frozenset[str], **change: Callable[[], object]) -> str | None:
    """Why broker 1 may omit a partition of these topics from the description of its only id."""
    cluster.ids[1] = {id_for(0): FakeId(partitions=())}
    (view,) = take(cluster, topics=topics, **change).views
    return said(view.describe_failure, WHO)


def spoil_metadata(cluster: FakeCluster, spoil: Callable[[Any], object], broker_id: int = 1) -> None:
    """Edits the Metadata answer of one broker."""

    def edit(asked: int, answer: Any) -> Any:
        if asked == broker_id:
            spoil(answer)
        return answer

    cluster.edit["Metadata"] = edit


def refuse(*topics: str) -> Callable[[Any], object]:
    def spoil(answer: Any) -> None:
        for topic in answer.topics:
            if topic.name in topics:
                topic.error_code, topic.partitions = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), []

    return spoil


@pytest.mark.parametrize("nth", [1, 2], ids=["before", "after"])
def test_a_broker_that_hides_a_topic_does_not_prove_the_absence_of_its_partitions(
    cluster: FakeCluster, nth: int, wording: SnapshotAssertion
) -> None:
    """A DENY on the topic only before, or only after, the description of the ids."""
    cluster.lead("p", [1])
    seen = itertools.count(1)

    def edit(broker_id: int, answer: Any) -> Any:
        if any(topic.name == "p" for topic in answer.topics) and next(seen) == nth:
            refuse("p")(answer)
        return answer

    cluster.edit["Metadata"] = edit
    said = described_by(cluster, P)
    assert said is not None
    assert said == wording
    assert f"--allow-principal {WHO} --operation Describe --topic p" in said


@pytest.mark.parametrize("nth", [1, 2])
def test_a_broker_that_does_not_show_the_topics_proves_nothing(cluster: FakeCluster, nth: int) -> None:
    cluster.lead("p", [1])
    cluster.ids[1] = {id_for(0): FakeId()}
    seen = itertools.count(1)

    def fails(broker_id: int, request: Any, _: object) -> bool:
        shows_p = api_name(request) == "Metadata" and [topic.name for topic in request.topics] == ["p"]
        return broker_id == 1 and shows_p and next(seen) == nth

    cluster.fail_when = fails
    snapshot = take(cluster, topics=P)
    (view,) = snapshot.views
    assert (view.describe_failure is not None, view.coverage_failure is not None) == (True, True)
    assert uncovered(snapshot) == {0, 3}


def test_a_broker_that_does_not_know_yet_that_it_leads_covers_nothing(cluster: FakeCluster) -> None:
    """Its own Metadata has another leader, another leader epoch, or nothing at all."""
    with Cases() as cases:
        for which, old in (("leader", FakePartition(2, 5)), ("epoch", FakePartition(1, 4)), ("nothing", None)):
            with cases.case(which):
                agreed = agree(cluster)
                answers = [answers_of(b) for b in (1, 2, 3)]
                fake = FakeCluster()
                fake.lead(STATE, LEADERS)
                fake.partitions[STATE, 0] = old or FakePartition()
                own = None if old is None else read_metadata(fake.send, 1, [STATE])
                snapshot = conclude([replace(answers[0], own=own), *answers[1:]], agreed, agreed, WHO)
                assert uncovered(snapshot) == ({0} if old is not None else {0, 3})
                assert {one.failure.code for one in snapshot.coverage_errors} == {FailureCode.BROKER_BEHIND}


def test_a_broker_of_another_cluster_proves_nothing(cluster: FakeCluster) -> None:
    """An address may lead to a broker of the same number in a copy of the cluster."""
    agreed = AgreedMetadata((shown_by(3),), ())
    copied = replace(shown_by(1), cluster_id="copy")
    with Cases() as cases:
        for which, own, broker_ids in (("copy", copied, [1]), ("same", shown_by(1), []), ("silent", None, [])):
            with cases.case(which):
                answers = [replace(answers_of(1), own=own), answers_of(2), answers_of(3)]
                found = strangers(answers, agreed)
                assert [(one.broker, one.failure.code) for one in found] == [
                    (broker_id, FailureCode.BROKERS_DISAGREE) for broker_id in broker_ids
                ]
                assert {(one.stage, one.topic, one.partition) for one in found} <= {("metadata", None, None)}
                assert strangers(answers, AgreedMetadata((), ())) == ()


def test_a_broker_that_shows_no_leader_of_its_partition_covers_nothing(cluster: FakeCluster) -> None:
    """Its own Metadata lacks the topic, or has the partition without a leader."""
    agreed = agree(cluster)
    with Cases() as cases:
        for which, partitions, expected in (
            ("no topic", {}, {0, 3}),
            ("no leader", cluster.partitions | {(STATE, 0): FakePartition(-1, 5)}, {0}),
        ):
            with cases.case(which):
                fake = FakeCluster()
                fake.partitions = partitions
                own = read_metadata(fake.send, 1, [STATE])
                answers = [answers_of(1, own=own), answers_of(2), answers_of(3)]
                snapshot = conclude(answers, agreed, agreed, WHO)
                assert uncovered(snapshot) == expected
                assert {one.failure.code for one in snapshot.coverage_errors} == {FailureCode.BROKER_BEHIND}


def at_api(api: str) -> Callable[[int, Any, Any], bool]:
    return lambda broker_id, request, _: api_name(request) == api


def test_a_broker_that_fails_at_once_has_no_answers(cluster: FakeCluster) -> None:
    """At its own Metadata, or at its first probe."""
    unreachable = Failure("broker 1 cannot be reached", FailureCode.UNUSABLE_ANSWER)
    with Cases() as cases:
        for at, own in (("Metadata", None), ("DescribeTransactions", shown_by(1))):
            with cases.case(at):
                cluster.fail_when = at_api(at)
                found = ask_coordinators(cluster.send, 1, log(), {"probe": 0}, OPEN)
                assert found == CoordinatorAnswers(
                    1, own, {}, None, {}, {}, unreachable, None, visibility=found.visibility
                )
                assert found.visibility.probed == ()


def test_topics_hidden_by_another_broker_do_not_matter(cluster: FakeCluster) -> None:
    cluster.lead("p", [1])
    spoil_metadata(cluster, refuse("p"), broker_id=2)
    assert described_by(cluster, P) is None


def test_a_topic_without_open_transactions_may_be_hidden(cluster: FakeCluster) -> None:
    cluster.lead("p", [1])
    cluster.lead("q", [1])
    spoil_metadata(cluster, refuse("q"))
    assert described_by(cluster, P) is None


@pytest.mark.parametrize(
    ("errors", "hides"),
    [({}, False), ({"p": 3}, False), ({"p": 3, "q": 29}, True)],
    ids=["all shown", "one was deleted", "one was deleted and one is hidden"],
)
def test_a_deleted_topic_is_not_hidden(cluster: FakeCluster, errors: dict[str, int], hides: bool) -> None:
    cluster.lead("p", [1])
    cluster.lead("q", [1])
    cluster.topic_errors = errors
    assert (described_by(cluster, frozenset({"p", "q"})) is not None) is hides


@pytest.mark.parametrize("named", [False, True], ids=["not named", "named, without a partition"])
def test_a_topic_omitted_from_an_answer_may_be_hidden(
    cluster: FakeCluster, named: bool, wording: SnapshotAssertion
) -> None:
    cluster.lead("p", [1])

    def without_p(answer: Any) -> None:
        answer.topics = [topic for topic in answer.topics if named or topic.name != "p"]
        for topic in answer.topics:
            topic.partitions = [] if topic.name == "p" else topic.partitions

    spoil_metadata(cluster, without_p)
    assert described_by(cluster, P) == wording


def test_the_first_of_several_hidden_topics_is_named(cluster: FakeCluster, wording: SnapshotAssertion) -> None:
    topics = [f"t{n}" for n in range(9)]
    for topic in topics:
        cluster.lead(topic, [1])
        cluster.topic_errors[topic] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    said = described_by(cluster, frozenset(topics))
    assert said is not None
    assert said == wording


def answers_of(
    broker_id: int,
    codes: Mapping[int, int] | None = None,
    after: Mapping[int, int] | None = None,
    **changes: Any,
) -> CoordinatorAnswers:
    """The answers of a broker with its partitions cached and without ids. `codes` are errors of its probes."""
    well = {k: 105 if leader == broker_id else 16 for k, leader in enumerate(LEADERS)}
    before, later = well | dict(codes or {}), well | dict(codes or {} if after is None else after)
    answers = CoordinatorAnswers(broker_id, shown_by(broker_id), before, {}, {}, later, None, None, hides())
    return replace(answers, **changes)


CUT_OFF = failed("cut off")


def hidden_by(snapshot: CoordinatorListing) -> str | None:
    """The reasons for hidden ids, as text."""
    return "; ".join(explained(failure, WHO) for failure in snapshot.visibility_failures) or None


def hides(*sentences: str) -> Visibility:
    """A broker's view that hides ids for these reasons."""
    return Visibility(Classes(frozenset(), {}, frozenset(map(failed, sentences))))


def uncovered(snapshot: CoordinatorListing) -> set[int | None]:
    assert snapshot.coordinators_proven == snapshot.coordinators_planned - len(snapshot.coverage_errors)
    return {error.partition for error in snapshot.coverage_errors}


def after_the_listing(cluster: FakeCluster, change: Callable[[], object], broker_id: int = 1) -> None:
    """A change at this broker between its two probes."""

    def edit(asked: int, answer: Any) -> Any:
        if asked == broker_id:
            change()
        return answer

    cluster.edit["ListTransactions"] = edit


def only_metadata(broker_id: int) -> Callable[[int, Any, Any], bool]:
    return lambda asked, request, _: asked == broker_id and api_name(request) != "Metadata"


def leave_out(wanted: Callable[[str], bool]) -> Callable[[int, Any], Any]:
    def edit(broker_id: int, answer: Any) -> Any:
        answer.transaction_states = [s for s in answer.transaction_states if not wanted(s.transactional_id)]
        return answer

    return edit


# --- coverage ---------------------------------------------------------------------------------------------------------


def test_a_partition_is_proven_if_only_its_leader_serves_it_in_both_probes_and_lists_its_ids(
    cluster: FakeCluster,
) -> None:
    snapshot = take(cluster)
    assert (snapshot.coordinators_planned, snapshot.coordinators_proven) == (4, 4)
    assert snapshot.complete and snapshot.coverage_failure is None
    assert (snapshot.coverage_errors, snapshot.split_failures, snapshot.errors) == ((), (), ())


def test_the_listing_is_requested_between_two_rounds_of_the_same_probes(cluster: FakeCluster) -> None:
    cluster.ids = {1: {id_for(3): FakeId(7), id_for(0): FakeId(7)}}
    take(cluster)
    assert cluster.asked.count((1, "Metadata")) == 3, "by the two rounds, and its own: no topic was asked for besides"
    asked = [r for (b, name), r in zip(cluster.asked, cluster.requests, strict=True) if b == 1 and name != "Metadata"]
    rules, first, listing, described, second, rules_after = asked
    assert type(rules) is type(rules_after) and rules.permission_type == 1, "all rules: what allows may hide as well"
    assert first.transactional_ids == second.transactional_ids and len(first.transactional_ids) == 4
    assert (listing.state_filters, listing.producer_id_filters) == ([], [7]), "a state filter hides ids"
    assert described.transactional_ids == sorted([id_for(0), id_for(3)])


def probe_code(broker_id: int, k: int, code: int) -> Callable[[FakeCluster], None]:
    return lambda c: c.probe_codes.update({(broker_id, k): code})


def later(broker_id: int, k: int, code: int) -> Callable[[FakeCluster], None]:
    return lambda c: after_the_listing(c, lambda: c.probe_codes.update({(broker_id, k): code}), broker_id)


def first_only_then_well(c: FakeCluster) -> None:
    c.probe_codes[1, 0] = 16
    after_the_listing(c, lambda: c.probe_codes.clear())


def left_out(c: FakeCluster) -> None:
    c.edit["DescribeTransactions"] = leave_out(lambda name: coordinator_partition(name, 4) == 0)


def stale(c: FakeCluster) -> None:
    c.believes[3] = FakeCluster()
    c.believes[3].partitions = c.partitions | {(STATE, 0): FakePartition(2, 4)}


def fails(broker_id: int) -> Callable[[FakeCluster], None]:
    return lambda c: setattr(c, "fail_when", only_metadata(broker_id))


@pytest.mark.parametrize(
    ("spoil", "expected", "why"),
    [
        (probe_code(1, 0, 14), {0}, "the leader is still loading it"),
        (probe_code(1, 0, 15), {0}, "the coordinator is not active"),
        (probe_code(1, 0, 16), {0}, "the leader does not have it cached"),
        (probe_code(1, 0, 9999), {0}, "an unlisted code is no success"),
        (later(1, 0, 16), {0}, "only the first probe was answered"),
        (later(1, 0, 14), {0}, "it began to load after the listing"),
        (first_only_then_well, {0}, "only the second probe was answered"),
        (left_out, {0}, "the probe is missing in the answer"),
        (lambda c: c.list_errors.update({1: 14}), {0, 3}, "a listing error is one of all that the broker leads"),
        (fails(1), {0, 3}, "the broker answers Metadata and nothing else"),
        (lambda c: c.unreachable.add(2), {0, 1, 2, 3}, "a broker that others name has not said who leads"),
        (stale, {0}, "the brokers do not agree on the leader"),
        (lambda c: setattr(c.partitions[STATE, 2], "leader", -1), {2}, "nobody leads it"),
        (probe_code(2, 0, 105), {0}, "another broker serves it"),
        (probe_code(2, 0, 14), {0}, "another broker is loading it: it was just elected"),
        (later(3, 0, 105), {0}, "another broker serves it at its second probe"),
        (later(3, 0, 14), {0}, "another broker began to load it"),
    ],
)
def test_a_partition_without_a_consistent_coordinator_and_listing_is_not_covered(
    cluster: FakeCluster, spoil: Callable[[FakeCluster], None], expected: set[int], why: str
) -> None:
    spoil(cluster)
    snapshot = take(cluster)
    assert uncovered(snapshot) == expected, why
    assert not snapshot.complete and snapshot.coverage_failure


@pytest.mark.parametrize("change", [{"leader": 2}, {"epoch": 6}, {"leader": -1}])
def test_a_partition_that_moved_between_the_two_rounds_of_metadata_is_not_covered(
    cluster: FakeCluster, change: dict[str, int]
) -> None:
    def move() -> None:
        old = cluster.partitions[STATE, 0]
        cluster.partitions[STATE, 0] = FakePartition(change.get("leader", old.leader), change.get("epoch", old.epoch))

    assert uncovered(take(cluster, meanwhile=move)) == {0}


def test_a_leader_that_was_not_asked_covers_no_partition(cluster: FakeCluster) -> None:
    agreed = agree(cluster)
    probes = probe_ids(4, map(str, itertools.count()).__next__)
    answers = [ask_coordinators(cluster.send, b, log(), probes, OPEN) for b in (2, 3)]
    assert uncovered(conclude(answers, agreed, agreed, WHO)) == {0, 3}


def test_two_brokers_that_serve_one_partition_are_a_split(cluster: FakeCluster, wording: SnapshotAssertion) -> None:
    cluster.cached[2].add(0)
    assert tuple(map(said, take(cluster).split_failures)) == wording


def test_the_first_of_several_rival_coordinators_is_reported(cluster: FakeCluster) -> None:
    cluster.cached[2].add(0)
    cluster.cached[3].add(0)
    (error,) = take(cluster).coverage_errors
    assert said(error.failure) == f"broker 2 claims {STATE}-0 as well"


@pytest.mark.parametrize(
    ("spoil", "broker", "told"),
    [
        (left_out, 1, f"broker 1 answered nothing for {STATE}-0"),
        (probe_code(1, 0, 16), 1, f"broker 1 answered NOT_COORDINATOR for {STATE}-0"),
        (stale, None, f"brokers disagree on who leads {STATE}-0"),
    ],
)
def test_an_uncovered_partition_is_reported_with_its_broker_if_known(
    cluster: FakeCluster, spoil: Callable[[FakeCluster], None], broker: int | None, told: str
) -> None:
    spoil(cluster)
    (error,) = take(cluster).coverage_errors
    assert (error.stage, error.broker, error.topic, error.partition) == ("snapshot", broker, STATE, 0)
    assert said(error.failure) == told


def test_errors_are_sorted_by_broker_id(cluster: FakeCluster) -> None:
    answers = [answers_of(b, failure=CUT_OFF, visibility=hides(f"h{b}")) for b in (3, 1, 2)]
    snapshot = conclude(answers, agree(cluster), agree(cluster), WHO)
    assert [error.broker for error in snapshot.errors] == [1, 2, 3]
    assert list(map(said, snapshot.visibility_failures)) == ["h1", "h2", "h3"]


def test_the_reason_for_missing_coverage_includes_the_number_of_partitions(cluster: FakeCluster) -> None:
    cluster.list_errors[1] = 14
    snapshot = take(cluster)
    told = "broker 1 answered ListTransactions with COORDINATOR_LOAD_IN_PROGRESS"
    assert said(snapshot.coverage_failure) == f"{told} (and 1 more partitions of {STATE})"
    assert [(e.stage, e.broker, said(e.failure)) for e in snapshot.errors] == [("snapshot", 1, told)]


def test_the_reason_for_missing_coverage_is_that_of_the_first_partition(cluster: FakeCluster) -> None:
    cluster.probe_codes = {(1, 3): 16, (1, 0): 14}
    failure = take(cluster).coverage_failure
    assert failure is not None
    told = f"broker 1 answered COORDINATOR_LOAD_IN_PROGRESS for {STATE}-0 (and 1 more partitions of {STATE})"
    assert (said(failure), failure.code) == (told, "COORDINATOR_LOAD_IN_PROGRESS")


def test_a_probe_without_a_usable_answer_has_the_code_of_its_error(cluster: FakeCluster) -> None:
    with Cases() as cases:
        for before, code in (
            ({0: 14, 3: 105}, "COORDINATOR_LOAD_IN_PROGRESS"),
            ({0: 16, 3: 105}, "NOT_COORDINATOR"),
            ({3: 105}, FailureCode.LEFT_OUT),
        ):
            with cases.case(code):
                answers = [answers_of(1, before=before), answers_of(2), answers_of(3)]
                (error,) = conclude(answers, agree(cluster), agree(cluster), WHO).coverage_errors
                assert (error.failure.code, error.broker, error.partition) == (code, 1, 0)


def test_a_snapshot_is_complete_if_all_coordinators_are_proven_and_no_id_is_hidden() -> None:
    with Cases() as cases:
        for proven, failures, complete in (
            (4, (), True),
            (3, (), False),
            (4, (CUT_OFF,), False),
            (3, (CUT_OFF,), False),
        ):
            with cases.case(f"{proven=} {failures=}"):
                assert CoordinatorListing((), 4, proven, visibility_failures=failures).complete is complete


def test_a_snapshot_may_improve_if_there_are_coordinators_and_no_api_is_lacking() -> None:
    cut_off, lacking_api = (Unobserved("snapshot", failed("no", lacks_api=api)) for api in (None, "ListTransactions"))
    with Cases() as cases:
        for planned, errors, improves in (
            (4, (cut_off,), True),
            (4, (lacking_api, cut_off), True),
            (4, (lacking_api,), False),
            (4, (), False),
            (0, (cut_off,), False),
        ):
            with cases.case(f"{planned=} {errors=}"):
                assert CoordinatorListing((), planned, 0, coverage_errors=errors).may_improve is improves


def test_a_missing_api_is_reported_for_the_broker_and_its_partitions(cluster: FakeCluster) -> None:
    cluster.edit["ListTransactions"] = lacking(2, "ListTransactions")
    snapshot = take(cluster)
    told = "broker 2 lacks an API of Kafka 3.0 and newer: it does not support ListTransactions"
    failure = Failure(told, "UNSUPPORTED_VERSION", "ListTransactions")
    assert snapshot.errors == (Unobserved("snapshot", failure, 2),)
    assert snapshot.coverage_errors == (Unobserved("snapshot", failure, 2, STATE, 1),)


SPOILS = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.integers(0, 3),
        st.sampled_from(["before", "after", "listed", "error", "stale", "moved"]),
        st.sampled_from([0, 105, 14, 15, 16, 53, -1, None]),
    ),
    max_size=4,
)


@given(SPOILS)
def test_a_partition_is_proven_exactly_if_its_leader_alone_serves_it_in_both_probes_and_lists_its_ids(
    spoils: list[tuple[int, int, str, int | None]],
) -> None:
    cluster, later_cluster = FakeCluster(), FakeCluster()
    cluster.lead(STATE, LEADERS)
    later_cluster.lead(STATE, LEADERS)
    codes: dict[str, dict[int, dict[int, int]]] = {
        name: {b: {k: 105 if LEADERS[k] == b else 16 for k in range(4)} for b in (1, 2, 3)}
        for name in ("before", "after")
    }
    silent, failed, unsettled = set(), set(), set()
    for b, k, what, code in spoils:
        if what in codes and code is not None:
            codes[what][b][k] = code
        elif what in codes:
            codes[what][b].pop(k, None)
        elif what == "listed":
            silent.add(b)
        elif what == "error":
            failed.add(b)
        elif what == "stale":
            stale_one = cluster.believes.setdefault(b, FakeCluster())
            stale_one.partitions = cluster.partitions | stale_one.partitions | {(STATE, k): FakePartition(b, 1)}
            unsettled.add(k)
        else:
            later_cluster.partitions[STATE, k] = FakePartition(b, 6)
            unsettled.add(k)
    answers = [
        replace(
            answers_of(b),
            before=codes["before"][b],
            listed=None if b in silent else {},
            after=codes["after"][b],
            failure=CUT_OFF if b in failed | silent else None,
        )
        for b in (1, 2, 3)
    ]
    snapshot = conclude(answers, agree(cluster), agree(later_cluster), WHO)

    def proven(k: int) -> bool:
        leader = LEADERS[k]
        others = [codes[round_][b].get(k) for round_ in codes for b in (1, 2, 3) if b != leader]
        serves = codes["before"][leader].get(k) in (0, 105) and codes["after"][leader].get(k) in (0, 105)
        answered = leader not in silent | failed and k not in unsettled
        return serves and answered and not {0, 14, 105} & set(others)

    assert uncovered(snapshot) == {k for k in range(4) if not proven(k)}
    if snapshot.coordinators_proven == snapshot.coordinators_planned:
        assert all(proven(k) for k in range(4))


# --- visibility (more of it in test_visibility.py) --------------------------------------------------------------------


def at(broker_id: int) -> Callable[[int, str], bool]:
    return lambda asked, name: asked == broker_id


def hide(broker_id: int) -> Callable[[FakeCluster], None]:
    return lambda c: setattr(c, "hides", at(broker_id))


def hide_later(broker_id: int) -> Callable[[FakeCluster], None]:
    return lambda c: after_the_listing(c, lambda: hide(broker_id)(c), broker_id)


@pytest.mark.parametrize("spoil", [hide(2), hide_later(2)], ids=["first probes", "second probes"])
def test_a_probe_refused_by_any_broker_may_hide_ids(cluster: FakeCluster, spoil: Callable[[FakeCluster], None]) -> None:
    spoil(cluster)
    snapshot = take(cluster)
    assert hidden_by(snapshot) == REFUSED
    assert not snapshot.complete


def test_a_refused_probe_is_reported_once_with_its_grant(cluster: FakeCluster) -> None:
    cluster.hides = lambda broker_id, name: name.startswith("probe")
    cluster.ids = {1: {id_for(0): FakeId(7)}}
    snapshot = take(cluster)
    assert (snapshot.coordinators_proven, snapshot.coverage_errors, snapshot.errors) == (0, (), ())
    assert hidden_by(snapshot) == REFUSED
    (view,) = snapshot.views
    told = f"broker 1 answered TRANSACTIONAL_ID_AUTHORIZATION_FAILED for {STATE}-0"
    assert said(view.coverage_failure, WHO) == f"{told}: {REFUSED}", "an id that is seen is not proven to be seen whole"


def test_a_refused_probe_of_a_visible_class_indicates_a_change(
    cluster: FakeCluster, wording: SnapshotAssertion
) -> None:
    cluster.probe_codes[2, 0] = 53
    tokens = sorted(f"probe-{n}" for n in range(20))
    assert coordinator_partition(tokens[0], 4) != 0, "else it is the one that stands for the class"
    snapshot = take(cluster)
    assert hidden_by(snapshot) == wording
    assert uncovered(snapshot) == set(), "the partition's own leader was not the one that refused"


def test_a_refused_probe_without_other_answers_leaves_its_partition_uncovered(
    cluster: FakeCluster,
) -> None:
    assert 0 in uncovered(conclude([answers_of(1, {0: 53})], agree(cluster), agree(cluster), WHO))


def nothing(c: FakeCluster) -> None:
    """No failure."""


@pytest.mark.parametrize(
    ("spoil", "answer", "told", "why"),
    [
        (nothing, answers_of(1, {0: 53}), False, "refused in both probes: told with what to grant"),
        (nothing, answers_of(1, {0: 53}, after={}), False, "refused in the first"),
        (nothing, answers_of(1, {}, after={0: 53}), False, "refused in the second"),
        (nothing, answers_of(1, {0: 16}), True, "not refused: the visibility error says nothing of it"),
        (nothing, answers_of(1, {0: 53}, failure=CUT_OFF), True, "a broker that failed is a matter of coverage"),
        (nothing, None, True, "so is one that was not asked"),
        (stale, answers_of(1, {0: 53}), True, "so is one that is not known to lead"),
    ],
)
def test_other_failures_are_reported_beside_refusals(
    cluster: FakeCluster,
    spoil: Callable[[FakeCluster], None],
    answer: CoordinatorAnswers | None,
    told: bool,
    why: str,
) -> None:
    spoil(cluster)
    others = [answers_of(2, visibility=hides(REFUSED)), answers_of(3)]
    snapshot = conclude([*([answer] if answer else []), *others], agree(cluster), agree(cluster), WHO)
    assert (hidden_by(snapshot), snapshot.coordinators_proven < 4) == (REFUSED, True)
    assert (0 in {error.partition for error in snapshot.coverage_errors}) is told, why


@pytest.mark.parametrize(("code", "ending"), [(53, f"for {STATE}-0: first"), (16, f"for {STATE}-0")])
def test_only_a_refusal_is_reported_with_the_first_remedy_of_its_broker(
    cluster: FakeCluster, code: int, ending: str
) -> None:
    listed = {id_for(0): LISTED}
    answers = [
        answers_of(1, {0: code}, listed=listed, visibility=hides("first", "second")),
        answers_of(2),
        answers_of(3),
    ]
    (view,) = conclude(answers, agree(cluster), agree(cluster), WHO).views
    assert str(view.coverage_failure).endswith(ending)


def test_each_listed_and_undescribed_id_is_shown_with_the_reason(cluster: FakeCluster) -> None:
    listed = dict.fromkeys((id_for(0), id_for(1)), LISTED)
    answers = [answers_of(1, listed=listed), answers_of(2), answers_of(3)]
    views = conclude(answers, agree(cluster), agree(cluster), WHO).views
    left_out = "broker 1 left the id out of its answer"
    assert {view.transactional_id: said(view.describe_failure) for view in views} == dict.fromkeys(listed, left_out)


def test_reasons_of_two_brokers_are_reported_once_each(cluster: FakeCluster) -> None:
    cluster.rules = {1: None, 3: None}
    cluster.hides = lambda broker_id, name: broker_id in (1, 2)
    error = str(hidden_by(take(cluster)))
    assert error.count(REFUSED) == 1
    assert error.count("answered DescribeAcls with CLUSTER_AUTHORIZATION_FAILED") == 2


def test_a_missing_listing_affects_coverage_and_not_visibility(cluster: FakeCluster) -> None:
    cluster.fail_when = only_metadata(1)
    snapshot = take(cluster)
    assert hidden_by(snapshot) is None
    assert uncovered(snapshot) == {0, 3}


# --- the views --------------------------------------------------------------------------------------------------------


def views(cluster: FakeCluster, **ids: FakeId) -> tuple[CoordinatorView, ...]:
    """The views when the coordinator of partition 0 has these ids. `x` becomes an id of partition 0."""
    cluster.ids = {1: {id_for(0) if name == "x" else name: held for name, held in ids.items()}}
    return take(cluster).views


def test_a_view_has_the_described_fields(cluster: FakeCluster) -> None:
    (view,) = views(cluster, x=FakeId(7, 4, "PrepareCommit", (("q", 1), ("p-x", 0))))
    assert view == CoordinatorView(
        transactional_id=id_for(0),
        broker_id=1,
        producer_id=7,
        producer_epoch=4,
        state="PrepareCommit",
        timeout_ms=60_000,
        start_time_ms=1_700_000_000_000,
        partitions=("p-x-0", "q-1"),
    )


@pytest.mark.parametrize("code", [14, 15, 16, 53, -1, 9999])
def test_an_undescribed_id_keeps_its_listed_producer_id(cluster: FakeCluster, code: int) -> None:
    (view,) = views(cluster, x=FakeId(7, error=code))
    assert (view.producer_id, view.state, view.partitions) == (7, "", ())
    assert str(view.describe_failure).startswith("broker 1 answered ")


def test_an_id_omitted_from_the_description_keeps_its_listed_producer_id(
    cluster: FakeCluster, wording: SnapshotAssertion
) -> None:
    cluster.edit["DescribeTransactions"] = leave_out(lambda name: name == id_for(0))
    (view,) = views(cluster, x=FakeId(7))
    assert view.producer_id == 7
    assert said(view.describe_failure, WHO) == wording


def test_ids_of_a_broker_failing_after_its_listing_keep_their_producer_ids(
    cluster: FakeCluster,
) -> None:
    cluster.fail_when = lambda b, request, _: getattr(request, "transactional_ids", None) == [id_for(0)]
    (view,) = views(cluster, x=FakeId(7))
    assert (view.producer_id, str(view.describe_failure), str(view.coverage_failure)) == (
        7,
        *["broker 1 cannot be reached"] * 2,
    )


def test_an_id_not_found_after_its_listing_is_absent(cluster: FakeCluster) -> None:
    assert views(cluster, x=FakeId(7, error=105)) == ()
    assert take(cluster).coordinators_proven == 4


def test_an_id_with_a_new_producer_id_is_shown_under_the_new_one(cluster: FakeCluster) -> None:
    (view,) = views(cluster, x=FakeId(9, 0, "CompleteCommit", listed_producer_id=7))
    assert (view.producer_id, view.producer_epoch, view.describe_failure) == (9, 0, None)


@pytest.mark.parametrize("filters", [True, False], ids=["by the filter", "by brokers that do not know it"])
def test_ids_without_an_open_producer_id_are_neither_described_nor_shown(cluster: FakeCluster, filters: bool) -> None:
    """ListTransactions v0 has the filter. An answer may still have more ids."""
    if not filters:
        cluster.edit["ListTransactions"] = lambda b, answer: cluster._answer_ListTransactions(b, ALL)
    assert [v.transactional_id for v in views(cluster, a=FakeId(8), x=FakeId(7), b=FakeId(9))] == [id_for(0)]
    asked = {name for r in cluster.requests for name in getattr(r, "transactional_ids", ())}
    assert not asked & {"a", "b"}


def test_without_open_transactions_no_id_is_listed_and_coverage_is_proven(cluster: FakeCluster) -> None:
    """An empty filter would list every id."""
    cluster.ids = {1: {id_for(0): FakeId(7)}}
    agreed, probes = agree(cluster), probe_ids(len(LEADERS), map("probe-{}".format, itertools.count()).__next__)
    cluster.requests.clear()
    answers = [ask_coordinators(cluster.send, b, log(), probes, {}) for b in (1, 2, 3)]
    snapshot = conclude(answers, agreed, agreed, WHO)
    assert (snapshot.views, snapshot.complete) == ((), True)
    filters = [r.producer_id_filters for r in cluster.requests if api_name(r) == "ListTransactions"]
    assert filters == [[-1]] * 3


def test_an_id_on_two_brokers_is_two_views(cluster: FakeCluster) -> None:
    cluster.ids = {1: {id_for(0): FakeId(7, 3)}, 2: {id_for(0): FakeId(7, 2)}}
    snapshot = take(cluster)
    assert [(v.broker_id, v.producer_epoch) for v in snapshot.views] == [(1, 3), (2, 2)]


def test_views_are_sorted_by_producer_id_transactional_id_and_broker(cluster: FakeCluster) -> None:
    a, b = DescribedTransaction(0, producer_id=7), DescribedTransaction(0, producer_id=9)
    held = {"y": a, "x": b, "w": a}
    answers = [answers_of(n, listed=dict.fromkeys(held, LISTED), described=held) for n in (3, 1)]
    views = conclude(answers, agree(cluster), agree(cluster), WHO).views
    assert [(v.producer_id, v.transactional_id, v.broker_id) for v in views] == [
        (7, "w", 1),
        (7, "w", 3),
        (7, "y", 1),
        (7, "y", 3),
        (9, "x", 1),
        (9, "x", 3),
    ]


def test_an_omitted_id_is_reported_as_omitted_despite_a_hidden_topic(
    cluster: FakeCluster, wording: SnapshotAssertion
) -> None:
    answers = [answers_of(1, listed={"x": LISTED})]
    (view,) = conclude(answers, agree(cluster), agree(cluster), WHO).views
    assert said(view.describe_failure, WHO) == wording


def test_a_view_has_the_failures_of_its_own_log_partition(cluster: FakeCluster) -> None:
    cluster.cached[2].add(0)
    cluster.ids = {1: {id_for(0): FakeId(7), id_for(3): FakeId(7)}}
    by_id = {view.transactional_id: view for view in take(cluster).views}
    assert "claims" in str(by_id[id_for(0)].coverage_failure)
    assert "brokers 1, 2" in str(by_id[id_for(0)].split_failure)
    assert (by_id[id_for(3)].coverage_failure, by_id[id_for(3)].split_failure) == (None, None)


def answer_twice(wanted: Callable[[Any], bool], **first: Any) -> Callable[[int, Any], Any]:
    """An edit that inserts another answer for the same id."""

    def edit(broker_id: int, answer: Any) -> Any:
        extra = [type(s)(transactional_id=s.transactional_id, **first) for s in answer.transaction_states if wanted(s)]
        answer.transaction_states = [*extra, *answer.transaction_states]
        return answer

    return edit


@pytest.mark.parametrize("listed", [(7, 8), (8, 7)])
def test_an_id_listed_with_two_producer_ids_keeps_both(cluster: FakeCluster, listed: tuple[int, int]) -> None:
    first, second = listed
    cluster.ids = {1: {id_for(0): FakeId(second, listed_producer_id=7)}}

    def edit(broker_id: int, answer: Any) -> Any:
        for one in answer.transaction_states:
            one.producer_id = second
        return answer_twice(lambda s: True, producer_id=first, transaction_state="Ongoing")(broker_id, answer)

    cluster.edit["ListTransactions"] = edit
    snapshot = take(cluster)
    assert snapshot.views or snapshot.coverage_errors, "else an owner of producer id 7 was seen and forgotten"


def test_a_probe_answered_twice_proves_no_coordinator(cluster: FakeCluster) -> None:
    cluster.edit["DescribeTransactions"] = answer_twice(
        lambda s: coordinator_partition(s.transactional_id, 4) == 0, error_code=16
    )
    assert uncovered(take(cluster)) == {0}


def test_an_id_described_twice_is_undescribed(cluster: FakeCluster) -> None:
    cluster.edit["DescribeTransactions"] = answer_twice(
        lambda s: s.transactional_id == id_for(0), error_code=0, transaction_state="Ongoing", producer_id=7
    )
    assert all(view.describe_failure for view in views(cluster, x=FakeId(7, 9, "Empty")))


@pytest.mark.parametrize("step", ["ListTransactions", "DescribeTransactions"])
def test_null_instead_of_ids_leaves_the_partitions_of_the_broker_uncovered(cluster: FakeCluster, step: str) -> None:
    def nothing(broker_id: int, answer: Any) -> Any:
        answer.transaction_states = None if broker_id == 1 else answer.transaction_states
        return answer

    cluster.edit[step] = nothing
    assert uncovered(take(cluster)) == {0, 3}


def test_null_instead_of_partitions_leaves_the_id_undescribed(cluster: FakeCluster) -> None:
    def nothing(broker_id: int, answer: Any) -> Any:
        for state in answer.transaction_states:
            state.topics = None
        return answer

    cluster.edit["DescribeTransactions"] = nothing
    assert all(view.describe_failure for view in views(cluster, x=FakeId(7, 4, "PrepareCommit", (("p", 0),))))


# --- without `__transaction_state` -----------------------------------------------------------------------------------


def test_without_a_transaction_state_topic_absence_is_not_proven() -> None:
    snapshot = take(FakeCluster())
    assert (snapshot.coordinators_planned, snapshot.coordinators_proven, snapshot.views) == (0, 0, ())
    assert said(snapshot.coverage_failure) == f"{STATE}: UNKNOWN_TOPIC_OR_PARTITION"


def add_a_partition(cluster: FakeCluster) -> None:
    cluster.partitions[STATE, 4] = FakePartition(1)


@pytest.mark.parametrize(
    ("before", "meanwhile", "planned", "error"),
    [
        (
            lambda c: c.topic_errors.update({STATE: 29}),
            lambda c: None,
            1,
            f"{STATE}: TOPIC_AUTHORIZATION_FAILED: " + lacks(Permission("Describe", "Topic", STATE), WHO),
        ),
        (
            lambda c: None,
            add_a_partition,
            5,
            f"the partition count of {STATE} changed during the sweep",
        ),
        (
            lambda c: c.unreachable.update({1, 2, 3}),
            lambda c: None,
            1,
            "not every broker said who leads it: broker 1 cannot be reached",
        ),
    ],
    ids=["not authorised", "partition count changed", "nobody answers"],
)
def test_an_unknown_number_of_coordinators_makes_the_snapshot_incomplete(
    cluster: FakeCluster,
    before: Callable[[FakeCluster], object],
    meanwhile: Callable[[FakeCluster], object],
    planned: int,
    error: str,
) -> None:
    before(cluster)
    snapshot = take(cluster, meanwhile=lambda: meanwhile(cluster))
    assert (snapshot.coordinators_planned, snapshot.coordinators_proven) == (planned, 0)
    assert (said(snapshot.coverage_failure, WHO), snapshot.complete) == (error, False)
    assert [(one.topic, said(one.failure, WHO)) for one in snapshot.coverage_errors] == [(STATE, error)]
    assert [(one.stage, one.broker, one.partition) for one in snapshot.coverage_errors] == [("snapshot", None, None)]


def test_too_many_coordinators_are_not_asked() -> None:
    """Whether the number is the largest that is asked, or one more, and changes."""

    def showing(count: int) -> AgreedMetadata:
        topic = Topic(STATE, "", (*range(count),), (1,) * count, (5,) * count)
        return AgreedMetadata((replace(shown_by(1), topics=(topic,)),), ())

    most = COORDINATOR_PARTITIONS_MAX
    with Cases() as cases:
        for before, after, code in (
            (most, most + 1, FailureCode.BROKERS_DISAGREE),
            (most + 1, most + 1, FailureCode.NOT_ASKED),
            (most + 1, most, FailureCode.NOT_ASKED),
        ):
            with cases.case(f"{before}, then {after}"):
                snapshot = conclude([], showing(before), showing(after), WHO)
                assert [(one.stage, one.broker, one.topic, one.failure.code) for one in snapshot.coverage_errors] == [
                    ("snapshot", None, STATE, code)
                ]


def test_a_partition_count_that_grew_from_one_is_reported() -> None:
    cluster = FakeCluster()
    cluster.lead(STATE, [1])
    snapshot = take(cluster, meanwhile=lambda: cluster.lead(STATE, [1, 1]))
    assert said(snapshot.coverage_failure) == f"the partition count of {STATE} changed during the sweep"


def test_failures_of_brokers_are_reported_without_coordinators() -> None:
    cluster = FakeCluster()
    cluster.rules[2] = None
    cluster.list_errors[1] = 14
    snapshot = take(cluster)
    assert [error.broker for error in snapshot.errors] == [1]
    assert "broker 2 answered DescribeAcls" in str(snapshot.visibility_failures)


def test_a_topic_missing_at_one_broker_and_forbidden_at_another_is_not_absent(cluster: FakeCluster) -> None:
    cluster.topic_errors[STATE] = 29
    cluster.believes[1] = FakeCluster()
    assert not take(cluster).complete


# --- the broker's own image -------------------------------------------------------------------------------------------


def test_a_broker_is_asked_for_its_own_metadata_unless_its_image_has_the_plan(cluster: FakeCluster) -> None:
    plan = shown_by(2)
    with Cases() as cases:
        for why, views, offsets, shown_by_offset, is_known in (
            ("it reported more", (plan,), {1: 12, 2: 9}, 11, True),
            ("it reported as much", (plan,), {1: 11, 2: 9}, 11, True),
            ("it reported less", (plan,), {1: 10, 2: 10}, 11, False),
            ("it reported nothing", (plan,), {2: 11}, 11, False),
            ("the plan's offset is not known", (plan,), {1: 12, 2: 12}, None, False),
            ("outside KRaft mode", (plan, shown_by(1)), {}, None, False),
            ("no broker answered", (), {1: 12}, 11, False),
        ):
            with cases.case(why):
                agreed = AgreedMetadata(views, (), offsets, shown_by_offset=shown_by_offset)
                assert agreed.reached_by(1) is (plan if is_known else None)
                cluster.asked.clear()
                probes = probe_ids(len(LEADERS), tokens())
                answers = ask_coordinators(cluster.send, 1, log(), probes, {}, agreed.reached_by(1))
                assert cluster.asked.count((1, "Metadata")) == (not is_known)
                assert answers.own is not None
