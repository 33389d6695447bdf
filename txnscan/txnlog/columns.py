"""`decode.peeked` for many record batches at once, with numpy, which the base installation does not include."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from txnscan.kafka.protocol.record_batch import HEADER
from txnscan.txnlog.decode import VALUE_VERSION_MAX

_COUNT_AT = HEADER.size - 4
_NULL = 1
# The last bytes of a key. They are compared before the whole key.
_TAIL = 4


@dataclass(frozen=True, slots=True)
class Peeks:
    """odd: the batches for which `peeked` returns None. key_at, key_size: the position and size of the keys of all
    other batches. producer_id: the producer ids in their values; -1 if there is no value.
    """

    odd: NDArray[np.bool_]
    key_at: NDArray[np.int64]
    key_size: NDArray[np.int64]
    producer_id: NDArray[np.int64]


def peeks(data: bytes, bounds: Sequence[int]) -> Peeks:
    """Peeks into each of these batches. bounds: the position at which each begins, and the end of the last batch."""
    every = np.array(bounds, np.int64)
    begins, ends = every[:-1], every[1:]
    buffer = np.frombuffer(data, np.uint8)

    def byte(at: NDArray[np.int64]) -> NDArray[np.int64]:
        # A position beyond the end of its batch makes the batch odd, below.
        return buffer[np.minimum(at, len(buffer) - 1)].astype(np.int64)

    at = begins + HEADER.size
    odd = _wide(data, begins + _COUNT_AT, ">i4") != 1
    # The length of the record takes up to three bytes.
    longer = byte(at) >= 0x80
    longest = longer & (byte(at + 1) >= 0x80)
    odd |= longest & (byte(at + 2) >= 0x80)
    at = at + longer + longest
    # The deltas of timestamp and offset are 0 for the first record of a batch.
    odd |= (byte(at + 2) != 0) | (byte(at + 3) != 0)
    size = byte(at + 4)
    longer = size >= 0x80
    size = np.where(longer, size & 0x7F | byte(at + 5) << 7, size)
    odd |= (size & 1 != 0) | (size >= 1 << 14)
    key_at, key_size = at + 5 + longer, size >> 1
    odd |= key_size < _TAIL

    at = key_at + key_size
    opening = byte(at)
    gone, longer = opening == _NULL, opening >= 0x80
    odd |= ~gone & (opening >> 1 < 10)
    at = at + longer
    odd |= ~gone & ((byte(at) >= 0x80) | (byte(at + 1) != 0) | (byte(at + 2) > VALUE_VERSION_MAX))
    odd |= np.where(gone, at + 1, at + 11) > ends
    return Peeks(odd, key_at, key_size, np.where(gone, -1, _wide(data, at + 3, ">i8")))


def _wide(data: bytes, at: NDArray[np.int64], kind: str) -> NDArray[np.int64]:
    """The numbers of this kind at these positions. A position beyond the data gives an arbitrary number."""
    size = np.dtype(kind).itemsize
    numbers: NDArray[np.int64] = np.ndarray((len(data) - size + 1,), kind, data, strides=(1,))
    return numbers[np.minimum(at, len(data) - size)].astype(np.int64)


def of_producers(data: bytes, bounds: Sequence[int], wanted: Collection[int]) -> Sequence[bool]:
    """Whether each of these batches may have a record with one of these producer ids."""
    found = peeks(data, bounds)
    return (found.odd | np.isin(found.producer_id, list(wanted))).tolist()  # type: ignore[no-any-return]


def of_keys(data: bytes, bounds: Sequence[int], keys: Collection[bytes]) -> Sequence[bool]:
    """Whether each of these batches may have a record with one of these keys."""
    found = peeks(data, bounds)
    tails = _wide(data, found.key_at + found.key_size - _TAIL, ">i4")
    alike = np.isin(found.key_size, [len(key) for key in keys])
    alike &= np.isin(tails, [int.from_bytes(key[-_TAIL:], signed=True) for key in keys])
    for number in np.flatnonzero(alike).tolist():
        at = int(found.key_at[number])
        alike[number] = data[at : at + int(found.key_size[number])] in keys
    return (found.odd | alike).tolist()  # type: ignore[no-any-return]
