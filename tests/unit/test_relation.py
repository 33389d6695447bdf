"""The rules of who waits, each with the pairs that it is for."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.cases import Cases
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.waiting import relation as under_test
from txnscan.waiting.impact import BlockedGroup, BlockedReader, BlockReason
from txnscan.waiting.relation import RULES, Blocked, NotBlocked, Pair, kept, relation

LSO = 100


def at(offset: int | None, **changes: Any) -> Pair:
    """A reader of the partition on which the transaction is first."""
    facts: dict[str, Any] = {"is_first": True, "last_stable_offset": LSO, "next_offset": offset} | changes
    return Pair(**facts)


TABLE: tuple[tuple[str, Pair, BlockReason | NotBlocked], ...] = (
    ("a share group that reads uncommitted records", Pair(reads_uncommitted=True), NotBlocked.UNCOMMITTED),
    ("the same at the last stable offset", at(LSO, reads_uncommitted=True), NotBlocked.UNCOMMITTED),
    ("a share group of another level", Pair(reads_uncommitted=False), NotBlocked.UNKNOWN),
    ("offsets inside, and withheld", Pair(has_offsets=True, withheld=True), BlockReason.UNSTABLE),
    ("offsets inside, and the coordinator did not answer", Pair(has_offsets=True), BlockReason.MAYBE_UNSTABLE),
    ("offsets inside, and given out", Pair(has_offsets=True, withheld=False), NotBlocked.STABLE),
    ("withheld, and the transaction was not read", Pair(withheld=True), BlockReason.MAYBE_UNSTABLE),
    ("withheld for another transaction", Pair(has_offsets=False, withheld=True), NotBlocked.STABLE),
    ("no offsets inside, and no answer", Pair(has_offsets=False), NotBlocked.STABLE),
    ("given out, and the transaction was not read", Pair(withheld=False), NotBlocked.STABLE),
    ("only the offsets are known", Pair(last_stable_offset=LSO, next_offset=LSO), NotBlocked.UNKNOWN),
    ("no last stable offset, by default", Pair(is_first=True, next_offset=LSO), NotBlocked.UNKNOWN),
    ("no offset, by default", Pair(is_first=True, last_stable_offset=LSO, delivers=False), NotBlocked.UNKNOWN),
    ("no last stable offset", at(LSO, last_stable_offset=None), NotBlocked.UNKNOWN),
    ("not known whether it is first", at(LSO, is_first=None), NotBlocked.UNKNOWN),
    ("another starts before it", at(LSO, is_first=False), NotBlocked.NOT_FIRST),
    ("no offset of the reader", at(None, delivers=False), NotBlocked.UNKNOWN),
    ("beyond", at(LSO + 1), NotBlocked.BEYOND),
    ("beyond, with nothing to read", at(LSO + 1, delivers=False), NotBlocked.BEYOND),
    ("at the last stable offset", at(LSO), BlockReason.AT_LSO),
    ("at the last stable offset, unread", at(LSO, delivers=None), BlockReason.AT_LSO),
    ("at offset 0", at(0, last_stable_offset=0), BlockReason.AT_LSO),
    ("one before it, with a record", at(LSO - 1, delivers=True), NotBlocked.READS),
    ("one before it, without a record", at(LSO - 1, delivers=False), BlockReason.AT_LSO),
    ("one before it, unread", at(LSO - 1), NotBlocked.UNKNOWN),
)


def test_each_rule_gives_its_answer() -> None:
    with Cases() as cases:
        for name, pair, answer in TABLE:
            with cases.case(name):
                assert relation(pair) is answer


def test_no_rule_is_needless() -> None:
    for number in range(len(RULES)):
        others = [*RULES[:number], *RULES[number + 1 :]]
        changed = [pair for _, pair, answer in TABLE if next((a for f, a in others if f(pair)), None) is not answer]
        assert changed, f"rule {number}"


def test_a_reader_waits_only_by_facts_that_show_it() -> None:
    """Over all combinations of known and unknown facts."""
    flags = (None, False, True)
    for has_offsets, withheld, is_first, delivers, uncommitted in product(flags, repeat=5):
        for offset in (None, LSO - 1, LSO, LSO + 1):
            pair = Pair(has_offsets, withheld, is_first, LSO, offset, delivers, uncommitted)
            answer = relation(pair)
            if answer is BlockReason.AT_LSO:
                assert is_first and offset is not None and (offset == LSO or (offset < LSO and delivers is False))
            if answer is BlockReason.UNSTABLE:
                assert has_offsets and withheld
            if isinstance(answer, BlockReason):
                assert not uncommitted


def group(name: str, lag: int | None) -> BlockedGroup:
    return BlockedGroup(name, BlockReason.AT_LSO, lag=lag)


def query(path: str, lag: int) -> BlockedReader:
    return BlockedReader("id-1", path, BlockReason.AT_LSO, 4, True, 1_000, 100, lag)


def test_readers_with_the_greatest_lag_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "KEPT_MAX", 2)
    groups = kept([group("b", 5), group("c", None), group("a", 5), group("d", 9)], asked=7)
    assert ([one.group for one in groups.readers], groups.count, groups.asked) == (["d", "a"], 4, 7)
    assert [one.path for one in kept([query("/b", 1), query("/a", 1), query("/c", 0)]).readers] == ["/a", "/b"]
    assert [one.lag for one in kept([group("b", 0), group("a", None), group("c", 1)]).readers] == [1, None]
    assert kept([group("a", 5)]).asked == 0


def test_the_number_is_known_only_if_no_reader_may_be_missing() -> None:
    failed = Failure("it is away", FailureCode.UNREACHABLE)
    assert kept([group("a", 5)]).known_count == 1
    missing = kept([group("a", 5)], [failed, failed])
    assert (missing.known_count, missing.count, missing.unknown) == (None, 1, (failed,))
    nobody: Blocked[BlockedGroup] = Blocked()
    assert (nobody.readers, nobody.known_count, nobody.asked) == ((), 0, 0)
