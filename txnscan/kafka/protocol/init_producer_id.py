"""InitProducerId (api key 22) for a transactional id, without a producer id and epoch: fences the id's producer.

The coordinator aborts the id's ongoing transaction at a raised epoch. Until that is done it answers
CONCURRENT_TRANSACTIONS, and must be asked again. It creates an unknown id, so the caller must first make sure that the
id exists and is not mistyped. ACLs: Write on the TransactionalId. Source: `FenceProducersHandler`, which Kafka's
`forceTerminateTransaction` uses (KAFKA-19003), and `TransactionCoordinator.handleInitProducerId`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka.protocol.producer.transaction import InitProducerIdRequest

from txnscan.kafka.client.client import Send

_NOBODY = -1
# From v6 on a request may ask to keep a prepared transaction (KIP-939). This request never does.
_MAX_VERSION = 5


@dataclass(frozen=True, slots=True)
class Fenced:
    """The answer: the id's new producer id and epoch, which no producer uses, or the error."""

    error_code: int
    producer_id: int
    producer_epoch: int


def fence(send: Send, broker_id: int, transactional_id: str, timeout_ms: int) -> Fenced:
    """Asks the coordinator once. timeout_ms: the id's transaction timeout from now on, until its next producer sets
    another timeout. Raises RequestFailed.
    """
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=_NOBODY,
        producer_epoch=_NOBODY,
        max_version=_MAX_VERSION,
    )
    answer = send(broker_id, request)
    return Fenced(answer.error_code, answer.producer_id, answer.producer_epoch)
