"""Reading one partition of `__transaction_state` in bounded memory: decoding, kept records, and missing offsets."""

from __future__ import annotations

import gzip
import itertools
import pickle
import struct
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record._crc32c import crc as crc32c_py
from kafka.record.util import calc_crc32c

import txnscan.txnlog.scan
from tests.builders import said
from tests.cases import Cases
from tests.fakes.batches import ATTRIBUTES_AT, GZIP, HEADER_BYTES, LENGTH_AT, compacted, control, patched
from tests.fakes.cluster import FakeCluster, FakePartition
from tests.fakes.transaction_log import LOG, kept, log_of
from tests.sim.encode import batch, transaction_log_value
from tests.sim.records import TransactionMetadata
from txnscan.kafka.answers import EpochEnd
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.protocol import records as decoding
from txnscan.kafka.protocol import search
from txnscan.kafka.protocol.fetch import fetch, fetch_undecoded
from txnscan.kafka.protocol.record_batch import Batch
from txnscan.kafka.protocol.search import searched, undecoded
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC as STATE
from txnscan.reads.rows import LogBatch
from txnscan.txnlog import columns as log_columns
from txnscan.txnlog.columns import peeks
from txnscan.txnlog.decode import peeked, producer_id_bytes, transactional_id_key
from txnscan.txnlog.facts import RawRecord
from txnscan.txnlog.rows import LogRow
from txnscan.txnlog.scan import Records, everything, names_in, of_ids, of_producers, pieces, read_log

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

RECORDS_COUNT_AT = 57
Record = tuple[bytes | None, bytes | None]
WANTED = 0x0102030405060708
OTHER = 0x1112131415161718


def record(name: str, producer_id: int = WANTED, state: str = "Ongoing") -> Record:
    metadata = TransactionMetadata(producer_id, 3, state, frozenset({("p", 0)}))
    return transactional_id_key(name), transaction_log_value(metadata, 1_700_000_000_000)


def tombstone(name: str) -> Record:
    return transactional_id_key(name), None


def compressed(data: bytes) -> bytes:
    """The batch with its records compressed."""
    packed = data[:HEADER_BYTES] + gzip.compress(data[HEADER_BYTES:], mtime=0)
    packed = patched(packed, LENGTH_AT, ">i", len(packed) - 12)
    return patched(packed, ATTRIBUTES_AT, ">h", struct.unpack_from(">h", packed, ATTRIBUTES_AT)[0] | GZIP)


def row_of(cluster: FakeCluster, *producer_ids: int) -> LogRow:
    (row,) = read_log(LogBatch(0, 1, (LOG,), producer_ids or (WANTED,)), cluster.send)
    return row


def offsets_asked(cluster: FakeCluster) -> list[int]:
    asked = zip(cluster.asked, cluster.requests, strict=True)
    return [r.topics[0].partitions[0].fetch_offset for (_, name), r in asked if name == "Fetch"]


