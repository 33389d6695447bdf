"""`__transaction_state`, byte by byte: decoded records, and unreadable ones that are never guessed."""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.cases import Cases
from tests.sim.encode import batch, transaction_log_value
from tests.sim.records import TransactionMetadata
from txnscan.kafka.answers import State
from txnscan.kafka.topology import Key
from txnscan.txnlog import decode as decoding
from txnscan.txnlog.decode import (
    UnknownRecord,
    all_decoded,
    decode,
    decoded,
    peeked,
    producer_id,
    producer_id_bytes,
    tombstone,
    transactional_id,
    transactional_id_key,
)
from txnscan.txnlog.facts import LoggedTransaction, RawRecord

KEY = bytes.fromhex("0000000474782d30")
START_MS, UPDATED_MS = 1_700_000_000_000, 1_700_000_001_000
TIMES = struct.pack(">qq", UPDATED_MS, START_MS)
# Version 0: producer id 1000 at epoch 3, Ongoing with t-5.
V0 = bytes.fromhex("000000000000000003e800030000ea60010000000100017400000001000000050000018bcfe56be80000018bcfe56800")
# Version 1: the same at epoch 4, PrepareCommit by a client of transactions v2, the previous producer id in a tag.
V1 = bytes.fromhex(
    "000100000000000003e800040000ea60020202740200000005000000018bcfe56be80000018bcfe5680002000800000000000003e802020002"
)
VALUES = pytest.mark.parametrize("value", [V0, V1], ids=["version 0", "version 1"])


def head(version: int = 0, status: int = 1, epoch: int = 3) -> bytes:
    return struct.pack(">hqhib", version, 1000, epoch, 60_000, status)


def logged(state: State = State.ONGOING, *partitions: Key, epoch: int = 3, client: int = 0) -> LoggedTransaction:
    return LoggedTransaction(
        9, 4, "tx-0", 1000, epoch, state, frozenset(partitions), client, START_MS, UPDATED_MS, 60_000
    )


@pytest.mark.parametrize(
    ("value", "expected", "why"),
    [
        (V0, logged(State.ONGOING, ("t", 5)), "version 0 knows nothing of the client's version"),
        (V1, logged(State.PREPARE_COMMIT, ("t", 5), epoch=4, client=2), "version 1 has it in tag 2"),
        (head(status=0) + b"\xff\xff\xff\xff" + TIMES, logged(State.EMPTY), "null is no partitions"),
        (head(status=4) + b"\x00\x00\x00\x00" + TIMES, logged(State.COMPLETE_COMMIT), "so is an empty array"),
        (head(1, status=5) + b"\x00" + TIMES + b"\x00", logged(State.COMPLETE_ABORT), "null, flexibly"),
        (head(1, status=5) + b"\x01" + TIMES + b"\x00", logged(State.COMPLETE_ABORT), "empty, flexibly"),
        (
            head() + struct.pack(">ihsiiihsii", 2, 1, b"t", 2, 5, 6, 1, b"u", 1, 0) + TIMES,
            logged(State.ONGOING, ("t", 5), ("t", 6), ("u", 0)),
            "every partition of every topic",
        ),
        (
            head(1) + b"\x02\x02t\x02\x00\x00\x00\x05\x01\x07\x01x" + TIMES + b"\x01\x63\x02yy",
            replace(logged(State.ONGOING, ("t", 5)), unknown_fields=("a field of tag 99",)),
            "tags that are not known are passed over, of a topic and of the record, and those of the record are noted",
        ),
        (
            head() + struct.pack(">ih2sii", 1, 2, "é".encode(), 1, 0) + TIMES,
            logged(State.ONGOING, ("é", 0)),
            "names are UTF-8",
        ),
        (
            head(1)
            + (b"\x02\x80\x01" + b"t" * 127 + b"\x02\x00\x00\x00\x05\x00")
            + TIMES
            + (b"\x01\x63\xa0\x9c\x01" + b"y" * 20_000),
            replace(logged(State.ONGOING, ("t" * 127, 5)), unknown_fields=("a field of tag 99",)),
            "lengths from 128 on take two bytes, and from 16384 on three",
        ),
        (
            head(1) + b"\x02\xfa\x01" + b"t" * 249 + b"\x02\x00\x00\x00\x05\x00" + TIMES + b"\x00",
            logged(State.ONGOING, ("t" * 249, 5)),
            "a topic with the longest name that brokers take",
        ),
        (V0 + b"later", logged(State.ONGOING, ("t", 5)), "what follows the last field is left alone, as brokers do"),
    ],
)
def test_a_value_is_decoded_as_written_by_brokers(value: bytes, expected: LoggedTransaction, why: str) -> None:
    assert decode(9, 4, "tx-0", value) == expected, why
    assert producer_id(value) == 1000


