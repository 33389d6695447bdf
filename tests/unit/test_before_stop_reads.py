"""What `check --before-stop` reads, what it does if an answer is missing, and when both images agree."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from kafka.protocol.admin import DescribeConfigsResponse, DescribeTopicPartitionsResponse, ListGroupsResponse
from kafka.protocol.metadata import ApiVersionsResponse

from tests.builders import NOW_MS
from tests.cases import Cases
from tests.fakes.cluster import FakeCluster, FakeFactory, FakeId, lacking, no_progress, producer
from txnscan import ConfigError, ScanConfig
from txnscan.coordinators.cluster import Cluster, ClusterUnreachable
from txnscan.engine.threads import ThreadsEngine
from txnscan.kafka.answers import OpenProducer
from txnscan.kafka.client.deadline import Deadline
from txnscan.kafka.client.factory import ClientFactory
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.topology import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, Broker, Key
from txnscan.report.before_stop import before_stop_object, print_before_stop, waits_for
from txnscan.sweeps.before_stop import BeforeStop, read_before_stop, wait_until_safe
from txnscan.waiting.before_stop import RECENT_MS, StopVerdict

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

CONFIG = DescribeConfigsResponse.DescribeConfigsResult
TOPIC = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
LEVEL_4_2, LEVEL_4_3 = 29, 30
SOLO, PAIR, WHOLE = ("solo", 0), ("pair", 0), ("whole", 0)
LOG, OFFSETS = (TRANSACTION_STATE_TOPIC, 0), (CONSUMER_OFFSETS_TOPIC, 0)
SAFE, UNSAFE, NOT_OBSERVED = StopVerdict.SAFE, StopVerdict.UNSAFE, StopVerdict.NOT_OBSERVED
Change = Callable[["Fake"], None]


class Fake(FakeCluster):
    """Three brokers. solo is on broker 3, pair on 1 and 3, the others on all. Broker 3 stops in these tests.

    in_sync: other in-sync replicas. settings: by topic and setting.
    """

    deadline = Deadline()

    def __init__(self) -> None:
        super().__init__()
        self.replicas: dict[Key, tuple[int, ...]] = {
            SOLO: (3,), PAIR: (1, 3), WHOLE: (1, 2, 3), LOG: (1, 2, 3), OFFSETS: (3, 1, 2)
        }  # fmt: skip
        for (topic, _), (leader, *_) in self.replicas.items():
            self.lead(topic, [leader])
        self.in_sync: dict[Key, tuple[int, ...]] = {}
        self.eligible: dict[Key, tuple[int, ...]] = {}
        self.minimum = {
            "solo": "1",
            "pair": "2",
            "whole": "2",
            TRANSACTION_STATE_TOPIC: "2",
            CONSUMER_OFFSETS_TOPIC: "1",
        }
        self.unclean: dict[str, str] = {}
        self.level = LEVEL_4_3
        self.fetched_ms = {1: NOW_MS, 2: NOW_MS, 3: NOW_MS}
        self.groups: tuple[str, ...] = ()
        self.images_shown = 0
        self.before_image: Callable[[int], None] = lambda number: None

    def send(self, broker_id: int, request: Any) -> Any:
        return super().send(abs(broker_id), request)

    def learn(self, brokers: Iterable[Broker]) -> None:
        """Ignores addresses."""

    def open(self, key: Key, *producers: OpenProducer, listed: tuple[Key, ...] | None = None) -> None:
        """These producers on a partition. Ids of those with a transaction are at broker 1, which lists `listed`."""
        self.partitions[key].producers = list(producers)
        for one in producers:
            if one.start_offset >= 0:
                held = FakeId(one.producer_id, one.producer_epoch, partitions=(key,) if listed is None else listed)
                self.ids.setdefault(1, {})[f"id-{one.producer_id}"] = held

    def _answer_Metadata(self, broker_id: int, request: Any) -> Any:
        if request.topics is None:
            self.images_shown += 1
            self.before_image(self.images_shown)
        answer = super()._answer_Metadata(broker_id, request)
        for topic in answer.topics:
            for one in topic.partitions:
                replicas = self.replicas[topic.name, one.partition_index]
                one.replica_nodes = list(replicas)
                one.isr_nodes = list(self.in_sync.get((topic.name, one.partition_index), replicas))
                one.offline_replicas = [each for each in replicas if each not in self.brokers]
                if one.leader_id < 0:
                    one.error_code = ErrorCode.LEADER_NOT_AVAILABLE
        return answer

    def _answer_ApiVersions(self, broker_id: int, request: Any) -> Any:
        answer = super()._answer_ApiVersions(broker_id, request)
        kind = ApiVersionsResponse.SupportedFeatureKey
        answer.supported_features = [kind(name="metadata.version", min_version=1, max_version=self.level)]
        answer.api_keys = [ApiVersionsResponse.ApiVersion(api_key=0, min_version=0, max_version=12)]
        return answer

    def _answer_DescribeConfigs(self, broker_id: int, request: Any) -> Any:
        values = {"min.insync.replicas": self.minimum, "unclean.leader.election.enable": self.unclean}
        results = []
        for resource in request.resources:
            (key,) = resource.configuration_keys
            value = values[key].get(resource.resource_name)
            configs = [CONFIG.DescribeConfigsResourceResult(name=key, value=value)] if value is not None else []
            results.append(CONFIG(error_code=0, resource_name=resource.resource_name, configs=configs))
        return DescribeConfigsResponse(results=results)

    def _answer_DescribeTopicPartitions(self, broker_id: int, request: Any) -> Any:
        part = TOPIC.DescribeTopicPartitionsResponsePartition
        wanted = {topic.name for topic in request.topics}
        return DescribeTopicPartitionsResponse(
            topics=[
                TOPIC(error_code=0, name=t, partitions=[part(partition_index=i, eligible_leader_replicas=list(ids))])
                for (t, i), ids in self.eligible.items()
                if t in wanted
            ]
        )

    def _answer_DescribeQuorum(self, broker_id: int, request: Any) -> Any:
        if not self.fetched_ms:
            return super()._answer_DescribeQuorum(broker_id, request)
        voters = [SimpleNamespace(replica_id=one, last_fetch_timestamp=at) for one, at in self.fetched_ms.items()]
        shown = {"error_code": 0, "leader_id": 1, "leader_epoch": 5, "high_watermark": 9, "current_voters": voters}
        return SimpleNamespace(error_code=0, topics=[SimpleNamespace(partitions=[SimpleNamespace(**shown)])])

    def _answer_ListGroups(self, broker_id: int, request: Any) -> Any:
        kind = ListGroupsResponse.ListedGroup
        return ListGroupsResponse(error_code=0, groups=[kind(group_id=one, protocol_type="") for one in self.groups])


def asked(change: Change = lambda fake: None, *stopping: int) -> BeforeStop:
    """The answer for these brokers, or broker 3, after this change of the cluster."""
    fake = Fake()
    change(fake)
    with Cluster(cast(ClientFactory, FakeFactory(fake)), threads=0, sleep=lambda seconds: None) as cluster:
        config = ScanConfig("fake:9092")
        return read_before_stop(cluster, ThreadsEngine(1), config, stopping or (3,), lambda: NOW_MS, no_progress)


def harms(found: BeforeStop) -> dict[str, tuple[str, list[str | None]]]:
    """By partition: the reason, and the ids."""
    return {
        one.held.before.name: (one.rule.reason, [each.transactional_id for each in one.held.transactions])
        for one in found.judged.harms
    }


def changed(**fields: Any) -> Change:
    def change(fake: Fake) -> None:
        for name, value in fields.items():
            getattr(fake, name).update(value) if isinstance(value, dict) else setattr(fake, name, value)

    return change


def on(key: Key, *changes: Change, **of_producer: int) -> Change:
    """A transaction of id-7 on this partition, and these changes."""

    def change(fake: Fake) -> None:
        fake.open(key, producer(7, **of_producer))
        for one in changes:
            one(fake)

    return change


AT_WORK = {"start_offset": -1, "last_timestamp_ms": NOW_MS - RECENT_MS}
LONG_AGO = {"start_offset": -1, "last_timestamp_ms": NOW_MS - RECENT_MS - 1}


def lists(key: Key) -> Change:
    """An id may write to this partition, where it has no data."""
    return lambda fake: fake.ids.update({1: {"id-7": FakeId(7, 3, partitions=(key,))}})


def test_each_partition_is_judged_by_its_replicas_its_settings_and_its_producers() -> None:
    pair_after_two: dict[str, tuple[str, list[str | None]]] = {
        "pair-0": ("marker_dropped", ["id-7"]),
        "__transaction_state-0": ("too_few_in_sync", ["id-7"]),
    }
    cases: tuple[tuple[str, Change, tuple[int, ...], dict[str, tuple[str, list[str | None]]]], ...] = (
        ("no transaction", lambda fake: None, (3,), {}),
        ("the only replica", on(SOLO), (3,), {"solo-0": ("marker_dropped", ["id-7"])}),
        ("coordinators that wait", on(SOLO, changed(level=LEVEL_4_2)), (3,), {"solo-0": ("marker_waits", ["id-7"])}),
        ("another broker stops", on(SOLO), (2,), {}),
        ("a producer at work", on(SOLO, **AT_WORK), (3,), {"solo-0": ("marker_dropped", [])}),
        ("a producer of long ago", on(SOLO, **LONG_AGO), (3,), {}),
        ("an idempotent producer", on(SOLO, **AT_WORK, coordinator_epoch=-1), (3,), {}),
        ("an id that may write", lists(SOLO), (3,), {"solo-0": ("marker_dropped", ["id-7"])}),
        ("too few in sync", on(PAIR), (3,), {"pair-0": ("too_few_in_sync", ["id-7"])}),
        ("too few in sync, and it is listed", lists(PAIR), (3,), {"pair-0": ("too_few_in_sync", ["id-7"])}),
        ("a producer at work, too few in sync", on(PAIR, **AT_WORK), (3,), {"pair-0": ("too_few_in_sync", [])}),
        ("enough in sync", on(PAIR, changed(minimum={"pair": "1"})), (3,), {}),
        ("two of three remain", on(WHOLE), (3,), {}),
        ("two brokers", on(PAIR), (1, 3), pair_after_two),
        (
            "a replica that catches up stops",
            on(PAIR, changed(in_sync={PAIR: (1,)})),
            (3,),
            {"pair-0": ("too_few_in_sync", ["id-7"])},
        ),
        (
            "a replica that is not needed stops",
            on(PAIR, changed(in_sync={PAIR: (1,)}, minimum={"pair": "1"})),
            (3,),
            {},
        ),
        ("the last one stops", on(PAIR, changed(in_sync={PAIR: (1,)})), (1,), {"pair-0": ("marker_dropped", ["id-7"])}),
        (
            "an unclean election",
            on(PAIR, changed(in_sync={PAIR: (1,)}, unclean={"pair": "true"}), **LONG_AGO),
            (1,),
            {"pair-0": ("unclean_election", [])},
        ),
        (
            "an eligible replica",
            on(PAIR, changed(in_sync={PAIR: (1,)}, eligible={PAIR: (3,)}, minimum={"pair": "1"})),
            (1,),
            {},
        ),
        ("the log", changed(in_sync={LOG: (1, 3)}), (3,), {"__transaction_state-0": ("too_few_in_sync", [])}),
        ("no coordinator", changed(in_sync={LOG: (1,)}), (1,), {"__transaction_state-0": ("no_coordinator", [])}),
    )  # fmt: skip
    with Cases() as table:
        for name, change, stopping, expected in cases:
            with table.case(name):
                found = asked(change, *stopping)
                assert (harms(found), found.verdict) == (expected, UNSAFE if expected else SAFE)
                assert (found.errors, found.unknown) == ((), ())


def fails(key: Key) -> Change:
    refused = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return lambda fake: fake.partitions[key].errors.update(producers=refused)


def edits(api: str, broker_id: int = 1) -> Change:
    return lambda fake: fake.edit.update({api: lacking(broker_id, api)})


def hides_topics(fake: Fake) -> None:
    """Random names of topics are refused."""

    def edit(broker_id: int, answer: Any) -> Any:
        for topic in answer.topics:
            if topic.name.startswith("txnscan-"):
                topic.error_code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return answer

    fake.edit["Metadata"] = edit


def moves(key: Key, first: int, **fields: Any) -> Change:
    """A partition changes before each image from this one on, each time again."""

    def change(fake: Fake) -> None:
        def before(number: int) -> None:
            if number >= first:
                fake.partitions[key].epoch += fields.get("epoch", 0)
                if "in_sync" in fields:
                    fake.in_sync[key] = fields["in_sync"][number % 2]

        fake.before_image = before

    return change


def without_minimum(topic: str) -> Change:
    def change(fake: Fake) -> None:
        del fake.minimum[topic]

    return change


def forgets(fake: Fake) -> None:
    """The only replica that would remain is eligible in every other answer."""
    fake.in_sync[PAIR], fake.eligible[PAIR], fake.minimum["pair"] = (3,), (1,), "1"

    def edit(broker_id: int, answer: Any) -> Any:
        fake.eligible[PAIR] = ()
        return answer

    fake.before_image = lambda number: fake.eligible.update({PAIR: (1,)} if number % 2 else {})
    fake.edit["DescribeTopicPartitions"] = edit


def test_what_was_not_observed_is_never_safe() -> None:
    """With the codes of the errors. Each answer would be safe otherwise."""
    refused, behind, moved = "TOPIC_AUTHORIZATION_FAILED", "BROKER_BEHIND", "LEADER_MOVED"
    silent = "UNUSABLE_ANSWER"
    cases: tuple[tuple[str, Change, set[str]], ...] = (
        ("its producers", fails(SOLO), {refused}),
        ("its producers, and too few remain", fails(PAIR), {refused}),
        ("the quorum", lambda fake: fake.fetched_ms.clear(), {"CLUSTER_AUTHORIZATION_FAILED"}),
        ("the topics", hides_topics, {refused}),
        ("the coordinators' ids", edits("ListTransactions"), {"UNSUPPORTED_VERSION"}),
        ("a broker", changed(unreachable={2}), {silent}),
        ("the image of a broker", changed(images={2: 10}), {behind}),
        ("no order of images", changed(images={1: None, 2: None, 3: None}), {"LEFT_OUT"}),
        ("a coordinator that is loading", changed(probe_codes={(1, 0): 14}), {"COORDINATOR_LOAD_IN_PROGRESS"}),
        ("an election of a leader", moves(SOLO, 2, epoch=1), {moved}),
        ("an election in the log", moves(LOG, 2, epoch=1), {moved}),
        ("all others that leave", moves(WHOLE, 2, in_sync=((3,), (1, 2, 3))), {moved}),
        (
            "a replica that leaves where something is at work",
            on(WHOLE, moves(WHOLE, 2, in_sync=((1, 3), (1, 2, 3)))),
            {moved},
        ),
        ("the minimum", on(PAIR, without_minimum("pair"), **AT_WORK), {"LEFT_OUT"}),
        ("the eligible replicas", forgets, {moved}),
        ("the minimum of the log", without_minimum(TRANSACTION_STATE_TOPIC), {"LEFT_OUT"}),
    )
    with Cases() as table:
        for name, change, codes in cases:
            with table.case(name):
                found = asked(change)
                assert (found.verdict, harms(found)) == (NOT_OBSERVED, {})
                seen = {one.failure.code for one in (*found.errors, *found.unknown)}
                assert seen and codes.issubset(seen), seen


def test_a_read_is_repeated_until_two_images_agree() -> None:
    """A leader that moves once costs a second try. A harmless change costs no second try."""

    def once(fake: Fake) -> None:
        def before(number: int) -> None:
            fake.partitions[SOLO].epoch += number == 2

        fake.before_image = before

    def harmless(fake: Fake) -> None:
        fake.in_sync[WHOLE] = (1, 2, 3)
        moves(WHOLE, 2, in_sync=((1, 3), (1, 2, 3)))(fake)

    for change, images in ((once, 4), (harmless, 2), (lambda fake: None, 2)):
        seen: list[Fake] = []

        def noted(fake: Fake, change: Change = change, seen: list[Fake] = seen) -> None:
            seen.append(fake)
            change(fake)

        found = asked(noted)
        assert (found.verdict, found.errors, seen[0].images_shown) == (SAFE, (), images)


def test_producers_are_read_only_where_the_stop_changes_something() -> None:
    seen: list[Fake] = []
    found = asked(lambda fake: seen.append(fake), 2)
    described = [one for one in seen[0].requests if type(one).__name__ == "DescribeProducersRequest"]
    assert {topic.name for one in described for topic in one.topics} == {"whole", CONSUMER_OFFSETS_TOPIC}
    assert (found.partitions, found.held) == (5, 3)


def test_notes_count_what_moves_and_what_is_exposed() -> None:
    def notes(change: Change, *stopping: int) -> dict[str, tuple[int, bool]]:
        return {one.what.value: (one.count, one.unsafe) for one in asked(change, *stopping).notes}

    assert notes(on(WHOLE), 1) == {
        "transaction_coordinators": (1, False),
        "transactional_ids": (1, False),
        "controller": (1, False),
    }
    assert notes(lambda fake: None) == {"group_coordinators": (1, False)}
    assert notes(changed(in_sync={WHOLE: (1, 3)})) == {
        "group_coordinators": (1, False),
        "partitions_out_of_sync": (1, False),
    }
    unclaimed = notes(lambda fake: fake.partitions[SOLO].producers.append(producer(7)))
    assert unclaimed["unclaimed_transactions"] == (1, False)
    # Without a majority no leader is elected, and without an answer it is not known whether there is one.
    assert notes(lambda fake: fake.fetched_ms.clear()) == {}
    assert notes(changed(fetched_ms={2: 0})) == {"voters": (1, True)}
    assert notes(on(WHOLE), 1, 2, 3) == {"voters": (0, True)}
    # The log has no replica left, so its ids get no coordinator.
    assert notes(on(WHOLE, changed(in_sync={LOG: (1,)})), 1) == {
        "controller": (1, False),
        "partitions_out_of_sync": (1, False),
    }

    def leaderless(fake: Fake) -> None:
        fake.partitions[PAIR].leader = -1
        fake.in_sync[PAIR] = ()
        fake.open(PAIR, producer(7))

    assert notes(leaderless, 2)["partitions_without_leader"] == (1, True)
    assert asked(leaderless, 2).verdict is UNSAFE


def test_no_end_is_promised_of_a_transaction_whose_log_takes_no_writes() -> None:
    """Now, whatever stops."""
    for change, has_end in (
        (on(SOLO), True),
        (on(SOLO, changed(in_sync={LOG: (1,)})), False),
        (on(SOLO, changed(unreachable={2})), False),
    ):
        (harm, *_) = asked(change).judged.harms
        (one,) = harm.held.transactions
        assert (harm.held.before.key, one.ends_by_ms is not None) == (SOLO, has_end)


def test_groups_of_a_harmed_partition_of_offsets_are_named() -> None:
    def change(fake: Fake) -> None:
        fake.minimum[CONSUMER_OFFSETS_TOPIC] = "3"
        fake.groups = ("billing", "ledger")
        fake.open(OFFSETS, producer(7))

    (harm,) = asked(change).judged.harms
    assert (harm.held.before.key, harm.groups) == (OFFSETS, ("billing", "ledger"))


def test_a_number_that_no_node_has_is_an_error() -> None:
    with pytest.raises(ConfigError):
        asked(lambda fake: None, 9)
    # A controller, and a broker that is down already.
    assert asked(changed(fetched_ms={9: NOW_MS}), 9).verdict is SAFE
    assert asked(changed(brokers=[1, 3], in_sync={WHOLE: (1, 3), OFFSETS: (3, 1), LOG: (1, 3)}), 2).verdict is SAFE


def answers(*verdicts: StopVerdict | Exception) -> Callable[[], BeforeStop]:
    given = {SAFE: asked(), UNSAFE: asked(on(SOLO)), NOT_OBSERVED: asked(fails(SOLO))}
    left = list(verdicts)

    def ask() -> BeforeStop:
        one = left.pop(0)
        if isinstance(one, Exception):
            raise one
        return given[one]

    return ask


def test_it_waits_until_the_brokers_may_stop() -> None:
    lost = ClusterUnreachable("no broker answers")
    cases: tuple[tuple[str, tuple[StopVerdict | Exception, ...], int, StopVerdict, int], ...] = (
        ("at once", (SAFE,), 60_000, SAFE, 0),
        ("after a while", (UNSAFE, NOT_OBSERVED, SAFE), 60_000, SAFE, 2),
        ("no time", (UNSAFE,), 0, UNSAFE, 0),
        ("too little time", (UNSAFE, UNSAFE, UNSAFE), 3_000, UNSAFE, 2),
        ("an outage meanwhile", (UNSAFE, lost, SAFE), 60_000, SAFE, 2),
    )  # fmt: skip
    with Cases() as table:
        for name, verdicts, wait_ms, expected, times in cases:
            with table.case(name):
                clock_ms, said = [NOW_MS], list[BeforeStop]()

                def sleep(seconds: float, clock_ms: list[int] = clock_ms) -> None:
                    clock_ms[0] += int(seconds * 1_000)

                found = wait_until_safe(
                    answers(*verdicts),
                    wait_ms=wait_ms,
                    now_ms=lambda clock_ms=clock_ms: clock_ms[0],  # type: ignore[misc]
                    sleep=sleep,
                    say=said.append,
                )
                assert (found.verdict, len(said)) == (expected, times)
    with pytest.raises(ClusterUnreachable):
        wait_until_safe(answers(lost), wait_ms=60_000, now_ms=lambda: NOW_MS, sleep=lambda _: None, say=lambda _: None)


def test_json_has_codes_and_the_page_is_one_sentence_and_a_table(
    capsys: pytest.CaptureFixture[str], wording: SnapshotAssertion
) -> None:
    from txnscan.report.output import stdout_console

    shown = before_stop_object(asked(on(SOLO)), "User:me")
    assert shown["before_stop"] | {"at": None} == {
        "cluster_id": "fake",
        "brokers": [3],
        "verdict": "unsafe",
        "at": None,
        "partitions": 5,
        "partitions_held": 5,
        "partitions_idle": {},
        "drops_markers": True,
    }
    (row,) = shown["partitions"]
    assert (row["topic"], row["partition"], row["effect"], row["reason"]) == ("solo", 0, "torn", "marker_dropped")
    assert (row["in_sync_replicas"], row["in_sync_replicas_after"]) == ([3], [])
    assert row["transactions"] == [
        {
            "transactional_id": "id-7",
            "producer_id": 7,
            "state": "Ongoing",
            "ends_by": "2023-11-14T22:14:20.000Z",
            "has_data": True,
        }
    ]
    idle = asked(on(SOLO, **LONG_AGO))
    found = [asked(on(SOLO)), asked(on(PAIR), 1, 3), asked(fails(SOLO)), idle, asked(changed(fetched_ms={2: 0}))]
    for one in found:
        print_before_stop(stdout_console(), before_stop_object(one, "User:me"))
    page = capsys.readouterr().out
    assert page == wording
    assert [waits_for(before_stop_object(one, "User:me")) for one in found[:3]] == wording
