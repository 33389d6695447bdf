"""Brokers and a journal for an apply."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tests.builders import NOW_MS, judged, known, plan, stored, view
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import Failure
from txnscan.kafka.protocol.write_txn_markers import MarkerToWrite
from txnscan.resolve.apply import (
    Attempt,
    JournalLost,
    PartitionState,
    Status,
)
from txnscan.resolve.plan import Action, Plan
from txnscan.txnlog.facts import SeenMarker
from txnscan.verdict.evidence import Judged, PeerPartitions, Reason
from txnscan.verdict.outcome import with_outcome

PLAN = plan(stored())
(ACTION,) = PLAN.actions
GONE = PartitionState(is_open=False, last_stable_offset=105, high_watermark=105)


class Crash(BaseException):
    """The end of the process."""


def now(
    *views: Any,
    outcome: str | None = "not_committed",
    reason: Reason | None = None,
    log_failure: Failure | None = None,
    **changes: Any,
) -> Judged:
    """The current state at the brokers: the state of the plan, with these changes."""
    found = judged(*(views or (view("Empty", 9),)), **changes)
    found = replace(found, judgement=replace(found.judgement, reason=reason or found.judgement.reason))
    return with_outcome(found, known(outcome, log_failure=log_failure)) if outcome is not None else found


@dataclass
class FakeBrokers:
    """Answers as configured and records the calls. An exception in place of an answer is raised."""

    calls: list[str] = field(default_factory=list)
    proof: Judged | BaseException | None = field(default_factory=now)
    # The results of the last looks, in order. The last result repeats. Default: the result of the proof.
    looks: Sequence[Judged | BaseException | None] = ()
    seen_at_peer: SeenMarker | BaseException | None = None
    unreachable: RequestFailed | None = None
    answers: Sequence[int | BaseException] = (0,)
    state: PartitionState = GONE
    written: list[tuple[int, MarkerToWrite]] = field(default_factory=list)
    principal: str = "User:ops"
    # The number of proofs after which the time limit of all is over.
    proofs_max: int = 1_000

    @property
    def time_is_up(self) -> str | None:
        return "the time limit is over" if self.calls.count("prove") >= self.proofs_max else None

    def prove(self, action: Action) -> Judged | None:
        self.calls.append("prove")
        if isinstance(self.proof, BaseException):
            raise self.proof
        return self.proof

    def prove_without_log(self, action: Action) -> Judged | None:
        self.calls.append("prove without log")
        at = min(self.calls.count("prove without log"), len(self.looks)) - 1
        looked = self.looks[at] if self.looks else self.proof
        if isinstance(looked, BaseException):
            raise looked
        return looked

    def commit_seen(self, peers: PeerPartitions, producer_id: int) -> SeenMarker | None:
        self.calls.append(f"peers {', '.join(peers.partitions)}")
        if isinstance(self.seen_at_peer, BaseException):
            raise self.seen_at_peer
        return self.seen_at_peer

    @contextmanager
    def marker_connection(self, leader: int) -> Iterator[Callable[[MarkerToWrite], int]]:
        self.calls.append("connect")
        if self.unreachable is not None:
            raise self.unreachable
        yield lambda marker: self.write(leader, marker)

    def write(self, leader: int, marker: MarkerToWrite) -> int:
        self.calls.append("write")
        answer = self.answers[min(len(self.written), len(self.answers) - 1)]
        self.written.append((leader, marker))
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def read_partition(self, action: Action, *, sent: bool = True) -> PartitionState:
        self.calls.append("read partition")
        return self.state


@dataclass
class FakeJournal:
    """Keeps attempts as the tables do and records the calls. lost_at: the number of the hold that fails."""

    calls: list[str] = field(default_factory=list)
    kept: list[Attempt] = field(default_factory=list)
    now_ms: int = NOW_MS
    lost_at: int | None = None
    fails_to_conclude: bool = False
    holds: int = 0
    remembered: list[SeenMarker] = field(default_factory=list)

    def remember(self, plan: Plan, marker: SeenMarker) -> None:
        self.remembered.append(marker)

    def attempts(self, cluster_id: str) -> Sequence[Attempt]:
        assert cluster_id == "cluster-1"
        return tuple(self.kept)

    def intend(self, plan: Plan, action: Action, forced: str | None) -> str:
        self.calls.append("intend")
        bare = replace(action, needs=None, transactional_id=None, blocked_records=None, why="")
        self.kept.append(Attempt(f"attempt-{len(self.kept)}", plan.digest, self.now_ms, bare, None))
        return self.kept[-1].attempt_id

    def conclude(self, plan: Plan, attempt_id: str, action: Action, status: Status, detail: str) -> None:
        self.calls.append("conclude")
        if self.fails_to_conclude:
            raise Crash
        self.kept = [replace(one, status=status.value) if one.attempt_id == attempt_id else one for one in self.kept]

    def hold(self) -> None:
        self.calls.append("hold")
        self.holds += 1
        if self.holds == self.lost_at:
            raise JournalLost("somebody else has taken over")
