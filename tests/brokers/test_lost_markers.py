"""Markers that were lost, one after another, or of one transaction on two partitions: no apply harms what they left.

The histories are such as brokers of Kafka 4.3 make by themselves: a partition without a leader misses its marker
(KAFKA-20734). All are made at once, so that the broker is stopped twice, whatever their number. The first two sweeps
have earlier clocks, as if what hangs had been watched for long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pytest

from tests.brokers.losses import AWAY, KEEPER, MORE, RECORDS, ended_all, incidents_of, markers, swept
from tests.prove.compaction import PROPERTIES, compact_transaction_log, id_served_by
from tests.prove.moves import delete_records, reassign
from txnscan import ScanConfig
from txnscan.demo import plant
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.producer import PRODUCE_V1, Producer
from txnscan.demo.reader import read_values
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC
from txnscan.resolve.guard import ACCEPT_UNKNOWN, COMPLETE_COMMITS
from txnscan.resolve.run import apply_to, plan_sweep
from txnscan.tables.delta import Row

# The partitions of `__transaction_state`: one stays as it is, the other is compacted between the sweeps.
KEPT_LOG, COMPACTED_LOG = 0, 1
SAME_EPOCH, NEXT_EPOCH, TWO, MOVED, NEVER_ADDED = "same-epoch", "next-epoch", "two", "moved", "never-added"
UPGRADED = "upgraded"
LOGS = {
    SAME_EPOCH: KEPT_LOG,
    NEXT_EPOCH: KEPT_LOG,
    TWO: COMPACTED_LOG,
    MOVED: COMPACTED_LOG,
    NEVER_ADDED: KEPT_LOG,
    UPGRADED: KEPT_LOG,
}
V1 = (SAME_EPOCH, NEVER_ADDED, UPGRADED)
# Partitions that miss markers, by the history. The second of two is not read by the first sweep.
LATER_SEEN = "two-solo-2"
SOLOS = {**{name: (f"{name}-solo",) for name in LOGS}, TWO: ("two-solo", LATER_SEEN)}
EARLIER_MINUTES = (40, 35)


@dataclass(frozen=True)
class World:
    """Brokers after all the histories, three sweeps, a plan, and an apply of it with every option.

    first, last: outcomes by topic, of these sweeps. incidents: by topic, before the apply.
    """

    wire: Wire
    first: Mapping[str, str | None]
    last: Mapping[str, str | None]
    incidents: Mapping[str, list[Row]]

    def fate(self, topic: str, offset: int = 0) -> tuple[list[str], int]:
        """The markers of a topic, and how many records a read_committed consumer gets from the offset on."""
        return markers(self.wire, topic), len(read_values(self.wire, topic, 0, committed=True, offset=offset))


def without_broker(cluster: KafkaCluster, ends: Callable[[], object]) -> None:
    """Calls `ends` while the partitions of the last broker have no leader."""
    cluster.stop_broker(AWAY)
    for topics in SOLOS.values():
        for topic in topics:
            cluster.wait_for_leader(topic, 0, -1)
    ends()
    cluster.start_broker(AWAY)
    for topics in SOLOS.values():
        for topic in topics:
            cluster.wait_for_leader(topic, 0, AWAY)


def moved_without_its_first_records(cluster: KafkaCluster, wire: Wire, producer_id: int) -> None:
    """Deletes the first records. A new replica then rebuilds its producer state from the remaining records."""
    topic = SOLOS[MOVED][0]
    delete_records(wire, topic, len(RECORDS))
    reassign(wire, {(topic, 0): (KEEPER,)})
    cluster.wait_for_leader(topic, 0, KEEPER)

    def starts_later() -> bool:
        found = plant.open_transaction(wire, topic, 0, producer_id)
        return found is not None and found.start_offset == len(RECORDS)

    wait_until(starts_later, f"{topic} was open from offset {len(RECORDS)}")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("lost-markers")
    properties = {**PROPERTIES, "transaction.state.log.num.partitions": "2"}
    with KafkaCluster(directory / "kafka", properties=properties) as cluster, cluster.wire() as wire:
        create_topic(wire, TRANSACTION_STATE_TOPIC, [[KEEPER], [KEEPER]], {"cleanup.policy": "compact"})
        producers = {}
        for name, k in LOGS.items():
            producers[name] = Producer(wire, id_served_by(f"{name}-service", k, 2), v2=name not in V1)
            producers[name].init_producer_id()
            create_topic(wire, f"{name}-fine", [[KEEPER]])
            for topic in SOLOS[name]:
                create_topic(wire, topic, [[AWAY]])
            for topic in (f"{name}-fine", *SOLOS[name]):
                producers[name].write(topic, 0, RECORDS)
        producers[MOVED].write(SOLOS[MOVED][0], 0, RECORDS)
        moved = producers[MOVED].known.producer_id
        without_broker(cluster, lambda: ended_all(wire, producers, {name: name != UPGRADED for name in LOGS}))

        seen = tuple(topic for topics in SOLOS.values() for topic in topics if topic != LATER_SEEN)
        config = ScanConfig(cluster.bootstrap_servers, tables=str(directory / "tables"), engine="threads")
        early = ScanConfig(cluster.bootstrap_servers, tables=config.tables, engine="threads", topic_names=seen)
        first = swept(early, EARLIER_MINUTES[0])

        again = {SAME_EPOCH: False, NEXT_EPOCH: False, UPGRADED: True}
        producers[UPGRADED].v2 = True
        producers[UPGRADED].write(f"{UPGRADED}-fine", 0, MORE)
        for name in again:
            producers[name].write(SOLOS[name][0], 0, MORE)
        producers[NEVER_ADDED].produce(SOLOS[NEVER_ADDED][0], 0, MORE, version=PRODUCE_V1)
        without_broker(cluster, lambda: ended_all(wire, producers, again))
        for name in LOGS:
            producers[name].init_producer_id()
        compacted = [str(producers[name].transactional_id) for name, k in LOGS.items() if k == COMPACTED_LOG]
        compact_transaction_log(wire, COMPACTED_LOG, compacted)
        moved_without_its_first_records(cluster, wire, moved)

        swept(config, EARLIER_MINUTES[1])
        last = swept(config, 0)
        incidents = {topic: incidents_of(config, topic) for topics in SOLOS.values() for topic in topics}
        plan = plan_sweep(None, str(config.tables))
        apply_to(None, config, plan, execute=True, options=(COMPLETE_COMMITS, ACCEPT_UNKNOWN))
        yield World(wire, first, last, incidents)


def test_two_transactions_of_an_epoch_that_both_missed_their_markers_get_none(world: World) -> None:
    """The first committed, the second aborted, both of transactions v1: no marker is right for both."""
    topic = SOLOS[SAME_EPOCH][0]
    assert (world.first[topic], world.last[topic]) == ("maybe_committed", "maybe_committed")
    assert world.fate(topic) == ([], 0)


def test_two_transactions_of_two_epochs_that_both_missed_their_markers_get_none(world: World) -> None:
    topic = SOLOS[NEXT_EPOCH][0]
    assert (world.first[topic], world.last[topic]) == ("committed", "mixed")
    assert world.fate(topic) == ([], 0)


def test_a_commit_counts_for_every_partition_that_it_names_whenever_that_was_seen(world: World) -> None:
    """The log was compacted before a sweep saw the second partition."""
    assert [world.last[topic] for topic in SOLOS[TWO]] == ["committed", "committed"]
    for topic in SOLOS[TWO]:
        assert world.fate(topic) == (["COMMIT"], len(RECORDS))


def test_a_commit_whose_first_records_were_deleted_is_not_aborted_on_the_next_replica(world: World) -> None:
    topic = SOLOS[MOVED][0]
    assert (world.first[topic], world.last[topic]) == ("committed", "committed")
    (incident,) = world.incidents[topic]
    assert (incident["start_offset"], incident["sweeps"], incident["resolved_at"]) == (0, 3, None)
    assert world.fate(topic, offset=len(RECORDS)) == (["COMMIT"], len(RECORDS))


def test_records_that_were_never_added_do_not_become_visible_with_a_commit(world: World) -> None:
    topic = SOLOS[NEVER_ADDED][0]
    assert world.last[topic] == "maybe_committed"
    assert world.fate(topic) == ([], 0)


def test_records_that_an_open_transaction_kept_from_being_added_are_not_aborted(world: World) -> None:
    """T1 of v1 aborted and missed its marker. T2 of v2 has the same epoch. The partition's leader adds it to T2 only if
    no transaction of that epoch is open there. T2 committed, also what it wrote there.
    """
    topic = SOLOS[UPGRADED][0]
    assert world.last[topic] == "maybe_committed"
    assert world.fate(topic) == ([], 0)
