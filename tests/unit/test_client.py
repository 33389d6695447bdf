"""Connections to brokers that refuse, stay silent, send garbage or throttle. A failure stays with its broker."""

from __future__ import annotations

import gc
import logging
import pickle
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from kafka.protocol.admin import DescribeProducersRequest
from kafka.protocol.sasl import SaslAuthenticateResponse

from tests.cases import Cases
from tests.fakes.cluster import ADDRESS, broker
from tests.fakes.peer import (
    CLOSE,
    LIST_TRANSACTIONS,
    SASL_AUTHENTICATE,
    SILENCE,
    SOON,
    FakeBroker,
    Misbehave,
    ask,
    framed,
    instead,
    listing,
    starting,
)
from tests.sim.wire import ClusterShape, WireCluster
from txnscan.kafka.client.client import Client, _Manager
from txnscan.kafka.client.connection import ConnectionSettings, OAuthSettings, TlsSettings
from txnscan.kafka.client.deadline import Deadline
from txnscan.kafka.client.listener import NOTHING_LISTENS
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import FailureCode
from txnscan.kafka.protocol.list_transactions import ListedTransaction, list_transactions
from txnscan.kafka.protocol.metadata import read_metadata
from txnscan.kafka.security.oauth import Tokens
from txnscan.kafka.topology import Broker

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

GARBAGE = b"HTTP/1.1 400 Bad Request\r\n\r\n"


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@pytest.fixture
def start() -> Iterator[Callable[..., FakeBroker]]:
    with starting() as begin:
        yield begin


@pytest.fixture
def logs() -> Iterator[list[logging.LogRecord]]:
    """What `--log-level debug` would show from here on."""
    records: list[logging.LogRecord] = []
    handler, root, level = logging.Handler(), logging.getLogger(), logging.getLogger().level
    handler.emit = records.append  # type: ignore[assignment, method-assign]
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield records
    root.removeHandler(handler)
    root.setLevel(level)


def test_a_failure_survives_pickling() -> None:
    failed = RequestFailed.unsupported("broker 1", "ListTransactions")
    there = pickle.loads(pickle.dumps(failed))
    assert (there.failure, there.sent, str(there)) == (failed.failure, False, failed.error)


def failure(client: Client, broker_id: int = 1, request: Any = None) -> RequestFailed:
    with pytest.raises(RequestFailed) as failed:
        client.send(broker_id, request or ask())
    assert failed.value.error.isprintable() and str(failed.value) == failed.value.error
    return failed.value


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """These brokers answer no TLS handshake when their port is looked at."""
    monkeypatch.setattr("txnscan.kafka.client.listener._STEP_S_MAX", 0.5)


def test_a_request_returns_the_brokers_answer(start: Callable[..., FakeBroker]) -> None:
    with Client(SOON, [broker(1, start().port)]) as client:
        assert list_transactions(client.send, 1) == {"tx": ListedTransaction(7, "Empty")}


def test_an_unknown_broker_fails_without_a_request(wording: SnapshotAssertion) -> None:
    with Client(SOON) as client:
        failed = failure(client, 9)
    assert not failed.sent
    assert failed.error == wording


def test_a_connection_begins_with_the_question_of_which_cluster_it_is() -> None:
    with WireCluster(ClusterShape(brokers=1, partitions=1)) as cluster:
        host, _, port = cluster.bootstrap_servers.rpartition(":")
        with Client(SOON, [Broker(-1, host, int(port))]) as client:
            view = read_metadata(client.send, -1, [])
            client.learn(view.brokers)
            (named,) = view.brokers
            assert named.cluster_id == view.cluster_id != ""
            for _ in range(2):
                client.send(named.broker_id, ask())
            stats = cluster.stats()[named.broker_id].requests
            assert (stats["Metadata"], stats["ListTransactions"]) == (2, 2), "once, and once for the bootstrap server"
            client._connections[named.broker_id].close()
            client.send(named.broker_id, ask())
            assert cluster.stats()[named.broker_id].requests["Metadata"] == 3, "a new connection asks again"
        before = cluster.stats()[named.broker_id].requests["ListTransactions"]
        with Client(SOON, [replace(named, cluster_id="another")]) as client:
            failed = [failure(client, named.broker_id) for _ in range(2)]
        assert {one.failure.code for one in failed} == {FailureCode.BROKERS_DISAGREE}
        assert view.cluster_id in failed[0].error and "another" in failed[0].error
        assert cluster.stats()[named.broker_id].requests["ListTransactions"] == before