def numbered(*records: Iterable[Record]) -> list[bytes]:
    """A batch for each, at consecutive offsets."""
    at, batches = 0, []
    for held in records:
        content = list(held)
        batches.append(batch(at, content))
        at += len(content)
    return batches


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The base offsets of the batches whose records were decoded, in order."""
    seen: list[int] = []
    real = decoding._batch

    def counted(one: Any, records: bool, room: Any) -> Batch:
        seen.append(one.base_offset)
        return real(one, records, room)

    monkeypatch.setattr(decoding, "_batch", counted)
    return seen


# --- decoding ---------------------------------------------------------------------------------------------------------


def test_a_log_without_a_wanted_producer_id_is_read_once_and_not_decoded(
    decoded: list[int],
) -> None:
    cluster = log_of(*numbered(*([record(f"id-{n}", OTHER)] for n in range(50))))
    row = row_of(cluster)
    assert (said(row.failure), row.records, row.reached) == (None, (), 50)
    assert decoded == [] and offsets_asked(cluster) == [0]


def test_batches_without_a_wanted_id_are_never_decoded(decoded: list[int]) -> None:
    others = [[record(f"id-{n}", OTHER)] for n in range(9)]
    row = row_of(log_of(*numbered(*others[:4], [record("X")], *others[4:], [record("X", OTHER)])))
    assert kept(row) == [(4, "X"), (10, "X")]
    assert decoded == [4, 4, 10], "for its producer id, and then once more for its records"


@pytest.mark.parametrize(("bytes_max", "asked"), [(1 << 20, [0]), (1, [0, 1, 0, 1])])
def test_a_log_in_several_pieces_is_read_twice_and_in_one_piece_once(bytes_max: int, asked: list[int]) -> None:
    cluster = log_of(*numbered([record("X", OTHER)], [record("X")]), log_start=0)
    cluster.fetch_max_bytes = bytes_max
    assert kept(row_of(cluster)) == [(0, "X"), (1, "X")]
    assert offsets_asked(cluster) == asked


def test_names_are_those_with_a_wanted_producer_id_from_an_offset_on() -> None:
    data = [record("before"), record("X"), record("of another", OTHER), tombstone("gone"), (None, record("no key")[1])]
    held = Batch(5, 9, -1, -1, -1, False, False, records=_records(5, data))
    assert names_in([held], 6, {WANTED}) == {"X"}
    assert names_in([replace(held, is_control=True)], 6, {WANTED}) == set()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("in another id's name", [(transactional_id_key("\x01\x02\x03\x04\x05\x06\x07\x08"), record("", OTHER)[1])]),
        ("in a key of another kind", [(struct.pack(">h", 9) + producer_id_bytes(WANTED), b"")]),
        ("across a key and a value", [(b"\x00\x09" + producer_id_bytes(WANTED)[:5], producer_id_bytes(WANTED)[5:])]),
    ],
)
def test_the_bytes_of_a_producer_id_elsewhere_do_not_match(name: str, data: list[Record]) -> None:
    cluster = log_of(batch(0, data))
    row = row_of(cluster)
    assert kept(row) == [], name
    assert (row.contiguous_from, row.expected) == (-1, -1), "there is no id to look through it once more for"


def test_compressed_batches_are_always_decoded(decoded: list[int]) -> None:
    one, two, three = numbered([record("X")], [record("Y", OTHER)], [record("X", OTHER)])
    row = row_of(log_of(compressed(one), compressed(two), three))
    assert producer_id_bytes(WANTED) not in compressed(one)
    assert kept(row) == [(0, "X"), (2, "X")]
    assert decoded == [0, 1, 0, 1, 2]


def test_a_tombstone_is_found_by_its_key() -> None:
    assert kept(row_of(log_of(*numbered([record("X")], [tombstone("Y")], [tombstone("X")])))) == [(0, "X"), (2, "X")]


def test_an_id_is_not_matched_by_a_prefix() -> None:
    row = row_of(log_of(*numbered([record("X")], [record("X1", OTHER), record("X", OTHER)], [record("X1", OTHER)])))
    assert kept(row) == [(0, "X"), (2, "X")]


@pytest.mark.parametrize("count", [1, 16, 17, 300])
def test_any_number_of_wanted_producer_ids_gives_the_same_records(count: int) -> None:
    """With many, decoding is quicker than searching."""
    batches = numbered(*([record(f"id-{n % 7}", 1000 + n)] for n in range(40)))
    wanted = [1003, *range(5000, 5000 + count - 1)]
    assert kept(row_of(log_of(*batches), *wanted)) == [(offset, "id-3") for offset in range(3, 40, 7)]


@pytest.mark.parametrize("bytes_max", [1, 200, 500, 1 << 20])
def test_a_log_is_read_in_any_number_of_pieces(bytes_max: int) -> None:
    cluster = log_of(*numbered([record("X", OTHER)], [record("Y", OTHER)], [record("X")], [record("Z", OTHER)]))
    cluster.fetch_max_bytes = bytes_max
    row = row_of(cluster)
    assert (kept(row), row.reached, {one.contiguous_from for one in row.records}) == ([(0, "X"), (2, "X")], 4, {0})


@pytest.mark.parametrize(
    ("bytes_max", "name", "times"), [(1 << 20, "X", 1), (1 << 20, "nobody", 1), (1, "X", 2), (1, "nobody", 1)]
)
def test_a_row_has_the_number_of_bytes_read(bytes_max: int, name: str, times: int) -> None:
    batches = numbered([record("Y", OTHER)], [record(name, WANTED if name == "X" else OTHER)], [record("Z", OTHER)])
    cluster = log_of(*batches)
    cluster.fetch_max_bytes = bytes_max
    assert row_of(cluster).read_bytes == times * sum(map(len, batches))


RISING = (
    *(batch(offset, [record("X")], leader_epoch=2) for offset in (0, 1)),
    compacted(batch(2, [record("Y", OTHER)], leader_epoch=3), 3),
    *(batch(offset, [record(name, OTHER)], leader_epoch=7) for offset, name in ((6, "X"), (9, "Y"))),
)


@pytest.mark.parametrize("bytes_max", [1, len(RISING[0]) * 2 + 1, 1 << 20])
def test_each_leader_epoch_has_its_end_in_any_number_of_pieces(bytes_max: int) -> None:
    """Includes skipped batches. A partly compacted batch ends at the last offset of its header."""
    cluster = log_of(*RISING)
    cluster.fetch_max_bytes = bytes_max
    assert row_of(cluster).epoch_ends == (EpochEnd(2, 2), EpochEnd(3, 6), EpochEnd(7, 10))
    assert row_of(cluster, 99).epoch_ends == (EpochEnd(2, 2), EpochEnd(3, 6), EpochEnd(7, 10))


def test_an_empty_or_unreadable_log_has_no_leader_epochs() -> None:
    assert row_of(log_of()).epoch_ends == ()
    assert row_of(log_of(*RISING, errors={"fetch": 6})).epoch_ends == ()


@pytest.mark.parametrize("bytes_max", [1, 1 << 20])
def test_a_record_has_the_leader_epoch_of_its_batch(bytes_max: int) -> None:
    cluster = log_of(*RISING, batch(10, [record("X"), tombstone("X")], leader_epoch=8))
    cluster.fetch_max_bytes = bytes_max
    of_x = [(0, 2), (1, 2), (6, 7), (10, 8), (11, 8)]
    assert [(one.offset, one.leader_epoch) for one in row_of(cluster).records] == of_x


def test_a_row_survives_pickling() -> None:
    row = row_of(log_of(*numbered([record("X")])))
    assert pickle.loads(pickle.dumps(row)) == row


# --- records ----------------------------------------------------------------------------------------------------------


def test_records_are_kept_from_the_one_before_the_producer_id() -> None:
    of_x = [record("X", OTHER, "Empty"), record("X", OTHER), record("X"), record("X", OTHER + 1), tombstone("X")]
    assert kept(row_of(log_of(*numbered(*([one] for one in of_x))))) == [(n, "X") for n in (1, 2, 3, 4)]


def test_records_before_a_tombstone_are_not_kept() -> None:
    row = row_of(log_of(*numbered([record("X", OTHER)], [tombstone("X")], [record("X")])))
    assert kept(row) == [(2, "X")]


def test_records_before_the_log_start_are_omitted() -> None:
    cluster = log_of(batch(0, [record("X"), record("X", state="PrepareCommit"), record("X", OTHER)]), log_start=2)
    assert (kept(row_of(cluster)), offsets_asked(cluster)) == ([], [2])
    row = row_of(log_of(batch(0, [record("X"), record("X", OTHER), record("X")]), log_start=1))
    assert kept(row) == [(1, "X"), (2, "X")]
    assert [one.contiguous_from for one in row.records] == [1, 1]


@pytest.mark.parametrize(
    "data",
    [
        control(0, WANTED, 3),
        batch(0, [(None, producer_id_bytes(WANTED))]),
        batch(0, [(struct.pack(">h", 9) + b"X", record("X")[1])]),
    ],
    ids=["a control batch", "no key", "a key of another kind"],
)
def test_batches_without_records_of_ids_are_skipped(data: bytes) -> None:
    cluster = log_of(data, batch(1, [record("X")]))
    assert kept(row_of(cluster)) == [(1, "X")]
    records = Records(frozenset({WANTED}))
    for piece in pieces(cluster.send, LOG, 0, None, everything):
        records.take_all(piece.batches, piece.offset, None)
    assert [(one.offset, one.transactional_id) for one in records.kept] == [(1, "X")]


def test_only_requested_ids_are_kept() -> None:
    """Ids come from the first pass. Later records belong to the next read."""
    both = Batch(0, 1, -1, -1, -1, False, False, records=_records(0, [record("X"), record("Y")]))
    records = Records(frozenset({WANTED}))
    records.take_all([both], 0, {"X"})
    assert [one.transactional_id for one in records.kept] == ["X"]


def test_all_records_of_named_ids_are_kept() -> None:
    """A timeline begins with an id."""
    of_x = [record("X", OTHER), tombstone("X"), record("X"), record("Y"), record("X", OTHER + 1)]
    records = Records.of_ids(["X"])
    records.take_all([Batch(0, 4, -1, -1, -1, False, False, records=_records(0, of_x))], 0, None)
    assert [(one.offset, one.transactional_id) for one in records.kept] == [(n, "X") for n in (0, 1, 2, 4)]


# --- bounds and errors ------------------------------------------------------------------------------------------------


def test_the_number_of_records_is_limited(monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion) -> None:
    monkeypatch.setattr(txnscan.txnlog.scan, "RECORDS_MAX", 3)
    assert len(kept(row_of(log_of(*numbered(*([record("X")] for _ in range(3))))))) == 3
    row = row_of(log_of(*numbered(*([record("X")] for _ in range(4)))))
    assert said(row.failure) == wording
    assert row.records == ()


X, Y, VALUE_BYTES = record("X"), record("Y"), len(record("X")[1] or b"")
# Name, limit, its value, records that fit, and one that does not.
LIMITS: dict[str, tuple[str, int, list[Record], Record]] = {
    "records": ("RECORDS_MAX", 3, [X] * 3, X),
    "bytes of records": ("KEPT_BYTES_MAX", 3 * VALUE_BYTES, [X] * 3, X),
    "bytes of the last records of ids": ("KEPT_BYTES_MAX", 3 * VALUE_BYTES, [X, record("Y", OTHER), Y], X),
    "ids": ("RECORDS_MAX", 3, [X, Y, record("Z")], record("W")),
    "bytes of ids": ("KEPT_BYTES_MAX", 400, [X], record("X" * 500)),
}


def test_what_is_kept_of_a_log_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker could answer without an end, with new records of new ids."""
    with Cases() as cases:
        for name, (limit, value, fits, one_more) in LIMITS.items():
            with cases.case(name), monkeypatch.context() as patch:
                patch.setattr(txnscan.txnlog.scan, limit, value)
                row = row_of(log_of(*numbered(*([one] for one in fits))))
                assert row.failure is None and len(row.records) == len(fits)
                row = row_of(log_of(*numbered(*([one] for one in (*fits, one_more)))))
                assert row.failure is not None and row.records == ()


