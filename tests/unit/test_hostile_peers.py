"""A hostile or broken broker or HTTP peer fails its own requests, at the cost of little memory and time.

Times have wide margins for a busy machine. Unbounded, each of these took minutes or gigabytes.
"""

from __future__ import annotations

import gzip
import socket
import struct
import sys
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
import zstandard
from kafka.errors import InvalidReceiveError
from kafka.protocol.admin import (
    DescribeConfigsResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsResponse,
)
from kafka.protocol.parser import KafkaProtocol
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.util import decode_varint

from tests.cases import Cases
from tests.fakes.batches import HEADER_BYTES, compressed, of_equal_records
from tests.fakes.cluster import ADDRESS, broker
from tests.fakes.http import HTTP_DEADLINE_S, SECONDS_MAX, HttpPeer
from tests.fakes.peer import API_VERSIONS, LIST_TRANSACTIONS, SOON, FakeBroker, ask, framed, instead, listing
from tests.sim.encode import batch
from tests.sim.encode import marker as marker_batch
from tests.sim.records import Marker
from txnscan.kafka.client.client import THROTTLE_MS_MAX, Client
from txnscan.kafka.client.connection import OAuthSettings
from txnscan.kafka.client.listener import look
from txnscan.kafka.client.receiving import BUDGET, HANDSHAKE_BYTES_MAX, Budget, Frame, answers_in
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol import describe_producers, describe_transactions, fetch, list_transactions
from txnscan.kafka.protocol import records as records_module
from txnscan.kafka.protocol.describe_configs import topic_cleaning, transaction_max_timeout_ms
from txnscan.kafka.protocol.fetch import Reading
from txnscan.kafka.protocol.frames import Body
from txnscan.kafka.protocol.list_transactions import ListingFilter
from txnscan.kafka.protocol.primitives import ELEMENTS_MAX, TEXT_BYTES_MAX, string, unsigned
from txnscan.kafka.protocol.records import decoded, marker
from txnscan.kafka.security import oauth
from txnscan.kafka.security.oauth import TokenFailed, Tokens
from txnscan.report.notifications import SHAPES
from txnscan.watch import notifier
from txnscan.watch.notifier import NotSent, Target, post_json

MIB = 1 << 20


def describe() -> Any:
    return DescribeTransactionsRequest(transactional_ids=["tx"])


PEER_BYTES_MAX = 4 * MIB
ENDLESS = b"\xff" * (900 * 1024)


