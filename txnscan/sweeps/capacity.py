"""Predict the cost of a sweep: the number of requests by API, bytes, time and memory. No sweep is run.

The number of requests follows from the protocol (`pipeline.py`). It is exact for a cluster whose leaders and open
transactions are spread evenly. The time is a sum of two parts: the unit costs of brokers, partitions, producers and
open transactions in this process, as `make bench` measured them (`Costs`); and the sequential round trips, each with
the latency of the network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil

from txnscan.config import ConfigError, ScanConfig, check_number
from txnscan.coordinators.cluster import DRIVER_THREADS
from txnscan.engine.threads import THREADS
from txnscan.kafka.topology import ClusterView
from txnscan.sweeps.reader import PROVEN_BATCH_SIZE

_MOST = 10**9
# For a time limit, when open transactions and latency are not known: open partitions, all hanging, and milliseconds.
_OPEN, _FAR_MS = 100, 100
_PRODUCER_BYTES = 37
_DESCRIBED_PARTITION_BYTES = 9
_DEFAULTS = ScanConfig("unused:1")
# Sequential round trips to one broker each: connect, list the brokers, list all topics, check for hidden topics. After
# the wide read, all topics are listed once more.
_TRIPS_FIRST, _TRIPS_AFTER = 4, 1
# Rounds of requests to all brokers, as many in parallel as the driver has threads: connect and configurations (2); the
# age of their metadata, for the plan and at the end (2); the ids in a transaction (1), and the descriptions of some of
# them (held); the six answers of the coordinators.
_ROUNDS, _ROUNDS_HELD = 2 + 2 + 1 + 6, 1
# The leaders at the end, from the broker with the newest metadata.
_TRIPS_LAST = 1
# Whether the logs of open transactions take writes: their replicas, and their settings.
_TRIPS_WRITES = 2
# For hanging transactions: the features of the cluster, the cleanup policies of their topics, a check for hidden
# groups, and a round in which all brokers list their groups.
_TRIPS_IMPACT, _ROUNDS_IMPACT = 3, 1
# Sequential answers of each of the two reads of a partition, and of a log (its start, its records).
_ANSWERS_FENCED, _ANSWERS_LOG = 2, 2


@dataclass(frozen=True, slots=True)
class Planned:
    """A cluster to be swept. Counts are of user partitions. An open partition has an open transaction, which may hang.

    Each transaction that does not hang is known to its coordinator, and is on `partitions_per_transaction` partitions.
    latency_ms: from a request to its answer, without the work of this process. Raises ConfigError.
    """

    brokers: int
    partitions: int
    producers_per_partition: int = 10
    open_partitions: int = _OPEN
    hanging: int = _OPEN
    latency_ms: float = 0
    partitions_per_topic: int = 100
    partitions_per_transaction: int = 10
    replication_factor: int = 1
    transaction_state_partitions: int = 50
    batch_size: int = _DEFAULTS.batch_size
    in_flight_max: int = _DEFAULTS.in_flight_max

    def __post_init__(self) -> None:
        for option, value, least in (
            ("--brokers", self.brokers, 1),
            ("--partitions", self.partitions, 1),
            ("--producers", self.producers_per_partition, 0),
            ("--open", self.open_partitions, 0),
            ("--latency-ms", self.latency_ms, 0),
        ):
            check_number(option, value, _MOST, least=least)
        if not self.hanging <= self.open_partitions <= self.partitions:
            raise ConfigError("--open", f"there are {self.partitions} partitions")

    @property
    def held_ids(self) -> int:
        """The number of transactional ids that are in a transaction."""
        return ceil((self.open_partitions - self.hanging) / self.partitions_per_transaction)

    @property
    def partitions_led(self) -> int:
        """The number of partitions on the broker that leads most."""
        return ceil((self.partitions + self.transaction_state_partitions) / self.brokers)

    @property
    def metadata_partition_bytes(self) -> int:
        """Bytes of a partition in Metadata: error, number, leader, epoch, three lists, tags."""
        return 2 + 3 * 4 + 3 + 2 * 4 * self.replication_factor + 1


@dataclass(frozen=True, slots=True)
class Costs:
    """Unit costs of one process, in microseconds or bytes of memory, on the machine of `measured_on`."""

    fixed_us: float
    broker_us: float
    partition_us: float
    producer_us: float
    open_us: float
    metadata_byte_us: float
    process_bytes: int
    partition_bytes: int
    measured_on: str


# Measured by `python -m tests.bench costs`.
MEASURED = Costs(
    fixed_us=8_470,
    broker_us=5_915,
    partition_us=4.1,
    producer_us=0.010,
    open_us=886,
    metadata_byte_us=0.0040,
    process_bytes=67_974_485,
    partition_bytes=211,
    measured_on="2 cores, AMD EPYC, 2026-11-21",
)


# The ratio of the measured to the predicted time of sweeps, by number of partitions: `make bench` (costs, scale). Large
# sweeps take longer than the sum of the unit costs.
MEASURED_AGAINST_PREDICTED = ((100_000, 1.23), (300_000, 1.32), (1_000_000, 2.25))


def margin(partitions: int) -> float:
    """The ratio of the measured to the predicted time for this many partitions, from the next larger measured sweep."""
    return next(
        (ratio for measured, ratio in MEASURED_AGAINST_PREDICTED if partitions <= measured),
        MEASURED_AGAINST_PREDICTED[-1][1],
    )


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted cost of `find-hanging`: requests to all brokers by API, bytes received, seconds, memory.

    worker_bytes: the most that an executor needs for answers, in addition to Python itself. margin: the ratio of
    measured to the predicted time for sweeps of this size.
    """

    requests: Mapping[str, int]
    received_bytes: int
    work_s: float
    waiting_s: float
    memory_bytes: int
    worker_bytes: int
    margin: float = 1.0

    @property
    def seconds(self) -> float:
        return self.work_s + self.waiting_s

    @property
    def seconds_max(self) -> float:
        """The longest time that a sweep of this size was measured to take."""
        return self.seconds * self.margin