def test_appended_records_have_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """For all pieces that are read."""
    monkeypatch.setattr(txnscan.txnlog.scan, "_PIECE_BYTES", 1)
    for count, fits in ((3, True), (4, False)):
        monkeypatch.setattr(txnscan.txnlog.scan, "RECORDS_MAX", 3)
        row = appended_row(log_of(*numbered(*([record("X")] for _ in range(count)))), 0, "X")
        assert (row.failure is None) is fits


def test_the_number_of_leader_epochs_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(txnscan.txnlog.scan, "EPOCHS_MAX", 3)
    for count, fits in ((3, True), (4, False)):
        data = [batch(at, [record("X")], leader_epoch=at) for at in range(count)]
        assert (row_of(log_of(*data)).failure is None) is fits


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x01]) + data[at + 1 :]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_failed_checksum_makes_the_log_unreadable(which: int) -> None:
    batches = numbered([record("Y", OTHER)], [record("X")], [record("Z", OTHER)])
    batches[which] = flipped(batches[which], len(batches[which]) - 2)
    row = row_of(log_of(*batches))
    assert said(row.failure) is not None and row.records == ()
    assert f"the batch at offset {which} fails its checksum" in str(said(row.failure))


def test_without_a_fast_checksum_every_batch_is_still_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor may have only Spark's Python, and a skipped batch is evidence that a transaction has no owner."""
    monkeypatch.setattr(search, "crc32c", lambda data: calc_crc32c(data, _crc32c=crc32c_py))
    one, two = numbered([record("Y", OTHER)], [record("X")])
    assert kept(row_of(log_of(one, two))) == [(1, "X")]
    assert "fails its checksum" in str(row_of(log_of(one, flipped(two, len(two) - 2))).failure)
    assert "fails its checksum" in str(row_of(log_of(flipped(one, len(one) - 2), two)).failure)


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda p: p.errors.update({"log start": 6}), "NOT_LEADER_OR_FOLLOWER"),
        (lambda p: p.errors.update({"fetch": 74}), "FENCED_LEADER_EPOCH"),
        (lambda p: setattr(p, "epoch", 6), "FENCED_LEADER_EPOCH"),
        (lambda p: setattr(p, "high_watermark", 9), "it gave no records at offset 2, before its end at 9"),
    ],
)
def test_a_log_that_fails_before_its_end_is_a_row_with_its_error(
    spoil: Callable[[FakePartition], object], error: str
) -> None:
    cluster = log_of(*numbered([record("X")], [record("X", OTHER)]))
    spoil(cluster.partitions[STATE, 0])
    row = row_of(cluster)
    assert (said(row.failure), row.records) == (f"{STATE}-0: {error}", ())


