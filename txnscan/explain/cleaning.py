"""Whether the log cleaner does its work on a compacted partition, as far as its records show. Pure but for `send`.

No API reports the state of a cleaner. But a cleaner keeps one record of each key in the part of a log that it has
cleaned (`Cleaner.shouldRetainRecord`). If two records at the start of the log have the same key, it has not cleaned up
to the second of them, and all later bytes are dirty. The cleaner takes a log whose share of dirty bytes is above
`min.cleanable.dirty.ratio`, without the active segment, which has at most `segment.bytes` (`LogToClean`). Segments are
cleaned as a whole, so the cleaned part may end up to a segment later.
"""

from __future__ import annotations

from collections.abc import Mapping

from txnscan.explain.facts import CleanerProgress
from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.fetch import fetch
from txnscan.kafka.protocol.list_offsets import Offset, offset_of
from txnscan.kafka.topology import Partition

_PIECE_BYTES = 1 << 20
PIECES_MAX = 4
_SEGMENT, _RATIO, _LAG = "segment.bytes", "min.cleanable.dirty.ratio", "min.compaction.lag.ms"
SETTINGS = (_SEGMENT, _RATIO, _LAG)


def read_cleaning(
    send: Send, partition: Partition, end: int, size_bytes: int, settings: Mapping[str, str]
) -> CleanerProgress | None:
    """Reads the start of the log up to the first records with the same key. None if it cannot be read.

    end: the last stable offset. size_bytes: of the leader's log. settings: of the topic.
    """
    records, keys, read_bytes = 0, set[bytes](), 0
    try:
        offset = offset_of(send, partition, Offset.LOG_START)
        for _ in range(PIECES_MAX):
            if offset >= end or records > len(keys):
                break
            fetched = fetch(send, partition, offset, _PIECE_BYTES, records=True)
            read_bytes += fetched.size_bytes
            data = [batch for batch in fetched.batches if not batch.is_control and batch.base_offset < end]
            found = [key for batch in data for _, key, _ in batch.records or () if key is not None]
            records += len(found)
            keys.update(found)
            reached = fetched.next_offset(offset)
            if reached == offset:
                break
            offset = reached
    except RequestFailed:
        return None
    duplicates = records - len(keys)
    return CleanerProgress(records, duplicates, is_due=duplicates > 0 and is_due(size_bytes, read_bytes, settings))


def is_due(size_bytes: int, read_bytes: int, settings: Mapping[str, str]) -> bool:
    """Whether the cleaner must take this log, if it has cleaned no more than `read_bytes`. False if that is not
    certain.
    """
    try:
        segment_bytes, ratio, lag_ms = int(settings[_SEGMENT]), float(settings[_RATIO]), int(settings[_LAG])
    except (KeyError, ValueError):
        return False
    clean_bytes_max = read_bytes + segment_bytes
    dirty_bytes_min = size_bytes - clean_bytes_max - segment_bytes
    # The age of a segment is not known.
    return lag_ms == 0 and dirty_bytes_min > 0 and dirty_bytes_min > ratio * (dirty_bytes_min + clean_bytes_max)