def requests(planned: Planned) -> dict[str, int]:
    """The number of requests of a sweep of everything, to all brokers together, by API.

    The planned cluster has no groups. On a real cluster each broker is asked about its own groups, a hundred at a time.
    """
    p = planned
    brokers_hanging = min(p.brokers, p.hanging)
    proven_batches = brokers_hanging * max(1, ceil(p.hanging / p.brokers / PROVEN_BATCH_SIZE))
    logs = p.transaction_state_partitions if p.hanging else 0
    return {
        # Each connection begins with one ApiVersions; one connection is to a bootstrap server. The age of all metadata,
        # for the plan and at the end, and once more of what the plan shows. The features of the cluster.
        "ApiVersions": 2 + (1 + 2) * p.brokers + (p.hanging > 0),
        # Each connection begins with the id of the cluster. If a transaction is open: the replicas of its logs.
        "Metadata": 5 + p.brokers + (p.open_partitions > 0),
        # If a transaction is open: whether its logs take writes. One more for the topics of hanging transactions.
        "DescribeConfigs": p.brokers + (p.open_partitions > 0) + (p.hanging > 0),
        "DescribeProducers": p.brokers * ceil(p.partitions_led / p.batch_size) + 2 * proven_batches,
        "ListOffsets": 2 * proven_batches + 2 * logs,
        "DescribeAcls": 2 * p.brokers,
        "DescribeTransactions": 2 * p.brokers + min(p.brokers, p.held_ids),
        "ListTransactions": 2 * p.brokers,
        "Fetch": proven_batches + logs,
        "ListGroups": p.brokers if p.hanging else 0,
        # For a group that does not exist.
        "OffsetFetch": int(p.hanging > 0),
    }


