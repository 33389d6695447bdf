"""DescribeTransactions (api key 65, v0, since Kafka 3.0): transactional ids as their coordinator knows them.

ACLs: Describe on each TransactionalId, else TRANSACTIONAL_ID_AUTHORIZATION_FAILED. Topics that the principal may not
describe are silently left out of `topics`. TRANSACTIONAL_ID_NOT_FOUND proves that the broker has cached the id's
`__transaction_state` partition, so this request can probe coverage. Source:
`TransactionCoordinator.handleDescribeTransactions`, `KafkaApis.handleDescribeTransactionsRequest`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from kafka.protocol.admin import DescribeTransactionsRequest

from txnscan.kafka.answers import CoordinatorView
from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import ErrorCode, error_name, present
from txnscan.kafka.protocol.metadata import sound_name

# Kafka's own admin client sends all ids of a coordinator at once. This limit bounds one answer: each id may have 2,600
# partitions on average until the answer has more elements than `receiving.py` allows.
_IDS_PER_REQUEST = 150
# UNKNOWN_SERVER_ERROR, for an id that a broker answered twice.
_DOUBLED = -1


@dataclass(frozen=True, slots=True)
class DescribedTransaction:
    """One id's answer. If `error_code` is not NONE, the other fields have no meaning.

    partitions: "topic-partition" names. Times are epoch milliseconds, or -1 if there is no time.
    """

    error_code: int
    state: str = ""
    producer_id: int = -1
    producer_epoch: int = -1
    timeout_ms: int = -1
    start_time_ms: int = -1
    partitions: tuple[str, ...] = ()

    @property
    def error(self) -> str | None:
        return None if self.error_code == ErrorCode.NONE else error_name(self.error_code)

    def view(self, transactional_id: str, broker_id: int) -> CoordinatorView:
        """The answer as this broker's view of the id."""
        return CoordinatorView(
            transactional_id=transactional_id,
            broker_id=broker_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            state=self.state,
            timeout_ms=self.timeout_ms,
            start_time_ms=self.start_time_ms,
            partitions=self.partitions,
        )


def describe_transactions(
    send: Send, broker_id: int, transactional_ids: Iterable[str]
) -> dict[str, DescribedTransaction]:
    """The ids that the broker answered for. Ids that it left out are missing. Raises RequestFailed.

    If an id is answered twice, only that id fails.
    """
    described: dict[str, DescribedTransaction] = {}
    remaining = iter(transactional_ids)
    while ids := list(islice(remaining, _IDS_PER_REQUEST)):
        for answer in present(send(broker_id, DescribeTransactionsRequest(transactional_ids=ids)).transaction_states):
            name = answer.transactional_id
            described[name] = _described(answer) if name not in described else DescribedTransaction(_DOUBLED)
    return described


def _described(answer: Any) -> DescribedTransaction:
    return DescribedTransaction(
        error_code=answer.error_code,
        state=answer.transaction_state,
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
        timeout_ms=answer.transaction_timeout_ms,
        start_time_ms=answer.transaction_start_time_ms,
        partitions=tuple(
            sorted(f"{sound_name(t.topic or '')}-{p}" for t in present(answer.topics) for p in present(t.partitions))
        ),
    )
