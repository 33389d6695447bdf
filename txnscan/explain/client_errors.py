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


@dataclass(frozen=True, slots=True)
class KnownCause:
    """A defect of Kafka that shows this error. source: its certainty, in words."""

    key: str
    what: str
    source: str

    def __str__(self) -> str:
        return f"{self.key}, {self.what}; {self.source}"


@dataclass(frozen=True, slots=True)
class ClientError:
    """An error, by the protocol's name. texts: regular expressions, any of which recognises it. meaning: a sentence."""

    name: str
    kind: ErrorKind
    texts: tuple[str, ...]
    meaning: str
    known: tuple[KnownCause, ...] = ()


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
            KnownCause(
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
            KnownCause(
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
            KnownCause(
                "KAFKA-19999",
                "a marker that is sent again is refused, and the id stays in Prepare* (transactions v2, Kafka 4.2)",
                "by its pull request, not checked here",
            ),
            KnownCause(
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
            KnownCause(
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
        "LOG_CLEANER",
        ErrorKind.CLEANER,
        (
            r"\bLOG_CLEANER\b",
            r"Marking its partition \(\S+\) as uncleanable",
            r"kafka-log-cleaner-thread-\d+\]?:? Error due to",
        ),
        "A broker's log cleaner met an exception, by the broker's log",
    ),
)


def recognised(text: str) -> ClientError | None:
    """The known error in this text, if any. Pure."""
    return next((one for one in CLIENT_ERRORS if any(re.search(pattern, text) for pattern in one.texts)), None)