@pytest.mark.parametrize(
    ("tags", "unknown_fields"),
    [
        (b"\x00", ()),
        (b"\x03\x00\x01x\x01\x01x\x02\x02\x00\x02", ()),
        (b"\x01\x02\x02\x00\x03", ("transactions version 3",)),
        (b"\x01\x03\x02\x00\x05", ("a field of tag 3",)),
        (b"\x02\x04\x01x\x03\x01x", ("a field of tag 3", "a field of tag 4")),
        (
            b"\x03\x02\x02\x00\x03\x03\x02\x00\x05\x04\x01x",
            ("a field of tag 3", "a field of tag 4", "transactions version 3"),
        ),
    ],
)
def test_fields_of_a_later_kafka_are_noted(tags: bytes, unknown_fields: tuple[str, ...]) -> None:
    found = decode(9, 4, "tx-0", head(1) + b"\x01" + TIMES + tags)
    assert found.unknown_fields == unknown_fields
    assert str(found).endswith(f"with {' and '.join(unknown_fields)}, not known here") is bool(unknown_fields)


def test_a_tombstone_has_no_state_but_dead() -> None:
    assert tombstone(9, 4, "tx-0") == LoggedTransaction(
        9, 4, "tx-0", -1, -1, State.DEAD, frozenset(), client_version=0, start_time_ms=-1, updated_ms=-1
    )


def test_a_raw_record_is_decoded_with_its_place_and_leader_epoch() -> None:
    with Cases() as cases:
        for value, expected in ((V0, decode(9, 4, "tx-0", V0)), (None, tombstone(9, 4, "tx-0"))):
            with cases.case("a tombstone" if value is None else "a value"):
                assert decoded(RawRecord(9, 4, "tx-0", value, leader_epoch=6)) == replace(expected, leader_epoch=6)


@pytest.mark.parametrize(("status", "state"), enumerate(State))
def test_statuses_have_the_order_of_transaction_state(status: int, state: State) -> None:
    assert decode(9, 4, "tx-0", head(status=status) + b"\xff\xff\xff\xff" + TIMES).state is state


def test_states_have_the_names_of_describe_transactions() -> None:
    assert [state.value for state in State] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


@VALUES
def test_a_truncated_value_is_unknown_at_every_length(value: bytes) -> None:
    for size in range(len(value)):
        with pytest.raises(UnknownRecord, match="cut short"):
            decode(9, 4, "tx-0", value[:size])


def test_a_producer_id_is_decoded_from_a_truncated_value() -> None:
    assert producer_id(V0[:10]) == 1000
    for size in range(10):
        with pytest.raises(UnknownRecord, match="cut short"):
            producer_id(V0[:size])


@pytest.mark.parametrize("version", [-1, 2, 3, 32767])
def test_a_value_of_an_unknown_version_is_unknown(version: int) -> None:
    value = struct.pack(">h", version) + V1[2:]
    with pytest.raises(UnknownRecord, match=f"a value of version {version} is not known"):
        decode(9, 4, "tx-0", value)
    with pytest.raises(UnknownRecord, match=f"a value of version {version} is not known"):
        producer_id(value)


@pytest.mark.parametrize("status", [-1, -128, len(State), 127])
def test_an_unknown_status_is_unknown(status: int) -> None:
    with pytest.raises(UnknownRecord, match=f"a status of {status} is not known"):
        decode(9, 4, "tx-0", head(status=status) + b"\xff\xff\xff\xff" + TIMES)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (head() + struct.pack(">ih1sii", 1, 1, b"\xff", 1, 0) + TIMES, "a text in it is not UTF-8"),
        (head(1) + b"\x02\x02\xff\x02\x00\x00\x00\x05\x00" + TIMES + b"\x00", "a text in it is not UTF-8"),
        (head() + struct.pack(">ih", 1, -1) + TIMES, "cut short"),
        (head(1) + b"\x02\x00\x01\x00" + TIMES + b"\x00", "cut short"),
        (head() + b"\x7f\xff\xff\xff" + TIMES, "cut short"),
        (head(1) + b"\xff\xff\xff\xff\xff\x01", "a number in it is too long"),
        (head(1) + b"\x01" + TIMES + b"\x01\x02\x01\x00", "cut short"),
    ],
    ids=[
        "a topic that is not UTF-8",
        "a topic that is not UTF-8, flexibly",
        "a topic that is null",
        "a topic that is null, flexibly",
        "more topics than bytes",
        "a length of more than 32 bits",
        "a client version of one byte",
    ],
)
def test_a_damaged_value_is_unknown(value: bytes, why: str) -> None:
    with pytest.raises(UnknownRecord, match=why):
        decode(9, 4, "tx-0", value)


