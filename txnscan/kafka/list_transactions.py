"""ListTransactions (api key 66, v0 since Kafka 3.0): the transactional ids cached on one broker.

ACLs: Describe on each TransactionalId; ids that the principal may not describe are silently left out. A
`__transaction_state` partition that the broker has not cached yet, or no longer has, is silently left out too. Both
gaps are what obligations A and V close. No filters are sent: an unknown state filter empties the answer, and a producer
id filter misses ids that rotated. Source: `TransactionStateManager.listTransactionStates`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka.protocol.admin import ListTransactionsRequest

from txnscan.kafka.client import Send
from txnscan.kafka.errors import ErrorCode, RequestFailed, error_name, present


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """What a listing tells of one transactional id. state: as the broker names it."""

    producer_id: int
    state: str


def list_transactions(send: Send, broker_id: int) -> dict[str, ListedTransaction]:
    """Every transactional id that this broker lists. Raises RequestFailed."""
    response = send(broker_id, ListTransactionsRequest(state_filters=[], producer_id_filters=[]))
    if response.error_code != ErrorCode.NONE:
        raise RequestFailed(f"broker {broker_id} answered ListTransactions with {error_name(response.error_code)}")
    states = tuple(present(response.transaction_states))
    listed = {one.transactional_id: ListedTransaction(one.producer_id, one.transaction_state) for one in states}
    if len(listed) != len(states):
        raise RequestFailed(f"broker {broker_id} answered ListTransactions with an id twice")
    return listed
