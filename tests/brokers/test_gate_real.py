"""`gate` and `sweep --complete-up-to` on real brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.brokers.shared import Shared
from tests.process import run_here
from txnscan.demo.admin import create_topic
from txnscan.demo.producer import Producer
from txnscan.demo.wait import wait_until
from txnscan.tables.open import open_tables
from txnscan.tables.schema import TOPIC_READS


class Asked:
    """The gate of a topic with two partitions."""

    def __init__(self, shared: Shared, topic: str) -> None:
        self.shared, self.topic = shared, topic
        create_topic(shared.wire, topic, [[1], [2]])

    def gate(self, status: int, *options: str) -> dict[str, Any]:
        """The object of the topic, at this exit status."""
        ran = run_here("gate", "--topic", self.topic, "--format", "json", *options)
        assert ran.returncode == status, (ran.stdout, ran.stderr)
        (found,) = json.loads(ran.stdout)["topics"]
        return dict(found)

    @property
    def brokers(self) -> tuple[str, str]:
        """Options."""
        return ("--bootstrap-server", self.shared.bootstrap_servers)

    def sweep(self, tables: str, *options: str) -> None:
        """A sweep of another topic. It stores this topic too."""
        ran = run_here(
            *("sweep", *self.brokers, "--tables", tables, "--engine", "threads", "--topic", "clicks"),
            *("--complete-up-to", self.topic, *options),
        )
        assert ran.returncode == 0, ran.stderr

    def open_transaction(self, name: str, partition: int = 0) -> Producer:
        """A producer with a record in an open transaction."""
        producer = Producer(self.shared.wire, f"{self.topic}-{name}")
        producer.init_producer_id()
        producer.write(self.topic, partition, [b"1"])
        return producer


@pytest.fixture
def asked(shared: Shared, request: pytest.FixtureRequest) -> Iterator[Asked]:
    yield Asked(shared, f"gate-{request.node.name.replace('_', '-')}")


def test_an_open_transaction_closes_the_gate_until_its_commit(asked: Asked) -> None:
    before = asked.gate(0, *asked.brokers, "--wait", "0s")
    assert (before["state"], before["partitions"], before["complete_up_to"]) == ("complete", 2, before["read_at"])
    producer = asked.open_transaction("a", partition=1)
    blocked = asked.gate(3, *asked.brokers, "--wait", "0s")
    assert (blocked["state"], blocked["complete_up_to"]) == ("blocked", None)
    assert [(one["partition"], one["last_stable_offset"]) for one in blocked["blocked"]] == [(1, 0)]
    producer.end(commit=True)
    after = asked.gate(0, *asked.brokers, "--wait", "60s")
    assert (after["state"], after["blocked"], after["not_observed"]) == ("complete", [], [])
    assert asked.gate(3, *asked.brokers, "--wait", "0s", "--until", "2999-01-01T00:00:00Z")["state"] == "not_yet"


def test_stored_reads_open_the_gate_although_a_later_transaction_is_open(asked: Asked, tmp_path: Path) -> None:
    """A busy topic always has open transactions. Those of the last sweep have ended since."""
    tables, metrics = str(tmp_path / "tables"), tmp_path / "metrics.prom"
    first = asked.open_transaction("a")
    asked.sweep(tables)
    second = asked.open_transaction("b")
    first.end(commit=True)
    wait_until(lambda: blocked_from(asked) == 1, "the commit is replicated")
    asked.sweep(tables, "--metrics-file", str(metrics))
    rows = sorted(open_tables(tables, None).rows(TOPIC_READS), key=lambda row: row["read_at"])
    assert [(row["topic"], row["status"], row["complete_up_to"]) for row in rows] == [
        (asked.topic, "blocked", None),
        (asked.topic, "blocked", rows[0]["read_at"]),
    ]
    then, later = (row["read_at"].isoformat() for row in rows)
    assert f'complete_up_to_timestamp_seconds{{cluster="{asked.shared.bootstrap_servers}"' in metrics.read_text()
    for source in (("--tables", tables), ("--tables", tables, *asked.brokers, "--wait", "0s")):
        assert asked.gate(0, *source, "--until", then)["state"] == "complete"
        assert asked.gate(3, *source, "--until", later)["state"] == "blocked"
    second.end(commit=False)
    assert asked.gate(0, "--tables", tables, *asked.brokers, "--until", later)["state"] == "complete"


def blocked_from(asked: Asked) -> int | None:
    """The last stable offset of the blocked partition."""
    (one,) = asked.gate(3, *asked.brokers, "--wait", "0s")["blocked"]
    return int(one["last_stable_offset"])


def test_a_topic_that_does_not_exist_is_a_usage_error_at_once(shared: Shared) -> None:
    # The wait would end the test's process.
    ran = run_here("gate", "--bootstrap-server", shared.bootstrap_servers, "--topic", "gate-nowhere", "--wait", "1h")
    assert (ran.returncode, ran.stdout) == (2, "")
