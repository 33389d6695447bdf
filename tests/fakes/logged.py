"""Records of one transactional id in a log without gaps, one second after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.builders import MINUTE_MS, NOW_MS
from txnscan.kafka.answers import State
from txnscan.txnlog.facts import LoggedTransaction

START_MS = NOW_MS - 60 * MINUTE_MS


def logged(offset: int, state: State, epoch: int, *partitions: tuple[str, int], **changes: Any) -> LoggedTransaction:
    """A record of X with producer id 7, one second after its predecessor, in a log without gaps."""
    base = LoggedTransaction(
        offset=offset,
        contiguous_from=0,
        transactional_id="X",
        producer_id=7,
        producer_epoch=epoch,
        state=state,
        partitions=frozenset(partitions),
        client_version=0,
        start_time_ms=START_MS,
        updated_ms=START_MS + offset * 1_000,
        leader_epoch=0,
        acknowledged=True,
        log_epoch=0,
        epochs_rise=True,
    )
    return replace(base, **changes)


AGAIN = logged(1, State.EMPTY, 3)
