"""Whether an incident continues after the first records of its transaction were deleted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.builders import observation
from tests.cases import Cases
from tests.fakes import FakeCluster
from tests.sim.encode import batch
from tests.unit.test_fetch import control
from txnscan.coordinators.metadata_quorum import MetadataQuorum
from txnscan.kafka.protocol.metadata import read_metadata
from txnscan.reads.observation import Observation, TransactionKey
from txnscan.sweeps import identity
from txnscan.sweeps.history import Incident
from txnscan.sweeps.identity import continued, first_records_are_gone

# Producer id 7 at epoch 3: its incident began at offset 100 and last showed sequence number 9.
NOW = observation(start_offset=105, coordinator_epoch=-1)
WHICH = replace(NOW, start_offset=100).transaction_key
INCIDENTS = {WHICH: Incident(1, None, 3, 9)}


def data(offset: int, sequence: int, producer_id: int = 7, count: int = 3) -> bytes:
    return batch(offset, [(None, b"x")] * count, producer_id=producer_id, producer_epoch=3, base_sequence=sequence)


@dataclass(frozen=True)
class Case:
    why: str
    expected: bool | None
    log_start: int = 105
    log: list[bytes] = field(default_factory=lambda: [data(105, 5)])
    spoil: Callable[[FakeCluster], object] = lambda cluster: None


CASES = (
    Case("the first records were deleted", True),
    Case("its last record alone is left", True, log=[data(105, 9)]),
    Case("what is left was written after the last sweep", False, log=[data(105, 10)]),
    Case("the first record is still there", False, log_start=100, log=[data(100, 0), data(105, 5)]),
    Case("the log starts at the next offset", True, log_start=101, log=[data(101, 1, 8, 4), data(105, 5)]),
    Case("another producer's records stand between", True, log_start=102, log=[data(102, 0, 8), data(105, 5)]),
    Case("a marker of the producer stands between", False, log_start=104, log=[control(104, 7, 3), data(105, 5)]),
    Case("a marker of another producer stands between", True, log_start=104, log=[control(104, 8, 3), data(105, 5)]),
    Case("another producer's records stand there", False, log=[data(105, 5, 8)]),
    Case("a marker stands there", False, log=[control(105, 7, 3)]),
    Case("the log starts behind it", False, log_start=106, log=[data(106, 5)]),
    Case("the log is empty", None, log=[]),
    Case("it cannot be read", None, spoil=lambda cluster: cluster.partitions["p", 0].errors.update({"fetch": 29})),
    Case("the log start is not known", None, spoil=lambda c: c.partitions["p", 0].errors.update({"log start": 3})),
    Case("its leader is not known", None, spoil=lambda cluster: setattr(cluster.partitions["p", 0], "leader", -1)),
)


def shown(case: Case) -> bool | None:
    cluster = FakeCluster()
    cluster.lead("p", [1])
    partition = cluster.partitions["p", 0]
    partition.log_start, partition.log, partition.high_watermark = case.log_start, case.log, 200
    case.spoil(cluster)
    quorum = MetadataQuorum((read_metadata(cluster.send, 1, ["p"]),), ())
    return first_records_are_gone(cluster.send, quorum, INCIDENTS, NOW, WHICH)


def test_each_case_shows_the_expected_identity() -> None:
    with Cases() as cases:
        for case in CASES:
            with cases.case(case.why):
                assert shown(case) is case.expected


def test_too_many_bytes_before_the_transaction_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "BYTES_MAX", 0)
    assert not shown(CASES[0])


@pytest.mark.parametrize(
    ("changes", "incident", "asked"),
    [
        ({}, {}, True),
        ({"producer_epoch": 4}, {}, False),
        ({"producer_id": 8}, {}, False),
        ({"partition": 1}, {}, False),
        ({"topic_id": "other"}, {}, False),
        ({"start_offset": 100}, {}, False),
        ({"start_offset": 99}, {}, False),
        ({}, {"last_sequence": -1}, False),
    ],
)
def test_only_a_possibly_equal_incident_is_checked(
    changes: dict[str, Any], incident: dict[str, Any], asked: bool
) -> None:
    asks: list[Observation] = []

    def ask(one: Observation, which: TransactionKey) -> bool:
        asks.append(one)
        return True

    o = replace(NOW, **changes)
    incidents = {WHICH: replace(INCIDENTS[WHICH], **incident)}
    (found,) = continued([o], incidents, ask)
    assert (asks == [o]) is asked
    assert found.transaction_key == (WHICH if asked else o.transaction_key)
    assert found.start_offset == o.start_offset


def test_a_transaction_with_an_incident_does_not_continue_another() -> None:
    incidents = {**INCIDENTS, NOW.transaction_key: Incident(1, None, 3, 9)}
    assert continued([NOW], incidents, lambda one, which: True) == [NOW]


def test_an_unproven_identity_starts_a_new_incident() -> None:
    assert continued([NOW], INCIDENTS, lambda one, which: False) == [NOW]
