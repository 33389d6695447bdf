"""Shared by the tests of `txnscan.offline`: segments and snapshots as bytes, and logs at random."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from crc32c import crc32c
from hypothesis import strategies as st

from tests.sim.wire.batches import batch, marker
from txnscan.kafka.protocol.record_batch import CONTROL, CRC_AT, CRC_FROM, TRANSACTIONAL
from txnscan.offline.contents import METADATA_TOPIC
from txnscan.offline.disk import find
from txnscan.offline.files import CLEAN_SHUTDOWN, HIGH_WATERMARKS, RECOVERED
from txnscan.offline.producer_snapshots import ProducerState
from txnscan.offline.replica import read_replica

MS = 1_700_000_000_000
# The vectors of the formats: a COMMIT marker, and a snapshot with one producer, open at 37.
MARKER = bytes.fromhex(
    "0000000000000005000000420000000002ad320ccb0030000000000000018bcfe568000000018bcfe5680000000000000003e80003ffffffff"
    "000000012000000008000000010c00000000000700"
)
SNAPSHOT = bytes.fromhex(
    "000179322fab0000000100000000000003e80003000000090000000000000029000000040000018bcfe56800000000070000000000000025"
)
OPEN_AT_37 = ProducerState(1000, 3, 7, 9, 41, 4, MS, 37)


def data(
    offset: int,
    pid: int = 7,
    epoch: int = 3,
    sequence: int = 0,
    records: int = 1,
    ms: int = MS,
    transactional: bool = True,
) -> bytes:
    """A data batch."""
    return batch(
        offset,
        [(None, b"v" * 20)] * records,
        timestamp_ms=ms,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=TRANSACTIONAL if transactional else 0,
    )


def end(
    offset: int, pid: int = 7, epoch: int = 3, commit: bool = True, coordinator_epoch: int = 0, ms: int = MS
) -> bytes:
    """A marker."""
    return marker(offset, pid, epoch, coordinator_epoch, commit, ms)


def plain(offset: int, records: int = 1) -> bytes:
    """A batch without a producer."""
    return batch(offset, [(None, b"v")] * records, timestamp_ms=MS)


def control(offset: int, key: bytes, value: bytes, pid: int = 7, attributes: int = TRANSACTIONAL | CONTROL) -> bytes:
    """A control batch of any kind."""
    return batch(offset, [(key, value)], timestamp_ms=MS, producer_id=pid, producer_epoch=3, attributes=attributes)


def changed(one: bytes, at: int, value: bytes) -> bytes:
    """A batch with other bytes somewhere, and a checksum that is right."""
    made = bytearray(one)
    made[at : at + len(value)] = value
    made[CRC_AT:CRC_FROM] = crc32c(bytes(made[CRC_FROM:])).to_bytes(4)
    return bytes(made)


def legacy(offset: int, magic: int = 1, size: int = 30) -> bytes:
    """A message of a format before producers."""
    return struct.pack(">qiIb", offset, size, 0, magic) + b"\0" * (size - 5)


def snapshot_of(states: Iterable[ProducerState]) -> bytes:
    """A `.snapshot` file."""
    entries = [
        struct.pack(
            ">qhiqiqiq",
            *(s.producer_id, s.producer_epoch, s.last_sequence, s.last_offset, s.offset_delta),
            *(s.last_timestamp_ms, s.coordinator_epoch, s.start_offset),
        )
        for s in states
    ]
    body = struct.pack(">i", len(entries)) + b"".join(entries)
    return struct.pack(">hI", 1, crc32c(body)) + body


def partition_directory(parent: Path, name: str, segments: dict[int, bytes], **files: bytes) -> Path:
    """The directory of a partition. files: by name, `_` for what names of Python cannot have, as in `s5_snapshot`."""
    directory = parent / name
    directory.mkdir(parents=True, exist_ok=True)
    for base, content in segments.items():
        (directory / f"{base:020d}.log").write_bytes(content)
    for key, content in files.items():
        (directory / key).write_bytes(content)
    return directory


def shut_down(root: Path) -> Path:
    """Writes what a broker leaves after a clean shutdown: its record, and the checkpoints with the end of each log."""
    ends = {}
    for files in find([str(root)]).replicas:
        if files.key is not None and files.key[0] != METADATA_TOPIC:
            ends[files.key] = max(read_replica(files).log_end_offset, 0)
    rows = "".join(f"{topic} {index} {end}\n" for (topic, index), end in ends.items())
    for name in (RECOVERED, HIGH_WATERMARKS):
        (root / name).write_text(f"0\n{len(ends)}\n{rows}")
    (root / CLEAN_SHUTDOWN).touch()
    return root


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """A log of some producers, most of it in order.

    It has transactions with and without an end, epochs that rise and fall, markers without a transaction, gaps, batches
    without producers, batches of earlier formats, and batches that no broker writes.
    """
    batches, offset, ms = [], draw(st.integers(0, 3)), MS
    for _ in range(draw(st.integers(0, 40))):
        kind = draw(st.sampled_from(["data", "data", "data", "end", "end", "idempotent", "plain", "odd"]))
        pid, epoch = draw(st.integers(1, 3)), draw(st.sampled_from([0, 0, 0, 1, 2]))
        count, ms = draw(st.integers(1, 3)), ms + draw(st.integers(-5, 50))
        sequence = draw(st.sampled_from([-1, 0, 5, 2**31 - 1]))
        if kind in ("data", "idempotent"):
            one = data(offset, pid, epoch, sequence, count, ms, kind == "data")
        elif kind == "end":
            one, count = end(offset, pid, epoch, draw(st.booleans()), draw(st.integers(0, 3)), ms), 1
        elif kind == "plain":
            one = plain(offset, count)
        else:
            one, count = draw(st.sampled_from(_odd(offset))), 1
        batches.append(one)
        offset += count + draw(st.sampled_from([0, 0, 0, 0, 0, 2]))
    return batches


def _odd(offset: int) -> list[bytes]:
    return [
        legacy(offset),
        legacy(offset, 0, 20),
        control(offset, struct.pack(">hh", 0, 2), b"\0" * 6),
        control(offset, struct.pack(">hh", 1, 1), struct.pack(">hi", 1, 4)),
        control(offset, struct.pack(">hh", 0, 1) + b"more", struct.pack(">hi", 0, 4) + b"more"),
        control(offset, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 4), pid=-1),
        control(offset, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 4), attributes=CONTROL),
        changed(end(offset), 57, b"\0\0\0\0"),
        *(changed(end(offset), 21, bytes((0, 0x30 | codec))) for codec in (1, 2, 3, 4)),
        *(changed(data(offset), 21, bytes((0, 0x10 | codec))) for codec in (1, 2, 3, 4)),
        changed(end(offset), 21, b"\0\x21"),
        changed(data(offset), 57, b"\0\0\0\0"),
        changed(data(offset), 43, b"\xff" * 8),
    ]