@pytest.mark.parametrize("refused", ["log start", "fetch"])
def test_a_missing_permission_is_named_and_does_not_mean_unserved(refused: str) -> None:
    cluster = log_of(*numbered([record("X")]))
    cluster.partitions[STATE, 0].errors[refused] = 29
    (row,) = read_log(LogBatch(0, 1, (LOG,), (WANTED,)), cluster.send)
    assert f"--allow-principal User:bob --operation Read --topic {STATE}" in str(said(row.failure, "User:bob"))
    assert not row.unserved


@pytest.mark.parametrize(
    ("length", "error"), [(48, "its length is 48"), (-12, "its length is -12")], ids=["short", "negative"]
)
def test_an_invalid_batch_length_is_an_error(length: int, error: str) -> None:
    cluster = log_of(*numbered([record("Y", OTHER)]))
    good = cluster.partitions[STATE, 0].log[0]

    def garbled(broker_id: int, answer: Any) -> Any:
        answer.responses[0].partitions[0].records = good + patched(
            batch(1, [record("Y", OTHER)]), LENGTH_AT, ">i", length
        )
        return answer

    cluster.edit["Fetch"] = garbled
    assert error in str(said(row_of(cluster).failure))


# --- appends between the two passes -----------------------------------------------------------------------------------


def appended(cluster: FakeCluster, after: int, *batches: bytes) -> None:
    """Appended by coordinators after this number of requests for the log."""
    fetches = itertools.count(1)

    def edit(broker_id: int, answer: Any) -> Any:
        if next(fetches) == after:
            for one in batches:
                cluster.partitions[STATE, 0].write(one)
        return answer

    cluster.edit["Fetch"] = edit


