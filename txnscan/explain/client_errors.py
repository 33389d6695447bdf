"""The errors of transactions that clients log, as data: how to recognise each, its meaning, and known defects. Also
the error of a broker's log cleaner.

A broker answers with an error's name. Java's clients log the name of an exception, librdkafka and others the text in
`org.apache.kafka.common.protocol.Errors`. If a text has several errors, the first of the table counts:
a fenced producer often logs a second error after it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class ErrorKind(StrEnum):
    """The subject of an error. It decides which questions are asked."""

    FENCED = "fenced"
    BUSY = "busy"
    OFFSETS = "offsets"
    SETTING = "setting"
    EXPIRED = "expired"
    CLEANER = "cleaner"
    # The text alone has the answer: no broker is asked.
    ITSELF = "itself"


@dataclass(frozen=True, slots=True)
class Defect:
    """A defect of Kafka that shows this error. source: its certainty, in words."""

    key: str
    what: str
    source: str

    def __str__(self) -> str:
        return f"{self.key}, {self.what}; {self.source}"


@dataclass(frozen=True, slots=True)
class ClientError:
    """An error, by the protocol's name. texts: regular expressions, any of which recognises it. meaning: a sentence.
    remedy: what to do, only for an error that needs no broker.
    """

    name: str
    kind: ErrorKind
    texts: tuple[str, ...]
    meaning: str
    known: tuple[Defect, ...] = ()
    remedy: str = ""


CLIENT_ERRORS = (
    ClientError(
        "PRODUCER_FENCED",
        ErrorKind.FENCED,
        (
            r"PRODUCER_FENCED",
            r"ProducerFencedException",
            r"newer producer with the same transactionalId",
            r"\b_FENCED\b",
        ),
        "The coordinator knows the transactional id at a later epoch than this producer's",
        (
            Defect(
                "KAFKA-20357",
                "from Kafka 4.0 on, a coordinator that takes over may lack the last epoch",
                "not fixed in 4.4.0, checked in its record format",
            ),
        ),
    ),
    ClientError(
        "INVALID_PRODUCER_EPOCH",
        ErrorKind.FENCED,
        (
            r"INVALID_PRODUCER_EPOCH",
            r"InvalidProducerEpochException",
            r"Producer attempted (?:to produce|an operation) with an old epoch",
        ),
        "The broker knows the producer id at a later epoch than this producer's",
    ),
    ClientError(
        "INVALID_TRANSACTION_TIMEOUT",
        ErrorKind.SETTING,
        (
            r"INVALID_TRANSACTION_TIMEOUT",
            r"InvalidTxnTimeoutException",
            r"transaction timeout is larger than the maximum",
        ),
        "The producer asks for a longer transaction.timeout.ms than the brokers allow",
    ),
    ClientError(
        "UNKNOWN_PRODUCER_ID",
        ErrorKind.EXPIRED,
        (
            r"UNKNOWN_PRODUCER_ID",
            r"UnknownProducerIdException",
            r"could not locate the producer metadata",
            r"Unknown Producer Id",
        ),
        "The partition's leader has forgotten the producer: its records were deleted, or its state expired",
    ),
    ClientError(
        "UNSTABLE_OFFSET_COMMIT",
        ErrorKind.OFFSETS,
        (r"UNSTABLE_OFFSET_COMMIT", r"UnstableOffsetCommitException", r"unstable offsets that need to be cleared"),
        "Offsets of the group are in a transaction that has not ended",
        (
            Defect(
                "KAFKA-17507",
                "a marker is acknowledged before the offsets in the transaction count",
                "by its pull request, not checked here",
            ),
        ),
    ),
    ClientError(
        "CONCURRENT_TRANSACTIONS",
        ErrorKind.BUSY,
        (
            r"CONCURRENT_TRANSACTIONS",
            r"ConcurrentTransactionsException",
            r"another concurrent operation on the same transaction",
        ),
        "The coordinator has not finished the id's last transaction: it still owes a marker, or aborts what is open",
        (
            Defect(
                "KAFKA-19999",
                "a marker that is sent again is refused, and the id stays in Prepare* (transactions v2, Kafka 4.2)",
                "by its pull request, not checked here",
            ),
            Defect(
                "KAFKA-16352",
                "up to Kafka 3.7, a race leaves the id in Prepare*",
                "by its pull request, not checked here",
            ),
        ),
    ),
    ClientError(
        "INVALID_TXN_STATE",
        ErrorKind.BUSY,
        (r"INVALID_TXN_STATE", r"InvalidTxnStateException", r"transactional operation in an invalid state"),
        "The producer asked for a step that the id's state does not allow, as a commit of what is aborted already",
        (
            Defect(
                "KAFKA-20785",
                "a commit meets the abort of its timeout (transactions v2)",
                "by its pull request, not checked here",
            ),
        ),
    ),
    ClientError(
        "TIMEOUT",
        ErrorKind.BUSY,
        (
            r"(?i)timeout expired (?:after \d+ ?ms )?while (?:initializing transactional|awaiting InitProducerId)",
            r"(?is)\binitTransactions\b.{0,400}?time(?:d )?out",
            r"(?is)time(?:d )?out.{0,400}?\b(?:initTransactions|init_transactions|InitProducerId)\b",
            r"(?is)\binit_transactions\b.{0,400}?time(?:d )?out",
        ),
        "initTransactions did not end in time: the coordinator is missing, or has not finished the last transaction",
    ),
    ClientError(
        "END_TXN_TIMEOUT",
        ErrorKind.BUSY,
        (r"while awaiting EndTxn\(",),
        "The client does not know how its transaction ended: the coordinator did not answer in time",
    ),
    ClientError(
        "ADD_OFFSETS_TIMEOUT",
        ErrorKind.BUSY,
        (r"while awaiting (?:AddOffsetsToTxn|AddPartitionsToTxn)",),
        "The coordinator did not add offsets or partitions to the transaction in time",
    ),
    ClientError(
        "LOG_CLEANER",
        ErrorKind.CLEANER,
        (
            r"\bLOG_CLEANER\b",
            r"Marking its partition \(\S+\) as uncleanable",
            # With a comma in the logs of Kafka before 2.0.
            r"kafka-log-cleaner-thread-\d+\]?[:,]? Error due to",
            r"Stopping cleaning logs in dir",
            r"Failed to clean up log for \S+ in dir \S+ due to IOException",
            r"offset map is too small to fit in even a single message",
        ),
        "A broker's log cleaner met an exception, by the broker's log",
    ),
    # Below: errors that need no broker. Lines of a coordinator's log come first, as they may contain other errors.
    ClientError(
        "ROLLED_BACK",
        ErrorKind.ITSELF,
        (
            r"(?<![A-Za-z0-9_])ROLLED_BACK(?![A-Za-z0-9_])",
            r"Completed rollback of ongoing transaction for transactionalId .+ due to timeout",
        ),
        "A coordinator aborted a transaction that was open for longer than its transaction.timeout.ms",
        remedy="It raised the epoch of the id: the producer of that transaction is fenced if it goes on with it",
    ),
    ClientError(
        "INITIALIZED",
        ErrorKind.ITSELF,
        (
            r"(?<![A-Za-z0-9_])INITIALIZED(?![A-Za-z0-9_])",
            r"Initialized transactionalId .+ with producerId \d+ and producer epoch",
        ),
        "An instance of the producer initialized its transactional id: earlier epochs are fenced",
        remedy="This line of a coordinator's log is no error",
    ),
    ClientError(
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        ErrorKind.ITSELF,
        (
            r"(?<![A-Za-z0-9_])TRANSACTIONAL_ID_AUTHORIZATION_FAILED(?![A-Za-z0-9_])",
            r"TransactionalIdAuthorization(?:Failed)?(?:Exception|Error)",
            r"(?i)transactional ?id authorization failed",
        ),
        "The client's principal lacks the right to use the transactional id",
        remedy="A producer needs Write on its transactional id",
    ),
    ClientError(
        "GROUP_AUTHORIZATION_FAILED",
        ErrorKind.ITSELF,
        (
            r"(?<![A-Za-z0-9_])GROUP_AUTHORIZATION_FAILED(?![A-Za-z0-9_])",
            r"GroupAuthorization(?:Failed)?(?:Exception|Error)",
            r"(?i)\bgroup authorization failed",
            r"Not authorized to access group",
        ),
        "The client's principal lacks the right to use the consumer group",
        remedy="A producer that adds offsets of a group needs Read on it",
    ),
    ClientError(
        "TOPIC_AUTHORIZATION_FAILED",
        ErrorKind.ITSELF,
        (
            r"(?<![A-Za-z0-9_])TOPIC_AUTHORIZATION_FAILED(?![A-Za-z0-9_])",
            r"TopicAuthorization(?:Failed)?(?:Exception|Error)",
            r"(?i)\btopic authorization failed",
            r"Not authorized to access topics",
        ),
        "The client's principal lacks a right on the topic",
        remedy="A producer needs Write, and a consumer Read",
    ),
    ClientError(
        "CLUSTER_AUTHORIZATION_FAILED",
        ErrorKind.ITSELF,
        (
            r"(?<![A-Za-z0-9_])CLUSTER_AUTHORIZATION_FAILED(?![A-Za-z0-9_])",
            r"ClusterAuthorization(?:Failed)?(?:Exception|Error)",
            r"(?i)\bcluster authorization failed",
        ),
        "The client's principal lacks a right on the cluster",
        remedy="A producer without a transactional id needs IdempotentWrite on the cluster, or Write on a topic",
    ),
    ClientError(
        "UNSUPPORTED_VERSION",
        ErrorKind.ITSELF,
        (
            r"(?<![A-Za-z0-9_])UNSUPPORTED_VERSION(?![A-Za-z0-9_])",
            r"UnsupportedVersion(?:Exception|Error)",
            r"(?i)the version of API is not supported",
            r"API version not supported",
        ),
        "The broker does not support the request in the client's version",
        remedy="kafka-broker-api-versions.sh shows what each broker supports",
    ),
    ClientError(
        "INVALID_PRODUCER_ID_MAPPING",
        ErrorKind.ITSELF,
        (
            r"(?<![A-Za-z0-9_])INVALID_PRODUCER_ID_MAPPING(?![A-Za-z0-9_])",
            r"InvalidPidMappingException",
            r"InvalidProducerIdMapping",
            r"producer id which is not currently assigned to its transactional id",
        ),
        "The producer id is not assigned to the transactional id any more: the id expired, or got another producer id",
        remedy="The producer has to call initTransactions again",
    ),
    ClientError(
        "TRANSACTION_ABORTABLE",
        ErrorKind.ITSELF,
        (
            r"(?<![A-Za-z0-9_])TRANSACTION_ABORTABLE(?![A-Za-z0-9_])",
            r"TransactionAbortable(?:Exception|Error)",
            r"server encountered an error with the transaction",
        ),
        "The transaction cannot be committed: the producer has to abort it, and may then go on",
        remedy="The broker's log has the reason",
    ),
    ClientError(
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        ErrorKind.ITSELF,
        (
            r"(?<![A-Za-z0-9_])OUT_OF_ORDER_SEQUENCE_NUMBER(?![A-Za-z0-9_])",
            r"OutOfOrderSequence(?:Number)?(?:Exception|Error)",
            r"(?i)out of order sequence number",
        ),
        "The partition's leader refused a batch that does not follow the producer's last batch in its log",
        remedy="The producer has to abort the transaction, and to send its records again",
    ),
    ClientError(
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        ErrorKind.ITSELF,
        (
            r"(?<![A-Za-z0-9_])NOT_ENOUGH_REPLICAS_AFTER_APPEND(?![A-Za-z0-9_])",
            r"NotEnoughReplicasAfterAppend",
            r"but to fewer in-sync replicas than required",
            r"written to insufficient number of in-sync replicas",
        ),
        "The batch is in the leader's log, and fewer replicas than min.insync.replicas have it",
        remedy="kafka-topics.sh --describe --under-min-isr-partitions lists such partitions",
    ),
    ClientError(
        "NOT_ENOUGH_REPLICAS",
        ErrorKind.ITSELF,
        (
            r"(?<![A-Za-z0-9_])NOT_ENOUGH_REPLICAS(?![A-Za-z0-9_])",
            r"NotEnoughReplicas(?:Exception|Error)",
            r"fewer in-sync replicas than required",
            r"Broker: Not enough in-sync replicas",
        ),
        "The partition has fewer in-sync replicas than min.insync.replicas, so its leader refused the batch",
        remedy="kafka-topics.sh --describe --under-min-isr-partitions lists such partitions",
    ),
    ClientError(
        "COORDINATOR_LOAD_IN_PROGRESS",
        ErrorKind.ITSELF,
        (
            r"(?<![A-Za-z0-9_])COORDINATOR_LOAD_IN_PROGRESS(?![A-Za-z0-9_])",
            r"CoordinatorLoadInProgress",
            r"(?i)coordinator (?:is loading|load in progress)",
        ),
        "The coordinator is new, and still reads its log: clients try again until it has done so",
        remedy="If it lasts, look at the log of that broker",
    ),
    ClientError(
        "COORDINATOR_NOT_AVAILABLE",
        ErrorKind.ITSELF,
        (
            r"(?<![A-Za-z0-9_])COORDINATOR_NOT_AVAILABLE(?![A-Za-z0-9_])",
            r"CoordinatorNotAvailable",
            r"(?i)the coordinator is not available",
            r"Broker: Coordinator not available",
        ),
        "The coordinator is not available, as while its log has no leader or too few in-sync replicas",
        remedy="txnscan check shows whether every coordinator answers",
    ),
    ClientError(
        "NOT_COORDINATOR",
        ErrorKind.ITSELF,
        (
            r"(?<![A-Za-z0-9_])NOT_COORDINATOR(?![A-Za-z0-9_])",
            r"NotCoordinator(?:Exception|Error)",
            r"This is not the correct coordinator",
            r"Broker: Not coordinator",
        ),
        "The broker is not the coordinator any more: clients look for the new one, and try again",
        remedy="txnscan check shows whether every coordinator answers",
    ),
    ClientError(
        "_TIMED_OUT",
        ErrorKind.ITSELF,
        (
            r"(?<![A-Za-z0-9_])_TIMED_OUT(?![A-Za-z0-9_])",
            r"Local: Timed out",
            r"Timed out waiting for operation to finish, retry call to resume",
        ),
        "A call of the client did not end in time, and the text does not show which",
        remedy="The application calls the same method again, or aborts the transaction",
    ),
)


def recognised(text: str) -> ClientError | None:
    """The known error in this text, if any. Pure."""
    return next((one for one in CLIENT_ERRORS if any(re.search(pattern, text) for pattern in one.texts)), None)
