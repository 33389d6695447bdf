"""From paths to the content of their files: replicas, transaction logs, verdicts."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from txnscan.errors import TxnscanError
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key
from txnscan.offline.contents import METADATA_TOPIC, FileError, Found, Replica, ReplicaFiles
from txnscan.offline.copies import Copies
from txnscan.offline.disk import find
from txnscan.offline.live_broker import look_again
from txnscan.offline.missing import incomplete
from txnscan.offline.moment import running_error
from txnscan.offline.replica import BATCH_BYTES_MAX, batches, checksum_error, read_replica
from txnscan.offline.wholeness import Hole, holes, metadata_error
from txnscan.verdict.evidence import KnownOutcome

if TYPE_CHECKING:
    from txnscan.kafka.protocol.record_batch import Batch
    from txnscan.offline.cluster_metadata import Metadata
    from txnscan.offline.judging import OpenInFiles
    from txnscan.offline.state_log import StateLog
    from txnscan.txnlog.timeline import Step

NO_PARTITION = -1
# Below this size a second process costs more than it saves.
_PARALLEL_FROM_BYTES = 256 * 1024 * 1024

Progress = Callable[[str, int, int], None]
ReadOne = Callable[[ReplicaFiles], Replica]
# Calls the function on each replica's files, anywhere, largest first. Yields the results in any order, each with its
# index in the sequence. sizes: of the files, in bytes.
Spread = Callable[[ReadOne, Sequence[ReplicaFiles], Sequence[int]], Iterable[tuple[int, Replica]]]


class ReadingEnded(TxnscanError):
    """A process that read files ended too early. `str()` is one sentence."""


@dataclass(frozen=True, slots=True)
class FileContents:
    """The content of the files.

    now_ms: their last moment, by the brokers' clock, or by the file system if they have no such time. running_error:
    why they may be from different moments, if so. uncovered: see `coverage_errors`. steps: the requested records, each
    with its partition of the log. incomplete: see `missing.incomplete`. outcomes: see `judging.outcomes`. changing:
    whether a broker ran while they were read.
    """

    found: Found
    replicas: tuple[Replica, ...]
    logs: dict[int, StateLog]
    transactions: tuple[OpenInFiles, ...]
    uncovered: dict[int, str]
    running_error: str | None
    now_ms: int
    late_after_ms: int
    errors: tuple[FileError, ...]
    incomplete: tuple[FileError, ...] = ()
    steps: tuple[Step, ...] = ()
    outcomes: tuple[tuple[Key, KnownOutcome], ...] = ()
    changing: bool = False

    @property
    def cluster_ids(self) -> list[str]:
        """The ids of the clusters in the files."""
        return sorted({d.cluster_id for d in self.found.log_directories if d.cluster_id is not None})

    @property
    def impossible(self) -> list[Step]:
        """The records of all ids that no coordinator writes after the record before them."""
        return [one for log in self.logs.values() for one in log.impossible]


def read_paths(
    paths: Sequence[str],
    *,
    late_after_ms: int,
    vouched: bool = False,
    log_partitions: int | None = None,
    check_crc: bool = False,
    names: Collection[str] = (),
    producer: tuple[int, int | None] | None = None,
    progress: Progress = lambda *_: None,
    spread: Spread | None = None,
) -> FileContents:
    """Reads the files below the paths, and judges the open transactions in them.

    names: transactional ids whose records are all returned in `steps`. producer: a producer id, whose ids' records are
    all returned too, and an epoch, for which outcomes are returned. vouched, log_partitions, check_crc: see `Copies`
    and `read_replica`. spread: where the replicas are read, for example `engine.spark.spread_files`; by default on all
    cores of this machine. Raises PathError and ReadingEnded.
    """
    found = find(paths)
    replicas = _read_all(found.replicas, check_crc, progress, spread)
    errors = [*found.errors, *(error for replica in replicas for error in replica.errors)]
    progress("judge", 0, 1)
    by_key: dict[Key, list[Replica]] = {}
    for replica in replicas:
        # A directory with an unusual name belongs to no known partition.
        by_key.setdefault(replica.key or (replica.directory, NO_PARTITION), []).append(replica)
    metadata, metadata_errors = _metadata(by_key.get((METADATA_TOPIC, 0), ()), errors)
    copies = Copies(
        by_key,
        found.log_directories,
        metadata,
        vouched,
        found.newest_ms,
        metadata_errors=metadata_errors,
        log_partitions=log_partitions,
        lock_error=found.seen.lock_error,
        unlisted=found.unlisted,
    )
    of_data = any(replica.open for replica in replicas)
    if not of_data and not any(topic == TRANSACTION_STATE_TOPIC for topic, _ in by_key):
        # With no transaction to judge, the modules that judge are not loaded.
        running = look_again(found.seen)
        copies = replace(copies, running=running)
        return FileContents(
            *(found, tuple(replicas), {}, (), {}, running, found.newest_ms, late_after_ms, tuple(errors)),
            incomplete=tuple(incomplete(copies, found.going)),
            changing=running is not None,
        )
    from txnscan.offline import judging

    wanted = {*judging.producer_ids(replicas), *([producer[0]] if producer is not None else [])}
    state_logs = _state_logs(copies, names, wanted, errors)
    logs = {k: log for k, (log, *_) in sorted(state_logs.items())}
    newest = [(log.newest_ms, copies.leading((TRANSACTION_STATE_TOPIC, k)).files.written_ms) for k, log in logs.items()]
    copies = replace(copies, newest_record=max(newest, default=(-1, -1)))
    times = [own.ended_ms for own in metadata.values()] or [log.newest_ms for log in logs.values()]
    now_ms = max([*times, *([] if times else [found.newest_ms])])
    judge = partial(
        judging.judge_files,
        logs=state_logs,
        now_ms=now_ms,
        late_after_ms=late_after_ms,
        checksum_error=lambda replica, offset: checksum_error(replica.files, offset),
    )
    transactions = judge(copies)
    # By now all files have been read, including the checksums of transactions that would hang.
    running = look_again(found.seen)
    if running is not None:
        copies = replace(copies, running=running)
        transactions = judge(copies)
    uncovered = judging.coverage_errors(copies, state_logs)
    running = running_error(copies)
    steps = [step for _, log in sorted(logs.items()) for step in log.steps]
    outcomes: list[tuple[Key, KnownOutcome]] = []
    if producer is not None:
        producer_id, epoch = producer
        from txnscan.txnlog.timeline import Checker

        for k, log in sorted(logs.items()):
            steps += map(Checker(k).step, judging.logged({k: log}, producer_id))
        if epoch is not None:
            outcomes = judging.outcomes(logs, uncovered, running, producer_id, epoch)
    return FileContents(
        found,
        tuple(replicas),
        logs,
        tuple(transactions),
        uncovered,
        running,
        now_ms,
        late_after_ms,
        tuple(errors),
        tuple(incomplete(copies, found.going)),
        tuple(steps),
        tuple(outcomes),
        changing=copies.running is not None,
    )


def _state_logs(
    copies: Copies, names: Collection[str], producer_ids: Collection[int], errors: list[FileError]
) -> dict[int, list[StateLog]]:
    """The copies of each partition of `__transaction_state`, that of its leader first."""
    of_log = {key[1]: here for key, here in copies.replicas.items() if key[0] == TRANSACTION_STATE_TOPIC}
    if not of_log:
        return {}
    # kafka-python decodes records; loading it takes a while.
    from txnscan.offline.state_log import read_state_log

    logs: dict[int, list[StateLog]] = {}
    for k, here in sorted(of_log.items()):
        leader = copies.leading((TRANSACTION_STATE_TOPIC, k))
        for one in (leader, *(other for other in here if other is not leader)):
            bad: list[FileError] = []
            log = read_state_log(k, batches(one.files, bad), names, producer_ids, holes(one))
            if bad and log.error is None and one.unproven is None:
                log.error = bad[0].error
            if one is copies.leader((TRANSACTION_STATE_TOPIC, k)):
                log.leader_epoch, log.high_watermark = one.leader_epoch, one.high_watermark
            log.epochs_rise = copies.epochs_rise
            if log.error is not None and one is leader:
                errors.append(FileError(one.files.directory, log.error))
            logs.setdefault(k, []).append(log)
    return logs


def _read_all(
    files: Sequence[ReplicaFiles], check_crc: bool, progress: Progress, spread: Spread | None
) -> list[Replica]:
    """All replicas, in the order of the files; read on all cores if the files are large."""
    one = partial(read_replica, check_crc=check_crc)
    sizes = [sum(_size(path) for path in replica.segments.values()) for replica in files]
    if spread is None:
        many = min(os.cpu_count() or 1, len(files)) > 1 and sum(sizes) >= _PARALLEL_FROM_BYTES
        spread = _in_processes if many else _here
    read: dict[int, Replica] = {}
    for number, replica in spread(one, files, sizes):
        read[number] = replica
        progress("read files", len(read), len(files))
    return [read[number] for number in range(len(files))]


def _here(read: ReadOne, files: Sequence[ReplicaFiles], sizes: Sequence[int]) -> Iterator[tuple[int, Replica]]:
    return enumerate(map(read, files))


def _in_processes(read: ReadOne, files: Sequence[ReplicaFiles], sizes: Sequence[int]) -> Iterator[tuple[int, Replica]]:
    """Reads in one process per core, largest files first, so that no core ends with a large file alone."""
    order = sorted(range(len(files)), key=lambda number: -sizes[number])
    with ProcessPoolExecutor(min(os.cpu_count() or 1, len(files))) as pool:
        try:
            yield from zip(order, pool.map(read, [files[number] for number in order]), strict=True)
        except BrokenProcessPool:
            said = "a process that read files was ended from outside, perhaps for want of memory; read fewer at a time"
            raise ReadingEnded(said) from None


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except OSError:
        return 0


def _metadata(replicas: Iterable[Replica], errors: list[FileError]) -> tuple[dict[int, Metadata], dict[int, str]]:
    """Each broker's copy of the metadata log: its newest snapshot, and the records after it. Also why a copy is not
    whole, if it is not.
    """
    found: dict[int, Metadata] = {}
    failed: dict[int, str] = {}
    for replica in replicas:
        if replica.broker_id is None or replica.files.error is not None:
            continue
        own, why = _metadata_of(replica)
        # Of two copies of one broker's log the shorter one counts: it shows what may be missing.
        if why is not None:
            errors.append(FileError(replica.files.directory, why))
            failed[replica.broker_id] = why
        elif replica.broker_id not in found or own.next_offset < found[replica.broker_id].next_offset:
            found[replica.broker_id] = own
    return found, failed


def _metadata_of(replica: Replica) -> tuple[Metadata, str | None]:
    """A copy of the metadata log, and why it is not whole, if it is not."""
    from txnscan.kafka.errors import RequestFailed
    from txnscan.kafka.protocol.records import BatchRoom, decoded
    from txnscan.offline.cluster_metadata import Metadata
    from txnscan.offline.disk import mapped
    from txnscan.offline.walk import headers

    files, own, room = replica.files, Metadata(), BatchRoom.of_file()
    bad: list[FileError] = []
    after = max(files.checkpoints, default=-1)
    begins = min(files.segments, default=0)
    if begins > max(after, 0):
        return own, f"the log begins at offset {begins}, without a snapshot of there"
    try:
        if after >= 0:
            with mapped(files.checkpoints[after]) as data:
                end = 0
                for at, size in headers(data):
                    if size > BATCH_BYTES_MAX:
                        raise RequestFailed(f"a batch of {size} bytes is too large to decode (at byte {at})")
                    for batch in decoded(data[at : at + size], records=True, room=room.for_next(size)):
                        # Records in a snapshot do not have their own offsets. They are only known to be before the
                        # snapshot's offset.
                        _take(own, batch, after - 1)
                    end = at + size
                if end < len(data):
                    raise RequestFailed(f"its snapshot is damaged or cut off (at byte {end})")
            own.next_offset = after
        base = max((one for one in files.segments if one <= after), default=None)
        for raw in batches(files, bad, base):
            own.ended_ms = max(own.ended_ms, int.from_bytes(raw[35:43], signed=True))
            for batch in decoded(raw, records=True, room=room.for_next(len(raw))):
                if batch.base_offset > own.next_offset:
                    raise RequestFailed(str(Hole(own.next_offset, batch.base_offset, "the log goes on behind them")))
                if batch.last_offset >= own.next_offset:
                    _take(own, batch, None)
                    own.next_offset = batch.last_offset + 1
    except (RequestFailed, OSError) as failed:
        bad.append(FileError(files.directory, str(failed)))
    return own, bad[0].error if bad else metadata_error(replica, own.next_offset)


def _take(own: Metadata, batch: Batch, offset: int | None) -> None:
    if not batch.is_control:
        for at, _, value in batch.records or ():
            if value:
                own.take(at if offset is None else offset, value)