def predict(planned: Planned, costs: Costs = MEASURED) -> Prediction:
    """The predicted cost of sweeping this cluster, by these unit costs. Pure."""
    p = planned
    topics = ceil(p.partitions / p.partitions_per_topic)
    # Each hanging partition is in its own topic, if there are enough topics.
    round_partitions = min(topics, p.hanging) * p.partitions_per_topic + p.transaction_state_partitions
    metadata_bytes = (p.partitions + p.transaction_state_partitions) * p.metadata_partition_bytes
    again_partitions = round_partitions * (2 if p.open_partitions else 1)
    again_bytes = again_partitions * p.metadata_partition_bytes
    described = p.partitions * (_DESCRIBED_PARTITION_BYTES + p.producers_per_partition * _PRODUCER_BYTES)
    work_us = (
        costs.fixed_us
        + p.brokers * costs.broker_us
        + p.partitions * costs.partition_us
        + p.partitions * p.producers_per_partition * costs.producer_us
        + p.open_partitions * costs.open_us
        + again_bytes * costs.metadata_byte_us
    )
    batch_bytes = p.batch_size * (_DESCRIBED_PARTITION_BYTES + p.producers_per_partition * _PRODUCER_BYTES)
    return Prediction(
        requests=requests(p),
        received_bytes=2 * metadata_bytes + again_bytes + described,
        work_s=work_us / 1e6,
        waiting_s=_trips(p) * p.latency_ms / 1e3,
        memory_bytes=costs.process_bytes + p.partitions * costs.partition_bytes,
        # Once as received, and once as separate bytes objects.
        worker_bytes=2 * batch_bytes * min(THREADS, p.brokers * p.in_flight_max),
        margin=margin(p.partitions),
    )


def longest_expected_s(view: ClusterView) -> float:
    """The longest time that a sweep of this cluster is expected to take, with brokers far away."""
    partitions = sum(len(topic.indexes) for topic in view.topics)
    brokers = len(view.brokers)
    if not brokers or not partitions:
        return 0.0
    opened = min(partitions, _OPEN)
    planned = Planned(brokers, partitions, open_partitions=opened, hanging=opened, latency_ms=_FAR_MS)
    return predict(planned).seconds_max


def _trips(p: Planned) -> int:
    """The number of sequential round trips of `find-hanging` with its threads."""
    batches = ceil(p.partitions_led / p.batch_size)
    # A client has one request in flight to each broker, and an engine has THREADS threads.
    trips = _TRIPS_FIRST + _TRIPS_AFTER + _TRIPS_LAST + ceil(p.brokers * batches / min(THREADS, p.brokers))
    trips += _TRIPS_WRITES if p.open_partitions else 0
    rounds = _ROUNDS + (_ROUNDS_HELD if p.held_ids else 0)
    if p.hanging:
        leaders = min(p.brokers, p.hanging)
        trips += 2 * _ANSWERS_FENCED * ceil(leaders / THREADS)
        trips += _TRIPS_IMPACT
        rounds += _ROUNDS_IMPACT
        trips += ceil(leaders / DRIVER_THREADS) + _ANSWERS_LOG * ceil(p.transaction_state_partitions / THREADS)
    return trips + rounds * ceil(p.brokers / DRIVER_THREADS)


def predicted_lines(
    brokers: int, partitions: int, producers_per_partition: int, open_partitions: int, latency_ms: float
) -> Iterator[str]:
    """The prediction as lines of text."""
    planned = Planned(
        brokers=brokers,
        partitions=partitions,
        producers_per_partition=producers_per_partition,
        open_partitions=open_partitions,
        hanging=open_partitions,
        latency_ms=latency_ms,
        replication_factor=min(3, brokers),
    )
    said = predict(planned, MEASURED)
    total = sum(said.requests.values())
    yield (
        f"{planned.brokers:,} brokers, {planned.partitions:,} partitions with {producers_per_partition} producers "
        f"each, {open_partitions:,} hanging, {latency_ms:g} ms to an answer"
    )
    yield (
        f"time      {said.seconds:.1f} to {said.seconds_max:.1f} s: {said.work_s:.1f} s of work and "
        f"{said.waiting_s:.1f} s of waiting for brokers by unit costs, of which sweeps of this size took up to "
        f"{said.margin:g} times as long"
    )
    largest = MEASURED_AGAINST_PREDICTED[-1][0]
    if planned.partitions > largest:
        yield f"          more than {largest:,} partitions were never measured: it may be longer"
    yield f"requests  {total:,}, or {total / planned.brokers:.0f} to a broker: " + ", ".join(
        f"{api} {count:,}" for api, count in said.requests.items() if count
    )
    yield f"received  {said.received_bytes / 1e6:,.0f} MB"
    at_once = f"at most {said.worker_bytes / 1e6:,.0f} MB of answers at once"
    yield f"memory    {said.memory_bytes / 1e6:,.0f} MB, and {at_once}"
    yield f"for find-hanging, by what each cost on {MEASURED.measured_on}; leaders and transactions spread evenly"
