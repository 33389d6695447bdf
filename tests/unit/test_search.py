"""Searching batches: which are decoded, which are skipped as a section, and the fields of sections.

Few batches are searched one by one, and many by columns, with the same result.
"""

from __future__ import annotations

import gzip
import itertools
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import Cases
from tests.fakes.batches import (
    ATTRIBUTES_AT,
    CRC_AT,
    GZIP,
    HEADER_BYTES,
    LENGTH_AT,
    MAGIC_AT,
    compacted,
    control,
    patched,
)
from tests.sim.encode import batch
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol import search, search_columns
from txnscan.kafka.protocol.record_batch import COMPRESSED, CONTROL, HEADER, LOG_APPEND_TIME, TRANSACTIONAL, Batch
from txnscan.kafka.protocol.records import decoded
from txnscan.kafka.protocol.search import Section, searched, undecoded

COUNT_AT, LEADER_EPOCH_AT = 57, 12
DELETE_HORIZON = 0x40
Sections = Callable[[bytes, Sequence[int], Sequence[bool]], Any]
BY_BATCH_AND_BY_COLUMNS = pytest.mark.parametrize("sections", [search._sections, search_columns.sections])


@pytest.fixture(params=["few", "many"])
def amount(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test twice: batch by batch, and by columns."""
    monkeypatch.setattr(search, "_MANY", 1 if request.param == "many" else 1_000)


def header(base_offset: int, last_delta: int, count: int, attributes: int = 0, magic: int = 2) -> bytes:
    """A batch without its counts."""
    plain = HEADER.pack(base_offset, HEADER.size - 12, 5, magic, 0, 0, last_delta, 6, 7, 8, 9, 10, count)
    return patched(plain, ATTRIBUTES_AT, ">h", attributes)


def sectioned(sections: Sections, headers: Sequence[bytes], wanted: Sequence[bool]) -> list[Section]:
    bounds = list(itertools.accumulate(map(len, headers), initial=0))
    return list(sections(b"".join(headers), bounds, wanted))


# --- sections ---------------------------------------------------------------------------------------------------------


SECTIONS: tuple[tuple[list[bytes], str, list[Section], str], ...] = (
    ([header(7, 0, 1)], "-", [(0, 1, False)], "one alone"),
    ([header(7, 0, 1)], "w", [(0, 1, True)], "one alone that is looked for"),
    ([header(7, 0, 1), header(8, 0, 1), header(9, 0, 1)], "---", [(0, 3, False)], "one after the other"),
    ([header(7, 2, 3), header(10, 4, 5), header(15, 0, 1)], "---", [(0, 3, False)], "of several records each"),
    ([header(0, 0, 1), header(2, 0, 1)], "--", [(1, 2, False)], "an offset is missing between"),
    ([header(7, 2, 3), header(8, 0, 1)], "--", [(1, 2, False)], "they overlap"),
    ([header(7, 2, 3), header(9, 0, 1)], "--", [(1, 2, False)], "they overlap by one"),
    ([header(7, 2, 2), header(10, 0, 1)], "--", [(1, 2, False)], "the first is not whole"),
    ([header(7, 2, 2), header(9, 0, 1)], "--", [(1, 2, False)], "nor if it says otherwise"),
    ([header(7, 0, 3), header(10, 0, 1)], "--", [(1, 2, False)], "more records than offsets"),
    ([header(7, 0, 1), header(8, 2, 2)], "--", [(1, 2, False)], "the second is not whole"),
    ([header(7, 0, 1), header(8, 0, 0)], "--", [(1, 2, False)], "the second is empty"),
    ([header(-1, 0, 0), header(0, 0, 1)], "--", [(1, 2, False)], "the first is empty"),
    (
        [header(5, 0, 1), header(6, 0, 1), header(8, 0, 1), header(9, 0, 1)],
        "----",
        [(2, 4, False)],
        "what goes on after a gap is together again",
    ),
    (
        [header(n, 0, 1) for n in (0, 2, 4, 5, 7, 9, 10)],
        "--w----",
        [(1, 2, False), (2, 3, True), (5, 7, False)],
        "the last before one that is decoded, and before the end",
    ),
    ([header(7, 0, 1), header(8, 0, 1)], "ww", [(0, 2, True)], "what is decoded, is decoded at once"),
    ([header(7, 2, 1), header(50, 0, 0), header(9, 0, 1)], "www", [(0, 3, True)], "whatever is missing in it"),
    (
        [header(0, 0, 1), header(1, 0, 1), header(2, 0, 1), header(3, 0, 1)],
        "-ww-",
        [(0, 1, False), (1, 3, True), (3, 4, False)],
        "what is looked for parts the others",
    ),
    (
        [header(0, 0, 1), header(1, 0, 1), header(2, 0, 1), header(3, 0, 1)],
        "w--w",
        [(0, 1, True), (1, 3, False), (3, 4, True)],
        "and the other way round",
    ),
    (
        [header(0, 0, 1), header(1, 0, 0), header(2, 0, 1)],
        "-w-",
        [(0, 1, False), (1, 2, True), (2, 3, False)],
        "whole or not",
    ),
    ([header(2**40, 2**31 - 1, 1), header(2**40 + 2**31, 0, 1)], "--", [(1, 2, False)], "high"),
    ([header(2**40, 1, 2), header(2**40 + 2, 0, 1)], "--", [(0, 2, False)], "and low"),
)


@BY_BATCH_AND_BY_COLUMNS
def test_contiguous_unwanted_batches_are_one_section_and_wanted_batches_are_decoded(sections: Sections) -> None:
    """A section ends at the next decoded batch. After a gap, only the last section counts."""
    with Cases() as cases:
        for batches, wanted, expected, why in SECTIONS:
            with cases.case(why):
                assert sectioned(sections, batches, [one == "w" for one in wanted]) == expected


ATTRIBUTES = (
    (0, 2, False),
    (LOG_APPEND_TIME, 2, False),
    (TRANSACTIONAL, 2, False),
    (DELETE_HORIZON, 2, False),
    *((codec, 2, True) for codec in range(1, COMPRESSED + 1)),
    (CONTROL, 2, True),
    (CONTROL | TRANSACTIONAL, 2, True),
    (GZIP | LOG_APPEND_TIME, 2, True),
    (0, 0, True),
    (0, 1, True),
    (0, 3, True),
)


@BY_BATCH_AND_BY_COLUMNS
def test_only_plain_data_batches_are_skipped(sections: Sections) -> None:
    """A compressed batch or another version must be decoded, and so must markers."""
    with Cases() as cases:
        for attributes, magic, decodes in ATTRIBUTES:
            with cases.case(f"attributes {attributes}, version {magic}"):
                alone = [header(0, 0, 1), header(1, 0, 1, attributes, magic), header(2, 0, 1)]
                parted = [(0, 1, False), (1, 2, True), (2, 3, False)]
                assert sectioned(sections, alone, [False] * 3) == (parted if decodes else [(0, 3, False)])


@BY_BATCH_AND_BY_COLUMNS
def test_a_search_without_an_answer_per_batch_is_an_error(sections: Sections) -> None:
    with pytest.raises(ValueError):
        sectioned(sections, [header(0, 0, 1), header(1, 0, 1), header(2, 0, 1)], [False, False])


# --- compared with full decoding --------------------------------------------------------------------------------------


def of(*records: bytes, **producer: int) -> bytes:
    return batch(0, [(b"k", one) for one in records], **producer)


def packed(data: bytes) -> bytes:
    """The batch with its records compressed."""
    made = data[:HEADER_BYTES] + gzip.compress(data[HEADER_BYTES:], mtime=0)
    made = patched(made, LENGTH_AT, ">i", len(made) - 12)
    return patched(made, ATTRIBUTES_AT, ">h", GZIP)


def emptied(offsets: int) -> bytes:
    """A batch without records, kept for its producer."""
    made = patched(of(b"v", producer_id=7, producer_epoch=3)[:HEADER_BYTES], COUNT_AT, ">i", 0)
    return compacted(patched(made, LENGTH_AT, ">i", HEADER_BYTES - 12), offsets - 1)


# Each with its number of offsets, and the number of missing offsets before it.
PLAIN, WANTED = of(b"v"), of(b"wanted")
KINDS: dict[str, tuple[bytes, int, int]] = {
    "one": (PLAIN, 1, 0),
    "three": (of(b"a", b"b", b"c"), 3, 0),
    "behind a gap": (PLAIN, 1, 2),
    "three behind a gap": (of(b"a", b"b", b"c"), 3, 1),
    "cut at its end": (compacted(of(b"a", b"b"), 3), 4, 0),
    "emptied": (emptied(2), 2, 0),
    "of a producer": (of(b"v", b"w", producer_id=7, producer_epoch=3, base_sequence=5), 2, 0),
    "of another": (of(b"v", producer_id=8, producer_epoch=0), 1, 0),
    "wanted": (WANTED, 1, 0),
    "wanted in many": (of(b"v", b"wanted"), 2, 0),
    "compressed": (packed(of(b"v", b"w")), 2, 0),
    "a marker": (control(0, 7, 3), 1, 0),
}
DECODED = {"wanted", "wanted in many", "compressed", "a marker"}


def laid_out(kinds: Sequence[str], first: int) -> bytes:
    """These batches, as bytes of a log from an offset on."""
    data, at = b"", first
    for data_of_one, offsets, gap in (KINDS[kind] for kind in kinds):
        at += gap
        data += struct.pack(">q", at) + data_of_one[8:]
        at += offsets
    return data


def wants(data: bytes, bounds: Sequence[int]) -> list[bool]:
    return [b"wanted" in data[at:end] for at, end in itertools.pairwise(bounds)]


def passed_over(first: Batch, last: Batch) -> Batch:
    """The section for batches with known offsets only."""
    count = last.base_offset + last.records_count - first.base_offset
    return Batch(first.base_offset, last.last_offset, -1, -1, -1, False, False, records_count=count)


@pytest.mark.usefixtures("amount")
def test_all_decoded_batches_of_an_answer_have_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if skipped batches stand between them."""
    expanded_bytes = len(of(b"v", b"w")) - HEADER_BYTES
    limits = {"wanted": ("RECORDS_MAX", 2), "compressed": ("EXPANDED_BYTES_MAX", 2 * expanded_bytes)}
    with Cases() as cases:
        for kind, (limit, value) in limits.items():
            for count, fits in ((3, True), (5, False)):
                data = laid_out([kind, "one", kind, "one", kind][:count], 2)
                with cases.case(f"{kind}, {count}"), monkeypatch.context() as patch:
                    patch.setattr(f"txnscan.kafka.protocol.records.{limit}", value)
                    if fits:
                        assert len(list(searched(undecoded(data), wants))) == count
                    else:
                        with pytest.raises(RequestFailed):
                            list(searched(undecoded(data), wants))


def expected(kinds: Sequence[str], data: bytes) -> list[Batch]:
    """By decoding everything."""
    every = list(told(kinds, data))
    pairs = itertools.zip_longest(every, every[1:])
    return [one for one, after in pairs if one.records is not None or after is None or after.records is not None]


def told(kinds: Sequence[str], data: bytes) -> Iterator[Batch]:
    """All of it."""
    open_at: Batch | None = None
    before: Batch | None = None
    for kind, one in zip(kinds, decoded(data, records=True), strict=True):
        is_whole = one.records_count == one.last_offset - one.base_offset + 1
        goes_on = before is not None and is_whole and before.last_offset + 1 == one.base_offset
        if open_at is not None and before is not None and (kind in DECODED or not goes_on):
            yield passed_over(open_at, before)
            open_at = None
        if kind in DECODED:
            before = None
            yield one
        elif not is_whole:
            before = None
            yield passed_over(one, one)
        else:
            open_at, before = open_at or one, one
    if open_at is not None and before is not None:
        yield passed_over(open_at, before)


@pytest.mark.usefixtures("amount")
@pytest.mark.parametrize("first", [0, 2**33])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_any_sequence_of_batches_is_decoded_or_skipped_with_its_offsets(length: int, first: int) -> None:
    for kinds in itertools.product(KINDS, repeat=length):
        data = laid_out(kinds, first)
        assert list(searched(undecoded(data), wants)) == expected(kinds, data), kinds


@pytest.mark.usefixtures("amount")
def test_a_section_has_only_its_offsets() -> None:
    data = laid_out(["behind a gap", "three", "of a producer", "wanted", "three", "emptied"], 3)
    assert list(searched(undecoded(data), wants)) == [
        Batch(
            *(5, 10),
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            is_control=False,
            is_transactional=False,
            commits=False,
            records_count=6,
            records=None,
        ),
        Batch(11, 11, -1, -1, -1, False, False, records_count=1, records=((11, b"k", b"wanted"),), leader_epoch=0),
        Batch(15, 16, -1, -1, -1, False, False, records_count=0),
    ]


@pytest.mark.usefixtures("amount")
@pytest.mark.parametrize("last", list(KINDS))
def test_a_truncated_last_batch_is_omitted(last: str) -> None:
    whole = laid_out(["one", "three"], 0)
    data = laid_out(["one", "three", last], 0)
    for end in range(len(whole), len(data)):
        assert list(searched(undecoded(data[:end]), wants)) == list(searched(undecoded(whole), wants))
    assert list(searched(undecoded(data), wants)) != list(searched(undecoded(whole), wants))


def test_no_data_has_no_batches() -> None:
    nothing = undecoded(b"")
    assert list(searched(nothing, wants)) == []
    assert (nothing.next_offset(7), nothing.before(9).bounds) == (7, [0])


@pytest.mark.usefixtures("amount")
def test_batches_from_an_offset_on_can_be_omitted() -> None:
    kinds = ["three", "wanted", "behind a gap", "emptied"]
    every = undecoded(laid_out(kinds, 4))
    begins = [4, 7, 10, 11]
    for end in range(3, 13):
        kept = [kind for kind, begin in zip(kinds, begins, strict=True) if begin < end]
        assert list(searched(every.before(end), wants)) == list(searched(undecoded(laid_out(kept, 4)), wants)), end


@pytest.mark.parametrize(
    ("kinds", "offset", "expected"),
    [(["three"], 4, 7), (["three", "emptied"], 4, 9), (["three"], 6, 7), (["three"], 9, 9)],
)
def test_reading_continues_after_the_last_batch_and_never_goes_back(
    kinds: list[str], offset: int, expected: int
) -> None:
    assert undecoded(laid_out(kinds, 4)).next_offset(offset) == expected


# --- ends of leader epochs --------------------------------------------------------------------------------------------


def led(epochs: Sequence[int], kinds: Sequence[str], first: int) -> bytes:
    """These batches from an offset on, each appended by the leader of an epoch."""
    data = laid_out(kinds, first)
    bounds = undecoded(data).bounds
    return b"".join(
        data[at : at + LEADER_EPOCH_AT] + struct.pack(">i", epoch) + data[at + LEADER_EPOCH_AT + 4 : end]
        for epoch, (at, end) in zip(epochs, itertools.pairwise(bounds), strict=True)
    )


EPOCHS: tuple[tuple[str, list[int], list[str], dict[int, int]], ...] = (
    ("none", [], [], {}),
    ("one of one batch", [5], ["three"], {5: 7}),
    ("one of several batches", [5, 5, 5], ["three", "one", "wanted"], {5: 9}),
    ("one after the other", [5, 6, 7], ["three", "one", "one"], {5: 7, 6: 8, 7: 9}),
    ("not every number", [0, 0, 4, 9, 9], ["one"] * 5, {0: 6, 4: 7, 9: 9}),
    ("a batch without its records", [5, 6, 7], ["one", "emptied", "one"], {5: 5, 6: 7, 7: 8}),
    ("the last one without its records", [5, 6], ["one", "emptied"], {5: 5, 6: 7}),
    ("a batch that lost its last records", [5, 6], ["cut at its end", "one"], {5: 8, 6: 9}),
    ("a gap within", [5, 5, 6], ["one", "behind a gap", "one"], {5: 8, 6: 9}),
    ("a gap between, which is of neither", [5, 6], ["one", "behind a gap"], {5: 5, 6: 8}),
    ("of all kinds", [5] * len(KINDS), list(KINDS), {5: 4 + sum(n + gap for _, n, gap in KINDS.values())}),
)


def test_a_leader_epoch_ends_after_its_last_batch() -> None:
    with Cases() as cases:
        for name, epochs, kinds, ends in EPOCHS:
            with cases.case(name):
                assert undecoded(led(epochs, kinds, 4)).epoch_ends() == ends


def test_a_truncated_batch_ends_no_leader_epoch() -> None:
    data, two = led([5, 5, 6], ["one"] * 3, 4), len(led([5, 5], ["one"] * 2, 4))
    for end in range(two, len(data)):
        assert undecoded(data[:end]).epoch_ends() == {5: 6}
    assert undecoded(data).epoch_ends() == {5: 6, 6: 7}


@given(st.lists(st.integers(0, 9), max_size=60))
def test_each_leader_epoch_is_found_in_any_number_of_batches(epochs: list[int]) -> None:
    rising = sorted(epochs)
    last = {epoch: 4 + number + 1 for number, epoch in enumerate(rising)}
    assert undecoded(led(rising, ["one"] * len(rising), 4)).epoch_ends() == last


@given(st.lists(st.integers(0, 3), max_size=20))
def test_falling_leader_epochs_give_ends_of_existing_batches(epochs: list[int]) -> None:
    """No leader writes such a log. The result is incomplete, but never invented."""
    behind = {(epoch, 4 + number + 1) for number, epoch in enumerate(epochs)}
    assert undecoded(led(epochs, ["one"] * len(epochs), 4)).epoch_ends().items() <= behind


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("amount")
@pytest.mark.parametrize("magic", [0, 1, 3])
def test_another_batch_version_is_reported_as_a_version_and_not_as_damage(magic: int) -> None:
    """Its checksum is in another place."""
    other = PLAIN[:MAGIC_AT] + bytes([magic]) + bytes(4) + PLAIN[ATTRIBUTES_AT:]
    for data in (other, PLAIN + other, other + PLAIN):
        with pytest.raises(RequestFailed, match=f"version {magic}, which knows no producers"):
            list(searched(undecoded(data), wants))


@pytest.mark.usefixtures("amount")
@pytest.mark.parametrize("at", [CRC_AT, ATTRIBUTES_AT, HEADER_BYTES, len(PLAIN) - 1])
def test_a_flipped_bit_is_found_in_skipped_batches(at: int) -> None:
    damaged = bytearray(laid_out(["one"], 9))
    damaged[at] ^= 0x08
    with pytest.raises(RequestFailed, match="at offset 9 "):
        list(searched(undecoded(laid_out(["one"], 8) + bytes(damaged)), wants))


@pytest.mark.usefixtures("amount")
@pytest.mark.parametrize("length", [-(2**31), -12, -1, 0, 48])
def test_an_impossible_length_is_an_error(length: int) -> None:
    """Reading would never end, or end within the header."""
    damaged = struct.pack(">qi", 9, length) + PLAIN[12:]
    for data in (damaged, PLAIN + damaged, damaged + PLAIN):
        with pytest.raises(RequestFailed, match=rf"its length is {length}\)"):
            list(searched(undecoded(data), wants))


def test_a_length_beyond_the_end_is_a_truncated_batch() -> None:
    data = PLAIN + struct.pack(">qi", 1, len(PLAIN) - 12 + 1) + PLAIN[12:]
    assert [one.last_offset for one in searched(undecoded(data), wants)] == [0]


# --- few and many -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batches", "numpy", "by_columns"),
    [(1, True, False), (2, True, False), (3, True, True), (3, False, False), (9, True, True), (9, False, False)],
)
def test_columns_are_used_for_many_batches_if_numpy_is_installed(
    batches: int, numpy: bool, by_columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """numpy is optional. The result is the same without it."""
    used: list[str] = []

    def noted(name: str, sections: Sections) -> Sections:
        def note(*arguments: Any) -> Any:
            used.append(name)
            return sections(*arguments)

        return note

    monkeypatch.setattr(search, "_sections", noted("batch", search._sections))
    monkeypatch.setattr(search_columns, "sections", noted("columns", search_columns.sections))
    monkeypatch.setattr(search, "_MANY", 3)
    if not numpy:
        monkeypatch.setitem(sys.modules, "numpy", None)
    (found,) = searched(undecoded(laid_out(["one"] * batches, 4)), wants)
    assert used == ["columns" if by_columns else "batch"]
    assert (found.base_offset, found.records_count) == (4, batches)
