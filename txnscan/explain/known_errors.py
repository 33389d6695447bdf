"""The errors that `explain` knows, in the order in which they count: what each means, and what helps.

Every error that a request of a transaction may get has a row. Rows with names of our own are for lines that clients,
coordinators and log cleaners write without a name of the protocol.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from txnscan.explain.client_errors import ClientError, Defect, ErrorKind, KafkaError, Near, Recogniser

# `python -m tests.golden.errors` makes it.
KAFKA_ERRORS = Path(__file__).with_name("kafka_errors.json")
_TIMED_OUT = ("timed out", "timeout expired", "timed_out", "timeoutexception", "timeouterror")
_UNDER_MIN_ISR = "kafka-topics.sh --describe --under-min-isr-partitions lists such partitions"
_CHECK = "txnscan check shows whether every coordinator answers"

_BUSY, _ITSELF = ErrorKind.BUSY, ErrorKind.ITSELF

# Lines of brokers that report a failure. They often contain other errors.
_OF_BROKERS = (
    ClientError(
        "LOG_CLEANER",
        ErrorKind.CLEANER,
        "A broker's log cleaner met an exception, by the broker's log",
        phrases=(
            Near(("marking its partition",), ("as uncleanable",)),
            # With a comma in the logs of Kafka before 2.0.
            Near(("kafka-log-cleaner-thread-",), ("error due to",)),
            "stopping cleaning logs in dir",
            Near(("failed to clean up log for",), ("due to ioexception",)),
            "offset map is too small to fit in even a single message",
            Near(("messages in segment",), ("but offset map can fit only",)),
            Near(("failed to access checkpoint file",), ("cleaner-offset-checkpoint",)),
            "failed to calculate log cleaning stats for partition",
            "logcleaningexception",
        ),
    ),
    ClientError(
        "COORDINATOR_LOAD_FAILED",
        _ITSELF,
        "A coordinator stopped loading its log half-way: it may not know all of its transactional ids",
        "Restart that broker, or move the leader of that partition of __transaction_state",
        ("error loading transactions from transaction log",),
    ),
    ClientError(
        "MARKER_SKIPPED",
        _ITSELF,
        "A coordinator skipped the marker of a partition that had no leader: its transaction may hang there",
        "txnscan find-hanging shows it as soon as the partition has a leader",
        ("couldn't find leader endpoint for partitions",),
        known=(
            Defect(
                "KAFKA-20734",
                "Kafka 4.3 takes a partition without a leader for a deleted one",
                "checked on real brokers",
            ),
        ),
    ),
    ClientError(
        "MARKER_REFUSED",
        _BUSY,
        "A partition refused the marker, and the coordinator sends no more markers of this transaction until it loads "
        "its log again",
        phrases=(
            Near(("transaction marker for partition",), ("has permanently failed with error",)),
            Near(("received fatal error",), ("while sending txn marker for",)),
        ),
    ),
    ClientError(
        "MARKER_RETRIED",
        _BUSY,
        "A partition did not take the marker, and the coordinator sends it again",
        phrases=(Near(("transaction marker for partition",), ("has failed with error",)),),
    ),
    ClientError(
        "ROLLBACK_FAILED",
        _BUSY,
        "The coordinator could not abort a transaction that was open for longer than its transaction.timeout.ms",
        phrases=(Near(("rollback of ongoing transaction for transactionalid",), ("failed due to error",)),),
    ),
    ClientError(
        "ROLLBACK_CANCELLED",
        _ITSELF,
        "The coordinator did not abort a transaction that timed out, because the transaction had ended or its id had "
        "moved on",
        "This line of a coordinator's log is no error",
        (Near(("rollback of ongoing transaction for transactionalid",), ("has been cancelled due to error",)),),
    ),
    ClientError(
        "TRANSACTION_LOG_NOT_WRITTEN",
        _ITSELF,
        "The coordinator could not write a step of the transaction to __transaction_state",
        _UNDER_MIN_ISR,
        (
            Near(("append transaction log for",), ("transition failed due to",)),
            "possible causes include unknown_topic_or_partition, not_enough_replicas",
            Near(("aborting sending of transaction markers and returning",), ("to transaction log",)),
            "failed to write an epoch fence transition for producer",
            "failed to remove expired transactionalid",
        ),
    ),
    ClientError(
        "COORDINATOR_MOVED",
        _ITSELF,
        "The coordinator of the id moved to another broker, which ends its transaction",
        "This line of a coordinator's log is no error",
        ("no longer the coordinator for", "i am loading the transaction partition that contains"),
    ),
)

_FENCED = (
    ClientError(
        "PRODUCER_FENCED",
        ErrorKind.FENCED,
        "The coordinator knows the transactional id at a later epoch than this producer's",
        phrases=(
            "has been fenced by another producer with the same transactionalid",
            "producer fenced by newer instance",
            "fenced by new transactional producer",
            "producer fenced by newer producer instance",
            # Kafka Streams.
            "producer got fenced",
        ),
        also=("_FENCED",),
        known=(
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
        "The broker knows the producer id at a later epoch than this producer's",
        phrases=("which is smaller than the last seen epoch", "attempted to produce with an old epoch"),
    ),
)

_ASKED = (
    ClientError(
        "INVALID_TRANSACTION_TIMEOUT",
        ErrorKind.SETTING,
        "The producer asks for a longer transaction.timeout.ms than the brokers allow",
    ),
    ClientError(
        "UNKNOWN_PRODUCER_ID",
        ErrorKind.EXPIRED,
        "The partition's leader has forgotten the producer: its records were deleted, or its state expired",
        phrases=("could not locate the producer metadata", "failed due to unknown producer id"),
    ),
    ClientError(
        "UNSTABLE_OFFSET_COMMIT",
        ErrorKind.OFFSETS,
        "Offsets of the group are in a transaction that has not ended",
        known=(
            Defect(
                "KAFKA-17507",
                "a marker is acknowledged before the offsets in the transaction count",
                "by its pull request, not checked here",
            ),
        ),
    ),
    ClientError(
        "CONCURRENT_TRANSACTIONS",
        _BUSY,
        "The coordinator has not finished the id's last transaction: it still owes a marker, or aborts what is open",
        known=(
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
        _BUSY,
        "The producer asked for a step that the id's state does not allow, as a commit of what is aborted already",
        phrases=(
            "record was not part of an ongoing transaction",
            "expected transactional write from producer",
            Near(("transactionalid:",), ("but received transaction marker result to send",)),
        ),
        known=(
            Defect(
                "KAFKA-20785",
                "a commit meets the abort of its timeout (transactions v2)",
                "by its pull request, not checked here",
            ),
        ),
    ),
    ClientError(
        "TIMEOUT",
        _BUSY,
        "initTransactions did not end in time: the coordinator is missing, or has not finished the last transaction",
        phrases=(
            "while initializing transactional state",
            Near(_TIMED_OUT, ("inittransactions", "init_transactions", "initproducerid", "initialize producer id")),
        ),
    ),
    ClientError(
        "END_TXN_TIMEOUT",
        _BUSY,
        "The client does not know how its transaction ended: the coordinator did not answer in time",
        phrases=(
            Near(
                _TIMED_OUT,
                (
                    "endtxn",
                    "committransaction",
                    "aborttransaction",
                    "commit_transaction",
                    "abort_transaction",
                    "failed to end transaction",
                ),
            ),
        ),
    ),
    ClientError(
        "ADD_OFFSETS_TIMEOUT",
        _BUSY,
        "The coordinator did not add offsets or partitions to the transaction in time",
        phrases=(
            Near(
                _TIMED_OUT,
                (
                    "addoffsetstotxn",
                    "addpartitionstotxn",
                    "txnoffsetcommit",
                    "sendoffsetstotransaction",
                    "send_offsets_to_transaction",
                    "offsets to transaction",
                    "add partition(s) to transaction",
                ),
            ),
        ),
    ),
)

# Errors that need no broker.
_OF_RIGHTS = (
    ClientError(
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        _ITSELF,
        "The client's principal lacks the right to use the transactional id",
        "A producer needs Write on its transactional id",
    ),
    ClientError(
        "GROUP_AUTHORIZATION_FAILED",
        _ITSELF,
        "The client's principal lacks the right to use the consumer group",
        "A producer that adds offsets of a group needs Read on it",
        ("not authorized to access group",),
    ),
    ClientError(
        "TOPIC_AUTHORIZATION_FAILED",
        _ITSELF,
        "The client's principal lacks a right on the topic",
        "A producer needs Write, and a consumer Read",
        ("not authorized to access topics",),
    ),
    ClientError(
        "CLUSTER_AUTHORIZATION_FAILED",
        _ITSELF,
        "The client's principal lacks a right on the cluster",
        "A producer without a transactional id needs IdempotentWrite on the cluster, or Write on a topic",
    ),
    ClientError(
        "SASL_AUTHENTICATION_FAILED",
        _ITSELF,
        "The client could not log in to the broker",
        "Check security.protocol, sasl.mechanism, and the credentials",
        also=("_AUTHENTICATION", "UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE"),
    ),
)

_OF_REQUESTS = (
    ClientError(
        "INVALID_PRODUCER_ID_MAPPING",
        _ITSELF,
        "The producer id is not assigned to the transactional id any more: the id expired, or got another producer id",
        "The producer has to call initTransactions again",
    ),
    ClientError(
        "TRANSACTION_ABORTABLE",
        _ITSELF,
        "The transaction cannot be committed: the producer has to abort it, and may then go on",
        "The broker's log has the reason",
    ),
    ClientError(
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        _ITSELF,
        "The partition's leader refused a batch that does not follow the producer's last batch in its log",
        "The producer has to abort the transaction, and to send its records again",
        (
            "out of order sequence number for producer",
            "invalid sequence number for new epoch of producer",
            "failed due to sequence desynchronization with broker",
            "failed due to skipped sequence numbers",
            "failed with rewound sequence number",
        ),
    ),
    ClientError(
        "DUPLICATE_SEQUENCE_NUMBER",
        _ITSELF,
        "The partition's leader has the batch already: an earlier request wrote it",
        "The record is not lost, and clients take it for written",
        ("failed due to duplicate sequence number",),
    ),
    ClientError(
        "TRANSACTION_COORDINATOR_FENCED",
        _ITSELF,
        "A coordinator that is no longer in office sent a marker: the partition refused it, and the marker of the new "
        "coordinator counts",
        "txnscan find-hanging shows whether a transaction stays open",
        ("invalid coordinator epoch for producerid",),
    ),
    ClientError(
        "TRANSACTIONAL_ID_NOT_FOUND",
        _ITSELF,
        "The coordinator knows no such transactional id: it expired, was never used, or may not be described",
        "txnscan transaction-log --transactional-id ID reads what is left of it",
    ),
    ClientError(
        "UNSUPPORTED_VERSION",
        _ITSELF,
        "The broker does not support the request in the client's version",
        "kafka-broker-api-versions.sh shows what each broker supports",
        ("not supported by broker, requires broker version",),
        also=("UNSUPPORTED_FOR_MESSAGE_FORMAT", "_UNSUPPORTED_FEATURE"),
    ),
    ClientError(
        "FENCED_INSTANCE_ID",
        _ITSELF,
        "Another consumer with the same group.instance.id took over, so the group refuses the offsets of this one",
        "The application aborts the transaction, and stops this consumer",
    ),
    ClientError(
        "ILLEGAL_GENERATION",
        _ITSELF,
        "The group has rebalanced, and refuses the offsets of a member that is not current: the transaction cannot be "
        "committed",
        "The application aborts the transaction, and reads again from the committed offsets",
        (
            "due to consumer group metadata mismatch",
            "since the consumer is not part of an active group",
            "consumer.commitfailedexception",
            "commitfailederror",
            "since the group has already rebalanced and assigned the partitions to another member",
        ),
        also=(
            "UNKNOWN_MEMBER_ID",
            "REBALANCE_IN_PROGRESS",
            "FENCED_MEMBER_EPOCH",
            "STALE_MEMBER_EPOCH",
            "_ASSIGNMENT_LOST",
            "_MAX_POLL_EXCEEDED",
        ),
    ),
    ClientError(
        "GROUP_ID_NOT_FOUND",
        _ITSELF,
        "The group of the offsets does not exist, or its name is not valid",
        "Check group.id: a producer that adds offsets takes it from the consumer",
        also=("INVALID_GROUP_ID", "_UNKNOWN_GROUP"),
    ),
    ClientError(
        "OFFSET_METADATA_TOO_LARGE",
        _ITSELF,
        "The group's coordinator refuses the offsets: they are too large",
        "Commit offsets with less metadata. offset.metadata.max.bytes of the brokers limits it",
        also=("INVALID_COMMIT_OFFSET_SIZE",),
    ),
    ClientError(
        "INVALID_TOPIC_EXCEPTION",
        _ITSELF,
        "The topic's name is not valid, or it is an internal topic",
        "Check the name of the topic",
    ),
    ClientError(
        "LISTENER_NOT_FOUND",
        _ITSELF,
        "The partition's leader lacks the listener that the client uses",
        "Compare listeners and advertised.listeners of the brokers",
    ),
    ClientError(
        "KAFKA_STORAGE_ERROR",
        _ITSELF,
        "The broker cannot read or write the partition on its disk",
        "Look at the log of that broker, and at its disk",
    ),
    ClientError(
        "CORRUPT_MESSAGE",
        _ITSELF,
        "A batch has a wrong checksum or size, or lacks a key on a compacted topic",
        "If a consumer gets it, the partition's log is damaged at that offset",
    ),
    ClientError(
        "MESSAGE_TOO_LARGE",
        _ITSELF,
        "The broker refuses the batch: it is larger than max.message.bytes or the segment",
        "The producer has to abort the transaction. Lower max.request.size, or raise max.message.bytes of the topic",
        also=("RECORD_LIST_TOO_LARGE",),
    ),
    ClientError(
        "INVALID_RECORD",
        _ITSELF,
        "The broker refuses a record: its timestamp, key or compression does not fit the topic",
        "The producer has to abort the transaction",
        also=(
            "INVALID_TIMESTAMP",
            "UNSUPPORTED_COMPRESSION_TYPE",
            "_INVALID_DIFFERENT_RECORD",
        ),
    ),
    ClientError(
        "OFFSET_OUT_OF_RANGE",
        _ITSELF,
        "The consumer's offset is not in the log: its records are deleted, or the log was cut",
        "auto.offset.reset decides where the consumer goes on",
        also=("_AUTO_OFFSET_RESET", "_LOG_TRUNCATION"),
    ),
    ClientError(
        "INVALID_REQUEST",
        _ITSELF,
        "The broker refuses the request as malformed: client and broker do not fit together",
        "The broker's log has the reason",
        also=("INVALID_REQUIRED_ACKS",),
    ),
    ClientError(
        "UNKNOWN_SERVER_ERROR",
        _ITSELF,
        "The broker met an exception that has no error of its own",
        "The broker's log has the exception",
        ("unknown broker error", "[error -1] unknownerror"),
    ),
)

# Clients try again after these, so any other error counts more.
_TRIED_AGAIN = (
    ClientError(
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        _ITSELF,
        "The batch is in the leader's log, and fewer replicas than min.insync.replicas have it",
        _UNDER_MIN_ISR,
    ),
    ClientError(
        "NOT_ENOUGH_REPLICAS",
        _ITSELF,
        "The partition has fewer in-sync replicas than min.insync.replicas, so its leader refused the batch",
        _UNDER_MIN_ISR,
        also=("_ISR_INSUFF",),
    ),
    ClientError(
        "COORDINATOR_LOAD_IN_PROGRESS",
        _ITSELF,
        "The coordinator is new, and still reads its log: clients try again until it has done so",
        "If it lasts, look at the log of that broker",
        ("coordinator is loading",),
    ),
    ClientError(
        "COORDINATOR_NOT_AVAILABLE",
        _ITSELF,
        "The coordinator is not available, as while its log has no leader or too few in-sync replicas",
        _CHECK,
        ("failed to find transaction coordinator", Near(_TIMED_OUT, ("findcoordinator",))),
        also=("_WAIT_COORD",),
    ),
    ClientError(
        "NOT_COORDINATOR",
        _ITSELF,
        "The broker is not the coordinator any more: clients look for the new one, and try again",
        _CHECK,
    ),
    ClientError(
        "UNKNOWN_TOPIC_OR_PARTITION",
        _ITSELF,
        "The broker has no such partition: the topic is deleted, new, or not visible to the principal",
        "kafka-topics.sh --describe shows whether it exists",
        (Near(("topic",), ("not present in metadata after",)),),
        also=("UNKNOWN_TOPIC_ID", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"),
    ),
    ClientError(
        "NOT_LEADER_OR_FOLLOWER",
        _ITSELF,
        "Client and broker do not agree on the leader of the partition: clients look for it, and try again",
        "txnscan check shows partitions without a leader",
        also=("FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "REPLICA_NOT_AVAILABLE"),
    ),
    ClientError(
        "LEADER_NOT_AVAILABLE",
        _ITSELF,
        "The partition has no leader, so it takes neither records nor markers",
        "txnscan check shows partitions without a leader",
    ),
    ClientError(
        "OFFSET_NOT_AVAILABLE",
        _ITSELF,
        "The partition's leader is new, and does not know its high watermark yet: clients try again",
        "If it lasts, look at the log of that broker",
    ),
    ClientError(
        "THROTTLING_QUOTA_EXCEEDED",
        _ITSELF,
        "The broker slows the client down, by a quota",
        "kafka-configs.sh --describe --entity-type users shows the quotas",
    ),
    ClientError(
        "REQUEST_TIMED_OUT",
        _ITSELF,
        "The broker did not finish the request in time, as while replicas are missing",
        _UNDER_MIN_ISR,
        ("errors.timeoutexception: the request timed out",),
    ),
    ClientError(
        "NETWORK_EXCEPTION",
        _ITSELF,
        "The client does not reach a broker, or lost it before its answer: the broker may have done the step or not",
        "Clients try again. If it lasts, look at the network and at the broker",
        also=("_TRANSPORT", "_ALL_BROKERS_DOWN", "_FAIL", "_RESOLVE", "_SSL", "BROKER_NOT_AVAILABLE"),
        phrases=(
            "client has run out of available brokers to talk to",
            "could not be established. node may not be available",
            "unable to initialize a producer id due to request failures",
            "unable to open connection to broker",
            "unable to dial: dial tcp",
            "failed to connect to broker",
            "while fetching metadata: dial tcp",
            "kafkaconnectionerror",
            "errors.disconnectexception",
            "unable to bootstrap from",
            Near(("connect to ipv",), ("failed: ",)),
        ),
    ),
    ClientError(
        "OPERATION_NOT_ATTEMPTED",
        _ITSELF,
        "This step was not attempted, because another part of the same request or transaction failed",
        "The error of the other part has the reason",
    ),
)

# What clients print without an error of the protocol. The errors above count more: these often follow them.
_OF_CLIENTS = (
    ClientError(
        "RECORDS_EXPIRED",
        _ITSELF,
        "The producer gave records up that no broker had acknowledged in time: its transaction cannot be committed",
        "The producer has to abort the transaction. delivery.timeout.ms (message.timeout.ms) is the time",
        (
            Near(("record(s) for",), ("has passed since batch creation",)),
            "the client hasn't received acknowledgment for some previously sent messages",
            "records have timed out before they were able to be produced",
        ),
        also=("_MSG_TIMED_OUT",),
    ),
    ClientError(
        "_TIMED_OUT",
        _ITSELF,
        "A call of the client did not end in time, and the text does not show which",
        "The application calls the same method again, or aborts the transaction",
        ("timed out waiting for operation to finish", "timed out and must be retried"),
        also=("_TIMED_OUT_QUEUE",),
    ),
    ClientError(
        "_STATE",
        _ITSELF,
        "The application called a method that the producer's state does not allow",
        "Methods of one producer follow one another: initTransactions, beginTransaction, send, commitTransaction",
        (
            "invalid transition attempted",
            "operation not valid in state",
            "because of previous invalid state transition attempt",
            "before completing a call to init",
            "if a transaction is not in progress",
            "to transaction while in state",
            "transaction manager: transaction is not ready",
            "if not in a transaction",
            "while already in a transaction",
            "the producer is not in an active transaction",
        ),
        also=("_CONFLICT", "_PREV_IN_PROGRESS"),
    ),
    ClientError(
        "NOT_TRANSACTIONAL",
        _ITSELF,
        "The producer has no transactional.id, so it has no transactions",
        "Set transactional.id",
        (
            "non-transactional producer",
            "non-transactional client",
            "requires transactional.id to be configured",
            "you need to add transactionalid to producer",
            "without setting a transactional_id",
        ),
    ),
    ClientError(
        "TRANSACTION_ABORTED",
        _ITSELF,
        "The record was not sent, because its transaction was aborted: the cause is an earlier error of this producer",
        "Look for the first error of this producer in the log",
        ("failing batch since transaction was aborted", "transactionabortedexception", "transactionabortederror"),
        also=("_PURGE_QUEUE", "_PURGE_INFLIGHT"),
    ),
    ClientError(
        "ERROR_STATE",
        _ITSELF,
        "The producer is in an error state: the cause is an earlier error of this producer",
        "Look for the first error of this producer in the log. If it is fatal, the application needs a new producer",
        (
            "because we are in an error state",
            "aborting producer batches due to fatal error",
            "previous transactional or idempotent request has failed",
            "producer id has a fatal, unrecoverable error",
            "to producertxnstateinerror",
        ),
        also=("_FATAL", "_INCONSISTENT", "_GAPLESS_GUARANTEE"),
    ),
    ClientError(
        "PRODUCER_CLOSED",
        _ITSELF,
        "The application closed the producer before its transaction ended: its coordinator aborts what is open",
        "The abort comes at transaction.timeout.ms, or with the next initTransactions of the id",
        (
            "producer closed forcefully",
            "producer is closed forcefully",
            "aborting incomplete transaction due to shutdown",
        ),
        also=("_DESTROY",),
    ),
    ClientError(
        "QUEUE_FULL",
        _ITSELF,
        "The producer's own queue is full: records come faster than brokers take them",
        "The application waits, and sends again",
        ("failed to allocate memory within the configured max blocking time",),
        also=("_QUEUE_FULL",),
    ),
    ClientError(
        "ROLLED_BACK",
        _ITSELF,
        "A coordinator aborted a transaction that was open for longer than its transaction.timeout.ms",
        "It raised the epoch of the id: the producer of that transaction is fenced if it goes on with it",
        (Near(("completed rollback of ongoing transaction",), ("due to timeout",)),),
    ),
    ClientError(
        "INITIALIZED",
        _ITSELF,
        "An instance of the producer initialized its transactional id: earlier epochs are fenced",
        "This line of a coordinator's log is no error",
        (Near(("initialized transactionalid",), ("and producer epoch",)),),
    ),
)

CLIENT_ERRORS = (*_OF_BROKERS, *_FENCED, *_ASKED, *_OF_RIGHTS, *_OF_REQUESTS, *_TRIED_AGAIN, *_OF_CLIENTS)


@cache
def recogniser() -> Recogniser:
    """Of these errors, and of all errors of Kafka."""
    rows = json.loads(KAFKA_ERRORS.read_text("utf-8"))
    return Recogniser(
        CLIENT_ERRORS,
        [
            KafkaError(one["name"], one["code"], one["message"], tuple(one["words"]), tuple(one["texts"]))
            for one in rows
        ],
    )


def recognised(text: str) -> ClientError | None:
    """The error in this text. None without a known error."""
    return recogniser().find(text)
