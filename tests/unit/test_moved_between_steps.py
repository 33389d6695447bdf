"""A leader that moves between the first read and the metadata that confirms it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.fakes.cluster import no_progress, producer
from txnscan.coordinators.agreed_metadata import AgreedMetadata
from txnscan.coordinators.coordinator_listing import CoordinatorListing
from txnscan.kafka.answers import OpenProducer
from txnscan.kafka.failure import Failure, FailureCode, Unobserved
from txnscan.kafka.topology import ClusterView, Key, Topic
from txnscan.reads.rows import ProvenRow
from txnscan.sweeps.pipeline import prove
from txnscan.sweeps.state import AllRead, Claimed, Proof, Run, SweepPlan

KEY = ("t", 0)
OFFSET = 100
BEHIND = Failure("behind", FailureCode.BROKER_BEHIND)


def read_at(leader: int, epoch: int, *producers: OpenProducer) -> ProvenRow:
    return ProvenRow("t", "", 0, leader, epoch, 1, 200, 100, open_producers=producers)


def agreed(leader: int, epoch: int) -> AgreedMetadata:
    return AgreedMetadata((ClusterView(1, "c", (), (Topic("t", "", (0,), (leader,), (epoch,)),)),), ())


class Moving:
    """A cluster and its reader. Before each closing metadata the leader may move to the next of these epochs; only
    leaders from epoch 6 on show a transaction.
    """

    def __init__(self, *epochs: int) -> None:
        self.epochs = epochs
        self.asked: list[dict[int, frozenset[str]]] = []
        self.deadline = SimpleNamespace(is_up=False)

    def proven_once(self, keys: Any, before: AgreedMetadata, *_: Any) -> dict[Key, ProvenRow]:
        led = before.partition(*KEY)
        return {key: read_at(led.leader, led.leader_epoch, *([producer(7)] * (led.leader_epoch > 5))) for key in keys}

    def ask_coordinators(self, before: AgreedMetadata, topics: dict[int, frozenset[str]], _: Any) -> list[Any]:
        self.asked.append(topics)
        return []

    def second(self, first: dict[Key, ProvenRow], _: Any) -> dict[Key, ProvenRow]:
        return dict(first)

    def metadata_after(self, *_: Any) -> AgreedMetadata:
        epoch = self.epochs[min(len(self.asked), len(self.epochs)) - 1]
        return replace(agreed(epoch % 2 + 1, epoch), offsets={1: OFFSET, 2: OFFSET - 1, 3: OFFSET + 1})

    def concluded(self, *_: Any) -> CoordinatorListing:
        return CoordinatorListing((), 1, 1)

    def late(self, after: AgreedMetadata, offset: int) -> tuple[Unobserved, ...]:
        return tuple(Unobserved("plan", BEHIND, one) for one in after.behind(offset))

    def sleep(self, _: float) -> None: ...


def proven(moving: Moving, *errors: Unobserved) -> Proof:
    everything = SimpleNamespace(
        incidents={},
        always={KEY: ""},
        view=SimpleNamespace(cluster_id="c"),
        wide=SimpleNamespace(latest=SimpleNamespace(agreed=agreed(2, 5)), errors=errors),
    )
    run = SimpleNamespace(
        cluster=moving,
        reader=moving,
        history=SimpleNamespace(last_seen=lambda cluster_id: dict),
        stage=lambda name: no_progress,
    )
    claims = SimpleNamespace(topic_ids={KEY: ""}, separated=SimpleNamespace(unclaimed={}), last_seen=None)
    planned = SimpleNamespace(latest=SimpleNamespace(offset=OFFSET))
    return prove(cast(Run, run), cast(SweepPlan, planned), cast(AllRead, everything), cast(Claimed, claims))


def test_a_leader_that_stays_is_read_once() -> None:
    moving = Moving(5)
    found = proven(moving)
    assert (len(moving.asked), found.first[KEY].failure, found.agreed.views) == (1, None, agreed(2, 5).views)
    assert found.last_seen is None, "no sighting is needed where nothing is open"


def test_a_transaction_that_only_the_new_leader_shows_keeps_its_earlier_sighting() -> None:
    """The first leader shows nothing open. Its successor shows a transaction without an incident."""
    moving = Moving(6)
    found = proven(moving)
    assert moving.asked == [{}, {7: frozenset({"t"})}], "coordinators are asked again, about what the new leader shows"
    assert (found.first[KEY].leader, found.first[KEY].failure, found.last_seen) == (1, None, dict)
    assert found.agreed.views == agreed(1, 6).views


def test_a_broker_behind_the_plan_at_the_end_is_named_once() -> None:
    assert proven(Moving(5)).errors == (Unobserved("plan", BEHIND, 2),)
    assert proven(Moving(5), Unobserved("read", BEHIND, 2)).errors == (Unobserved("plan", BEHIND, 2),)
    assert proven(Moving(5), Unobserved("plan", BEHIND, 2)).errors == (), "it is named once"


@pytest.mark.parametrize(("epochs", "tries"), [((6, 7, 8, 9), 3), ((6, 7, 7), 3), ((6, 6), 2)])
def test_a_leader_that_goes_on_moving_proves_nothing(epochs: tuple[int, ...], tries: int) -> None:
    moving = Moving(*epochs)
    found = proven(moving)
    assert len(moving.asked) == tries
    failures = {row.failure.code if row.failure is not None else None for row in (found.first[KEY], found.second[KEY])}
    assert failures == ({FailureCode.LEADER_MOVED} if epochs[2:] == (8, 9) else {None})
