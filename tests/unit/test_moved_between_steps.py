"""A leader that moves between the first read and the coordinators' answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tests.fakes import no_progress, producer
from txnscan.coordinators.agreed_metadata import AgreedMetadata
from txnscan.kafka.answers import OpenProducer
from txnscan.kafka.topology import ClusterView, Topic
from txnscan.reads.rows import FencedRow
from txnscan.sweeps.pipeline import ask_coordinators
from txnscan.sweeps.state import AllRead, Claimed, Fenced, Run

KEY = ("t", 0)


def read_at(leader: int, epoch: int, *producers: OpenProducer) -> FencedRow:
    return FencedRow("t", "", 0, leader, epoch, 1, 200, 100, open_producers=producers)


def agreed(leader: int, epoch: int) -> AgreedMetadata:
    return AgreedMetadata((ClusterView(1, "c", (), (Topic("t", "", (0,), (leader,), (epoch,)),)),), ())


def test_a_transaction_that_only_the_new_leader_shows_keeps_its_earlier_sighting() -> None:
    """The first leader shows nothing open. Its successor shows a transaction without an incident."""
    sightings = cast(Any, dict)
    asked: list[dict[int, frozenset[str]]] = []

    def snapshot(topics: dict[int, frozenset[str]], *_: Any) -> tuple[object, AgreedMetadata]:
        asked.append(topics)
        return object(), agreed(2, 6)

    run = SimpleNamespace(
        cluster=SimpleNamespace(snapshot=snapshot, deadline=SimpleNamespace(is_up=False)),
        reader=SimpleNamespace(fenced=lambda keys, *_, **__: ({key: read_at(2, 6, producer(7)) for key in keys}, None)),
        history=SimpleNamespace(last_seen=lambda cluster_id: sightings),
        stage=lambda name: no_progress,
    )
    claims = SimpleNamespace(topic_ids={KEY: ""}, separated=SimpleNamespace(unclaimed={}))
    everything = SimpleNamespace(incidents={}, view=SimpleNamespace(cluster_id="c"))
    first, snapshotted = ask_coordinators(
        cast(Run, run),
        cast(AllRead, everything),
        cast(Claimed, claims),
        Fenced({KEY: read_at(1, 5)}, agreed(1, 5), None),
    )
    assert asked == [{}, {7: frozenset({"t"})}], "the coordinators are asked again, about what the new leader shows"
    assert (first.rows[KEY].leader, first.rows[KEY].failure, first.last_seen) == (2, None, sightings)
    assert snapshotted.agreed == agreed(2, 6)
