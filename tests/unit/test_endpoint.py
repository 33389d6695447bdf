"""A client of the endpoint cannot choose how often the metrics are written."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tests.cases import Cases
from txnscan.watch import endpoint


class Counted(Collector):
    """Counts how often it is asked, and gives the number as a metric."""

    def __init__(self) -> None:
        self.times = 0

    def collect(self) -> Iterator[GaugeMetricFamily]:
        self.times += 1
        yield GaugeMetricFamily("times", "How often", value=self.times)


@pytest.fixture
def app() -> tuple[Any, Counted]:
    """The application of an endpoint, and its only metric."""
    registry, counted = CollectorRegistry(), Counted()
    registry.register(counted)
    counted.times = 0
    return endpoint._written_once(make_wsgi_app(registry)), counted


def answer(app: Any, **environ: str) -> tuple[str, dict[str, str], bytes]:
    said: list[Any] = []
    asked = {"REQUEST_METHOD": "GET", "PATH_INFO": "/metrics", "QUERY_STRING": ""} | environ
    body = b"".join(app(asked, lambda *started: said.append(started)))
    ((status, headers),) = said
    return status, dict(headers), body


OPEN = "application/openmetrics-text; version=1.0.0"
# Many requests, and the most times that they write the metrics.
FLOODS: dict[str, tuple[list[dict[str, str]], int]] = {
    "the same": ([{}] * 50, 1),
    "other names": ([{"QUERY_STRING": f"name[]=x{n}"} for n in range(50)], 1),
    "other formats": ([{"HTTP_ACCEPT": f"application/openmetrics-text; version={n}"} for n in range(50)], 1),
    "other kinds of text": ([{"HTTP_ACCEPT": f"text/plain; q=0.{n}"} for n in range(50)], 1),
    "other encodings": ([{"HTTP_ACCEPT_ENCODING": f"gzip;q=0.{n}"} for n in range(50)], 1),
    "all formats": ([{"HTTP_ACCEPT": a, "HTTP_ACCEPT_ENCODING": e} for a in (OPEN, "") for e in ("gzip", "")] * 9, 4),
}


def test_many_requests_write_the_metrics_once(app: tuple[Any, Counted]) -> None:
    with Cases() as cases:
        for name, (requests, most) in FLOODS.items():
            with cases.case(name):
                once, counted = endpoint._written_once(app[0]), app[1]
                before = counted.times
                for request in requests:
                    assert answer(once, **request)[0] == "200 OK"
                assert counted.times - before <= most


def test_requests_at_once_wait_for_one_writing(app: tuple[Any, Counted]) -> None:
    threads = [threading.Thread(target=answer, args=(app[0],)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert app[1].times == 1


def test_the_metrics_are_those_of_now_in_the_requested_format(
    app: tuple[Any, Counted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "FRESH_S", 0.0)
    assert b"times 1.0" in answer(app[0])[2]
    _, headers, body = answer(app[0], HTTP_ACCEPT=OPEN, HTTP_ACCEPT_ENCODING="deflate, gzip")
    assert headers["Content-Type"].startswith("application/openmetrics-text")
    assert headers["Content-Encoding"] == "gzip" and b"times 2.0" in gzip.decompress(body)
    assert b"# EOF" in gzip.decompress(body) and b"times 3.0" in answer(app[0])[2]
    assert answer(app[0], REQUEST_METHOD="POST")[0].startswith("405")
