"""The names of brokers are looked up within a time limit, by a limited number of threads, and beside the I/O thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cases import Cases
from tests.fakes.cluster import ADDRESS
from tests.fakes.peer import SOON, ask, starting
from txnscan.demo.wait import wait_until
from txnscan.kafka.client import names
from txnscan.kafka.client.client import Client
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.client.deadline import Deadline
from txnscan.kafka.client.names import addresses
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import FailureCode
from txnscan.kafka.topology import Broker

SLOTS = 3
SLOW = "slow.example"


class Resolver:
    """Stands in for `getaddrinfo`: names wait until they are released. Addresses need no look-up."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.under_way = 0

    def __call__(self, host: str, port: int, *rest: Any, flags: int = 0) -> Any:
        if host == ADDRESS:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ADDRESS, port))]
        if flags & socket.AI_NUMERICHOST or host == "unknown.example":
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        self.under_way += 1
        self.released.wait(60)
        self.under_way -= 1
        return self(ADDRESS, port)


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    one = Resolver()
    monkeypatch.setattr(names, "_FREE", threading.Semaphore(SLOTS))
    monkeypatch.setattr("txnscan.kafka.client.names.socket.getaddrinfo", one)
    yield one
    one.released.set()
    wait_until(lambda: one.under_way == 0, "the look-ups ended", 60)


def test_names_that_do_not_resolve_in_time_take_a_limited_number_of_threads(resolver: Resolver) -> None:
    for _ in range(SLOTS + 5):
        with pytest.raises(TimeoutError):
            addresses(SLOW, 1, 0.05)
        assert resolver.under_way <= SLOTS
    assert resolver.under_way == SLOTS
    # An address needs none of them.
    assert addresses(ADDRESS, 1, 0.05)[0][4] == (ADDRESS, 1)
    resolver.released.set()
    wait_until(lambda: resolver.under_way == 0, "the look-ups ended", 60)
    assert addresses(SLOW, 2, 60.0)[0][4] == (ADDRESS, 2)


def test_a_name_that_is_none_fails_and_frees_its_thread(resolver: Resolver) -> None:
    for _ in range(2 * SLOTS):
        with pytest.raises(socket.gaierror):
            addresses("unknown.example", 1, 60.0)


def test_a_name_with_impossible_labels_fails_as_an_unknown_one() -> None:
    with Cases() as cases:
        for name in ("a..b", "a" * 64 + ".example", "." * 200):
            with cases.case(name), pytest.raises(socket.gaierror):
                addresses(name, 1, 60.0)


def test_a_slow_name_delays_no_other_broker(resolver: Resolver) -> None:
    slow = ConnectionSettings(request_timeout_ms=600_000, connection_setup_timeout_ms=600_000)
    failed: list[RequestFailed] = []
    with starting() as start:
        peers = [Broker(1, SLOW, 9092), Broker(2, ADDRESS, start().port)]
        with Client(slow, peers) as client:

            def ask_slow() -> None:
                try:
                    client.send(1, ask())
                except RequestFailed as error:
                    failed.append(error)

            waiting = threading.Thread(target=ask_slow)
            waiting.start()
            wait_until(lambda: resolver.under_way == 1, "the name is looked up", 60)
            assert client.send(2, ask()).error_code == 0
            assert waiting.is_alive()
            resolver.released.set()
            waiting.join()


def test_a_slow_name_costs_one_try_and_ends_with_the_deadline(resolver: Resolver) -> None:
    with Client(SOON, [Broker(1, SLOW, 9092)]) as client:
        for _ in range(3):
            with pytest.raises(RequestFailed) as failed:
                client.send(1, ask())
            assert failed.value.failure.code == FailureCode.UNREACHABLE and SLOW in failed.value.error
        assert resolver.under_way == 1
    deadline = Deadline.after(300)
    with Client(SOON, [Broker(1, SLOW, 9092)], deadline=deadline) as client:
        with pytest.raises(RequestFailed):
            client.send(1, ask())
        assert resolver.under_way == 2
