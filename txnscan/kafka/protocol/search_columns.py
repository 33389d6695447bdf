"""The headers of many record batches as columns, with numpy, which the base installation does not include."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from txnscan.kafka.protocol.record_batch import COMPRESSED, CONTROL, HEADER, MAGIC

# The fields of `HEADER` that are needed here.
_HEADER = np.dtype(
    {
        "names": ("base_offset", "magic", "attributes", "last_delta", "count"),
        "formats": (">i8", "i1", ">i2", ">i4", ">i4"),
        "offsets": (0, 16, 21, 23, 57),
    }
)


def sections(data: bytes, bounds: Sequence[int], wanted: Sequence[bool]) -> Iterable[tuple[int, int, bool]]:
    """The batches in groups: batches to decode, and batches to skip that follow one another without a gap. Of several
    groups to skip between two groups to decode, only the last is returned.

    bounds: the positions at which the batches begin and the last batch ends; there is at least one batch. Returns for
    each group the number of its first batch, the number of the batch after its last, and whether it is decoded.
    """
    headers = np.ndarray((len(data) - HEADER.size + 1,), f"V{HEADER.size}", data, strides=(1,))
    rows = headers[np.array(bounds[:-1], np.int64)].view(_HEADER)
    decodes = np.asarray(wanted, bool) | (rows["magic"] != MAGIC) | (rows["attributes"] & (COMPRESSED | CONTROL) != 0)
    begins, behind = rows["base_offset"].astype(np.int64), rows["last_delta"].astype(np.int64) + 1
    whole = rows["count"] == behind
    follows = whole[:-1] & whole[1:] & (begins[1:] == (begins + behind)[:-1])
    apart = (decodes[:-1] != decodes[1:]) | (~decodes[1:] & ~follows)
    first = np.flatnonzero(np.concatenate(([True], apart)))
    behind_each = np.append(first[1:], len(rows))
    decoded = decodes[first]
    given = np.flatnonzero(decoded | np.append(decoded[1:], True))
    return [(int(first[number]), int(behind_each[number]), bool(decoded[number])) for number in given]
