"""The requests of apply: the whole proof of a partition, one marker, and a read after it.

A marker goes out on its own connection, of a client that never resends a request.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from txnscan.config import ConfigError, ScanConfig
from txnscan.coordinators.agreed_metadata import LeaderUnknown
from txnscan.coordinators.cluster import Cluster, ClusterUnreachable, clients_of
from txnscan.coordinators.transactions import Transaction, describe, with_offsets
from txnscan.engine import Engine
from txnscan.engine.threads import ThreadsEngine
from txnscan.errors import TxnscanError
from txnscan.kafka.answers import OpenProducer
from txnscan.kafka.client.client import Client
from txnscan.kafka.client.deadline import Deadline, sweep_limit_ms
from txnscan.kafka.clock import wall_clock_ms
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.protocol.describe_configs import transaction_max_timeout_ms
from txnscan.kafka.protocol.init_producer_id import Fenced, fence
from txnscan.kafka.protocol.metadata import read_metadata
from txnscan.kafka.protocol.write_txn_markers import MarkerToWrite
from txnscan.kafka.security.acls import explained
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Broker, Key
from txnscan.resolve.apply import PartitionState
from txnscan.resolve.peer_partitions import commit_seen
from txnscan.resolve.plan import Action
from txnscan.sweeps.capacity import longest_expected_s
from txnscan.sweeps.history import History, NoHistory
from txnscan.sweeps.identity import Identity, Seen, identified
from txnscan.sweeps.names import absent_id
from txnscan.sweeps.pipeline import scan
from txnscan.sweeps.reader import SweepReader
from txnscan.sweeps.restored import HISTORY_WENT_BACK
from txnscan.sweeps.result import Scan
from txnscan.sweeps.scope import narrowed
from txnscan.sweeps.state import Run
from txnscan.txnlog.facts import Facts, ProducerFacts, SeenMarker
from txnscan.verdict.evidence import Judged, PeerPartitions


class LiveBrokers:
    """See `apply.Brokers`. `cluster_id` raises ClusterUnreachable.

    history: passed to the sweeps that prove. If it has an unresolved incident on a partition, that partition is read
    with proof, even if coordinators claim all its open transactions. deadline: of everything before a marker. What was
    sent is read after it.
    """

    def __init__(self, config: ScanConfig, history: History | None = None, deadline: Deadline | None = None) -> None:
        self._config = config
        self._deadline = Deadline() if deadline is None else deadline
        self._history = NoHistory() if history is None else history
        self._settings = config.connection()
        self._known: dict[int, Broker] = {}
        # For each action: the leader epochs of the transaction log when `prove` read it.
        self._read_epochs: dict[tuple[str, int], Mapping[int, int]] = {}

    @property
    def config(self) -> ScanConfig:
        return self._config

    def _cluster(self, *, before_marker: bool = False) -> Cluster:
        """The cluster, on connections that are closed with its context. Each has the time limit of a sweep of its own:
        the time that a proof took never shortens the read after a marker. before_marker: it has the rest of the
        deadline of all, if there is one. Raises ClusterUnreachable if that is over.
        """
        config, left_s = self._config, self._deadline.left_s
        if before_marker and left_s != math.inf:
            if self._deadline.is_up:
                raise ClusterUnreachable(self._deadline.time_is_up.error, is_late=True)
            config = replace(config, timeout_ms=max(1, round(left_s * 1_000)))
        clients = clients_of(config, self._settings, f"apply-{uuid.uuid4()}", sweep_limit_ms())
        return Cluster(clients, deadline=clients.client().deadline)

    def _engine(self) -> Engine:
        return ThreadsEngine()

    def _now_ms(self) -> int:
        return wall_clock_ms()

    @property
    def principal(self) -> str:
        """See Brokers."""
        return self._settings.principal

    @property
    def time_is_up(self) -> str | None:
        """See Brokers."""
        return self._deadline.time_is_up.error if self._deadline.is_up else None

    def cluster_id(self) -> str:
        """The cluster's id."""
        with self._cluster(before_marker=True) as cluster:
            return cluster.view([]).cluster_id

    def closed_producers(self, producer_ids: Collection[int]) -> Facts:
        """The partitions of the whole cluster that list these producers without an open transaction. A partition that
        cannot be read is left out: these facts only veto (`signs_of_loss.py`). Raises ClusterUnreachable if the time
        limit is over, which may leave out any number of them.
        """
        if not producer_ids:
            return {}
        with self._cluster(before_marker=True) as cluster:
            try:
                latest = cluster.latest()
                cluster.deadline.allow(sweep_limit_ms(longest_expected_s(latest.view)))
                reader = SweepReader(cluster, self._engine(), self._config)
                wide = reader.wide(latest, _unwatched, _unwatched, producer_ids)
            except ClusterUnreachable:
                if cluster.deadline.missed:
                    raise
                return {}
            if cluster.deadline.missed:
                raise ClusterUnreachable(cluster.deadline.time_is_up.error, is_late=True)
        return {one: ProducerFacts(closed=wide.closed_of(one)) for one in producer_ids}

    def prove(self, action: Action) -> Judged | None:
        """See Brokers."""
        found = self._swept(action, reads_log=True)
        self._read_epochs[action.topic_partition, action.producer_id] = found.read_epochs
        return _of(action, found)

    def prove_without_log(self, action: Action) -> Judged | None:
        """See Brokers. Fails if the log has a new leader since `prove`: the new leader may have more records."""
        found = self._swept(action, reads_log=False)
        judged = _of(action, found)
        read = self._read_epochs.get((action.topic_partition, action.producer_id), {})
        moved = [k for k, epoch in read.items() if found.log_epochs.get(k) != epoch]
        if judged is not None and moved:
            log = f"{TRANSACTION_STATE_TOPIC}-{min(moved)}"
            raise RequestFailed(f"{log} has another leader since it was read; apply again", sent=False)
        return judged

    def _swept(self, action: Action, reads_log: bool) -> Scan:
        try:
            found = self.proven(action.topic, action.partition, reads_log=reads_log)
        except (ClusterUnreachable, ConfigError) as error:
            raise RequestFailed(str(error), sent=False) from None
        if found.fall is not None:
            raise RequestFailed(f"{HISTORY_WENT_BACK}: {found.fall}; sweep and plan again", sent=False)
        if found.partitions_failed:
            raise RequestFailed(found.errors[0].failure, sent=False)
        return found

    def proven(self, topic: str, partition: int, *, reads_log: bool = True) -> Scan:
        """Sweeps this partition alone. Raises ClusterUnreachable and ConfigError."""
        return self._narrow([(topic, partition)], reads_log=reads_log)

    def looked_at(self, keys: Collection[Key]) -> Scan | None:
        """A sweep that looks for committed data that live transactions on these partitions have joined. None if the
        metadata shows none of the partitions. Raises ClusterUnreachable and ConfigError.
        """
        if not keys:
            return None
        with self._cluster(before_marker=True) as cluster:
            view = cluster.newest({topic for topic, _ in keys})
        shown = {key for key in keys for topic in view.topics if topic.name == key[0] and key[1] in topic.indexes}
        return self._narrow(shown, looks_at=frozenset(shown)) if shown else None

    def _narrow(self, keys: Collection[Key], *, reads_log: bool = True, looks_at: Collection[Key] = ()) -> Scan:
        config = replace(narrowed(self._config, keys), engine="threads")
        with self._cluster(before_marker=True) as cluster:
            found = scan(
                Run(
                    config,
                    cluster,
                    self._engine(),
                    sweep_id=f"apply-{uuid.uuid4()}",
                    now_ms=self._now_ms,
                    history=self._history,
                    progress=lambda stage, done, total: None,
                    reads_log=reads_log,
                    looks_at=looks_at,
                )
            )
            self._known |= {broker.broker_id: broker for broker in cluster.clients.brokers}
        return found

    def describe(self, transactional_id: str) -> Transaction:
        """See `terminate.Coordinators`."""
        try:
            with self._cluster() as cluster:
                found, failed = describe(cluster.send, [transactional_id], cluster.newest, self._now_ms, time.sleep)
                if failed:
                    raise RequestFailed(cluster.format_failure(failed[0].failure), sent=False)
                (one,) = with_offsets(cluster.send, found, cluster.newest)
                self._known |= {broker.broker_id: broker for broker in cluster.clients.brokers}
                return one
        except ClusterUnreachable as error:
            raise RequestFailed(str(error), sent=False) from None

    def absent(self, transactional_id: str) -> TxnscanError | None:
        """The error for an id that its coordinator does not know (`names.py`). None if it knows the id, or is not
        reached.
        """
        try:
            with self._cluster() as cluster:
                _, failed = describe(cluster.send, [transactional_id], cluster.newest, self._now_ms, time.sleep)
                if [one.failure.code for one in failed] != [ErrorCode.TRANSACTIONAL_ID_NOT_FOUND.name]:
                    return None
                return absent_id(cluster, transactional_id).error(cluster.format_failure)
        except ClusterUnreachable:
            return None

    def fence(self, transactional_id: str, timeout_ms: int) -> Fenced:
        """See `terminate.Coordinators`. Uses its own connection, which never resends a request."""
        coordinator = self.describe(transactional_id).coordinator
        with Client(self._settings, [self._known[coordinator]], resends=False) as client:
            read_metadata(client.send, coordinator, [])
            return fence(client.send, coordinator, transactional_id, timeout_ms)

    def timeout_max_ms(self, transactional_id: str) -> int:
        """See `terminate.Coordinators`."""
        coordinator = self.describe(transactional_id).coordinator
        with Client(self._settings, [self._known[coordinator]]) as client:
            return transaction_max_timeout_ms(client.send, coordinator)

    def leader_epoch_of(self, topic: str, partition: int) -> int:
        """The leader epoch of a partition; -1 if brokers do not agree on it."""
        try:
            with self._cluster() as cluster:
                cluster.view([topic])
                return cluster.agreed_metadata([topic]).partition(topic, partition).leader_epoch
        except (ClusterUnreachable, LeaderUnknown):
            return -1

    def commit_seen(self, peers: PeerPartitions, producer_id: int) -> SeenMarker | None:
        """See Brokers."""
        topics = {name.rpartition("-")[0] for name in peers.partitions}
        try:
            with self._cluster(before_marker=True) as cluster:
                cluster.view(topics)
                agreed = cluster.agreed_metadata(topics)
                return commit_seen(cluster.send, peers, producer_id, agreed.partition)
        except ClusterUnreachable as error:
            raise RequestFailed(str(error)) from None
        except LeaderUnknown as failed:
            raise RequestFailed(explained(failed.failure, self.principal)) from None

    @contextmanager
    def marker_connection(self, leader: int) -> Iterator[Callable[[MarkerToWrite], int]]:
        """See Brokers."""
        if leader not in self._known:
            raise RequestFailed(f"broker {leader} is not in the cluster's metadata", sent=False)
        with Client(self._settings, [self._known[leader]], resends=False) as client:
            # Connects now, so that the marker does not wait for a connection.
            read_metadata(client.send, leader, [])
            yield lambda marker: marker.answered(client.send(leader, marker.request()))

    def read_partition(self, action: Action, *, sent: bool = True) -> PartitionState:
        """See Brokers."""
        try:
            with self._cluster(before_marker=not sent) as cluster:
                cluster.view([action.topic])
                key = action.key
                reader = SweepReader(cluster, self._engine(), self._config)
                rows, agreed = reader.proven([key], cluster.agreed_metadata([action.topic]), lambda done, total: None)
                row = rows[key]
                if row.failure is not None:
                    return PartitionState(error=explained(row.failure, self.principal))
                earlier = Seen(action.producer_id, action.producer_epoch, action.start_offset)
                found = [
                    Identity.SAME
                    if one.start_offset == action.start_offset
                    else identified(cluster.send, agreed, key, earlier, Seen(*_open(one)))
                    for one in row.open_producers
                    if one.producer_id == action.producer_id
                ]
        except ClusterUnreachable as error:
            return PartitionState(error=str(error))
        if Identity.UNKNOWN in found:
            return PartitionState(error=_MOVED)
        return PartitionState(
            is_open=Identity.SAME in found,
            last_stable_offset=row.last_stable_offset,
            high_watermark=row.high_watermark,
        )


def _unwatched(done: int, total: int) -> None:
    """Ignores progress."""


_MOVED = "its producer has a transaction open from another start offset on, and no marker shows that this one ended"


def _open(one: OpenProducer) -> tuple[int, int, int]:
    return one.producer_id, one.producer_epoch, one.start_offset


def _of(action: Action, found: Scan) -> Judged | None:
    """The open transaction of the action's producer id, if any."""
    return next((j for j in found.transactions if j.observation.producer_id == action.producer_id), None)