# --- keys -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (KEY, "tx-0"),
        (bytes.fromhex("00000000"), ""),
        (struct.pack(">hh", 0, 3) + "é!".encode(), "é!"),
        (struct.pack(">h", 1) + KEY[2:], None),
        (struct.pack(">h", -1), None),
        (struct.pack(">h", 32767) + b"\xff", None),
    ],
    ids=["an id", "an empty id", "UTF-8", "a later version", "a negative version", "whatever a later version holds"],
)
def test_a_key_has_its_id_only_in_a_known_version(key: bytes, expected: str | None) -> None:
    assert transactional_id(key) == expected


def test_a_truncated_key_is_unknown_at_every_length() -> None:
    for size in range(len(KEY)):
        with pytest.raises(UnknownRecord, match="cut short"):
            transactional_id(KEY[:size])


@pytest.mark.parametrize(
    ("key", "why"),
    [(struct.pack(">hh", 0, 1) + b"\xff", "not UTF-8"), (struct.pack(">hh", 0, -1), "cut short")],
    ids=["not UTF-8", "null"],
)
def test_a_damaged_key_is_unknown(key: bytes, why: str) -> None:
    with pytest.raises(UnknownRecord, match=why):
        transactional_id(key)


# --- peeking into a batch without decoding it (more in test_log_scan.py) ----------------------------------------------

PRODUCER_ID = 0x0102030405060708
FIRST_RECORD_AT = 61


def value_of(size: int = 40, version: int = 1) -> bytes:
    """A value of this size with this producer id."""
    return (struct.pack(">hq", version, PRODUCER_ID) + bytes(size))[:size]


def deltas(time: int, offset: int) -> bytes:
    """A batch of one record with this distance from the batch's time and offset."""
    data = bytearray(batch(0, [(KEY, value_of())]))
    data[FIRST_RECORD_AT + 2 : FIRST_RECORD_AT + 4] = time, offset
    return bytes(data)


def long_length() -> bytes:
    """A batch of one record with the length of its value in three bytes instead of one."""
    data = batch(0, [(KEY, value_of())])
    at = FIRST_RECORD_AT + 5 + len(KEY)
    return data[:at] + bytes([data[at] | 0x80, 0x80, 0]) + data[at + 1 :]


