"""The clusters, and their planted transactions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.cut_off import CUT_OFF, Controllers
from tests.prove.faults.traffic import DOOMED, Traffic
from txnscan.demo import plant
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.plant import Planted
from txnscan.demo.requests import Wire
from txnscan.reads.observation import TransactionKey

# Timed-out transactions end within a second, so that the end of a run need not wait long for them.
_COMMON = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
# The settings of the brokers, by the name of the cluster.
CLUSTERS: Mapping[str, Mapping[str, str]] = {
    "replicated": _COMMON,
    "unreplicated": {
        **_COMMON,
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    },
}
# The other part of the planted live epoch: its owner has a transaction on that partition, with a timeout of 15 minutes.
LIVE_OWNER = "invoices-service"
LIVE_PARTITION = ("invoices", 0)


@dataclass(frozen=True)
class Known:
    """A planted hanging transaction: its key, and the reasons that a sweep may give for it."""

    key: TransactionKey
    reasons: tuple[str, ...]


@dataclass
class World:
    """A cluster with its planted transactions and its users. `wire` is for one thread at a time.

    ever_planted: includes transactions on topics that were deleted since.
    """

    name: str
    cluster: KafkaCluster
    controllers: Controllers
    wire: Wire
    traffic: Traffic
    planted: frozenset[Known] = frozenset()
    ever_planted: set[TransactionKey] = field(default_factory=set)

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap servers; the broker that is sometimes cut off comes first."""
        brokers = sorted(self.cluster.brokers, key=lambda broker: broker.broker_id != CUT_OFF)
        return ",".join(broker.address for broker in brokers)

    def plant(self) -> None:
        self.remember(plant.committed_but_hanging(self.cluster).hanging, "missed_commit")
        self.remember(plant.orphan(self.wire), "orphan")
        self.remember(plant.orphan_from_the_future(self.wire), "orphan")
        self.remember(plant.stale_epoch(self.wire), "stale_epoch")
        # After 15 minutes its owner's transaction is aborted, which raises the owner's epoch.
        self.remember(plant.live_epoch(self.wire), "live_epoch", "stale_epoch")
        self.remember(plant.orphan(self.wire, DOOMED), "orphan")

    def remember(self, planted: Planted, *reasons: str) -> None:
        topic_id = self.wire.partition(planted.topic, planted.partition).topic_id
        key = TransactionKey(planted.topic, topic_id, planted.partition, planted.producer_id, planted.start_offset)
        self.ever_planted.add(key)
        self.planted |= {Known(key, reasons)}

    def forget(self, topic: str) -> None:
        self.planted = frozenset(known for known in self.planted if known.key[0] != topic)
