"""The listing of the coordinators of a fake cluster."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from tests.fakes.cluster import FakeCluster, one_by_one
from txnscan.coordinators.agreed_metadata import AgreedMetadata, read_all_views
from txnscan.coordinators.coordinator_listing import (
    CoordinatorListing,
    ask_coordinators,
    conclude,
)
from txnscan.kafka.protocol.coordinator_partition import probe_ids
from txnscan.kafka.protocol.metadata import MetadataRound
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC as STATE

LEADERS = (1, 2, 3, 1)
WHO = "User:bob"


def agree(cluster: FakeCluster) -> AgreedMetadata:
    return read_all_views(cluster.send, (1, 2, 3), [STATE], one_by_one, lambda brokers: None)


def log() -> MetadataRound:
    return MetadataRound([STATE])


def tokens() -> Callable[[], str]:
    """Makes different tokens."""
    numbers = itertools.count()
    return lambda: f"probe-{next(numbers)}"


def take(
    cluster: FakeCluster, meanwhile: Callable[[], object] = lambda: None, topics: frozenset[str] = frozenset()
) -> CoordinatorListing:
    """A snapshot as the driver takes it, with open transactions on these topics. `meanwhile` happens after the first
    round of Metadata.
    """
    before = agree(cluster)
    probes = probe_ids(len(before.indexes(STATE)), tokens())
    meanwhile()
    answers = [ask_coordinators(cluster.send, b.broker_id, log(), probes, {7: topics}) for b in before.brokers]
    return conclude(answers, before, agree(cluster), WHO)
