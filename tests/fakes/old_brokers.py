"""Brokers without the newest APIs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

from kafka.protocol.admin import DescribeConfigsResponse

from tests.fakes.cluster import FakeCluster, FakeId, broker, producer
from txnscan import ScanConfig
from txnscan.coordinators.cluster import Cluster
from txnscan.engine.threads import ThreadsEngine
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.client.factory import ClientFactory
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.protocol.frames import api_name
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Broker
from txnscan.sweeps.history import History, NoHistory
from txnscan.sweeps.pipeline import scan
from txnscan.sweeps.result import Scan
from txnscan.sweeps.state import Run

# Broker 1 leads `data-0`, 2 `data-1`, 3 `data-2`. Each coordinates one partition of `__transaction_state`.
PRODUCER_IDS = {0: 100, 1: 101, 2: 102}


class FakeOld(FakeCluster):
    """A cluster in which some brokers lack some APIs. Every partition of `data` has one open transaction.

    lacking: names of requests by broker.
    """

    def __init__(self, lacking: Mapping[int, Sequence[str]]) -> None:
        super().__init__()
        self.lacking = lacking
        self.lead("data", self.brokers)
        self.lead(TRANSACTION_STATE_TOPIC, self.brokers)
        for k in range(len(self.brokers)):
            # Its content does not matter here.
            self.partitions[TRANSACTION_STATE_TOPIC, k].errors["fetch"] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        for index, producer_id in PRODUCER_IDS.items():
            self.partitions["data", index].producers = [producer(producer_id)]

    def own(self, index: int, coordinator: int) -> str:
        """The open transaction on that partition gets an owner, which that broker coordinates."""
        (k,) = self.cached[coordinator]
        ids = (f"owner-{number}" for number in count())
        name = next(name for name in ids if coordinator_partition(name, len(self.brokers)) == k)
        held = FakeId(producer_id=PRODUCER_IDS[index], partitions=(("data", index),))
        self.ids.setdefault(coordinator, {})[name] = held
        return name

    def send(self, broker_id: int, request: Any) -> Any:
        name = api_name(request)
        if name in self.lacking.get(broker_id, ()):
            raise RequestFailed.unsupported(f"broker {broker_id} (127.0.0.1:{9000 + broker_id})", name)
        return super().send(broker_id, request)

    def learn(self, brokers: Iterable[Broker]) -> None:
        """Ignores addresses."""

    def _answer_DescribeConfigs(self, broker_id: int, request: Any) -> Any:
        result = DescribeConfigsResponse.DescribeConfigsResult
        config = result.DescribeConfigsResourceResult(name="transaction.max.timeout.ms", value="900000")
        return DescribeConfigsResponse(results=[result(error_code=0, configs=[config])])


@dataclass(frozen=True)
class ConnectToFake:
    """Stands in for ClientFactory."""

    fake: FakeOld
    brokers: tuple[Broker, ...] = (broker(1),)
    settings: ConnectionSettings = field(default_factory=ConnectionSettings)

    def for_controller(self) -> ConnectToFake:
        """See ClientFactory."""
        return self

    def client(self) -> FakeOld:
        return self.fake

    def close(self) -> None:
        """Has no connections to close."""


def connected(fake: FakeOld, sleep: Callable[[float], None] = lambda _: None) -> Cluster:
    """A cluster of these brokers."""
    return Cluster(cast(ClientFactory, ConnectToFake(fake)), threads=0, sleep=sleep)


def swept_fake(fake: FakeOld, sleep: Callable[[float], None] = lambda _: None, history: History | None = None) -> Scan:
    with connected(fake, sleep) as cluster:
        return scan(
            Run(
                ScanConfig("127.0.0.1:9001"),
                cluster,
                ThreadsEngine(1),
                sweep_id="sweep",
                now_ms=lambda: 1_700_000_100_000,
                history=history or NoHistory(),
                progress=lambda *_: None,
            )
        )


def verdicts(scan: Scan) -> dict[tuple[str, int, int], tuple[str, str]]:
    """Verdict and reason by topic, partition and producer id."""
    return {
        (j.observation.topic, j.observation.partition, j.observation.producer_id): (
            str(j.judgement.verdict),
            str(j.judgement.reason),
        )
        for j in scan.transactions
    }


def open_on(scanned: Scan) -> dict[int, tuple[str, str]]:
    """Verdict and reason by partition of `data`."""
    return {index: verdict for (_, index, _), verdict in verdicts(scanned).items()}
