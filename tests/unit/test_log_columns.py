"""Peeking into many record batches at once, compared with `peeked`, which reads a single batch."""

from __future__ import annotations

import struct
from itertools import accumulate, product

import pytest

from tests.cases import Cases
from txnscan.kafka.protocol.record_batch import HEADER
from txnscan.txnlog.columns import of_keys, of_producers, peeks
from txnscan.txnlog.decode import peeked, producer_id_bytes, transactional_id_key
from txnscan.txnlog.scan import of_ids
from txnscan.txnlog.scan import of_producers as of_producers_one_by_one

X = transactional_id_key("X")
# Its bytes cannot be mistaken for a length or a version.
ID = 0x7F02030405060708
REST = bytes(30)


def uvarint(number: int) -> bytes:
    return bytes((number & 0x7F | 0x80,)) + uvarint(number >> 7) if number >= 0x80 else bytes((number,))


def sized(content: bytes | None) -> bytes:
    """With its length in front, as in a record."""
    return b"\x01" if content is None else uvarint(len(content) << 1) + content


def value(producer_id: int = ID, version: bytes = b"\x00\x01", size: int = 40) -> bytes:
    return (version + producer_id_bytes(producer_id) + REST + bytes(size))[:size]


def held(
    key: bytes = sized(X),
    data: bytes = sized(value()),
    *,
    count: int = 1,
    length: bytes = b"\x60",
    attributes: int = 0,
    time: int = 0,
    offset: int = 0,
) -> bytes:
    """A batch of one record, with any part replaceable."""
    header = HEADER.pack(7, 90, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, count)
    return header + length + bytes((attributes, time, offset)) + key + data + b"\x00"


def cut(data: bytes, less: int) -> bytes:
    return data[: len(data) - less]


# A batch that ends with its key. The next bytes look like a missing value.
WITHOUT_VALUE = cut(held(data=b""), 1)
# Such a batch ends with the producer id of its value.
TO_PRODUCER_ID = cut(held(data=sized(value(size=10))), 1)

TOLD: dict[str, tuple[bytes, bytes, int | None]] = {
    "a plain one": (held(), X, ID),
    "a tombstone": (held(data=sized(None)), X, None),
    "a tombstone that ends there": (cut(held(data=sized(None)), 1), X, None),
    "a value that ends with its producer id": (TO_PRODUCER_ID, X, ID),
    "a value of version 0": (held(data=sized(value(version=b"\x00\x00"))), X, ID),
    "a value of 10 bytes": (held(data=sized(value(size=10))), X, ID),
    "a value of 63 bytes": (held(data=sized(value(size=63))), X, ID),
    "a value of 64 bytes": (held(data=sized(value(size=64))), X, ID),
    "a value of 127 bytes": (held(data=sized(value(size=127))), X, ID),
    "a value of 8191 bytes": (held(data=sized(value(size=8191))), X, ID),
    "producer id 0": (held(data=sized(value(0))), X, 0),
    "the highest producer id": (held(data=sized(value(2**63 - 1))), X, 2**63 - 1),
    "attributes": (held(attributes=0xFF), X, ID),
    "a length of one byte": (held(length=b"\x7f", attributes=0x80), X, ID),
    "the shortest length of two bytes": (held(length=b"\x80\x01", attributes=0x80), X, ID),
    "a length of two bytes": (held(length=b"\xff\x7f", attributes=0xFF), X, ID),
    "the shortest length of three bytes": (held(length=b"\x80\x80\x01", attributes=0x80), X, ID),
    "a length of three bytes": (held(length=b"\xff\xff\x7f", attributes=0xFF), X, ID),
    "a length of three bytes and a tombstone": (held(length=b"\x80\x80\x01", data=sized(None)), X, None),
    "the id that is empty": (held(sized(transactional_id_key(""))), transactional_id_key(""), ID),
    **{
        f"a key of {size} bytes": (held(sized(b"k" * size)), b"k" * size, ID)
        for size in (5, 6, 7, 63, 64, 65, 127, 128, 129, 200, 8191)
    },
    "a long key and a tombstone": (held(sized(b"k" * 200), sized(None)), b"k" * 200, None),
    "a long key and a long value": (held(sized(b"k" * 200), sized(value(size=200))), b"k" * 200, ID),
}
ODD = {
    "no record": held(count=0),
    "two records": held(count=2),
    "257 records": held(count=257),
    "many records": held(count=(1 << 24) + 1),
    "a length of four bytes": held(length=b"\x80\x80\x80\x01"),
    "a length of three bytes that says that there is a fourth": held(length=b"\x80\x80\x80"),
    "not the batch's time": held(time=1),
    "far from the batch's time": held(time=0x80),
    "the batch's second offset": held(offset=1),
    "a later offset of it": held(offset=0x80),
    "no key": held(sized(None)),
    "a key whose length is below zero": held(b"\x0b" + X),
    "a key of no bytes": held(sized(b"")),
    "a key of 3 bytes": held(sized(b"kkk")),
    "a key of 8192 bytes": held(sized(b"k" * 8191 + b"\x01")),
    "a key of 20000 bytes": held(sized(b"k" * 20_000)),
    "an empty value": held(data=sized(b"") + value()),
    "a value of 5 bytes": held(data=b"\x0a" + value()),
    "a value of 9 bytes": held(data=b"\x12" + value()),
    "a value whose length is written in three bytes": held(data=b"\x80\x80\x00" + value()),
    "a value whose length is longer still": held(data=b"\x80\xff\x00" + value()),
    "a value of 8192 bytes": held(data=sized(value(size=8192))),
    "a value of version 2": held(data=sized(value(version=b"\x00\x02"))),
    "a value of version 255": held(data=sized(value(version=b"\x00\xff"))),
    "a value of version 256": held(data=sized(value(version=b"\x01\x00"))),
    "a value of version 512": held(data=sized(value(version=b"\x02\x00"))),
    "a value of a version below zero": held(data=sized(value(version=b"\xff\x00"))),
    "a value that ends within its producer id": cut(TO_PRODUCER_ID, 1),
    "a batch that ends with its key": WITHOUT_VALUE,
    "a batch that ends within its key": cut(WITHOUT_VALUE, 1),
    "a header and a few bytes": held()[: HEADER.size + 3],
    "a header alone": held()[: HEADER.size],
}
# `peeked` reads further in these.
TOLD_BY_PEEKED = {
    "a length of four bytes",
    "a key of no bytes",
    "a key of 3 bytes",
    "a value that ends within its producer id",
}
# Bytes before and after a batch do not belong to it. A byte of 1 would be a value that is null.
AROUND = {
    "alone": (b"", b""),
    "behind another": (held(), b""),
    "before another": (b"", held()),
    "amid 01": (b"\x01" * 80, b"\x01" * 80),
    "amid ff": (b"\xff" * 70, b"\xff" * 70),
}