@pytest.mark.parametrize("name", ["X", "Y"])
def test_records_appended_between_the_two_passes_are_not_in_the_row(name: str) -> None:
    """They are read later, from the end of the row."""
    cluster = log_of(*numbered([record("X")], [record("Z", OTHER)]))
    appended(cluster, 1, batch(2, [record(name)]), batch(3, [record(name, OTHER)]))
    row = row_of(cluster)
    assert (kept(row), row.reached, row.expected) == ([(0, "X")], 2, 2)
    further = Records.following(row, frozenset({WANTED}))
    for piece in pieces(cluster.send, LOG, row.reached, None, everything):
        further.take_all(piece.batches, piece.offset, None)
    assert [(one.offset, one.transactional_id, one.contiguous_from) for one in further.kept] == [
        (2, name, 0),
        (3, name, 0),
    ]


def test_a_growing_log_is_read_to_its_first_end() -> None:
    cluster = log_of(*numbered([record("X")], [record("X")]))
    cluster.fetch_max_bytes = 1
    reads = itertools.count(1)

    def grows(broker_id: int, answer: Any) -> Any:
        if (number := next(reads)) > 1:
            cluster.partitions[STATE, 0].write(batch(number, [record("X", OTHER)]))
        return answer

    cluster.edit["Fetch"] = grows
    assert (kept(row_of(cluster)), offsets_asked(cluster)) == ([(0, "X"), (1, "X")], [0, 1, 0, 1])


def test_the_next_read_keeps_ids_of_the_row_and_new_matching_ids() -> None:
    row = LogRow(0, None, 5, (RawRecord(3, 0, "X", b""),), 0, 5)
    further = Records.following(row, frozenset({WANTED}))
    held = Batch(5, 8, -1, -1, -1, False, False, records=_records(5, [record(n, OTHER) for n in ("X", "Y", "Z")]))
    further.take_all([held], 5, None)
    further.take_all([replace(held, base_offset=8, records=_records(8, [record("Y")]))], 8, None)
    assert [(one.offset, one.transactional_id) for one in further.kept] == [(5, "X"), (6, "Y"), (8, "Y")]
    assert {one.contiguous_from for one in further.kept} == {0}


def _records(offset: int, records: list[Record]) -> tuple[tuple[int, bytes | None, bytes | None], ...]:
    return tuple((offset + n, key, value) for n, (key, value) in enumerate(records))


# --- appends since an earlier read ------------------------------------------------------------------------------------


def appended_row(cluster: FakeCluster, scanned_to: int, *names: str) -> LogRow:
    """The row of the log from this offset on, for ids that had the producer id before."""
    (row,) = read_log(LogBatch(0, 1, (LOG,), (WANTED,), scanned_to, names), cluster.send)
    return row


# Name, the records since offset 1, the ids that had the producer id before, and the expected records.
APPENDED: tuple[tuple[str, list[Record], list[str], list[tuple[int, str]]], ...] = (
    ("nothing", [], ["X"], []),
    ("another id with another producer id", [record("Y", OTHER)], ["X"], []),
    ("an id that had it, with another producer id", [record("X", OTHER)], ["X"], [(1, "X")]),
    ("the end of an id that had it", [tombstone("X")], ["X"], [(1, "X")]),
    ("another id that has it", [record("Y")], ["X"], [(1, "Y")]),
    ("another id that has it, where none had it", [record("Y")], [], [(1, "Y")]),
    ("an id that never had it", [record("X", OTHER)], [], []),
    (
        "several of each",
        [record("Y"), record("Z", OTHER), record("X", OTHER), record("X")],
        ["X"],
        [(1, "Y"), (3, "X"), (4, "X")],
    ),
    ("something at the beginning", [record("Y"), record("Z", OTHER)], ["X"], [(1, "Y")]),
    ("something at the end", [record("Z", OTHER), record("X", OTHER)], ["X"], [(2, "X")]),
)


def test_appended_records_are_searched_for_the_producer_id_and_its_former_ids() -> None:
    with Cases() as cases:
        for (name, records, names, expected), bytes_max in itertools.product(APPENDED, (1, 1 << 20)):
            with cases.case(f"{name}, {bytes_max} bytes at once"):
                batches = numbered([record("X")], *([one] for one in records))
                cluster = log_of(*batches)
                cluster.fetch_max_bytes = bytes_max
                row = appended_row(cluster, 1, *names)
                end = len(batches)
                assert kept(row) == expected
                assert (row.reached, row.contiguous_from, row.expected) == (end, end, end)
                assert row.read_bytes == sum(map(len, batches[1:]))


def test_all_records_of_a_formerly_empty_log_are_appended() -> None:
    cluster = log_of(*numbered([record("X", OTHER)], [record("Y", OTHER)]))
    assert kept(appended_row(cluster, 0, "X")) == [(0, "X")]
    assert kept(appended_row(cluster, -1, "X")) == []


