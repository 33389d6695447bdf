"""Whether all files are of one moment, at which no broker ran. Pure.

A sweep of live brokers reads the partition, then the coordinators, then the partition again. Files of one moment
replace all three reads. They are of one moment if either each broker recorded a clean shutdown, or all brokers stopped
writing at about the same time and no file was written later.

A killed broker leaves no record of where its logs end. It writes its high watermarks every five seconds
(`replica.high.watermark.checkpoint.interval.ms`), so everything that was committed before that is shown to be there, or
to be missing; a follower knows the high watermark within half a second. What a broker wrote in its last seconds is
shown by no file but the log itself, which may be cut short. Then a verdict holds as of the last moment that is shown
(`shown_until_ms`), and only for a partition that did not change later. The file system tells when that was, so the
copies need the times of the files and folders.
"""

from __future__ import annotations

from collections.abc import Iterable

from txnscan.kafka.topology import Key
from txnscan.kafka.units import brokers_named, duration
from txnscan.offline.contents import METADATA_TOPIC, LogDirectory
from txnscan.offline.copies import Copies
from txnscan.txnlog.facts import LoggedTransaction

# The maximum difference between the last writes of brokers that stopped together: a controller writes twice a second.
TOGETHER_MS = 10_000
# The maximum difference between the clocks of brokers and of their file systems, for brokers that stopped together.
_CLOCKS_MS = 1_000
# Kafka's default of `replica.high.watermark.checkpoint.interval.ms`.
_WATERMARKS_MS = 5_000


def running_error(copies: Copies) -> str | None:
    """Why the files may be from different moments, if they may."""
    if copies.running is not None:
        return copies.running
    clusters = {directory.cluster_id for directory in copies.directories} - {None}
    if len(clusters) > 1:
        return f"these are files of {len(clusters)} clusters: read those of one"
    for broker_id, why in sorted(copies.metadata_errors.items()):
        return f"the {METADATA_TOPIC} of broker {broker_id} is not whole: {why}"
    latest = copies.latest
    if latest is None:
        return (
            None if copies.vouched else f"no {METADATA_TOPIC} is among the files to show that no broker ran meanwhile"
        )
    for broker_id, own in sorted(copies.metadata.items()):
        if latest.registered_at.get(broker_id, -1) >= own.next_offset:
            return f"broker {broker_id} started again after its files were copied"
    if copies.vouched:
        return None
    brokers = {directory.broker_id for directory in copies.directories}
    silent = brokers - copies.metadata.keys()
    if silent:
        named = sorted(one for one in silent if one is not None)
        whose = brokers_named(named) if named else "a broker"
        return f"the {METADATA_TOPIC} of {whose} is not among the files"
    if not copies.killed:
        return None
    if copies.lock_error is not None:
        return copies.lock_error
    ends = [own.ended_ms for own in copies.metadata.values()]
    if max(ends) - min(ends) > TOGETHER_MS:
        apart = duration(max(ends) - min(ends))
        how = "the brokers did not stop together, or ran while the files were copied"
        return f"the files of the brokers end {apart} apart: {how}"
    later_ms = copies.newest_file_ms - max(ends)
    if later_ms > TOGETHER_MS:
        return (
            f"files were written {duration(later_ms)} after the last sign of life of the brokers: they were copied "
            "while brokers ran, or without the times of files"
        )
    return None


def _last_write(copies: Copies, directory: LogDirectory) -> tuple[int, int]:
    """The time in the newest record that the broker wrote, and when the file with it was written."""
    own = copies.metadata.get(directory.broker_id) if directory.broker_id is not None else None
    log = [one for one in copies.replicas.get((METADATA_TOPIC, 0), ()) if one.broker_id == directory.broker_id]
    return copies.newest_record if own is None or not log else (own.ended_ms, log[0].files.written_ms)


def shown_until_ms(copies: Copies) -> int:
    """The moment up to which the checkpoints of killed brokers show what was committed."""
    shown = [min(one.watermarks_ms, _last_write(copies, one)[0] - _WATERMARKS_MS) for one in copies.killed.values()]
    return min(shown) - _CLOCKS_MS


def restless_error(copies: Copies, key: Key, owners: Iterable[LoggedTransaction] = ()) -> str | None:
    """Why the partition, or an owner of a transaction in it, may have changed after the last moment that is shown."""
    killed = copies.killed
    if not killed:
        return None
    for one in killed.values():
        record_ms, written_ms = _last_write(copies, one)
        if abs(written_ms - record_ms) > TOGETHER_MS:
            return (
                f"the broker of {one.path} was killed, and the copies are without the times of files, which show what "
                "did not change in its last seconds"
            )
    here = [one for one in copies.replicas[key] if one.files.log_directory and one.files.log_directory.path in killed]
    changed_ms = max([*(one.files.changed_ms for one in here), *(owner.updated_ms for owner in owners)], default=-1)
    if changed_ms <= shown_until_ms(copies):
        return None
    return (
        "the partition or its owner changed in the last seconds before a broker was killed. No other file shows what "
        "was written then, and its marker may be missing"
    )
