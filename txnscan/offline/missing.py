"""What the files lack: partitions, log directories, brokers, and the ends of logs. Pure.

A row of a checkpoint, or a replica in `__cluster_metadata`, is a partition. Without its folder the partition is
missing, unless `__cluster_metadata` says that its topic was deleted, or that the replica is elsewhere: folders of
deleted and moved partitions leave rows in checkpoints. Checkpoints are those of one log directory. A broker registers
the ids of its log directories, so that one that was not copied is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key
from txnscan.kafka.units import brokers_named, plural
from txnscan.offline.contents import METADATA_TOPIC, FileError, LogDirectory, Replica
from txnscan.offline.copies import Copies
from txnscan.offline.files import HIGH_WATERMARKS, LOG_STARTS, METADATA_FILE, RECOVERED
from txnscan.offline.moment import restless_error
from txnscan.offline.wholeness import gap_error, state_error, unwitnessed

_LAST_SECONDS = "changed in the last seconds before the broker was killed; no other file shows what was written then"


def missing_replica(copies: Copies, key: Key) -> str | None:
    """Why the files are not known to have every replica of a partition, if so."""
    here = copies.replicas.get(key, ())
    if not here:
        return "no replica of it is among the files"
    if key[1] < 0:
        return f"no partition has a directory with this name, '{key[0]}'"
    if copies.latest is None:
        if copies.vouched:
            unlisted = f"{copies.unlisted} cannot be listed, and may contain a replica of it"
            return None if copies.unlisted is None else unlisted
        return f"these files are of one replica or some, and no {METADATA_TOPIC} is among them to say which there are"
    undated = next((one for one in here if one.topic_id is None and METADATA_FILE in one.files.others), None)
    if undated is not None:
        return f"{undated.files.others[METADATA_FILE]} cannot be read, and may be of a topic that was deleted"
    assigned = copies.latest.assigned(key)
    if assigned is None:
        return f"{METADATA_TOPIC} has no such partition: its topic was deleted, or the files are of another cluster"
    topic_id, where = assigned
    if {replica.topic_id for replica in here} - {topic_id, None}:
        return "the topic was deleted and created again"
    brokers = {replica.broker_id for replica in here}
    absent = [one for one in sorted(where.replicas) if one not in brokers]
    if absent:
        replicas, verb = ("replica", "is") if len(absent) == 1 else ("replicas", "are")
        return f"the {replicas} on {brokers_named(absent)} {verb} not among the files, and may hold its marker"
    return None


def incomplete(copies: Copies, going: Sequence[str]) -> Iterator[FileError]:
    """Why an open transaction may not be among the files, each with its place. Damaged files are errors of their own,
    and a running broker explains everything.

    going: folders of a deletion or a move.
    """
    if copies.running is not None:
        return
    yield from _folders(copies, going)
    alike: dict[tuple[str, str], list[Replica]] = {}
    for key, here in sorted(copies.replicas.items()):
        if key[0] in (METADATA_TOPIC, TRANSACTION_STATE_TOPIC):
            continue
        is_restless = restless_error(copies, key) is not None
        for one in here:
            if one.unproven is not None:
                continue
            directory = one.files.log_directory
            place = directory.path if directory is not None else str(Path(one.directory).parent)
            clean = copies.is_clean(directory)
            why = state_error(one, clean=clean) or gap_error(one)
            if why is not None and why != unwitnessed(one, clean=clean):
                yield FileError(one.directory, why)
            elif why is not None:
                alike.setdefault((place, why), []).append(one)
            elif place in copies.killed and is_restless:
                alike.setdefault((place, _LAST_SECONDS), []).append(one)
    for (place, why), replicas in alike.items():
        more = f" and {len(replicas) - 1} more" if len(replicas) > 1 else ""
        between = " " if why == _LAST_SECONDS else ": "
        yield FileError(place, f"{replicas[0].name}{more}{between}{why}")


def _folders(copies: Copies, going: Sequence[str]) -> Iterator[FileError]:
    """The partitions, log directories and brokers that are missing, each with the place where it belongs."""
    listed = [one for one in copies.directories if one.listed]
    if not listed:
        return
    yield from _brokers(copies, listed)
    there = {one.files.directory for here in copies.replicas.values() for one in here}
    leaving = {_of_going(Path(path)) for path in going}
    for directory in listed:
        for key in sorted(_expected(copies, directory)):
            folder = str(Path(directory.path) / f"{key[0]}-{key[1]}")
            if folder not in there and folder not in leaving:
                yield FileError(folder, "it is missing: its log directory has this partition")


def _of_going(path: Path) -> str:
    """The folder of a partition that is about to be deleted or moved, as it was named: `t-0.<id>-delete`."""
    return str(path.with_name(path.name.rpartition(".")[0]))


def _expected(copies: Copies, directory: LogDirectory) -> set[Key]:
    """The partitions that the log directory has, by its checkpoints and by the metadata."""
    latest, broker_id = copies.latest, directory.broker_id
    rows = {key for name in (RECOVERED, HIGH_WATERMARKS, LOG_STARTS) for key in directory.offsets.get(name, ())}
    if latest is None or broker_id is None or copies.metadata_errors:
        return rows
    registered = latest.log_directories.get(broker_id, ())
    alone = sum(one.broker_id == broker_id for one in copies.directories) == 1
    found = set()
    for key, assigned in latest.replicas:
        if broker_id not in assigned.replicas:
            continue
        home = assigned.directory_on(broker_id)
        if home in registered and directory.directory_id is not None:
            is_here = home == directory.directory_id
        else:
            # Before Kafka 3.7 only the checkpoints tell in which of several directories it is.
            is_here = key in rows or alone
        if is_here:
            found.add(key)
    return found


def _brokers(copies: Copies, listed: list[LogDirectory]) -> Iterator[FileError]:
    """The brokers, and the log directories of brokers, that are not among the files."""
    latest = copies.latest
    if latest is None:
        return
    brokers = {one.broker_id for one in copies.directories}
    counts = Counter(broker_id for _, assigned in latest.replicas for broker_id in assigned.replicas)
    for broker_id, count in sorted(counts.items()):
        if broker_id not in brokers:
            yield FileError(f"broker {broker_id}", f"its files are missing: it has {plural(count, 'replica')}")
    for broker_id, directory_ids in sorted(latest.log_directories.items()):
        ours = {one.directory_id for one in copies.directories if one.broker_id == broker_id}
        for directory_id in directory_ids:
            if ours - {None} and directory_id not in ours:
                yield FileError(f"broker {broker_id}", f"its log directory with the id {directory_id} is missing")
