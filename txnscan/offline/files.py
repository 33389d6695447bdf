"""The small files of a broker's disk, decoded from their bytes. Pure.

An invalid file is rejected as a whole, as brokers do; `BadFile` gives the reason. Sources:
`ProducerStateManager.readSnapshot`, `TransactionIndex`, `AbortedTxn`, `CheckpointFile`, `PartitionMetadataFile`.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from txnscan.errors import system_reason
from txnscan.kafka.topology import Key
from txnscan.offline.producer_snapshots import NONE, ProducerState
from txnscan.offline.walk import Data

# File names in a log directory and in the directory of a partition.
META, CLEAN_SHUTDOWN, LOCK = "meta.properties", ".kafka_cleanshutdown", ".lock"
CLEANED, RECOVERED = "cleaner-offset-checkpoint", "recovery-point-offset-checkpoint"
HIGH_WATERMARKS, LOG_STARTS = "replication-offset-checkpoint", "log-start-offset-checkpoint"
CHECKPOINTS = (CLEANED, RECOVERED, HIGH_WATERMARKS, LOG_STARTS)
EPOCHS_FILE, METADATA_FILE = "leader-epoch-checkpoint", "partition.metadata"
OF_PARTITION = (EPOCHS_FILE, METADATA_FILE)
_SNAPSHOT_VERSION = 1
# Version and checksum (of all bytes after it); then the number of entries.
_SNAPSHOT_HEAD, _COUNT, _CRC_FROM = struct.Struct(">hI"), struct.Struct(">i"), 6
# Producer id, epoch, last sequence, last offset, offset delta, time, coordinator epoch, first offset.
_ENTRY = struct.Struct(">qhiqiqiq")
# Version, producer id, first offset, last offset, last stable offset.
_ABORTED = struct.Struct(">hqqqq")
# Of an offset index: an offset and a position. Of a time index: a time and an offset. Offsets count from the base.
_INDEXED, _TIMED = struct.Struct(">ii"), struct.Struct(">qi")
_EPOCH_MIN = -1
_OFFSET = re.compile(r"\d{20}")
# A snapshot of the metadata log: the offset after its last record, and the epoch of that record (`Snapshots`).
_CHECKPOINT = re.compile(r"(?P<offset>\d{20})-\d{10}\.checkpoint")
_PARTITION = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<index>\d{1,10})")
# Suffixes of directories and files that brokers are about to delete, or do not use yet (`LogFileUtils`, `LocalLog`).
GOING = ("-delete", "-future", "-stray", ".deleted", ".cleaned", ".swap", ".checkpoint.part")
_INT_MAX = 2**31 - 1
# More partitions than a broker has.
_ROWS_MAX = 200_000
# A larger file cannot be what its name claims. Kafka counts the bytes of a segment in an int (`FileRecords`).
SEGMENT_BYTES_MAX = _INT_MAX
_PROPERTIES_BYTES_MAX, _EPOCHS_BYTES_MAX, _OFFSETS_BYTES_MAX = 1 << 16, 1 << 20, 1 << 23
_TABLE_BYTES_MAX, _METADATA_BYTES_MAX = 1 << 26, 1 << 28


class BadFile(ValueError):
    """The file cannot be what its name claims. The message gives the reason in a clause."""


def why_unreadable(error: Exception) -> str:
    """Why a file cannot be read, in a clause without its path. error: BadFile, or of the operating system."""
    return system_reason(error).lower() if isinstance(error, OSError) else str(error)


@dataclass(frozen=True, slots=True)
class Aborted:
    """A row of a transaction index: the offsets of the data of an aborted transaction."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def bytes_max(name: str) -> int:
    """The largest file with this name that is read, in bytes."""
    if name in (META, METADATA_FILE, CLEAN_SHUTDOWN):
        return _PROPERTIES_BYTES_MAX
    if name == EPOCHS_FILE:
        return _EPOCHS_BYTES_MAX
    if name in CHECKPOINTS:
        return _OFFSETS_BYTES_MAX
    if name.endswith(".log"):
        return SEGMENT_BYTES_MAX
    return _METADATA_BYTES_MAX if name.endswith(".checkpoint") else _TABLE_BYTES_MAX


def offset_of(name: str) -> int | None:
    """The offset in a file name; None if the name has no offset."""
    if name.endswith(".checkpoint"):
        found = _CHECKPOINT.fullmatch(name)
        return int(found["offset"]) if found is not None else None
    stem = name.partition(".")[0]
    return int(stem) if _OFFSET.fullmatch(stem) else None


def partition_of(name: str) -> Key | None:
    """The topic and partition of a directory; None for any other name."""
    found = _PARTITION.fullmatch(name)
    if found is None or int(found["index"]) > _INT_MAX:
        return None
    return found["topic"], int(found["index"])


