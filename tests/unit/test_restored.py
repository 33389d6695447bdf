"""Falls of positions: which show that the history of a cluster went back, and which are innocent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from tests.cases import Cases
from txnscan.reads.observation import TransactionKey
from txnscan.sweeps.restored import (
    POSITIONS_MAX,
    Fall,
    LogPosition,
    PartitionOfTopicId,
    Past,
    Present,
    Sign,
    fall,
    is_of_other_log,
    latest_of,
    over_since,
    together_positions,
)

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

WHERE = TransactionKey("p", "t0", 0, 7, 100)
ELSEWHERE, UNKNOWN_TOPIC = WHERE._replace(partition=1), WHERE._replace(topic_id="")


def at(epoch: int, mark: int | None = None, topic_id: str = "t0", partition: int = 0) -> LogPosition:
    return LogPosition("p", topic_id, partition, epoch, mark)


def past(*positions: LogPosition, offset: int | None = None, ended: int | None = None) -> Past:
    return Past(0, 0, offset, positions, {} if ended is None else {WHERE: ended})


def now(*positions: LogPosition, offset: int | None = None, still_open: int | None = None, **ends: int) -> Present:
    """ends: of leader epochs of p-0, as `epoch_5=100`."""
    epoch_ends = {(("t0", 0), int(name.removeprefix("epoch_"))): end for name, end in ends.items()}
    return Present(offset, positions, epoch_ends, {} if still_open is None else {WHERE: still_open})


# Name, the stored positions, those of now, and what fell.
TABLE: tuple[tuple[str, Past, Present, Sign | None], ...] = (
    ("the first sweep of tables", past(), now(at(5, 100), offset=9), None),
    ("nothing happened", past(at(5, 100), offset=9), now(at(5, 100), offset=9), None),
    ("all rose", past(at(5, 100), offset=9), now(at(5, 110), offset=12), None),
    ("the metadata log lost records", past(offset=9), now(offset=8), Sign.IMAGE_OFFSET),
    ("a broker did not report its image", past(offset=9), now(), None),
    ("outside KRaft mode", past(at(5)), now(at(6)), None),
    ("KRaft since then", past(), now(offset=1), None),
    ("an election", past(at(5, 100)), now(at(6, 100), epoch_5=100), None),
    ("the leader epoch fell", past(at(5, 100)), now(at(4, 200)), Sign.LEADER_EPOCH),
    ("the topic was created again", past(at(5, 100)), now(at(0, 0, "t1")), None),
    ("topic ids are not known", past(at(5, 100, "")), now(at(0, 0, "")), None),
    ("the same number in another topic", past(at(5, 100)), now(at(0, 0, "t9")), None),
    ("another partition", past(at(5, 100)), now(at(4, 0, partition=1)), None),
    ("the high watermark fell at its leader epoch", past(at(5, 100)), now(at(5, 99)), Sign.HIGH_WATERMARK),
    ("it fell at an election", past(at(5, 100)), now(at(6, 99)), Sign.HIGH_WATERMARK),
    ("it was not read now", past(at(5, 100)), now(at(5)), None),
    ("it was not stored", past(at(5)), now(at(5, 1)), None),
    ("the earlier leader epoch ended below it, and the log grew", past(at(5, 100)), now(at(6, 300), epoch_5=99),
     Sign.EPOCH_END),
    ("of that epoch nothing is left, and the log grew", past(at(5, 100)), now(at(7, 300), epoch_5=60), Sign.EPOCH_END),
    ("it ended above it", past(at(5, 100)), now(at(6, 300), epoch_5=150), None),
    ("the leader does not know that epoch", past(at(5, 100)), now(at(6, 300)), None),
    ("the end of an epoch before", past(at(5, 100)), now(at(6, 300), epoch_4=50), None),
    ("an end of a leader epoch that is not over", past(at(5, 100)), now(at(5, 300), epoch_5=99), None),
    ("one sweep of several was above", past(at(5, 80), at(5, 100)), now(at(5, 90)), Sign.HIGH_WATERMARK),
    ("a transaction is open again", past(ended=5), now(still_open=5), Sign.OPEN_AGAIN),
    ("open again after an election, which may lose a marker", past(ended=5), now(still_open=6), None),
    ("it is not open", past(ended=5), now(), None),
    ("open again, and its topic's id is not known", Past(ended={UNKNOWN_TOPIC: 5}),
     Present(still_open={UNKNOWN_TOPIC: 5}), None),
    ("the second of two is open again", Past(ended={ELSEWHERE: 5, WHERE: 5}), now(still_open=5), Sign.OPEN_AGAIN),
)  # fmt: skip


def test_each_fall_and_each_innocent_history() -> None:
    with Cases() as cases:
        for name, before, present, expected in TABLE:
            with cases.case(name):
                found = fall(before, present)
                assert (found.sign if found is not None else None) == expected


def test_without_an_offset_or_a_high_watermark_there_is_no_fall() -> None:
    stored = Past(positions=(LogPosition("p", "t0", 0, 5, 100),), image_offset=9)
    assert fall(stored, Present(positions=(LogPosition("p", "t0", 0, 5),))) is None


def test_signs_have_stable_names() -> None:
    assert [one.value for one in Sign] == [
        "image_offset",
        "leader_epoch",
        "high_watermark",
        "epoch_end",
        "open_again",
    ]


def test_a_fall_names_the_partition_and_both_positions(wording: SnapshotAssertion) -> None:
    assert fall(past(at(5, 100)), now(at(5, 99))) == Fall(Sign.HIGH_WATERMARK, 100, 99, "p-0")
    found = [fall(before, present) for _, before, present, sign in TABLE if sign is not None]
    assert [str(one) for one in found] == wording


def test_only_leader_epochs_that_are_over_are_asked_for() -> None:
    stored = past(at(3, 90), at(5, 100), at(5, partition=1), at(4, 7, partition=2), at(3, 8, ""))
    positions = [at(5, 100), at(6, 1, partition=1), at(6, 9, partition=2), at(9, 1, "")]
    assert over_since(stored, positions) == {("t0", 0): frozenset({3}), ("t0", 2): frozenset({4})}


def test_of_several_stores_the_latest_history_counts() -> None:
    first, second = Past(1, 1, 50, (at(9, 9),), {WHERE: 9}), Past(2, 0, 10, (at(1, 1),))
    assert latest_of([first, second]) == Past(2, 1, 10, (at(1, 1),))
    assert latest_of([]) == Past()
    same = latest_of([replace(second, image_offset=None), second])
    assert (same.image_offset, same.positions) == (10, (at(1, 1),))


def test_stores_of_one_history_are_one() -> None:
    one = Past(2, 0, 10, (at(1, 1), at(2, 2)), {WHERE: 3})
    other = Past(2, 1, 12, (at(2, 2), at(1, partition=1)), {ELSEWHERE: 4})
    both = (at(1, 1), at(2, 2), at(1, partition=1))
    assert latest_of([one, other]) == Past(2, 1, 12, both, {WHERE: 3, ELSEWHERE: 4})


def test_each_partition_has_the_position_that_was_read_last() -> None:
    one, other, unknown = at(5, 100), at(5, 90, partition=1), at(5, 80, "")
    assert together_positions([one, other, unknown, at(6)]) == (at(6), other)
    many = [at(5, partition=number) for number in range(POSITIONS_MAX + 1)]
    assert together_positions(many) == tuple(many[:POSITIONS_MAX])


def test_a_lower_position_shows_another_log_only_if_a_topic_id_is_unknown() -> None:
    with Cases() as cases:
        for before, present in (("", ""), ("", "t0"), ("t0", ""), ("t0", "t0")):
            for why, later, is_lower in (
                ("the same", at(5, 100, present), False),
                ("a lower leader epoch", at(4, 200, present), True),
                ("a lower high watermark", at(5, 99, present), True),
            ):
                with cases.case(f"{why}, {before!r} and {present!r}"):
                    expected = is_lower and "" in (before, present)
                    assert is_of_other_log(at(5, 100, before), later) is expected


# --- a log with elections, crashes and restores -----------------------------------------------------------------------


@dataclass(frozen=True)
class Log:
    """The acknowledged records of a partition, each with its leader epoch and a number that no other record has."""

    epoch: int
    records: tuple[tuple[int, int], ...]

    def position(self) -> LogPosition:
        return at(self.epoch, len(self.records))

    def ends(self) -> Mapping[tuple[PartitionOfTopicId, int], int]:
        """As leaders answer: an epoch ends where a later one begins."""
        found = {}
        for epoch in range(self.epoch):
            later = [offset for offset, (of, _) in enumerate(self.records) if of > epoch]
            found[("t0", 0), epoch] = min(later, default=len(self.records))
        return found


def run(steps: Iterable[tuple[str, int]]) -> tuple[Log, Past, bool]:
    """The log after these steps, the positions that sweeps stored, and whether it lacks a record that the last sweep
    saw.
    """
    log, fresh = Log(0, ()), iter(range(10_000))
    copies, stored, seen = [log], [], log.records
    for kind, number in steps:
        left = log.records[: max(0, len(log.records) - number)]
        if kind == "write":
            log = replace(log, records=(*log.records, *((log.epoch, next(fresh)) for _ in range(number))))
        elif kind == "election":
            log = replace(log, epoch=log.epoch + 1)
        elif kind == "copy":
            copies.append(log)
        elif kind == "sweep":
            stored.append(log.position())
            seen = log.records
        elif kind == "unclean election":
            log = Log(log.epoch + 1, left)
        elif kind == "crash":
            # Of the only node, which keeps its leader epoch.
            log = replace(log, records=left)
        elif kind == "restore":
            log = copies[number % len(copies)]
    return log, Past(positions=tuple(stored)), log.records[: len(seen)] != seen


def steps_of(*kinds: str) -> st.SearchStrategy[list[tuple[str, int]]]:
    return st.lists(st.tuples(st.sampled_from(kinds), st.integers(1, 3)), max_size=12)


INNOCENT = ("write", "election", "copy", "sweep")


@given(steps_of(*INNOCENT))
def test_no_innocent_history_of_a_log_shows_a_fall(steps: list[tuple[str, int]]) -> None:
    log, stored, lost = run(steps)
    assert not lost
    assert fall(stored, Present(None, (log.position(),), log.ends())) is None


@given(steps_of(*INNOCENT, "unclean election", "crash", "restore"))
def test_each_fall_of_a_log_shows_another_history(steps: list[tuple[str, int]]) -> None:
    """A loss is noticed at least as long as the log has not passed the stored position."""
    sweeps = [number for number, (kind, _) in enumerate(steps) if kind == "sweep"]
    if not sweeps:
        return
    # An earlier fall began a history of its own, so only the last sweep is compared.
    then, now_ = run(steps[: sweeps[-1] + 1])[0], run(steps)
    log, lost = now_[0], now_[2]
    found = fall(Past(positions=(then.position(),)), Present(None, (log.position(),), log.ends()))
    if found is not None and found.sign is not Sign.LEADER_EPOCH:
        assert lost
    if log.epoch < then.epoch or len(log.records) < len(then.records):
        assert found is not None
    if lost and log.epoch > then.epoch and all(of > then.epoch for of, _ in log.records[len(then.records) - 1 :]):
        assert found is not None


# The input of the comparison for each sign, taken away.
WITHOUT: Mapping[Sign, Callable[[Present], Present]] = {
    Sign.IMAGE_OFFSET: lambda one: replace(one, image_offset=None),
    Sign.LEADER_EPOCH: lambda one: replace(one, positions=()),
    Sign.HIGH_WATERMARK: lambda one: replace(
        one, positions=tuple(replace(position, high_watermark=None) for position in one.positions)
    ),
    Sign.EPOCH_END: lambda one: replace(one, epoch_ends={}),
    Sign.OPEN_AGAIN: lambda one: replace(one, still_open={}),
}


def test_each_comparison_is_necessary() -> None:
    """The falls of the table are noticed by one comparison each, and by no other."""
    falls = [(name, before, present, sign) for name, before, present, sign in TABLE if sign is not None]
    assert {sign for _, _, _, sign in falls} == set(Sign)
    with Cases() as cases:
        for name, before, present, sign in falls:
            with cases.case(name):
                assert fall(before, WITHOUT[sign](present)) is None
