"""Whether a transaction with another start offset is another transaction, or continues an incident."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import pytest

from tests.builders import failed, judged, observation, scan
from tests.cases import Cases
from tests.fakes.batches import control, data
from tests.fakes.cluster import FakeCluster
from txnscan.coordinators.agreed_metadata import TOPIC_RECREATED, AgreedMetadata
from txnscan.kafka.protocol.metadata import read_metadata
from txnscan.reads.observation import Observation, ProvenRead
from txnscan.sweeps import identity as identities
from txnscan.sweeps.history import Incident
from txnscan.sweeps.identity import Between, Identity, Seen, continued, identified, identity, replaced, seen_of
from txnscan.sweeps.result import ENDED
from txnscan.verdict.evidence import Reason, Verdict

SAME, ANOTHER, UNKNOWN = Identity.SAME, Identity.ANOTHER, Identity.UNKNOWN
# Producer id 7 at epoch 3: it was open from offset 100 on. The log ended at 103, and its last sequence number was 9.
EARLIER = Seen(7, 3, 100, 9, 103)
LATER = Seen(7, 3, 105)
NOW = observation(start_offset=105, coordinator_epoch=-1)
WHICH = replace(NOW, start_offset=100).transaction_key
INCIDENTS = {WHICH: Incident(1, None, 3, 9, 103)}


@dataclass(frozen=True)
class Case:
    why: str
    expected: Identity
    earlier: Seen = EARLIER
    later: Seen = LATER
    log: Between = Between(101, 103, marker=False, whole=False)  # noqa: RUF009


OF_FACTS = (
    Case("nothing is known but the start offsets", UNKNOWN),
    Case("the log still has the earlier start offset", ANOTHER, log=Between(100, 103, False, False)),
    Case("it has no more than the one after it", UNKNOWN, log=Between(101, 103, False, False)),
    Case("a marker stands between", ANOTHER, log=Between(101, 103, marker=True, whole=False)),
    Case("a marker stands between, where the log starts behind the end", ANOTHER, log=Between(104, 104, True, False)),
    Case("no marker stands between, and nothing is missing", SAME, log=Between(101, 103, False, whole=True)),
    Case("the log starts behind the end that was seen", UNKNOWN, log=Between(104, 104, False, whole=True)),
    Case("the end is not known", UNKNOWN, replace(EARLIER, end_offset=None), log=Between(101, 101, False, whole=True)),
    Case(
        "the record was there while the earlier one was open",
        SAME,
        later=Seen(7, 3, 102),
        log=Between(101, 103, False, False),
    ),
    Case(
        "the end is behind that record by nothing", UNKNOWN, later=Seen(7, 3, 103), log=Between(101, 103, False, False)
    ),
    Case(
        "the first record left is no later than the last that was seen",
        SAME,
        log=Between(105, 105, False, True, (3, 9)),
    ),
    Case("it is later", UNKNOWN, log=Between(105, 105, False, True, (3, 10))),
    Case(
        "sequence numbers of two epochs are not compared",
        UNKNOWN,
        later=Seen(7, 4, 105),
        log=Between(105, 105, False, True, (4, 0)),
    ),
    Case("its first sequence number", SAME, log=Between(105, 105, False, True, (3, 0))),
    Case("a marker before the earlier start", UNKNOWN, log=Between(101, 100, marker=True, whole=False)),
    Case("a record without a sequence number", UNKNOWN, log=Between(105, 105, False, True, (3, -1))),
    Case("open data of two epochs goes on", SAME, later=Seen(7, 4, 105), log=Between(101, 103, False, whole=True)),
    Case(
        "a later epoch, and the log still has the start",
        ANOTHER,
        later=Seen(7, 4, 105),
        log=Between(100, 103, False, False),
    ),
    Case("a lower epoch", UNKNOWN, later=Seen(7, 2, 105), log=Between(100, 103, True, True)),
    Case("an earlier start offset", UNKNOWN, later=Seen(7, 3, 99), log=Between(90, 103, True, True)),
    Case("the same start offset", SAME, later=Seen(7, 3, 100), log=Between(90, 103, False, False)),
    Case("the same start offset at a lower epoch", UNKNOWN, later=Seen(7, 2, 100), log=Between(90, 103, False, False)),
)


def test_another_start_offset_is_another_transaction_only_with_evidence() -> None:
    with Cases() as cases:
        for case in OF_FACTS:
            with cases.case(case.why):
                assert identity(case.earlier, case.later, case.log) is case.expected


@dataclass(frozen=True)
class Read:
    why: str
    expected: Identity
    log_start: int = 105
    log: list[bytes] = field(default_factory=lambda: [data(105, 5)])
    spoil: Callable[[FakeCluster], object] = lambda cluster: None
    earlier: Seen = EARLIER
    later: Seen = LATER


OTHERS = [data(103, 0, 8, 2), data(105, 50)]
OF_READS = (
    Read("the first records were deleted", SAME),
    Read("its last record alone is left", SAME, log=[data(105, 9)]),
    Read(
        "the remaining record was written after the last sweep, and what came before it is deleted",
        UNKNOWN,
        log=[data(105, 10)],
    ),
    Read("the first record is still there", ANOTHER, log_start=100, log=[data(100, 0), data(105, 5)]),
    Read("another producer's records stand between", SAME, log_start=102, log=OTHERS),
    Read("an offset is missing between", UNKNOWN, log_start=102, log=[data(103, 0, 8, 1), data(105, 50)]),
    Read("an offset is missing where the read begins", UNKNOWN, log_start=102, log=[data(104, 0, 8, 1), data(105, 50)]),
    Read("another producer's records were compacted", SAME, log_start=102, log=[data(103, 0, 8, 2), data(105, 50)]),
    Read("more records of it stand between", SAME, log_start=102, log=[data(103, 48, 7, 2), data(105, 50)]),
    Read("a marker of the producer stands between", ANOTHER, log_start=104, log=[control(104, 7, 3), data(105, 5)]),
    Read(
        "a marker of another producer stands between",
        SAME,
        log_start=103,
        log=[data(103, 0, 8, 1), control(104, 8, 3), data(105, 50)],
    ),
    Read("another producer's records stand there", UNKNOWN, log=[data(105, 5, 8)]),
    Read("the record there is of another producer", UNKNOWN, log_start=102, log=[data(103, 0, 8, 2), data(105, 5, 8)]),
    Read("the record there began before it", UNKNOWN, log_start=102, log=[data(103, 48, 7, 5)]),
    Read(
        "an offset is missing before others",
        UNKNOWN,
        log_start=102,
        log=[data(104, 0, 8, 1), data(105, 0, 8, 2), data(107, 50)],
        later=Seen(7, 3, 107),
    ),
    Read("a marker stands there", UNKNOWN, log=[control(105, 7, 3)]),
    Read("the log starts behind it", UNKNOWN, log_start=106, log=[data(106, 5)]),
    Read("the log is empty", UNKNOWN, log=[]),
    Read("the end at the last sighting is behind it", SAME, later=Seen(7, 3, 102), log_start=102, log=[]),
    Read(
        "a marker, and no end is known",
        ANOTHER,
        log_start=101,
        log=[data(101, 0, 8), control(104, 7, 3), data(105, 5)],
        earlier=Seen(7, 3, 100),
    ),
    Read(
        "no marker, and no end is known",
        UNKNOWN,
        log_start=101,
        log=[data(101, 0, 8, 4), data(105, 5)],
        earlier=Seen(7, 3, 100),
    ),
    Read("it cannot be read", UNKNOWN, spoil=lambda cluster: cluster.partitions["p", 0].errors.update({"fetch": 29})),
    Read("the log start is not known", UNKNOWN, spoil=lambda c: c.partitions["p", 0].errors.update({"log start": 3})),
    Read("its leader is not known", UNKNOWN, spoil=lambda cluster: setattr(cluster.partitions["p", 0], "leader", -1)),
)


def shown(read: Read) -> Identity:
    cluster = FakeCluster()
    cluster.lead("p", [1])
    partition = cluster.partitions["p", 0]
    partition.log_start, partition.log, partition.high_watermark = read.log_start, read.log, 200
    read.spoil(cluster)
    agreed = AgreedMetadata((read_metadata(cluster.send, 1, ["p"]),), ())
    return identified(cluster.send, agreed, ("p", 0), read.earlier, read.later)


def test_the_log_between_two_start_offsets_gives_the_evidence() -> None:
    with Cases() as cases:
        for read in OF_READS:
            with cases.case(read.why):
                assert shown(read) is read.expected


def test_a_log_in_pieces_gives_the_same_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identities, "PIECE_BYTES", 1)
    with Cases() as cases:
        for read in OF_READS:
            with cases.case(read.why):
                assert shown(read) is read.expected


def test_too_many_bytes_before_the_transaction_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Read("", SAME, log_start=102, log=OTHERS)
    assert shown(whole) is SAME
    monkeypatch.setattr(identities, "BYTES_MAX", 0)
    assert [shown(read) for read in (OF_READS[0], whole)] == [UNKNOWN, UNKNOWN]


def test_what_is_not_known_has_one_value() -> None:
    assert [one.value for one in Identity] == ["same", "another", "unknown"]
    assert identities.BYTES_MAX == 64 * 1024 * 1024
    assert (LATER.last_sequence, LATER.end_offset, seen_of(NOW).end_offset) == (-1, None, None)
    assert Between(101, 103, marker=False, whole=False).first is None


def test_a_second_read_without_epoch_and_sequence_has_none() -> None:
    o, asked = observation(second_start_offset=102), list[Seen]()

    def ask(o: Observation, earlier: Seen, later: Seen) -> Identity:
        asked.append(later)
        return UNKNOWN

    replaced(replace(o, second=replace(o.second, producer_epoch=None, last_sequence=None)), ask)
    assert asked == [Seen(7, -1, 102, -1, 105)]


# --- incidents --------------------------------------------------------------------------------------------------------


@dataclass
class Asked:
    """Answers every question alike, and records the partitions that are unsure."""

    answer: Identity
    asked: list[Seen] = field(default_factory=list)
    unsure: list[Any] = field(default_factory=list)

    def __call__(self, o: Observation, earlier: Seen) -> Identity:
        self.asked.append(earlier)
        return self.answer


@pytest.mark.parametrize(
    ("changes", "asked"),
    [
        ({}, True),
        ({"producer_epoch": 4}, True),
        ({"start_offset": 99}, True),
        ({"topic_id": ""}, True),
        ({"producer_id": 8}, False),
        ({"partition": 1}, False),
        ({"topic_id": "other"}, False),
        ({"start_offset": 100}, False),
    ],
)
def test_only_a_possibly_equal_incident_is_checked(changes: dict[str, Any], asked: bool) -> None:
    ask, o = Asked(SAME), replace(NOW, **changes)
    (found,) = continued([o], INCIDENTS, ask, ask.unsure.append)
    assert ask.asked == ([EARLIER] if asked else [])
    assert found.transaction_key == (WHICH if asked else o.transaction_key)
    assert found.start_offset == o.start_offset
    assert ask.unsure == []


@pytest.mark.parametrize(("answer", "unsure"), [(ANOTHER, []), (UNKNOWN, [("p", 0)])])
def test_an_incident_that_may_go_on_makes_its_partition_unsure(answer: Identity, unsure: list[Any]) -> None:
    ask = Asked(answer)
    assert continued([NOW], INCIDENTS, ask, ask.unsure.append) == [NOW]
    assert ask.unsure == unsure


@pytest.mark.parametrize(("answer", "unsure"), [(ANOTHER, []), (UNKNOWN, [("p", 0)]), (SAME, [("p", 0)])])
def test_a_transaction_with_an_incident_continues_no_other(answer: Identity, unsure: list[Any]) -> None:
    ask, incidents = Asked(answer), {**INCIDENTS, NOW.transaction_key: Incident(1, None, 3, 9)}
    assert continued([NOW], incidents, ask, ask.unsure.append) == [NOW]
    assert ask.unsure == unsure


def test_each_transaction_is_compared_with_each_incident_of_its_producer() -> None:
    older, other = WHICH._replace(start_offset=90), WHICH._replace(topic="q", start_offset=90)
    elsewhere = replace(NOW, topic="q")
    incidents = {WHICH: Incident(1, None, 3, 9, 103), older: Incident(1), other: Incident(1)}
    ask = Asked(SAME)
    found = continued([NOW, elsewhere], incidents, ask, ask.unsure.append)
    assert [one.incident_offset for one in found] == [100, 90]
    assert [one.incident_topic_id for one in found] == [None, None]
    assert [one.start_offset for one in ask.asked] == [100, 90, 90]
    assert ask.unsure == [("p", 0)], "the second incident may be the same transaction too"


def test_an_incident_without_a_topic_id_goes_on() -> None:
    """Raising `inter.broker.protocol.version` gives topics their ids."""
    which = WHICH._replace(topic_id="", start_offset=105)
    ask = Asked(SAME)
    (found,) = continued([NOW], {which: INCIDENTS[WHICH]}, ask, ask.unsure.append)
    assert found.transaction_key == which
    assert (found.topic_id, found.incident_offset) == (NOW.topic_id, None)


# An incident that was last seen at leader epoch 5 and high watermark 103, and a later proven read of its partition.
POSITIONS = (
    ("as it was", 5, 103, False),
    ("more records", 5, 104, False),
    ("a later leader", 6, 103, False),
    ("an earlier leader epoch", 4, 200, True),
    ("fewer records", 5, 102, True),
    ("fewer records at a later leader epoch", 6, 102, True),
    ("an unknown high watermark", 5, None, False),
)


def test_a_topic_without_an_id_is_another_one_if_its_position_is_lower() -> None:
    """`inter.broker.protocol.version` was raised, and the topic may have been deleted and created again before."""
    with Cases() as cases:
        for (why, epoch, mark, is_other), topic_ids in product(POSITIONS, (("", "t0"), ("t0", ""), ("t0", "t0"))):
            before, now = topic_ids
            with cases.case(f"{why}, the topic ids {topic_ids}"):
                which = WHICH._replace(topic_id=before)
                incidents = {which: replace(INCIDENTS[WHICH], leader_epoch=5)}
                o = replace(NOW, topic_id=now, leader_epoch=epoch, second=replace(NOW.second, high_watermark=mark))
                ask = Asked(SAME)
                (found,) = continued([o], incidents, ask, ask.unsure.append)
                # Between two known ids, another position is a history that went back (`restored.py`).
                is_other = is_other and before != now
                assert (found.transaction_key == which) is not is_other
                swept = scan(proven={WHICH.key: now}, ends={WHICH.key: (epoch, mark)})
                assert swept.over(incidents) == {which: TOPIC_RECREATED if is_other else ENDED}


def test_an_unproven_read_shows_no_other_topic() -> None:
    which = WHICH._replace(topic_id="")
    unread = ProvenRead(0, failure=failed("NOT_LEADER_OR_FOLLOWER"))
    o = replace(NOW, leader_epoch=0, first=unread, second=unread)
    ask = Asked(SAME)
    (found,) = continued([o], {which: replace(INCIDENTS[WHICH], leader_epoch=5)}, ask, ask.unsure.append)
    assert found.transaction_key == which


def test_the_first_read_of_a_sweep_shows_another_topic_if_the_second_failed() -> None:
    which = WHICH._replace(topic_id="")
    second = ProvenRead(0, failure=failed("NOT_LEADER_OR_FOLLOWER"))
    for mark, is_other in ((102, True), (103, False)):
        o = replace(NOW, leader_epoch=5, first=replace(NOW.first, high_watermark=mark), second=second)
        ask = Asked(SAME)
        (found,) = continued([o], {which: replace(INCIDENTS[WHICH], leader_epoch=5)}, ask, ask.unsure.append)
        assert (found.transaction_key == which) is not is_other


# --- the second read of a sweep ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("second", "answer", "is_replaced", "verdict"),
    [
        ({}, None, False, (Verdict.HANGING, Reason.ORPHAN)),
        ({"second_start_offset": 102}, ANOTHER, True, (Verdict.GONE, Reason.ENDED)),
        ({"second_start_offset": 102}, UNKNOWN, False, (Verdict.INDETERMINATE, Reason.PARTITION)),
        ({"second_start_offset": 102}, SAME, False, (Verdict.INDETERMINATE, Reason.PARTITION)),
        ({"second_start_offset": None}, None, False, (Verdict.GONE, Reason.ENDED)),
        (
            {"second_start_offset": 102, "second_failure": failed("x")},
            None,
            False,
            (Verdict.INDETERMINATE, Reason.PARTITION),
        ),
    ],
)
def test_another_start_offset_at_the_second_read_is_an_end_only_with_proof(
    second: dict[str, Any], answer: Identity | None, is_replaced: bool, verdict: tuple[Verdict, Reason]
) -> None:
    asked: list[tuple[Seen, Seen]] = []

    def ask(o: Observation, earlier: Seen, later: Seen) -> Identity:
        asked.append((earlier, later))
        assert answer is not None
        return answer

    found = replaced(observation(**second), ask)
    assert found.is_replaced is is_replaced
    assert asked == ([] if answer is None else [(Seen(7, 3, 100, 4, 105), Seen(7, 3, 102, 4, 105))])
    one = judged(**second, is_replaced=is_replaced).judgement
    assert (one.verdict, one.reason) == verdict
