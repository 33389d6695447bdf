"""Clusters that lose markers and records."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tests.prove.compaction import batches
from txnscan import ScanConfig, sweep
from txnscan.api import SweepResult
from txnscan.demo import plant
from txnscan.demo.producer import Producer
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.tables.conditions import Is
from txnscan.tables.delta import Row
from txnscan.tables.open import open_tables
from txnscan.tables.schema import INCIDENTS

RECORDS = [b"record %d" % number for number in range(5)]
MARKERS = {b"\x00\x00\x00\x00": "ABORT", b"\x00\x00\x00\x01": "COMMIT"}


def markers(wire: Wire, topic: str) -> list[str]:
    """The markers on a topic, in order."""
    found = (record for batch in batches(wire, (topic, 0)) if batch.is_control for record in batch.records or ())
    return [MARKERS[bytes(key or b"")] for _, key, _ in found]


def by_topic(swept: SweepResult) -> dict[str, Any]:
    """The rows of a sweep: each topic has at most one open transaction."""
    assert isinstance(swept.transactions, pa.Table)
    return {row["topic"]: row for row in swept.transactions.to_pylist()}


KEEPER, AWAY = 1, 3
MORE = [b"more"] * 3


def swept(config: ScanConfig, minutes_ago: int) -> dict[str, str | None]:
    """The outcomes that a sweep tells whose clock is so late."""
    with pytest.MonkeyPatch.context() as patch:
        late = SimpleNamespace(time_ns=lambda: time.time_ns() - minutes_ago * 60_000_000_000)
        patch.setattr("txnscan.kafka.clock.time", late)
        patch.setattr("txnscan.engine.clock.time", late)
        return {topic: row["outcome"] for topic, row in by_topic(sweep(None, config)).items()}


def incidents_of(config: ScanConfig, topic: str) -> list[Row]:
    """All incidents of a topic."""
    return open_tables(str(config.tables), None).rows(INCIDENTS, Is("topic", topic))


def ended_all(wire: Wire, producers: Mapping[str, Producer], commits: Mapping[str, bool]) -> None:
    """Ends transactions, with a commit or not, and waits until their coordinator counts them as complete."""
    states = {}
    for name, commit in commits.items():
        producers[name].end(commit=commit)
        states[str(producers[name].transactional_id)] = "CompleteCommit" if commit else "CompleteAbort"
    wait_until(lambda: {i: plant.describe_owner(wire, i).state for i in states} == states, "all were complete")
