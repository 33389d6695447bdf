"""kafka-python's finder of hanging transactions beside txnscan's, on the same planted transactions.

kafka-python lists the transactions that coordinators know, and reports the old ones. No coordinator will end a hanging
transaction, so the list does not have it, at any age limit. At the age limit 0 the finder reports every transaction
that it can see.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest
from kafka import KafkaAdminClient

from tests.brokers.shared import SCENE_TOPICS, Shared
from tests.cases import Cases
from tests.prove.faults.admin import delete_topic
from txnscan import ScanConfig, find_hanging
from txnscan.demo import plant
from txnscan.demo.admin import create_topic
from txnscan.demo.producer import Producer

# kafka-python adds five minutes to the timeout that it is given.
NO_AGE_LIMIT = -5 * 60_000
AGAIN, ELSEWHERE = "finders-again", "finders-elsewhere"

# The open transaction; whether kafka-python reports its partition without an age limit; verdict and reason of txnscan.
TABLE = (
    ("the coordinator knows no such producer", "clicks-0", False, "hanging", "orphan"),
    ("the same, dated ahead", "sensors-0", False, "hanging", "orphan"),
    ("the id is at rest, one epoch on", "shipments-0", False, "hanging", "stale_epoch"),
    ("the id is in another transaction", f"{AGAIN}-0", False, "hanging", "stale_epoch"),
    ("committed except for this partition", "payments-solo-0", False, "hanging", "missed_commit"),
    ("not added by its owner, which lives", "invoices-1", False, "hanging", "live_epoch"),
    ("the partition that this owner added", "invoices-0", True, "ongoing", "owned"),
    ("a live transaction with old records", "backfill-0", True, "ongoing", "owned"),
    ("the other transaction of the id", f"{ELSEWHERE}-0", True, "ongoing", "owned"),
)


@dataclass(frozen=True)
class Reports:
    """Partitions that kafka-python reports without an age limit, and with its default one; the verdict and reason of
    txnscan by partition.
    """

    listed: frozenset[str]
    listed_by_default: frozenset[str]
    judged: dict[str, tuple[str, str]]


@pytest.fixture(scope="module")
def reports(shared: Shared) -> Iterator[Reports]:
    """One run of each finder, while an id with open data at an old epoch is in another transaction."""
    plant.stale_epoch(shared.wire, AGAIN)
    create_topic(shared.wire, ELSEWHERE, [[1]])
    owner = Producer(shared.wire, f"{AGAIN}-service")
    owner.init_producer_id()
    owner.write(ELSEWHERE, 0, [b"a record"])
    config = ScanConfig(shared.bootstrap_servers, topic_names=(*SCENE_TOPICS, AGAIN, ELSEWHERE))
    yield Reports(
        reported(shared, NO_AGE_LIMIT),
        reported(shared),
        {
            j.observation.topic_partition: (str(j.judgement.verdict), str(j.judgement.reason))
            for j in find_hanging(config).transactions
        },
    )
    owner.end(commit=False)
    for topic in (AGAIN, ELSEWHERE):
        delete_topic(shared.wire, topic)


def reported(shared: Shared, *timeout_ms: int) -> frozenset[str]:
    """The partitions that kafka-python's finder reports, at this timeout or at its default."""
    with closing(KafkaAdminClient(bootstrap_servers=shared.bootstrap_servers)) as admin:
        found = admin.find_hanging_transactions(None, *timeout_ms)
    return frozenset(f"{tp.topic}-{tp.partition}" for row in found for tp in row["topic_partitions"])


def test_kafka_python_reports_live_transactions_and_no_hanging_one(reports: Reports) -> None:
    with Cases() as cases:
        for what, partition, listed, verdict, reason in TABLE:
            with cases.case(what):
                assert (partition in reports.listed, *reports.judged[partition]) == (listed, verdict, reason)


def test_at_its_default_age_limit_kafka_python_reports_none_of_them(reports: Reports) -> None:
    assert not reports.listed_by_default & {partition for _, partition, *_ in TABLE}
