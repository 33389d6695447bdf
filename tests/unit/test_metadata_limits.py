"""A broker that names a cluster larger than any: its answer fails soon, and with little memory."""

from __future__ import annotations

import time
import tracemalloc
import uuid
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataResponse

from tests.cases import Cases
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol import metadata, replicas
from txnscan.kafka.protocol.frames import Body

MetadataTopic = MetadataResponse.MetadataResponseTopic
VERSIONS = (4, 8, 9, 12)


def topic(name: str = "t", partitions: int = 1, first: int = 0) -> Any:
    shown = [
        MetadataTopic.MetadataResponsePartition(
            error_code=0, partition_index=number, leader_id=1, leader_epoch=5,
            replica_nodes=[1], isr_nodes=[1], offline_replicas=[],
        )
        for number in range(first, first + partitions)
    ]  # fmt: skip
    return MetadataTopic(error_code=0, name=name, topic_id=uuid.UUID(int=1), is_internal=False, partitions=shown)


def server(node_id: int = 1, host: str = "h", port: int = 9092) -> Any:
    return MetadataResponse.MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=None)


def shown(brokers: Any = (), topics: Any = (), cluster_id: str = "c") -> MetadataResponse:
    return MetadataResponse(
        throttle_time_ms=0, brokers=list(brokers) or [server()], cluster_id=cluster_id, controller_id=1,
        topics=list(topics) or [topic()],
    )  # fmt: skip


# With limits of 20 partitions and 5 brokers; a topic counts as a partition more.
ANSWERS: dict[str, tuple[MetadataResponse, bool]] = {
    "as many partitions as may be": (shown(topics=[topic(partitions=19)]), True),
    "a partition more": (shown(topics=[topic(partitions=20)]), False),
    "a partition more, in the last topic": (
        shown(topics=[*(topic(f"t{n}", 4) for n in range(4)), topic("z", 0)]), False,
    ),
    "topics without partitions": (shown(topics=[topic(f"t{n}", 0) for n in range(21)]), False),
    "as many brokers as may be": (shown([server(n) for n in range(5)]), True),
    "a broker more": (shown([server(n) for n in range(6)]), False),
    "the longest name": (shown(topics=[topic("t" * 249)]), True),
    "a longer name": (shown(topics=[topic("t" * 250)]), False),
    "a longer name of a topic with an error": (
        shown(topics=[MetadataTopic(error_code=29, name="t" * 250, topic_id=uuid.UUID(int=0), partitions=[])]),
        False,
    ),
    "a long host": (shown([server(host="h" * 256)]), False),
    "a long id of the cluster": (shown(cluster_id="c" * 250), False),
    "the last port": (shown([server(port=65_535)]), True),
    "a port that would become 22950": (shown([server(port=88_486)]), False),
    "a port that would become 65535": (shown([server(port=-1)]), False),
    "the number of a bootstrap server": (shown([server(-1)]), False),
    "a negative partition": (shown(topics=[topic(first=-1)]), False),
    "a negative partition before another": (shown(topics=[topic(partitions=3, first=-2)]), False),
    "a port of 2^31 - 1": (shown([server(port=2**31 - 1)]), False),
}  # fmt: skip


def test_an_answer_beyond_a_limit_fails_as_the_failure_of_its_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "PARTITIONS_MAX", 20)
    monkeypatch.setattr(metadata, "BROKERS_MAX", 5)
    with Cases() as cases:
        for name, (answer, fits) in ANSWERS.items():
            for version in VERSIONS:
                body = Body(version, bytes(answer.encode(version=version)))
                asked = metadata.MetadataRound()
                for how, read in (("alone", metadata.decode), ("in a round", asked.shown)):
                    with cases.case(f"{name}, version {version}, {how}"):
                        if fits:
                            assert read(body).brokers
                        else:
                            with pytest.raises(RequestFailed) as failed:
                                read(body)
                            assert len(str(failed.value)) < 200


# The other cases are about fields that a read of replicas skips.
OF_REPLICAS = [name for name in ANSWERS if any(word in name for word in ("partitions", "topic", "name", "more"))]


def test_a_read_of_replicas_has_the_same_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "PARTITIONS_MAX", 20)
    monkeypatch.setattr(replicas, "BROKERS_MAX", 5)
    with Cases() as cases:
        for name in OF_REPLICAS:
            answer, fits = ANSWERS[name]
            # Brokers of an old answer are skipped as well.
            for version in VERSIONS[2:] if "broker" in name else VERSIONS:
                body = Body(version, bytes(answer.encode(version=version)))
                with cases.case(f"{name}, version {version}"):
                    if fits:
                        assert sum(1 for _ in replicas.decode(body)) == sum(len(t.partitions) for t in answer.topics)
                    else:
                        with pytest.raises(RequestFailed):
                            list(replicas.decode(body))


def test_a_claimed_number_costs_nothing_before_it_is_checked() -> None:
    one = bytes(shown().encode(version=12))
    claimed = b"\xff\xff\xff\xff\x0f"
    with Cases() as cases:
        for name, at in (("brokers", 4), ("topics", one.index(b"\x02\x00\x00\x02t"))):
            with cases.case(name):
                tracemalloc.start()
                began = time.monotonic()
                try:
                    with pytest.raises(RequestFailed):
                        metadata.decode(Body(12, one[:at] + claimed + one[at + 1 :]))
                    assert tracemalloc.get_traced_memory()[1] < 1 << 20
                finally:
                    tracemalloc.stop()
                assert time.monotonic() - began < 2


def test_a_cluster_of_two_million_partitions_takes_less_than_400_bytes_for_each() -> None:
    """Scaled down: the memory grows with the number of partitions."""
    topics, partitions = 200, 100
    body = Body(12, bytes(shown(topics=[topic(f"topic-{n}", partitions) for n in range(topics)]).encode(version=12)))
    tracemalloc.start()
    try:
        view = metadata.decode(body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(len(one.indexes) for one in view.topics) == topics * partitions
    assert (peak + len(body.data)) / (topics * partitions) < 400
