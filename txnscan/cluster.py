"""The driver's dealings with the cluster as a whole: what brokers there are, what they agree on, the coordinators.

Everything here asks every broker, in parallel, and gives what failed as data. Reading partitions is not done here: that
is the engines' work (`reads.py`).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from txnscan.agreement import Agreement, read_agreement
from txnscan.kafka.client import Send
from txnscan.kafka.coordinator import probe_ids
from txnscan.kafka.describe_acls import denied_transactional_ids
from txnscan.kafka.describe_configs import transaction_max_timeout_ms
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.metadata import read_metadata
from txnscan.model import TRANSACTION_STATE_TOPIC, Broker, ClusterView, ScanError, Snapshot
from txnscan.remote import Connect
from txnscan.snapshot import ask_coordinators, conclude

Item = TypeVar("Item")
Result = TypeVar("Result")

_THREADS = 32
# A coordinator that was just elected loads for a moment; what is not covered after this stays uncovered.
SNAPSHOT_TRIES = 3
_RETRY_WAIT_S = 0.5
# The broker's own default, for when it will not say.
_DEFAULT_MAX_TIMEOUT_MS = 900_000


class ClusterUnreachable(Exception):
    """No bootstrap server answered; the message is one sentence for users."""


class Cluster:
    """A cluster as the driver sees it. Use it as a context manager.

    threads: how many brokers to ask at once; with 0 they are asked in order, in the caller's thread.
    sleep: waits between tries, in seconds. random_token: makes ids that no application has.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        threads: int = _THREADS,
        sleep: Callable[[float], None] = time.sleep,
        random_token: Callable[[], str] = lambda: secrets.token_hex(12),
    ) -> None:
        self._connect = connect
        self._brokers: dict[int, Broker] = {}
        self._client = connect.client()
        self._bootstrap = tuple(broker.broker_id for broker in connect.brokers)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="txnscan-cluster") if threads else None
        self.sleep = sleep
        self._random_token = random_token

    @property
    def send(self) -> Send:
        return self._client.send

    @property
    def connect(self) -> Connect:
        """What an executor needs to reach the brokers known now."""
        return replace(self._connect, brokers=tuple(self._brokers.values()))

    def _learn(self, brokers: Iterable[Broker]) -> None:
        named = tuple(brokers)
        self._client.learn(named)
        self._brokers.update((broker.broker_id, broker) for broker in named)

    def _in_parallel(self, call: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        return list(self._pool.map(call, items) if self._pool is not None else map(call, items))

    def view(self, topics: Iterable[str] | None = None) -> ClusterView:
        """The Metadata of the first broker that answers: known ones first, then the bootstrap servers.

        Raises ClusterUnreachable.
        """
        failures = []
        for broker_id in (*sorted(self._brokers), *self._bootstrap):
            try:
                view = read_metadata(self.send, broker_id, topics)
            except RequestFailed as failed:
                failures.append(failed.error)
                continue
            self._learn(view.brokers)
            return view
        raise ClusterUnreachable("; ".join(failures))

    def agreement(self, topics: Iterable[str]) -> Agreement:
        """What all brokers agree on about these topics, now."""
        return read_agreement(self.send, tuple(self._brokers), topics, self._in_parallel, self._learn)

    def max_timeout_ms(self) -> tuple[int, tuple[ScanError, ...]]:
        """The longest `transaction.max.timeout.ms` of all brokers; one that will not say counts with the default."""

        def ask(broker_id: int) -> int | ScanError:
            try:
                return transaction_max_timeout_ms(self.send, broker_id)
            except RequestFailed as failed:
                return ScanError("configs", f"{failed.error}; {_DEFAULT_MAX_TIMEOUT_MS} ms is assumed", broker_id)

        answers = self._in_parallel(ask, sorted(self._brokers))
        timeouts = [_DEFAULT_MAX_TIMEOUT_MS if isinstance(answer, ScanError) else answer for answer in answers]
        return max(timeouts), tuple(answer for answer in answers if isinstance(answer, ScanError))

    def snapshot(self, open_producer_ids: frozenset[int], on_progress: Callable[[int, int], None]) -> Snapshot:
        """The coordinators' side, with its coverage. Taken anew while coverage may still become complete."""
        for attempt in range(1, SNAPSHOT_TRIES + 1):
            snapshot = self._snapshot(open_producer_ids, on_progress)
            if not snapshot.coverage_errors or snapshot.coordinators_planned == 0 or attempt == SNAPSHOT_TRIES:
                break
            self.sleep(_RETRY_WAIT_S * attempt)
        return snapshot

    def _snapshot(self, open_producer_ids: frozenset[int], on_progress: Callable[[int, int], None]) -> Snapshot:
        before = self.agreement([TRANSACTION_STATE_TOPIC])
        broker_ids = [broker.broker_id for broker in before.brokers]
        probes = probe_ids(len(before.indexes(TRANSACTION_STATE_TOPIC)), self._random_token)
        done = 0

        def ask(broker_id: int) -> Any:
            nonlocal done
            answers = ask_coordinators(self.send, broker_id, probes, open_producer_ids)
            done += 1
            on_progress(done, len(broker_ids))
            return answers

        answers = self._in_parallel(ask, broker_ids)
        visibility_error = self._visibility_error(broker_ids)
        after = self.agreement([TRANSACTION_STATE_TOPIC])
        return conclude(answers, before, after, open_producer_ids, visibility_error)

    def _visibility_error(self, broker_ids: Sequence[int]) -> str | None:
        """Why some transactional id may be hidden from this principal as far as ACLs tell, or None."""
        error = "no broker answered DescribeAcls"
        for broker_id in broker_ids:
            try:
                denied = denied_transactional_ids(self.send, broker_id)
            except RequestFailed as failed:
                error = f"{failed.error}; grant this principal Describe on the Cluster"
                continue
            if denied:
                return f"a DENY rule stands on transactional id '{denied[0]}'; remove it, or sweep as a super user"
            return None
        return error

    def close(self) -> None:
        """Ends all connections of this process."""
        if self._pool is not None:
            self._pool.shutdown()
        self._connect.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