def test_a_broker_that_moves_during_a_request_did_not_send_a_broken_answer(
    start: Callable[..., FakeBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread learns its new address after the request has begun."""
    with Client(SOON, [broker(1, start().port)]) as client:
        runs = client._net.run

        def moved(*arguments: Any) -> Any:
            monkeypatch.undo()
            client.learn([broker(1, start().port)])
            return runs(*arguments)

        monkeypatch.setattr(client._net, "run", moved)
        try:
            client.send(1, ask())
        except RequestFailed as failed:
            assert "decoded" not in failed.error
        assert client.send(1, ask()).error_code == 0


def test_a_refused_connection_is_not_retried_until_the_address_changes(
    start: Callable[..., FakeBroker],
) -> None:
    with socket.create_server((ADDRESS, 0)) as taken:
        port = taken.getsockname()[1]
    with Client(SOON, [broker(1, port)]) as client:
        first = failure(client)
        assert first.error.startswith(f"broker 1 ({ADDRESS}:{port}) cannot be reached: ")
        start(port=port)
        second = failure(client)
        assert (second.error, second.sent) == (first.error, False), "the broker answers now, and was not asked"
        client.learn([broker(1, start().port)])
        assert client.send(1, ask()).error_code == 0


def test_a_refused_connection_has_the_same_remedy_if_there_is_no_time_for_a_look() -> None:
    with socket.create_server((ADDRESS, 0)) as taken:
        port = taken.getsockname()[1]
    with (
        Client(SOON, [broker(1, port)]) as looks,
        Client(SOON, [broker(1, port)], deadline=Deadline.after(3_000)) as hurries,
    ):
        errors = [failure(client).error for client in (looks, hurries)]
    assert errors == [f"broker 1 ({ADDRESS}:{port}) cannot be reached: {NOTHING_LISTENS}"] * 2


@pytest.mark.parametrize("lookup_s", [0.0, 5.0])
def test_the_lookup_of_a_name_has_a_time_limit(lookup_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs on no thread that other brokers need."""
    asked, release = threading.Event(), threading.Event()

    def slow(host: str, *arguments: Any, flags: int = 0) -> Any:
        if not flags & socket.AI_NUMERICHOST:
            asked.set()
            release.wait(lookup_s)
        raise socket.gaierror("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with Client(SOON, [Broker(1, "made-up.example", 9092)]) as client:
        began_s = time.monotonic()
        error = failure(client).error
        assert asked.is_set() and time.monotonic() - began_s < 2
        release.set()
    assert ("300 ms" in error) == (lookup_s > 0)


def test_sockets_of_unreachable_brokers_are_closed_at_once() -> None:
    def open_sockets() -> set[socket.socket]:
        return {each for each in gc.get_objects() if isinstance(each, socket.socket) and each.fileno() >= 0}

    with socket.create_server((ADDRESS, 0)) as taken:
        nobody = taken.getsockname()[1]
    with socket.create_server((ADDRESS, 0), backlog=0) as full, socket.create_connection(full.getsockname()):
        gc.collect()
        gc.disable()
        try:
            before = open_sockets()
            for port in (nobody, nobody, full.getsockname()[1]):
                with Client(SOON, [broker(1, port)]) as client:
                    assert "cannot be reached" in failure(client).error
            assert open_sockets() - before == set()
        finally:
            gc.enable()


def test_a_bootstrap_server_is_named_in_the_error() -> None:
    with socket.create_server((ADDRESS, 0)) as taken:
        port = taken.getsockname()[1]
    with Client(SOON, [broker(-1, port)]) as client:
        assert failure(client, -1).error.startswith(f"the bootstrap server ({ADDRESS}:{port}) cannot be reached")


@pytest.mark.parametrize(
    ("settings", "misbehave"),
    [
        (SOON, lambda *_: SILENCE),
        (SOON, instead(SILENCE)),
        (SOON, instead(struct.pack(">i", 100) + b"half")),
        (ConnectionSettings("SSL", TlsSettings(), request_timeout_ms=300, connection_setup_timeout_ms=300), None),
    ],
    ids=["from the start", "after ApiVersions", "in the middle of an answer", "in the TLS handshake"],
)
def test_a_silent_broker_fails_within_its_timeouts_and_the_next_request_fails_at_once(
    start: Callable[..., FakeBroker],
    settings: ConnectionSettings,
    misbehave: Misbehave | None,
    wording: SnapshotAssertion,
) -> None:
    with Client(settings, [broker(1, start(misbehave or (lambda *_: SILENCE)).port)]) as client:
        first = failure(client)
        assert re.sub(r":\d+\)", ":<port>)", first.error) == wording
        second = failure(client)
        assert (second.error, second.sent) == (first.error, False)


SPOILED: dict[str, tuple[Misbehave, str]] = {
    "no Kafka at all": (lambda *_: GARBAGE, "outside the limits"),
    "garbage": (instead(GARBAGE), "outside the limits"),
    "a huge length": (instead(struct.pack(">i", 2**31 - 1)), "outside the limits"),
    "a negative length": (instead(struct.pack(">i", -5)), "outside the limits"),
    "another correlation id": (instead(lambda c: listing(c + 1)), "Correlation IDs do not match"),
    "a closed connection": (instead(CLOSE), "cannot be reached"),
    "closed at once": (lambda *_: CLOSE, "cannot be reached"),
    # These raise an IndexError in kafka-python's decoder, see below.
    "an empty frame": (instead(frame(b"")), ""),
    "a header alone": (instead(lambda c: frame(struct.pack(">i", c))), ""),
    "a cut answer": (instead(lambda c: frame(listing(c)[4:-6])), ""),
    "a body that is none": (instead(lambda c: frame(struct.pack(">ib", c, 0) + b"\x7f" * 40)), ""),
}


@pytest.mark.parametrize("name", SPOILED)
def test_an_invalid_answer_fails_only_its_request(start: Callable[..., FakeBroker], name: str) -> None:
    misbehave, said = SPOILED[name]
    with Client(SOON, [broker(1, start(misbehave).port), broker(2, start().port)]) as client:
        assert client.send(2, ask()).error_code == 0
        failed = failure(client)
        assert failed.error.startswith(f"broker 1 ({ADDRESS}:") and said in failed.error
        for _ in range(3):
            assert client.send(2, ask()).transaction_states[0].producer_id == 7
        assert failure(client).error.startswith("broker 1 (")


def test_an_answer_of_zeros_fails_its_request(start: Callable[..., FakeBroker]) -> None:
    zeros = instead(lambda c: frame(struct.pack(">i", c) + bytes(40)))
    with Client(SOON, [broker(1, start(zeros).port)]) as client, pytest.raises(RequestFailed):
        list_transactions(client.send, 1)


def test_only_requests_that_were_sent_are_received(start: Callable[..., FakeBroker]) -> None:
    """kafka-python could bootstrap in the background."""
    with ExitStack() as stack:
        lost = [start(instead(answer)) for answer in (GARBAGE, CLOSE, SILENCE)]
        for one in lost:
            failure(stack.enter_context(Client(SOON, [broker(1, one.port)])))
        assert not lost[-1].asked_for_metadata.wait(1)
        assert [one.asked_for_metadata.is_set() for one in lost] == [False] * 3


def test_a_kept_connection_closed_by_the_broker_is_reopened_once(start: Callable[..., FakeBroker]) -> None:
    asked: list[int] = []

    def close_on_the(*numbers: int) -> Misbehave:
        def misbehave(key: int, _: int, correlation_id: int) -> Any:
            if key != LIST_TRANSACTIONS:
                return None
            asked.append(correlation_id)
            return CLOSE if len(asked) in numbers else None

        return misbehave

    with Client(SOON, [broker(1, start(close_on_the(2, 4, 5)).port)]) as client:
        client.send(1, ask())
        assert client.send(1, ask()).error_code == 0, "closed for being idle, and asked again"
        assert "cannot be reached" in failure(client).error, "closed, asked again, and closed again"
    assert len(asked) == 5


def test_an_unsupported_api_fails_before_it_is_sent(start: Callable[..., FakeBroker]) -> None:
    with Client(SOON, [broker(1, start().port)]) as client:
        failed = failure(client, request=DescribeProducersRequest(topics=[]))
        assert failed.error.endswith("does not support DescribeProducers") and not failed.sent
        assert client.send(1, ask()).error_code == 0, "the connection is as good as before"


def test_refused_credentials_are_reported_without_the_password(start: Callable[..., FakeBroker]) -> None:
    settings = ConnectionSettings("SASL_PLAINTEXT", None, "PLAIN", "alice", "s3cret", request_timeout_ms=300)
    with Client(settings, [broker(1, start().port)]) as client:
        failed = failure(client)
        assert "refused the credentials" in failed.error and "s3cret" not in failed.error
        assert failure(client).error == failed.error


SECRET = "s3cret  with spaces"
# A reason of a broker, and whether the failure shows it.
REASONS = {
    "as Kafka words it": ("Authentication failed: Invalid username or password", True),
    "with the password": (f"no {SECRET}", False),
    "with the bytes that it got": (f"\0alice\0{SECRET}", False),
    "with the password in an endless text": ("x" * 30_000 + SECRET, False),
    "an endless text": ("x" * 30_000, True),
}


def test_the_reason_of_a_broker_never_shows_the_password(
    start: Callable[..., FakeBroker], logs: list[logging.LogRecord]
) -> None:
    """Neither in a failure, which reaches tables and notifications, nor in a log."""
    settings = ConnectionSettings("SASL_PLAINTEXT", None, "PLAIN", "alice", SECRET, request_timeout_ms=300)
    with Cases() as cases:
        for name, (reason, shows) in REASONS.items():
            with cases.case(name):
                logs.clear()

                def refuse(key: int, version: int, correlation_id: int, reason: str = reason) -> bytes | None:
                    if key != SASL_AUTHENTICATE:
                        return None
                    answer = SaslAuthenticateResponse(
                        version=version, error_code=58, error_message=reason, auth_bytes=b""
                    )
                    return framed(answer, correlation_id)

                with Client(settings, [broker(1, start(refuse).port)]) as client:
                    error = failure(client).error
                assert len(error) < 600 and (reason[:50] in error) is shows
                for said in (error, *(record.getMessage() for record in logs)):
                    assert "s3cret" not in said and len(said) < 2_000


def test_the_token_is_no_part_of_a_reason_either() -> None:
    tokens = Tokens(OAuthSettings("http://127.0.0.1:1/token", "id", "client secret"))
    tokens._token = "to.ken"
    manager = _Manager.__new__(_Manager)
    manager.config = {"sasl_plain_password": None, "sasl_oauth_token_provider": tokens}
    assert manager._secrets() == ["to.ken"]


def test_an_answer_that_cannot_be_decoded_is_not_logged(
    start: Callable[..., FakeBroker], logs: list[logging.LogRecord]
) -> None:
    """It may have half a gigabyte."""
    # The first transactional id in the list is no UTF-8.
    body = bytes(7) + b"\1\2\5\xff\xff\xff\xff" + bytes(1_000_000)
    with Client(SOON, [broker(1, start(instead(lambda c: frame(struct.pack(">i", c) + body))).port)]) as client:
        assert "Unable to decode" in failure(client).error
    assert all(len(record.getMessage()) < 2_000 for record in logs)


def test_a_throttle_time_delays_only_the_next_request_to_that_broker(
    start: Callable[..., FakeBroker],
) -> None:
    throttled = start(lambda key, version, c: listing(c, version, 5_000) if key == LIST_TRANSACTIONS else None)
    clock_s, slept_s = [100.0], []

    def sleep(seconds: float) -> None:
        slept_s.append(seconds)
        clock_s[0] += seconds

    brokers = [broker(1, throttled.port), broker(2, start().port)]
    with Client(SOON, brokers, monotonic_s=lambda: clock_s[0], sleep=sleep) as client:
        client.send(1, ask())
        assert slept_s == []
        clock_s[0] += 2
        client.send(2, ask())
        client.send(2, ask())
        assert slept_s == []
        client.send(1, ask())
        assert slept_s == [3.0]
        clock_s[0] += 60
        client.send(1, ask())
        assert slept_s == [3.0], "the time is over"


def test_a_connection_paused_by_the_library_is_awaited(start: Callable[..., FakeBroker]) -> None:
    modern = start(lambda key, version, c: listing(c, version, 30) if key == LIST_TRANSACTIONS else None, modern=True)
    with Client(SOON, [broker(1, modern.port)]) as client:
        assert [client.send(1, ask()).error_code for _ in range(3)] == [0, 0, 0]
