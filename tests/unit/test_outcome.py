"""The specification of outcomes: each case has the remaining log, the other evidence, and the expected outcome.

By default producer id 7 is open on p-0 at epoch 3, its first batch is of that epoch, the partition never had a marker
of it, and its id X is now at epoch 9. The log has records of X alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import NOW_MS, failed, judged, observation, view
from tests.cases import Cases
from tests.fakes.records import (
    ABORT,
    BEFORE,
    COMMIT,
    V1,
    V2,
    Records,
    complete,
    empty,
    led,
    numbered,
    ongoing,
    prepare,
    record,
    told,
    v1,
    v2,
)
from txnscan.kafka.answers import State
from txnscan.kafka.topology import Key
from txnscan.reads.observation import Observation
from txnscan.txnlog.decode import tombstone
from txnscan.txnlog.elections import Election, election_of
from txnscan.txnlog.facts import LoggedTransaction, ProducerFacts, SeenCommit, SeenMarker
from txnscan.txnlog.transitions import first_doubt, follows, whole
from txnscan.verdict.evidence import KnownOutcome, Outcome, OutcomeEvidence, PeerPartitions, Unproven
from txnscan.verdict.outcome import decisions, outcome, with_outcome

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

P, Q = ("p", 0), ("q", 0)
COMMITTED, MAYBE, NOT, UNKNOWN = Outcome.COMMITTED, Outcome.MAYBE_COMMITTED, Outcome.NOT_COMMITTED, Outcome.UNKNOWN
MIXED_DATA = Outcome.MIXED


def seen_at(*epochs: int) -> dict[str, Any]:
    """A sweep saw the id in CompleteCommit at each of these epochs."""
    return {"seen": ProducerFacts(commits=tuple(SeenCommit("X", 7, epoch) for epoch in epochs))}


def seen_before(*epochs: int) -> dict[str, Any]:
    """The same, in an earlier history of the cluster."""
    return {"seen": ProducerFacts(commits_before=tuple(SeenCommit("X", 7, epoch) for epoch in epochs))}


def marker_on(*topics: str, epoch: int) -> dict[str, Any]:
    """An apply saw a COMMIT marker on each."""
    return {"seen": ProducerFacts(markers=tuple(SeenMarker(topic, 0, 9, 7, epoch) for topic in topics))}


@dataclass(frozen=True)
class Case:
    why: str
    logged: Sequence[LoggedTransaction | None]
    expected: Outcome
    o: dict[str, Any] = field(default_factory=dict)
    changes: dict[str, Any] = field(default_factory=dict)


GAP = None
LATER = ("a field of tag 3",)
NO_MORE = replace(tombstone(0, 0, "X"), leader_epoch=0, acknowledged=True, epochs_rise=True)
MARKED = {"coordinator_epoch": 0}
OPEN = observation(coordinator_epoch=-1)
FROM_3: dict[str, Any] = {"first_epoch": 3}
GONE: dict[str, Any] = {"first_epoch": None, "batch_failure": failed("it is deleted")}
TO_4, TO_5 = {"producer_epoch": 4}, {"producer_epoch": 5}
COMMITTED_V1, COMMITTED_V2 = [*BEFORE, *v1(COMMIT, P), empty(4)], [*BEFORE, *v2(COMMIT, P)]
ABORTED_V2 = [*BEFORE, *v2(ABORT, P)]
SKIPPED = [*BEFORE, *v2(COMMIT, P), *v2(COMMIT, Q, epoch=4), *v2(COMMIT, P, epoch=5)]
OTHER_COMMIT = prepare(COMMIT, 4, P, client=V2, start_time_ms=NOW_MS - 1)
# The PrepareCommit of the transaction of epoch 3 itself, in another lineage.
SAME_COMMIT = prepare(COMMIT, 4, P, client=V2)
FENCED_V1 = [*BEFORE, *v1(ABORT, P, raised=1), empty(5)]
# 64 epochs from 3 on, and one more, without any commit.
EPOCHS_64 = [*BEFORE, *map(empty, range(4, 68))]
EPOCHS_65 = [*EPOCHS_64, empty(68)]

CASES = (
    # transactions v2: an epoch has one transaction
    Case(
        "v2: the one transaction of its epoch was committed with this partition", [*BEFORE, *v2(COMMIT, P)], COMMITTED
    ),
    Case(
        "v2: a marker of an earlier transaction says nothing of this one",
        [*v2(COMMIT, P, epoch=2), *v2(COMMIT, P)],
        COMMITTED,
        MARKED,
    ),
    Case("v2: a commit without this partition", [*BEFORE, *v2(COMMIT, Q)], NOT),
    Case("v2: another partition of the topic is another", [*BEFORE, *v2(COMMIT, ("p", 1))], NOT),
    Case("v2: an abort", [*BEFORE, *v2(ABORT, P)], NOT),
    Case(
        "v2: the commit of the next epoch is of the next transaction",
        [*BEFORE, *v2(ABORT, P), *v2(COMMIT, P, epoch=4)],
        NOT,
    ),
    Case(
        "v2: the commit of the epoch before stands at this one and is not of it",
        [*v2(COMMIT, P, epoch=2), *v2(ABORT, P)],
        NOT,
    ),
    Case(
        "v2: that commit alone, after which a new instance takes the next epoch",
        [*v2(COMMIT, P, epoch=2), empty(4)],
        NOT,
    ),
    Case("v2: that commit alone, after which anything may still come", v2(COMMIT, P, epoch=2), UNKNOWN),
    Case(
        "v2: a commit that is not complete may have timed out, and an abort may follow",
        [*BEFORE, *v2(COMMIT, P)[:2]],
        MAYBE,
    ),
    Case("v2: an abort that is not complete neither", [*BEFORE, *v2(ABORT, P)[:2]], UNKNOWN),
    Case(
        "v2: a transaction grows partition by partition, and counts as it stood at its end",
        [*BEFORE, ongoing(3, Q), ongoing(3, Q, P), *v2(COMMIT, Q, P)[1:]],
        COMMITTED,
    ),
    Case(
        "v2: an abort before anything was added is not of what the next transaction wrote",
        [empty(2), prepare(ABORT, 3, client=V2), complete(ABORT, 3, client=V2), *v2(COMMIT, P)],
        COMMITTED,
    ),
    # transactions v1: an epoch has many
    Case(
        "v1: the one commit of its epoch, which is over, and the partition never had a marker",
        [*BEFORE, *v1(COMMIT, P), empty(4)],
        COMMITTED,
    ),
    Case("v1: the same while another transaction may still have that epoch", [*BEFORE, *v1(COMMIT, P)], MAYBE),
    Case("v1: the same with a marker, which may be that of this commit", [*BEFORE, *v1(COMMIT, P)], MAYBE, MARKED),
    Case("v1: a commit without this partition", [*BEFORE, *v1(COMMIT, Q), empty(4)], NOT),
    Case("v1: an abort", [*BEFORE, *v1(ABORT, P), empty(4)], NOT),
    Case("v1: the same, after which anything may come", [*BEFORE, *v1(ABORT, P)], UNKNOWN),
    Case("v1: an abort, and a marker before", [*BEFORE, *v1(ABORT, P), empty(4)], NOT, MARKED),
    Case("v1: nothing was ever decided at its epoch", [*BEFORE, empty(4)], NOT),
    Case(
        "v1: a commit and then an abort, both with this partition, which missed both",
        [*BEFORE, *v1(COMMIT, P), *v1(ABORT, P)],
        MAYBE,
    ),
    Case("v1: the other way round", [*BEFORE, *v1(ABORT, P), *v1(COMMIT, P)], MAYBE),
    Case(
        "v1: a commit with it, and a fenced abort without it, while it had no marker",
        [*BEFORE, *v1(COMMIT, P), *v1(ABORT, Q, raised=1)],
        COMMITTED,
    ),
    Case("v1: the same after a marker", [*BEFORE, *v1(COMMIT, P), *v1(ABORT, Q, raised=1)], MAYBE, MARKED),
    Case("v1: a commit with it and a fenced abort with it", [*BEFORE, *v1(COMMIT, P), *v1(ABORT, P, raised=1)], MAYBE),
    Case(
        "v1: a fenced abort alone, by brokers that raise the epoch twice",
        [*BEFORE, *v1(ABORT, P, raised=2, client=V2)],
        NOT,
    ),
    Case(
        "v1: a commit at another epoch is not of it",
        [*v1(COMMIT, P, epoch=2), empty(3), *v1(ABORT, P), empty(4), *v1(COMMIT, P, epoch=4)],
        NOT,
    ),
    Case(
        "an upgrade in the midst of an epoch: its last transaction is of v2 and not its only one",
        [*BEFORE, *v1(ABORT, P), *v2(COMMIT, P)],
        MAYBE,
        MARKED,
    ),
    Case(
        "an upgrade after an abort whose marker was lost: what v2 commits may stand here without being added",
        [*BEFORE, *v1(ABORT, P), *v2(COMMIT, Q)],
        MAYBE,
    ),
    Case("the same with a second abort", [*BEFORE, *v1(ABORT, P), *v2(ABORT, Q)], NOT),
    Case(
        "an upgrade after a commit whose marker was lost: what v2 aborts may stand here without being added",
        [*BEFORE, *v1(COMMIT, P), *v2(ABORT, Q)],
        MAYBE,
    ),
    Case(
        "the same where all that v2 wrote stands here: nothing was added",
        [*BEFORE, *v1(COMMIT, P), prepare(ABORT, 4, client=V2), complete(ABORT, 4, V2)],
        MAYBE,
    ),
    Case(
        "a downgrade: what v2 committed at the epoch before is of that epoch",
        [*v2(COMMIT, Q, epoch=2), *v1(ABORT, P), empty(4)],
        NOT,
    ),
    # the remaining log
    Case("a suffix that begins with a commit at this epoch", v1(COMMIT, P)[1:], MAYBE),
    Case("a suffix that begins with the transaction itself", v2(COMMIT, P), MAYBE),
    Case("a suffix that begins with its decision", v2(COMMIT, P)[1:], MAYBE),
    Case("a suffix without a commit", v1(ABORT, P), UNKNOWN),
    Case("a suffix that begins with the completion at this epoch", v1(ABORT, P)[2:], UNKNOWN),
    Case("a suffix that begins with an Empty that may be written again", [empty(3), *v1(ABORT, P)], UNKNOWN),
    Case("the same by a v2 client", [empty(3, client=V2), *v2(ABORT, P)], UNKNOWN),
    Case(
        "a new producer id, whose first Empty is the first",
        [empty(0), *v1(ABORT, P, epoch=0), empty(1)],
        NOT,
        {"producer_epoch": 0},
    ),
    Case(
        "v1: a commit, of which the partition may have forgotten the marker",
        [*BEFORE, *v1(COMMIT, P)],
        MAYBE,
        changes={"first_sequence": 5},
    ),
    Case("a suffix that begins after its epoch", [empty(4), *v1(ABORT, P, epoch=4)], UNKNOWN),
    Case(
        "a suffix with a later commit, whose marker would have ended what is open if the partition had got it",
        [empty(4), *v1(COMMIT, P, epoch=4)],
        MAYBE,
    ),
    Case("a later commit without this partition", [empty(4), *v1(COMMIT, Q, epoch=4)], UNKNOWN),
    Case("a later commit of another producer id", [empty(4), *v1(COMMIT, P, epoch=4, producer_id=8)], UNKNOWN),
    Case(
        "a suffix that begins with a completion by a v2 client at this epoch: it began it",
        [complete(COMMIT, 3, V2), *v2(ABORT, P)],
        NOT,
    ),
    Case(
        "with the completion of an abort by a v2 client at this epoch: that began it too",
        [complete(ABORT, 3, V2), *v2(COMMIT, P)],
        COMMITTED,
    ),
    Case(
        "with a completed commit by a v1 client at this epoch, which may have had the partition",
        [complete(COMMIT, 3), *v2(ABORT, P)],
        MAYBE,
    ),
    Case(
        "with one by a client that tells version 1, which raises no epoch either",
        [complete(COMMIT, 3, client=1), *v2(ABORT, P)],
        MAYBE,
    ),
    Case("the same with a commit after it", [complete(ABORT, 3), *v1(COMMIT, P)], MAYBE),
    Case(
        "with a decision by a v2 client at this epoch: it is of the epoch before",
        [*v2(COMMIT, P, epoch=2)[1:], *v2(COMMIT, P)],
        COMMITTED,
    ),
    Case(
        "with an abort by a v2 client at this epoch: that too is of an epoch before",
        [*v2(ABORT, P, epoch=2)[1:], *v2(COMMIT, P)],
        COMMITTED,
    ),
    Case(
        "with an abort at this epoch by a v1 client, which may be of this epoch or a fence of the one before",
        [*v1(ABORT, P)[1:], *v1(COMMIT, P)],
        MAYBE,
    ),
    Case(
        "with any record of an earlier epoch, if nothing is missing after it",
        [complete(COMMIT, 2), empty(3), *v1(COMMIT, P), empty(4)],
        COMMITTED,
    ),
    Case("with one that the next does not follow from", [complete(COMMIT, 2), *v1(COMMIT, P)], MAYBE),
    # producer ids that rotate
    Case(
        "the last epoch of a producer id, whose end already holds the next one",
        [
            empty(32765),
            empty(32766),
            ongoing(32766, P),
            prepare(COMMIT, 32767, P, client=V2),
            complete(COMMIT, 0, V2, producer_id=8),
        ],
        COMMITTED,
        {"producer_epoch": 32766},
        {"owner_epoch": None},
    ),
    Case(
        "the first epoch of a producer id, after the last of the one before",
        [
            prepare(COMMIT, 32767, P, client=V2, producer_id=6),
            complete(COMMIT, 0, V2),
            *v2(ABORT, P, epoch=0),
        ],
        NOT,
        {"producer_epoch": 0},
    ),
    Case(
        "the completion that gave it the producer id is the first that is left",
        [complete(COMMIT, 0, V2), *v2(COMMIT, P, epoch=0)],
        COMMITTED,
        {"producer_epoch": 0},
    ),
    Case(
        "a suffix that begins after its producer id",
        [complete(COMMIT, 0, V2, producer_id=8), *v2(COMMIT, P, epoch=0, producer_id=8)],
        UNKNOWN,
        {},
        {"owner_epoch": None},
    ),
    Case(
        "an earlier producer id at the same epoch is not this one",
        [*v1(COMMIT, P, producer_id=6, epoch=32766), empty(0), *v1(ABORT, P, epoch=0), empty(1)],
        NOT,
        {"producer_epoch": 0},
    ),
    Case(
        "a producer id that changes though the one before was not used up: what came between is missing",
        [*v1(COMMIT, P, producer_id=6), empty(0), *v1(ABORT, P, epoch=0), empty(1)],
        NOT,
        {"producer_epoch": 0},
    ),
    Case("the same at a later epoch", [*v1(COMMIT, P, producer_id=6), empty(3), *v1(ABORT, P), empty(4)], UNKNOWN),
    Case(
        "a later one neither",
        [
            *(empty(32765), empty(32766), *v1(ABORT, P, epoch=32766)),
            *(empty(0, producer_id=8), *v1(COMMIT, P, epoch=0, producer_id=8)),
        ],
        NOT,
        {"producer_epoch": 32766},
        {"owner_epoch": None},
    ),
    Case(
        "a later one though this one was not used up: what came between is missing",
        [*BEFORE, *v1(ABORT, P), empty(0, producer_id=8)],
        UNKNOWN,
        {},
        {"owner_epoch": None},
    ),
    Case(
        "leader epochs need not rise at a restart",
        [replace(one, epochs_rise=False) for one in [*BEFORE, *v1(ABORT, P), empty(4)]],
        UNKNOWN,
    ),
    Case("its id expired at the end of the epoch", [*BEFORE, *v1(ABORT, P), NO_MORE], NOT, {}, {"owner_epoch": None}),
    Case(
        "the same, and somebody has the name anew",
        [*BEFORE, *v1(ABORT, P), NO_MORE, empty(0, producer_id=8)],
        NOT,
        {},
        {"owner_epoch": None},
    ),
    Case(
        "a tombstone that was not acknowledged, and the id goes on",
        [*BEFORE, *v1(ABORT, P), NO_MORE, *v1(COMMIT, P)],
        MAYBE,
    ),
    # duplicate records
    Case(
        "a decision that was written twice is one",
        [*BEFORE, ongoing(3, P), *[prepare(COMMIT, 4, P, client=V2)] * 2, complete(COMMIT, 4, V2)],
        COMMITTED,
    ),
    Case(
        "so it is under v1",
        [*BEFORE, ongoing(3, P), *[prepare(COMMIT, 3, P)] * 2, complete(COMMIT, 3), empty(4)],
        COMMITTED,
    ),
    Case(
        "a commit that was not acknowledged, and an abort after it",
        [*BEFORE, ongoing(3, P), prepare(COMMIT, 4, P, client=V2), prepare(ABORT, 4, P), complete(ABORT, 4)],
        MAYBE,
    ),
    Case(
        "the same under v1",
        [*BEFORE, ongoing(3, P), prepare(COMMIT, 3, P), prepare(ABORT, 4, P), complete(ABORT, 4)],
        MAYBE,
    ),
    Case(
        "an abort that was not acknowledged, and a commit after it",
        [*BEFORE, ongoing(3, P), prepare(ABORT, 4, P, client=V2), prepare(COMMIT, 4, P, client=V2)],
        MAYBE,
    ),
    Case("a completion that was written twice", [*BEFORE, *v1(ABORT, P), complete(ABORT, 3), empty(4)], NOT),
    Case(
        "a tombstone that was written twice",
        [*BEFORE, *v1(ABORT, P), NO_MORE, NO_MORE, empty(0, producer_id=8)],
        NOT,
        {},
        {"owner_epoch": None},
    ),
    # an end without a beginning, which brokers never write
    Case("at its epoch", [*BEFORE, *v1(COMMIT, P), prepare(ABORT, 3, P), complete(ABORT, 3)], MAYBE),
    Case("a fence that nothing began", [*BEFORE, *v1(COMMIT, P), prepare(ABORT, 4, P), complete(ABORT, 4)], MAYBE),
    Case(
        "v2: a commit that nothing began may have written where none is added",
        [*BEFORE, prepare(COMMIT, 4, client=V2), complete(COMMIT, 4, V2)],
        MAYBE,
    ),
    # gaps: a replica that was offline while its leader compacted
    Case(
        "v2: the decision is missing, and the completion tells that there was one",
        [*BEFORE, ongoing(3, P, client=V2), GAP, complete(COMMIT, 4, V2)],
        MAYBE,
    ),
    Case("v2: the same with an abort", [*BEFORE, ongoing(3, P, client=V2), GAP, complete(ABORT, 4, V2)], UNKNOWN),
    Case(
        "v2: the same of the transaction after it",
        [*v2(ABORT, P, epoch=2), ongoing(3, P, client=V2), GAP, complete(COMMIT, 5, V2)],
        UNKNOWN,
    ),
    Case("v1: the decision is missing", [*BEFORE, ongoing(3, P), GAP, complete(COMMIT, 3), empty(4)], MAYBE),
    Case(
        "the decision of the last epoch of a producer id is missing",
        [empty(32766), ongoing(32766, P, client=V2), GAP, complete(COMMIT, 0, V2, producer_id=8)],
        MAYBE,
        {"producer_epoch": 32766},
        {"owner_epoch": None},
    ),
    Case(
        "v1: the decision of a transaction that had another partition is missing",
        [*BEFORE, ongoing(3, Q), GAP, complete(COMMIT, 3), empty(4)],
        MAYBE,
    ),
    Case(
        "v1: the same, and that of the next one, which had this partition",
        [*BEFORE, ongoing(3, Q), GAP, complete(COMMIT, 3), ongoing(3, P), GAP, complete(COMMIT, 3), empty(4)],
        MAYBE,
    ),
    Case(
        "v1: a commit of another partition, and then a commit whose decision is missing",
        [*BEFORE, *v1(COMMIT, Q), ongoing(3, P), GAP, complete(COMMIT, 3), empty(4)],
        MAYBE,
    ),
    Case(
        "v1: the log begins with a commit of the epoch before",
        [complete(COMMIT, 2), empty(3), *v2(ABORT, P)],
        NOT,
    ),
    Case(
        "the decision of the last epoch of an earlier producer id is missing",
        [
            *(ongoing(32766, P, client=V2, producer_id=5), GAP, complete(COMMIT, 0, V2, producer_id=6)),
            *(GAP, empty(0), *v1(ABORT, P, epoch=0), empty(1)),
        ],
        NOT,
        {"producer_epoch": 0},
    ),
    Case(
        "a commit of the next producer id at a later epoch than its first",
        [*BEFORE, ongoing(3, P), GAP, complete(COMMIT, 1, V2, producer_id=8)],
        UNKNOWN,
        {},
        {"owner_epoch": None},
    ),
    Case(
        "a commit of the next producer id at its first epoch that tells no version, which may have been lowered",
        [*BEFORE, ongoing(3, P), GAP, complete(COMMIT, 0, producer_id=8)],
        MAYBE,
        {},
        {"owner_epoch": None},
    ),
    Case("v2: the whole transaction is missing", [*BEFORE, GAP, *v2(COMMIT, Q, epoch=4)], UNKNOWN),
    Case(
        "v2: its end is missing, and the next transaction shows it by its epoch",
        [complete(ABORT, 3, V2), ongoing(3, P, client=V2), GAP, *v2(COMMIT, Q, epoch=4)],
        UNKNOWN,
    ),
    Case(
        "v2: a hole in which nothing fits that would not show",
        [complete(ABORT, 3, V2), GAP, ongoing(3, Q, client=V2), GAP, *v2(COMMIT, Q, P)[1:]],
        COMMITTED,
    ),
    Case(
        "v2: the same with an abort",
        [complete(ABORT, 3, V2), GAP, ongoing(3, P, client=V2), GAP, *v2(ABORT, P)[1:]],
        NOT,
    ),
    Case(
        "v2: a hole in which a transaction of v1 fits that had the partition, since that of v2 has it not",
        [complete(ABORT, 3, V2), GAP, *v2(ABORT, Q)],
        UNKNOWN,
    ),
    Case("v2: the same, and that of v2 committed", [complete(ABORT, 3, V2), GAP, *v2(COMMIT, Q)], MAYBE),
    Case(
        "v2: the same before an abort of nothing",
        [complete(COMMIT, 3, V2), GAP, prepare(ABORT, 4, client=V2), complete(ABORT, 4, V2)],
        UNKNOWN,
    ),
    Case(
        "v2: a hole between a decision and its completion, which names it",
        [complete(ABORT, 3, V2), *v2(COMMIT, P)[:2], GAP, complete(COMMIT, 4, V2)],
        COMMITTED,
    ),
    Case(
        "v2: the same without this partition, which a second decision may have had",
        [complete(ABORT, 3, V2), *v2(COMMIT, Q)[:2], GAP, complete(COMMIT, 4, V2)],
        MAYBE,
    ),
    Case(
        "v2: a hole between an abort and the completion of a commit",
        [complete(ABORT, 3, V2), *v2(ABORT, P)[:2], GAP, complete(COMMIT, 4, V2)],
        MAYBE,
    ),
    Case("v2: a hole after a new instance, in which transactions of v1 fit", [*BEFORE, GAP, *v2(ABORT, P)], UNKNOWN),
    Case(
        "v2: a new epoch that was not acknowledged, and a hole after it",
        [complete(ABORT, 3, V2), empty(4), GAP, *v2(COMMIT, Q, epoch=4)],
        UNKNOWN,
    ),
    Case(
        "the same, written twice", [complete(ABORT, 3, V2), empty(4), empty(4), GAP, *v2(COMMIT, Q, epoch=4)], UNKNOWN
    ),
    Case(
        "the same, and the transaction that it stands before is there",
        [complete(ABORT, 3, V2), empty(4), *v2(COMMIT, P), *v2(COMMIT, Q, epoch=4)],
        MAYBE,
    ),
    Case(
        "v2: an abort by brokers that raise the epoch twice, or another transaction in the hole before it",
        [complete(ABORT, 3, V2), ongoing(3, P, client=V2), GAP, *v1(ABORT, P, raised=2, client=V2)[1:]],
        UNKNOWN,
    ),
    Case("v1: a hole in which a commit fits", [*BEFORE, *v1(ABORT, P), GAP, empty(4)], UNKNOWN),
    Case("v1: a hole before the epoch in question", [empty(1), GAP, *BEFORE, *v1(ABORT, P), empty(4)], NOT),
    Case(
        "v1: a hole after it, where the new epoch is that of the last record",
        [*BEFORE, *v1(ABORT, P), empty(4), GAP],
        NOT,
    ),
    Case(
        "v1: a new epoch that was not acknowledged, and a hole after it",
        [*BEFORE, *v1(ABORT, P), empty(4), GAP, empty(5)],
        UNKNOWN,
    ),
    Case(
        "v1: a fence whose completion may not have been acknowledged, and a hole after it",
        [*BEFORE, *v1(ABORT, P, raised=1), GAP, empty(5)],
        UNKNOWN,
    ),
    Case(
        "v2: a new epoch that was not acknowledged, by a client that tells its version",
        [complete(ABORT, 3, V2), empty(4, client=V2), GAP, *v2(COMMIT, Q, epoch=4)],
        UNKNOWN,
    ),
    Case(
        "v2: a hole after the epoch is over, where what is past it was built on",
        [complete(ABORT, 3, V2), empty(4), ongoing(4, P), GAP, complete(COMMIT, 9, V2)],
        NOT,
    ),
    Case(
        "the end of an earlier producer id, and then this one at a later epoch",
        [complete(COMMIT, 5, V2, producer_id=6), *v2(COMMIT, P)],
        MAYBE,
    ),
    Case(
        "the completion that gave it the producer id tells no version, and its epoch may go on",
        [prepare(COMMIT, 32767, Q, client=V2, producer_id=6), complete(COMMIT, 0), ongoing(0, Q)],
        UNKNOWN,
        {"producer_epoch": 0},
    ),
    Case("a commit behind a hole may be of this data", [*BEFORE, GAP, *v1(COMMIT, P), empty(4)], MAYBE),
    Case(
        "a commit of the next epoch whose Ongoing record is missing may be of it, where epochs are raised by two",
        [*BEFORE, ongoing(3, P), GAP, prepare(COMMIT, 5, P, client=V2), complete(COMMIT, 5, V2)],
        MAYBE,
    ),
    Case(
        "the commit of the epoch before is not a later one",
        [*v2(COMMIT, P, epoch=2), ongoing(3, P), GAP, complete(ABORT, 5, V2)],
        UNKNOWN,
        MARKED,
    ),
    Case(
        "the completion of a later commit says nothing by itself",
        [*BEFORE, ongoing(3, P), GAP, complete(COMMIT, 5, V2)],
        UNKNOWN,
    ),
    # records of a later Kafka
    Case(
        "a record of the chain that is not understood",
        [*BEFORE, ongoing(3, P, unknown_fields=LATER), *v2(ABORT, P)[1:]],
        UNKNOWN,
    ),
    Case("the same in the commit that names the partition", [*BEFORE, *v2(COMMIT, P, unknown_fields=LATER)], MAYBE),
    Case(
        "a commit at a later epoch, after it",
        [*BEFORE, ongoing(3, P, unknown_fields=LATER), prepare(COMMIT, 5, P, client=V2), complete(COMMIT, 5, V2)],
        MAYBE,
    ),
    Case(
        "the completion of a commit at a later epoch, after it",
        [*BEFORE, ongoing(3, P, unknown_fields=LATER), GAP, complete(COMMIT, 5, V2)],
        MAYBE,
    ),
    Case(
        "the completion of an abort at a later epoch, after it",
        [*BEFORE, ongoing(3, P, unknown_fields=LATER), GAP, complete(ABORT, 5, V2)],
        UNKNOWN,
    ),
    Case(
        "a record that is not understood, after all that counts",
        [*BEFORE, *v2(ABORT, P), *v2(COMMIT, P, epoch=4, unknown_fields=LATER)],
        NOT,
    ),
    # the current owner of the producer id
    Case(
        "its owner is still at this epoch, and may commit it yet",
        [*BEFORE, *v1(ABORT, P)],
        UNKNOWN,
        {},
        {"owner_epoch": 3},
    ),
    Case("the same before anything was decided", [*BEFORE, ongoing(3, Q)], UNKNOWN, {}, {"owner_epoch": 3}),
    Case("v2: a commit with it is one already", [*BEFORE, *v2(COMMIT, P)], COMMITTED, {}, {"owner_epoch": 4}),
    Case("v1: a commit with it need not be the only one", [*BEFORE, *v1(COMMIT, P)], MAYBE, {}, {"owner_epoch": 3}),
    Case("an orphan whose id has expired", [*BEFORE, *v2(ABORT, P), NO_MORE], NOT, {}, {"owner_epoch": None}),
    # other missing evidence
    Case("the log holds nothing of its producer id", [], UNKNOWN, {}, {"owner_epoch": None}),
    Case("the same, whose owner is still at this epoch", [], UNKNOWN, {}, {"owner_epoch": 3}),
    Case("the open transaction began at an epoch before", [*BEFORE, *v2(ABORT, P)], UNKNOWN, {}, {"first_epoch": 2}),
    Case("the same with a commit", [*BEFORE, *v2(COMMIT, P)], MAYBE, {}, {"first_epoch": 2}),
    Case(
        "its first batch could not be read",
        [*BEFORE, *v2(ABORT, P)],
        UNKNOWN,
        {},
        GONE,
    ),
    Case(
        "the same with a commit",
        [*BEFORE, *v2(COMMIT, P)],
        MAYBE,
        {},
        GONE,
    ),
    Case(
        "some of the log could not be read", [*BEFORE, *v2(ABORT, P)], UNKNOWN, {}, {"log_failure": failed("it moved")}
    ),
    Case(
        "the same with a commit in what could",
        [*BEFORE, *v2(COMMIT, P)],
        MAYBE,
        {},
        {"log_failure": failed("it moved")},
    ),
    Case(
        "two ids have had its producer id, which is against all rules",
        [*BEFORE, *v2(ABORT, P), empty(3, transactional_id="Y")],
        UNKNOWN,
    ),
    Case("the same with a commit", [*BEFORE, *v2(COMMIT, P), empty(3, transactional_id="Y")], MAYBE),
    Case(
        "the coordinators contradict the log",
        [*BEFORE, *v2(ABORT, P)],
        UNKNOWN,
        changes={"contradiction": "it holds nothing of 'X'"},
    ),
    Case("the same with a commit", [*BEFORE, *v2(COMMIT, P)], MAYBE, changes={"contradiction": "it moved"}),
    # data of several epochs, with all markers missed
    Case("a commit, and a commit", [*BEFORE, *v2(COMMIT, P), *v2(COMMIT, P, epoch=4)], COMMITTED, TO_4, FROM_3),
    Case("an abort, and an abort", [*BEFORE, *v2(ABORT, P), *v2(ABORT, P, epoch=4)], NOT, TO_4, FROM_3),
    Case("a commit, and an abort", [*BEFORE, *v2(COMMIT, P), *v2(ABORT, P, epoch=4)], MIXED_DATA, TO_4, FROM_3),
    Case("an abort, and a commit", [*BEFORE, *v2(ABORT, P), *v2(COMMIT, P, epoch=4)], MIXED_DATA, TO_4, FROM_3),
    Case(
        "a commit, and what was never added",
        [*BEFORE, *v2(COMMIT, P), *v2(COMMIT, Q, epoch=4)],
        MIXED_DATA,
        TO_4,
        FROM_3,
    ),
    Case("a commit, and what is not decided", [*BEFORE, *v2(COMMIT, P), ongoing(4, P)], MAYBE, TO_4, FROM_3),
    Case("an abort, and what is not decided", [*BEFORE, *v2(ABORT, P), ongoing(4, P)], UNKNOWN, TO_4, FROM_3),
    Case("two commits, and between them one without it, which may have data", SKIPPED, MAYBE, TO_5, FROM_3),
    Case(
        "two aborts, and a commit between them",
        [*BEFORE, *v2(ABORT, P), *v2(COMMIT, P, epoch=4), *v2(ABORT, P, epoch=5)],
        MAYBE,
        TO_5,
        FROM_3,
    ),
    Case(
        "v1: fenced at one epoch, and committed at the next",
        [*BEFORE, *v1(ABORT, P), empty(4), *v1(COMMIT, P, epoch=4), empty(5)],
        MAYBE,
        TO_4,
        FROM_3,
    ),
    Case(
        "v1: a commit, to which more may have been written before a commit of v2 at the next epoch",
        [*BEFORE, *v1(COMMIT, P), empty(4), *v2(COMMIT, P, epoch=4)],
        MAYBE,
        TO_4,
        FROM_3,
    ),
    Case(
        "v1: the same before an abort",
        [*BEFORE, *v1(COMMIT, P), empty(4), *v2(ABORT, P, epoch=4)],
        MAYBE,
        TO_4,
        FROM_3,
    ),
    Case(
        "v2: a commit, and then a commit of v1 at the last epoch, whose first record is not that of the data",
        [*BEFORE, *v2(COMMIT, P), *v1(COMMIT, P, epoch=4), empty(5)],
        MAYBE,
        TO_4,
        FROM_3,
    ),
    Case(
        "the first record is gone, and an earlier epoch committed with it",
        [*BEFORE, *v2(COMMIT, P), *v2(ABORT, P, epoch=4)],
        MAYBE,
        TO_4,
        GONE,
    ),
    Case(
        "the first record is gone, and no epoch committed with it",
        [*BEFORE, *v2(ABORT, P), *v2(ABORT, P, epoch=4)],
        UNKNOWN,
        TO_4,
        GONE,
    ),
    Case(
        "more epochs than are looked at",
        [*BEFORE, *v2(COMMIT, P), empty(99), *v2(ABORT, P, epoch=99)],
        MAYBE,
        {"producer_epoch": 99},
        FROM_3,
    ),
    Case("64 epochs are looked at", EPOCHS_64, NOT, {"producer_epoch": 66}, {**FROM_3, "owner_epoch": 67}),
    Case("65 are not", EPOCHS_65, UNKNOWN, {"producer_epoch": 67}, {**FROM_3, "owner_epoch": 68}),
    # a missing first record: the possible epochs of the open data
    Case(
        "the first record is gone, and the log holds the producer id from its first epoch on",
        [empty(0), *v2(COMMIT, P, epoch=0)],
        MAYBE,
        {"producer_epoch": 0},
        GONE,
    ),
    Case(
        "v1: the same, and the commit stands at an earlier epoch than that of the partition",
        [empty(0), *v1(COMMIT, P, epoch=0)],
        MAYBE,
        TO_5,
        GONE,
    ),
    Case(
        "a commit at a later epoch than that of the partition is not of it",
        [empty(0), *v2(ABORT, P, epoch=0), *v2(COMMIT, P, epoch=1)],
        UNKNOWN,
        {"producer_epoch": 0},
        GONE,
    ),
    Case(
        "no data has an epoch below 0",
        [complete(COMMIT, 0, V2), *v2(ABORT, P, epoch=0)],
        UNKNOWN,
        {"producer_epoch": 0},
        GONE,
    ),
    Case("nothing is left but a commit at a later epoch", [prepare(COMMIT, 6, P)], MAYBE, changes=GONE),
    Case(
        "nothing is left, and another lineage committed with it",
        [],
        MAYBE,
        {"producer_epoch": 9},
        {**GONE, "vetoes": (OTHER_COMMIT,)},
    ),
    Case(
        "of several epochs that may have been committed the earliest is reported",
        [*BEFORE, *v2(COMMIT, P), empty(64), *v2(COMMIT, P, epoch=64)],
        MAYBE,
        {"producer_epoch": 64},
        GONE,
    ),
    # record times: a client's clock may veto
    Case("v1: a record that is dated after the commit", COMMITTED_V1, MAYBE, {"last_timestamp_ms": NOW_MS + 1}),
    Case("v1: one of the same millisecond", COMMITTED_V1, COMMITTED, {"last_timestamp_ms": NOW_MS}),
    Case("v2: a record that is dated later", COMMITTED_V2, MAYBE, {"last_timestamp_ms": NOW_MS + 5_001}),
    Case("v2: one within what clocks differ by", COMMITTED_V2, COMMITTED, {"last_timestamp_ms": NOW_MS + 5_000}),
    Case(
        "v2: the last record is of a later epoch, and dated after the commit of an earlier one",
        [*BEFORE, *v2(COMMIT, P), *v2(COMMIT, P, epoch=4, updated_ms=NOW_MS + 9_000)],
        COMMITTED,
        {**TO_4, "last_timestamp_ms": NOW_MS + 9_000},
        FROM_3,
    ),
    Case("a record that is dated before an abort shows nothing", ABORTED_V2, NOT, {"last_timestamp_ms": 0}),
    # vetoes
    Case("a commit in another lineage", ABORTED_V2, MAYBE, changes={"vetoes": (OTHER_COMMIT,)}),
    Case(
        "the same of the very transaction that was aborted for good",
        ABORTED_V2,
        NOT,
        changes={"vetoes": (replace(OTHER_COMMIT, start_time_ms=NOW_MS),)},
    ),
    Case(
        "v1: the same, where many transactions may begin in a millisecond",
        [*BEFORE, *v1(ABORT, P), empty(4)],
        MAYBE,
        changes={"vetoes": (prepare(COMMIT, 3, P),)},
    ),
    Case(
        "a completed commit in another lineage",
        ABORTED_V2,
        MAYBE,
        changes={"vetoes": (complete(COMMIT, 4, V2),)},
    ),
    Case("one of another epoch", ABORTED_V2, NOT, changes={"vetoes": (complete(COMMIT, 3, V2),)}),
    Case("one of another producer id", ABORTED_V2, NOT, changes={"vetoes": (complete(COMMIT, 4, V2, producer_id=8),)}),
    Case(
        "one without this partition",
        ABORTED_V2,
        NOT,
        changes={"vetoes": (replace(OTHER_COMMIT, partitions=frozenset({Q})),)},
    ),
    Case(
        "a PrepareCommit of another epoch",
        ABORTED_V2,
        NOT,
        changes={"vetoes": (replace(OTHER_COMMIT, producer_epoch=5),)},
    ),
    Case(
        "a PrepareCommit of another producer id",
        ABORTED_V2,
        NOT,
        changes={"vetoes": (replace(OTHER_COMMIT, producer_id=8),)},
    ),
    Case(
        "one of another epoch, and then one of this epoch",
        ABORTED_V2,
        MAYBE,
        changes={"vetoes": (complete(COMMIT, 3, V2), complete(COMMIT, 4, V2))},
    ),
    Case("a completed abort in another lineage", ABORTED_V2, NOT, changes={"vetoes": (complete(ABORT, 4, V2),)}),
    Case(
        "the commit of the very transaction, where some of the log could not be read",
        ABORTED_V2,
        MAYBE,
        changes={"vetoes": (SAME_COMMIT,), "log_failure": failed("it moved")},
    ),
    Case("v1: a fence", FENCED_V1, NOT),
    Case(
        "v1: a fence, and a commit of another transaction that began in the same millisecond",
        FENCED_V1,
        MAYBE,
        changes={"vetoes": (prepare(COMMIT, 3, P),)},
    ),
    Case(
        "an abort by brokers that raise the epoch twice lifts no commit",
        [*BEFORE, *v1(ABORT, P, raised=2, client=V2)],
        MAYBE,
        changes={"vetoes": (SAME_COMMIT,)},
    ),
    Case(
        "a completion of the abort that tells no version lifts no commit",
        [*BEFORE, *v2(ABORT, P)[:2], prepare(ABORT, 4, P, client=V2), complete(ABORT, 4), empty(5)],
        MAYBE,
        changes={"vetoes": (SAME_COMMIT,)},
    ),
    Case(
        "nor does one that was written again with a version",
        [*BEFORE, *v2(ABORT, P)[:2], complete(ABORT, 4), complete(ABORT, 4, V2), empty(5)],
        MAYBE,
        changes={"vetoes": (SAME_COMMIT,)},
    ),
    Case(
        "nothing is left but a commit at a later epoch, in another lineage",
        [],
        MAYBE,
        changes={"vetoes": (prepare(COMMIT, 6, P, client=V2),)},
    ),
    Case("an abort in another lineage", COMMITTED_V2, MAYBE, changes={"vetoes": (complete(ABORT, 4, V2),)}),
    Case(
        "one that is not complete",
        COMMITTED_V2,
        MAYBE,
        changes={"vetoes": (prepare(ABORT, 4, P, client=V2),)},
    ),
    Case("v1: a completed abort of the same epoch", COMMITTED_V1, MAYBE, changes={"vetoes": (complete(ABORT, 3),)}),
    Case(
        "a fence in another lineage, by brokers that raise the epoch twice",
        COMMITTED_V2,
        MAYBE,
        changes={"vetoes": (complete(ABORT, 5, V2),)},
    ),
    Case("v1: a fence of a later epoch", COMMITTED_V2, COMMITTED, changes={"vetoes": (complete(ABORT, 5),)}),
    Case("v2: a fence of a later epoch", COMMITTED_V2, COMMITTED, changes={"vetoes": (complete(ABORT, 6, V2),)}),
    Case(
        "a commit of the next epoch in another lineage",
        COMMITTED_V2,
        COMMITTED,
        changes={"vetoes": (complete(COMMIT, 5, V2),)},
    ),
    Case(
        "an abort of an earlier epoch, and then one of this epoch",
        COMMITTED_V2,
        MAYBE,
        changes={"vetoes": (complete(ABORT, 2, V2), complete(ABORT, 4, V2))},
    ),
    Case(
        "an abort of another producer id",
        COMMITTED_V2,
        COMMITTED,
        changes={"vetoes": (complete(ABORT, 4, V2, producer_id=8),)},
    ),
    Case("the same commit in another lineage", COMMITTED_V2, COMMITTED, changes={"vetoes": (complete(COMMIT, 4, V2),)}),
    Case("an abort of an earlier epoch", COMMITTED_V2, COMMITTED, changes={"vetoes": (complete(ABORT, 2, V2),)}),
    Case("a commit in another lineage, and nothing in this one", [], MAYBE, changes={"vetoes": (OTHER_COMMIT,)}),
    Case(
        "a COMMIT marker elsewhere",
        ABORTED_V2,
        MAYBE,
        changes=marker_on("q", epoch=4),
    ),
    Case(
        "one of an earlier epoch",
        ABORTED_V2,
        NOT,
        changes=marker_on("q", epoch=2),
    ),
    Case(
        "one of the same partition",
        ABORTED_V2,
        NOT,
        changes=marker_on("p", epoch=4),
    ),
    Case("v1: one of this very epoch", ABORTED_V2, MAYBE, changes=marker_on("q", epoch=3)),
    Case(
        "one of an earlier epoch that the open data has",
        [],
        MAYBE,
        {"producer_epoch": 9},
        {**FROM_3, **marker_on("q", epoch=4)},
    ),
    Case(
        "a COMMIT marker elsewhere, at an epoch that the open data may have, where the first record is gone",
        [],
        MAYBE,
        {"producer_epoch": 9},
        {**GONE, **marker_on("q", epoch=4)},
    ),
    Case(
        "the same where the open data has more epochs than are looked at",
        [],
        MAYBE,
        {"producer_epoch": 99},
        {**FROM_3, **marker_on("q", epoch=4)},
    ),
    Case(
        "a COMMIT marker elsewhere, at a later epoch, where the first record is gone",
        [],
        UNKNOWN,
        changes={**GONE, **marker_on("q", epoch=5)},
    ),
    Case("one of the same partition, and one elsewhere", ABORTED_V2, MAYBE, changes=marker_on("p", "q", epoch=4)),
    Case(
        "v2: a commit that was not acknowledged, and the abort of the same transaction after it",
        [*BEFORE, ongoing(3, P, client=V2), prepare(COMMIT, 4, P, client=V2), *v2(ABORT, P)[1:]],
        MAYBE,
    ),
    Case("its owner was seen in CompleteCommit at its epoch, and the log is empty", [], MAYBE, changes=seen_at(3)),
    Case("its owner was seen there at the next epoch", [], MAYBE, changes=seen_at(4)),
    Case("its owner was seen there at the epoch before", [], UNKNOWN, changes=seen_at(2)),
    Case("its owner was seen there at a later epoch", [], UNKNOWN, changes=seen_at(5)),
    Case("its owner was seen there twice, once at its epoch", [], MAYBE, changes=seen_at(9, 3)),
    Case("its owner was seen there, and the log proves an abort", ABORTED_V2, NOT, changes=seen_at(4)),
    Case("its owner was seen there, and the log proves a commit", COMMITTED_V2, COMMITTED, changes=seen_at(4)),
    Case(
        "its owner was seen there at an earlier epoch, and the first record is gone",
        [],
        MAYBE,
        changes={**GONE, **seen_at(2)},
    ),
    Case("the same where it was seen there at the next epoch", [], MAYBE, changes={**GONE, **seen_at(4)}),
    Case("the same where it was seen there at a later epoch", [], UNKNOWN, changes={**GONE, **seen_at(5)}),
    Case(
        "transaction.version was lowered between a decision, which is missing, and its completion",
        [*BEFORE, ongoing(3, P, client=V2), GAP, complete(COMMIT, 4)],
        MAYBE,
    ),
    Case("v1: a completed commit of the next epoch", [complete(COMMIT, 4)], UNKNOWN),
    Case("v1: a completed commit of this epoch, and nothing else", [complete(COMMIT, 3), empty(3)], MAYBE),
    Case(
        "v2: a commit without the partition, and the beginning of a v1 transaction, in a log whose epoch falls",
        [ongoing(3, P), *v2(COMMIT, Q), empty(2)],
        MAYBE,
    ),
    Case(
        "v2: a commit without the partition, and the end of a v1 transaction, in a log whose epoch falls",
        [complete(ABORT, 3), *v2(COMMIT, Q), empty(2)],
        MAYBE,
    ),
)


UNREAD: dict[str, Any] = {"acknowledged": False}
MARKED_BY_2 = {"coordinator_epoch": 2}
ABORT_NOTHING = [prepare(ABORT, 4, client=V2), complete(ABORT, 4, V2)]
# An absent commit: was it lost at an election? By default the partition has no marker.
ABSENT: tuple[Case, ...] = (
    Case("the coordinator restarts, and the application too", [*led(0, BEFORE), *led(1, [empty(4)])], UNKNOWN),
    Case(
        "v2: the transaction before is the last that the next coordinator knows",
        [*led(0, v2(COMMIT, Q, epoch=2)), *led(1, [empty(4)])],
        UNKNOWN,
    ),
    Case(
        "the same, and the partition has a marker of that coordinator",
        [*led(0, BEFORE), *led(1, [empty(4)])],
        UNKNOWN,
        {"coordinator_epoch": 1},
    ),
    Case("v2: the abort of nothing by the next coordinator", [*led(0, BEFORE), *led(1, ABORT_NOTHING)], UNKNOWN),
    Case("v1: the abort is written by the next coordinator", [*led(0, BEFORE), *led(1, FENCED_V1[2:])], UNKNOWN),
    Case(
        "v1: its completion is",
        [*led(0, [*BEFORE, *v1(ABORT, P)[:2]]), *led(1, [*v1(ABORT, P)[2:], empty(4)])],
        UNKNOWN,
    ),
    Case(
        "the same election, and a sweep saw CompleteCommit",
        [*led(0, BEFORE), *led(1, [empty(4)])],
        MAYBE,
        {},
        seen_at(4),
    ),
    Case("a commit that is in the log is no absent commit", [*led(0, BEFORE), *led(1, v2(COMMIT, P))], COMMITTED),
    Case(
        "an absent commit of the epoch after a commit",
        [*led(0, [*BEFORE, *v2(COMMIT, P)]), *led(1, [*v2(ABORT, P, epoch=4)])],
        MAYBE,
        TO_4,
        FROM_3,
    ),
    Case("no batch shows its leader epoch", led(-1, ABORTED_V2), UNKNOWN),
    Case("one batch does not", [*led(-1, BEFORE), *led(0, v2(ABORT, P))], UNKNOWN),
    # before the chain
    Case(
        "the chain is of one later leader, and an earlier one may have reached its epochs", led(2, ABORTED_V2), UNKNOWN
    ),
    Case(
        "the next coordinator ends an older transaction, and so reaches the epoch of the data again",
        [*led(1, [ongoing(2, Q, client=V2)]), *led(2, [*v2(ABORT, Q, epoch=2)[1:], empty(4)])],
        UNKNOWN,
    ),
    Case("a marker of that leader precedes the data", led(2, ABORTED_V2), NOT, MARKED_BY_2),
    Case("a marker of a later leader does", led(2, ABORTED_V2), NOT, {"coordinator_epoch": 3}),
    Case("a marker of an earlier leader does not show it", led(2, ABORTED_V2), UNKNOWN, {"coordinator_epoch": 1}),
    Case(
        "the same after an election at which nothing of the chain was written",
        [*led(1, [empty(1)]), *led(2, ABORTED_V2)],
        NOT,
        MARKED_BY_2,
    ),
    Case(
        "the producer id was first used under that leader",
        led(2, [empty(0), *v2(ABORT, P, epoch=0), empty(2), *v1(ABORT, P, epoch=2), empty(3)]),
        NOT,
        {"producer_epoch": 2},
    ),
    Case(
        "its first record is at a later epoch", led(2, [empty(1), *v2(ABORT, P, epoch=1), empty(3), empty(4)]), UNKNOWN
    ),
    Case(
        "its first epochs are of an earlier leader",
        [*led(1, [empty(0)]), *led(2, [empty(1), *v2(ABORT, P, epoch=1)])],
        UNKNOWN,
        {"producer_epoch": 1},
    ),
    Case(
        "its first record is a completion by that leader of its own decision",
        led(2, [prepare(COMMIT, 32767, P, client=V2, producer_id=6), complete(COMMIT, 0, V2), *v2(ABORT, P, epoch=0)]),
        NOT,
        {"producer_epoch": 0},
    ),
    Case(
        "its first record is a completion of a decision of an earlier leader, which chose the producer id",
        [
            *led(1, [prepare(COMMIT, 32767, P, client=V2, producer_id=6)]),
            *led(2, [complete(COMMIT, 0, V2), *v2(ABORT, P, epoch=0)]),
        ],
        UNKNOWN,
        {"producer_epoch": 0},
    ),
    Case(
        "its first record is a completion, and its decision is missing",
        led(2, [complete(COMMIT, 0, V2), *v2(ABORT, P, epoch=0)]),
        UNKNOWN,
        {"producer_epoch": 0},
    ),
    Case(
        "an earlier producer id of the same id is of an earlier leader",
        [*led(1, [empty(0, producer_id=6)]), *led(2, [empty(0), *v2(ABORT, P, epoch=0)])],
        NOT,
        {"producer_epoch": 0},
    ),
    Case(
        "the producer id was first used under an earlier leader, before the chain",
        [*led(1, [empty(0, producer_id=6), empty(0)]), *led(2, [empty(1), empty(2), *v1(ABORT, P, epoch=2), empty(3)])],
        UNKNOWN,
        {"producer_epoch": 2},
    ),
    Case(
        "its first record is a completion, and an older decision is missing",
        led(2, [empty(5, producer_id=6), complete(COMMIT, 0, V2), *v2(ABORT, P, epoch=0)]),
        UNKNOWN,
        {"producer_epoch": 0},
    ),
    Case(
        "its first record is a completion, long after the first record of the id",
        led(
            2,
            [
                *(empty(5, producer_id=6), prepare(COMMIT, 32767, P, client=V2, producer_id=6)),
                *(complete(COMMIT, 0, V2), *v2(ABORT, P, epoch=0)),
            ],
        ),
        NOT,
        {"producer_epoch": 0},
    ),
    # after the chain
    Case(
        "v2: the abort is completed by the next coordinator",
        [*led(0, ABORTED_V2[:-1]), *led(1, ABORTED_V2[-1:])],
        UNKNOWN,
    ),
    Case("the record after the epoch was not acknowledged", led(0, [*BEFORE, empty(4)], **UNREAD), UNKNOWN),
    Case(
        "its coordinator went on from it",
        led(0, [*BEFORE, empty(4), ongoing(4, Q)], **UNREAD),
        NOT,
    ),
    Case(
        "the next coordinator went on from it",
        [*led(0, [*BEFORE, empty(4)], **UNREAD), *led(1, [ongoing(4, Q)])],
        UNKNOWN,
    ),
    Case("it was written twice", led(0, [*BEFORE, empty(4), empty(4)], **UNREAD), UNKNOWN),
    Case(
        "it was acknowledged, and the next coordinator went on",
        [*led(0, [*BEFORE, empty(4)]), *led(1, [ongoing(4, Q)])],
        NOT,
    ),
    Case("it is a completed end that raised the epoch", [*led(0, ABORTED_V2, **UNREAD), *led(1, [empty(9)])], NOT),
)


def test_an_absent_commit_is_proven_only_if_no_election_can_have_lost_it(wording: SnapshotAssertion) -> None:
    reasons = {}
    with Cases() as cases:
        for case in ABSENT:
            with cases.case(case.why) as name:
                found = told(case.logged, case.o, **case.changes)
                assert found.outcome == case.expected
                assert found.unproven is (Unproven.ELECTION if case.expected is UNKNOWN else None)
                reasons[name] = found.why
    assert reasons == wording


def test_the_reason_names_the_election_by_its_time() -> None:
    first, second = NOW_MS - 60_000, NOW_MS
    log = [*led(4, [empty(2), empty(3)], updated_ms=first), *led(7, [empty(4)], updated_ms=second)]
    times = [f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC" for ms in (first, second)]
    assert all(part in told(log).why for part in (*times, "leader epoch 7"))


def test_an_election_is_named_by_what_is_known_of_it() -> None:
    first, second = NOW_MS - 60_000, NOW_MS
    at = [f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC" for ms in (first, second, 1)]
    log = [*led(-1, [empty(2)], updated_ms=0), *led(0, [empty(3)], updated_ms=1), *led(0, [empty(4)])]
    before = [*led(0, [empty(1)], updated_ms=1), *led(1, [empty(1)], updated_ms=first)]
    later = [*before, *led(2, [*BEFORE, empty(4)], updated_ms=second)]
    table = (
        (str(election_of(numbered(later), OPEN)), f"the election to leader epoch 2 between {at[0]} and {at[1]}"),
        (str(Election(5, None, None)), "the election to leader epoch 5"),
        (str(Election(None, first, None)), f"an election after {at[0]}"),
        (str(Election(None, first, second)), f"an election between {at[0]} and {at[1]}"),
        (str(election_of(numbered(log), OPEN)), f"the election to leader epoch 0 before {at[2]}"),
    )
    with Cases() as cases:
        for said, expected in table:
            with cases.case(expected):
                assert said == expected


def test_a_chain_that_does_not_end_holds_up_to_the_newest_read() -> None:
    log = numbered([*led(0, [empty(2)], updated_ms=NOW_MS - 9_000), *led(0, [empty(3)], updated_ms=NOW_MS)])
    at_end = tuple(replace(one, log_epoch=0) for one in log)
    later = tuple(replace(one, log_epoch=1) for one in log)
    assert election_of(at_end, OPEN) is None
    assert election_of(later, OPEN) == Election(None, NOW_MS, None)
    kept = tuple(replace(one, epochs_rise=False) for one in at_end)
    assert election_of(kept, OPEN) == Election(None, None, None, is_restart=True)


def test_an_unknown_leader_epoch_is_not_known_to_have_begun_before() -> None:
    known, unknown = (numbered(led(epoch, [empty(0)], log_epoch=epoch)) for epoch in (4, -1))
    first = replace(OPEN, producer_epoch=0)
    assert election_of(known, first) is None
    assert election_of(unknown, first) is not None


def test_a_last_decision_is_not_the_one_before_the_first_record() -> None:
    after = [*v2(ABORT, P, epoch=0), ongoing(1, Q, client=V2), prepare(COMMIT, 2, Q, client=V2)]
    log = numbered(led(2, [complete(COMMIT, 0, V2), *after]))
    assert election_of(log, replace(OPEN, producer_epoch=0)) is not None


def test_each_case_gets_the_specified_outcome(wording: SnapshotAssertion) -> None:
    reasons = {}
    with Cases() as cases:
        for case in CASES:
            with cases.case(case.why) as name:
                found = told(case.logged, case.o, **case.changes)
                assert found.outcome == case.expected
                assert "None" not in found.why and "\n" not in found.why and not found.why.endswith(".")
                reasons[name] = found.why
    assert reasons == wording


def test_a_commit_of_an_earlier_history_vetoes_what_the_log_proves() -> None:
    """The log of this history is whole, and says nothing about the earlier one."""
    with Cases() as cases:
        for epoch, expected in ((2, "not_committed"), (3, "maybe_committed"), (4, "maybe_committed")):
            with cases.case(epoch):
                assert told(ABORTED_V2, **seen_before(epoch)).outcome == expected
        with cases.case("a commit of this history, which the log decides"):
            assert told(ABORTED_V2, **seen_at(3)).outcome == "not_committed"
        with cases.case("a log without records of the producer id"):
            assert told([], **seen_before(3)).outcome == "maybe_committed"
        with cases.case("a proven commit stays"):
            assert told(COMMITTED_V2, **seen_before(3)).outcome == "committed"


def test_every_outcome_has_a_case() -> None:
    assert {case.expected for case in CASES} == set(Outcome)


def test_outcomes_have_stable_names() -> None:
    assert [one.value for one in Outcome] == ["committed", "maybe_committed", "mixed", "not_committed", "unknown"]


DOUBTS: dict[str, dict[str, Any]] = {
    "no first batch": {"first_epoch": None, "batch_failure": failed("x")},
    "another epoch": {"first_epoch": 2},
    "no log": {"log_failure": failed("x")},
}


def test_any_doubt_makes_a_certain_outcome_uncertain() -> None:
    with Cases() as cases:
        for case, (doubt, changes) in product(CASES, DOUBTS.items()):
            with cases.case(f"{case.why}, {doubt}"):
                assert told(case.logged, case.o, **{**case.changes, **changes}).outcome in (MAYBE, UNKNOWN)


def test_no_doubt_hides_a_commit() -> None:
    commits = [case for case in CASES if case.expected in (COMMITTED, MAYBE, MIXED_DATA)]
    with Cases() as cases:
        for case, doubt in product(commits, ("no first batch", "no log")):
            with cases.case(f"{case.why}, {doubt}"):
                assert told(case.logged, case.o, **{**case.changes, **DOUBTS[doubt]}).outcome is MAYBE


@pytest.mark.parametrize(
    ("logged", "expected", "why"),
    [
        ([ongoing(3, P), prepare(COMMIT, 4, P, client=V2)], [3], "the epoch of the Ongoing record before it"),
        ([prepare(COMMIT, 4, P, client=V2)], [3], "a commit by a v2 client raised it"),
        ([prepare(COMMIT, 4, P)], [4], "one by a v1 client did not"),
        ([prepare(COMMIT, 4, P, client=1)], [4], "nor did one by a client that tells version 1"),
        ([prepare(ABORT, 4, P)], [None], "an abort by a v1 client may be a fence"),
        ([*v1(COMMIT, P, epoch=2), prepare(ABORT, 4, P)], [2, None], "an Ongoing record counts for one transaction"),
        ([*v1(COMMIT, P), *v1(COMMIT, Q)], [3, 3], "two in a row are two"),
        ([ongoing(3, P), empty(4), prepare(COMMIT, 4, P)], [4], "what was begun anew has no Ongoing record before it"),
        ([ongoing(3, P), prepare(ABORT, 5, P)], [None], "nor one that the abort does not follow from"),
        ([complete(ABORT, 3, V2), prepare(ABORT, 4, client=V2)], [3], "an abort of nothing is of the epoch before it"),
        ([*v1(COMMIT, P), ongoing(3, P), *[prepare(ABORT, 4, P)] * 2], [3, 3], "one that was written twice is one"),
        ([*v1(COMMIT, P)[:2], prepare(ABORT, 3, P), prepare(COMMIT, 3, P)], [3, 3, 3], "others between make it two"),
    ],
)
def test_a_decision_is_attributed_to_the_epoch_of_its_data(
    logged: Records, expected: list[int | None], why: str
) -> None:
    assert [decision.epoch for decision in decisions(logged)] == expected, why


# --- successors of a record -------------------------------------------------------------------------------------------

AT_REST = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
COMMITS = (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)
ABORTS = (State.PREPARE_ABORT, State.COMPLETE_ABORT)
RAISED = (-1, 0, 1, 2)
ANY = {V1: RAISED, V2: RAISED}
NEVER_MORE = {V1: (0,), V2: (0,)}


@dataclass(frozen=True)
class Transition:
    """Steps from one record of a producer id to the next, and the code in `TransactionMetadata` or
    `TransactionCoordinator` that takes them.

    steps: states before and after. raised: by how much the epoch may rise, by the transactions version of the later
    record. partitions: how the later record's partitions may compare with the earlier ones. with_a_hole: further
    comparisons if a record between the two is missing. keeps_start: the transaction is the same.
    """

    why: str
    steps: Collection[tuple[State, State]]
    raised: Mapping[int, Collection[int]]
    partitions: Collection[str]
    with_a_hole: Collection[str] = ()
    keeps_start: bool = True


TRANSITIONS = (
    Transition(
        "prepareIncrementProducerEpoch: InitProducerId raises the epoch, and answers a repetition with the same one",
        {(state, State.EMPTY) for state in AT_REST},
        {V1: (0, 1), V2: (0, 1)},
        ("same",),
        keeps_start=False,
    ),
    Transition(
        "prepareAddPartitions: the first ones start a transaction, and a request may name none",
        {(state, State.ONGOING) for state in AT_REST},
        NEVER_MORE,
        ("same", "more"),
        keeps_start=False,
    ),
    Transition(
        "prepareAddPartitions: later ones join them; the same ones again after an append that timed out",
        {(State.ONGOING, State.ONGOING)},
        NEVER_MORE,
        ("same", "more"),
    ),
    Transition(
        "prepareAbortOrCommit: transactions v2 raise the epoch; completeTransitionTo wants the same partitions",
        {(State.ONGOING, State.PREPARE_COMMIT)},
        {V1: (0,), V2: (1,)},
        ("same",),
        with_a_hole=("more",),
    ),
    Transition(
        "prepareAbortOrCommit: an abort likewise, and once more after prepareFenceProducerEpoch",
        {(State.ONGOING, State.PREPARE_ABORT)},
        {V1: (0, 1), V2: (1, 2)},
        ("same",),
        with_a_hole=("more",),
    ),
    Transition(
        "prepareAbortOrCommit with noPartitionAdded: a v2 client aborts what never reached the coordinator",
        {(state, State.PREPARE_ABORT) for state in AT_REST},
        {V1: (), V2: (1,)},
        ("same",),
        keeps_start=False,
    ),
    Transition(
        "prepareComplete: the epoch is raised already, and no partition is left",
        {COMMITS, ABORTS},
        NEVER_MORE,
        ("same", "fewer"),
    ),
    Transition(
        "appendTransactionToLog: the same again after an append that timed out",
        {(state, state) for state in (*COMMITS, *ABORTS)},
        NEVER_MORE,
        ("same",),
    ),
    Transition(
        "prepareDead: an id expires at rest; its tombstone, which holds nothing, may have to be written again",
        {(state, State.DEAD) for state in (*AT_REST, State.DEAD)},
        ANY,
        ("same",),
        keeps_start=False,
    ),
)


def compared(a: LoggedTransaction, b: LoggedTransaction) -> str:
    """How the partitions of b compare with the partitions of a."""
    if a.partitions == b.partitions:
        return "same"
    if a.partitions < b.partitions:
        return "more"
    return "fewer" if a.partitions > b.partitions else "others"


def takes(transition: Transition, a: LoggedTransaction, b: LoggedTransaction) -> bool:
    holes = transition.with_a_hole if b.contiguous_from > a.offset else ()
    return (
        (a.state, b.state) in transition.steps
        and b.producer_epoch - a.producer_epoch in transition.raised[b.client_version]
        and compared(a, b) in (*transition.partitions, *holes)
        and (a.start_time_ms == b.start_time_ms or not transition.keeps_start)
    )


def every_record(epochs: Iterable[int], **changes: Any) -> list[LoggedTransaction]:
    """Records in every state, with every possible version and set of partitions."""
    sets = [(), (P,), (Q,), (P, Q)]
    found = []
    for state, epoch in product(State, epochs):
        held = sets if state in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT) else sets[:1]
        told = (V1, V2) if state is not State.DEAD else (V1,)
        found += [record(state, epoch, *keys, client=client, **changes) for keys, client in product(held, told)]
    return found


def next_to_each_other() -> Iterator[tuple[LoggedTransaction, LoggedTransaction]]:
    """Every two records of one producer id, contiguous and with a gap."""
    later = [
        one
        for start_time_ms, contiguous_from in product((NOW_MS, NOW_MS + 1), (0, 1))
        for one in every_record(
            [5 + raised for raised in RAISED], start_time_ms=start_time_ms, contiguous_from=contiguous_from
        )
    ]
    return product(every_record([5]), later)


def test_follows_accepts_exactly_the_steps_of_coordinators() -> None:
    for a, b in next_to_each_other():
        expected = [transition.why for transition in TRANSITIONS if takes(transition, a, b)]
        assert follows(a, b) == bool(expected), (a, b, expected)


@dataclass(frozen=True)
class NextProducerId:
    """Steps to another producer id, at epoch 0. epochs: allowed last epochs of the earlier producer id."""

    why: str
    steps: Collection[tuple[State, State]]
    epochs: Collection[int]
    clients: Collection[int] = (V1, V2)
    keeps_start: bool = False


LAST_EPOCHS = (-1, 0, 32765, 32766, 32767)
NEXT_PRODUCER_IDS = (
    NextProducerId(
        "prepareProducerIdRotation: InitProducerId where isEpochExhausted; a fence may have raised it to the last",
        {(state, State.EMPTY) for state in AT_REST},
        (32766, 32767),
    ),
    NextProducerId(
        "prepareComplete of transactions v2: the end of a transaction of epoch 32766 stands at 32767",
        {COMMITS, ABORTS},
        (32767,),
        clients=(V2,),
        keeps_start=True,
    ),
    NextProducerId(
        "handleInitProducerId: an id that expired is made anew",
        {(State.DEAD, State.EMPTY)},
        LAST_EPOCHS,
    ),
)


def rotates(change: NextProducerId, a: LoggedTransaction, b: LoggedTransaction) -> bool:
    return (
        (a.state, b.state) in change.steps
        and (a.producer_epoch in change.epochs and b.producer_epoch == 0)
        and a.client_version in change.clients
        and (a.start_time_ms == b.start_time_ms or not change.keeps_start)
    )


def test_a_next_producer_id_follows_exactly_as_in_coordinators() -> None:
    later = [
        one
        for start_time_ms in (NOW_MS, NOW_MS + 1)
        for one in every_record([0, 1, 32767], start_time_ms=start_time_ms, producer_id=8)
    ]
    for a, b in product(every_record(LAST_EPOCHS), later):
        expected = [change.why for change in NEXT_PRODUCER_IDS if rotates(change, a, b)]
        if b.state is State.DEAD and a.state in (*AT_REST, State.DEAD):
            expected.append("prepareDead")
        assert follows(a, b) == bool(expected), (a, b, expected)


# Steps of transactions v2, with the rise of the epoch, between which any other transaction would be visible. Empty is
# not among them: its neighbours may be of v1, and it may be an append that timed out.
WOULD_SHOW = {
    **{(state, State.ONGOING, 0): "the transaction before would have raised it" for state in AT_REST[1:]},
    **{(state, State.PREPARE_ABORT, 1): "the other transaction would have raised it too" for state in AT_REST[1:]},
    (State.ONGOING, State.ONGOING, 0): "the end between the two would have raised it",
    (State.ONGOING, State.PREPARE_COMMIT, 1): "one end",
    (State.ONGOING, State.PREPARE_ABORT, 1): "one end; a rise by 2 is two ends, or one after a fence",
    (State.PREPARE_COMMIT, State.PREPARE_COMMIT, 0): "the same decision",
    (State.PREPARE_ABORT, State.PREPARE_ABORT, 0): "the same decision",
    (State.PREPARE_COMMIT, State.COMPLETE_COMMIT, 0): "its decision",
    (State.PREPARE_ABORT, State.COMPLETE_ABORT, 0): "its decision",
    (State.COMPLETE_COMMIT, State.COMPLETE_COMMIT, 0): "the same completion",
    (State.COMPLETE_ABORT, State.COMPLETE_ABORT, 0): "the same completion",
}


@pytest.mark.parametrize(
    ("logged", "doubtful"),
    [
        ([complete(COMMIT, 2, V2), GAP, ongoing(2, client=V2)], None),
        ([complete(COMMIT, 3, V2), GAP, ongoing(3, client=V2)], 1),
        ([complete(COMMIT, 3, V2), GAP, ongoing(3, P, client=V2)], None),
        ([complete(COMMIT, 3, V2), GAP, ongoing(3, client=V2), ongoing(3, P, client=V2)], None),
        ([complete(COMMIT, 3, V2), GAP, ongoing(3, client=V2), ongoing(3, P, start_time_ms=NOW_MS + 5)], 1),
        ([complete(COMMIT, 3, V2), GAP, complete(COMMIT, 3, V2)], None),
        ([prepare(COMMIT, 3, P), complete(COMMIT, 3, V2), GAP, prepare(ABORT, 4, client=V2)], 2),
    ],
    ids=[
        "the gap is at another epoch",
        "the next v2 transaction does not add the partition",
        "it adds the partition",
        "it adds the partition later",
        "another transaction adds the partition",
        "a completion is written twice",
        "an abort of nothing adds nothing",
    ],
)
def test_a_gap_hides_no_v1_transaction_if_the_next_transaction_adds_the_partition(
    logged: list[LoggedTransaction | None], doubtful: int | None
) -> None:
    chain = numbered(logged)
    expected = None if doubtful is None else (chain[doubtful - 1], chain[doubtful])
    assert first_doubt(chain, observation(coordinator_epoch=-1)) == expected


def test_a_gap_is_harmless_only_if_missing_records_would_be_visible() -> None:
    o = observation()
    for a, b in next_to_each_other():
        if not follows(a, b):
            assert not whole(a, b, o), (a, b)
            continue
        shows = (a.state, b.state, b.producer_epoch - a.producer_epoch) in WOULD_SHOW
        v2 = a.client_version == b.client_version == V2
        # More may have been added after a commit that timed out, and a second one may have named it.
        this_commit = a.state is not State.PREPARE_COMMIT or P in a.partitions
        assert whole(a, b, o) == (b.contiguous_from <= a.offset or (shows and v2 and this_commit)), (a, b)


@pytest.mark.parametrize(
    ("a", "b", "is_whole"),
    [
        (prepare(COMMIT, 32767, P, client=V2), complete(COMMIT, 0, V2), True),
        (prepare(COMMIT, 32767, Q, client=V2), complete(COMMIT, 0, V2), False),
        (prepare(ABORT, 32767, Q, client=V2), complete(ABORT, 0, V2), True),
        (prepare(ABORT, 32767, P, client=V2), complete(ABORT, 0), False),
        (complete(ABORT, 32767, V2), empty(0, client=V2), False),
    ],
    ids=["a commit of it", "a commit, perhaps of it", "an abort", "an end that tells no version", "an InitProducerId"],
)
def test_a_gap_at_the_end_of_a_producer_id_is_judged_alike(
    a: LoggedTransaction, b: LoggedTransaction, is_whole: bool
) -> None:
    later = replace(b, producer_id=8, contiguous_from=1)
    assert follows(a, later)
    assert whole(a, later, observation()) is is_whole


# --- random histories -------------------------------------------------------------------------------------------------

EPOCH_MAX = 32767


@dataclass(frozen=True)
class Txn:
    """A transaction of a history, with the epoch of its data. raised: whether its end raised the epoch. v2: whether
    leaders add its partitions.
    """

    producer_id: int
    epoch: int
    committed: bool
    partitions: frozenset[Key]
    raised: bool
    v2: bool

    @property
    def names(self) -> bool:
        return P in self.partitions


@dataclass
class History:
    """The records of a coordinator for one id, as `TransactionMetadata` moves from state to state.

    Unacknowledged records are in the log too, and the coordinator continues as if they were not.
    """

    epoch: int
    producer_id: int = 7
    records: Records = field(default_factory=list)
    transactions: list[Txn] = field(default_factory=list)
    time_ms: int = NOW_MS

    def write(self, state: State, *partitions: Key, client: int = V1, raised: int = 0) -> None:
        changes = {"producer_id": self.producer_id, "offset": len(self.records), "start_time_ms": self.time_ms}
        self.records.append(record(state, self.epoch + raised, *sorted(partitions), client=client, **changes))

    def init(self) -> None:
        """InitProducerId without an open transaction."""
        if self.epoch >= EPOCH_MAX - 1:
            self.producer_id, self.epoch = self.producer_id + 1, -1
        self.epoch += 1
        self.write(State.EMPTY)

    def lose_init(self) -> None:
        """An unacknowledged InitProducerId: its producer retries, and the earlier producer continues."""
        if self.epoch < EPOCH_MAX - 1:
            self.write(State.EMPTY, raised=1)

    def end(
        self,
        committed: bool,
        partitions: frozenset[Key],
        client: int,
        raised: int,
        times: int = 1,
        lost: tuple[bool, ...] = (),
    ) -> None:
        """From Ongoing to Complete*. At the last epoch the completion takes the next producer id.

        lost: unacknowledged ends, with the partitions added by then.
        """
        self.time_ms += 1
        exhausted = client == V2 and self.epoch >= EPOCH_MAX - 1
        v2 = client == V2 and raised == 1
        self.transactions.append(Txn(self.producer_id, self.epoch, committed, partitions, raised > 0, v2))
        for size in range(1, len(partitions) + 1):
            added = sorted(partitions)[:size]
            self.write(State.ONGOING, *added, client=client)
            for lost_commit in lost if size == 1 else ():
                self.write(_prepared(lost_commit), *added, client=client, raised=int(client == V2))
        self.epoch += raised
        for _ in range(times):
            self.write(_prepared(committed), *partitions, client=client)
        if exhausted:
            self.producer_id, self.epoch = self.producer_id + 1, 0
        self.write(State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT, client=client)

    def fence(self, partitions: frozenset[Key], twice: bool) -> None:
        """A timeout or another producer: the epoch is raised, by brokers with transactions v2 twice."""
        both = twice and self.epoch < EPOCH_MAX - 2
        self.end(False, partitions, V2 if both else V1, 2 if both else 1)
        self.init()

    def abort_nothing(self) -> None:
        """EndTxn of a v2 client whose first record never arrived (`noPartitionAdded`)."""
        if self.epoch < EPOCH_MAX - 1:
            self.end(False, frozenset(), V2, 1)
            self.transactions.pop()


def _prepared(committed: bool) -> State:
    return State.PREPARE_COMMIT if committed else State.PREPARE_ABORT


Step = tuple[str, frozenset[Key], bool, int, tuple[bool, ...]]
SETS = st.frozensets(st.sampled_from([P, Q, ("p", 1)]), min_size=1)
LOST = st.lists(st.booleans(), max_size=2).map(tuple)
ENDS = st.tuples(st.just("end"), SETS, st.booleans(), st.integers(1, 2), LOST)
FENCES = st.tuples(st.just("fence"), SETS, st.booleans(), st.just(1), st.just(()))
KINDS = st.sampled_from(["init", "lose init", "abort nothing"])
OTHERS = st.tuples(KINDS, st.just(frozenset[Key]()), st.just(False), st.just(1), st.just(()))
STEPS = st.lists(st.tuples(st.one_of(ENDS, ENDS, FENCES, OTHERS), st.sampled_from([V1, V2])), min_size=1, max_size=8)
FIRST_EPOCHS = st.sampled_from([-1, 5, EPOCH_MAX - 5, EPOCH_MAX - 3])
# The records that a replica still has, besides the last one.
HOLES = st.lists(st.booleans(), min_size=64, max_size=64)


def history(first_epoch: int, steps: Iterable[tuple[Step, int]]) -> History:
    made = History(first_epoch)
    if first_epoch >= 0:
        made.write(State.EMPTY)
    made.init()
    for (kind, partitions, flag, times, lost), client in steps:
        if kind == "end":
            made.end(flag, partitions, client, int(client == V2), times, lost)
        elif kind == "fence":
            made.fence(partitions, flag)
        elif kind == "lose init":
            made.lose_init()
        elif kind == "init" or client == V1:
            made.init()
        else:
            made.abort_nothing()
    return made


def with_client(client: int) -> st.SearchStrategy[History]:
    steps = STEPS.map(lambda drawn: [(step, client) for step, _ in drawn])
    return st.builds(history, FIRST_EPOCHS, steps)


def open_data(txn: Txn, coordinator_epoch: int) -> Observation:
    return observation(producer_id=txn.producer_id, producer_epoch=txn.epoch, coordinator_epoch=coordinator_epoch)


def evidence_of(made: History, left: Iterable[bool], o: Observation, expired: bool) -> OutcomeEvidence:
    """The evidence if only these records remain. The last record always remains; an expired id has no owner."""
    last = made.records[-1]
    owner_epoch = None if expired or last.producer_id != o.producer_id else last.producer_epoch
    kept = [
        one if here else None
        for one, here in zip(made.records, [*list(left)[: len(made.records) - 1], True], strict=True)
    ]
    logged = numbered([*kept, NO_MORE] if expired else kept)
    known = logged if any(one.producer_id == o.producer_id for one in logged) else ()
    return OutcomeEvidence(o, owner_epoch, o.producer_epoch, 0, None, known, None, None)


def all_of(made: History) -> list[bool]:
    return [True] * len(made.records)


def suffixes(made: History) -> Iterator[list[bool]]:
    for cut in range(len(made.records)):
        yield [False] * cut + [True] * (len(made.records) - cut)


def remains(made: History, holes: list[bool]) -> Iterator[list[bool]]:
    """The ends of the history, and a log with these gaps: in all of it, in its beginning, and in its end."""
    yield from suffixes(made)
    count = len(made.records)
    wanted = (holes * count)[:count]
    for first, end in ((0, count), (0, count // 2), (count // 2, count), (count // 3, 2 * count // 3)):
        yield [here or not first <= at < end for at, here in enumerate(wanted)]


def contradicts(found: KnownOutcome, committed: bool) -> bool:
    return found.outcome == (NOT if committed else COMMITTED)


MIXED = st.one_of(with_client(V1), st.builds(history, FIRST_EPOCHS, STEPS))


@settings(max_examples=80)
@given(with_client(V2), HOLES, st.booleans())
def test_under_v2_no_remaining_log_contradicts_the_decision(made: History, holes: list[bool], expired: bool) -> None:
    for txn in made.transactions:
        for coordinator_epoch in (-1, 0):
            committed = txn.committed and txn.names
            o = open_data(txn, coordinator_epoch)
            for left in remains(made, holes):
                found = outcome(evidence_of(made, left, o, expired))
                assert not contradicts(found, committed), (txn, left, found)


@settings(max_examples=80)
@given(with_client(V2).filter(lambda made: len(made.records) > 1))
def test_under_v2_a_full_acknowledged_log_gives_the_decision(made: History) -> None:
    steps = list(pairwise(made.records))
    if not all(follows(a, b) for a, b in steps):
        return
    for txn in made.transactions:
        found = outcome(evidence_of(made, all_of(made), open_data(txn, 0), expired=True))
        assert found.outcome == (COMMITTED if txn.committed and txn.names else NOT), (txn, found)


def test_a_missing_v1_transaction_between_two_of_v2_is_noticed() -> None:
    """`transaction.version` was lowered and raised again, and a replica that missed a compaction leads."""
    of_v2 = [[complete(ABORT, 3, V2), GAP, *v2(ABORT, name)] for name in (P, Q)]
    assert [told(logged).outcome for logged in of_v2] == [NOT, UNKNOWN]


@settings(max_examples=80)
@given(MIXED, HOLES, st.booleans())
def test_no_remaining_log_contradicts_a_decision_with_a_missed_marker(
    made: History, holes: list[bool], expired: bool
) -> None:
    """Under v1, and for clients that change between v1 and v2. All later markers of the partition were missed too."""
    for at, txn in enumerate(made.transactions):
        earlier = any(one.names and one.producer_id == txn.producer_id for one in made.transactions[:at])
        for coordinator_epoch in (-1, 0) if earlier else (-1,):
            if txn.names:
                assert_none_contradicts(made, txn, coordinator_epoch, holes, expired)


@settings(max_examples=80)
@given(MIXED, HOLES, st.booleans())
def test_no_remaining_log_contradicts_a_late_record_after_its_marker(
    made: History, holes: list[bool], expired: bool
) -> None:
    """A marker at a higher epoch would fence it. Later markers of its epoch need not."""
    for txn in made.transactions:
        if txn.names and not txn.raised:
            assert_none_contradicts(made, txn, 0, holes, expired)


@settings(max_examples=80)
@given(MIXED, HOLES, st.booleans())
def test_no_remaining_log_contradicts_data_of_an_unadded_partition(
    made: History, holes: list[bool], expired: bool
) -> None:
    """Every earlier marker of the partition was written, and no later one."""
    for at, txn in enumerate(made.transactions):
        of_it = [n for n, one in enumerate(made.transactions) if one.names and one.producer_id == txn.producer_id]
        if not txn.names and max(of_it, default=-1) < at:
            o = open_data(txn, 0 if of_it else -1)
            for left in remains(made, holes):
                found = outcome(evidence_of(made, left, o, expired))
                assert not contradicts(found, committed=False), (txn, left, found)


def after_it(made: History, txn: Txn) -> list[Txn]:
    """The transactions of v2 at its epoch, and later. No leader adds them to the partition while it is open."""
    later = made.transactions[made.transactions.index(txn) + 1 :]
    return [one for one in later if one.v2 and (one.producer_id, one.epoch) == (txn.producer_id, txn.epoch)]


def assert_none_contradicts(made: History, txn: Txn, coordinator_epoch: int, holes: list[bool], expired: bool) -> None:
    """Also for the v2 transactions that wrote to the partition."""
    later = after_it(made, txn)
    if any(one.names for one in later):
        return
    for left in remains(made, holes):
        found = outcome(evidence_of(made, left, open_data(txn, coordinator_epoch), expired))
        for one in (txn, *later):
            assert not contradicts(found, one.committed), (one, left, found)


@dataclass
class Elections(History):
    """The same, with elections that lose the end of the log. Lost transactions are among `transactions` too.

    leaders: the leader epoch of each transaction's marker.
    """

    leader_epoch: int = 0
    leaders: list[int] = field(default_factory=list)

    def write(self, state: State, *partitions: Key, client: int = V1, raised: int = 0) -> None:
        super().write(state, *partitions, client=client, raised=raised)
        self.records[-1] = replace(self.records[-1], leader_epoch=self.leader_epoch, updated_ms=self.time_ms)
        self.leaders += [self.leader_epoch] * (len(self.transactions) - len(self.leaders))

    def elect(self, lost: int) -> None:
        """The next coordinator lacks the last `lost` records. It ends what it finds open."""
        self.records = self.records[: max(1, len(self.records) - lost)]
        last = self.records[-1]
        self.leader_epoch += 1
        self.producer_id, self.epoch, self.time_ms = last.producer_id, last.producer_epoch, self.time_ms + 1
        if last.state is State.ONGOING:
            self.fence(last.partitions, twice=False)
        elif last.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT):
            committed = last.state is State.PREPARE_COMMIT
            start_ms, self.time_ms = self.time_ms, last.start_time_ms
            self.write(State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT, client=last.client_version)
            self.time_ms = start_ms


ELECTED = st.lists(
    st.tuples(st.tuples(ENDS | FENCES | OTHERS, st.sampled_from([V1, V2])), st.none() | st.integers(0, 9)),
    min_size=1,
    max_size=8,
)


def elected(client: int | None, steps: Iterable[tuple[tuple[Step, int], int | None]]) -> Elections:
    made = Elections(-1)
    made.init()
    for ((kind, partitions, flag, times, _), of_step), lost in steps:
        version = client if client is not None else of_step
        if kind == "end":
            made.end(flag, partitions, version, int(version == V2), times)
        elif kind == "fence":
            made.fence(partitions, flag)
        elif kind in ("init", "lose init") or version == V1:
            made.init()
        else:
            made.abort_nothing()
        if lost is not None:
            made.elect(lost)
    return made


@pytest.mark.parametrize("client", [V1, V2, None], ids=["v1", "v2", "changing"])
@settings(max_examples=100)
@given(ELECTED, HOLES, st.booleans(), st.booleans())
def test_no_log_that_lost_its_end_proves_the_absence_of_a_commit(
    client: int | None, steps: Any, holes: list[bool], expired: bool, reads: bool
) -> None:
    """For every commit, also a lost one, whose marker the partition missed, and every marker that it had before."""
    made = elected(client, steps)
    for at, txn in enumerate(made.transactions):
        if not (txn.committed and txn.names):
            continue
        before = zip(made.transactions[:at], made.leaders[:at], strict=True)
        markers = {leader for one, leader in before if one.names and one.producer_id == txn.producer_id}
        for coordinator_epoch in (-1, *markers):
            for left in remains(made, holes):
                o = open_data(txn, coordinator_epoch)
                found = evidence_of(made, left, o, expired)
                logged = tuple(as_read(one, made, reads) for one in found.logged)
                assert outcome(replace(found, logged=logged)).outcome is not NOT, (txn, made.records, left)


def as_read(one: LoggedTransaction, made: Elections, reads: bool) -> LoggedTransaction:
    """The record as the last leader shows it. reads: whether reads at the leader epochs of the records show them."""
    leader_epoch = made.leader_epoch if one.state is State.DEAD else one.leader_epoch
    shown = reads or leader_epoch == made.leader_epoch
    return replace(one, leader_epoch=leader_epoch, acknowledged=shown, log_epoch=made.leader_epoch)


SMALL_STEPS: tuple[Step, ...] = (
    *(("end", frozenset({P}), committed, 1, ()) for committed in (True, False)),
    *(("end", frozenset({P, Q}), committed, 1, (not committed,)) for committed in (True, False)),
    *(("end", frozenset({Q}), True, 1, lost) for lost in ((), (True,))),
    *((kind, frozenset[Key](), False, 1, ()) for kind in ("init", "lose init")),
)


@pytest.mark.parametrize("clients", [(V2, V2), (V1, V1), (V1, V2)], ids=["v2", "v1", "v1 and then v2"])
def test_no_log_of_two_transactions_with_gaps_contradicts_a_decision(clients: tuple[int, int]) -> None:
    tried = 0
    for steps in product(SMALL_STEPS, repeat=3):
        made = history(-1, zip(steps, (clients[0], *clients), strict=True))
        if len(made.transactions) > 2 or len(made.records) > 9:
            continue
        for left in product((True, False), repeat=len(made.records) - 1):
            for txn in made.transactions:
                if txn.names:
                    found = outcome(evidence_of(made, left, open_data(txn, -1), expired=False))
                    assert not contradicts(found, txn.committed), (made.records, left, txn, found)
                    tried += 1
    assert tried > 1_000


# --- peer partitions, evidence, judgement -----------------------------------------------------------------------------

KEYS = [("k", n) for n in range(9)]


@pytest.mark.parametrize(
    ("logged", "peers"),
    [
        (v2(COMMIT, P, Q), PeerPartitions(("q-0",), (4,), NOW_MS)),
        ([ongoing(3, P, Q, client=V2)], PeerPartitions(("q-0",), (4,), NOW_MS)),
        (v2(ABORT, P, Q)[1:], PeerPartitions(("q-0",), (4,), NOW_MS)),
        (v2(ABORT, P, Q), PeerPartitions(("q-0",), (4,), NOW_MS)),
        (v1(COMMIT, P, Q, ("a", 1)), PeerPartitions(("a-1", "q-0"), (3, 4), NOW_MS)),
        (
            [*v1(COMMIT, Q), *v1(ABORT, ("a", 1), start_time_ms=NOW_MS - 9)],
            PeerPartitions(("a-1", "q-0"), (3, 4), NOW_MS - 9),
        ),
        ([*v1(ABORT, Q), *v2(COMMIT, P, Q)], PeerPartitions(("q-0",), (3, 4), NOW_MS)),
        ([ongoing(3, Q), GAP, prepare(COMMIT, 4, P, client=V2)], PeerPartitions(("q-0",), (3, 4), NOW_MS)),
        ([ongoing(3, P, *KEYS)], PeerPartitions(tuple(f"k-{n}" for n in range(9)), (3, 4), NOW_MS)),
        ([prepare(ABORT, 3, P, Q)], PeerPartitions(("q-0",), (3, 4), NOW_MS)),
        ([prepare(ABORT, 3, Q, client=V2)], None),
        ([prepare(ABORT, 2, Q), prepare(ABORT, 5, Q)], None),
        ([*v2(COMMIT, Q, epoch=2), *v2(COMMIT, Q, epoch=4)], None),
        (v2(COMMIT, Q, producer_id=8), None),
        (v2(COMMIT, P), None),
        ([], None),
    ],
    ids=[
        "of a transaction under v2, whose marker is at the next epoch",
        "of one whose end is missing",
        "of an abort whose beginning is missing, and which may be of this epoch",
        "of an abort",
        "under v1 its marker may be at this epoch too",
        "of each transaction of the epoch, since the first of them began",
        "where one of them is of v1, its marker may be at this epoch",
        "so it may where the end of that one is missing",
        "in order",
        "under v1 of an abort whose beginning is missing, at this epoch too",
        "under v2 that one is of the epoch before",
        "not of an abort too far from this epoch",
        "not of other epochs",
        "not of other producer ids",
        "not this partition itself",
        "of nothing",
    ],
)
def test_peer_partitions_are_the_other_partitions_of_the_transaction(
    logged: Sequence[LoggedTransaction | None], peers: PeerPartitions | None
) -> None:
    assert told(logged).peers == peers


BOTH_COMMITTED = [*v2(COMMIT, P, Q, epoch=6), *v2(COMMIT, P, ("a", 1), epoch=7, start_time_ms=NOW_MS + 9)]
BOTH_ABORTED = [empty(0), *v2(ABORT, P, Q, epoch=0), *v2(ABORT, P, ("a", 1), epoch=1)]
END_MISSING = [*BEFORE, ongoing(3, P, Q, client=V2), GAP, *v2(ABORT, P, epoch=4)]


@pytest.mark.parametrize(
    ("logged", "first_epoch", "last_epoch", "peers"),
    [
        (BOTH_COMMITTED, 6, 7, PeerPartitions(("a-1", "q-0"), (7, 8), NOW_MS)),
        (BOTH_COMMITTED, 6, 8, PeerPartitions(("a-1", "q-0"), (7, 8), NOW_MS)),
        (BOTH_COMMITTED, 7, 7, PeerPartitions(("a-1",), (8,), NOW_MS + 9)),
        (BOTH_COMMITTED, None, 8, PeerPartitions(("a-1", "q-0"), (7, 8), NOW_MS)),
        (END_MISSING, None, 4, PeerPartitions(("q-0",), (4,), NOW_MS)),
        (BOTH_ABORTED, 0, 1, PeerPartitions(("a-1", "q-0"), (1, 2), NOW_MS)),
        (BOTH_ABORTED, None, 1, PeerPartitions(("a-1",), (2,), NOW_MS)),
        (BOTH_ABORTED, None, 9, None),
        ([], None, 4, None),
    ],
    ids=[
        "of both epochs",
        "of all epochs that have any",
        "of the one epoch alone",
        "of every epoch that may have committed, where the first is not known",
        "of an epoch whose end is missing, where the first is not known",
        "of aborts",
        "of the last abort alone, where the first epoch is not known",
        "not of aborts of earlier epochs",
        "of nothing",
    ],
)
def test_peer_partitions_cover_every_epoch_of_the_open_data(
    logged: Records, first_epoch: int | None, last_epoch: int, peers: PeerPartitions | None
) -> None:
    assert told(logged, {"producer_epoch": last_epoch}, first_epoch=first_epoch).peers == peers


def test_an_outcome_includes_the_failure_of_the_log() -> None:
    assert told(COMMITTED_V2, log_failure=failed("it moved")).log_failure == failed("it moved")
    assert told(COMMITTED_V2).log_failure is None


def test_the_evidence_lists_the_chain(wording: SnapshotAssertion) -> None:
    found = told([empty(1), *BEFORE, *v2(COMMIT, P), *v2(COMMIT, Q, epoch=4)])
    assert found.evidence == wording
    assert [line.split()[3].rstrip(",") for line in found.evidence] == [
        *("Empty", "Empty", "Ongoing", "PrepareCommit", "CompleteCommit"),
    ]


def test_without_an_earlier_chain_the_evidence_is_the_remaining_log() -> None:
    assert [line.split()[1] for line in told(v2(COMMIT, P)).evidence] == ["0:", "1:", "2:"]


def test_the_evidence_has_the_last_50_records_of_a_long_chain() -> None:
    found = told([*BEFORE, *(ongoing(3, ("q", n)) for n in range(60)), empty(4)])
    assert [line.split()[1] for line in found.evidence] == [f"{offset}:" for offset in range(13, 63)]


def test_a_judged_transaction_tells_its_known_outcome() -> None:
    before, found = judged(view("Empty", 9)), KnownOutcome(NOT, "it never committed")
    after = with_outcome(before, found)
    assert (after.judgement, after.evidence) == (before.judgement, before.evidence)
    assert (before.outcome, before.outcome_reason) == (None, None)
    assert (after.outcome, after.outcome_reason) == ("not_committed", "it never committed")


def test_an_outcome_from_stored_records_names_the_sweep(wording: SnapshotAssertion) -> None:
    stored = [replace(one, stored_by="sweep s1 of 2026-01-01 10:00 UTC") for one in v2(COMMIT, P)]
    found = told([*BEFORE, *stored])
    assert found.outcome is COMMITTED
    assert [found.why, *found.evidence] == wording
    assert "s1" not in told([*BEFORE, *stored], {"last_timestamp_ms": 2 * NOW_MS}).why


@pytest.mark.parametrize(
    ("logged", "expected"),
    [
        (COMMITTED_V2, COMMITTED),
        (ABORTED_V2, NOT),
        ([*ABORTED_V2, *v2(COMMIT, P, epoch=4)], MIXED_DATA),
    ],
    ids=["committed", "not committed", "mixed"],
)
def test_every_certain_outcome_names_the_sweeps_of_its_records(logged: Records, expected: Outcome) -> None:
    sweeps = [f"s{number}" for number in range(8, 0, -1)]
    stored = [replace(one, stored_by=sweep) for one, sweep in zip(logged, sweeps, strict=False)]
    last_epoch = 4 if expected is MIXED_DATA else 3
    found = told(stored, {"producer_epoch": last_epoch}, **FROM_3)
    assert found.outcome is expected
    named = [word for word in found.why.split() if word in sweeps]
    assert named == sorted(sweeps[: len(logged)])