def in_frame(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


# Name, the answer of the broker, and the number of parallel requests.
PEERS: tuple[tuple[str, Any, int], ...] = (
    ("a frame of 500 MB that never comes, before anything else", lambda *_: bytes.fromhex("1f000000"), 4),
    ("a frame of 500 MB that never comes", instead(bytes.fromhex("1f000000")), 4),
    ("a frame of 2 GB", instead(bytes.fromhex("7fffffff")), 4),
    ("an endless number in ApiVersions", lambda key, version, c: in_frame(c, b"\0\0" + ENDLESS), 1),
    ("an endless number later", instead(lambda c: in_frame(c, b"\0" * 7 + ENDLESS)), 1),
)


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """These peers delay a TLS handshake when their port is probed."""
    monkeypatch.setattr("txnscan.kafka.client.listener._STEP_S_MAX", 0.5)


def test_a_hostile_answer_fails_its_request_soon_and_with_little_memory() -> None:
    with Cases() as cases:
        for name, answer, times in PEERS:
            with cases.case(name):
                peers = [FakeBroker(answer) for _ in range(times)]
                began_s, before = time.monotonic(), BUDGET.used_bytes
                with Client(SOON, [broker(n, peer.port) for n, peer in enumerate(peers)]) as client:
                    for n in range(times):
                        with pytest.raises(RequestFailed):
                            client.send(n, ask())
                    assert BUDGET.used_bytes - before <= times * PEER_BYTES_MAX
                assert time.monotonic() - began_s < SECONDS_MAX
                for peer in peers:
                    peer.close()


def test_the_buffer_of_an_answer_grows_with_the_received_bytes() -> None:
    budget = Budget(100 * MIB)
    frame = Frame(80 * MIB, budget)
    assert (frame.room(), budget.used_bytes) == (MIB, MIB)
    for _ in range(3):
        frame.take(bytes(MIB))
    assert budget.used_bytes <= 4 * MIB
    frame.take(bytes(77 * MIB))
    assert (frame.missing, len(frame), budget.used_bytes) == (0, 80 * MIB, 80 * MIB)
    with pytest.raises(InvalidReceiveError):
        Frame(30 * MIB, budget).take(bytes(21 * MIB))
    del frame
    assert budget.used_bytes == 0


def test_answers_before_authentication_are_limited_in_size() -> None:
    for key, size, fits in ((API_VERSIONS, HANDSHAKE_BYTES_MAX + 1, False), (LIST_TRANSACTIONS, 2 * MIB, True)):
        parser = KafkaProtocol(client_id="test")
        parser.in_flight_requests.append(SimpleNamespace(correlation_id=1, request_api_key=key))
        data = struct.pack(">i", size)
        if fits:
            assert answers_in(parser, Budget(MIB), data) == []
        else:
            with pytest.raises(InvalidReceiveError):
                answers_in(parser, Budget(MIB), data)


def answers_to(request: Any, response: Any) -> list[tuple[int, Any]]:
    """The answers that a connection decodes if a broker answers with this."""
    parser = KafkaProtocol(client_id="test")
    request.API_VERSION = 0
    request.with_header(correlation_id=1, client_id="test")
    parser.in_flight_requests.append(request.header)
    return answers_in(parser, Budget(100 * MIB), response if isinstance(response, bytes) else framed(response, 1))


def listed(count: int) -> Any:
    state = ListTransactionsResponse.TransactionState(transactional_id="tx", producer_id=7, transaction_state="Empty")
    return ListTransactionsResponse(version=0, transaction_states=[state] * count)


def with_partitions(count: int, partitions: int) -> Any:
    topic = DescribeTransactionsResponse.TransactionState.TopicData(topic="t", partitions=[0] * partitions)
    state = DescribeTransactionsResponse.TransactionState(
        error_code=0, transactional_id="tx", transaction_state="Empty", transaction_timeout_ms=1,
        transaction_start_time_ms=1, producer_id=7, producer_epoch=1, topics=[topic],
    )  # fmt: skip
    return DescribeTransactionsResponse(version=0, transaction_states=[state] * count)


# With a limit of 100 elements of all lists.
ELEMENTS: dict[str, tuple[Any, Any, bool]] = {
    "as many ids as may be": (ask, lambda: listed(100), True),
    "an id more": (ask, lambda: listed(101), False),
    "as many partitions as may be": (describe, lambda: with_partitions(10, 8), True),
    "a partition more in each": (describe, lambda: with_partitions(10, 9), False),
    "the partitions of one id": (describe, lambda: with_partitions(1, 99), False),
    "a number without elements": (ask, lambda: in_frame(1, bytes(8) + b"\xff\xff\xff\xff\x07"), False),
}


def test_the_elements_of_an_answer_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """50 MB of ids took a gigabyte and half a minute."""
    monkeypatch.setattr("txnscan.kafka.client.receiving.ELEMENTS_MAX", 100)
    with Cases() as cases:
        for name, (request, response, fits) in ELEMENTS.items():
            with cases.case(name):
                if fits:
                    assert len(answers_to(request(), response())) == 1
                else:
                    with pytest.raises(InvalidReceiveError, match="elements"):
                        answers_to(request(), response())


def given(answer: Any, broker_id: int, request: Any) -> Any:
    """A broker with this answer."""
    return answer


def one_id(name: str, state: str = "Empty") -> bytes:
    """A listing of one id."""
    return bytes(7) + unsigned(1) + unsigned(2) + string(name) + bytes(8) + string(state) + b"\0\0"


# The name and the state of an id, and whether they fit.
TEXTS: dict[str, tuple[str, str, bool]] = {
    "the longest name": ("x" * TEXT_BYTES_MAX, "Empty", True),
    "a longer name": ("x" * (TEXT_BYTES_MAX + 1), "Empty", False),
    "a longer name in other letters": ("ä" * (TEXT_BYTES_MAX // 2 + 1), "Empty", False),
    "a longer state": ("x", "x" * (TEXT_BYTES_MAX + 1), False),
}


def test_the_texts_of_an_answer_are_limited() -> None:
    """A name of 50 MB was stored and printed whole. Both decoders have the limit: kafka-python's, and the own one."""
    with Cases() as cases:
        for name, (of_id, state, fits) in TEXTS.items():
            body = one_id(of_id, state)
            with cases.case(f"{name}, kafka-python"):
                if fits:
                    ((_, answer),) = answers_to(ask(), in_frame(1, body))
                    assert answer.transaction_states[0].transactional_id == of_id
                else:
                    with pytest.raises(InvalidReceiveError, match=r"text|number"):
                        answers_to(ask(), in_frame(1, body))
            with cases.case(f"{name}, own decoder"):
                ids = list_transactions.listing(partial(given, Body(0, body[1:])), 1, ListingFilter())
                if fits:
                    assert [one for one, _ in ids] == [of_id]
                else:
                    with pytest.raises(RequestFailed, match="too long"):
                        list(ids)


def test_the_name_of_a_topic_in_a_description_is_limited() -> None:
    """It is repeated for each partition: 5 MB became gigabytes."""
    for name, fits in (("t" * 249, True), ("t" * 250, False)):
        answer = with_partitions(1, 2)
        answer.transaction_states[0].topics[0].topic = name
        if fits:
            described = describe_transactions.describe_transactions(partial(given, answer), 1, ["tx"])
            assert described["tx"].partitions == (f"{name}-0", f"{name}-0")
        else:
            with pytest.raises(RequestFailed):
                describe_transactions.describe_transactions(partial(given, answer), 1, ["tx"])


def test_tagged_fields_of_an_answer_are_limited() -> None:
    """kafka-python copies the rest of an answer for each struct with one, and 80,000 took five seconds."""
    one = b"\3tx" + bytes(8) + b"\6Empty"
    answers = {
        "in each struct": (one + b"\1\x63\0") * 50_000,
        "in one": one + unsigned(ELEMENTS_MAX + 1) + b"\x63\0" * (ELEMENTS_MAX + 1),
    }
    with Cases() as cases:
        for name, body in answers.items():
            with cases.case(name):
                count = 50_000 if name == "in each struct" else 1
                began = time.monotonic()
                with pytest.raises(InvalidReceiveError):
                    answers_to(ask(), in_frame(1, bytes(8) + unsigned(count + 1) + body + b"\0"))
                assert time.monotonic() - began < 2
        with cases.case("a few, as later versions may have"):
            body = bytes(8) + unsigned(3) + (one + b"\1\x63\1x") * 2 + b"\1\x63\0"
            ((_, answer),) = answers_to(ask(), in_frame(1, body))
            assert [state.transactional_id for state in answer.transaction_states] == ["tx", "tx"]


def test_a_broker_with_a_throttle_time_of_days_is_given_up() -> None:
    slept_s: list[float] = []
    peer = FakeBroker(lambda key, version, c: listing(c, version, 2**31 - 1) if key == LIST_TRANSACTIONS else None)
    with Client(SOON, [broker(1, peer.port)], sleep=slept_s.append) as client:
        assert client.send(1, ask()).error_code == 0
        with pytest.raises(RequestFailed) as failed:
            client.send(1, ask())
    peer.close()
    assert not failed.value.sent and sum(slept_s) * 1_000 <= THROTTLE_MS_MAX


def test_a_growing_log_is_read_up_to_its_first_known_end() -> None:
    reading = Reading("t-0")
    assert not reading.is_done(0, 10, 100, 1_000)
    assert reading.is_done(90, 100, 2**62, 1_000)


# Name, the bytes of an answer, the offsets of an answer, and the number of answers after which the read fails.
ENDLESS_LOGS = (
    ("small answers, one offset each", 70, 1, 101),
    ("answers of 1 KiB, one offset each", 1_025, 1, 101),
    ("answers that are not small, one offset each", 16 * 1024, 1, 1_000),
    ("answers that are not small, many offsets each", 16 * 1024, 2**40, 1_000),
    ("large answers", 2 * MIB, 1, 512),
)


def test_a_log_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below a high watermark of 2^62 a log was read for ever."""
    monkeypatch.setattr(fetch, "_SMALL_ANSWERS_MAX", 100)
    monkeypatch.setattr(fetch, "_REQUESTS_MAX", 1_000)
    monkeypatch.setattr(fetch, "_BYTES_MAX", 1 << 30)
    with Cases() as cases:
        for name, size_bytes, offsets, answers in ENDLESS_LOGS:
            with cases.case(name):
                reading, count = Reading("t-0"), 0
                with pytest.raises(RequestFailed):
                    while not reading.is_done(count * offsets, (count + 1) * offsets, 2**62, size_bytes):
                        count += 1
                assert count + 1 == answers


def test_a_long_log_in_small_answers_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_SMALL_ANSWERS_MAX", 100)
    reading, offset = Reading("t-0"), 0
    while not reading.is_done(offset, offset + 1, 1_000, 20_000):
        offset += 1
    assert offset == 999


class Dripping:
    """A port whose peer sends some bytes at once, and then others, slowly, for ever. Entering gives its number."""

    def __init__(self, first: bytes, then: bytes) -> None:
        self._first, self._then = first, then
        self._listener = socket.create_server((ADDRESS, 0))
        self._over = threading.Event()

    def __enter__(self) -> int:
        threading.Thread(target=self._accept, daemon=True).start()
        return int(self._listener.getsockname()[1])

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._drip, args=(self._listener.accept()[0],), daemon=True).start()

    def _drip(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.sendall(self._first)
            while not self._over.wait(0.05):
                connection.sendall(self._then)


# Name, the bytes sent at once, and those sent then, one at a time. The look at a port ends all the same.
DRIPPING_PORTS: tuple[tuple[str, bytes, bytes], ...] = (
    ("nothing", b"", b""),
    ("the length of an answer", b"", b"\0"),
    ("an answer", struct.pack(">i", 60_000), b"\0"),
    ("a TLS handshake", b"\x16\x03\x03\x3f\xff\x02", b"\0"),
    ("TLS alerts", b"", b"\x15\x03\x03\0\2\1\0"),
)


def test_the_look_at_a_port_ends_however_slowly_its_peer_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txnscan.kafka.client.listener.LOOK_S_MAX", 1.0)
    with Cases() as cases:
        for name, first, then in DRIPPING_PORTS:
            with cases.case(name), Dripping(first, then) as port:
                began = time.monotonic()
                look([ADDRESS], port)
                assert time.monotonic() - began < 3


def test_a_setting_that_is_no_number_fails_its_request() -> None:
    def send(broker_id: int, request: Any) -> Any:
        result = DescribeConfigsResponse.DescribeConfigsResult
        names = request.resources[0].configuration_keys
        configs = [result.DescribeConfigsResourceResult(name=name, value="9" * 5 + "x") for name in names]
        return DescribeConfigsResponse(results=[result(error_code=0, resource_name="t", configs=configs)])

    for ask_it in (lambda: transaction_max_timeout_ms(send, 1), lambda: topic_cleaning(send, 1, ["t"])):
        with pytest.raises(RequestFailed):
            ask_it()


SNAPPY, LZ4, BLOCKS = 2, 3, b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
# Batches with false sizes, by codec. Snappy batches are refused without its library.
CLAIMS: tuple[tuple[str, int, bytes], ...] = (
    ("4 GB", SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(20)),
    ("an endless number", SNAPPY, b"\xff" * 100),
    ("no size", SNAPPY, b""),
    ("blocks of 70 MB in all", SNAPPY, BLOCKS + (struct.pack(">i", 20) + unsigned(10 * MIB) + bytes(16)) * 7),
    ("a block of -4 bytes", SNAPPY, BLOCKS + struct.pack(">i", -4) + bytes(20)),
    ("blocks of no bytes", SNAPPY, BLOCKS + bytes(400)),
    ("millions of empty blocks", SNAPPY, BLOCKS + (struct.pack(">i", 1) + bytes(1)) * MIB),
    ("a block of 2 GB", SNAPPY, BLOCKS + struct.pack(">i", 2**31 - 1) + bytes(20)),
    ("damaged blocks", SNAPPY, BLOCKS + struct.pack(">i", 20) + b"\x20" + b"\xff" * 19),
    ("no frame", LZ4, bytes(30)),
    ("nothing", LZ4, b""),
    ("a codec that is none", 5, b"x"),
)


def test_snappy_and_lz4_have_the_same_size_limit_and_fail_by_name() -> None:
    plain = batch(0, [(b"k", b"v" * 1_000)], producer_id=7, producer_epoch=3)
    claims = list(CLAIMS)
    if find_spec("lz4") is not None:
        from lz4 import frame

        sized = frame.LZ4FrameCompressor().begin(source_size=2**40)
        claims += [
            ("1 TB", LZ4, sized + bytes(20)),
            ("300 MB", LZ4, frame.compress(bytes(300 * MIB), store_size=False)),
            ("cut off", LZ4, frame.compress(plain)[:-5]),
        ]
        for store_size in (True, False):
            whole = compressed(plain, LZ4, frame.compress(plain[HEADER_BYTES:], store_size=store_size))
            assert decoded(whole, True)[0].records == decoded(plain, True)[0].records
    if find_spec("snappy") is not None:
        from kafka.codec import snappy_encode

        for blocks in (True, False):
            whole = compressed(plain, SNAPPY, snappy_encode(plain[HEADER_BYTES:], xerial_compatible=blocks))
            assert decoded(whole, True)[0].records == decoded(plain, True)[0].records
    with Cases() as cases:
        for name, codec, payload in claims:
            with cases.case(f"codec {codec}: {name}"):
                assert_refused_within_memory(compressed(plain, codec, payload))


def assert_refused_within_memory(packed: bytes) -> None:
    """The records of a batch of producer id 7 are refused, and its header is read."""
    tracemalloc.start()
    try:
        with pytest.raises(RequestFailed):
            decoded(packed, True)
        assert tracemalloc.get_traced_memory()[1] < 100 * MIB
    finally:
        tracemalloc.stop()
    assert decoded(packed, False)[0].producer_id == 7


def test_a_codec_without_its_library_is_a_failure_naming_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = batch(0, [(b"k", b"v")], producer_id=7, producer_epoch=3)
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    monkeypatch.setattr("kafka.codec.snappy", None)
    for name, codec, payload in (("snappy", SNAPPY, b"\x01x"), ("lz4", LZ4, b"x")):
        with pytest.raises(RequestFailed, match=name):
            decoded(compressed(plain, codec, payload), True)


def gzips(*members: bytes) -> bytes:
    return b"".join(gzip.compress(member, mtime=0) for member in members)


def zstds(*frames: bytes) -> bytes:
    return b"".join(zstandard.ZstdCompressor().compress(frame) for frame in frames)


def with_headers(count: int) -> bytes:
    """A record with so many empty headers."""
    body = b"\0\0\0\1\1" + unsigned(2 * count) + b"\0\1" * count
    return unsigned(2 * len(body)) + body


ZEROS = bytes(100 * MIB)
# Name, codec, and payload of a batch. The last has a marker's records.
BOMBS: tuple[tuple[str, int, Callable[[], bytes]], ...] = (
    ("gzip", 1, lambda: gzips(ZEROS)),
    ("gzip, in a second member", 1, lambda: gzips(b"x", ZEROS)),
    ("gzip, after an empty member", 1, lambda: gzips(b"", ZEROS)),
    ("gzip, in many members", 1, lambda: gzip.compress(bytes(MIB), mtime=0) * 99),
    ("gzip, in endless members", 1, lambda: gzip.compress(b"", mtime=0) * 50_000),
    ("gzip, cut off", 1, lambda: gzips(b"x" * 1_000)[:-9]),
    ("zlib", 1, lambda: zlib.compress(ZEROS)),
    ("zstd", 4, lambda: zstds(ZEROS)),
    ("zstd, in a second frame", 4, lambda: zstds(b"x", ZEROS)),
    ("zstd, in many frames", 4, lambda: zstds(bytes(MIB)) * 99),
    ("millions of headers", 0, lambda: with_headers(2_000_000)),
    ("zstd, millions of headers", 4, lambda: zstds(with_headers(20_000_000))),
    ("zstd, after a frame that is skipped", 4, lambda: bytes.fromhex("502a4d1804000000") + b"skip" + zstds(ZEROS)),
)


def test_a_decompression_bomb_is_refused_within_memory() -> None:
    """19 kB of zstd became 1.2 GB, and so did 1.2 MB of gzip in its second member."""
    plain = batch(0, [(b"k", b"v")], producer_id=7, producer_epoch=3)
    with Cases() as cases:
        for name, codec, payload in BOMBS:
            with cases.case(name):
                packed, began = compressed(plain, codec, payload()), time.monotonic()
                assert_refused_within_memory(packed)
                assert time.monotonic() - began < SECONDS_MAX


def test_the_batches_of_an_answer_have_one_ceiling() -> None:
    """Each of them expands to less than it."""
    plain = batch(0, [(b"k", b"v")], producer_id=7, producer_epoch=3)
    with Cases() as cases:
        for name, codec, payload in (("gzip", 1, gzips(bytes(30 * MIB))), ("zstd", 4, zstds(bytes(30 * MIB)))):
            with cases.case(name):
                assert_refused_within_memory(compressed(plain, codec, payload) * 3)


def test_a_batch_of_endless_tiny_records_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txnscan.kafka.protocol.records.RECORDS_MAX", 1_000)
    for count, fits in ((1_000, True), (1_001, False)):
        plain = batch(0, [(None, None)] * count, producer_id=7, producer_epoch=3)
        for one in (plain, compressed(plain, 4, zstds(plain[HEADER_BYTES:]))):
            if fits:
                assert decoded(one, True)[0].records_count == count
            else:
                with pytest.raises(RequestFailed):
                    decoded(one, True)


# Name, batch, and whether its records are read.
EXPANDING: tuple[tuple[str, Callable[[], bytes], bool], ...] = (
    ("a few equal records", lambda: of_equal_records(5_000), True),
    ("500,000 equal records", lambda: of_equal_records(500_000), False),
    ("equal headers", lambda: compressed(batch(0, [(b"k", b"v")]), 4, zstds(with_headers(90_000))), False),
)


def test_the_numbers_that_are_read_grow_with_the_bytes_that_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """400 bytes of zstd took 2.5 s, at whatever time the sweep had to end."""
    read = [0]

    def counting(data: Any, at: int) -> Any:
        read[0] += 1
        return decode_varint(data, at)

    monkeypatch.setattr("txnscan.kafka.protocol.records.decode_varint", counting)
    with Cases() as cases:
        for name, made, fits in EXPANDING:
            with cases.case(name):
                packed, read[0] = made(), 0
                assert len(packed) < 1_000
                if fits:
                    assert decoded(packed, True)[0].records_count == 5_000
                else:
                    with pytest.raises(RequestFailed, match="for its size"):
                        decoded(packed, True)
                assert read[0] <= 100_000


def records_with_headers(records: int, headers: int) -> bytes:
    """A batch of records that have so many headers each."""
    builder = DefaultRecordBatchBuilder(2, 0, True, 7, 3, 0, 1 << 30)
    for offset in range(records):
        builder.append(offset, 0, b"k", b"v", [("", b"")] * headers)
    return bytes(builder.build())


def test_headers_of_records_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record has 7 numbers, and 2 for each header. Tracers add a dozen headers to each record."""
    with Cases() as cases:
        for name, records, headers, of_answer, of_record, fits in (
            ("as many as an answer may have", 100, 47, 10_100, 1_000, True),
            ("one more", 100, 47, 10_099, 1_000, False),
            ("as many as a record may have", 1, 97, 10_000, 201, True),
            ("one more in a record", 1, 98, 10_000, 201, False),
            ("usual records of a large batch", 20_000, 20, records_module.NUMBERS_MAX, 200_000, True),
        ):
            plain = records_with_headers(records, headers)
            monkeypatch.setattr(records_module, "NUMBERS_MAX", of_answer)
            monkeypatch.setattr(records_module, "NUMBERS_OF_RECORD_MAX", of_record)
            packed = compressed(plain, 4, zstds(plain[HEADER_BYTES:]))
            with cases.case(name):
                if fits:
                    assert decoded(packed, True)[0].records_count == records
                else:
                    with pytest.raises(RequestFailed, match="headers"):
                        decoded(packed, True)


def test_compressed_records_are_those_that_were_written() -> None:
    plain = batch(0, [(b"k", b"v" * 1_000), (None, b"w")], producer_id=7, producer_epoch=3)
    records = plain[HEADER_BYTES:]
    whole = {
        "gzip": (1, gzips(records)),
        "gzip of two members": (1, gzips(records[:5], records[5:])),
        "zstd": (4, zstds(records)),
        "zstd of two frames": (4, zstds(records[:5], records[5:])),
    }
    with Cases() as cases:
        for name, (codec, payload) in whole.items():
            with cases.case(name):
                assert decoded(compressed(plain, codec, payload), True) == decoded(plain, True)


def test_a_compressed_control_batch_is_damaged() -> None:
    """38 kB of zstd became 2.4 GB, because a marker's record is always read."""
    control = marker_batch(5, Marker(7, 3, 0, True))
    packed = {"gzip": (1, gzips(ZEROS)), "snappy": (2, b"\x01x"), "zstd": (4, zstds(ZEROS)), "none": (5, b"x"),
              "its own record": (1, gzips(control[HEADER_BYTES:]))}  # fmt: skip
    with Cases() as cases:
        for name, (codec, payload) in packed.items():
            one = compressed(control, codec, payload)
            for read in (partial(decoded, one, True), partial(decoded, one, False), partial(marker, one)):
                with cases.case(f"{name}: {read.func.__name__}"), pytest.raises(RequestFailed):
                    read()


# --- DescribeProducers

PRODUCER = struct.Struct(">qiiqiq")


def described(*producers: bytes, partitions: int = 1, topics: int = 1) -> Body:
    """An answer over equal partitions with these producers, numbered from 0, in each of the topics t, t, ..."""
    in_each = b"\0" + unsigned(len(producers) + 1) + b"".join(producers) + b"\0"
    numbered = b"".join(struct.pack(">ih", number, 0) + in_each for number in range(partitions))
    return Body(
        0, bytes(4) + unsigned(topics + 1) + (b"\2t" + unsigned(partitions + 1) + numbered + b"\0") * topics + b"\0"
    )


def many(count: int, open_each: int = 0, tagged_each: int = 0) -> list[bytes]:
    """Producers from id 0. Each n-th is open at offset 40, or has a tagged field."""
    return [
        PRODUCER.pack(number, 1, 5, 1_000, 2, 40 if open_each and not number % open_each else -1)
        + (b"\1\5\1x" if tagged_each and not number % tagged_each else b"\0")
        for number in range(count)
    ]


MANY = 30_000
# Name, producers, the open ids (None: the partition fails), and the memory limit.
PRODUCERS: tuple[tuple[str, list[bytes], range | None, int], ...] = (
    ("idle", many(MANY), range(0), MIB // 2),
    ("some open", many(MANY, 1_000), range(0, MANY, 1_000), MIB),
    ("one of them tagged", many(MANY, 1_000, MANY), range(0, MANY, 1_000), 2 * MIB),
    ("all tagged", many(MANY, 1_000, 1), range(0, MANY, 1_000), 2 * MIB),
    ("more open than may be", many(MANY, 2), None, 2 * MIB),
    ("an open one twice", [*many(MANY, 1_000), *many(1, 1)], None, MIB),
    ("an open one idle, too", [*many(MANY, 1_000), *many(1)], None, MIB),
    ("an open one idle, too, and tagged", [*many(MANY, 1_000), *many(1, 0, 1)], None, MIB),
)


def test_only_open_producers_are_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """3,000,000 idle producers took 420 MB and 12 s."""
    monkeypatch.setattr(describe_producers, "_OPEN_MAX", 300)
    with Cases() as cases:
        for name, producers, still_open, bytes_max in PRODUCERS:
            with cases.case(name):
                body = described(*producers)
                tracemalloc.start()
                try:
                    found = describe_producers.decode(body, 1)["t", 0]
                    assert tracemalloc.get_traced_memory()[1] < bytes_max
                finally:
                    tracemalloc.stop()
                assert (found.failure is not None) == (still_open is None)
                assert [p.producer_id for p in found.open_producers] == list(still_open or ())
                assert found.producers == (0 if still_open is None else len(producers))


def test_slices_of_any_size_have_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = [described(*many(300, 7, tagged), partitions=2) for tagged in (0, 1, 50, 299)]
    whole = [describe_producers.decode(body, 2) for body in bodies]
    assert {len(one.open_producers) for found in whole for one in found.values()} == {43}
    for size in (1, 2, 7, 299, 300):
        monkeypatch.setattr(describe_producers, "_SLICE", size)
        assert [describe_producers.decode(body, 2) for body in bodies] == whole


def test_an_answer_full_of_unrequested_items_is_refused() -> None:
    answers = {
        "partitions": described(partitions=200_000),
        "topics": described(partitions=0, topics=200_000),
        "partitions of many topics": described(partitions=500, topics=500),
        "tagged fields": described(PRODUCER.pack(1, 1, 5, 1_000, 2, -1) + unsigned(100_000) + b"\0\0" * 100_000),
    }
    asks = (describe_producers.describe_producers, describe_producers.describe_all_producers)
    with Cases() as cases:
        for name, body in answers.items():
            for ask_it in asks:
                with cases.case(f"{ask_it.__name__}: {name}"):
                    tracemalloc.start()
                    try:
                        with pytest.raises(RequestFailed):
                            ask_it(lambda *_, body=body: body, 1, {"t": [0]})
                        assert tracemalloc.get_traced_memory()[1] < MIB
                    finally:
                        tracemalloc.stop()


# Names of SASL mechanisms by length and bytes, and whether they are shown.
MECHANISMS = (
    (((5, b"PLAIN"), (13, b"SCRAM-SHA-256")), True),
    (((5, b"PLAIN"), (9, b"\x1b[31mEVIL")), False),
    (((-2, b""),), False),
    (((0, b""),), False),
    (((30_000, b"A" * 30_000),), False),
)


def test_the_mechanisms_of_a_peer_are_bounded_and_printable() -> None:
    for names, shown in MECHANISMS:
        answer = b"".join(struct.pack(">h", size) + name for size, name in names)

        def handshake(key: int, version: int, c: int, answer: bytes = answer, count: int = len(names)) -> bytes:
            claimed = 2**31 - 1 if count == 1 else count
            return in_frame(c, struct.pack(">hi", 33, claimed) + answer)

        peer = FakeBroker(handshake)
        found = look([ADDRESS], peer.port)
        peer.close()
        assert bool(found.mechanisms) == shown
        assert all(name.isprintable() for name in found.mechanisms)


# --- HTTP

HEAD = b"HTTP/1.1 200 OK\r\n"
# Name, scheme, the bytes sent at once, and the bytes then sent repeatedly, one at a time.
DRIPS: tuple[tuple[str, str, bytes, bytes], ...] = (
    ("nothing", "http", b"", b""),
    ("a status line", "http", b"HTTP/1.1 200 ", b"O"),
    ("a header", "http", HEAD + b"X-Header: ", b"x"),
    ("headers", "http", HEAD, b"X: y\r\n"),
    ("answers before the answer", "http", b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ("the length of a chunk", "http", HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"0"),
    ("an error's header", "http", b"HTTP/1.1 500 No\r\nX-Header: ", b"x"),
    ("a TLS handshake", "https", b"\x16\x03\x03\x3f\xff\x02", b"\0"),
)


def delivered(url: str) -> None:
    post_json(Target(url, SHAPES["json"]), b"{}")


def token(url: str) -> None:
    Tokens(OAuthSettings(url, "me", "secret")).token()


CLIENTS: tuple[tuple[str, Callable[[str], None], type[Exception]], ...] = (
    ("a notification", delivered, NotSent),
    ("a token", token, TokenFailed),
)


@pytest.fixture
def short_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "TIMEOUT_S", HTTP_DEADLINE_S)
    monkeypatch.setattr(oauth, "_SECONDS_MAX", HTTP_DEADLINE_S)


@pytest.mark.usefixtures("short_deadline")
def test_an_http_answer_sent_byte_by_byte_fails_at_one_deadline() -> None:
    with Cases() as cases:
        for name, scheme, first, again in DRIPS:
            for client, ask_it, error in CLIENTS:
                with cases.case(f"{client}: {name}"), HttpPeer(first, again) as server:
                    began_s = time.monotonic()
                    with pytest.raises(error):
                        ask_it(f"{scheme}://127.0.0.1:{server.port}/")
                    assert time.monotonic() - began_s < SECONDS_MAX / 4


@pytest.mark.usefixtures("short_deadline")
def test_a_name_with_many_dead_addresses_fails_at_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_s: list[float] = []

    def never(address: object, timeout: float) -> socket.socket:
        asked_s.append(timeout)
        time.sleep(timeout)
        raise TimeoutError

    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 80))] * 50
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(socket, "create_connection", never)
    with Cases() as cases:
        for client, ask_it, error in CLIENTS:
            with cases.case(client):
                asked_s.clear()
                with pytest.raises(error):
                    ask_it("http://many.example/")
                assert asked_s and sum(asked_s) <= HTTP_DEADLINE_S


@pytest.mark.usefixtures("short_deadline")
def test_a_dead_address_leaves_time_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "TIMEOUT_S", SECONDS_MAX)
    connect = socket.create_connection

    def first_is_dead(address: tuple[str, int], timeout: float) -> socket.socket:
        if address[0] == "192.0.2.1":
            assert timeout < SECONDS_MAX
            raise TimeoutError
        return connect(address, timeout)

    with HttpPeer(HEAD + b"\r\n", b"x") as server:
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, server.port)) for host in ("192.0.2.1", "127.0.0.1")
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        monkeypatch.setattr(socket, "create_connection", first_is_dead)
        delivered(f"http://two.example:{server.port}/")