def test_the_key_and_the_producer_id_of_a_batch_are_found() -> None:
    with Cases() as cases:
        for name, (place, around) in product(TOLD, AROUND.items()):
            with cases.case(f"{name}, {place}"):
                data, key, producer_id = TOLD[name]
                everything, bounds, number = amid(data, around)
                found = peeks(everything, bounds)
                at, size = int(found.key_at[number]), int(found.key_size[number])
                assert (bool(found.odd[number]), everything[at : at + size]) == (False, key)
                assert int(found.producer_id[number]) == (-1 if producer_id is None else producer_id)
                assert peeked(data) == (key, b"" if producer_id is None else producer_id_bytes(producer_id))


def test_batches_that_coordinators_never_write_are_decoded() -> None:
    """They are decoded for any search."""
    with Cases() as cases:
        for name, (place, around) in product(ODD, AROUND.items()):
            with cases.case(f"{name}, {place}"):
                everything, bounds, number = amid(ODD[name], around)
                assert peeks(everything, bounds).odd[number]
                assert of_producers(everything, bounds, {1})[number]
                assert of_keys(everything, bounds, {b"nobody"})[number]
                assert (peeked(ODD[name]) is None) is (name not in TOLD_BY_PEEKED)


def amid(data: bytes, around: tuple[bytes, bytes]) -> tuple[bytes, list[int], int]:
    """All the data, the bounds of its batches, and the number of this batch."""
    parts = [part for part in (around[0], data, around[1]) if part]
    return b"".join(parts), list(accumulate(map(len, parts), initial=0)), 1 if around[0] else 0


def laid_out(batches: list[bytes]) -> tuple[bytes, list[int]]:
    return b"".join(batches), list(accumulate(map(len, batches), initial=0))


# --- searches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [set(), {5}, {6}, {5, 7}, {5, 6, 7, 2**63 - 1}, {8}])
def test_a_batch_is_selected_by_its_producer_id(wanted: set[int]) -> None:
    ids = [5, 6, None, 7, 2**63 - 1, 5]
    data, bounds = laid_out([held(data=sized(None if one is None else value(one))) for one in ids])
    found = of_producers(data, bounds, wanted)
    assert found == [one in wanted for one in ids]
    assert found == of_producers_one_by_one(wanted)(data, bounds)


NAMES = ["X", "Y", "id-1", "id-2", "an-id-1", "other-1", "no-id-1", "é", "日本", "", "n" * 300, "m" + "n" * 299]


@pytest.mark.parametrize(
    "wanted",
    [[], ["X"], ["id-1"], ["an-id-1", "Y"], ["é"], ["日本", "id-2"], [""], ["n" * 300], ["nobody"], NAMES],
    ids=lambda names: f"{len(names)}-{''.join(names)[:9]}",
)
def test_a_batch_is_selected_by_its_key_in_any_script(wanted: list[str]) -> None:
    data, bounds = laid_out([held(sized(transactional_id_key(name))) for name in NAMES])
    found = of_keys(data, bounds, {transactional_id_key(name) for name in wanted})
    assert found == [name in wanted for name in NAMES]
    assert found == of_ids(wanted)(data, bounds)


class Asked(frozenset[bytes]):
    """Notes the lookups."""

    asked: list[object]

    def __contains__(self, key: object) -> bool:
        self.asked.append(key)
        return super().__contains__(key)


def test_only_keys_with_a_matching_length_and_ending_are_compared() -> None:
    """A log has millions of keys, and each comparison is a step of Python."""
    names = ["id-1", "id-2", "ab-1", "an-id-1", "id-1", "zz-1"]
    data, bounds = laid_out([held(sized(transactional_id_key(name))) for name in names])
    keys = Asked([transactional_id_key("id-1")])
    keys.asked = []
    assert of_keys(data, bounds, keys) == [True, False, False, False, True, False]
    assert keys.asked == [transactional_id_key("id-1")] * 2
    wider = Asked([struct.pack(">hh", 0, 6) + b"b-id-1"])
    wider.asked = []
    assert of_keys(
        *laid_out([held(sized(transactional_id_key(n))) for n in ("a-id-1", "a-id-1", "b-id-1")]), wider
    ) == [*(False, False, True)]
    assert len(wider.asked) == 3