def test_a_peek_shows_key_and_producer_id_of_a_single_record() -> None:
    with Cases() as cases:
        for key_bytes, value_bytes, version in product((4, 5, 63, 64, 128, 8_191), (None, 10, 63, 64, 8_191), (0, 1)):
            with cases.case(f"a key of {key_bytes} bytes, a value of {value_bytes}, version {version}"):
                key = transactional_id_key("n" * (key_bytes - 4))
                value = value_of(value_bytes, version) if value_bytes is not None else None
                expected = bytes(range(1, 9)) if value is not None else b""
                assert peeked(batch(5, [(key, value)])) == (key, expected)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (batch(0, [(KEY, value_of())] * 2), "two records"),
        (deltas(2, 0), "a record that was not the first, by its time"),
        (deltas(0, 2), "a record that was not the first, by its offset"),
        (batch(0, []), "no record"),
        (batch(0, [(None, value_of())]), "no key"),
        (
            batch(0, [(transactional_id_key("n" * 8_187 + "\1"), value_of())]),
            "a key of 8192 bytes, as if it ended before",
        ),
        (batch(0, [(KEY, value_of(8_192))]), "a value of 8192 bytes"),
        (long_length(), "a length that is longer than need be"),
        (batch(0, [(KEY, b"")]), "an empty value"),
        (batch(0, [(KEY, value_of(9))]), "a value that ends within the producer id"),
        (batch(0, [(KEY, value_of(version=2))]), "a later version"),
        (batch(0, [(KEY, value_of(version=0x100))]), "a much later version"),
        (batch(0, [(KEY, value_of())])[: FIRST_RECORD_AT + 12], "a batch that is cut off"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_peek_rejects_unusual_batches(data: bytes, why: str) -> None:
    assert peeked(data) is None, why


def test_a_producer_id_is_searched_as_encoded_in_a_value() -> None:
    assert producer_id_bytes(PRODUCER_ID) in value_of() and len(producer_id_bytes(PRODUCER_ID)) == 8


# --- random bytes -----------------------------------------------------------------------------------------------------


def only_unknown(value: bytes) -> None:
    for read in (lambda: decode(9, 4, "tx-0", value), lambda: producer_id(value), lambda: transactional_id(value)):
        try:
            read()
        except UnknownRecord as unknown:
            assert str(unknown)


@given(st.binary(max_size=120))
def test_random_bytes_are_decoded_or_unknown(value: bytes) -> None:
    only_unknown(value)


@given(st.integers(0, 1), st.integers(0, 7), st.binary(max_size=80))
@example(1, 1, b"\xff\xff\xff\xff\x0f")
def test_random_bytes_after_a_valid_head_are_decoded_or_unknown(version: int, status: int, rest: bytes) -> None:
    only_unknown(head(version, status) + rest)


@given(st.sampled_from([V0, V1, KEY]), st.integers(0), st.integers(0, 255))
def test_a_record_with_one_changed_byte_is_decoded_or_unknown(value: bytes, at: int, byte: int) -> None:
    at %= len(value)
    only_unknown(value[:at] + bytes([byte]) + value[at + 1 :])


NAMES = st.text(st.characters(codec="utf-8"), max_size=150)
PARTITIONS = st.frozensets(st.tuples(NAMES, st.integers(0, 2**31 - 1)), max_size=5)


@given(NAMES)
def test_a_key_survives_a_round_trip(name: str) -> None:
    assert transactional_id(transactional_id_key(name)) == name


@given(
    st.integers(0, 2**63 - 1),
    st.integers(0, 32767),
    st.sampled_from(State),
    PARTITIONS,
    st.integers(1, 3),
    st.integers(0, 2**62),
)
def test_a_value_of_the_simulator_survives_a_round_trip(
    pid: int, epoch: int, state: State, partitions: frozenset[Key], client: int, time_ms: int
) -> None:
    written = transaction_log_value(TransactionMetadata(pid, epoch, state.value, partitions, client), time_ms)
    holds_none = state is State.EMPTY or state.startswith("Complete")
    assert decode(9, 4, "tx-0", written) == LoggedTransaction(
        offset=9,
        contiguous_from=4,
        transactional_id="tx-0",
        producer_id=pid,
        producer_epoch=epoch,
        state=state,
        partitions=frozenset() if holds_none else partitions,
        client_version=client if client >= 2 else 0,
        start_time_ms=time_ms,
        updated_ms=time_ms,
        timeout_ms=60_000,
        unknown_fields=("transactions version 3",) if client == 3 else (),
    )
    assert producer_id(written) == pid


def test_the_bytes_of_the_simulator_equal_the_vectors() -> None:
    assert transactional_id_key("tx-0") == KEY
    written = transaction_log_value(
        TransactionMetadata(1000, 4, "PrepareCommit", frozenset({("t", 5)}), client_version=2), UPDATED_MS
    )
    alike = V1.index(struct.pack(">q", UPDATED_MS)) + 8
    assert written[:alike] == V1[:alike]
    assert written[alike:] == struct.pack(">q", UPDATED_MS) + b"\x01\x02\x02\x00\x02"


def with_partitions(*numbers: int) -> bytes:
    return head() + struct.pack(f">ih1sI{len(numbers)}i", 1, 1, b"t", len(numbers), *numbers) + TIMES


def test_the_name_of_a_topic_is_limited() -> None:
    """Output repeats it for each partition."""
    for name, fits in ((b"t" * 249, True), (b"t" * 250, False)):
        value = head() + struct.pack(f">ih{len(name)}sIi", 1, len(name), name, 1, 0) + TIMES
        if fits:
            assert decode(9, 4, "x", value).partitions == {(name.decode(), 0)}
        else:
            with pytest.raises(UnknownRecord):
                decode(9, 4, "x", value)


# Limits of a record and of all, the partitions of records, and whether they fit.
PARTITION_LIMITS: dict[str, tuple[int, int, list[range], bool]] = {
    "as many as a record may have": (3, 9, [range(3)], True),
    "one more": (3, 9, [range(4)], False),
    "as many as all may have": (3, 6, [range(3), range(3, 6)], True),
    "one more in all": (3, 6, [range(3), range(3, 6), range(6, 7)], False),
    "the same list again and again": (3, 3, [range(3)] * 9, True),
}


def test_the_partitions_of_records_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of 16 MB became 700 MB."""
    with Cases() as cases:
        for name, (of_record, of_all, lists, fits) in PARTITION_LIMITS.items():
            with cases.case(name), monkeypatch.context() as patch:
                patch.setattr(decoding, "_PARTITIONS_OF_RECORD_MAX", of_record)
                patch.setattr(decoding, "PARTITIONS_MAX", of_all)
                raws = [RawRecord(at, 0, "x", with_partitions(*numbers)) for at, numbers in enumerate(lists)]
                if fits:
                    assert [len(one.partitions) for one in all_decoded(raws)] == list(map(len, lists))
                else:
                    with pytest.raises(UnknownRecord):
                        all_decoded(raws)
