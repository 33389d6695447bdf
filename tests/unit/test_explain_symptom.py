"""The options of `explain` form a symptom, and a log line may name ids."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases import Cases
from txnscan.config import ConfigError
from txnscan.explain.known_errors import recognised
from txnscan.explain.symptom import SymptomKind, symptom

FENCED = (
    "org.apache.kafka.common.errors.ProducerFencedException: Producer with transactionalId 'orders-1' and "
    "ProducerIdAndEpoch(producerId=4012, epoch=7) has been fenced by another producer with the same transactionalId"
)
# As written by clients: Java, librdkafka, kafka-python, and the names of the protocol.
TEXTS = (
    (FENCED, "PRODUCER_FENCED"),
    ("There is a newer producer with the same transactionalId which fences the current one.", "PRODUCER_FENCED"),
    ("Local: This instance has been fenced by a newer instance (_FENCED)", "PRODUCER_FENCED"),
    ("InvalidProducerEpochException: Producer attempted to produce with an old epoch.", "INVALID_PRODUCER_EPOCH"),
    ("Broker: Producer attempted an operation with an old epoch", "INVALID_PRODUCER_EPOCH"),
    ("TaskMigratedException: Producer got fenced trying to send a record [0_0]", "PRODUCER_FENCED"),
    ("Received INVALID_PRODUCER_EPOCH, then PRODUCER_FENCED", "PRODUCER_FENCED"),
    ("ConcurrentTransactionsException", "CONCURRENT_TRANSACTIONS"),
    (
        "The producer attempted to update a transaction while another concurrent operation on the same transaction was "
        "ongoing.",
        "CONCURRENT_TRANSACTIONS",
    ),
    ("error code 51: CONCURRENT_TRANSACTIONS", "CONCURRENT_TRANSACTIONS"),
    (
        "InvalidTxnStateException: The producer attempted a transactional operation in an invalid state.",
        "INVALID_TXN_STATE",
    ),
    ("UnknownProducerIdException", "UNKNOWN_PRODUCER_ID"),
    (
        "InvalidTxnTimeoutException: The transaction timeout is larger than the maximum value allowed by the broker "
        "(as configured by transaction.max.timeout.ms).",
        "INVALID_TRANSACTION_TIMEOUT",
    ),
    ("TimeoutException: Timeout expired after 60000ms while awaiting InitProducerId", "TIMEOUT"),
    ("TimeoutException: Timeout expired while initializing transactional state in 60000ms.", "TIMEOUT"),
    ("at KafkaProducer.initTransactions: request timed out", "TIMEOUT"),
    ("init_transactions() failed: Local: Timed out", "TIMEOUT"),
    ("There are unstable offsets that need to be cleared.", "UNSTABLE_OFFSET_COMMIT"),
    (
        "WARN [kafka-log-cleaner-thread-0]: Unexpected exception thrown when cleaning log Log(dir=/data/orders-3). "
        "Marking its partition (orders-3) as uncleanable (org.apache.kafka.storage.internals.log.LogCleaner)",
        "LOG_CLEANER",
    ),
    ("ERROR [kafka-log-cleaner-thread-1]: Error due to", "LOG_CLEANER"),
    ("WARN [kafka-log-cleaner-thread-0], Error due to  (kafka.log.LogCleaner)", "LOG_CLEANER"),
    ("WARN Stopping cleaning logs in dir /data/kafka (kafka.log.LogCleanerManager)", "LOG_CLEANER"),
    (
        "requirement failed: offset map is too small to fit in even a single message, so log cleaning will never make "
        "progress. You can increase log.cleaner.dedupe.buffer.size or decrease log.cleaner.threads",
        "LOG_CLEANER",
    ),
    (
        "requirement failed: 14332 messages in segment ts-0/00.log but offset map can fit only 10000. You can increase "
        "log.cleaner.dedupe.buffer.size or decrease log.cleaner.threads",
        "LOG_CLEANER",
    ),
    (
        "CommitFailedException: Offset commit ... since the consumer is not part of an active group",
        "ILLEGAL_GENERATION",
    ),
    ("RetriableCommitFailedException: Offset commit failed with a retriable exception.", None),
    ("Error sending fetch request: org.apache.kafka.common.errors.DisconnectException", "NETWORK_EXCEPTION"),
    ("[Producer clientId=a] Aborting producer batches due to fatal error", "ERROR_STATE"),
    ("[Producer clientId=a] Aborting incomplete transaction due to shutdown", "PRODUCER_CLOSED"),
    ("TimeoutException: Timeout expired after 60000ms while awaiting EndTxn(true)", "END_TXN_TIMEOUT"),
    ("TimeoutException: Timeout expired after 60000ms while awaiting AddOffsetsToTxn", "ADD_OFFSETS_TIMEOUT"),
    ("InvalidPidMappingException: The producer attempted to use a producer id", "INVALID_PRODUCER_ID_MAPPING"),
    (
        'KafkaError{code=TRANSACTION_ABORTABLE,val=120,str="Broker: The server encountered an error with the '
        'transaction"}',
        "TRANSACTION_ABORTABLE",
    ),
    (
        "OutOfOrderSequenceException: Out of order sequence number for producer 5 at offset 9 in partition t-0: 7 "
        "(incoming seq. number), 3 (current end sequence number)",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
    ),
    ("[Error 15] CoordinatorNotAvailableError", "COORDINATOR_NOT_AVAILABLE"),
    ("kafka server: The coordinator is not available", "COORDINATOR_NOT_AVAILABLE"),
    ("COORDINATOR_LOAD_IN_PROGRESS: The coordinator is loading and hence can't", "COORDINATOR_LOAD_IN_PROGRESS"),
    ("This is not the correct coordinator.", "NOT_COORDINATOR"),
    ("Got error produce response on topic-partition t-0, retrying. Error: NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS"),
    (
        "Messages are written to the log, but to fewer in-sync replicas than required.",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    ),
    ("Transactional Id authorization failed.", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
    ("GroupAuthorizationException: Not authorized to access group: g", "GROUP_AUTHORIZATION_FAILED"),
    ("TopicAuthorizationException: Not authorized to access topics: [t]", "TOPIC_AUTHORIZATION_FAILED"),
    ("UnsupportedVersionException: The version of API is not supported.", "UNSUPPORTED_VERSION"),
    (
        'KafkaError{code=_TIMED_OUT,val=-185,str="Timed out waiting for operation to finish, retry call to resume"}',
        "_TIMED_OUT",
    ),
    ("Completed rollback of ongoing transaction for transactionalId a due to timeout", "ROLLED_BACK"),
    ("Initialized transactionalId a with producerId 5 and producer epoch 3 on partition", "INITIALIZED"),
    ("TimeoutException: Topic orders not present in metadata after 60000 ms.", "UNKNOWN_TOPIC_OR_PARTITION"),
    ("NullPointerException", None),
)


def test_errors_are_recognised_in_log_lines() -> None:
    with Cases() as cases:
        for text, name in TEXTS:
            with cases.case(text):
                found = recognised(text)
                assert (found.name if found is not None else None) == name


def test_ids_and_epochs_are_parsed_from_the_line() -> None:
    table: tuple[tuple[str, dict[str, Any]], ...] = (
        (
            FENCED,
            {
                "kind": SymptomKind.TRANSACTIONAL_ID,
                "transactional_id": "orders-1",
                "producer_id": 4012,
                "producer_epoch": 7,
            },
        ),
        (
            "[Producer clientId=producer-a, transactionalId=a-1] PRODUCER_FENCED",
            {
                "kind": SymptomKind.TRANSACTIONAL_ID,
                "transactional_id": "a-1",
                "producer_id": None,
                "producer_epoch": None,
            },
        ),
        (
            "INVALID_PRODUCER_EPOCH: Epoch of producer 5 at offset 9 in t-0 is 3, which is smaller than the last epoch",
            {"kind": SymptomKind.PRODUCER_ID, "producer_id": 5, "producer_epoch": 3},
        ),
        (
            "CONCURRENT_TRANSACTIONS. ProducerId set to 12 with epoch 4",
            {"kind": SymptomKind.PRODUCER_ID, "producer_id": 12, "producer_epoch": 4},
        ),
        ("[Consumer clientId=c, groupId=g-1] UNSTABLE_OFFSET_COMMIT", {"kind": SymptomKind.GROUP, "group": "g-1"}),
        (
            "Error adding group alpha to transaction: UNSTABLE_OFFSET_COMMIT",
            {"kind": SymptomKind.GROUP, "group": "alpha"},
        ),
        ("PRODUCER_FENCED", {"kind": SymptomKind.ERROR, "producer_id": None}),
        ("Marking its partition (a-b-3) as uncleanable", {"kind": SymptomKind.TOPIC, "topic": "a-b", "partition": 3}),
        ("LOG_CLEANER", {"kind": SymptomKind.ERROR, "topic": None}),
    )
    with Cases() as cases:
        for text, expected in table:
            with cases.case(text):
                found = symptom(error=text)
                assert {name: getattr(found, name) for name in expected} == expected
                assert found.error is not None


NAMES = ("orders-1", "orders.v2-0", "my-sink-0-1", "app_0_1", "tx:orders", "orders(1)", "a[0]", "o/p", "a")


def test_names_are_extracted_from_all_forms_of_a_line() -> None:
    ids = (
        "[Producer clientId=c-1, transactionalId={}] X",
        "ProducerConfig: transactional.id = {}",
        "TransactionMetadata(transactionalId={}, producerId=5)",
        "InitProducerIdRequestData(transactionTimeoutMs=1, transactionalId={})",
        "TxnMetadata{{transactionalId={}}}",
        "(transactionalId: {}; state: Empty)",
        "<TransactionManager transactional_id={}>",
        "%4|1795756486.569|TXN|c-1#producer-1| [thrd:main]: transactional.id={}.",
        "the id is transactionalId={}.",
        "Producer with transactionalId '{}' and",
        'the transactional id "{}" and',
        '{{"transactionalId":"{}","producerId":5}}',
        "TransactionalId: {}'s state is Empty, but received transaction marker result to send: COMMIT",
        "Completed rollback of ongoing transaction for transactionalId {} due to timeout",
        "Initialized transactionalId {} with producerId 5 and producer epoch 3 on partition __transaction_state-12",
    )
    groups = (
        "[Consumer clientId=c, groupId={}] X",
        'consumer group "{}" is rebalancing',
        "ConsumerGroupMetadata(groupId = {}, generationId = 3)",
        "group.id={} X",
        "Not authorized to access group: {}",
        '{{"group_id": "{}"}}',
        "Meta{{groupId={}}}",
    )
    with Cases() as cases:
        for name in NAMES:
            for form in ids:
                with cases.case(form.format(name)):
                    assert symptom(error=form.format(name)).transactional_id == name
            for form in groups:
                with cases.case(form.format(name)):
                    assert symptom(error=form.format(name)).group == name


def test_words_beside_an_id_are_no_name() -> None:
    table = (
        "PRODUCER_FENCED: There is a newer producer with the same transactionalId which fences the current one.",
        "transactional.id = null PRODUCER_FENCED",
        "PRODUCER_FENCED group.instance.id=a",
        "PRODUCER_FENCED transactionalId=}",
    )
    with Cases() as cases:
        for text in table:
            with cases.case(text):
                found = symptom(error=text)
                assert (found.transactional_id, found.group) == (None, None)


def test_the_epoch_of_a_coordinator_is_no_epoch_of_the_producer() -> None:
    for text, epoch in (
        ("producerId=5 PRODUCER_FENCED at coordinator epoch 9, epoch=3", 3),
        ("producerId=5 PRODUCER_FENCED at leader epoch 9", None),
    ):
        assert symptom(error=text).producer_epoch == epoch


def test_an_explicit_id_overrides_the_id_in_the_line() -> None:
    found = symptom(transactional_id="mine", error=FENCED)
    assert (found.kind, found.transactional_id, found.producer_epoch) == (SymptomKind.TRANSACTIONAL_ID, "mine", 7)
    other = symptom(producer_id=5, error=FENCED)
    assert (other.kind, other.producer_id, other.producer_epoch) == (SymptomKind.PRODUCER_ID, 5, None)


def test_a_line_with_an_id_and_no_error_asks_about_the_id() -> None:
    found = symptom(error="[Producer clientId=a, transactionalId=a] something went wrong")
    assert (found.kind, found.error, found.unrecognised) == (SymptomKind.TRANSACTIONAL_ID, None, True)
    assert symptom(transactional_id="a", error="something went wrong").unrecognised
    assert not symptom(transactional_id="a", error="PRODUCER_FENCED").unrecognised
    assert not symptom(transactional_id="a").unrecognised


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({}, "--group"),
        ({"group": "g", "topic": "t"}, "--topic"),
        ({"transactional_id": "x", "producer_id": 1}, "--producer-id"),
        ({"group": "g", "spark_checkpoint": "/q"}, "--spark-checkpoint"),
        ({"spark_checkpoint": "/q", "transactional_id": "x"}, "--transactional-id"),
        ({"spark_checkpoint": "/q", "error": "PRODUCER_FENCED"}, "--error"),
        ({"spark_checkpoint": "/q", "partition": 1}, "--partition"),
        ({"spark_checkpoint": ""}, "--spark-checkpoint"),
        ({"group": "g", "error": "PRODUCER_FENCED"}, "--error"),
        ({"topic": "t", "error": "PRODUCER_FENCED"}, "--error"),
        ({"group": "g", "partition": 1}, "--partition"),
        ({"partition": 7}, "--partition"),
        ({"group": ""}, "--group"),
        ({"transactional_id": ""}, "--transactional-id"),
        ({"producer_id": -1}, "--producer-id"),
    ],
)
def test_options_that_form_no_symptom_are_refused(options: dict[str, Any], option: str) -> None:
    with pytest.raises(ConfigError) as raised:
        symptom(**options)
    assert str(raised.value).startswith(option)