@pytest.mark.parametrize(
    ("data", "error", "unserved"),
    [
        (record("Y"), "NOT_LEADER_OR_FOLLOWER", True),
        ((transactional_id_key("Y"), b"\x00\x02" + record("Y")[1][2:]), None, False),  # type: ignore[index]
        ((transactional_id_key("Y"), b"\x00"), None, True),
    ],
    ids=["a fetch that fails", "a record of a later version", "a damaged record"],
)
def test_unreadable_appended_records_are_a_row_with_its_error(data: Record, error: str | None, unserved: bool) -> None:
    cluster = log_of(*numbered([record("X")], [data]))
    if error is not None:
        cluster.partitions[STATE, 0].errors["fetch"] = int(ErrorCode[error])
    row = appended_row(cluster, 1, "X")
    assert said(row.failure) is not None
    assert error is None or error in str(said(row.failure))
    assert (row.records, row.unserved) == ((), unserved)


# --- missing offsets --------------------------------------------------------------------------------------------------


def thinned(data: list[Record], base: int, missing: frozenset[int]) -> bytes:
    """A batch without these compacted offsets, counted from its base. It keeps its bounds."""
    left = [(n, one) for n, one in enumerate(data) if n not in missing]
    if len(left) == len(data):
        return batch(base, data)
    # Records carry their offsets as deltas, which the encoder counts up: each record is written as a batch of its own,
    # and their bodies are joined behind one header.
    whole = batch(base, data)
    bodies = _bodies(whole, len(data))
    body = b"".join(bodies[n] for n, _ in left)
    cut = bytearray(whole[:HEADER_BYTES] + body)
    struct.pack_into(">i", cut, LENGTH_AT, len(cut) - 12)
    struct.pack_into(">i", cut, RECORDS_COUNT_AT, len(left))
    return compacted(bytes(cut), len(data) - 1)


def _bodies(data: bytes, count: int) -> list[bytes]:
    """The records of a batch, as bytes."""
    bodies, at = [], HEADER_BYTES
    for _ in range(count):
        length, shift, start = 0, 0, at
        while True:
            byte = data[at]
            length |= (byte & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if byte < 0x80:
                break
        at += length >> 1
        bodies.append(data[start:at])
    return bodies


def test_a_thinned_batch_equals_a_compacted_batch() -> None:
    data = thinned([record("X"), record("Y"), record("Z")], 5, frozenset({1}))
    (found,) = fetch(log_of(data).send, LOG, 0, 1 << 20, records=True).batches
    assert (found.base_offset, found.last_offset, found.records_count) == (5, 7, 2)
    assert [offset for offset, _, _ in found.records or ()] == [5, 7]


@pytest.mark.parametrize(
    ("between", "whole"),
    [
        ([], True),
        ([([OTHER], 0, frozenset())], True),
        ([([OTHER, OTHER, OTHER], 0, frozenset())], True),
        ([([OTHER], 1, frozenset())], False),
        ([([OTHER, OTHER], 0, frozenset({0}))], False),
        ([([OTHER, OTHER], 0, frozenset({1}))], False),
        ([([OTHER, OTHER, OTHER], 0, frozenset({1}))], False),
        ([([OTHER, OTHER], 0, frozenset({0, 1}))], False),
        ([([OTHER], 0, frozenset()), ([OTHER], 1, frozenset())], False),
        ([([OTHER, OTHER], 0, frozenset({1})), ([OTHER], 0, frozenset())], False),
    ],
    ids=[
        "nothing",
        "a batch",
        "a longer batch",
        "a gap before a batch",
        "a gap at a batch's begin",
        "a gap at its end",
        "a gap within it",
        "an emptied batch",
        "a gap between two",
        "a gap in the first of two",
    ],
)
def test_a_chain_is_contiguous_only_without_missing_offsets(
    between: list[tuple[list[int], int, frozenset[int]]], whole: bool, decoded: list[int]
) -> None:
    batches, at, passed_over = [batch(0, [record("X")])], 1, set()
    for producers, gap, missing in between:
        at += gap
        batches.append(thinned([record("Y", one) for one in producers], at, missing))
        if len(producers) == 1:
            passed_over.add(at)
        at += len(producers)
    one, two = row_of(log_of(*batches, batch(at, [record("X")]))).records
    assert {0, at} <= set(decoded) and not passed_over & set(decoded)
    assert (two.contiguous_from <= one.offset) is whole


LOGS = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.sampled_from("XYZ"), st.sampled_from([WANTED, OTHER, OTHER + 1, None])), min_size=1, max_size=4
        ),
        st.sampled_from([0, 0, 0, 1, 2]),
        st.frozensets(st.integers(0, 3), max_size=2),
        st.sampled_from([False, False, False, True]),
    ),
    max_size=8,
)


