"""InitProducerId (api key 22) for a transactional id, without a producer id and epoch: whoever has the id is fenced.

The coordinator ends what the id has under way, with an abort, at an epoch that is raised; until that is done it
answers CONCURRENT_TRANSACTIONS, and is asked again. It makes an id that it does not know, so that nobody may ask for
one that is mistyped. ACLs: Write on the TransactionalId. Source: `FenceProducersHandler`, which is what Kafka's
`forceTerminateTransaction` sends (KAFKA-19003), and `TransactionCoordinator.handleInitProducerId`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka.protocol.producer.transaction import InitProducerIdRequest

from txnscan.kafka.client import Send

_NOBODY = -1
# From v6 on a request may keep a prepared transaction (KIP-939), which is not meant here.
_MAX_VERSION = 5


@dataclass(frozen=True, slots=True)
class Fenced:
    """The answer: the producer id and epoch that nobody uses, or the error."""

    error_code: int
    producer_id: int
    producer_epoch: int


def fence(send: Send, broker_id: int, transactional_id: str, timeout_ms: int) -> Fenced:
    """Asks the coordinator once. timeout_ms: what the id's transactions may take from now on, until its next owner says
    otherwise. Raises RequestFailed.
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
