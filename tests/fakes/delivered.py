"""A partition with what a reader gets of it."""

from __future__ import annotations

from tests.fakes.cluster import FakePartition
from tests.sim.encode import batch, marker
from tests.sim.records import Marker

LSO = 100
VALUE = (None, b"value")


def partition(*batches: bytes, aborted: tuple[tuple[int, int], ...] = ()) -> FakePartition:
    """These batches, and a transaction that hangs at the last stable offset."""
    kept = FakePartition(leader=1, epoch=5, last_stable=LSO, aborted=list(aborted))
    for one in (*batches, batch(LSO, [VALUE], producer_id=7, producer_epoch=3)):
        kept.write(one)
    return kept


def data(offset: int, count: int = 1, producer_id: int = 8) -> bytes:
    return batch(offset, count * [VALUE], producer_id=producer_id, producer_epoch=0)


def ends(offset: int, producer_id: int = 8, *, commits: bool = True) -> bytes:
    return marker(offset, Marker(producer_id, 0, 0, commits))
