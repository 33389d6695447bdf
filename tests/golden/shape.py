"""Part "shape": brokers that hold what a small `ClusterShape` says, asked all that the wire-level cluster can answer.

Three real brokers get the topics, the records and the transactions of `SHAPE` (`shaping.py`). `recorded` asks them
(`questions.py`) and keeps the bytes. Facts that brokers choose are kept beside them (`Facts`): producer ids, topic ids,
ports, the cluster's id and the time. `Wired` is a wire-level cluster with these facts. Its answers to the recorded
requests must be the recorded bytes, but for what `mask.py` lists and for these differences:

- DescribeConfigs: the wire cluster has only the settings of brokers and topics that matter here, so settings are asked
  for by name.
- `__consumer_offsets` has no records in the wire cluster, because no sweep reads it unless a transaction hangs on it.
  Its offsets are not asked for.
- ApiVersions: the wire cluster offers a part of what brokers offer, and no features.
- `__transaction_state`: real coordinators wrote another history, so each record is compared with the record of the
  wire cluster for the same facts.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from kafka.protocol.admin import (
    DescribeProducersRequest,
    DescribeTopicPartitionsRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.metadata import MetadataRequest

from tests.golden.questions import FETCH, Known, fetching, offsets, partition_of, questions
from tests.golden.raw import Asked, Sender, Sockets
from tests.golden.shaping import SHAPE, deleted, is_settled, shaped
from tests.golden.store import Recording, State
from tests.sim.codec import Reader
from tests.sim.wire import shape, state_log
from tests.sim.wire.answers import Answers, Api
from tests.sim.wire.shape import ClusterShape
from tests.sim.wire.world import World
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.jars import has_transactions_v2
from txnscan.demo.producer import Producer
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.kafka.protocol.init_producer_id import fence
from txnscan.kafka.protocol.replicas import read_replicas, with_eligible
from txnscan.kafka.protocol.write_txn_markers import MarkerToWrite
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, PartitionReplicas

PART = "shape"
MARKERS, WRITTEN, FENCED, REPLICAS = "markers", "written markers", "fenced ids", "replicas"
REPLICAS_OF = (SHAPE.topic_name(0), TRANSACTION_STATE_TOPIC)


@dataclass(frozen=True)
class Facts:
    """Facts that real brokers chose. rest_epoch: of an id that committed once. topic_ids: by name."""

    started_at_ms: int
    cluster_id: str
    rest_epoch: int
    ports: Mapping[int, int]
    topic_ids: Mapping[str, str]
    producer_ids: Mapping[str, int]

    @staticmethod
    def of(stored: Mapping[str, Any]) -> Facts:
        """From plain data, in which all keys are strings."""
        return Facts(**{**stored, "ports": {int(broker_id): port for broker_id, port in stored["ports"].items()}})

    @property
    def swaps(self) -> dict[bytes, bytes]:
        """The wire cluster's producer ids, and the real ones for the same transactional ids."""
        return {
            one.producer_id.to_bytes(8): self.producer_ids[one.name].to_bytes(8)
            for one in SHAPE.all_transactional_ids()
        }


def recorded(kafka: str, directory: Path) -> Recording:
    """Starts brokers of that version, makes the shape on them, and asks."""
    started_at_ms = int(time.time() * 1000)
    with KafkaCluster(directory, version=kafka) as cluster, cluster.wire() as wire, Sockets(cluster.brokers) as sockets:
        shaped(wire, started_at_ms)
        for broker_id in cluster.broker_ids:
            wait_until(lambda b=broker_id: is_settled(wire, b), f"broker {broker_id} knew its topics")  # type: ignore[misc]
        answered = wire.send(1, MetadataRequest(topics=None, allow_auto_topic_creation=False))
        facts = Facts(
            started_at_ms=started_at_ms,
            cluster_id=answered.cluster_id,
            # Transactions v2 raise the epoch at each end.
            rest_epoch=int(has_transactions_v2(kafka)),
            ports={broker.broker_id: broker.port for broker in cluster.brokers},
            topic_ids={topic.name: str(topic.topic_id) for topic in answered.topics},
            producer_ids=dict(_producer_ids(wire)),
        )
        offered = sockets.offered(1)
        known = Known(offered, {name: uuid.UUID(of) for name, of in facts.topic_ids.items()}, facts.producer_ids)
        states = [State(label, _asked(sockets, asked)) for label, asked in questions(known)]
        states += [_markers(wire, sockets), _written(sockets, known), _fenced(sockets)]
        if DescribeTopicPartitionsRequest.API_KEY in offered:
            states.append(_replicas(sockets))
        return Recording(kafka, PART, offered, asdict(facts), states)


def _producer_ids(wire: Wire) -> Iterator[tuple[str, int]]:
    for one in SHAPE.all_transactional_ids():
        described = wire.send(SHAPE.coordinator(one.name), DescribeTransactionsRequest(transactional_ids=[one.name]))
        (real,) = described.transaction_states
        yield one.name, real.producer_id


def _asked(sockets: Sockets, wanted: list[tuple[int, Any, int]]) -> list[Asked]:
    sender = Sender(sockets)
    for broker_id, request, version in wanted:
        sender.raw(broker_id, request, version)
    return sender.asked


