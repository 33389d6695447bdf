"""Whoever asks, from the transaction's side or from the reader's, gets the same answer about who waits.

One cluster, five outputs: `find-hanging`, the rows that `sweep` stores, `explain`, the metrics and messages of `watch`,
and the HTML page.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, cast

from tests.builders import MINUTE_MS, NOW_MS
from tests.cases import Cases
from tests.fakes.cluster import FakeId, FakePartition, broker, producer
from tests.fakes.delivered import LSO, VALUE, data, ends, partition
from tests.fakes.groups import FakeGroup, FakeGroups, key_of
from tests.golden.spark_checkpoints import lay_out
from tests.sim.encode import batch
from txnscan import ScanConfig
from txnscan.coordinators.cluster import Cluster
from txnscan.engine.threads import ThreadsEngine
from txnscan.explain.ask import ask
from txnscan.explain.cause import CauseCode
from txnscan.explain.causes import cause_of
from txnscan.explain.cluster_reads import Asking
from txnscan.explain.symptom import symptom
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.client.factory import ClientFactory
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.topology import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, Broker
from txnscan.report.html import PageContent, report_html
from txnscan.report.json import scan_object
from txnscan.report.metrics import metrics_text, watched_once
from txnscan.sweeps.history import NoHistory
from txnscan.sweeps.pipeline import scan
from txnscan.sweeps.result import Scan
from txnscan.sweeps.state import Run
from txnscan.tables.schema import OPEN_TRANSACTIONS, SWEEPS
from txnscan.watch.incident_tracker import IncidentTracker, remember

KEY = ("p", 0)
OWNER = "sink"
SWEPT_AT_MS = NOW_MS + 10 * MINUTE_MS
BEFORE = data(LSO - 4, 2)
# What is at the two offsets before the last stable offset: the log, and at which offsets of a reader there is nothing
# more to deliver.
LOGS: dict[str, tuple[FakePartition, set[int]]] = {
    "data": (partition(BEFORE, data(LSO - 2, 2)), {LSO}),
    "data and its marker": (partition(BEFORE, data(LSO - 2), ends(LSO - 1)), {LSO - 1, LSO}),
    "two markers": (partition(data(LSO - 4, 2), ends(LSO - 2), ends(LSO - 1, 9)), {LSO - 2, LSO - 1, LSO}),
    "aborted data and its marker": (
        partition(BEFORE, data(LSO - 2, 1, 9), ends(LSO - 1, 9, commits=False), aborted=((9, LSO - 2),)),
        {LSO - 2, LSO - 1, LSO},
    ),
    "a marker before data": (partition(BEFORE, ends(LSO - 2), data(LSO - 1)), {LSO}),
    "data without a transaction": (partition(BEFORE, batch(LSO - 2, 2 * [VALUE])), {LSO}),
    "data, and what compaction left of the next": (partition(BEFORE, data(LSO - 2)), {LSO - 1, LSO}),
    "nothing: compacted away": (partition(BEFORE), {LSO - 2, LSO - 1, LSO}),
}


class Waits(Enum):
    """An output's answer about a reader of the partition."""

    YES = True
    NO = False
    UNKNOWN = None


class Brokers(FakeGroups):
    """A broker with this log, and a transaction that is open at its last stable offset.

    is_live: whether a coordinator claims the transaction.
    """

    def __init__(self, kept: FakePartition, *, is_live: bool = False) -> None:
        super().__init__({}, brokers=(1,))
        self.config["transaction.max.timeout.ms"] = "900000"
        self.partitions[KEY] = kept
        kept.producers = [producer(7, LSO)]
        self.lead(CONSUMER_OFFSETS_TOPIC, [1])
        self.lead(TRANSACTION_STATE_TOPIC, [1])
        for topic in (CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC):
            self.partitions[topic, 0].high_watermark = 0
        if is_live:
            self.ids[1] = {OWNER: FakeId(7, 3, "Ongoing", (KEY,))}

    def learn(self, brokers: Iterable[Broker]) -> None:
        """Ignores addresses."""


@dataclass(frozen=True)
class ConnectToFake:
    """Stands in for ClientFactory."""

    fake: Brokers
    brokers: tuple[Broker, ...] = (broker(1),)
    settings: ConnectionSettings = field(default_factory=ConnectionSettings)

    def for_controller(self) -> ConnectToFake:
        return self

    def client(self) -> Brokers:
        return self.fake

    def close(self) -> None:
        """Has no connections to close."""


