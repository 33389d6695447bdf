"""Reading outcomes from the log: which partitions are read, how far, and the handling of failed reads."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.builders import judged, said, view
from tests.fakes.batches import ATTRIBUTES_AT, compacted, control, patched
from tests.fakes.cluster import FakeCluster, FakeId, FakePartition, broker, no_progress, partition
from tests.fakes.transaction_log import LEADERS, P, Record, history, id_for, record
from tests.sim.encode import batch
from txnscan.coordinators.agreed_metadata import AgreedMetadata
from txnscan.coordinators.cluster import Cluster
from txnscan.engine.threads import ThreadsEngine
from txnscan.kafka.answers import EpochEnd, State
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.client.factory import ClientFactory
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.protocol.frames import api_name
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC as STATE
from txnscan.kafka.topology import Broker
from txnscan.resolve.abort import ReadAnyway
from txnscan.sweeps.enrichment import with_outcomes
from txnscan.sweeps.history import FactsAlone, History, NoHistory
from txnscan.sweeps.log_reads import read_outcomes
from txnscan.sweeps.reader import PROVEN_BATCH_SIZE
from txnscan.txnlog import lineage
from txnscan.txnlog.decode import DamagedRecord, UnknownRecord, transactional_id_key
from txnscan.txnlog.facts import Facts, LogRead, ProducerFacts, SeenCommit
from txnscan.txnlog.scan import is_unserved
from txnscan.verdict.evidence import Judged, Outcome, OutcomeEvidence, Reason, Verdict
from txnscan.verdict.rules import judge

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

ENGINE, LANES = ThreadsEngine(1), 1
LEADER_EPOCH_AT = 12


@dataclass(frozen=True)
class ConnectToFake:
    """Stands in for ClientFactory."""

    fake: FakeCluster
    brokers: tuple[Broker, ...] = (broker(1),)
    settings: ConnectionSettings = field(default_factory=ConnectionSettings)

    def for_controller(self) -> ConnectToFake:
        return self

    def client(self) -> FakeCluster:
        return self.fake

    def close(self) -> None:
        """Has no connections to close."""


class FakeLogs(FakeCluster):
    """Three partitions of `__transaction_state`, and p-0 with producer id 7 open from offset 100 at epoch 3."""

    def __init__(self) -> None:
        super().__init__()
        self.lead(STATE, LEADERS)
        self.lead("p", [1])
        self.partitions[P].log_start = 90
        self.partitions[P].write(batch(100, [(None, b"x")] * 5, producer_id=7, producer_epoch=3))
        for k in range(len(LEADERS)):
            self.log(k).high_watermark = 0
            self.log(k).topic_id = uuid.UUID(int=1)

    def learn(self, brokers: Sequence[Broker]) -> None:
        """Ignores addresses."""

    def log(self, k: int) -> FakePartition:
        return self.partitions[STATE, k]

    def write(self, k: int, *records: Record, offset: int | None = None) -> None:
        """Each in a batch of its own, as coordinators do."""
        for one in records:
            log = self.log(k)
            log.write(batch(log.high_watermark if offset is None else offset, [one]))
            offset = None

    def reads_of(self, topic: str) -> list[tuple[int, int, int]]:
        """Each Fetch of a topic: the broker, the partition and the offset."""
        return [
            (broker_id, asked.partition, asked.fetch_offset)
            for (broker_id, name), request in zip(self.asked, self.requests, strict=True)
            if name == "Fetch" and request.topics[0].topic == topic
            for asked in request.topics[0].partitions
        ]


@pytest.fixture
def cluster() -> FakeLogs:
    return FakeLogs()


STATES = [State.EMPTY, State.ONGOING, State.PREPARE_COMMIT, State.COMPLETE_COMMIT]


def owned(k: int, state: str = "CompleteCommit", epoch: int = 3, name: str | None = None, **changes: Any) -> Judged:
    """A hanging transaction whose known id is on this partition of the log, which ends as described."""
    producer_id = changes.get("producer_id", 7)
    return judged(view(state, epoch, transactional_id=name or id_for(k), producer_id=producer_id), **changes)


def read_all(
    fake: FakeLogs,
    *hanging: Judged,
    on_progress: Callable[[int, int], None] = no_progress,
    stored: Facts = MappingProxyType({}),
) -> list[OutcomeEvidence]:
    with Cluster(cast(ClientFactory, ConnectToFake(fake)), threads=0) as cluster:
        cluster.view()
        before = cluster.agreed_metadata({STATE, *(one.observation.topic for one in hanging)})
        return read_outcomes(cluster, ENGINE, LANES, before, hanging, stored, on_progress)


def again(fake: FakeLogs, earlier: OutcomeEvidence, hanging: Judged) -> tuple[OutcomeEvidence, list[tuple[int, int]]]:
    """The result of the next sweep, and the offsets and log partitions that it fetches."""
    before = len(fake.reads_of(STATE))
    (found,) = read_all(fake, hanging, stored={7: earlier.seen + earlier.news})
    return found, [(k, offset) for _, k, offset in fake.reads_of(STATE)[before:]]


def read(fake: FakeLogs, hanging: Judged | None = None, *earlier: LogRead) -> OutcomeEvidence:
    stored = {7: ProducerFacts(earlier)}
    (found,) = read_all(fake, owned(1) if hanging is None else hanging, stored=stored)
    return found


def states(found: OutcomeEvidence) -> list[tuple[int, State]]:
    return [(one.offset, one.state) for one in found.logged]


def numbered(*offsets: int) -> list[tuple[int, State]]:
    return list(zip(offsets, STATES, strict=True))


# --- log partitions and offsets ---------------------------------------------------------------------------------------


def test_only_the_log_partition_of_a_known_id_is_read(cluster: FakeLogs) -> None:
    cluster.write(1, *history(id_for(1)))
    found = read(cluster)
    assert (states(found), found.log_failure) == (numbered(0, 1, 2, 3), None)
    assert {k for _, k, _ in cluster.reads_of(STATE)} == {1}
    assert (found.owner_epoch, found.first_epoch, found.batch_failure) == (3, 3, None)
    assert found.contradiction is None


def test_an_orphan_is_searched_in_all_log_partitions(cluster: FakeLogs) -> None:
    cluster.write(0, *history(id_for(0), producer_id=8))
    cluster.write(2, *history(id_for(2)))
    found = read(cluster, judged())
    assert {k for _, k, _ in cluster.reads_of(STATE)} == {0, 1, 2}
    assert {one.transactional_id for one in found.logged} == {id_for(2)}
    assert (states(found), found.owner_epoch, found.log_failure) == (numbered(0, 1, 2, 3), None, None)


def test_without_hanging_transactions_no_request_is_sent(cluster: FakeLogs) -> None:
    with Cluster(cast(ClientFactory, ConnectToFake(cluster)), threads=0) as asking:
        assert read_outcomes(asking, ENGINE, LANES, AgreedMetadata((), ()), [], {}, no_progress) == []
    assert cluster.asked == []


def test_each_log_partition_is_read_once_and_the_order_of_evidence_is_kept(cluster: FakeLogs) -> None:
    other = id_for(1, "other")
    cluster.write(1, *history(id_for(1)), *history(other, producer_id=8))
    cluster.write(2, *history(id_for(2), producer_id=9))
    shown: list[tuple[int, int]] = []
    hanging = [owned(2, producer_id=9), owned(1), owned(1, name=other, producer_id=8), owned(1)]
    found = read_all(cluster, *hanging, on_progress=lambda *progress: shown.append(progress))
    assert [one.observation for one in found] == [one.observation for one in hanging]
    assert [{r.transactional_id for r in one.logged} for one in found] == [
        {id_for(2)},
        {id_for(1)},
        {other},
        {id_for(1)},
    ]
    assert sorted(cluster.reads_of(STATE)) == [(2, 1, 0), (3, 2, 0)]
    assert shown == [(0, 2), (1, 2), (2, 2)]


@pytest.mark.parametrize("bytes_max", [1, 100, 200, 300, 1 << 20])
def test_a_log_is_read_from_its_start_to_its_high_watermark_in_any_number_of_pieces(
    cluster: FakeLogs, bytes_max: int
) -> None:
    cluster.write(1, *history("someone", producer_id=8), *history(id_for(1)))
    del cluster.log(1).log[:2]
    cluster.log(1).log_start = 2
    cluster.fetch_max_bytes = bytes_max
    found = read(cluster)
    assert (states(found), found.log_failure) == (numbered(4, 5, 6, 7), None)
    offsets = [offset for _, _, offset in cluster.reads_of(STATE)]
    if bytes_max == 1 << 20:
        assert offsets == [2], "what is at hand is not read again"
        return
    keys, records = offsets[: len(offsets) // 2], offsets[len(offsets) // 2 :]
    assert keys[0] == 2 and keys == records == sorted(set(keys)), "once for its keys, and once for the records"
    assert len(keys) == {1: 6}.get(bytes_max, len(keys))


def test_unreplicated_records_are_not_read(cluster: FakeLogs) -> None:
    cluster.write(1, *history(id_for(1)))
    cluster.log(1).high_watermark = 3
    assert states(read(cluster)) == numbered(0, 1, 2, 3)[:3]


@pytest.mark.parametrize("bytes_max", [1, 1 << 20])
def test_compacted_offsets_are_skipped(cluster: FakeLogs, bytes_max: int) -> None:
    name = id_for(1)
    one, two, three, four = history(name)
    cluster.write(1, one, offset=10)
    cluster.write(1, two, offset=20)
    cluster.log(1).write(compacted(batch(30, [three]), 5))
    cluster.write(1, four, offset=50)
    cluster.fetch_max_bytes = bytes_max
    found = read(cluster)
    assert (states(found), found.log_failure) == (numbered(10, 20, 30, 50), None)


def test_records_before_the_log_start_are_not_read(cluster: FakeLogs) -> None:
    cluster.log(1).write(batch(0, history(id_for(1))))
    cluster.log(1).log_start = 2
    assert states(read(cluster)) == numbered(0, 1, 2, 3)[2:]


def test_an_empty_log_has_no_records(cluster: FakeLogs) -> None:
    found = read(cluster)
    assert (found.logged, found.log_failure) == ((), None)


def test_a_log_with_equal_start_and_end_has_no_records(cluster: FakeLogs) -> None:
    cluster.log(1).log_start = cluster.log(1).high_watermark = 17
    found = read(cluster)
    assert (found.logged, found.log_failure) == ((), None)


# --- records ----------------------------------------------------------------------------------------------------------


def test_records_are_kept_from_the_one_before_the_producer_id(
    cluster: FakeLogs,
) -> None:
    name = id_for(1)
    cluster.write(1, *history(name, producer_id=5), *history("other", 5), *history(name), *history(name, producer_id=9))
    assert [(one.offset, one.producer_id) for one in read(cluster).logged] == [
        (3, 5),
        *((offset, 7) for offset in range(8, 12)),
        *((offset, 9) for offset in range(12, 16)),
    ]


def test_every_id_that_had_the_producer_id_is_kept(cluster: FakeLogs) -> None:
    cluster.write(1, *history(id_for(1)), record("another", State.EMPTY))
    assert {one.transactional_id for one in read(cluster).logged} == {id_for(1), "another"}


def test_records_of_another_producer_id_are_no_evidence(cluster: FakeLogs) -> None:
    cluster.write(1, *history("other", producer_id=8), *history(id_for(1)))
    one, two = read_all(cluster, owned(1), owned(1, producer_id=8))
    assert {r.transactional_id for r in one.logged} == {id_for(1)}
    assert {r.transactional_id for r in two.logged} == {"other"}


@pytest.mark.parametrize(
    "passed",
    [
        batch(4, [(None, b"a value without a key")]),
        batch(4, [(b"\x00\x01a later key", b"\x7f\xff")]),
        control(4, 7, 3),
    ],
    ids=["no key", "a key of another kind", "a control batch"],
)
def test_batches_without_records_of_ids_are_skipped(cluster: FakeLogs, passed: bytes) -> None:
    cluster.write(1, *history(id_for(1)))
    cluster.log(1).write(passed)
    found = read(cluster)
    assert (states(found), found.log_failure) == (numbered(0, 1, 2, 3), None)


def test_a_tombstone_is_the_last_record_of_its_id(cluster: FakeLogs) -> None:
    cluster.write(1, *history(id_for(1)), (transactional_id_key(id_for(1)), None))
    found = read(cluster, judged())
    assert states(found) == [*numbered(0, 1, 2, 3), (4, State.DEAD)]


def test_a_tombstone_separates_two_ids_of_the_same_name(cluster: FakeLogs) -> None:
    name = id_for(1)
    cluster.write(1, *history(name, producer_id=5), (transactional_id_key(name), None), *history(name))
    assert [(one.offset, one.producer_id) for one in read(cluster).logged] == [(offset, 7) for offset in range(5, 9)]


@pytest.mark.parametrize("bytes_max", [1, 1 << 20])
def test_each_record_has_the_start_of_its_contiguous_range(cluster: FakeLogs, bytes_max: int) -> None:
    one, two, three, four = history(id_for(1))
    cluster.write(1, one, offset=10)
    cluster.write(1, record("someone", State.EMPTY, producer_id=8), offset=11)
    cluster.write(1, two, offset=12)
    cluster.log(1).write(compacted(batch(20, [three]), 5))
    cluster.write(1, four, offset=26)
    cluster.fetch_max_bytes = bytes_max
    assert [(one.offset, one.contiguous_from) for one in read(cluster).logged] == [
        (10, 10),
        (12, 10),
        (20, 20),
        (26, 26),
    ]


# --- the log against the coordinators ---------------------------------------------------------------------------------


def test_an_owner_in_agreement_with_its_log_is_not_described_again(cluster: FakeLogs) -> None:
    cluster.write(1, *history(id_for(1)))
    assert read(cluster).contradiction is None
    assert "DescribeTransactions" not in {name for _, name in cluster.asked}


@pytest.mark.parametrize(
    ("described", "ends", "said"),
    [
        ((3, "Empty"), (3, State.COMPLETE_COMMIT), "is CompleteCommit at epoch 3, and broker 2 describes it as"),
        ((4, "Empty"), (5, State.EMPTY), "is Empty at epoch 5, and broker 2 describes it as Empty at epoch 4"),
        ((5, "Ongoing"), (4, State.ONGOING), "is Ongoing at epoch 4, and broker 2 describes it as Ongoing at epoch 5"),
    ],
    ids=["a state before", "an epoch before", "an epoch that was raised in memory alone"],
)
def test_an_owner_in_disagreement_with_its_log_is_a_contradiction(
    cluster: FakeLogs, described: tuple[int, str], ends: tuple[int, State], said: str
) -> None:
    epoch, state = described
    cluster.write(1, record(id_for(1), ends[1], ends[0], partitions=(("q", 0),)))
    cluster.ids[2] = {id_for(1): FakeId(7, epoch, state)}
    hanging = judged(view("Empty", 9, transactional_id=id_for(1)))
    hanging = replace(
        hanging,
        evidence=replace(hanging.evidence, coordinators=(view(state, epoch, transactional_id=id_for(1)),)),
    )
    found = read(cluster, hanging)
    assert said in str(found.contradiction)


def test_an_owner_that_moved_on_is_described_again(cluster: FakeLogs) -> None:
    cluster.write(1, *history(id_for(1)), record(id_for(1), State.EMPTY, 4))
    cluster.ids[2] = {id_for(1): FakeId(7, 4, "Empty")}
    assert read(cluster).contradiction is None
    assert [name for _, name in cluster.asked].count("DescribeTransactions") == 1


def test_a_busy_owner_is_matched_with_appended_records(cluster: FakeLogs) -> None:
    name = id_for(1)
    cluster.write(1, *history(name), record(name, State.EMPTY, 4))

    def goes_on(broker_id: int, answer: Any) -> Any:
        # It began a transaction after its log was read, and another one is in progress when it is described.
        cluster.write(1, record(name, State.ONGOING, 4, partitions=(("q", 0),)), record(name, State.COMPLETE_ABORT, 5))
        return answer

    cluster.ids[2] = {name: FakeId(7, 4, "Ongoing")}
    cluster.edit["DescribeTransactions"] = goes_on
    assert read(cluster).contradiction is None


def test_an_owner_that_takes_the_partition_is_a_contradiction(cluster: FakeLogs) -> None:
    name = id_for(1)
    cluster.write(1, *history(name), record(name, State.ONGOING, 3, partitions=(P,)))
    cluster.ids[2] = {name: FakeId(7, 3, "Ongoing", (P,))}
    found = read(cluster)
    assert "is Ongoing with this partition" in str(found.contradiction)


def test_an_owner_without_records_is_a_contradiction(cluster: FakeLogs, wording: SnapshotAssertion) -> None:
    cluster.write(1, record("someone", State.EMPTY, producer_id=8))
    cluster.ids[2] = {id_for(1): FakeId(7, 3, "CompleteCommit")}
    assert said(read(cluster).contradiction) == wording


def test_an_orphan_with_a_logged_owner_is_a_contradiction(cluster: FakeLogs, wording: SnapshotAssertion) -> None:
    cluster.write(2, *history("hidden"))
    assert said(read(cluster, judged()).contradiction) == wording


@pytest.mark.parametrize(
    "after",
    [
        (transactional_id_key("hidden"), None),
        record("hidden", State.EMPTY, 0, producer_id=8),
    ],
    ids=["expired", "has another producer id"],
)
def test_an_orphan_abandoned_by_its_id_stays_an_orphan(cluster: FakeLogs, after: Record) -> None:
    cluster.write(2, *history("hidden"), after)
    assert read(cluster, judged()).contradiction is None


@pytest.mark.parametrize("known", [True, False], ids=["a known id", "an orphan"])
def test_an_unserved_log_is_a_contradiction(cluster: FakeLogs, known: bool) -> None:
    """Another leader may load it again."""
    cluster.write(1, *history("hidden"))
    cluster.log(1).errors["fetch"] = int(ErrorCode.UNKNOWN_LEADER_EPOCH)
    found = read(cluster, owned(1) if known else judged())
    assert found.contradiction == found.log_failure
    assert said(found.log_failure) == f"{STATE}-1: UNKNOWN_LEADER_EPOCH"


@pytest.mark.parametrize("known", [True, False], ids=["a known id", "an orphan"])
def test_a_new_leader_without_a_high_watermark_is_a_contradiction(cluster: FakeLogs, known: bool) -> None:
    cluster.write(1, *history(id_for(1))[:-1])
    cluster.log(1).errors["high watermark"] = int(ErrorCode.OFFSET_NOT_AVAILABLE)
    found = read(cluster, owned(1) if known else judged())
    assert found.contradiction == found.log_failure
    assert said(found.log_failure) == f"{STATE}-1: OFFSET_NOT_AVAILABLE"


@pytest.mark.parametrize("known", [True, False], ids=["a known id", "an orphan"])
def test_an_unauthorized_log_is_an_error_and_no_contradiction(cluster: FakeLogs, known: bool) -> None:
    cluster.write(1, *history("hidden"))
    cluster.log(1).errors["fetch"] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    found = read(cluster, owned(1) if known else judged())
    assert found.contradiction is None and found.log_failure is not None


@pytest.mark.parametrize(
    ("failed", "expected", "why"),
    [
        (RequestFailed("it is down"), True, "it does not answer"),
        (RequestFailed.answered("broker 1", "Fetch", ErrorCode.FENCED_LEADER_EPOCH), True, "it leads no more"),
        (RequestFailed.answered("broker 1", "Fetch", ErrorCode.TOPIC_AUTHORIZATION_FAILED), False, "an ACL lacks"),
        (RequestFailed.unsupported("broker 1", "Fetch"), False, "it never did"),
        (DamagedRecord("it is cut short"), True, "its coordinator stops there as well"),
        (UnknownRecord("a value of version 2 is not known"), False, "its coordinator knows it"),
    ],
)
def test_a_log_is_unserved_if_its_coordinator_may_lack_it_too(failed: Exception, expected: bool, why: str) -> None:
    assert is_unserved(failed) is expected, why


LATER = b"\x00\x02" + history("x")[0][1][2:]  # type: ignore[index]


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        (transactional_id_key(id_for(1)), LATER, "a value of version 2 is not known"),
        (transactional_id_key("another"), LATER, "a value of version 2 is not known"),
        (transactional_id_key(id_for(1)), b"\x00\x01", "a record cannot be decoded: it is cut short"),
        (transactional_id_key(id_for(1)), history("x")[1][1], None),
        (transactional_id_key(id_for(1)), history("x")[1][1][:-1], "a record cannot be decoded: it is cut short"),  # type: ignore[index]
        (b"\x00\x00\x00\x09x", history("x")[0][1], "a record cannot be decoded: it is cut short"),
        (b"\x00", history("x")[0][1], "a record cannot be decoded: it is cut short"),
    ],
    ids=["later", "later, of another id", "cut short", "sound", "cut at its end", "its key cut short", "half a key"],
)
@pytest.mark.parametrize("when", ["first", "last"])
def test_an_undecodable_record_makes_the_log_unreadable(
    cluster: FakeLogs, key: bytes, value: bytes, error: str | None, when: str
) -> None:
    sound = history(id_for(1))
    cluster.write(1, *([(key, value), *sound] if when == "first" else [*sound, (key, value)]))
    found = read(cluster)
    assert said(found.log_failure) == (None if error is None else f"{STATE}-1: {error}")
    assert (found.logged == ()) is (error is not None)


# --- failed reads of a log --------------------------------------------------------------------------------------------


def damage(fake: FakeLogs) -> None:
    log = fake.log(1)
    log.log[2] = log.log[2][:-1] + bytes([log.log[2][-1] ^ 1])


def fail_second_fetch(fake: FakeLogs) -> None:
    fake.fetch_max_bytes = 1
    fake.fail_when = lambda _, request, asked: api_name(request) == "Fetch" and len(fake.reads_of(STATE)) == 2


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (damage, "the batch at offset 2 fails its checksum"),
        (lambda c: c.log(1).errors.update({"fetch": 6}), "NOT_LEADER_OR_FOLLOWER"),
        (lambda c: c.log(1).errors.update({"fetch": 74}), "FENCED_LEADER_EPOCH"),
        (lambda c: c.log(1).errors.update({"fetch": 29}), "TOPIC_AUTHORIZATION_FAILED"),
        (lambda c: c.log(1).errors.update({"log start": 74}), "FENCED_LEADER_EPOCH"),
        (lambda c: c.log(1).errors.update({"high watermark": 78}), "OFFSET_NOT_AVAILABLE"),
        (lambda c: c.log(1).log.pop(), "it gave no records at offset 3, before its end at 4"),
        (lambda c: c.log(1).log.clear(), "it gave no records at offset 0, before its end at 4"),
        (fail_second_fetch, "broker 2 cannot be reached"),
        (lambda c: setattr(c.log(1), "leader", -1), f"{STATE}-1 has no leader"),
    ],
    ids=[
        "a wrong checksum",
        "not the leader",
        "a later leader epoch",
        "no permission",
        "its start is not told",
        "its end is not known to a new leader",
        "no records before its end",
        "no records at all",
        "cut off in the midst",
        "no leader",
    ],
)
@pytest.mark.parametrize("known", [True, False], ids=["a known id", "an orphan"])
def test_a_log_that_fails_before_its_end_is_an_error_without_records(
    cluster: FakeLogs, spoil: Callable[[FakeLogs], object], error: str, known: bool
) -> None:
    cluster.write(1, *history(id_for(1)))
    spoil(cluster)
    found = read(cluster, owned(1) if known else judged())
    assert str(found.log_failure).startswith(f"{STATE}-1: ") and error in str(found.log_failure)
    assert found.logged == ()


def test_an_orphan_keeps_records_of_the_readable_log_partitions(cluster: FakeLogs) -> None:
    cluster.write(0, *history(id_for(0)))
    cluster.log(1).errors["fetch"] = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    found = read(cluster, judged())
    assert (states(found), said(found.log_failure)) == (numbered(0, 1, 2, 3), f"{STATE}-1: NOT_LEADER_OR_FOLLOWER")


def test_an_error_affects_only_ids_of_its_log_partition(cluster: FakeLogs) -> None:
    cluster.write(1, *history(id_for(1)))
    cluster.log(2).errors["fetch"] = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    one, two = read_all(cluster, owned(1), owned(2))
    assert (one.log_failure, said(two.log_failure)) == (None, f"{STATE}-2: NOT_LEADER_OR_FOLLOWER")


def after_the_read(fake: FakeLogs, change: Callable[[], object], reads: int = 1) -> None:
    """Makes the change after this number of pieces of a log. A log of one piece is read once."""
    numbers = itertools.count(1)

    def edit(broker_id: int, answer: Any) -> Any:
        if answer.responses[0].topic == STATE and next(numbers) == reads:
            change()
        return answer

    fake.edit["Fetch"] = edit


@pytest.mark.parametrize(
    "change",
    [
        lambda c: setattr(c.log(1), "epoch", 6),
        lambda c: setattr(c.log(1), "leader", 3),
    ],
    ids=["a later epoch", "another leader"],
)
def test_a_log_counts_whose_leader_changed_after_the_read(
    cluster: FakeLogs, change: Callable[[FakeLogs], object]
) -> None:
    cluster.write(1, *history(id_for(1)))
    expected = read(cluster).logged
    after_the_read(cluster, lambda: change(cluster))
    found = read(cluster)
    assert (found.logged, found.log_failure) == (expected, None) and expected


@pytest.mark.parametrize("reads", [1, 4], ids=["two pieces", "two passes"])
def test_a_leader_deposed_between_two_fetches_gives_no_records(cluster: FakeLogs, reads: int) -> None:
    cluster.write(1, *history(id_for(1)))
    cluster.fetch_max_bytes = 1
    after_the_read(cluster, lambda: setattr(cluster.log(1), "epoch", 6), reads)
    found = read(cluster)
    assert found.log_failure is not None and found.logged == ()


@pytest.mark.parametrize("bytes_max", [1, 1 << 20])
def test_records_appended_after_the_first_pass_are_read_once(cluster: FakeLogs, bytes_max: int) -> None:
    """The owner moved on before its log was read. Its new records continue the earlier ones."""
    name = id_for(1)
    *before, last = history(name)
    cluster.write(1, *before)
    cluster.ids[2] = {name: FakeId(7, 3, "CompleteCommit")}
    cluster.fetch_max_bytes = bytes_max
    after_the_read(cluster, lambda: cluster.write(1, last), reads=3 if bytes_max == 1 else 1)
    found = read(cluster)
    assert (states(found), found.log_failure, found.contradiction) == (numbered(0, 1, 2, 3), None, None)
    assert {one.contiguous_from for one in found.logged} == {0}


def lose_the_topic(fake: FakeLogs) -> None:
    for k in range(len(LEADERS)):
        del fake.partitions[STATE, k]


@pytest.mark.parametrize("known", [True, False], ids=["a known id", "an orphan"])
def test_a_missing_transaction_state_topic_leaves_the_outcome_unknown(cluster: FakeLogs, known: bool) -> None:
    hanging = owned(1) if known else judged()
    lose_the_topic(cluster)
    found = read(cluster, hanging)
    assert found.logged == () and found.log_failure == found.contradiction
    assert said(found.log_failure) == f"{STATE}-0: {STATE}: UNKNOWN_TOPIC_OR_PARTITION"


@pytest.mark.parametrize("known", [True, False], ids=["a known id", "an orphan"])
def test_unreachable_brokers_leave_the_outcome_unknown(cluster: FakeLogs, known: bool) -> None:
    hanging = owned(1) if known else judged()
    with Cluster(cast(ClientFactory, ConnectToFake(cluster)), threads=0) as asking:
        asking.view()
        cluster.unreachable |= {1, 2, 3}
        before = asking.agreed_metadata([STATE])
        (found,) = read_outcomes(asking, ENGINE, LANES, before, [hanging], {}, no_progress)
    assert found.logged == () and found.log_failure is not None
    assert found.contradiction == found.log_failure, "whoever leads the log may find there what no coordinator said"
    assert found.first_epoch is None and found.batch_failure is not None


# --- the first batch --------------------------------------------------------------------------------------------------


def test_only_the_first_batch_is_read_from_the_leader(cluster: FakeLogs) -> None:
    cluster.partitions[P].write(batch(105, [(None, b"y")], producer_id=7, producer_epoch=4))
    assert read(cluster).first_epoch == 3
    assert cluster.reads_of("p") == [(1, 0, 100)]


def test_the_first_batches_of_a_leader_are_read_in_one_request_and_large_ones_alone(cluster: FakeLogs) -> None:
    cluster.lead("p", [1, 1, 1, 2])
    for index, size in enumerate((1, 20_000, 1, 1)):
        cluster.partitions["p", index].write(batch(100, [(None, b"x" * size)], producer_id=7, producer_epoch=index))
        cluster.partitions["p", index].write(batch(101, [(None, b"y")]))
    hanging = [owned(1, partition=index) for index in range(4)] + [owned(1, start_offset=101)]
    cluster.asked.clear()
    cluster.requests.clear()
    found = read_all(cluster, *hanging)
    assert [one.first_epoch for one in found] == [0, 1, 2, 3, None]
    assert sorted(cluster.reads_of("p")) == sorted(
        [(1, 0, 100), (1, 1, 100), (1, 2, 100), (2, 3, 100), (1, 1, 100), (1, 0, 101)]
    )
    assert len([None for _, name in cluster.asked if name == "Fetch"]) == 2 + 2 + len(cluster.reads_of(STATE))


def test_a_request_for_first_batches_has_a_limited_size(cluster: FakeLogs) -> None:
    """Each partition may give 16 KiB, and all leaders are asked at once."""
    count = PROVEN_BATCH_SIZE + 50
    cluster.lead("p", [1] * count)
    for index in range(count):
        cluster.partitions["p", index].write(batch(100, [(None, b"x")], producer_id=7, producer_epoch=3))
    assert {one.first_epoch for one in read_all(cluster, *(owned(1, partition=n) for n in range(count)))} == {3}
    asked = zip(cluster.asked, cluster.requests, strict=True)
    of_p = [r for (_, name), r in asked if name == "Fetch" and r.topics[0].topic == "p"]
    assert sorted(len(r.topics[0].partitions) for r in of_p) == [50, PROVEN_BATCH_SIZE]


def test_the_first_batch_gives_the_first_epoch(cluster: FakeLogs) -> None:
    cluster.partitions[P].log[0] = batch(100, [(None, b"x")], producer_id=7, producer_epoch=2)
    assert read(cluster).first_epoch == 2


GONE = "at offset 100 there is no record of producer id 7 any more"


@pytest.mark.parametrize(
    ("log", "error"),
    [
        ([], GONE),
        ([batch(103, [(None, b"x")], producer_id=7, producer_epoch=3)], GONE),
        ([batch(98, [(None, b"x")] * 9, producer_id=7, producer_epoch=3)], GONE),
        ([batch(100, [(None, b"x")], producer_id=8, producer_epoch=3)], GONE),
        ([batch(100, [(None, b"x")])], GONE),
        ([patched(batch(100, [(None, b"x")], producer_id=7, producer_epoch=3), ATTRIBUTES_AT, ">h", 0)], GONE),
        ([batch(100, [(None, b"x")], producer_id=7, producer_epoch=3)[:-1] + b"!"], "fails its checksum"),
    ],
    ids=[
        "empty",
        "a gap",
        "a batch around it",
        "another producer",
        "no producer",
        "no transaction",
        "a wrong checksum",
    ],
)
def test_a_missing_first_batch_leaves_the_first_epoch_unknown(cluster: FakeLogs, log: list[bytes], error: str) -> None:
    cluster.partitions[P].log = log
    found = read(cluster)
    assert found.first_epoch is None and error in str(found.batch_failure)


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda p: setattr(p, "log_start", 101), "OFFSET_OUT_OF_RANGE"),
        (lambda p: p.errors.update({"fetch": 6}), "NOT_LEADER_OR_FOLLOWER"),
        (lambda p: p.errors.update({"fetch": 74}), "FENCED_LEADER_EPOCH"),
        (lambda p: p.errors.update({"fetch": 29}), "TOPIC_AUTHORIZATION_FAILED"),
        (lambda p: setattr(p, "leader", -1), "p-0 has no leader"),
    ],
    ids=["its records are deleted", "not the leader", "a later leader epoch", "no permission", "no leader"],
)
def test_an_unreadable_first_batch_does_not_affect_the_log(
    cluster: FakeLogs, spoil: Callable[[FakePartition], object], error: str
) -> None:
    cluster.write(1, *history(id_for(1)))
    spoil(cluster.partitions[P])
    found = read(cluster)
    assert found.first_epoch is None and error in str(found.batch_failure)
    assert (states(found), found.log_failure) == (numbered(0, 1, 2, 3), None)


def test_a_control_batch_is_no_first_batch(cluster: FakeLogs) -> None:
    cluster.partitions[P].log = [control(100, 7, 3)]
    assert said(read(cluster).batch_failure) == GONE


def test_the_first_batch_is_read_at_the_agreed_leader_epoch(cluster: FakeLogs) -> None:
    cluster.partitions[P] = FakePartition(leader=2, epoch=8, log=cluster.partitions[P].log)
    assert partition("p", 0).leader_epoch != 8
    assert read(cluster).first_epoch == 3
    assert cluster.reads_of("p") == [(2, 0, 100)]


# --- facts of earlier sweeps ------------------------------------------------------------------------------------------


def compact(fake: FakeLogs, *kept: int) -> None:
    """Keeps only these batches of log partition 1."""
    fake.log(1).log = [fake.log(1).log[offset] for offset in kept]


def cut(fake: FakeLogs, end: int) -> None:
    """Takes the records from this offset on out of log partition 1."""
    log = fake.log(1)
    log.log, log.high_watermark = log.log[:end], end


def test_a_read_of_an_id_is_a_fact(cluster: FakeLogs) -> None:
    cluster.write(1, *history(id_for(1)), *history("other", producer_id=8))
    (fact,) = read(cluster).news.reads
    assert (fact.transactional_id, fact.partition, fact.end_offset) == (id_for(1), 1, 8)
    assert [(one.offset, one.value is not None, one.contiguous_from) for one in fact.records] == [
        (offset, True, 0) for offset in range(4)
    ]
    assert fact.leader_epoch == cluster.log(1).epoch


def test_a_read_without_new_records_is_no_fact(cluster: FakeLogs) -> None:
    cluster.write(1, *history(id_for(1)))
    facts = read(cluster).news.reads
    assert read(cluster, None, *facts).news.reads == ()
    compact(cluster, 3)
    ends = read(cluster, None, *facts).news.reads
    assert [one.epoch_ends for one in ends] == [(EpochEnd(0, 4),)], "what was compacted away is of the same log"
    assert read(cluster, None, *facts, *ends).news.reads == ()
    cluster.write(1, record(id_for(1), State.EMPTY, 9))
    assert len(read(cluster, owned(1, "Empty", 9), *facts).news.reads) == 1


def test_a_known_log_is_read_from_its_last_end(cluster: FakeLogs) -> None:
    cluster.write(1, *history(id_for(1)))
    first = read(cluster)
    same, fetched = again(cluster, first, owned(1))
    assert (same.logged, same.contradiction, fetched) == (first.logged, None, [(1, 3), (1, 4)])
    assert same.news == ProducerFacts()
    cluster.write(1, *history(id_for(1, "other"), producer_id=8))
    same, fetched = again(cluster, first, owned(1))
    assert (same.logged, fetched, same.news) == (first.logged, [(1, 3), (1, 4)], ProducerFacts())


def test_new_records_of_the_producer_id_cause_a_full_read(cluster: FakeLogs) -> None:
    cluster.write(1, *history(id_for(1)))
    first = read(cluster)
    cluster.write(1, record(id_for(1), State.EMPTY, 9))
    found, fetched = again(cluster, first, owned(1, "Empty", 9))
    assert [one.offset for one in found.logged] == [0, 1, 2, 3, 4]
    assert (found.contradiction, fetched) == (None, [(1, 3), (1, 4), (1, 0)])
    cluster.write(1, record("another", State.EMPTY, 3, 7))
    found, fetched = again(cluster, found, owned(1, "Empty", 9))
    assert fetched == [(1, 4), (1, 4), (1, 0)] and {one.transactional_id for one in found.logged} == {
        id_for(1),
        "another",
    }


def test_a_known_log_of_an_orphan_is_not_read_again(cluster: FakeLogs) -> None:
    cluster.write(0, *history(id_for(0), producer_id=8))
    cluster.write(2, *history(id_for(2)), record(id_for(2), State.EMPTY, 3, 9))
    first = read(cluster, judged())
    assert [(one.partition, one.transactional_ids) for scan in first.news.scans for one in scan.logs] == [
        *((0, ()), (1, ()), (2, (id_for(2),))),
    ]
    same, fetched = again(cluster, first, judged())
    assert (same.logged, sorted(fetched)) == (first.logged, [(0, 4), (1, 0), (2, 4), (2, 5)])
    cluster.write(1, record("late", State.ONGOING))
    found, fetched = again(cluster, first, judged())
    assert found.contradiction is not None, "an id has come to have its producer id"


def test_a_known_log_whose_last_record_is_another_is_read_fully(cluster: FakeLogs) -> None:
    """The log of a restored cluster may end where the stored read ended, at the same leader epoch."""
    cluster.write(1, *history(id_for(1)))
    first = read(cluster)
    cut(cluster, 3)
    cluster.write(1, record(id_for(1), State.COMPLETE_ABORT, 4))
    found, fetched = again(cluster, first, owned(1, "CompleteAbort", 4))
    assert fetched == [(1, 3), (1, 0)]
    assert states(found)[-1] == (3, State.COMPLETE_ABORT)
    assert [one.state for one in found.vetoes] == [State.COMPLETE_COMMIT]


@pytest.mark.parametrize("lost", ["the leader moved", "its reads are lost", "the log could not be read"])
def test_a_log_without_a_complete_earlier_read_is_read_fully(cluster: FakeLogs, lost: str) -> None:
    cluster.write(1, *history(id_for(1)))
    if lost == "the log could not be read":
        cluster.log(1).errors["fetch"] = 29
    first = read(cluster)
    cluster.log(1).errors.clear()
    if lost == "the leader moved":
        cluster.log(1).epoch += 1
    if lost == "its reads are lost":
        first = replace(first, news=replace(first.news, reads=()))
    found, fetched = again(cluster, first, owned(1))
    assert fetched == [(1, 0)] and states(found) == numbered(0, 1, 2, 3)


def test_a_log_with_truncated_stored_records_is_read_fully(cluster: FakeLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "RECORDS_STORED_MAX", 2)
    cluster.write(1, *history(id_for(1)))
    first = read(cluster)
    assert (len(first.news.reads[0].records), first.news.scans) == (2, ())
    found, fetched = again(cluster, first, owned(1))
    assert ([one.offset for one in found.logged], fetched) == ([0, 1, 2, 3], [(1, 0)])


class Kept(NoHistory):
    """See KnowsFacts."""

    def __init__(self, facts: ProducerFacts) -> None:
        self._facts = facts

    def facts(self, cluster_id: str, producer_ids: Collection[int]) -> Callable[[], Facts]:
        """See KnowsFacts."""
        return lambda: dict.fromkeys(producer_ids, self._facts)


@pytest.mark.parametrize("history_of", [FactsAlone, lambda kept: ReadAnyway("p", 0, kept)], ids=["apply", "abort"])
def test_apply_and_abort_read_the_whole_log(cluster: FakeLogs, history_of: Callable[[Kept], History]) -> None:
    cluster.write(1, *history(id_for(1)))
    first = read(cluster)
    assert again(cluster, first, owned(1))[1] == [(1, 3), (1, 4)], "a sweep reads what was appended"
    before = len(cluster.reads_of(STATE))
    (found,) = read_all(cluster, owned(1), stored=history_of(Kept(first.seen + first.news)).facts("c", [7])())
    assert [offset for _, _, offset in cluster.reads_of(STATE)[before:]] == [0]
    assert found.logged == first.logged


def test_reads_of_an_earlier_history_only_veto(cluster: FakeLogs) -> None:
    """The log of a restored cluster lacks what was read before. That is no contradiction, and proves nothing."""
    cluster.write(1, *history(id_for(1)))
    first = read(cluster)
    cut(cluster, 2)
    cluster.write(1, record(id_for(1), State.EMPTY, 4))
    known = first.seen + first.news
    (found,) = read_all(cluster, owned(1, "Empty", 4), stored={7: known.only_vetoes()})
    assert found.contradiction is None
    assert states(found) == [(0, State.EMPTY), (1, State.ONGOING), (2, State.EMPTY)]
    assert [(one.offset, one.state) for one in found.vetoes] == [(2, State.PREPARE_COMMIT), (3, State.COMPLETE_COMMIT)]
    (found,) = read_all(cluster, owned(1, "Empty", 4), stored={7: known})
    assert found.contradiction is not None, "as facts of this history they would contradict the log"


def test_compacted_records_are_still_known(cluster: FakeLogs) -> None:
    cluster.write(1, *history(id_for(1)))
    facts = read(cluster).news.reads
    compact(cluster, 3)
    assert states(read(cluster)) == [(3, State.COMPLETE_COMMIT)]
    found = read(cluster, None, *facts)
    assert (states(found), found.vetoes, found.contradiction) == (numbered(0, 1, 2, 3), (), None)
    assert [one.contiguous_from for one in found.logged] == [0, 0, 0, 0]


def test_a_log_that_lost_stored_records_is_a_contradiction(cluster: FakeLogs) -> None:
    cluster.write(1, *history(id_for(1)))
    facts = read(cluster).news.reads
    cut(cluster, 2)
    log = cluster.log(1)
    log.epoch += 1
    cluster.write(1, record(id_for(1), State.EMPTY, 4))
    log.log[2] = patched(log.log[2], LEADER_EPOCH_AT, ">i", log.epoch)
    found = read(cluster, owned(1, "Empty", 4), *facts)
    assert "offset 3" in str(found.contradiction)
    assert states(found) == [(0, State.EMPTY), (1, State.ONGOING), (2, State.EMPTY)]
    assert [(one.offset, one.state) for one in found.vetoes] == [(2, State.PREPARE_COMMIT), (3, State.COMPLETE_COMMIT)]


def test_records_of_an_expired_id_are_known_while_their_leader_epoch_exists(cluster: FakeLogs) -> None:
    cluster.write(1, *history(id_for(1)))
    facts = read(cluster).news.reads
    cluster.write(1, record(id_for(1, "other"), State.EMPTY, producer_id=8))
    compact(cluster, 4)
    found = read(cluster, judged(), *facts)
    assert (states(found), found.vetoes, found.contradiction) == (numbered(0, 1, 2, 3), (), None)


def test_an_unreadable_log_turns_stored_records_into_vetoes(cluster: FakeLogs) -> None:
    cluster.write(1, *history(id_for(1)))
    facts = read(cluster).news.reads
    cluster.log(1).errors["fetch"] = 29
    found = read(cluster, None, *facts)
    assert found.log_failure is not None and found.logged == ()
    assert [one.state for one in found.vetoes] == STATES


def test_an_undecodable_stored_record_leaves_the_outcome_unknown(cluster: FakeLogs) -> None:
    cluster.write(1, *history(id_for(1)))
    (fact,) = read(cluster).news.reads
    strange = replace(fact, records=(replace(fact.records[0], value=b"\x00\x09"), *fact.records[1:]))
    found = read(cluster, None, strange)
    assert (found.logged, found.vetoes) == ((), ())
    assert "cannot be decoded" in str(found.log_failure)


# --- a sweep --------------------------------------------------------------------------------------------------------


def swept(fake: FakeLogs, *transactions: Judged) -> list[Judged]:
    """The judged transactions after the log step of a sweep."""
    hanging = [one for one in transactions if one.judgement.verdict is Verdict.HANGING]
    return with_outcomes(transactions, read_all(fake, *hanging))


def test_a_sweep_reads_the_log_only_for_hanging_transactions(cluster: FakeLogs) -> None:
    cluster.write(1, *history(id_for(1)))
    healthy = judged(view("Ongoing", 3, ("p-0",)))
    hanging, same = swept(cluster, owned(1), healthy)
    assert same is healthy
    assert hanging.known_outcome is not None
    assert (hanging.outcome, hanging.known_outcome.outcome) == ("maybe_committed", Outcome.MAYBE_COMMITTED)


def test_an_owner_in_complete_commit_is_a_stored_fact(cluster: FakeLogs) -> None:
    cluster.write(1, *history(id_for(1)))
    commit = SeenCommit(id_for(1), 7, 3)
    found = read(cluster)
    assert (found.seen.commits, found.news.commits) == ((commit,), (commit,))
    (again,) = read_all(cluster, owned(1), stored={7: ProducerFacts(commits=(commit,))})
    assert (again.seen.commits, again.news.commits) == ((commit,), ())
    assert read(cluster, owned(1, "Empty", 9)).news.commits == ()
    assert read(cluster, owned(1, epoch=4)).news.commits == (replace(commit, producer_epoch=4),)
    assert read(cluster, owned(1, epoch=5)).news.commits == (), "a later commit is not of what hangs"


def test_a_contradiction_by_the_log_makes_the_verdict_indeterminate(cluster: FakeLogs) -> None:
    cluster.write(2, *history("hidden"))
    (found,) = swept(cluster, judged())
    assert (found.judgement.verdict, found.judgement.reason) == (Verdict.INDETERMINATE, Reason.SPLIT)
    assert found.known_outcome is None and found.evidence.log_contradiction is not None
    assert judge(found.evidence) == found.judgement


def test_an_unauthorized_log_leaves_the_verdict_hanging(cluster: FakeLogs) -> None:
    cluster.log(1).errors["fetch"] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    (found,) = swept(cluster, owned(1))
    assert found.judgement.verdict is Verdict.HANGING and found.known_outcome is not None
    assert str(found.known_outcome.log_failure).startswith(f"{STATE}-1: TOPIC_AUTHORIZATION_FAILED")


def test_an_unserved_log_makes_the_verdict_indeterminate(cluster: FakeLogs, wording: SnapshotAssertion) -> None:
    cluster.log(1).errors["fetch"] = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    (found,) = swept(cluster, owned(1))
    assert (found.judgement.verdict, found.judgement.reason) == (Verdict.INDETERMINATE, Reason.SPLIT)
    assert found.judgement.explanation == wording