def laid_out(log: Iterable[tuple[list[tuple[str, int | None]], int, frozenset[int], bool]]) -> bytes:
    """These batches, as bytes of a log."""
    batches, at = [], 0
    for content, gap, missing, packs in log:
        at += gap
        made = thinned([tombstone(n) if one is None else record(n, one) for n, one in content], at, missing)
        batches.append(compressed(made) if packs else made)
        at += len(content)
    return b"".join(batches)


def chains(records: Iterable[RawRecord]) -> dict[str, list[tuple[int, bytes | None, bool]]]:
    """By id: its records, and whether no offset is missing since the previous record."""
    by_name: dict[str, list[RawRecord]] = {}
    for one in records:
        by_name.setdefault(one.transactional_id, []).append(one)
    return {
        name: [(first.offset, first.value, True) for first in of_it[:1]]
        + [(b.offset, b.value, b.contiguous_from <= a.offset) for a, b in pairwise(of_it)]
        for name, of_it in by_name.items()
    }


@given(LOGS, st.integers(0, 6), st.sampled_from([1, 300, 1 << 20]))
def test_skipped_batches_count_as_if_they_were_decoded(
    log: list[tuple[list[tuple[str, int | None]], int, frozenset[int], bool]], log_start: int, bytes_max: int
) -> None:
    """Compares the search by header and key with full decoding."""
    batches, at = [], 0
    for content, gap, missing, packs in log:
        at += gap
        data = [tombstone(name) if one is None else record(name, one) for name, one in content]
        made = thinned(data, at, missing)
        batches.append(compressed(made) if packs else made)
        at += len(data)
    cluster = log_of(*batches, log_start=min(log_start, at))
    cluster.fetch_max_bytes = bytes_max
    row = row_of(cluster)
    plain = Records(frozenset({WANTED}))
    for piece in pieces(cluster.send, LOG, min(log_start, at), None, everything):
        plain.take_all(piece.batches, piece.offset, None)
    assert said(row.failure) is None
    assert chains(row.records) == chains(plain.kept)
    # This continues with the next record.
    if row.records:
        last = max(one.offset for one in row.records)
        assert (_next_whole_from(row, row.reached) <= last) is (_next_whole_from(plain, row.reached) <= last)


def _next_whole_from(records: Records | LogRow, offset: int) -> int:
    """The start of the contiguous range for a record at this offset."""
    return records.contiguous_from if offset == records.expected else offset


@given(LOGS, st.sampled_from([[WANTED], [OTHER], [WANTED, OTHER + 1]]), st.integers(0, 40))
def test_searched_batches_equal_decoded_batches(
    log: list[tuple[list[tuple[str, int | None]], int, frozenset[int], bool]], wanted: list[int], cut: int
) -> None:
    """Batches without a match have only offsets. A truncated batch is omitted."""
    data = laid_out(log)
    data = data[: max(0, len(data) - cut)]
    strings = {producer_id_bytes(one) for one in wanted}
    every = {one.base_offset: one for one in decoding.decoded(data, records=True)}
    found = list(searched(undecoded(data), of_producers(wanted)))
    told: dict[int, Batch] = {}
    for one in found:
        covered = [whole for base, whole in every.items() if one.base_offset <= base <= one.last_offset]
        assert (covered[0].base_offset, covered[-1].last_offset) == (one.base_offset, one.last_offset)
        assert one.records_count == sum(whole.records_count for whole in covered)
        if one.records is not None:
            assert one == covered[0]
            told[one.base_offset] = one
        elif len(covered) > 1:
            assert one.records_count == one.last_offset - one.base_offset + 1
    assert [one.base_offset for one in found] == sorted(one.base_offset for one in found)
    assert all(one.records is not None or after.records is not None for one, after in pairwise(found))
    for base, whole in every.items():
        holds = any(value is not None and string in value for _, _, value in whole.records or () for string in strings)
        assert base in told or not holds


@given(LOGS, st.integers(0, 40))
def test_many_batches_are_searched_like_few(
    log: list[tuple[list[tuple[str, int | None]], int, frozenset[int], bool]], cut: int
) -> None:
    """By columns, which pay off for thousands of batches."""
    data = laid_out(log)
    data = data[: max(0, len(data) - cut)]
    for wanted in (of_producers([WANTED]), of_producers([OTHER, OTHER + 1]), of_ids(["X"]), of_ids(["Y", "Zz", ""])):
        few = list(searched(undecoded(data), wanted))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(search, "_MANY", 1)
            assert list(searched(undecoded(data), wanted)) == few


