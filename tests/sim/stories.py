"""Instructive histories. For each proof obligation: a history in which a sweep without it accuses a healthy
transaction. For each condition of a claim: a history in which a sweep without it treats a hanging transaction as
claimed.

Each history was found by search (`exhaustive.py`, `wander.py`) and then shortened as far as possible. `make simulate`
shows them step by step, and `tests/search/test_obligations.py` checks that the real sweep is right in each of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.sim.check import History
from tests.sim.scenarios import ARENAS, LATE_IN_PREPARE, A, P
from tests.sim.table import Event


@dataclass(frozen=True)
class Story:
    """without: the obligation that this history needs, by its name in `obligations.DROPPED`."""

    without: str
    history: History
    tells: str


def _history(without: str, before: tuple[Event, ...] = (), during: tuple[tuple[int, Event], ...] = ()) -> History:
    arena = ARENAS[without]
    return History(arena.scenario, arena.opening, before, during)


def _all_at(point: int, *events: Event) -> tuple[tuple[int, Event], ...]:
    return tuple((point, event) for event in events)


# A new instance of the producer fences the old one. Its transaction is aborted on the leader that coordinators know.
ENDED_ELSEWHERE: tuple[Event, ...] = (
    *(("InitProducerId", (3, A)), ("complete transition", (3, A)), ("write marker", (3, A, P))),
    *(("marker acknowledged", (3, A, P)), ("write completion", (3, A)), ("complete transition", (3, A))),
)
STORIES = {
    story.without: story
    for story in (
        Story(
            "plan",
            _history("plan", before=(("append data", (0,)),)),
            "Broker 1 is cut off from the controller. It believes that it leads p-0, but broker 2 does. A late record "
            "of an aborted transaction reaches broker 2 and hangs there. On broker 1 nothing is open, and a sweep that "
            "plans from its metadata asks no other broker.",
        ),
        Story(
            "leader",
            _history(
                "leader",
                before=ENDED_ELSEWHERE,
            ),
            "Broker 1 is cut off from the controller and believes that it still leads p-0; broker 2 does. A new "
            "instance of the producer fences the old one, its transaction is aborted, and broker 2 has the marker. "
            "Broker 1 never gets it and shows the transaction as open for ever, though it ended.",
        ),
        Story(
            "newest",
            _history("newest", before=ENDED_ELSEWHERE),
            "The same. ListOffsets with a leader epoch and DescribeProducers ask broker 1 alone. It believes that it "
            "leads p-0, and its metadata says so. The image of broker 2 is newer.",
        ),
        Story(
            "elected",
            _history("elected"),
            "Broker 1 led the log of the transaction's id, then broker 2, and now broker 1 again. Broker 1 has fetched "
            "what broker 2 wrote, but its coordinator has heard of neither election. It answers from what it cached at "
            "first, without the transaction that began meanwhile.",
        ),
        Story(
            "quorum",
            _history("quorum"),
            "Broker 1 and the leader of the controllers are cut off together, and both were replaced. Broker 2 leads "
            "the log of the transaction's id, and does not answer. Broker 1 believes that it leads that log still. It "
            "asks the deposed leader of the controllers, and its image has all that this one knows.",
        ),
        Story(
            "high-watermark",
            _history(
                "high-watermark",
                before=(("append data", (0,)), ("move leader", (P, 2))),
            ),
            "A late record of an aborted transaction reaches the leader, and no follower has it yet. The controller "
            "has already made another broker the leader, but nobody has heard of it. The record will be truncated: "
            "what is above the high watermark is not written yet.",
        ),
        Story(
            "coverage",
            _history(
                "coverage",
                before=(
                    ("move leader", (("__transaction_state", 0), 2)),
                    ("publish metadata", (1,)),
                    ("apply to replicas", (1,)),
                ),
                during=((16, ("elect coordinators", (1,))),),
            ),
            "The coordinator moves from broker 1 to broker 2. Broker 1 forgets its ids in the middle of the sweep; "
            "broker 2 has not heard yet that it leads. Both list nothing, without an error, and the transaction that "
            "one of them will go on with looks like an orphan.",
        ),
        Story(
            "visibility",
            _history(
                "visibility",
                before=(
                    ("AddPartitionsToTxn", (1, A, P)),
                    ("complete transition", (1, A)),
                    ("send data", (A, P, 1)),
                    ("append data", (0,)),
                ),
            ),
            "A healthy transaction, whose id the scanner's principal may not describe. Its coordinator lists it to "
            "others, and leaves it out here without a word.",
        ),
        Story(
            "second-read",
            _history(
                "second-read",
                during=_all_at(
                    15,
                    ("write marker", (1, A, P)),
                    ("marker acknowledged", (1, A, P)),
                    ("write completion", (1, A)),
                    ("complete transition", (1, A)),
                ),
            ),
            "A transaction is open when the partition is read, and commits before its coordinator is asked, which then "
            "rightly says that it is complete and owes nobody anything.",
        ),
        Story(
            "order",
            _history(
                "order",
                during=_all_at(
                    13,
                    ("AddPartitionsToTxn", (1, A, P)),
                    ("complete transition", (1, A)),
                    ("send data", (A, P, 1)),
                    ("append data", (0,)),
                ),
            ),
            "The coordinators are asked first, when the producer is at rest. Then it begins a transaction, which both "
            "reads of the partition find open, and which no coordinator had shown.",
        ),
        Story(
            "prepare",
            History(
                LATE_IN_PREPARE.scenario,
                LATE_IN_PREPARE.opening,
                before=(
                    ("write marker", (1, A, P)),
                    ("marker acknowledged", (1, A, P)),
                    ("append data", (0,)),
                    ("move leader", (("__transaction_state", 0), 2)),
                ),
                during=(),
            ),
            "The producer aborts, p-0 has acknowledged the marker and has left the list in the coordinator's memory. A "
            "late record arrives and nobody seems to owe it an end. But the log still lists p-0 until the abort is "
            "complete, and before that the coordinator moves: the new one reads the log and sends the marker again, "
            "which ends the late record.",
        ),
        Story(
            "log",
            _history("log", before=(("partial load", (2, 0, 0)),)),
            "A healthy transaction is ongoing. Its coordinator moves, and the new one fails to read its log and takes "
            "it for empty. It proves that it serves the id's partition of the log, and knows nothing of the id, so "
            "that the transaction looks like an orphan. The log shows who owns it, and whoever loads it next knows.",
        ),
        Story(
            "claimant",
            _history("claimant"),
            "Broker 1 coordinates a transaction and is cut off. Broker 2 takes over, aborts it, and is done. A late "
            "record of it arrives and hangs. Broker 1 has heard of nothing and goes on saying that it holds the "
            "transaction, but can end nothing any more: whoever believes it never looks further.",
        ),
        Story(
            "claim",
            _history("claim", before=(("append data", (0,)),)),
            "The producer's transaction on p-0 was aborted, and a late record of it hangs there. Its next transaction "
            "is ongoing on q-0, with the same producer id: its coordinator holds q-0, and nobody ends what is on p-0.",
        ),
    )
}
