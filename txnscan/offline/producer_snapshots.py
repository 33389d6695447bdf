"""A broker's producer state for a partition, computed from the headers of its record batches. Pure.

Followers compute it in the same way (`ProducerStateManager`, `ProducerAppendInfo`): no batch is refused, and odd
batches are counted. A transaction opens with the first transactional batch of a producer id without an open
transaction. Any marker of the producer id ends it, at any epoch: under transactions v2 the marker's epoch is one higher
than the data's. A change of epoch clears the last sequence. A marker that ends no transaction still creates an entry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from txnscan.kafka.answers import OpenProducer
from txnscan.kafka.protocol.record_batch import BatchHeader

NONE = -1


@dataclass(slots=True)
class ProducerState:
    """An entry, as in `ProducerSnapshot.json` and DescribeProducers.

    start_offset: of the open transaction, or -1. last_offset: of the last data; -1 if only a marker of
    this epoch is known.
    """

    producer_id: int
    producer_epoch: int = NONE
    coordinator_epoch: int = NONE
    last_sequence: int = NONE
    last_offset: int = NONE
    offset_delta: int = 0
    last_timestamp_ms: int = NONE
    start_offset: int = NONE

    def described(self) -> OpenProducer:
        """The entry as DescribeProducers reports it."""
        return OpenProducer(
            self.producer_id,
            self.producer_epoch,
            self.coordinator_epoch,
            self.start_offset,
            self.last_timestamp_ms,
            self.last_sequence,
        )


@dataclass(slots=True)
class Begun:
    """The data of an open transaction that was read. first_epoch, first_sequence: of its first batch; None if that
    batch was not read.
    """

    start_offset: int
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    first_epoch: int | None = None
    first_sequence: int | None = None
    first_timestamp_ms: int = NONE


@dataclass(slots=True)
class Spread:
    """The count, sum, minimum and maximum of some numbers."""

    count: int = 0
    total: int = 0
    least: int | None = None
    most: int | None = None

    def add(self, value: int) -> None:
        """Adds a number."""
        self.merge(1, value, value, value)

    def merge(self, count: int, total: int, least: int, most: int) -> None:
        """Adds several numbers."""
        self.count += count
        self.total += total
        self.least = least if self.least is None else min(self.least, least)
        self.most = most if self.most is None else max(self.most, most)

    @property
    def mean(self) -> float | None:
        """The average; unknown for zero numbers."""
        return self.total / self.count if self.count else None


@dataclass(slots=True)
class Figures:
    """Counts of batches, records and markers.

    committed, aborted: markers, including those of empty transactions, as klog counts them. empty: markers without data
    of their producer before them. sizes: data batches of each ended transaction. durations_ms: from its first batch to
    its marker. legacy: batches of older formats without producers. odd: batches that change no state, or contradict
    earlier batches, by kind.
    """

    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    control: int = 0
    committed: int = 0
    aborted: int = 0
    empty: int = 0
    transactional: int = 0
    legacy: int = 0
    compacted: int = 0
    gaps: int = 0
    sizes: Spread = field(default_factory=Spread)
    durations_ms: Spread = field(default_factory=Spread)
    odd: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class LogState:
    """The state of a partition's log up to the last batch that was read.

    next_offset: the expected offset of the next batch; -1 before the first batch. gap_until: before this offset,
    offsets are missing between two batches, or -1. unread_at: the last control batch of a producer that no broker
    writes, or -1 if there was no such batch.
    """

    producers: dict[int, ProducerState] = field(default_factory=dict)
    begun: dict[int, Begun] = field(default_factory=dict)
    figures: Figures = field(default_factory=Figures)
    first_offset: int = NONE
    next_offset: int = NONE
    gap_until: int = NONE
    unread_at: int = NONE

    @property
    def open(self) -> list[ProducerState]:
        """The producers with an open transaction, ordered by its start."""
        found = (state for state in self.producers.values() if state.start_offset >= 0)
        return sorted(found, key=lambda state: (state.start_offset, state.producer_id))

    def restart(self, states: Iterable[ProducerState]) -> None:
        """Continues from a snapshot. Data that was read of transactions in the snapshot is kept."""
        self.producers = {state.producer_id: replace(state) for state in states}
        begun = self.begun
        self.begun = {
            state.producer_id: begun[state.producer_id]
            if state.producer_id in begun and begun[state.producer_id].start_offset == state.start_offset
            else Begun(state.start_offset)
            for state in self.open
        }

    def passed(self, batch: BatchHeader) -> None:
        """Counts a batch, and the offsets that are missing before it and in it."""
        figures = self.figures
        base_offset, last_offset = batch.base_offset, batch.last_offset
        figures.batches += 1
        figures.records += batch.records_count
        figures.size_bytes += batch.size_bytes
        if self.next_offset == NONE:
            self.first_offset = base_offset
        elif base_offset != self.next_offset:
            figures.gaps += 1
            self.gap_until = base_offset
        if batch.records_count != last_offset - base_offset + 1:
            figures.compacted += 1
        self.next_offset = last_offset + 1

    def passed_legacy(self, offset: int, size_bytes: int) -> None:
        """Counts a batch of an older format. A compressed batch has the offset of its last message; the number of its
        messages is inside.
        """
        figures = self.figures
        figures.legacy += 1
        figures.batches += 1
        figures.records += 1
        figures.size_bytes += size_bytes
        if self.next_offset == NONE:
            self.first_offset = offset
        self.next_offset = offset + 1

    def data(self, batch: BatchHeader) -> None:
        """Takes a data batch of a producer (`ProducerAppendInfo.appendDataBatch`)."""
        state = self._at_epoch(batch.producer_id, batch.producer_epoch)
        state.last_sequence, state.last_offset = batch.last_sequence, batch.last_offset
        state.offset_delta = batch.last_offset_delta
        state.last_timestamp_ms = batch.greatest_timestamp_ms
        if not batch.is_transactional:
            if state.start_offset >= 0:
                self.figures.odd["non-transactional data within an open transaction of its producer"] += 1
            return
        self.figures.transactional += 1
        if state.start_offset < 0:
            state.start_offset = batch.base_offset
            self.begun[batch.producer_id] = Begun(
                batch.base_offset,
                first_epoch=batch.producer_epoch,
                first_sequence=batch.base_sequence,
                first_timestamp_ms=batch.greatest_timestamp_ms,
            )
        begun = self.begun[batch.producer_id]
        begun.batches += 1
        begun.records += batch.records_count
        begun.size_bytes += batch.size_bytes

    def marker(self, producer_id: int, epoch: int, commits: bool, coordinator_epoch: int, timestamp_ms: int) -> None:
        """Takes the end of a transaction (`ProducerAppendInfo.appendEndTxnMarker`)."""
        figures = self.figures
        state = self._at_epoch(producer_id, epoch)
        if coordinator_epoch < state.coordinator_epoch:
            figures.odd["a marker of an earlier coordinator epoch than the one before"] += 1
        state.coordinator_epoch = coordinator_epoch
        state.last_timestamp_ms = timestamp_ms
        state.start_offset = NONE
        figures.control += 1
        figures.committed += commits
        figures.aborted += not commits
        begun = self.begun.pop(producer_id, None)
        if begun is None:
            figures.empty += 1
        elif begun.first_epoch is not None:
            figures.sizes.add(begun.batches)
            figures.durations_ms.add(timestamp_ms - begun.first_timestamp_ms)

    def _at_epoch(self, producer_id: int, epoch: int) -> ProducerState:
        state = self.producers.get(producer_id)
        if state is None:
            state = self.producers[producer_id] = ProducerState(producer_id)
        elif epoch < state.producer_epoch:
            self.figures.odd["an earlier producer epoch than the one before"] += 1
        if state.producer_epoch != epoch:
            state.producer_epoch = epoch
            state.last_sequence, state.last_offset, state.offset_delta = NONE, NONE, 0
        return state


def last_stable_offset(state: LogState) -> int:
    """The start of the first open transaction, or else the end of the log; by the log alone."""
    return min([one.start_offset for one in state.open] or [state.next_offset])


def differences(ours: Mapping[int, ProducerState], theirs: Mapping[int, ProducerState]) -> list[str]:
    """The differences between two states of a partition, as sentences."""
    said = [f"producer id {pid} is in one alone" for pid in sorted(ours.keys() ^ theirs.keys())]
    both = sorted(ours.keys() & theirs.keys())
    return said + [f"{ours[pid]} is not {theirs[pid]}" for pid in both if ours[pid] != theirs[pid]]
