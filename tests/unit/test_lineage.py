"""The specification of joining reads: each case has reads of an id, and the records that belong to the current log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import Cases
from txnscan.kafka.answers import EpochEnd
from txnscan.kafka.failure import FailureCode
from txnscan.txnlog.facts import LogRead, RawRecord
from txnscan.txnlog.lineage import RECORDS_STORED_MAX, adds, bounded, joined, newest_of, not_shown

LOG, OLD_LOG = "log-1", "log-0"


def rec(offset: int, epoch: int = 0, contiguous_from: int = 0, value: bytes = b"") -> RawRecord:
    return RawRecord(offset, contiguous_from, "X", value or f"{epoch}/{offset}".encode(), epoch)


def read(
    *records: RawRecord,
    epoch: int = 0,
    end: int = 100,
    topic_id: str = LOG,
    ends: Sequence[tuple[int, int]] = (),
    answered: Sequence[tuple[int, int]] = (),
) -> LogRead:
    seen, said = (tuple(EpochEnd(*one) for one in each) for each in (ends, answered))
    return LogRead(topic_id, 1, epoch, end, "X", records, seen, said)


@dataclass(frozen=True)
class Case:
    """current: offsets, each with its contiguous_from. others: offsets and leader epochs."""

    why: str
    newest: LogRead | None
    earlier: tuple[LogRead, ...]
    current: tuple[tuple[int, int], ...]
    others: tuple[tuple[int, int], ...] = ()
    lost: tuple[str, ...] = ()


CASES = (
    Case("one read alone", read(rec(1), rec(5, 0, 3)), (), ((1, 0), (5, 3))),
    Case("one read that missed nothing", read(rec(1), rec(5)), (), ((1, 0), (5, 0))),
    Case("the same read again", read(rec(1), rec(5)), (read(rec(1), rec(5)),), ((1, 0), (5, 0))),
    Case(
        "what was compacted away stands before a record that both have",
        read(rec(5, 0, 5), epoch=1),
        (read(rec(1), rec(3), rec(5)),),
        ((1, 0), (3, 0), (5, 0)),
    ),
    Case(
        "what stands behind the last record that both have is of another lineage, and the tail is lost",
        read(rec(1), epoch=1, end=2),
        (read(rec(1), rec(3)),),
        ((1, 0),),
        ((3, 0),),
        lost=("'X' at offset 3", "behind offset 1 now"),
    ),
    Case(
        "another record stands at the same offset now",
        read(rec(1), rec(3, 1), epoch=1),
        (read(rec(1), rec(3)),),
        ((1, 0), (3, 0)),
        ((3, 0),),
    ),
    Case(
        "nothing is shared, and the id has gone on: the old records are of no known lineage",
        read(rec(9, 1, 9), epoch=1),
        (read(rec(1), rec(3)),),
        ((9, 9),),
        ((1, 0), (3, 0)),
    ),
    Case(
        "nothing is shared, and a batch of their epoch is left in the log behind them",
        read(rec(9, 1, 9), epoch=1, ends=((0, 4),)),
        (read(rec(1), rec(3)),),
        ((1, 0), (3, 0), (9, 9)),
    ),
    Case(
        "the same, behind the first of them alone",
        read(rec(9, 1, 9), epoch=1, ends=((0, 3),)),
        (read(rec(1), rec(3)),),
        ((1, 0), (9, 9)),
        ((3, 0),),
    ),
    Case(
        "nothing is shared, and the leader answers that their epoch ends behind them",
        read(rec(9, 1, 9), epoch=1, ends=((0, 1),), answered=((0, 4),)),
        (read(rec(1), rec(3)),),
        ((1, 0), (3, 0), (9, 9)),
    ),
    Case(
        "an id that expired: the leader's answer shows that the tail is not lost",
        read(epoch=1, answered=((0, 4),)),
        (read(rec(1), rec(3)),),
        ((1, 0), (3, 0)),
    ),
    Case(
        "an id that expired: the answer does not reach so far",
        read(epoch=1, answered=((0, 3),)),
        (read(rec(1), rec(3)),),
        ((1, 0),),
        ((3, 0),),
        lost=("'X' at offset 3", "behind offset 1 now"),
    ),
    Case(
        "an id that expired, and nothing is known of its leader epoch",
        read(epoch=1),
        (read(rec(1), rec(3)),),
        (),
        ((1, 0), (3, 0)),
        lost=("'X' at offset 3", "nothing of it now"),
    ),
    Case(
        "an id that expired: a batch of the epoch is left",
        read(epoch=1, ends=((0, 4),)),
        (read(rec(1), rec(3)),),
        ((1, 0), (3, 0)),
    ),
    Case(
        "three reads are joined one by one",
        read(rec(9, 2, 9), epoch=2),
        (read(rec(1), rec(3)), read(rec(3, 0, 3), rec(9, 2, 3), epoch=2, end=50)),
        ((1, 0), (3, 0), (9, 3)),
    ),
    Case(
        "contiguity belongs to a read: no read has both, though each is whole by itself",
        read(rec(3, 0, 2), rec(9, 0, 4)),
        (read(rec(1), rec(9, 0, 8)),),
        ((1, 0), (3, 3), (9, 4)),
    ),
    Case(
        "two reads that contradict each other",
        read(rec(3, 0, 0, b"one")),
        (read(rec(3, 0, 0, b"two"), rec(5)), read(rec(5))),
        ((3, 0),),
        ((3, 0), (5, 0)),
        lost=("offset 5",),
    ),
    Case(
        "the same where a later record joins them",
        read(rec(3, 0, 0, b"one"), rec(5)),
        (read(rec(3, 0, 0, b"two"), rec(5)),),
        ((3, 0), (5, 0)),
        ((3, 0),),
        lost=("contradict each other at offset 3",),
    ),
    Case(
        "the topic was made anew",
        read(rec(1)),
        (read(rec(1), topic_id=OLD_LOG),),
        ((1, 0),),
        ((1, 0),),
        lost=("made anew", "'X'"),
    ),
    Case(
        "the first offset of a log",
        read(rec(0), rec(2, 1, 2), epoch=1),
        (read(rec(0), rec(1), rec(2)),),
        ((0, 0), (2, 2)),
        ((1, 0), (2, 0)),
    ),
    Case(
        "the first offset of a log alone is of the current lineage",
        read(rec(9, 1, 9), epoch=1, ends=((0, 1),)),
        (read(rec(0), rec(3)),),
        ((0, 0), (9, 9)),
        ((3, 0),),
    ),
    Case(
        "the first offset of a log is lost",
        read(epoch=1),
        (read(rec(0)),),
        (),
        ((0, 0),),
        lost=("'X' at offset 0", "nothing of it now"),
    ),
    Case(
        "a read without the record at the first offset says nothing of what follows it",
        read(rec(0), rec(5, 0, 3)),
        (read(rec(5, 0, 1)),),
        ((0, 0), (5, 3)),
    ),
    Case(
        "what is whole in another lineage is not whole in this one",
        read(rec(1), rec(3, 1, 3), epoch=1),
        (read(rec(1), rec(3)),),
        ((1, 0), (3, 3)),
        ((3, 0),),
    ),
    Case(
        "two reads of which the earlier one missed less",
        read(rec(1), rec(3, 0, 3)),
        (read(rec(1), rec(3, 0, 2)), read(rec(1), rec(3, 0, 1))),
        ((1, 0), (3, 1)),
    ),
    Case(
        "what two reads show of another lineage counts once",
        read(rec(9, 1, 9), epoch=1),
        (read(rec(1, 0, 1)), read(rec(1), rec(3))),
        ((9, 9),),
        ((1, 0), (3, 0)),
    ),
    Case(
        "the topic got its id after a read that has the same record",
        read(rec(5, 0, 5)),
        (read(rec(1), rec(3), rec(5), topic_id=""),),
        ((1, 0), (3, 0), (5, 0)),
    ),
    Case(
        "the topic got its id, and nothing is shared: an end of their epoch may be that of another topic",
        read(rec(9, 0, 9), ends=((0, 10),), answered=((0, 10),)),
        (read(rec(1), rec(3), topic_id=""),),
        ((9, 9),),
        ((1, 0), (3, 0)),
    ),
    Case(
        "neither read has the topic's id: an end of their epoch may be that of another topic",
        read(rec(9, 0, 9), topic_id="", ends=((0, 10),), answered=((0, 10),)),
        (read(rec(1), rec(3), topic_id=""),),
        ((9, 9),),
        ((1, 0), (3, 0)),
    ),
    Case(
        "an id that expired, before or after the topic got its id: it is not known to be lost",
        read(epoch=1, answered=((0, 4),)),
        (read(rec(1), rec(3), topic_id=""),),
        (),
        ((1, 0), (3, 0)),
    ),
    Case(
        "an id that expired, and the answer does not reach so far",
        read(epoch=1, topic_id="", answered=((0, 3),)),
        (read(rec(1), rec(3), topic_id=""),),
        (),
        ((1, 0), (3, 0)),
        lost=("'X' at offset 3", "nothing of it now"),
    ),
    Case(
        "a tombstone has no time: it may be that of another topic",
        read(replace(rec(3), value=None)),
        (read(rec(1), replace(rec(3), value=None), topic_id=""),),
        ((3, 0),),
        ((1, 0),),
    ),
    Case(
        "the topic got its id, and lacks a record of the read before",
        read(rec(1)),
        (read(rec(1), rec(3), topic_id=""),),
        ((1, 0),),
        ((3, 0),),
        lost=("'X' at offset 3", "behind offset 1 now"),
    ),
    Case(
        "the topic's id is not known any more, and a record is shared",
        read(rec(5, 0, 5), topic_id=""),
        (read(rec(1), rec(3), rec(5)),),
        ((1, 0), (3, 0), (5, 0)),
    ),
    Case(
        "a read without the topic's id that ends with a tombstone missed nothing before it",
        read(rec(1), replace(rec(3), value=None), topic_id=""),
        (),
        ((1, 0), (3, 0)),
    ),
    Case(
        "the id has another partition since partitions were added to the topic",
        read(rec(1)),
        (replace(read(rec(1)), partition=2),),
        ((1, 0),),
        ((1, 0),),
        lost=("made anew", "'X'"),
    ),
    Case("nothing shows what the log is now", None, (read(rec(1), rec(3)),), (), ((1, 0), (3, 0))),
)


def test_each_case_is_joined_as_specified_in_any_order_of_reads() -> None:
    with Cases() as cases:
        for case in CASES:
            for earlier in permutations(case.earlier):
                with cases.case(case.why):
                    found = joined(case.newest, earlier)
                    assert tuple((one.offset, one.contiguous_from) for one in found.current) == case.current
                    assert tuple((one.offset, one.leader_epoch) for one in found.others) == case.others
                    assert (found.lost is not None) is bool(case.lost)
                    assert all(part in str(found.lost) for part in case.lost), found.lost


def test_two_contradicting_records_have_one_order() -> None:
    one, two = read(rec(3, 0, 0, b"one")), read(rec(3, 0, 0, b"two"))
    assert [record.value for record in joined(None, [two, one]).others] == [b"one", b"two"]
    assert joined(None, [two, one]) == joined(None, [one, two])
    gone = read(replace(rec(3), value=None))
    assert [record.value for record in joined(None, [one, gone]).others] == [None, b"one"]
    late, early = read(rec(3, 1)), read(rec(3, 0, 0, b"z"))
    assert [record.leader_epoch for record in joined(None, [late, early]).others] == [0, 1]


def test_a_record_is_acknowledged_if_a_read_at_its_own_leader_epoch_shows_it() -> None:
    old, new = read(rec(1), rec(3)), read(rec(3), rec(9, 1), epoch=1)
    with Cases() as cases:
        for why, newest, earlier, expected in (
            ("one read", old, (), {1, 3}),
            ("a later leader shows the records of an earlier one", new, (), {9}),
            ("the earlier leader has shown them too", new, (old,), {1, 3, 9}),
            ("another record at that offset", read(rec(3, 1), epoch=1), (old,), {3}),
            ("a record that is lost", read(rec(1), epoch=1), (old,), {1}),
            ("another topic", new, (replace(old, topic_id=OLD_LOG),), {9}),
            ("no read of today", None, (old,), set()),
        ):
            with cases.case(why):
                assert joined(newest, earlier).acknowledged == expected


def test_a_record_missing_in_the_newest_read_names_the_sweep_that_stored_it() -> None:
    one = replace(read(rec(1), rec(3), rec(5)), sweep_id="s1", swept_at_ms=0)
    two = replace(one, sweep_id="s2", swept_at_ms=60_000)
    newest = read(rec(5, 0, 5), epoch=1)
    for order in permutations([one, two]):
        assert joined(newest, order).stored_by == dict.fromkeys((1, 3), str(one))
    assert joined(newest, [two]).stored_by[3] == str(two)
    assert joined(read(rec(1), rec(3), rec(5)), [one]).stored_by == {}


def test_a_record_of_another_lineage_names_no_sweep() -> None:
    stored = replace(read(rec(1), rec(3), rec(5)), sweep_id="s1", swept_at_ms=0)
    assert joined(read(rec(3, 0, 3), rec(5, 1, 5), epoch=1), [stored]).stored_by == {1: str(stored)}
    assert joined(read(rec(3, 0, 3), epoch=1), [stored]).stored_by == {1: str(stored)}


def test_the_newest_stored_read_has_the_highest_leader_epoch_and_then_the_highest_end() -> None:
    reads = [read(epoch=1, end=50), read(epoch=2, end=40), read(epoch=2, end=45), read(epoch=0, end=99)]
    for order in permutations(reads):
        assert newest_of(order) == reads[2]
    assert newest_of([*reads, read(topic_id=OLD_LOG)]) is None
    assert newest_of([*reads, replace(reads[0], partition=2)]) is None
    assert newest_of([]) is None
    without = read(epoch=3, end=99, topic_id="")
    assert newest_of([without, *reads]) == newest_of([*reads, without]) == reads[2]
    gone = replace(rec(1), value=None)
    for shared, later in ((rec(1), True), (gone, False)):
        with_id, later_without = read(shared, epoch=1), replace(without, records=(shared, rec(9, 3)))
        for others in ([], [reads[0]]):
            found = newest_of([with_id, later_without, *others])
            assert found == (later_without if later else with_id), "one read with the topic's id suffices"
    assert newest_of([without, replace(without, end_offset=98)]) == without
    assert newest_of([without, reads[0], read(topic_id=OLD_LOG)]) is None


def test_epochs_missing_in_the_newest_read_are_requested() -> None:
    newest = read(rec(5, 1), epoch=1)
    earlier = [read(rec(1), rec(3), rec(5, 1)), read(rec(2, 0), topic_id=OLD_LOG), read(rec(7, 1))]
    assert not_shown(newest, earlier) == {0: 3, 1: 7}
    assert not_shown(newest, [read(rec(4, 1)), read(rec(5, 2)), read(rec(0, 3))]) == {1: 4, 2: 5, 3: 0}
    assert not_shown(newest, [read(rec(5, 1)), read(rec(9, 4), topic_id=OLD_LOG)]) == {}
    assert not_shown(newest, [read(rec(9, 4), topic_id="")]) == {4: 9}


def test_a_read_is_stored_only_if_it_adds_facts() -> None:
    one = read(rec(1), rec(5, 0, 3))
    with Cases() as cases:
        for why, other, expected in (
            ("the same", one, False),
            ("a later end", replace(one, end_offset=200), False),
            ("less", read(rec(1)), False),
            ("nothing", read(), False),
            ("another record", read(rec(1), rec(6)), True),
            ("more that is whole", read(rec(1), rec(5)), True),
            ("less that is whole", read(rec(1, 0, 1), rec(5, 0, 5)), False),
            ("a later leader epoch", replace(one, leader_epoch=1), True),
            ("an end of an epoch", replace(one, epoch_ends=(EpochEnd(0, 9),)), True),
            ("an answer", replace(one, answered_ends=(EpochEnd(0, 9),)), True),
            ("another topic", replace(one, topic_id=OLD_LOG), True),
            ("no topic id", replace(one, topic_id=""), True),
            ("another record at the same offset", read(rec(1), rec(5, 0, 3, b"other")), True),
            ("nothing of another topic", read(topic_id=OLD_LOG), False),
        ):
            with cases.case(why):
                assert adds(other, [one]) is expected
    assert adds(one, []) is True


def test_long_histories_are_stored_with_first_and_last_records_and_a_gap() -> None:
    many = read(*(rec(offset) for offset in range(RECORDS_STORED_MAX + 10)))
    stored = bounded(many)
    assert len(stored.records) == RECORDS_STORED_MAX
    half = RECORDS_STORED_MAX // 2
    assert [one.offset for one in stored.records[half - 1 : half + 1]] == [half - 1, half + 10]
    assert stored.records[half].contiguous_from == stored.records[half].offset
    just = read(*(rec(offset) for offset in range(RECORDS_STORED_MAX)))
    assert bounded(just) == just


# --- random subsets of true facts -------------------------------------------------------------------------------------


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[list[tuple[int, int]]], list[LogRead]]:
    """Successive versions of one log, each with its (offset, leader epoch) in order, and reads of them."""
    lineages: list[list[tuple[int, int]]] = []
    reads: list[LogRead] = []
    log: list[tuple[int, int]] = []
    for epoch in range(draw(st.integers(1, 4))):
        if draw(st.booleans()):
            # An unclean leader election: the tail is lost.
            log = log[: draw(st.integers(0, len(log)))]
        log = [*log, *((len(log) + n, epoch) for n in range(draw(st.integers(0, 4))))]
        lineages.append(log)
        for _ in range(draw(st.integers(0, 2))):
            left = [at for at in range(len(log)) if draw(st.booleans()) or at == len(log) - 1]
            wanted = [at for at in left if draw(st.booleans())]
            records, contiguous_from, expected = [], 0, 0
            for at in left:
                contiguous_from = at if at != expected else contiguous_from
                expected = at + 1
                if at in wanted:
                    records.append(rec(at, log[at][1], contiguous_from))
            ends = {log[at][1]: at + 1 for at in left}
            reads.append(read(*records, epoch=epoch, end=len(log), ends=tuple(ends.items())))
    return lineages, reads


@settings(max_examples=300)
@given(logs(), st.randoms(use_true_random=False))
def test_current_records_of_any_reads_are_in_the_log_of_the_newest_read(
    made: tuple[list[list[tuple[int, int]]], list[LogRead]], random: object
) -> None:
    lineages, reads = made
    shuffled = list(reads)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    kept = [one for one in shuffled if random.random() < 0.7]  # type: ignore[attr-defined]
    newest = newest_of(kept)
    if newest is None:
        return
    found = joined(newest, kept)
    log = dict(lineages[newest.leader_epoch])
    for one in found.current:
        # A read by the newest leader may be older than the last of its appends.
        assert log[one.offset] == one.leader_epoch
    assert [one.offset for one in found.current] == sorted({one.offset for one in found.current})
    assert found == joined(newest, sorted(kept, key=repr))


def test_reads_that_confirm_one_another_one_by_one_end_at_a_limit() -> None:
    """A writer of the tables can store such a chain. It proves nothing then."""
    chain = [read(rec(offset), rec(offset + 1), end=2_000) for offset in range(1_000)]
    newest = read(rec(1_000), epoch=1, end=2_000)
    assert joined(newest, chain[:100]).lost is None
    found = joined(newest, chain)
    assert found.lost is not None and found.lost.code is FailureCode.LOG_LOST_RECORDS
    # In the other order one look at each suffices.
    assert joined(newest, reversed(chain)).lost is None
