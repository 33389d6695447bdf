"""Up to which time a topic is complete: cases, and a search for histories that make the claim false."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.cases import Cases
from txnscan.waiting.complete_up_to import Completeness, Mark, PartitionRead, TopicRead, concluded


def read(at_ms: int, *partitions: tuple[int, int, int] | str, **changes: Any) -> TopicRead:
    """A read of topic p at this time. Each partition: leader epoch, high watermark, last stable offset; or a code."""
    found = tuple(
        PartitionRead(index, code=one) if isinstance(one, str) else PartitionRead(index, *one)
        for index, one in enumerate(partitions)
    )
    return replace(TopicRead("p", "t0", at_ms, found), **changes)


COMPLETE, BLOCKED, NOT_OBSERVED = Completeness.COMPLETE, Completeness.BLOCKED, Completeness.NOT_OBSERVED
# The case, the last read, the earlier reads, the status, and the time up to which the topic is complete.
CASES: tuple[tuple[str, TopicRead, tuple[TopicRead, ...], Completeness, int | None], ...] = (
    ("nothing is open", read(500, (1, 90, 90)), (), COMPLETE, 500),
    ("an empty partition", read(500, (0, 0, 0)), (), COMPLETE, 500),
    ("open at the first read", read(500, (1, 90, 80)), (), BLOCKED, None),
    ("open now, closed before", read(500, (1, 90, 80)), (read(400, (1, 80, 80)),), BLOCKED, 400),
    ("open at both, but not the same", read(500, (1, 90, 85)), (read(400, (1, 80, 70)),), BLOCKED, 400),
    ("the same is open", read(500, (1, 90, 70)), (read(400, (1, 80, 70)),), BLOCKED, None),
    ("the latest of several", read(500, (1, 90, 85)), (read(400, (1, 80, 70)), read(300, (1, 70, 70))), BLOCKED, 400),
    ("the earliest partition counts", read(500, (1, 90, 90), (1, 9, 5)), (read(400, (1, 9, 9), (1, 4, 4)),),
     BLOCKED, 400),
    ("a partition is new", read(500, (1, 90, 90), (0, 9, 5)), (read(400, (1, 90, 90)),), BLOCKED, None),
    ("a partition is not proven", read(500, (1, 90, 90), "NO_LEADER"), (read(400, (1, 90, 90), (1, 9, 9)),),
     NOT_OBSERVED, None),
    ("an earlier read was not proven", read(500, (1, 90, 80)), (read(400, "NO_LEADER"),), BLOCKED, None),
    ("the topic is not known", read(500, code="UNKNOWN_TOPIC_OR_PARTITION"), (), NOT_OBSERVED, None),
    ("no partitions", read(500), (), NOT_OBSERVED, None),
    ("recreated", read(500, (1, 90, 85)), (read(400, (1, 80, 80), topic_id="t9"),), BLOCKED, None),
    ("another topic", read(500, (1, 90, 85)), (read(400, (1, 80, 80), topic="q"),), BLOCKED, None),
    ("no topic ids", read(500, (1, 90, 85), topic_id=""), (read(400, (1, 80, 80), topic_id=""),), BLOCKED, None),
    ("no topic ids, nothing open", read(500, (1, 90, 90), topic_id=""), (), COMPLETE, 500),
    ("a new leader", read(500, (2, 90, 85)), (read(400, (1, 80, 80)),), BLOCKED, 400),
    ("a later leader read it earlier, by its clock", read(500, (1, 90, 85)), (read(400, (2, 80, 80)),), BLOCKED, None),
    ("an election lost the marker", read(500, (2, 60, 50)), (read(400, (1, 80, 80)),), BLOCKED, None),
    ("an election lost the marker, before it all was fine", read(500, (2, 60, 50)),
     (read(400, (1, 80, 80)), read(300, (1, 50, 50))), BLOCKED, 300),
    ("a clock was ahead", read(500, (1, 90, 85)), (read(450, (1, 70, 70)), read(400, (1, 80, 80))), BLOCKED, 400),
    ("a clock is ahead of this one", read(500, (1, 90, 85)), (read(600, (1, 80, 80)),), BLOCKED, None),
    ("a clock is ahead, and nothing was written since", read(500, (1, 90, 90)), (read(600, (1, 90, 90)),),
     COMPLETE, 500),
    ("the clock of this one is ahead", read(500, (1, 90, 90)), (read(300, (1, 95, 95)),), BLOCKED, None),
    ("the clock of this one is ahead, but not of an earlier one", read(500, (1, 90, 90)),
     (read(300, (1, 95, 95)), read(200, (1, 80, 80))), BLOCKED, 200),
)  # fmt: skip


def test_a_topic_is_complete_up_to_the_latest_read_below_the_last_stable_offset() -> None:
    with Cases() as cases:
        for name, last, earlier, status, complete_up_to_ms in CASES:
            with cases.case(name):
                found = concluded(last, earlier)
                assert (found.status, found.complete_up_to_ms) == (status, complete_up_to_ms)
                assert concluded(last, reversed(earlier)) == found


def test_the_conclusion_rests_on_a_mark_that_later_reads_can_use() -> None:
    """Only the last reads are kept at hand. A long block must not lose the time from before it."""
    first, second = read(300, (1, 70, 70)), read(400, (1, 80, 70))
    blocked = concluded(second, [first])
    assert [one.mark for one in blocked.partitions] == [Mark(300, 1, 70)]
    assert concluded(read(500, (1, 90, 70)), [blocked]).complete_up_to_ms == 300
    # An election that lost the marker makes the time unknown, not wrong.
    assert concluded(read(500, (2, 90, 60)), [blocked]).complete_up_to_ms is None


def test_a_blocked_partition_counts_its_records() -> None:
    found = concluded(read(500, (1, 90, 80), (1, 7, 7), "NO_LEADER"))
    assert [(one.partition, one.blocked_records) for one in found.blocked] == [(0, 10)]
    assert found.failures == {2: "NO_LEADER"}


# --- a model of a partition -------------------------------------------------------------------------------------------


@dataclass
class Record:
    """A record or a marker. transaction: None for a record without one. acked_at: None until it is replicated."""

    transaction: int | None
    is_marker: bool
    acked_at: int | None = None


@dataclass(frozen=True)
class Snapshot:
    """At a time, of each record in the log: when it was acknowledged, and whether a read_committed consumer gets it."""

    at: int
    records: tuple[tuple[int | None, bool], ...]


@dataclass
class Partition:
    """A partition as its leaders see it, and the reads of it."""

    now: int = 0
    topic: int = 0
    epoch: int = 0
    epoch_start: int = 0
    high_watermark: int = 0
    log_start: int = 0
    log: list[Record] = field(default_factory=list)
    asked: tuple[int, int, int, int] | None = None
    # True start, read, and the log when it ended.
    reads: list[tuple[int, TopicRead, Snapshot]] = field(default_factory=list)

    def undecided(self) -> set[int]:
        """Transactions whose marker is not replicated."""
        found: set[int] = set()
        for offset, one in enumerate(self.log):
            if one.transaction is not None:
                (found.discard if one.is_marker and offset < self.high_watermark else found.add)(one.transaction)
        return found

    def first_undecided(self) -> int:
        """`UnifiedLog.lastStableOffset` before the log start counts."""
        undecided, first = self.undecided(), len(self.log)
        for offset in range(len(self.log) - 1, -1, -1):
            one = self.log[offset]
            if one.transaction in undecided:
                if one.is_marker and offset < self.high_watermark:
                    undecided = undecided - {one.transaction}
                else:
                    first = offset
        return min(first, self.high_watermark)

    def step(self, what: str, number: int, skew: int) -> None:
        self.now += 1
        if what == "write":
            self.log.append(Record(number % 3 or None, is_marker=False))
        elif what == "end" and self.has_open(number % 3):
            self.log.append(Record(number % 3, is_marker=True))
        elif what == "replicate":
            self.replicate(self.high_watermark + number)
        elif what == "elect":
            self.lead(max(self.high_watermark, len(self.log) - number))
        elif what == "elect unclean":
            self.lead(max(self.log_start, len(self.log) - number))
        elif what == "delete":
            self.log_start = max(self.log_start, min(number, self.high_watermark))
        elif what == "recreate":
            reads, now, topic = self.reads, self.now, self.topic + 1
            self.__init__(now=now, topic=topic, reads=reads)  # type: ignore[misc]
        elif what == "ask" and self.high_watermark >= self.epoch_start:
            self.asked = (self.now, self.now * 100 + skew, self.epoch, self.high_watermark)
        elif what == "answer" and self.asked is not None:
            self.answer()

    def has_open(self, transaction: int) -> bool:
        """Whether the leader has it open, replicated or not."""
        of = [one for one in self.log if one.transaction == transaction]
        return transaction != 0 and bool(of) and not of[-1].is_marker

    def replicate(self, to: int) -> None:
        self.high_watermark = min(len(self.log), to)
        for one in self.log[: self.high_watermark]:
            one.acked_at = self.now if one.acked_at is None else one.acked_at

    def lead(self, end: int) -> None:
        """A new leader, whose log ends here."""
        del self.log[end:]
        self.epoch, self.epoch_start = self.epoch + 1, end
        self.high_watermark = min(self.high_watermark, end)

    def answer(self) -> None:
        assert self.asked is not None
        started, at_ms, epoch, high_watermark = self.asked
        self.asked = None
        if epoch != self.epoch:
            return
        stable = self.first_undecided()
        one = PartitionRead(0, epoch, high_watermark, max(stable, self.log_start))
        found = TopicRead("p", f"t{self.topic}", at_ms, (one,))
        records = tuple((r.acked_at, at < stable) for at, r in enumerate(self.log) if at >= self.log_start)
        self.reads.append((started, found, Snapshot(self.now, records)))


STEPS = (*("write", "end", "replicate", "ask", "answer") * 2, "elect", "elect unclean", "delete", "recreate")
HISTORIES = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 6), st.integers(-900, 900)), max_size=60)


def played(history: list[tuple[str, int, int]], *, skewed: bool) -> Partition:
    partition = Partition()
    for what, number, skew in history:
        partition.step(what, number, skew if skewed else 0)
    return partition


@settings(max_examples=500)
@given(HISTORIES)
def test_everything_acknowledged_before_the_time_is_readable(history: list[tuple[str, int, int]]) -> None:
    """With exact clocks."""
    partition = played(history, skewed=False)
    for count, (_, last, snapshot) in enumerate(partition.reads):
        found = concluded(last, [other for _, other, _ in partition.reads[:count]]).complete_up_to_ms
        if found is not None:
            assert all(readable for acked, readable in snapshot.records if acked is not None and acked * 100 < found)


# After an unclean election, a read by a sweeper whose clock is behind.
_BEHIND = (
    *(("write", 0, 0),) * 3,
    *(("write", 1, 0), ("replicate", 4, 0), ("ask", 0, 0), ("answer", 0, 0)),
    *(("elect unclean", 3, 0), ("write", 2, 0), ("replicate", 1, 0), ("ask", 0, -900), ("answer", 0, 0)),
)


@settings(max_examples=500)
@example(list(_BEHIND))
@given(HISTORIES)
def test_the_order_of_reads_needs_no_clocks(history: list[tuple[str, int, int]]) -> None:
    """With the clocks of many sweepers, and reads in any order: the claim holds for the true time of the read."""
    partition = played(history, skewed=True)
    others = [other for _, other, _ in partition.reads]
    for _, last, snapshot in partition.reads:
        for earlier in (others, *([other] for other in others)):
            mark = concluded(last, earlier).partitions[0].mark
            if mark is not None:
                started, at_mark = min(
                    ((started, shot) for started, one, shot in partition.reads if of(one, last) == mark),
                    key=lambda one: one[0],
                )
                later = max(snapshot, at_mark, key=lambda one: one.at)
                assert all(readable for acked, readable in later.records if acked is not None and acked < started)


def of(one: TopicRead, last: TopicRead) -> Mark | None:
    """The mark of a read, if it is of the same topic."""
    return one.partitions[0].own_mark(one.read_at_ms) if one.topic_id == last.topic_id else None


@settings(max_examples=300)
@given(HISTORIES)
def test_a_partition_without_undecided_transactions_is_complete_up_to_the_last_read(
    history: list[tuple[str, int, int]],
) -> None:
    partition = played(history, skewed=False)
    for transaction in (1, 2):
        partition.step("end", transaction, 0)
    partition.step("replicate", len(partition.log), 0)
    partition.step("ask", 0, 0)
    partition.step("answer", 0, 0)
    _, last, _ = partition.reads[-1]
    assert concluded(last).status is COMPLETE
