"""Other ways to do what a sweep does: bytes from sockets, kafka-python's objects alone and on Spark, Kafka's tool."""

from __future__ import annotations

import selectors
import socket
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from kafka import KafkaAdminClient, TopicPartition
from kafka.protocol.admin import DescribeProducersRequest

from tests.bench.clusters import added
from tests.bench.harness import Work
from tests.sim.wire.world import HOST
from txnscan.demo.jars import kafka_jars
from txnscan.demo.kafka_tool import find_hanging
from txnscan.reads.rows import WideBatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RECEIVE_BYTES = 1 << 18
_FAN_OUT_ROW = pa.schema(
    [
        ("partitions", pa.int64()),
        ("producers", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("producer_id", pa.int64()),
        ("start_offset", pa.int64()),
    ]
)
_FAN_OUT_COLUMNS = (
    "partitions bigint, producers bigint, topic string, partition int, producer_id bigint, start_offset bigint"
)


# --- bytes ---


def encoded(batch: WideBatch) -> bytes:
    """The request as it goes over the wire."""
    topics = [
        DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=list(indexes))
        for topic, indexes in batch.indexes.items()
    ]
    request = DescribeProducersRequest(topics=topics)
    request.API_VERSION = 0
    request.with_header(correlation_id=1, client_id="drain")
    return bytes(request.encode(version=0, header=True, framed=True))


class Drain:
    """Receives answers and throws them away: one connection to each broker, one request in flight on each.

    Connections are open and requests encoded before it is called. Use it as a context manager.
    """

    def __init__(self, ports: Mapping[int, int], batches: Iterable[WideBatch]) -> None:
        self._stack = ExitStack()
        self._requests: dict[int, list[bytes]] = defaultdict(list)
        for batch in batches:
            self._requests[batch.leader].append(encoded(batch))
        self._connections = {
            leader: self._stack.enter_context(socket.create_connection((HOST, ports[leader])))
            for leader in self._requests
        }
        for connection in self._connections.values():
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __call__(self) -> Work:
        """Every answer once."""
        buffer = bytearray(_RECEIVE_BYTES)
        answers = received = 0
        with selectors.DefaultSelector() as ready:
            for leader, requests in self._requests.items():
                waiting = iter(requests)
                connection = self._connections[leader]
                connection.sendall(next(waiting))
                ready.register(connection, selectors.EVENT_READ, _Draining(connection, waiting))
            while ready.get_map():
                for key, _ in ready.select():
                    got = key.data.receive(buffer)
                    received += got
                    done = key.data.is_complete
                    answers += done
                    if done and not key.data.ask():
                        ready.unregister(key.fileobj)
        return {"requests": answers, "answer bytes": received}

    def __enter__(self) -> Drain:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()


class _Draining:
    """One connection: the requests that wait for their turn, and how much of the answer is still to come."""

    def __init__(self, connection: socket.socket, waiting: Iterator[bytes]) -> None:
        self._connection = connection
        self._waiting = waiting
        self._left = 0

    @property
    def is_complete(self) -> bool:
        """Whether the answer has come as a whole."""
        return self._left == 0

    def receive(self, buffer: bytearray) -> int:
        """Receives the available bytes. Returns their number."""
        got = self._connection.recv_into(buffer)
        if not got:
            raise ConnectionError("a broker closed the connection")
        if not self._left:
            # Four bytes come together on this machine, and answers are longer.
            self._left = 4 + int.from_bytes(buffer[:4])
        self._left -= got
        return got

    def ask(self) -> bool:
        """Sends the next request, if there is one."""
        request = next(self._waiting, None)
        if request is not None:
            self._connection.sendall(request)
        return request is not None


# --- kafka-python's objects ---


def describe(admin: KafkaAdminClient, batch: WideBatch) -> tuple[Work, list[tuple[str, int, int, int]]]:
    """One request through kafka-python's public call. Counts, and open transactions: topic, number, id, offset."""
    wanted = [TopicPartition(topic, index) for topic, indexes in batch.indexes.items() for index in indexes]
    answer = admin.describe_producers(wanted, broker_id=batch.leader)
    still_open = [
        (key.topic, key.partition, producer.producer_id, producer.current_transaction_start_offset)
        for key, state in answer.items()
        for producer in state.active_producers
        if producer.current_transaction_start_offset >= 0
    ]
    producers = sum(len(state.active_producers) for state in answer.values())
    return {"partitions": len(answer), "producers": producers, "open": len(still_open)}, still_open


def one_after_the_other(admin: KafkaAdminClient, batches: Sequence[WideBatch]) -> Work:
    """All requests through kafka-python, in this thread."""
    return added(describe(admin, batch)[0] for batch in batches)


def fan_out(spark: SparkSession, bootstrap_servers: str, batches: Sequence[WideBatch], tasks: int) -> Work:
    """The obvious first program: each task makes a KafkaAdminClient and describes its share of the requests.

    It returns the counts of each request and the open transactions, as a sweep needs them.
    """
    shares = [batches[task::tasks] for task in range(tasks)]

    def work(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (one.as_py() for each in numbers for one in each.column(0)):
            admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
            for batch in shares[number]:
                seen, still_open = describe(admin, batch)
                yield _record_batch(seen, still_open)
            admin.close()

    told = spark.range(0, tasks, 1, tasks).mapInArrow(work, _FAN_OUT_COLUMNS).toArrow()
    still_open = told.column("producer_id")
    return {
        "partitions": sum(told.column("partitions").drop_null().to_pylist()),
        "producers": sum(told.column("producers").drop_null().to_pylist()),
        "open": len(still_open) - still_open.null_count,
    }


def _record_batch(seen: Work, still_open: Iterable[tuple[str, int, int, int]]) -> pa.RecordBatch:
    """A row with the counts, then a row for each open transaction."""
    rows: list[tuple[Any, ...]] = [(seen["partitions"], seen["producers"], None, None, None, None)]
    rows += [(None, None, *each) for each in still_open]
    columns = zip(zip(*rows, strict=True), _FAN_OUT_ROW.types, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(*column) for column in columns], schema=_FAN_OUT_ROW)


# --- Kafka's own tool ---


@dataclass(frozen=True, slots=True)
class Tool:
    """The parts of a demo cluster that Kafka's tool needs."""

    bootstrap_servers: str
    jars: Path


def tool(bootstrap_servers: str) -> Tool:
    """Kafka's transactions command against these brokers. Raises DemoError if its jars cannot be fetched."""
    return Tool(bootstrap_servers, kafka_jars())


def tool_broker_by_broker(tool: Tool, broker_ids: Iterable[int]) -> int:
    """Runs `find-hanging --broker-id` for each broker in sequence. Counts the hanging transactions.

    The tool asks each broker for every partition of which it has a replica, and reports a hanging transaction once for
    each replica.
    """
    found = (one for broker_id in broker_ids for one in find_hanging(tool, broker_id))  # type: ignore[arg-type]
    return len({(one.topic, one.partition, one.producer_id, one.start_offset) for one in found})
