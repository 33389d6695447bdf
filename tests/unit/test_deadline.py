"""Requests end with the time of their sweep, and a broker delays a sweep for a bounded time.

Tests of long times use a clock of their own. Real times have wide margins.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.cases import Cases
from tests.fakes.cluster import broker
from tests.fakes.peer import LIST_TRANSACTIONS, SILENCE, SOON, FakeBroker, ask, instead, listing, starting
from txnscan.cli.options import QUESTION
from txnscan.config import parse_duration_ms
from txnscan.kafka.client import deadline as under_test
from txnscan.kafka.client.client import Client
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.client.deadline import (
    QUESTION_MS,
    SWEEP_MS,
    UNANSWERED_MAX,
    Deadline,
    FirstTries,
    Patience,
    TimeLeft,
    sweep_limit_ms,
)
from txnscan.kafka.client.factory import ClientFactory
from txnscan.kafka.errors import RequestFailed

# Much longer than any test: an earlier end was caused by the deadline.
LONG = ConnectionSettings(request_timeout_ms=600_000, connection_setup_timeout_ms=600_000)
SECONDS_MAX = 30.0


@pytest.fixture
def start() -> Iterator[Callable[..., FakeBroker]]:
    with starting() as begin:
        yield begin


def failure(client: Client, broker_id: int = 1) -> RequestFailed:
    with pytest.raises(RequestFailed) as failed:
        client.send(broker_id, ask())
    return failed.value


def in_order(*answers: Any) -> Any:
    """Answers listings in this order, and later ones correctly. None stands for the correct answer."""
    script = iter(answers)
    return lambda key, version, c: next(script, None) if key == LIST_TRANSACTIONS else None


def test_a_request_in_flight_ends_with_the_deadline_and_later_requests_are_not_sent(
    start: Callable[..., FakeBroker],
) -> None:
    table = (
        ("from the start", lambda *_: SILENCE),
        ("after ApiVersions", instead(SILENCE)),
        ("in the middle of an answer", instead(b"\0\0\0\x64half")),
    )
    with Cases() as cases:
        for name, misbehave in table:
            with cases.case(name):
                deadline = Deadline(TimeLeft(10**15, 400, 100_000))
                peers = [broker(1, start(misbehave).port), broker(2, start().port)]
                began_s = time.monotonic()
                with Client(LONG, peers, deadline=deadline) as client:
                    assert not deadline.missed
                    first = failure(client)
                    assert (first.failure, first.sent, deadline.missed) == (deadline.time_is_up, True, True)
                    for broker_id in (1, 2):
                        later = failure(client, broker_id)
                        assert (later.failure, later.sent) == (deadline.time_is_up, False)
                assert time.monotonic() - began_s < SECONDS_MAX


def test_queued_requests_end_with_the_deadline(start: Callable[..., FakeBroker]) -> None:
    began_s, failed = time.monotonic(), list[RequestFailed]()
    peers = [broker(1, start(instead(SILENCE)).port)]
    deadline = Deadline(TimeLeft(10**15, 400, 100_000))
    with Client(LONG, peers, deadline=deadline) as client:
        threads = [threading.Thread(target=lambda: failed.append(failure(client))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [one.failure for one in failed] == [deadline.time_is_up] * 8
    assert time.monotonic() - began_s < SECONDS_MAX


def test_a_silent_broker_takes_only_part_of_the_time(start: Callable[..., FakeBroker]) -> None:
    deadline = Deadline(TimeLeft(10**15, 120_000, 1_200))
    with Client(
        LONG, [broker(1, start(lambda *_: SILENCE).port), broker(2, start().port)], deadline=deadline
    ) as client:
        assert "300 ms" in failure(client).error
        assert not failure(client).sent
        assert client.send(2, ask()).error_code == 0
    assert not deadline.missed


def test_a_throttle_pause_ends_with_the_deadline(start: Callable[..., FakeBroker]) -> None:
    clock_s, slept_s = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        slept_s.append(seconds)
        clock_s[0] += seconds

    peer = start(lambda key, version, c: listing(c, version, 50_000) if key == LIST_TRANSACTIONS else None)
    deadline = Deadline(TimeLeft(10**15, 20_000, 20_000), monotonic_s=lambda: clock_s[0])
    with Client(SOON, [broker(1, peer.port)], deadline=deadline, monotonic_s=lambda: clock_s[0], sleep=sleep) as client:
        assert client.send(1, ask()).error_code == 0
        assert (failure(client).failure, slept_s) == (deadline.time_is_up, [20.0])


def test_a_broker_that_answered_before_gets_a_second_try(start: Callable[..., FakeBroker]) -> None:
    with Client(SOON, [broker(1, start(in_order(None, SILENCE, None, SILENCE, None)).port)]) as client:
        for _ in range(2):
            assert client.send(1, ask()).error_code == 0
            assert failure(client).sent
        assert client.send(1, ask()).error_code == 0
    with Client(SOON, [broker(1, start(in_order(None, SILENCE, SILENCE)).port)]) as client:
        assert client.send(1, ask()).error_code == 0
        assert [failure(client).sent for _ in range(3)] == [True, True, False]


def test_a_client_that_writes_gets_one_try(start: Callable[..., FakeBroker]) -> None:
    with Client(SOON, [broker(1, start(in_order(None, SILENCE)).port)], resends=False) as client:
        assert client.send(1, ask()).error_code == 0
        assert [failure(client).sent for _ in range(2)] == [True, False]


def test_a_slow_broker_is_given_up_for_this_sweep_only(start: Callable[..., FakeBroker]) -> None:
    """Each answer comes a second before the request's timeout."""
    clock_s = [0.0]
    settings = ConnectionSettings(request_timeout_ms=15_000)

    def slow(key: int, version: int, c: int) -> None:
        if key == LIST_TRANSACTIONS:
            clock_s[0] += 14

    peer = start(slow)
    for _ in range(2):
        began_s, answered = clock_s[0], 0
        with Client(settings, [broker(1, peer.port)], monotonic_s=lambda: clock_s[0]) as client:
            for _ in range(1_000):
                try:
                    client.send(1, ask())
                except RequestFailed as failed:
                    assert not failed.sent and "broker 1" in failed.error
                    continue
                answered += 1
        assert answered == 10
        assert clock_s[0] - began_s <= 15 * (under_test.WAITS_MAX + 2)


