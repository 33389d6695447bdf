"""Brokers without an API: every open transaction is indeterminate, and one warning gives the reason.

tests/brokers/test_old_brokers.py has real brokers of Kafka 3.5.2.
"""

from __future__ import annotations

import pytest

from tests.fakes.old_brokers import FakeOld, open_on, swept_fake
from txnscan.coordinators.cluster import LISTING_TRIES
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC

COORDINATOR_APIS = ("ListTransactions", "DescribeTransactions")


def test_only_temporary_failures_are_waited_for() -> None:
    waits: list[float] = []
    swept_fake(FakeOld(dict.fromkeys((1, 2, 3), COORDINATOR_APIS)), waits.append)
    assert waits == []
    loading = FakeOld({})
    loading.list_errors[1] = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    swept_fake(loading, waits.append)
    assert len(waits) == LISTING_TRIES - 1


def test_brokers_with_every_api_cause_no_warning() -> None:
    scanned = swept_fake(FakeOld({}))
    assert open_on(scanned) == dict.fromkeys(range(3), ("hanging", "orphan"))
    assert scanned.complete and scanned.warnings == ()


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        (COORDINATOR_APIS, "DescribeTransactions"),
        (("ListTransactions",), "ListTransactions"),
        (("DescribeTransactions",), "DescribeTransactions"),
    ],
)
def test_without_owner_apis_open_transactions_are_indeterminate_with_one_warning(
    missing: tuple[str, ...], named: str
) -> None:
    scanned = swept_fake(FakeOld(dict.fromkeys((1, 2, 3), missing)))
    assert open_on(scanned) == dict.fromkeys(range(3), ("indeterminate", "coverage"))
    assert not scanned.complete
    (warning,) = scanned.warnings
    assert all(part in warning for part in ("brokers 1, 2 and 3", named, "3.0"))
    assert all(named in judged.judgement.explanation for judged in scanned.transactions)


def test_beside_an_old_broker_a_visible_owner_counts_and_absence_is_unproven() -> None:
    fake = FakeOld({1: COORDINATOR_APIS})
    fake.own(0, coordinator=2)
    fake.own(1, coordinator=1)
    scanned = swept_fake(fake)
    assert open_on(scanned) == {
        0: ("ongoing", "owned"),
        1: ("indeterminate", "coverage"),
        2: ("indeterminate", "coverage"),
    }
    assert (scanned.coordinators_proven, scanned.coordinators_planned) == (2, 3)
    (warning,) = scanned.warnings
    assert warning.startswith("broker 1 lacks DescribeTransactions")


def test_beside_an_old_broker_a_hanging_transaction_of_a_known_id_is_proven() -> None:
    fake = FakeOld({1: COORDINATOR_APIS})
    name = fake.own(0, coordinator=2)
    fake.ids[2][name].partitions = (("data", 9),)
    assert open_on(swept_fake(fake))[0] == ("hanging", "live_epoch")


def test_partitions_of_a_broker_without_describe_producers_are_errors_with_one_warning() -> None:
    fake = FakeOld({1: ("DescribeProducers", *COORDINATOR_APIS)})
    fake.own(2, coordinator=2)
    scanned = swept_fake(fake)
    assert open_on(scanned) == {1: ("indeterminate", "coverage"), 2: ("ongoing", "owned")}
    assert {(e.topic, e.partition) for e in scanned.errors if e.stage == "read"} == {
        ("data", 0),
        (TRANSACTION_STATE_TOPIC, 0),
    }
    (warning,) = scanned.warnings
    about_producers, about_owners = (
        warning.find(f"broker 1 lacks {api}") for api in ("DescribeProducers", "DescribeTransactions")
    )
    assert 0 <= about_producers < about_owners


def test_brokers_older_than_2_8_leave_every_partition_failed() -> None:
    scanned = swept_fake(FakeOld(dict.fromkeys((1, 2, 3), ("DescribeProducers", *COORDINATOR_APIS))))
    assert scanned.transactions == () and not scanned.complete
    assert scanned.partitions_failed == scanned.partitions_planned == 6
    assert scanned.coordinators_proven == 0
    assert len(scanned.warnings) == 1
