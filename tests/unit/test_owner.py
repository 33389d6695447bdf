"""The owner of a hanging transaction, and the framework suggested by its id."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.builders import judged, view
from tests.cases import Cases
from tests.fakes.logged import AGAIN
from txnscan.config import ConfigError, ScanConfig
from txnscan.waiting.owner import Framework, Owner, live_owner_of, may_be_flinks, owner_of

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

UUID = "0c5f1e0a-9b1d-4f3e-8a53-0d9a8f0b7a11"
GROUPS = ("connect", "connect-prod")
TOPICS = ("orders", "shop.orders")


@pytest.mark.parametrize(
    ("name", "framework", "says"),
    [
        (f"billing-{UUID}-1", Framework.STREAMS, "application 'billing'"),
        (f"my-app-1-{UUID}-12", Framework.STREAMS, "application 'my-app-1'"),
        ("billing-0_3", Framework.STREAMS, "application 'billing'"),
        ("connect-cluster-prod", Framework.CONNECT, "Connect cluster 'prod'"),
        ("connect-inventory-0", Framework.CONNECT, "task 0 of the source connector 'inventory' in the Connect cluster"),
        ("connect-prod-inventory-2", Framework.CONNECT, "connector 'inventory' in the Connect cluster 'connect-prod'"),
        ("connect-prod-a-1-2", Framework.CONNECT, "connector 'a-1'"),
        ("sink-3-17", Framework.FLINK, "--transactional-id sink-3-17 --producer-id 7 --epoch 3"),
        ("a sink-3-17", Framework.FLINK, "--transactional-id 'a sink-3-17' "),
        ("tx-billing.orders.4", Framework.SPRING, "read orders-4"),
        ("tx-billing.shop.orders.4", Framework.SPRING, "read shop.orders-4"),
        # A common name for any producer.
        ("tx-0", None, ""),
        ("tx-billing.unknown.4", None, ""),
        ("other-inventory-0", None, ""),
        ("orders-service", None, ""),
        ("", None, ""),
        ("-1-1", None, ""),
    ],
)
def test_a_framework_is_suggested_for_its_id_format(name: str, framework: str | None, says: str) -> None:
    owner = owner_of(judged(view("Empty", 4, transactional_id=name)), (), GROUPS, TOPICS)
    assert (owner.transactional_id, owner.framework) == (name, framework)
    assert owner.advice is not None
    assert says in owner.advice and not owner.advice.endswith(".")


def test_advice_for_flink_mentions_the_checkpoint_and_warns_of_an_abort() -> None:
    advice = owner_of(judged(view("Empty", 4, transactional_id="sink-3-17")), ()).advice
    assert advice is not None and "checkpoint" in advice and "an abort would lose them" in advice


def test_an_orphan_belongs_to_the_last_logged_id_of_its_producer_id() -> None:
    assert owner_of(judged(), (AGAIN,)).transactional_id == "X"


@pytest.mark.parametrize("log", [(), (AGAIN, replace(AGAIN, transactional_id="Y")), (replace(AGAIN, producer_id=8),)])
def test_an_orphan_without_a_unique_id_lists_the_writes_of_its_producer(
    log: tuple[object, ...], wording: SnapshotAssertion
) -> None:
    owner = owner_of(judged(), log)  # type: ignore[arg-type]
    assert (owner.transactional_id, owner.framework) == (None, None)
    assert owner.advice is not None and "write to p" in owner.advice
    assert owner.advice == wording


def test_an_owner_by_a_user_pattern_precedes_all_frameworks() -> None:
    own = {"sink-3-17": "billing team"}
    owner = owner_of(judged(view("Empty", 4, transactional_id="sink-3-17")), (), own=own)
    assert owner.framework == "billing team" and owner.advice is not None
    assert "the owner is billing team" in owner.advice


@pytest.mark.parametrize("text", ["", "billing", "=x", "billing=", "billing=(", " =x"])
def test_an_invalid_owner_pattern_is_a_usage_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--owner-pattern: "):
        ScanConfig("localhost:9092", owner_pattern=(text,))


def test_an_id_known_to_an_earlier_sweep_is_kept() -> None:
    assert owner_of(judged(), (), earlier_id="sink-3-17").framework == Framework.FLINK


# --- live transactions


def test_a_live_transaction_has_advice_only_if_its_id_may_be_flinks() -> None:
    """A restart of any other application ends it, so there is nothing to check first."""
    own = {f"billing-{UUID}-1": "billing team"}
    with Cases() as cases:
        for name, framework, says in (
            ("sink-0-42", Framework.FLINK, "--transactional-id sink-0-42 --producer-id 7 --epoch 3"),
            (f"billing-{UUID}-1", "billing team", "the owner is billing team"),
            (f"orders-{UUID}-1", Framework.STREAMS, ""),
            ("connect-inventory-0", Framework.CONNECT, ""),
            ("orders-service", None, ""),
        ):
            with cases.case(name):
                one = judged(view("Ongoing", partitions=("p-0",), transactional_id=name))
                owner = live_owner_of(one, GROUPS, TOPICS, own)
                assert (owner.transactional_id, owner.framework) == (name, framework)
                assert says in (owner.advice or "") and (owner.advice is None) == (not says)
    assert live_owner_of(judged()) == Owner(None, None, None)


def test_flinks_ids_are_recognised_by_their_format() -> None:
    """`TransactionalIdFactory` joins prefix, subtask and a number, with either naming strategy."""
    with Cases() as cases:
        for name, expected in (
            ("sink-0-42", True),
            # INCREMENTING counts checkpoints, in a long. POOLING takes the lowest free number.
            ("sink-12-9223372036854775807", True),
            ("sink-0-0", True),
            ("team-a-orders-3-1", True),
            ("sink-0", False),
            ("-0-1", False),
            ("sink-a-1", False),
            ("sink-0-1-", False),
            ("billing-0_3", False),
            (f"billing-{UUID}-1", False),
            # All digits in the last part of the UUID.
            ("billing-0c5f1e0a-9b1d-4f3e-8a53-012345678901-1", False),
            ("orders-service", False),
            ("", False),
        ):
            with cases.case(name):
                assert may_be_flinks(name) is expected
