"""What all brokers agree on: one round of Metadata from every one of them.

A broker that is cut off from the controller goes on believing what it last heard, and answers for partitions and
coordinators that others have taken over. So a leader counts as known only when every broker that any of them names has
answered and names the same leader at the same leader epoch. A broker that does not answer and that nobody names any
more has been fenced by the controller; it is not waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from txnscan.kafka.client import Send
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.metadata import read_metadata
from txnscan.model import Broker, ClusterView, Partition, ScanError

# Calls the function on each item, in parallel where that helps, and gives the results in order.
InParallel = Callable[[Callable[[int], ClusterView | ScanError], Iterable[int]], list[ClusterView | ScanError]]


class Unagreed(Exception):
    """Brokers do not agree on a partition's leader; the message says how."""


@dataclass(frozen=True)
class Agreement:
    """One round: the views of the brokers that answered, and errors of those that should have."""

    views: tuple[ClusterView, ...]
    errors: tuple[ScanError, ...]

    @cached_property
    def brokers(self) -> tuple[Broker, ...]:
        """Every broker that is named by a broker that answered."""
        named = {broker.broker_id: broker for view in self.views for broker in view.brokers}
        return tuple(named[broker_id] for broker_id in sorted(named))

    @cached_property
    def _claims(self) -> dict[tuple[str, int], set[Partition]]:
        claims: dict[tuple[str, int], set[Partition]] = {}
        for view in self.views:
            for partition in view.partitions:
                claims.setdefault(partition.key, set()).add(partition)
        return claims

    @cached_property
    def _shown_by(self) -> dict[str, int]:
        """How many brokers show each topic."""
        shown: dict[str, int] = {}
        for view in self.views:
            for topic in {partition.topic for partition in view.partitions}:
                shown[topic] = shown.get(topic, 0) + 1
        return shown

    def partition(self, topic: str, index: int) -> Partition:
        """The partition with the leader and leader epoch that all brokers name. Raises Unagreed."""
        if self.errors:
            raise Unagreed(f"not every broker said who leads it: {self.errors[0].error}")
        if not self.views:
            raise Unagreed("no broker said who leads it")
        claims = self._claims.get((topic, index), set())
        if not claims:
            raise Unagreed(self._missing(topic))
        if len(claims) > 1 or self._shown_by[topic] != len(self.views):
            raise Unagreed(f"brokers disagree on who leads {topic}-{index}")
        (partition,) = claims
        if partition.leader < 0:
            raise Unagreed(f"{topic}-{index} has no leader")
        return partition

    def _missing(self, topic: str) -> str:
        for view in self.views:
            for name, error in view.topic_errors:
                if name == topic:
                    return f"{topic}: {error}"
        return f"{topic} is not in the brokers' metadata"

    def indexes(self, topic: str) -> tuple[int, ...]:
        """The partition numbers that any broker names for a topic."""
        return tuple(sorted(index for name, index in self._claims if name == topic))


def read_agreement(
    send: Send,
    broker_ids: Iterable[int],
    topics: Iterable[str],
    in_parallel: InParallel,
    learn: Callable[[Iterable[Broker]], None],
) -> Agreement:
    """Asks the known brokers about these topics, then those that their answers name besides.

    `learn` is told of every broker named, so that `send` can reach it.
    """
    wanted = tuple(sorted(set(topics)))

    def ask(broker_id: int) -> ClusterView | ScanError:
        try:
            return read_metadata(send, broker_id, wanted)
        except RequestFailed as failed:
            return ScanError("metadata", failed.error, broker_id)

    asked: set[int] = set()
    views: list[ClusterView] = []
    errors: dict[int, ScanError] = {}
    to_ask = set(broker_ids)
    while to_ask:
        asked |= to_ask
        for broker_id, answer in zip(sorted(to_ask), in_parallel(ask, sorted(to_ask)), strict=True):
            if isinstance(answer, ScanError):
                errors[broker_id] = answer
            else:
                views.append(answer)
                learn(answer.brokers)
        to_ask = {broker.broker_id for view in views for broker in view.brokers} - asked
    named = {broker.broker_id for view in views for broker in view.brokers}
    return Agreement(
        views=tuple(sorted(views, key=lambda view: view.answered_by)),
        errors=tuple(error for broker_id, error in sorted(errors.items()) if broker_id in named),
    )
