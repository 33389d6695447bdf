"""Every error that five clients print is recognised as itself, and has an answer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.builders import LATE_AFTER_MS, NOW_MS
from tests.cases import Cases
from tests.golden.errors import NO_WORDS, TABLE, Printed, live, recorded, table_text
from txnscan.explain.cause import CauseCode
from txnscan.explain.causes import cause_of
from txnscan.explain.client_errors import ErrorKind
from txnscan.explain.facts import Facts
from txnscan.explain.known_errors import CLIENT_ERRORS, recogniser
from txnscan.explain.symptom import SymptomKind, symptom

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

PRINTED = recorded()
BROKER_LINES = TABLE.parents[2] / "tests/golden/errors/broker_lines.txt"
# The name of the row, by the name of each of Kafka's errors.
ROWS = {name: one.name for one in CLIENT_ERRORS for name in (one.name, *one.also)}


def by_client() -> dict[str, list[Printed]]:
    found: dict[str, list[Printed]] = {}
    for row in PRINTED:
        found.setdefault(row.client, []).append(row)
    return found


def forms(row: Printed) -> list[str]:
    """The lines in which a client shows this error."""
    name = row.words[0] if row.words else row.name
    client = row.client.split()[0]
    if client == "Java":
        return [
            row.name,
            row.line,
            f"[Producer clientId=c, transactionalId=a-1] Transiting to fatal error state due to {row.line}",
            f"WARN Got error produce response on topic-partition t-0, retrying (3 attempts left). Error: {row.name}",
            f"Caused by: {row.line}\n\tat java.base/java.lang.Thread.run(Thread.java:840)",
        ]
    if client == "confluent-kafka":
        return [
            row.line,
            f"cimpl.KafkaException: {row.line}",
            f"%3|1795756486.569|TXNERR|c-1#producer-1| [thrd:main]: Fatal transaction error: {row.text} ({name})",
            *([f"RD_KAFKA_RESP_ERR_{name}"] if name not in NO_WORDS else []),
        ]
    if client == "kafka-python":
        return [row.line, f"kafka.errors.{row.words[0]}: {row.line}"]
    return [row.line, f"producer/txnmgr [a-1] ({row.line})", f"[ERROR] unable to produce; broker: 1, err: {row.line}"]


def test_every_error_that_a_client_prints_is_recognised_as_itself() -> None:
    for client, rows in by_client().items():
        with Cases() as cases:
            for row in rows:
                for line in forms(row):
                    with cases.case(f"{client}: {line}"):
                        found = recogniser().find(line)
                        assert (found.name if found is not None else None) == ROWS.get(row.name, row.name)


def test_five_clients_are_recorded() -> None:
    names: dict[str, set[str]] = {}
    for client, rows in by_client().items():
        names.setdefault(client.split()[0], set()).update(row.name for row in rows)
    assert set(names) == {"Java", "confluent-kafka", "kafka-python", "franz-go", "sarama"}
    assert min(len(each) for each in names.values()) >= 90


def test_the_table_is_derived_from_what_clients_print() -> None:
    assert TABLE.read_text("utf-8") == table_text(PRINTED)


def test_every_error_has_a_code_and_a_first_sentence(wording: SnapshotAssertion) -> None:
    """Also without a broker, if the answer needs none."""
    found = {}
    for one in recogniser().errors:
        asked = symptom(error=one.name)
        if asked.needs_no_broker:
            cause = cause_of(Facts(asked, NOW_MS, LATE_AFTER_MS))
            found[one.name] = [cause.code.value, cause.sentence]
        else:
            found[one.name] = [one.kind.value, f"{one.meaning}."]
    assert found == wording


def test_names_of_the_table_are_unique() -> None:
    names = [name for one in CLIENT_ERRORS for name in (one.name, *one.also)]
    assert len(names) == len({*names})
    known = {row.name for row in PRINTED}
    assert {name for one in CLIENT_ERRORS for name in one.also} <= known


def test_every_error_of_a_transactional_request_has_a_row() -> None:
    """By the handlers of Java's `TransactionManager` and `Sender`, and of `TransactionCoordinator`."""
    init = {"COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "CONCURRENT_TRANSACTIONS"}
    init |= {"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "INVALID_REQUEST"}
    init |= {"CLUSTER_AUTHORIZATION_FAILED", "INVALID_TRANSACTION_TIMEOUT", "UNSUPPORTED_VERSION", "INVALID_TXN_STATE"}
    add = {"INVALID_PRODUCER_ID_MAPPING", "UNKNOWN_TOPIC_OR_PARTITION", "TOPIC_AUTHORIZATION_FAILED"}
    add |= {"OPERATION_NOT_ATTEMPTED", "TRANSACTION_ABORTABLE", "UNKNOWN_PRODUCER_ID", "GROUP_AUTHORIZATION_FAILED"}
    offsets = {"FENCED_INSTANCE_ID", "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "UNSUPPORTED_FOR_MESSAGE_FORMAT"}
    offsets |= {
        "OFFSET_METADATA_TOO_LARGE",
        "INVALID_COMMIT_OFFSET_SIZE",
        "REBALANCE_IN_PROGRESS",
        "GROUP_ID_NOT_FOUND",
    }
    produce = {"OUT_OF_ORDER_SEQUENCE_NUMBER", "DUPLICATE_SEQUENCE_NUMBER", "NOT_ENOUGH_REPLICAS", "CORRUPT_MESSAGE"}
    produce |= {"NOT_ENOUGH_REPLICAS_AFTER_APPEND", "MESSAGE_TOO_LARGE", "INVALID_RECORD", "KAFKA_STORAGE_ERROR"}
    produce |= {"NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE", "REQUEST_TIMED_OUT", "NETWORK_EXCEPTION"}
    produce |= {"RECORD_LIST_TOO_LARGE", "INVALID_TIMESTAMP", "UNSUPPORTED_COMPRESSION_TYPE", "UNKNOWN_SERVER_ERROR"}
    markers = {"TRANSACTION_COORDINATOR_FENCED", "TRANSACTIONAL_ID_NOT_FOUND", "UNSTABLE_OFFSET_COMMIT"}
    assert init | add | offsets | produce | markers <= {*ROWS}


def test_a_text_without_an_error_is_unrecognised() -> None:
    texts = (
        "hello",
        "java.lang.NullPointerException: null",
        "java.util.concurrent.TimeoutException: HTTP request",
        "The request timed out.",
        "connection timed out",
        "software.amazon.awssdk SdkClientException: Unable to execute HTTP request",
        "org.postgresql.util.PSQLException: ERROR: could not serialize access due to concurrent update",
        "ERROR 1205 (HY000): Lock wait timeout exceeded; try restarting transaction",
        "CONCURRENT_TRANSACTIONS_TOTAL 5",
        "MY_PRODUCER_FENCED_COUNT",
        "status=200 error=none",
        "the cursor was fenced",
        "sqlalchemy.exc.InvalidRequestError: This Session's transaction has been rolled back",
        "com.amazonaws.services.dynamodbv2.model.ResourceNotFoundException: Cannot do operations on a table",
        "status: UNSUPPORTED_VERSION of the API",
        "",
    )
    with Cases() as cases:
        for text in texts:
            with cases.case(text):
                asked = symptom(error=text)
                assert (asked.kind, asked.error, asked.unrecognised) == (SymptomKind.ERROR, None, True)
                cause = cause_of(Facts(asked, NOW_MS, LATE_AFTER_MS))
                assert (cause.code, cause.error) == (CauseCode.UNRECOGNISED, None)


def test_an_error_of_kafka_beside_an_id_asks_about_the_id() -> None:
    asked = symptom(error="transactionalId=a-1 VOTER_NOT_FOUND")
    assert (asked.kind, asked.unrecognised, asked.needs_no_broker) == (SymptomKind.TRANSACTIONAL_ID, True, False)
    assert asked.error is not None and asked.error.kind is ErrorKind.OTHER


def test_ids_are_those_of_the_line_with_the_error() -> None:
    """A log has lines of other producers too."""
    log = (
        "[Admin clientId=a, transactionalId=e-1] The request timed out.\n" + 9 * ("x" * 99 + "\n") + ""
        "[Producer clientId=a, transactionalId=a-1] ProducerId set to 11 with epoch 1\n"
        "[Producer clientId=b, transactionalId=b-1] ProducerId set to 12 with epoch 2\n"
        "{error}\n"
        "[Producer clientId=c, transactionalId=c-1] ProducerId set to 13 with epoch 3\n"
    )
    table = (
        ("[Producer clientId=x, transactionalId=x-1] PRODUCER_FENCED", ("x-1", None, None)),
        ("PRODUCER_FENCED\n\tat org.apache.kafka", ("b-1", 12, 2)),
        ("PRODUCER_FENCED producerId=5, epoch=9", (None, 5, 9)),
        ("[Producer transactionalId=d-1] Timeout expired after 5ms while awaiting EndTxn(true)", ("d-1", None, None)),
    )
    with Cases() as cases:
        for error, expected in table:
            with cases.case(error):
                asked = symptom(error=log.format(error=error))
                assert (asked.transactional_id, asked.producer_id, asked.producer_epoch) == expected


def test_a_whole_log_takes_less_than_a_second() -> None:
    """The time is in proportion to the length: these texts took minutes with a quadratic search."""
    line = "2026-11-27 20:00:00 INFO [Producer clientId=a, transactionalId=a-1] ProducerId set to 11 with epoch 1\n"
    size = 300_000
    texts = (
        line * (1_000_000 // len(line)),
        "transactionalId=" + ")" * size,
        "transactionalId=" + "(" * (size // 2) + ")" * (size // 2),
        "transactionalId=" * (size // 16),
        "transactionalId " * (size // 16),
        "timed out " * (size // 10),
        "inittransactions " * (size // 17),
        "group " * (size // 6),
        "for x" * (size // 5),
        "Marking its partition (" * (size // 23),
        '"transactionalId" "' * (size // 19),
        "a" * size,
        "-" * size,
        "PRODUCER_FENCED\n" * (size // 16),
        "txnmgr/" * (size // 7),
    )
    with Cases() as cases:
        for text in texts:
            with cases.case(text[:40]):
                began = time.process_time()
                symptom(error=text)
                assert time.process_time() - began < 1


# The errors that may follow a state. One alone is the answer, if all lines are pasted.
OF_STATE = {
    "setting": {"INVALID_TRANSACTION_TIMEOUT", "ERROR_STATE"},
    "misuse": {"_STATE"},
    "too_large": {"MESSAGE_TOO_LARGE"},
    "denied_id": {"TRANSACTIONAL_ID_AUTHORIZATION_FAILED"},
    "denied_topic": {"TOPIC_AUTHORIZATION_FAILED", "ERROR_STATE"},
    "denied_group": {"GROUP_AUTHORIZATION_FAILED", "ERROR_STATE"},
    "group": {"ILLEGAL_GENERATION"},
    "fenced": {"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "ERROR_STATE"},
    "fenced_commit": {"PRODUCER_FENCED"},
    "timed_out": {"PRODUCER_FENCED", "INVALID_TXN_STATE"},
    "expired": {"INVALID_PRODUCER_ID_MAPPING", "ERROR_STATE"},
    "unreachable": {"TIMEOUT", "_TIMED_OUT", "NETWORK_EXCEPTION"},
}


def test_each_state_that_a_client_logs_gets_its_error() -> None:
    """Lines that real clients printed on a real broker, all lines of a state at once."""
    logs: dict[tuple[str, str], list[str]] = {}
    for row in live.recorded():
        logs.setdefault((row.client, row.state), []).append(row.line)
    assert {client for client, _ in logs} == {*live.CLIENTS, "broker"}
    with Cases() as cases:
        for (client, state), lines in logs.items():
            with cases.case(f"{client}: {state}"):
                asked = symptom(error="\n".join(lines))
                expected = OF_STATE.get(state, {"ROLLED_BACK", "INITIALIZED"})
                assert asked.error is not None and asked.error.name in expected
                number = live.CLIENTS.index(client) if client in live.CLIENTS else 0
                named = (None, f"orders.{number}-{live.STATES.index(state)}") if state in live.STATES else None
                assert named is None or asked.transactional_id in named


def test_lines_of_real_clients_and_a_real_broker(wording: SnapshotAssertion) -> None:
    """The error, the ids and the first sentence of each line."""
    found = {}
    for row in live.recorded():
        asked = symptom(error=row.line)
        error = asked.error.name if asked.error is not None else None
        alone = cause_of(Facts(asked, NOW_MS, LATE_AFTER_MS)).sentence if asked.needs_no_broker else asked.kind.value
        ids = [asked.transactional_id, asked.producer_id, asked.producer_epoch, asked.group]
        found[f"{row.client}, {row.state}: {row.line}"] = [error, ids, alone]
    assert found == wording


def test_lines_of_brokers_name_their_id() -> None:
    rows = [row for row in BROKER_LINES.read_text("utf-8").splitlines() if not row.startswith("#")]
    with Cases() as cases:
        for error, _, form in (row.partition(" ") for row in rows):
            for name in ("orders-1", "a", "tx:orders", "orders(1)", "o/p", "due", "app_0.1"):
                line = f"[2026-11-27 20:00:00] INFO [TransactionCoordinator id=1] {form.replace('{}', name)}"
                with cases.case(line):
                    asked = symptom(error=line)
                    assert (asked.error.name if asked.error is not None else "-") == error
                    assert asked.transactional_id == name


def test_a_line_of_the_cleaner_names_its_partition() -> None:
    for line in (
        "Unexpected exception thrown when cleaning log Log(x). Marking its partition (a-b-3) as uncleanable",
        "Failed to clean up log for a-b-3 in dir /data due to IOException",
        "requirement failed: 14332 messages in segment a-b-3/00000.log but offset map can fit only 10000",
        "Failed to calculate log cleaning stats for partition a-b-3",
    ):
        asked = symptom(error=line)
        assert asked.error is not None
        assert (asked.error.name, asked.topic, asked.partition) == ("LOG_CLEANER", "a-b", 3)