# Answers of an HTTP peer, sent in one piece. Their bodies follow the head.
BODY = HEAD + b"Content-Type: application/json\r\n\r\n"
ANSWERS: tuple[tuple[str, bytes], ...] = (
    ("no HTTP", b"\0\xff" * 100 + b"\r\n\r\n"),
    ("an endless status line", b"HTTP/1.1 200 " + b"O" * MIB),
    ("an endless header", HEAD + b"X: " + b"x" * MIB),
    ("a million headers", HEAD + b"X: y\r\n" * MIB),
    ("a chunk without a length", HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
)
NO_TOKENS: tuple[tuple[str, bytes], ...] = (
    *ANSWERS,
    ("a body cut short", HEAD + b"Content-Length: 100\r\n\r\n{"),
    ("a deep body", BODY + b"[" * 500_000),
    ("a long number", BODY + b'{"access_token": "abc", "expires_in": ' + b"9" * 500_000 + b"}"),
    ("a lifetime that is no number", BODY + b'{"access_token": "abc", "expires_in": NaN}'),
    ("a lifetime without end", BODY + b'{"access_token": "abc", "expires_in": 1e999}'),
    ("a body that is no UTF-8", BODY + b"\xff\xfe\xfd"),
)


def test_an_invalid_http_answer_fails_its_request() -> None:
    for_a_token = [(name, "a token", token, TokenFailed, sent) for name, sent in NO_TOKENS]
    for_a_delivery = [(name, "a notification", delivered, NotSent, sent) for name, sent in ANSWERS]
    with Cases() as cases:
        for name, client, ask_it, error, sent in (*for_a_delivery, *for_a_token):
            with cases.case(f"{client}: {name}"), HttpPeer(sent) as server, pytest.raises(error):
                ask_it(f"http://127.0.0.1:{server.port}/")