def test_a_broker_delays_a_sweep_for_a_bounded_time() -> None:
    # The time of each request, and the number of requests before the broker is given up.
    table = (
        ("quick answers", 1_000, 10_000, None),
        ("half the timeout", 7_500, 10_000, 19),
        ("all of the timeout", 15_000, 10_000, 9),
    )
    with Cases() as cases:
        for name, took_ms, times, expected in table:
            with cases.case(name):
                patience, waited = Patience(15_000), 0
                while patience.why_over is None and waited < times:
                    patience.took(took_ms)
                    waited += 1
                assert waited == (times if expected is None else expected)
        with cases.case("half of a short sweep"):
            patience = Patience(15_000, 60.0)
            patience.took(30_999)
            assert patience.why_over is None
            patience.took(1_002)
            assert patience.why_over is not None
        with cases.case("pauses"):
            patience = Patience(15_000)
            patience.paused(under_test.PAUSES_MS_MAX)
            assert patience.why_over is None
            patience.paused(1)
            assert patience.why_over is not None
        with cases.case("an answer ends a row of silence"):
            patience = Patience(15_000)
            for _ in range(5):
                assert not patience.unanswered(answered_before=True)
                patience.answered()
            assert not patience.unanswered(answered_before=True)
            assert patience.unanswered(answered_before=True)
        with cases.case("a broker that never answered"):
            assert Patience(15_000).unanswered(answered_before=False)


