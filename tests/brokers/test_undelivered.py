"""Decisions whose markers do not arrive where nothing is open: the warning, and the real brokers that need it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.brokers.test_old_brokers import PRODUCER_IDS, FakeOld, open_on, swept_fake
from tests.builders import LATE_AFTER_MS, MINUTE_MS, NOW_MS, P, Q, judged, view
from tests.fakes import FakeId
from txnscan import ScanConfig, find_hanging
from txnscan.demo import plant
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.reader import read_values
from txnscan.demo.wait import wait_until
from txnscan.findings import Scan
from txnscan.judge.undelivered import undelivered_warning
from txnscan.kafka.coordinator import coordinator_partition
from txnscan.kafka.write_txn_markers import MarkerToWrite
from txnscan.model import TRANSACTION_STATE_TOPIC, CoordinatorView, Judged

OLD_MS = NOW_MS - 42 * MINUTE_MS
WAITS = view("PrepareCommit", 4, (Q,), start_time_ms=OLD_MS)
# Open on p, and judged a pending marker.
REPORTED = judged(view("PrepareCommit", 4, (P, Q), start_time_ms=OLD_MS))


def warned(*prepared: CoordinatorView, judged: tuple[Judged, ...] = ()) -> str | None:
    warnings = undelivered_warning(prepared, judged, NOW_MS, LATE_AFTER_MS)
    assert len(warnings) <= 1
    return next(iter(warnings), None)


def test_a_decision_that_waits_for_a_partition_where_nothing_is_open_is_warned_of_with_what_to_do() -> None:
    assert warned(WAITS) == (
        "transactional id 'X' is in PrepareCommit for a transaction that began 42 minutes ago, and waits for q-0, "
        "where no open transaction of it was seen. If it stays so, see why the partition takes no writes. Where it "
        "takes writes, the coordinator has given up sending, because a partition refused a marker of this decision. It "
        "sends again only when it loads its log anew: once every partition of the id has a leader, move the leader of "
        "the id's __transaction_state partition, or restart that broker"
    )


@pytest.mark.parametrize(
    ("start_time_ms", "warns", "why"),
    [
        (NOW_MS - LATE_AFTER_MS - 1, True, "older than the threshold"),
        (NOW_MS - LATE_AFTER_MS, False, "not older"),
        (0, True, "as old as time itself"),
        (-1, False, "the coordinator knows no start"),
    ],
)
def test_only_what_is_known_to_be_older_than_the_threshold_is_warned_of(
    start_time_ms: int, warns: bool, why: str
) -> None:
    assert (warned(replace(WAITS, start_time_ms=start_time_ms)) is not None) is warns, why


def test_a_partition_that_is_judged_a_pending_marker_is_not_warned_of_and_the_others_of_the_id_are() -> None:
    assert warned(replace(WAITS, partitions=(P,)), judged=(REPORTED,)) is None
    said = warned(replace(WAITS, partitions=(P, Q)), judged=(REPORTED,))
    assert said is not None and "waits for q-0," in said and P not in said


def test_another_ids_pending_marker_on_the_partition_hides_nothing() -> None:
    assert warned(replace(WAITS, transactional_id="Y", partitions=(P,)), judged=(REPORTED,)) is not None


def test_what_is_open_there_and_judged_otherwise_does_not_count_as_told() -> None:
    gone = judged(WAITS, second_start_offset=None, second_producer_epoch=None, second_last_sequence=None)
    assert gone.judgement.verdict == "gone"
    assert warned(replace(WAITS, partitions=(P,)), judged=(gone,)) is not None


def test_an_id_that_shows_no_partition_any_more_waits_all_the_same() -> None:
    assert "waits for no partition that it shows." in str(warned(replace(WAITS, partitions=())))


def test_five_ids_are_named_oldest_first_and_the_others_counted() -> None:
    ids = [replace(WAITS, transactional_id=f"id-{n}", start_time_ms=OLD_MS - n * MINUTE_MS) for n in range(7)]
    said = str(warned(*ids))
    assert [f"'id-{n}'" in said for n in range(7)] == [False, False, True, True, True, True, True]
    assert said.index("'id-6'") < said.index("'id-2'") and "; and 2 more like it. If" in said
    assert "more like it" not in str(warned(*ids[:5]))


def test_three_partitions_of_an_id_are_named_and_the_others_counted() -> None:
    said = str(warned(replace(WAITS, partitions=tuple(f"q-{n}" for n in range(5)))))
    assert "waits for q-0, q-1, q-2 and 2 more partitions, where" in said


# --- a whole sweep


def test_a_sweep_warns_and_its_verdicts_stay_what_they_are() -> None:
    fake = FakeOld({})
    plain = swept_fake(fake)
    (k,) = fake.cached[2]
    name = next(n for n in map("waits-{}".format, range(99)) if coordinator_partition(n, len(fake.brokers)) == k)
    assert 8 not in PRODUCER_IDS.values()
    fake.ids.setdefault(2, {})[name] = FakeId(8, 4, "PrepareAbort", (("data", 1),), start_time_ms=1_600_000_000_000)
    warned = swept_fake(fake)
    assert (open_on(warned), warned.complete, warned.errors) == (open_on(plain), plain.complete, plain.errors)
    assert plain.warnings == ()
    (warning,) = warned.warnings
    assert warning.startswith(f"transactional id '{name}' is in PrepareAbort") and "waits for data-1," in warning


# --- real brokers


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with KafkaCluster(tmp_path_factory.mktemp("undelivered")) as started:
        yield started


def swept(cluster: KafkaCluster) -> Scan:
    return find_hanging(ScanConfig(cluster.bootstrap_servers, late_after="1ms"))


def of_ids(scan: Scan) -> list[str]:
    return [warning for warning in scan.warnings if warning.startswith("transactional id")]


def test_a_coordinator_that_was_refused_is_warned_of_and_sends_again_when_its_log_is_loaded_anew(
    cluster: KafkaCluster,
) -> None:
    """Somebody ended a live transaction on q by hand, with a coordinator epoch that is too high. The real coordinator's
    marker is refused there (TRANSACTION_COORDINATOR_FENCED), q is closed, and the commit stays in PrepareCommit.
    """
    first, last = cluster.broker_ids[0], cluster.broker_ids[-1]
    with cluster.wire() as wire:
        for topic in ("taken", "refused"):
            create_topic(wire, topic, [[first]])
        producer = plant.coordinated_by(wire, last, "refused")
        for topic in ("taken", "refused"):
            producer.write(topic, 0, [b"a record"])
        identity = producer.known
        transactional_id = producer.transactional_id
        assert transactional_id is not None
        coordinator_epoch = _log_epoch(cluster, transactional_id) + 1
        by_hand = MarkerToWrite("refused", 0, identity.producer_id, identity.producer_epoch, coordinator_epoch, False)
        assert by_hand.answered(wire.send(first, by_hand.request())) == 0
        producer.end(commit=True)
        wait_until(lambda: read_values(wire, "taken", 0, committed=True) == [b"a record"], "the other got its marker")
        owner = plant.describe_owner(wire, transactional_id)
        assert (owner.state, owner.partitions) == ("PrepareCommit", ("refused-0",))

        found = swept(cluster)
        (warning,) = of_ids(found)
        assert f"'{producer.transactional_id}' is in PrepareCommit" in warning and "waits for refused-0," in warning
        assert (found.transactions, found.complete) == ((), True)

        cluster.stop_broker(last)
        cluster.wait_for_brokers(cluster.running)
        wait_until(
            lambda: plant.describe_owner(wire, transactional_id).state == "CompleteCommit",
            "the next coordinator's marker was taken",
        )
        assert of_ids(swept(cluster)) == []


def _log_epoch(cluster: KafkaCluster, transactional_id: str) -> int:
    """The leader epoch of the id's `__transaction_state` partition, which is its coordinator's epoch."""
    with cluster.wire() as wire:
        partitions = wire.view([TRANSACTION_STATE_TOPIC]).partitions
    k = coordinator_partition(transactional_id, len(partitions))
    return next(found.leader_epoch for found in partitions if found.partition == k)
