"""ListTransactions (api key 66, v0 since Kafka 3.0): the transactional ids cached on one broker.

ACLs: Describe on each TransactionalId; ids that the principal may not describe are silently left out. A
`__transaction_state` partition that the broker has not cached yet, or no longer has, is silently left out too. Both
gaps are what obligations A and V close. Source: `TransactionStateManager.listTransactionStates`.

Traps of the filters: an empty one means all; one that is not a state's name empties the answer, whatever else it has;
producer ids are compared with the one that an id has now, so that an id which took a new one is left out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kafka.protocol.admin import ListTransactionsRequest

from txnscan.kafka.client import Send
from txnscan.kafka.errors import ErrorCode, RequestFailed, present

# A producer id that no transactional id has.
_NOBODY = -1


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """What a listing tells of one transactional id. state: as the broker names it."""

    producer_id: int
    state: str


def list_transactions(
    send: Send, broker_id: int, *, states: Collection[str] = (), producer_ids: Collection[int] | None = None
) -> dict[str, ListedTransaction]:
    """Every transactional id that this broker lists, in one of these states, where any are given, and with one of these
    producer ids, where they are given; with none of them, none. Raises RequestFailed.
    """
    wanted = [] if producer_ids is None else sorted(producer_ids) or [_NOBODY]
    response = send(broker_id, ListTransactionsRequest(state_filters=list(states), producer_id_filters=wanted))
    if response.error_code != ErrorCode.NONE:
        raise RequestFailed.answered(f"broker {broker_id}", "ListTransactions", response.error_code)
    listing = tuple(present(response.transaction_states))
    listed = {one.transactional_id: ListedTransaction(one.producer_id, one.transaction_state) for one in listing}
    if len(listed) != len(listing):
        raise RequestFailed(f"broker {broker_id} answered ListTransactions with an id twice")
    return listed