def snapshot(data: bytes, crc32c: Callable[[bytes], int]) -> list[ProducerState]:
    """The producers in a `.snapshot`. Raises BadFile."""
    if len(data) < _CRC_FROM + _COUNT.size:
        raise BadFile(f"it has {len(data)} bytes, which is too few for a snapshot")
    version, crc = _SNAPSHOT_HEAD.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        raise BadFile(f"it has version {version}, and there is only version {_SNAPSHOT_VERSION}")
    if crc32c(data[_CRC_FROM:]) != crc:
        raise BadFile("it fails its checksum")
    (count,) = _COUNT.unpack_from(data, _CRC_FROM)
    entries = data[_CRC_FROM + _COUNT.size :]
    if count < 0 or count * _ENTRY.size != len(entries):
        raise BadFile(f"it claims {count} producers, and {len(entries)} bytes follow")
    found: dict[int, ProducerState] = {}
    for pid, epoch, sequence, last_offset, delta, ms, coordinator_epoch, first in _ENTRY.iter_unpack(entries):
        if pid in found:
            raise BadFile(f"producer id {pid} is in it twice")
        if pid < 0 or epoch < _EPOCH_MIN:
            raise BadFile(f"it has producer id {pid} at epoch {epoch}")
        known = last_offset >= 0
        found[pid] = ProducerState(
            pid,
            epoch,
            coordinator_epoch,
            sequence if known else NONE,
            last_offset if known else NONE,
            delta if known else 0,
            ms,
            max(first, NONE),
        )
    return list(found.values())


def aborted(data: bytes) -> list[Aborted]:
    """The rows of a `.txnindex`. Raises BadFile."""
    if len(data) % _ABORTED.size:
        raise BadFile(f"it has {len(data)} bytes, which is no multiple of {_ABORTED.size}")
    rows = []
    for version, *fields in _ABORTED.iter_unpack(data):
        if version != 0:
            raise BadFile(f"a row has version {version}")
        row = Aborted(*fields)
        if row.producer_id < 0 or not 0 <= row.first_offset <= row.last_offset:
            raise BadFile(
                f"a row says that producer id {row.producer_id} aborted {row.first_offset} to {row.last_offset}"
            )
        rows.append(row)
    return rows


def last_indexed(data: Data) -> int | None:
    """The last offset in a `.index`, relative to its segment's; None without one (`OffsetIndex`)."""
    entry = _last_entry(data, _INDEXED.size)
    return None if entry is None else int(_INDEXED.unpack(entry)[0])


def last_timed(data: Data) -> int | None:
    """The last offset in a `.timeindex`, relative to its segment's; None without one (`TimeIndex`)."""
    entry = _last_entry(data, _TIMED.size)
    return None if entry is None else int(_TIMED.unpack(entry)[1])


def _last_entry(data: Data, size: int) -> bytes | None:
    """The last entry that is not zero. Brokers reserve the file, and cut off the zeros when they close the segment."""
    low, high = 0, len(data) // size
    while low < high:
        middle = (low + high) // 2
        if any(data[middle * size : (middle + 1) * size]):
            low = middle + 1
        else:
            high = middle
    return bytes(data[(low - 1) * size : low * size]) if low else None


def broker_epoch(data: bytes) -> int | None:
    """The epoch of the broker in `.kafka_cleanshutdown`; None before Kafka 3.7, whose file is empty
    (`CleanShutdownFileHandler`). Raises BadFile.
    """
    if not data.strip():
        return None
    try:
        found = json.loads(data)["brokerEpoch"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise BadFile("it has no broker epoch") from None
    if not isinstance(found, int):
        raise BadFile("its broker epoch is no number")
    return found if found >= 0 else None


def checkpoint(data: bytes) -> dict[Key, int]:
    """Offsets by partition (`OffsetCheckpointFile`). If a partition occurs twice, the last row counts. Raises
    BadFile.
    """
    found = {}
    for topic, index, offset in _rows(data, 3):
        found[topic, _number(index)] = _number(offset)
    return found


def leader_epochs(data: bytes) -> list[tuple[int, int]]:
    """Leader epochs with their first offsets, in order (`LeaderEpochCheckpointFile`). Raises BadFile."""
    found = [(_number(epoch), _number(offset)) for epoch, offset in _rows(data, 2)]
    if any(a[0] >= b[0] or a[1] > b[1] for a, b in pairwise(found)):
        raise BadFile("its leader epochs do not rise")
    return found


def topic_id(data: bytes) -> str:
    """The topic id of a `partition.metadata`, as Kafka prints it. Raises BadFile."""
    values = properties(data, ":")
    if values.get("version") != "0":
        raise BadFile(f"it has version {values.get('version')}")
    if not re.fullmatch(r"[A-Za-z0-9_-]{22}", values.get("topic_id", "")):
        raise BadFile("it has no topic id")
    return values["topic_id"]


def properties(data: bytes, separator: str = "=") -> Mapping[str, str]:
    """The lines of `meta.properties` and the like. Raises BadFile."""
    lines = (line.strip() for line in _text(data).splitlines())
    pairs = (line.partition(separator) for line in lines if line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _rows(data: bytes, columns: int) -> list[list[str]]:
    """The rows after version and count. An empty file has no rows."""
    lines = _text(data).splitlines()
    if not lines:
        return []
    if lines[0].strip() != "0":
        raise BadFile(f"it has version '{lines[0][:20]}'")
    if len(lines) > _ROWS_MAX:
        raise BadFile(f"it has more than {_ROWS_MAX} lines, which no such file has")
    rows = [line.split() for line in lines[2:] if line.strip()]
    if len(lines) < 2 or len(rows) != _number(lines[1].strip()):
        raise BadFile(f"it has {len(rows)} rows, and claims another number")
    if any(len(row) != columns for row in rows):
        raise BadFile(f"a row has not {columns} columns")
    return rows


def _number(text: str) -> int:
    if not re.fullmatch(r"\d{1,19}", text, re.ASCII):
        raise BadFile(f"'{text[:20]}' is no number that can be there")
    return int(text)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadFile("it is not text") from None
