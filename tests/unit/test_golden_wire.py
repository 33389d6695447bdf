"""The wire-level cluster answers recorded requests with the recorded bytes of real brokers.

`tests/golden/shape.py` describes the brokers, and `tests/golden/mask.py` lists the allowed differences.
`tests/brokers/test_wire_real.py` records again and compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse
from kafka.record import MemoryRecords

from tests.golden import shape, store
from tests.golden.mask import CLASSES, OTHERWISE, Level, Masks, batches_of, is_answered_otherwise, records_of
from tests.golden.questions import API_VERSIONS, FETCH, QUESTIONS, TRANSACTION_LOG
from tests.golden.raw import Replay, Sender
from tests.golden.record import VERSIONS
from tests.golden.shape import FENCED, MARKERS, WRITTEN, Facts, Wired, wired
from tests.golden.shaping import SHAPE
from tests.golden.store import Recording, State
from tests.sim.wire import state_log
from tests.sim.wire.answers import OFFERED, Api
from tests.sim.wire.batches import batch, marker
from txnscan.demo.jars import KAFKA_VERSION, NEXT_KAFKA_VERSION, OLD_KAFKA_VERSION
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.protocol.init_producer_id import fence
from txnscan.txnlog.decode import decode, transactional_id, transactional_id_key

# The wire cluster writes the transaction log of transactions v2.
LIKE_THE_WIRE_CLUSTER = (KAFKA_VERSION, NEXT_KAFKA_VERSION)


@cache
def recorded(kafka: str) -> Recording:
    return store.read(kafka, shape.PART)


def state(kafka: str, label: str) -> State:
    return next(one for one in recorded(kafka).states if one.label == label)


@pytest.fixture(scope="module", params=VERSIONS)
def kafka(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def cluster(kafka: str) -> Iterator[Wired]:
    """A wire-level cluster with the facts of the recorded brokers."""
    with wired(Facts.of(recorded(kafka).facts)) as made:
        yield made


def differing(cluster: Wired, kafka: str, wanted: State, level: Level = Level.ANY) -> list[str]:
    """The requests with different answers."""
    wire_masks, real_masks = Masks(level, kafka), Masks(level, kafka)
    found = []
    for asked in wanted.asked:
        answer = cluster.answer(asked)
        if answer == asked.answer or is_answered_otherwise(kafka, asked):
            continue
        ours, real = (
            m.bytes_of(asked.api, asked.version, b) for m, b in ((wire_masks, answer), (real_masks, asked.answer))
        )
        if ours != real:
            where = f"{Api(asked.api).name} v{asked.version} at broker {asked.broker_id}"
            found.append(f"{where}, {asked.request.hex()}:\nwire {ours.hex()}\nreal {real.hex()}")
    return found


@pytest.mark.parametrize("label", [label for label in QUESTIONS if label not in (API_VERSIONS, TRANSACTION_LOG)])
def test_the_wire_cluster_answers_with_the_recorded_bytes(kafka: str, cluster: Wired, label: str) -> None:
    if (kafka, label) == (OLD_KAFKA_VERSION, "committed offsets by topic id"):
        # 3.5 has no version with topic ids.
        assert label not in {one.label for one in recorded(kafka).states}
        return
    assert differing(cluster, kafka, state(kafka, label)) == []


def test_written_markers_end_transactions_as_recorded(kafka: str) -> None:
    # A cluster of its own, because it changes.
    with wired(Facts.of(recorded(kafka).facts)) as changing:
        assert differing(changing, kafka, state(kafka, WRITTEN), Level.AGAIN) == []


def test_recorded_brokers_name_any_broker_as_the_controller(kafka: str) -> None:
    asked = [one for one in state(kafka, "Metadata").asked if one.broker_id == 1]
    controllers = {MetadataResponse.decode(one.answer, version=one.version).controller_id for one in asked}
    assert controllers == {1, 2, 3}


def test_recorded_brokers_support_the_wire_clusters_api_versions(kafka: str, cluster: Wired) -> None:
    for asked in state(kafka, API_VERSIONS).asked:
        real, ours = (
            {
                key.api_key: (key.min_version, key.max_version)
                for key in ApiVersionsResponse.decode(body, version=asked.version).api_keys
            }
            for body in (asked.answer, cluster.answer(asked))
        )
        assert ours == {int(api): (offered.first, offered.last) for api, offered in OFFERED.items()}
        if kafka != OLD_KAFKA_VERSION:
            assert all(real[key][0] <= first <= last <= real[key][1] for key, (first, last) in ours.items())
            # Fetch has topic ids in later versions, and 4.4 a later version of ApiVersions.
            later = {Api(key) for key, (_, last) in ours.items() if last != real[key][1]}
            assert later == {Api.Fetch} | ({Api.ApiVersions} if kafka == NEXT_KAFKA_VERSION else set())


@pytest.mark.parametrize("kafka", LIKE_THE_WIRE_CLUSTER)
def test_the_wire_clusters_transaction_log_equals_the_recording(kafka: str) -> None:
    """Compares every batch of the real coordinators byte by byte, including checksums."""
    seen = set()
    partitions = [one for one in state(kafka, TRANSACTION_LOG).asked if _bytes_max(one.request) > 1]
    for k, asked in enumerate(partitions):
        data = records_of(asked.answer, FETCH)
        expected = []
        for each in MemoryRecords(data):
            (record,) = each
            name = transactional_id(record.key)
            assert name is not None and coordinator_partition(name, SHAPE.transaction_state_partitions) == k
            logged = decode(record.offset, 0, name, record.value)
            # Brokers write topics in the order of a hash table.
            keys = sorted(logged.partitions, key=lambda key: record.value.index(key[0].encode()))
            producer, times = (logged.producer_id, logged.producer_epoch), (logged.updated_ms, logged.start_time_ms)
            value = state_log.value(logged.state.value, *producer, keys, *times, logged.client_version)
            expected.append(batch(record.offset, [(transactional_id_key(name), value)], timestamp_ms=record.timestamp))
            seen.add(logged.state.value)
        assert b"".join(expected).hex() == data.hex()
    assert seen == {"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"}


def _bytes_max(request: bytes) -> int:
    return int(FetchRequest.decode(request, version=FETCH).max_bytes)


@pytest.mark.parametrize("kafka", LIKE_THE_WIRE_CLUSTER)
def test_a_fetch_answer_equals_the_recording_around_its_records(kafka: str) -> None:
    """Except the high watermark and the last stable offset."""
    firsts = [one for one in state(kafka, TRANSACTION_LOG).asked if _bytes_max(one.request) == 1]
    with wired(Facts.of(recorded(kafka).facts)) as cluster:
        k = next(k for k in range(SHAPE.transaction_state_partitions) if cluster.answers.world.ids[k])
        ours = cluster.answer(firsts[k])
    around = []
    for body in (firsts[k].answer, ours):
        message = FetchResponse.decode(body, version=FETCH)
        (partition,) = message.responses[0].partitions
        assert len([*batches_of(bytes(partition.records))]) == 1, "a first batch is given whole"
        partition.records, partition.high_watermark, partition.last_stable_offset = b"", 0, 0
        message._header = None
        around.append(bytes(message.encode(version=FETCH)))
    assert around[0].hex() == around[1].hex()


def test_a_marker_equals_the_batch_of_a_real_broker(kafka: str) -> None:
    asked = state(kafka, MARKERS).asked
    assert len(asked) == 2
    for one, commit in zip(asked, (True, False), strict=True):
        data = records_of(one.answer, FETCH)
        (written,) = MemoryRecords(data)
        (record,) = written
        assert data.hex() == marker(1, written.producer_id, written.producer_epoch, 0, commit, record.timestamp).hex()


def test_a_fence_succeeds_only_at_the_coordinator(kafka: str) -> None:
    recording = recorded(kafka)
    fenced = state(kafka, FENCED)
    send = Sender(Replay(recording.offered, fenced.asked))
    name, brokers = fenced.facts["id"], fenced.facts["brokers"]
    assert [fence(send, broker_id, name, 60_000).error_code for broker_id in brokers] == [ErrorCode.NOT_COORDINATOR, 0]


def test_every_declared_difference_of_a_version_still_exists() -> None:
    """Remove an entry that is no longer needed."""
    for otherwise in OTHERWISE:
        with wired(Facts.of(recorded(otherwise.kafka).facts)) as cluster:
            masks = Masks(Level.ANY, otherwise.kafka)
            assert any(
                masks.bytes_of(one.api, one.version, cluster.answer(one))
                != masks.bytes_of(one.api, one.version, one.answer)
                for each in recorded(otherwise.kafka).states
                for one in each.asked
                if CLASSES[one.api][0].__name__ == otherwise.message and otherwise.holding in one.request
            ), otherwise.why
