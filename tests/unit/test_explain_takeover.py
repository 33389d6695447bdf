"""What fenced a producer, by the records of its id in the transaction log."""

from __future__ import annotations

from tests.cases import Cases
from txnscan.explain.takeover import Takeover, takeover
from txnscan.kafka.answers import State
from txnscan.txnlog.facts import LoggedTransaction

TIMEOUT_MS = 60_000


def at(state: State, epoch: int, second: int, *, began: int = -1, producer_id: int = 7) -> LoggedTransaction:
    """A record. Times are in seconds."""
    start_ms = began * 1_000 if began >= 0 else -1
    return LoggedTransaction(
        second, second, "X", producer_id, epoch, state, frozenset(), 2, start_ms, second * 1_000, TIMEOUT_MS
    )


EMPTY, ONGOING, DEAD = State.EMPTY, State.ONGOING, State.DEAD
ABORTING, ABORTED = State.PREPARE_ABORT, State.COMPLETE_ABORT
COMMITTING, COMMITTED = State.PREPARE_COMMIT, State.COMPLETE_COMMIT

FIRST = (at(EMPTY, 0, 0), at(ONGOING, 0, 10, began=10))
TIMED_OUT = (*FIRST, at(ABORTING, 1, 75, began=10), at(ABORTED, 1, 76, began=10))
TAKEN_OVER = (*FIRST, at(ABORTING, 1, 20, began=10), at(ABORTED, 1, 21, began=10), at(EMPTY, 2, 22))
FOUGHT = (*TAKEN_OVER, at(EMPTY, 3, 30), at(EMPTY, 4, 40))
PUNCTUAL = at(ABORTING, 1, 70, began=10)
OWN_END = (*FIRST, at(COMMITTING, 1, 20, began=10), at(COMMITTED, 1, 21, began=10))

CASES: tuple[tuple[str, tuple[LoggedTransaction, ...], int | None, int | None, Takeover | None], ...] = (
    ("its transaction timed out", TIMED_OUT, 7, 0, Takeover(75_000, TIMED_OUT[2])),
    ("the epoch is not known", TIMED_OUT, None, None, Takeover(75_000, TIMED_OUT[2])),
    ("it timed out, and an instance followed", (*TIMED_OUT, at(EMPTY, 2, 90)), 7, 0, Takeover(75_000, TIMED_OUT[2])),
    ("the last event counts", (*TIMED_OUT, at(EMPTY, 2, 900)), None, None, Takeover(900_000, None, 1, 900_000)),
    ("an instance took over", TAKEN_OVER, 7, 0, Takeover(22_000, None, 1, 22_000)),
    ("the producer id is not known", TAKEN_OVER, None, 0, Takeover(22_000, None, 1, 22_000)),
    ("instances fight", FOUGHT, 7, 0, Takeover(22_000, None, 3, 40_000)),
    ("a later one of them is asked about", FOUGHT, 7, 3, Takeover(40_000, None, 1, 40_000)),
    ("one took over, and the epoch is not known", TAKEN_OVER, None, None, Takeover(22_000, None, 1, 22_000)),
    ("they fight, and the epoch is not known", FOUGHT, None, None, Takeover(22_000, None, 3, 40_000)),
    ("later instances are no fight", (*TAKEN_OVER, at(EMPTY, 3, 7_000)), 7, 0, Takeover(22_000, None, 1, 22_000)),
    ("it ended its transaction itself", OWN_END, 7, 0, None),
    ("it is the only instance", FIRST[:1], None, None, None),
    ("it is at its epoch", FIRST, 7, 0, None),
    ("the log has nothing", (), 7, 0, None),
    (
        "another producer id",
        (*FIRST, at(EMPTY, 0, 50, producer_id=8)),
        7,
        0,
        Takeover(50_000, None, 1, 50_000),
    ),
    ("an abort before the timeout is its own", (*FIRST, at(ABORTING, 1, 69, began=10)), 7, 0, None),
    ("an abort at the timeout", (*FIRST, PUNCTUAL), 7, 0, Takeover(70_000, PUNCTUAL)),
    ("it expired", (*OWN_END, LoggedTransaction(99, 99, "X", -1, -1, DEAD, frozenset(), 0, -1, 99_000)), 7, 1, None),
)  # fmt: skip


def test_the_log_shows_what_fenced_a_producer() -> None:
    with Cases() as cases:
        for why, logged, producer_id, epoch, expected in CASES:
            with cases.case(why):
                assert takeover(logged, producer_id, epoch) == expected