def _markers(wire: Wire, sockets: Sockets) -> State:
    """A COMMIT and an ABORT, as real coordinators write them."""
    sender = Sender(sockets)
    for commit in (True, False):
        topic = f"marked-{commit}".lower()
        create_topic(wire, topic, [[1, 2, 3]])
        producer = Producer(wire, topic)
        producer.init_producer_id()
        producer.write(topic, 0, [b"x"])
        producer.end(commit=commit)

        def written(topic: str = topic) -> bool:
            trial = Sender(sockets)
            trial.raw(1, fetching(topic, 0, 0, 1, 1 << 20), FETCH)
            return len(trial.asked[0].answer) > _EMPTY_FETCH_BYTES_MAX

        wait_until(written, "the marker was written")
        sender.raw(1, fetching(topic, 0, 0, 1, 1 << 20), FETCH)
        deleted(wire, topic)
    return State(MARKERS, sender.asked)


# A Fetch answer of one partition without records is shorter.
_EMPTY_FETCH_BYTES_MAX = 100


def _written(sockets: Sockets, known: Known) -> State:
    """Markers that txnscan sends: to a partition that there is not, to a follower, and to a hanging transaction."""
    sender = Sender(sockets)
    leader, topic, index = partition_of("hanging")
    hanging = next(t for o, ts in SHAPE.open_transactions().items() if SHAPE.key(o) == (topic, index) for t in ts)
    marker = MarkerToWrite(topic, index, hanging.producer_id, 0, -1, commit=False)
    nowhere = MarkerToWrite("nowhere", 0, hanging.producer_id, 0, -1, commit=False)
    wanted = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[index])
    for version in known.versions(Api.WriteTxnMarkers):
        sender.raw(leader, nowhere.request(), version)
        sender.raw(SHAPE.replicas(leader)[1], marker.request(), version)
    sender.raw(leader, marker.request(), known.versions(Api.WriteTxnMarkers)[-1])
    sender.raw(leader, DescribeProducersRequest(topics=[wanted]), 0)
    for isolation_level in (0, 1):
        sender.raw(leader, offsets(-1, isolation_level, (topic, index, 0)), known.versions(Api.ListOffsets)[-1])
    return State(WRITTEN, sender.asked)


def _fenced(sockets: Sockets) -> State:
    """The request that fences an id: to another broker, then to its coordinator."""
    sender = Sender(sockets)
    name = next(one.name for one in SHAPE.all_transactional_ids() if one.state == "CompleteCommit")
    brokers = SHAPE.replicas(SHAPE.coordinator(name))[1::-1]
    for broker_id in brokers:
        fence(sender, broker_id, name, 60_000)
    return State(FENCED, sender.asked, {"id": name, "brokers": brokers})


def _replicas(sockets: Sockets) -> State:
    """The replicas of some topics, and of one that does not exist."""
    sender = Sender(sockets)
    for broker_id in SHAPE.broker_ids:
        found = read_replicas(sender, broker_id, dict.fromkeys(REPLICAS_OF))
        with_eligible(sender, broker_id, [*found.values(), PartitionReplicas("nowhere", 0, 1, (1,), (1,))])
    return State(REPLICAS, sender.asked)


class Wired:
    """A wire-level cluster with the facts of real brokers. `at` makes one."""

    def __init__(self, facts: Facts) -> None:
        self._swaps = facts.swaps
        self._ours = {int.from_bytes(real): int.from_bytes(ours) for ours, real in facts.swaps.items()}
        self.answers = Answers(World(replace(SHAPE, cluster_id=facts.cluster_id), facts.started_at_ms, facts.ports))

    def answer(self, asked: Asked) -> bytes:
        """Its answer to a recorded request, with the real producer ids."""
        request = self._request(asked) if asked.api == Api.ListTransactions else asked.request
        body = self.answers.body(asked.broker_id, Api(asked.api), asked.version, Reader(request))
        return re.sub(
            b"|".join(map(re.escape, self._swaps)), lambda found: self._swaps[found[0]], body, flags=re.DOTALL
        )

    def _request(self, asked: Asked) -> bytes:
        """A request for ids, by the producer ids of the wire cluster."""
        request = ListTransactionsRequest.decode(asked.request, version=asked.version)
        request._header = None
        request.producer_id_filters = [self._ours.get(real, real) for real in request.producer_id_filters]
        return bytes(request.encode(version=asked.version))


@contextmanager
def wired(facts: Facts) -> Iterator[Wired]:
    """The wire-level cluster; while it is used, its modules take topic ids and epochs from the facts."""
    ids = {name: uuid.UUID(of) for name, of in facts.topic_ids.items()}
    with ExitStack() as stack:
        for module in (shape, state_log):
            stack.enter_context(mock.patch.object(module, "REST_EPOCH", facts.rest_epoch))
        stack.enter_context(mock.patch.object(ClusterShape, "topic_id", staticmethod(ids.__getitem__)))
        for name in ("leader_epoch", "transaction_state_epoch", "consumer_offsets_epoch"):
            stack.enter_context(mock.patch.object(ClusterShape, name, staticmethod(lambda _: 0)))
        yield Wired(facts)