def test_an_executor_gets_the_deadline_with_its_task(start: Callable[..., FakeBroker]) -> None:
    began = Deadline.after(60_000)
    left = began.time_left()
    assert left is not None and 0 < left.left_ms <= left.timeout_ms == 60_000
    assert Deadline().time_left() is None
    factory = ClientFactory("of-a-deadline", SOON, (broker(1, start().port),), left)
    try:
        assert 0 < factory.client().deadline.left_s <= 60
        assert factory.client().send(1, ask()).error_code == 0
    finally:
        factory.close()


def test_a_controller_without_a_majority_does_not_cost_the_broker_that_was_asked(
    start: Callable[..., FakeBroker],
) -> None:
    silent = threading.Event()

    def misbehave(key: int, version: int, correlation_id: int) -> Any:
        return SILENCE if key == LIST_TRANSACTIONS and silent.is_set() else None

    factory = ClientFactory("of-a-sweep", SOON, (broker(1, start(misbehave).port),))
    long = replace(factory, settings=ConnectionSettings(request_timeout_ms=600_000))
    assert [one.for_controller().settings.request_timeout_ms for one in (factory, long)] == [300, 8_000]
    try:
        silent.set()
        for _ in range(UNANSWERED_MAX + 1):
            with pytest.raises(RequestFailed):
                factory.for_controller().client().send(1, ask())
        silent.clear()
        assert factory.client().send(1, ask()).error_code == 0
    finally:
        factory.close()
    assert not {one.sweep_id for one in (factory, factory.for_controller())}.intersection(ClientFactory._clients)


def test_only_a_default_limit_becomes_longer_for_a_large_cluster() -> None:
    with Cases() as cases:
        for name, timeout_ms, default_ms, allowed_ms, limit_s in (
            ("a small cluster", None, SWEEP_MS, 1_000, 300),
            ("a large cluster", None, SWEEP_MS, 700_000, 700),
            ("a limit of the user", 60_000, SWEEP_MS, 700_000, 60),
            ("no limit at all", None, None, 700_000, float("inf")),
        ):
            with cases.case(name):
                deadline = Deadline.after(timeout_ms, default_ms)
                deadline.allow(allowed_ms)
                left = deadline.time_left()
                assert deadline.timeout_s == limit_s
                assert limit_s - 5 < deadline.left_s <= limit_s or left is None
                # An executor gets the longer limit with its task.
                assert left is None or Deadline(left).timeout_s == limit_s


def test_the_limit_of_a_sweep_follows_from_the_expected_time() -> None:
    assert [sweep_limit_ms(expected_s) for expected_s in (0, 30, 31, 86)] == [300_000, 300_000, 310_000, 860_000]


def test_a_question_has_the_limit_that_its_option_shows() -> None:
    assert parse_duration_ms(QUESTION, "--timeout") == QUESTION_MS


def test_brokers_that_never_answered_share_a_limit_and_then_get_short_tries() -> None:
    tries = FirstTries(40.0)
    for _ in range(31):
        tries.failed(10.0)
        assert not tries.are_short and tries.s_max == float("inf")
    tries.failed(10.0)
    assert tries.are_short and tries.s_max == under_test.SHORT_TRY_S
    assert not FirstTries().are_short


def test_many_silent_brokers_leave_time_for_a_good_one(start: Callable[..., FakeBroker]) -> None:
    """One after the other, they would take all of the time."""
    silent = start(lambda *_: SILENCE)
    peers = [*(broker(number, silent.port) for number in range(1, 60)), broker(60, start().port)]
    deadline = Deadline(TimeLeft(10**15, 120_000, 2_000))
    with Client(LONG, peers, deadline=deadline) as client:
        client.first_tries.failed(15.0)
        first = failure(client, 1)
        assert "500 ms" in first.error and first.failure.code == "NO_ANSWER"
        for _ in range(2):
            client.first_tries.failed(15.0)
            assert "500 ms" in failure(client, 2).error
        assert client.send(60, ask()).error_code == 0


def test_a_client_without_a_deadline_has_no_end(start: Callable[..., FakeBroker]) -> None:
    with Client(SOON, [broker(1, start().port)], resends=False) as client:
        assert client.deadline.left_s == float("inf")
        assert client.send(1, ask()).error_code == 0