def connected(fake: Brokers) -> Cluster:
    return Cluster(cast(ClientFactory, ConnectToFake(fake)), threads=0, sleep=lambda _: None)


def swept(fake: Brokers, *checkpoints: str) -> Scan:
    with connected(fake) as cluster:
        return scan(
            Run(
                ScanConfig("fake:9092", late_after_ms=1_000, spark_checkpoint=checkpoints),
                cluster,
                ThreadsEngine(1),
                sweep_id="sweep",
                now_ms=lambda: SWEPT_AT_MS,
                history=NoHistory(),
                progress=lambda *_: None,
                reads_impact=True,
            )
        )


def explained(fake: Brokers, **asked: Any) -> Waits:
    """By the cause: the transaction that is waited for, another cause, or none that could be observed."""
    with connected(fake) as cluster:
        asking = Asking(
            *(cluster, ScanConfig("fake:9092", late_after_ms=1_000), lambda: SWEPT_AT_MS, lambda _: None),
            *(lambda: "sweep", lambda *_: None),
        )
        found = cause_of(ask(asking, symptom(**asked)))
    on_its_topics = found.numbers.isolation_level is not None and found.code in (CauseCode.HANGING, CauseCode.OWNED)
    if found.code is CauseCode.NOT_OBSERVED or on_its_topics:
        # Where a share group stands is not visible.
        return Waits.UNKNOWN
    return Waits(found.code in (CauseCode.HANGING, CauseCode.OWNED, CauseCode.PENDING_OFFSETS))


def counted(count: int | None) -> Waits:
    assert count in (None, 0, 1)
    return Waits.UNKNOWN if count is None else Waits(bool(count))


def measured(found: Scan, *names: str) -> Waits:
    """By the first of these gauges that has a sample. A number that is not known has none."""
    samples = [
        counted(int(float(line.rsplit(" ", 1)[1])))
        for name in names
        for line in metrics_text([watched_once("one", found)]).splitlines()
        if line.startswith(f"{name}{{")
    ]
    return samples[0] if samples else Waits.UNKNOWN


def worded(text: str, waits: str, unknown: str) -> Waits:
    """By the sentence that somebody waits, or that it is not known."""
    return Waits.UNKNOWN if unknown in text else Waits(waits in text)


def page(found: Scan) -> str:
    rows = OPEN_TRANSACTIONS.rows(found, found.transactions)
    for row in rows:
        for name in ("blocked_groups", "blocked_readers"):
            row[name] = [asdict(one) for one in row[name] or ()]
    (sweep,) = SWEEPS.rows(found, [found])
    return report_html(PageContent(sweep, (), rows, (), [sweep], (), ()), "tables", SWEPT_AT_MS)


def answers(found: Scan) -> tuple[dict[str, Waits], dict[str, Waits]]:
    """Whether a group and whether a streaming query waits, by each output about the sweep. There are metrics of queries
    only for hanging transactions, and messages only about these.
    """
    (row,) = scan_object(found)["transactions"]
    (stored,) = OPEN_TRANSACTIONS.rows(found, found.transactions)
    text = page(found)
    groups = {
        "find-hanging": counted(row["groups_blocked"]),
        "sweep": counted(stored["groups_blocked"]),
        "metrics": measured(found, "txnscan_blocked_groups", "txnscan_blocking_groups"),
        "page": worded(text, "group has no record to read", "Groups may be missing"),
    }
    queries = {
        "find-hanging": counted(row["readers_blocked"]),
        "sweep": counted(stored["readers_blocked"]),
        "page": worded(text, "query has no record to read", "Streaming queries may be missing"),
    }
    if not found.blocking:
        queries["metrics"] = measured(found, "txnscan_blocked_readers")
        (opened,) = [one for event in remember(IncidentTracker(), "one", found).events for one in event.opened]
        groups["message"] = counted(opened.row["groups_blocked"])
    return groups, queries


def checkpoint(directory: Path, offset: int) -> str:
    files = {
        "metadata": '{"id":"query-1"}',
        "offsets/3": f'v1\n{{"batchTimestampMs":5}}\n{json.dumps({KEY[0]: {"0": offset}})}',
    }
    return str(lay_out(files, directory / f"at-{offset}"))


