"""What a broker remembers of the producers of a partition, folded from the headers of its record batches. Pure.

The fold is that of `ProducerStateManager` and `ProducerAppendInfo` as replicas run it: nothing is refused, what looks
wrong is counted. A transaction opens with the first transactional batch of a producer id that has none open, and any
marker of that producer id ends it, at whatever epoch: under transactions v2 the marker is one ahead of the data. A
change of epoch clears the last sequence. A marker that ends nothing leaves an entry all the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from txnscan.kafka.answers import OpenProducer

NONE = -1


@dataclass(slots=True)
class ProducerState:
    """An entry, as `ProducerSnapshot.json` and DescribeProducers have it. start_offset: of the open transaction, -1 for
    none. last_offset: of the last data, -1 where a marker alone is known of this epoch.
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
        """As DescribeProducers would say it."""
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
    """What was seen of an open transaction. first_epoch, first_sequence: of its first batch, None where that was not
    read.
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
    """Least, greatest and sum of some numbers."""

    count: int = 0
    total: int = 0
    least: int | None = None
    most: int | None = None

    def add(self, value: int) -> None:
        """Takes one more."""
        self.merge(1, value, value, value)

    def merge(self, count: int, total: int, least: int, most: int) -> None:
        """Takes several more."""
        self.count += count
        self.total += total
        self.least = least if self.least is None else min(self.least, least)
        self.most = most if self.most is None else max(self.most, most)

    @property
    def mean(self) -> float | None:
        """The average, None of nothing."""
        return self.total / self.count if self.count else None


@dataclass(slots=True)
class Figures:
    """What was counted. committed, aborted: markers, those of empty transactions too, as klog counts them.

    empty: markers with no data of their producer before them. sizes: data batches of each ended transaction.
    durations_ms: from its first batch to its marker. legacy: batches of the formats before producers. odd: by what is
    odd about them, batches that change nothing or contradict what came before.
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
    """A partition's log as far as it was read.

    next_offset: where it goes on, -1 before its first batch. gap_until: up to there an offset is missing between two
    batches, -1 where none is. unread_at: the last control batch of a producer that is none of a broker's, -1 for none.
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
        """The producers with an open transaction, in the order of its start."""
        found = (state for state in self.producers.values() if state.start_offset >= 0)
        return sorted(found, key=lambda state: (state.start_offset, state.producer_id))

    def restart(self, states: Iterable[ProducerState]) -> None:
        """Goes on from a snapshot. What was seen of transactions that it has, too, is kept."""
        self.producers = {state.producer_id: replace(state) for state in states}
        begun = self.begun
        self.begun = {
            state.producer_id: begun[state.producer_id]
            if state.producer_id in begun and begun[state.producer_id].start_offset == state.start_offset
            else Begun(state.start_offset)
            for state in self.open
        }

    def passed(self, base_offset: int, last_offset: int, size_bytes: int, records: int) -> None:
        """Counts a batch, and what is missing before it and in it."""
        figures = self.figures
        figures.batches += 1
        figures.records += records
        figures.size_bytes += size_bytes
        if self.next_offset == NONE:
            self.first_offset = base_offset
        elif base_offset != self.next_offset:
            figures.gaps += 1
            self.gap_until = base_offset
        if records != last_offset - base_offset + 1:
            figures.compacted += 1
        self.next_offset = last_offset + 1

    def passed_legacy(self, offset: int, size_bytes: int) -> None:
        """Counts a batch of an earlier format. A compressed one has the offset of its last message, and how many there
        are stands within.
        """
        figures = self.figures
        figures.legacy += 1
        figures.batches += 1
        figures.records += 1
        figures.size_bytes += size_bytes
        if self.next_offset == NONE:
            self.first_offset = offset
        self.next_offset = offset + 1

    def data(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        last_sequence: int,
        base_offset: int,
        last_offset: int,
        timestamp_ms: int,
        size_bytes: int,
        records: int,
        transactional: bool,
    ) -> None:
        """A data batch of a producer (`ProducerAppendInfo.appendDataBatch`)."""
        state = self._at_epoch(producer_id, epoch)
        state.last_sequence, state.last_offset = last_sequence, last_offset
        state.offset_delta = last_offset - base_offset
        state.last_timestamp_ms = timestamp_ms
        if not transactional:
            if state.start_offset >= 0:
                self.figures.odd["non-transactional data within an open transaction of its producer"] += 1
            return
        self.figures.transactional += 1
        if state.start_offset < 0:
            state.start_offset = base_offset
            self.begun[producer_id] = Begun(base_offset, 0, 0, 0, epoch, base_sequence, timestamp_ms)
        begun = self.begun[producer_id]
        begun.batches += 1
        begun.records += records
        begun.size_bytes += size_bytes

    def marker(self, producer_id: int, epoch: int, commits: bool, coordinator_epoch: int, timestamp_ms: int) -> None:
        """The end of a transaction (`ProducerAppendInfo.appendEndTxnMarker`)."""
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
    """Where the first transaction is still open, or else where the log ends, by the log alone."""
    return min([one.start_offset for one in state.open] or [state.next_offset])


def differences(ours: Mapping[int, ProducerState], theirs: Mapping[int, ProducerState]) -> list[str]:
    """What two states of a partition do not agree on, in words."""
    said = [f"producer id {pid} is in one alone" for pid in sorted(ours.keys() ^ theirs.keys())]
    both = sorted(ours.keys() & theirs.keys())
    return said + [f"{ours[pid]} is not {theirs[pid]}" for pid in both if ours[pid] != theirs[pid]]
