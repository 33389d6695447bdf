"""The records at the start of a compacted log show whether its cleaner has been there, and whether it should have."""

from __future__ import annotations

from collections.abc import Sequence

from tests.cases import Cases
from tests.fakes.cluster import FakeCluster, FakePartition
from tests.sim.encode import batch, marker
from tests.sim.records import Marker
from txnscan.explain.cleaning import is_due, read_cleaning
from txnscan.explain.facts import CleanerProgress
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.topology import Partition

P = Partition("p", "id", 0, 1, 5)
MB, GB = 1 << 20, 1 << 30
DEFAULTS = {"segment.bytes": str(GB), "min.cleanable.dirty.ratio": "0.5", "min.compaction.lag.ms": "0"}


def data(offset: int, *keys: bytes | None) -> bytes:
    return batch(offset, [(key, b"value") for key in keys], producer_id=8, producer_epoch=0)


def cluster(*batches: bytes) -> FakeCluster:
    found = FakeCluster((1,))
    kept = found.partitions["p", 0] = FakePartition(leader=1, epoch=5)
    for one in batches:
        kept.write(one)
    return found


def test_records_of_the_same_key_are_counted() -> None:
    commit = marker(2, Marker(8, 0, 0, True))
    table: Sequence[tuple[str, Sequence[bytes], int, CleanerProgress]] = (
        ("no key comes twice", [data(0, b"a", b"b", b"c")], 3, CleanerProgress(3, 0, is_due=False)),
        (
            "offsets are missing, as after cleaning",
            [data(0, b"a"), data(7, b"b")],
            8,
            CleanerProgress(2, 0, is_due=False),
        ),
        ("a key comes three times", [data(0, b"a", b"a"), data(2, b"a")], 3, CleanerProgress(3, 2, is_due=True)),
        ("markers have no key of a record", [data(0, b"a", b"b"), commit], 3, CleanerProgress(2, 0, is_due=False)),
        ("records without a key do not count", [data(0, None, None)], 2, CleanerProgress(0, 0, is_due=False)),
        ("only up to the last stable offset", [data(0, b"a"), data(1, b"a")], 1, CleanerProgress(1, 0, is_due=False)),
        ("an empty log", [], 0, CleanerProgress(0, 0, is_due=False)),
    )
    with Cases() as cases:
        for name, batches, end, expected in table:
            with cases.case(name):
                fake = cluster(*batches)
                if not batches:
                    fake.partitions["p", 0].high_watermark = 0
                assert read_cleaning(fake.send, P, end, 10 * GB, DEFAULTS) == expected


def test_the_read_ends_with_the_first_duplicate() -> None:
    fake = cluster(data(0, b"a", b"a"), *(data(offset, b"x" * (1 << 20)) for offset in range(2, 9)))
    assert read_cleaning(fake.send, P, 9, GB, DEFAULTS) == CleanerProgress(2, 1, is_due=False)
    assert fake.asked == [(1, "ListOffsets"), (1, "Fetch")]
    # Without a duplicate it reads a few pieces.
    fake = cluster(*(data(offset, b"%d" % offset + b"x" * (1 << 20)) for offset in range(9)))
    assert read_cleaning(fake.send, P, 9, GB, DEFAULTS) == CleanerProgress(4, 0, is_due=False)


def test_a_log_that_cannot_be_read_shows_nothing() -> None:
    for which in ("log start", "fetch"):
        fake = cluster(data(0, b"a"))
        fake.partitions["p", 0].errors[which] = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert read_cleaning(fake.send, P, 1, GB, DEFAULTS) is None


def test_cleaning_is_due_only_if_that_is_certain() -> None:
    """At most the read bytes and a segment are clean, and at least the rest without the active segment is dirty."""
    table: Sequence[tuple[str, dict[str, str], int, bool]] = (
        ("most is dirty", {}, 4 * GB, True),
        ("half is dirty", {}, 3 * GB + 2 * MB, False),
        ("more than half is dirty", {}, 3 * GB + 2 * MB + 1, True),
        ("it has only its active segment", {}, GB, False),
        ("small segments", {"segment.bytes": str(MB)}, 10 * MB, True),
        ("a higher ratio", {"min.cleanable.dirty.ratio": "0.9"}, 4 * GB, False),
        ("records must stay for a time", {"min.compaction.lag.ms": "1"}, 4 * GB, False),
        ("the size is not known", {}, 0, False),
        ("a setting that is no number", {"segment.bytes": "many"}, 4 * GB, False),
    )
    with Cases() as cases:
        for name, changes, size_bytes, expected in table:
            with cases.case(name):
                assert is_due(size_bytes, MB, {**DEFAULTS, **changes}) is expected
    for missing in DEFAULTS:
        assert not is_due(4 * GB, MB, {name: value for name, value in DEFAULTS.items() if name != missing})