def test_every_output_agrees_on_which_readers_wait(tmp_path: Path) -> None:
    """At the last stable offset, one and two before it, and one after it, which only read_uncommitted readers reach."""
    with Cases() as cases:
        for is_live in (False, True):
            for name, (kept, waits_at) in LOGS.items():
                for offset in (LSO - 2, LSO - 1, LSO, LSO + 1):
                    waits = Waits(offset in waits_at)
                    fake = Brokers(kept, is_live=is_live)
                    fake.groups = {1: {"billing": FakeGroup({KEY: offset})}}
                    path = checkpoint(tmp_path, offset)
                    groups, queries = answers(swept(fake, path))
                    which = f"{'live' if is_live else 'hanging'}, {name}, at {offset - LSO}"
                    with cases.case(f"group, {which}"):
                        groups["explain"] = explained(fake, group="billing")
                        assert set(groups.values()) == {waits}, groups
                    with cases.case(f"query, {which}"):
                        queries["explain"] = explained(fake, spark_checkpoint=path)
                        assert set(queries.values()) == {waits}, queries


# What the transaction has, whether its records can be read, whether the coordinator withholds the group's offset, and
# whether the group waits for the transaction. If another transaction has the offset, `explain` does not know which.
OFFSETS = (
    ("the group's offset", True, True, Waits.YES),
    ("the group's offset", True, False, Waits.NO),
    ("the group's offset", False, True, Waits.YES),
    ("the group's offset", False, False, Waits.NO),
    ("another group's", True, False, Waits.NO),
    ("another group's", True, True, Waits.UNKNOWN),
)


def test_both_ends_agree_on_offsets_in_a_transaction() -> None:
    with Cases() as cases:
        for is_live in (False, True):
            for what, can_be_read, is_withheld, waits in OFFSETS:
                with cases.case(f"{what}, {can_be_read}, {is_withheld}, {is_live}"):
                    fake = Brokers(FakePartition(high_watermark=LSO))
                    fake.partitions[KEY].producers = []
                    log = fake.partitions[CONSUMER_OFFSETS_TOPIC, 0] = FakePartition(producers=[producer(7, LSO)])
                    key = key_of("billing" if what == "the group's offset" else "other", *KEY)
                    log.write(batch(LSO, [(key, b"value")], producer_id=7, producer_epoch=3))
                    log.errors = {} if can_be_read else {"fetch": int(ErrorCode.NOT_LEADER_OR_FOLLOWER)}
                    if is_live:
                        fake.ids[1] = {OWNER: FakeId(7, 3, "Ongoing", ((CONSUMER_OFFSETS_TOPIC, 0),))}
                    fake.groups = {1: {"billing": FakeGroup({KEY: LSO}, unstable=[KEY] if is_withheld else [])}}
                    (row,) = scan_object(swept(fake))["transactions"]
                    assert [one["group"] for one in row["blocked_groups"]] == ["billing"] * (waits is Waits.YES)
                    assert explained(fake, group="billing") is waits


# The isolation level of a share group, the error of DescribeConfigs, and whether the group waits.
SHARES = (
    ("read_uncommitted", ErrorCode.NONE, Waits.NO),
    ("read_committed", ErrorCode.NONE, Waits.UNKNOWN),
    (None, ErrorCode.NONE, Waits.UNKNOWN),
    ("read_uncommitted", ErrorCode.GROUP_AUTHORIZATION_FAILED, Waits.UNKNOWN),
)


def test_every_output_agrees_on_share_groups() -> None:
    """They commit no offsets, so whether they wait does not depend on the log."""
    with Cases() as cases:
        for is_live in (False, True):
            for level, code, waits in SHARES:
                for name in ("data", "two markers"):
                    with cases.case(f"{'live' if is_live else 'hanging'}, {level}, {code.name}, {name}"):
                        fake = Brokers(LOGS[name][0], is_live=is_live)
                        fake.groups = {1: {"queue": FakeGroup(protocol_type="share")}}
                        fake.config |= {"share.isolation.level": level} if level is not None else {}
                        fake.config_errors = {"queue": int(code)}
                        groups, _ = answers(swept(fake))
                        groups["explain"] = explained(fake, group="queue")
                        assert set(groups.values()) == {waits}, groups
