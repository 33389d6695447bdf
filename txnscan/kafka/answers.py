"""The answers of brokers, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from txnscan.kafka.failure import Failure

# The timeout of a transaction in a two-phase commit (KIP-939). It means that there is no timeout: an external
# coordinator decides.
TWO_PHASE_COMMIT_TIMEOUT_MS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The end of a leader epoch in a log: the offset after its last batch."""

    leader_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class CoordinatorView:
    """A transactional id as one broker describes it, and why that broker may not be its proven coordinator.

    `partitions` are "topic-partition" names. `coverage_failure` is None if coverage holds for the id's
    `__transaction_state` partition. `split_failure` names the brokers if several say that they coordinate that
    partition.
    """

    transactional_id: str
    broker_id: int
    producer_id: int
    producer_epoch: int = -1
    state: str = ""
    timeout_ms: int = -1
    start_time_ms: int = -1
    partitions: tuple[str, ...] = ()
    describe_failure: Failure | None = None
    coverage_failure: Failure | None = None
    split_failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class OpenProducer:
    """A producer with an open transaction, as DescribeProducers shows it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int
    last_sequence: int


class State(StrEnum):
    """`TransactionState`, in the order of the numbers that the log has for the states."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


# The coordinator has decided, and owes markers.
PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
# The coordinator has decided, and every marker was acknowledged or skipped.
COMPLETE = (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
AT_REST = (State.EMPTY, *COMPLETE)
IN_TRANSACTION = (State.ONGOING, *PREPARED)
