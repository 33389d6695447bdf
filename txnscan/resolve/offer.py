"""The guard's answer about a transaction as one sweep shows it, and its words. Pure.

Texts that name a marker or an option ask here, for a row of the tables or for a judged transaction. So no text offers
what `plan` and `abort` refuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from txnscan.kafka.failure import Failure, Permission
from txnscan.reads.observation import TransactionRef
from txnscan.resolve.guard import ACCEPT_UNKNOWN, Allowed, Refused, Swept, offered
from txnscan.sweeps.column import row_of
from txnscan.sweeps.row import TRANSACTION_COLUMNS
from txnscan.verdict.evidence import Judged, Verdict

Row = Mapping[str, Any]


def swept(judged: Judged) -> Swept:
    """A transaction of a sweep, as its guards need it."""
    return swept_row(row_of(TRANSACTION_COLUMNS, None, judged))


def swept_row(row: Row) -> Swept:
    """The same from a row of `open_transactions`, or from the JSON object."""
    return Swept(
        **{field.name: row[field.name] for field in fields(TransactionRef)},
        verdict=row["verdict"],
        reason=row["reason"],
        outcome=row["outcome"],
        outcome_reason=row["outcome_reason"],
        log_failure=_failure(row["log_failure"]),
        transactional_id=row["transactional_id"],
        owner_epoch=row["coordinator_producer_epoch"],
        transaction_timeout_ms=row["transaction_timeout_ms"],
    )


def _failure(value: Any) -> Failure | None:
    """A failure from a table's struct."""
    if value is None or isinstance(value, Failure):
        return value
    found = {field.name: value[field.name] for field in fields(Failure)}
    if found["needs"] is not None:
        found["needs"] = Permission(**{field.name: found["needs"][field.name] for field in fields(Permission)})
    return Failure(**found)


def answer(about: Swept) -> Allowed | Refused | None:
    """What a plan can do about a hanging transaction. None for a transaction that does not hang."""
    return offered(about) if about.verdict == Verdict.HANGING else None


def in_words(given: Allowed | Refused, partitions: int = 1) -> str:
    """The marker that ends the transaction and the option that it needs, or why no marker does. partitions: with
    such a transaction, each of which needs a marker.
    """
    if isinstance(given, Refused):
        return f"No marker: {given.rule}."
    if partitions > 1:
        return _of_many(given)
    if given.commit:
        return f"A COMMIT marker completes it, and needs {given.needs}; an abort would delete data."
    if given.needs == ACCEPT_UNKNOWN:
        return f"An ABORT marker would end it, and needs {given.needs}."
    return "An ABORT marker ends it, and deletes no committed data."


def _of_many(given: Allowed) -> str:
    if given.commit:
        return f"COMMIT markers complete them, and need {given.needs}; aborts would delete data."
    if given.needs == ACCEPT_UNKNOWN:
        return f"ABORT markers would end them, and need {given.needs}."
    return "ABORT markers end them, and delete no committed data."