def test_a_log_read_in_large_sections_keeps_the_same_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Appended records after the known end are skipped with the others, and omitted."""
    others = [[record("Y", OTHER)]] * 5
    cluster = log_of(*numbered(*others, [record("X")], *others, [record("X", OTHER)], *others))
    few = row_of(cluster)
    monkeypatch.setattr(search, "_MANY", 1)
    assert row_of(cluster) == few and len(few.records) == 2
    sections = ((0, 4), (5, 5), (6, 10), (11, 11), (12, 16))
    for end in range(1, 18):
        (piece,) = pieces(cluster.send, LOG, 0, end, of_ids(["X"]))
        expected = [(first, min(last, end - 1)) for first, last in sections if first < end]
        assert [(one.base_offset, one.last_offset) for one in piece.batches] == expected
        assert [one.records_count for one in piece.batches] == [last - first + 1 for first, last in expected]


@pytest.mark.parametrize(
    ("search_for", "columns"), [(of_producers([WANTED]), "of_producers"), (of_ids(["X"]), "of_keys")]
)
@pytest.mark.parametrize(("batches", "by_columns"), [(0, False), (2, False), (3, True), (4, True)])
def test_only_many_batches_are_searched_by_columns(
    search_for: search.Wanted, columns: str, batches: int, by_columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise loading numpy costs more than it saves."""
    monkeypatch.setattr(search, "_MANY", 3)
    monkeypatch.setattr(log_columns, columns, lambda data, bounds, wanted: "by columns")
    one = batch(0, [record("X")])
    bounds = [n * len(one) for n in range(batches + 1)]
    assert search_for(one * batches, bounds) == ("by columns" if by_columns else [True] * batches)


def test_a_damaged_batch_has_the_same_error_searched_or_decoded(wording: SnapshotAssertion) -> None:
    good = batch(0, [record("Y", OTHER)])
    cluster = log_of(good)
    cluster.partitions[STATE, 0].log[0] = flipped(good, len(good) - 2)
    for read in (partial(fetch, records=True), fetch_undecoded):
        with pytest.raises(RequestFailed) as error:
            read(cluster.send, LOG, 0, 1 << 20)
        assert str(error.value) == wording


# --- peeking into a batch without decoding it -------------------------------------------------------------------------

NAMES = st.one_of(st.text(max_size=8), st.integers(1, 300).map("n".__mul__), st.just("é" * 40), st.just("n" * 9_000))


@given(NAMES, st.sampled_from([0, 1, WANTED, 2**63 - 1]), st.integers(0, 60), st.booleans(), st.integers(0, 2**40))
def test_a_peek_shows_the_decoded_key_and_producer_id(
    name: str, producer_id: int, partitions: int, gone: bool, offset: int
) -> None:
    held = frozenset((f"topic-{n}", n) for n in range(partitions))
    value = transaction_log_value(TransactionMetadata(producer_id, 3, "Ongoing", held), 1_700_000_000_000)
    data = batch(offset, [(transactional_id_key(name), None if gone else value)])
    found = peeked(data)
    seen = (transactional_id_key(name), b"" if gone else producer_id_bytes(producer_id))
    assert found == seen or (found is None and (len(name) > 8_000 or len(value) > 8_000))
    # Columns do not cover very short keys and values.
    alike = peeks(data, [0, len(data)])
    if not alike.odd[0]:
        at, size = int(alike.key_at[0]), int(alike.key_size[0])
        assert found == (data[at : at + size], b"" if gone else producer_id_bytes(int(alike.producer_id[0])))
    else:
        assert found is None or not name or len(value) > 8_000


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (batch(0, [record("X"), record("Y")]), "two records"),
        (thinned([record("X"), record("Y")], 0, frozenset({0})), "a record that was the second"),
        (batch(0, []), "no record"),
        (batch(0, [(None, record("X")[1])]), "no key"),
        (batch(0, [(transactional_id_key("X"), b"\x00\x02" + producer_id_bytes(WANTED))]), "a later version"),
        (batch(0, [(transactional_id_key("X"), b"\x01\x00" + producer_id_bytes(WANTED))]), "a much later version"),
        (batch(0, [(transactional_id_key("X"), b"")]), "an empty value"),
        (batch(0, [(transactional_id_key("X"), b"\x00\x01" + producer_id_bytes(WANTED)[:7])]), "a value cut short"),
        (batch(0, [record("X")])[: HEADER_BYTES + 3], "a batch cut short"),
        (batch(0, [record("X")])[:HEADER_BYTES], "a header alone"),
        (b"", "nothing"),
    ],
)
def test_a_peek_rejects_batches_that_coordinators_never_write(data: bytes, why: str) -> None:
    """They are decoded, which reports the error."""
    assert peeked(data) is None, why
    if len(data) > HEADER_BYTES:
        assert peeks(data + bytes(20), [0, len(data)]).odd[0], why


def test_a_record_of_a_later_version_makes_the_log_unreadable() -> None:
    later = transactional_id_key("Y"), b"\x00\x02" + producer_id_bytes(OTHER) + bytes(20)
    row = row_of(log_of(*numbered([record("X")], [later])))
    assert said(row.failure) is not None and row.records == ()
