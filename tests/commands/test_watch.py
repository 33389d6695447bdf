"""`txnscan watch`: its file, its endpoint, and its independence: clusters and scrapes do not wait for each other."""

from __future__ import annotations

import base64
import contextlib
import signal
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from kafka.protocol.producer.transaction import WriteTxnMarkersResponse
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from tests.builders import judged, scan, view
from tests.cases import Cases
from tests.fakes.http import SECRET, Hook
from tests.fakes.wire import ask
from tests.sim.wire import ClusterShape, WireCluster
from tests.tables.stored import COMMIT, SEEN_COMMIT, read_for, reads_of, swept
from tests.watching import Process, get
from txnscan.cli.app import app
from txnscan.config import ConfigError, ScanConfig
from txnscan.coordinators.cluster import ClusterUnreachable
from txnscan.demo.wait import wait_until
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.client.factory import _CLIENTS_MAX, ClientFactory
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.protocol.write_txn_markers import MarkerToWrite
from txnscan.sweeps.history import DiskReads, History, Incident, Incidents, NoHistory, Sighting, Sightings
from txnscan.sweeps.news import News
from txnscan.sweeps.result import Scan
from txnscan.tables.open import open_tables
from txnscan.tables.schema import INCIDENTS
from txnscan.txnlog.facts import Facts, ProducerFacts, SeenMarker
from txnscan.waiting.complete_up_to import TopicRead
from txnscan.waiting.disk import PartitionId
from txnscan.watch import sweeping
from txnscan.watch.clusters import ClustersError, read_clusters
from txnscan.watch.endpoint import REQUESTS_MAX, Access, Endpoint, Tls, parse_listen, parse_users
from txnscan.watch.process import Watch
from txnscan.watch.sweeping import ClusterWatch, Store, SweptClusters

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

STALE = view("Empty", epoch=9)
HANGING = judged(STALE)
WHERE = HANGING.observation.transaction_key
CONFIG = ScanConfig("127.0.0.1:1", engine="threads")

# --- the file


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "clusters.toml"
    path.write_text(text, "utf-8")
    return path


def complaints(tmp_path: Path, text: str, **environment: str) -> list[str]:
    path = written(tmp_path, text)
    with pytest.raises(ClustersError) as refused:
        read_clusters(path, environment)
    return [one.removeprefix(f"--config: {path}: ") for one in refused.value.complaints]


GOOD = """
[clusters.orders]
bootstrap-server = "kafka1:9092,kafka2:9092"
command-config = "orders.properties"
topic = ["orders-.*", "payments"]
late-after = "20m"
in-flight = 1

[clusters."logs (eu)"]
bootstrap-server = "kafka3:9092"
topic = "logs-.*"

[[notify]]
url-file = "slack.url"
as = "slack"

[[notify]]
url = "https://events.example/v2/enqueue"
as = "pagerduty"
"""


def test_keys_are_the_options_and_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "orders.properties").write_text("request.timeout.ms=5000\n", "utf-8")
    (tmp_path / "slack.url").write_text("https://hooks.example/x\n", "utf-8")
    found = read_clusters(written(tmp_path, GOOD), {"TXNSCAN_PAGERDUTY_ROUTING_KEY": "key"})
    orders = found.clusters["orders"]
    assert list(found.clusters) == ["orders", "logs (eu)"]
    assert (orders.topic, orders.late_after_ms, orders.in_flight_max) == (("orders-.*", "payments"), 1_200_000, 1)
    assert orders.connection().request_timeout_ms == 5_000
    assert found.clusters["logs (eu)"].topic == ("logs-.*",)
    assert [target.url for target in found.targets] == ["https://hooks.example/x", "https://events.example/v2/enqueue"]
    assert found.targets[1].routing_key == "key"


def test_all_errors_are_reported_at_once(tmp_path: Path, wording: SnapshotAssertion) -> None:
    found = complaints(
        tmp_path,
        """
        interval = "60s"
        [clusters.a]
        bootstrap-servers = "h:9092"
        late-after = "20"
        batch-size = true
        topic = ["(", 3]
        [clusters.b]
        bootstrap-server = "h:9092"
        command-config = "nowhere.properties"
        [clusters.c]
        bootstrap-server = "other:9092,h:9092"
        [[notify]]
        url = "https://h/x"
        url-file = "x"
        [[notify]]
        url = "https://h/x"
        as = "slak"
        [[notify]]
        url = "https://h/x"
        as = "pagerduty"
        """,
    )
    places = [complaint.split()[0].rstrip(":") for complaint in found]
    assert places == ["interval", *["clusters.a"] * 5, "clusters.b", "clusters.c", *["notify"] * 3]
    assert [complaint.replace(str(tmp_path), "<tmp>") for complaint in found] == wording


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "there is no cluster"),
        ("clusters = 3", "there is no cluster"),
        ("[clusters]\na = 3", "clusters.a: must be a table"),
        ("[clusters.a\n", "is not TOML"),
        ('[clusters.a]\nbootstrap-server = "h"', "clusters.a: bootstrap-server: 'h' is not host:port"),
        ('[clusters.a]\nbootstrap-server = "h:1"\n[notify]\nurl = "x"', "notify is not a list of tables"),
        ('[clusters."a\\nb"]\nbootstrap-server = "h:1"', "characters that can be printed"),
    ],
)
def test_an_invalid_file_is_reported_with_the_reason(tmp_path: Path, text: str, says: str) -> None:
    (complaint,) = complaints(tmp_path, text)
    assert says in complaint


# --- the command line


# The wrong option, and a command line with it.
USAGE: tuple[tuple[str, list[str]], ...] = (
    ("--config", []),
    ("--config", ["--config", "x", "--bootstrap-server", "h:1"]),
    ("--topic", ["--config", "x", "--topic", "t"]),
    ("--owner-pattern", ["--config", "x", "--owner-pattern", "a=b"]),
    ("--owner-pattern", ["--bootstrap-server", "h:1", "--owner-pattern", "a"]),
    ("--interval", ["--bootstrap-server", "h:1", "--interval", "60"]),
    ("--listen", ["--bootstrap-server", "h:1", "--listen", "9464"]),
    ("--listen", ["--bootstrap-server", "h:1", "--listen", "h:99999"]),
    ("--notify", ["--bootstrap-server", "h:1", "--notify", SECRET]),
    ("--notify", ["--bootstrap-server", "h:1", "--notify", "@nowhere"]),
    ("--notify", ["--bootstrap-server", "h:1", "--notify-as", "slack"]),
    ("--notify-as", ["--bootstrap-server", "h:1", "--notify", "http://h", "--notify-as", "x"]),
    ("--tls-cert", ["--bootstrap-server", "h:1", "--tls-cert", "x"]),
    ("--tls-key", ["--bootstrap-server", "h:1", "--tls-key", "x"]),
    ("--listen", ["--bootstrap-server", "h:1", "--listen", "127.0.0.1:80000"]),
    ("--tls-client-ca", ["--bootstrap-server", "h:1", "--tls-client-ca", "x"]),
    ("--basic-auth-file", ["--bootstrap-server", "h:1", "--basic-auth-file", "nowhere"]),
    ("--tables", ["--bootstrap-server", "h:1", "--tables", "plain"]),
)


def test_a_wrong_option_is_one_line_and_status_2(wording: SnapshotAssertion) -> None:
    sentences = {}
    with Cases() as cases:
        for option, arguments in USAGE:
            with cases.case(" ".join(arguments).replace(SECRET, "<secret>")) as name:
                ran = CliRunner().invoke(app, ["watch", *arguments])
                assert ran.exit_code == 2
                assert (
                    ran.stderr.startswith(f"txnscan: {option}: ")
                    and ran.stderr.count("\n") == 1
                    and SECRET not in ran.stderr
                )
                sentences[name] = ran.stderr
    assert sentences == wording


# --- one cluster


class Sweeps:
    """Sweeps with these results, in order. An exception is raised."""

    def __init__(self, *given: Scan | Exception) -> None:
        self._given = list(given)
        self.histories: list[tuple[Incidents, Sightings]] = []
        self.facts: list[Facts] = []

    def __call__(self, config: ScanConfig, history: History) -> Scan:
        found = self._given.pop(0)
        cluster_id = found.cluster_id if isinstance(found, Scan) else "cluster-1"
        self.histories.append((history.unresolved(cluster_id)(), history.last_seen(cluster_id)()))
        self.facts.append(history.facts(cluster_id, {7})())
        if isinstance(found, Exception):
            raise found
        return found


def watching(
    *given: Scan | Exception,
    store: Store | None = None,
    swept: SweptClusters | None = None,
    name: str = "c",
    config: ScanConfig = CONFIG,
) -> tuple[ClusterWatch, Sweeps, list[News], list[str]]:
    news: list[News] = []
    said: list[str] = []
    sweeps = Sweeps(*given)
    watch = ClusterWatch(
        name,
        config,
        sweep=sweeps,
        swept=swept or SweptClusters(),
        tell=lambda events: news.extend(one for event in events for one in (*event.opened, *event.closed)),
        say=said.append,
        store=store,
    )
    for _ in given:
        watch.once()
    return watch, sweeps, news, said


DOWN = ClusterUnreachable("the bootstrap server (h:1) cannot be reached")


def test_a_failed_sweep_keeps_the_last_values_and_is_down() -> None:
    found = scan(HANGING)
    watch, _, _, _ = watching(found, DOWN)
    assert (watch.watched.scan, watch.watched.up) == (found, False)
    assert watch.watched.last_complete_ms == found.finished_at_ms
    assert watch.watched.sweeps == {"done": 1, "failed": 1}


def test_a_cluster_is_attempted_after_its_first_sweep_ends() -> None:
    """This makes the process ready: an unreachable cluster must not prevent scrapes of the others."""
    assert not watching()[0].attempted
    assert watching(DOWN)[0].attempted and watching(scan())[0].attempted


# Which sweep, the seconds of those before it, its --timeout, the seconds since its begin, and whether it is overdue.
OVERDUE = (
    ("the first", (), None, 2_099, False),
    ("the first", (), None, 2_101, True),
    ("after a quick one", (10,), None, 2_099, False),
    ("after a quick one", (10,), None, 2_101, True),
    ("after a slow one", (400,), None, 4_299, False),
    ("after a slow one", (400,), None, 4_301, True),
    ("with a limit", (), 240_000, 539, False),
    ("with a limit", (), 240_000, 541, True),
    ("with a limit, after a slow one", (400,), 240_000, 541, True),
    ("with a long limit", (), 7_200_000, 7_499, False),
)


class SlowSweeps:
    """Sweeps that take this time by a clock of their own, and look at the watch at a moment of the last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, timeout_ms: int | None = None, store: Store | None = None):
        self.now_s = 1_000.0
        monkeypatch.setattr(sweeping, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        self.said: list[str] = []
        self.takes: Callable[[], Scan] = scan
        config = replace(CONFIG, timeout_ms=timeout_ms)
        self.watch = ClusterWatch(
            "c",
            config,
            sweep=lambda *_: self.takes(),
            swept=SweptClusters(),
            tell=lambda _: None,
            say=self.said.append,
            store=store,
        )

    def pass_s(self, seconds: float) -> Scan:
        self.now_s += seconds
        return scan(HANGING)

    def once(self, takes: Callable[[], Scan]) -> None:
        self.takes = takes
        self.watch.once()


def test_a_sweep_that_neither_ends_nor_fails_is_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    with Cases() as cases:
        for why, before_s, timeout_ms, after_s, overdue in OVERDUE:
            with cases.case(f"{why}, {after_s} s"):
                sweeps = SlowSweeps(monkeypatch, timeout_ms)
                for took_s in before_s:
                    sweeps.once(partial(sweeps.pass_s, took_s))
                seen: list[bool] = []

                def looked_at(after_s: float = after_s, sweeps: SlowSweeps = sweeps, seen: list[bool] = seen) -> Scan:
                    found = sweeps.pass_s(after_s)
                    seen.append(sweeps.watch.is_overdue())
                    return found

                sweeps.once(looked_at)
                assert seen == [overdue] and not sweeps.watch.is_overdue()


@pytest.mark.parametrize("ends", ["done", "failed"])
def test_an_overdue_sweep_counts_as_failed_once(monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    sweeps = SlowSweeps(monkeypatch)
    sweeps.once(scan)
    during = []

    def late() -> Scan:
        found = sweeps.pass_s(2_101)
        during.extend([sweeps.watch.scraped(), sweeps.watch.scraped()])
        if ends == "failed":
            raise DOWN
        return found

    sweeps.once(late)
    assert [(one.up, one.sweeps) for one in during] == [(False, {"done": 1, "failed": 1})] * 2
    assert during[0].scan == scan(), "the values of the last finished sweep remain"
    assert sum("overdue" in said for said in sweeps.said) == 1
    after = sweeps.watch.scraped()
    assert after.sweeps == {"done": 1, "failed": 1} and after.up is (ends == "done")
    assert after.scan == (scan(HANGING) if ends == "done" else scan()), "if it ends after all, its values count"


def test_a_sweep_whose_storing_does_not_end_is_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    overdue: list[tuple[bool, bool, object]] = []

    def write(_: Scan) -> None:
        sweeps.pass_s(2_101)
        overdue.append((sweeps.watch.is_overdue(), sweeps.watch.watched.up, sweeps.watch.watched.sweeps))

    sweeps = SlowSweeps(monkeypatch, store=Store(Stored({}, {}), write))
    sweeps.once(scan)
    assert overdue == [(True, False, {"done": 1, "failed": 0})]


def test_an_overdue_sweep_of_one_cluster_ends_the_health_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "sweep_limit_ms", lambda _: 100)
    monkeypatch.setattr(sweeping, "AFTER_TIMEOUT_S", 0.0)
    end = threading.Event()

    def sweep(config: ScanConfig, _: History) -> Scan:
        if config.bootstrap_servers == "127.0.0.1:2":
            end.wait(60)
        return scan()

    clusters = {"good": CONFIG, "stuck": replace(CONFIG, bootstrap_servers="127.0.0.1:2")}
    watch = Watch(clusters, access=Access("127.0.0.1", 0), interval_s=60, sweep=sweep, say=lambda _: None)
    watch.start()
    try:
        wait_until(lambda: get(f"{watch.endpoint.url}/healthz")[0] == 503, "an overdue sweep")
        wait_until(lambda: 'txnscan_up{cluster="stuck"} 0.0' in get(f"{watch.endpoint.url}/metrics")[1], "its metrics")
        text = get(f"{watch.endpoint.url}/metrics")[1]
        assert 'txnscan_sweeps_total{cluster="stuck",result="failed"} 1.0' in text
        assert 'txnscan_up{cluster="good"} 1.0' in text
        end.set()
        wait_until(lambda: get(f"{watch.endpoint.url}/healthz")[0] == 200, "health")
    finally:
        end.set()
        watch.stop()


def test_an_incomplete_sweep_does_not_replace_the_last_complete_one() -> None:
    later = scan(partitions_failed=1, finished_at_ms=scan().finished_at_ms + 1)
    watch, _, _, _ = watching(scan(), later)
    assert (watch.watched.scan, watch.watched.last_complete_ms) == (later, scan().finished_at_ms)


def test_the_result_of_a_sweep_is_the_history_of_the_next() -> None:
    _, sweeps, _, _ = watching(scan(HANGING), DOWN, scan(HANGING))
    seen = HANGING.observation.first_seen_ms
    assert sweeps.histories == [
        ({}, {}),
        *[({WHERE: Incident(seen, None, 3, 4, 105, 0, 5)}, {WHERE: Sighting(seen, 3)})] * 2,
    ]


def test_an_unchanged_state_is_reported_once(wording: SnapshotAssertion) -> None:
    _, _, _, said = watching(
        scan(), scan(), DOWN, DOWN, scan(), scan(warnings=("for 5 min",)), scan(warnings=("for 6 min",))
    )
    assert said == wording


def test_an_unexpected_error_is_a_failed_sweep_and_the_next_sweep_runs(wording: SnapshotAssertion) -> None:
    watch, _, _, said = watching(RuntimeError("what\nis this"), scan())
    assert said[0] == wording
    assert watch.watched.up


def test_two_names_of_one_cluster_are_swept_once(wording: SnapshotAssertion) -> None:
    swept = SweptClusters()
    watching(scan(), swept=swept, name="a")
    watch, sweeps, _, said = watching(scan(), swept=swept, name="b")
    assert said == wording
    assert not watch.watched.up and sweeps.histories == []


def test_a_name_that_moves_to_another_cluster_releases_the_first() -> None:
    swept = SweptClusters()
    watching(scan(), scan(cluster_id="cluster-2"), swept=swept, name="a")
    watch, _, _, _ = watching(scan(), swept=swept, name="b")
    assert watch.watched.up


class Stored(NoHistory):
    """A store with parts that can fail."""

    def __init__(self, incidents: Incidents, sightings: Sightings) -> None:
        self.incidents, self.sightings = incidents, sightings
        self.kept: Facts = {}
        self.written: list[Scan] = []
        self.broken: set[str] = set()

    def _given(self, what: str, value: Any) -> Callable[[], Any]:
        def read() -> Any:
            if what in self.broken:
                raise ConfigError("--tables", "x cannot be read: no space")
            return value

        return read

    def unresolved(self, cluster_id: str) -> Callable[[], Incidents]:
        return self._given("read", self.incidents)

    def last_seen(self, cluster_id: str) -> Callable[[], Sightings]:
        return self._given("read", self.sightings)

    def facts(self, cluster_id: str, producer_ids: Collection[int]) -> Callable[[], Facts]:
        return self._given("read", self.kept)

    def topic_reads(self, cluster_id: str, topics: Collection[str]) -> Callable[[], Sequence[TopicRead]]:
        return self._given("read", ())

    def disk_reads(self, cluster_id: str, partitions: Collection[PartitionId], now_ms: int) -> Callable[[], DiskReads]:
        return self._given("read", {})

    def write(self, found: Scan) -> None:
        self._given("write", None)()
        self.written.append(found)


def test_the_store_is_the_history_of_the_first_sweep_and_gets_every_sweep() -> None:
    stored = Stored({WHERE: Incident(5)}, {WHERE: Sighting(5, 3)})
    first = scan(judged(STALE, first_seen_ms=5))
    watch, sweeps, news, _ = watching(first, scan(), store=Store(stored, stored.write))
    assert sweeps.histories[0] == ({WHERE: Incident(5)}, {WHERE: Sighting(5, 3)})
    assert stored.written == [first, scan()] and watch.watched.writes == {"done": 2, "failed": 0}
    assert [(one.kind.value, one.first_seen_ms) for one in news] == [("opened", 5), ("closed", 5)]


def test_a_watch_of_some_topics_ignores_incidents_of_others() -> None:
    """It would never see their end."""
    elsewhere = WHERE._replace(topic="other")
    stored = Stored({WHERE: Incident(5), elsewhere: Incident(5)}, {})
    config = replace(CONFIG, topic=("p",))
    watch, _, _, _ = watching(scan(judged(STALE, first_seen_ms=5)), store=Store(stored, stored.write), config=config)
    assert watch.watched.open_incidents == 1
    watch, _, _, _ = watching(scan(judged(STALE, first_seen_ms=5)), store=Store(stored, stored.write))
    assert watch.watched.open_incidents == 2


@pytest.mark.parametrize("broken", ["read", "write"])
def test_a_failing_store_affects_no_sweep_and_is_reported_once(broken: str) -> None:
    stored = Stored({}, {})
    stored.broken = {broken}
    watch, _, news, said = watching(scan(HANGING), scan(HANGING), store=Store(stored, stored.write))
    assert watch.watched.up and len(news) == 1
    assert len([one for one in said if "no space" in one]) == 1
    assert watch.watched.writes == ({"done": 0, "failed": 2} if broken == "write" else {"done": 2, "failed": 0})


@pytest.mark.parametrize("broken", [False, True], ids=["the store is read", "the store cannot be read"])
def test_facts_come_from_the_store_and_from_this_process(broken: bool) -> None:
    found = swept(HANGING, **read_for(HANGING, COMMIT, commits=[SEEN_COMMIT]))
    stored = Stored({}, {})
    marker = SeenMarker("q", 0, 50, 7, 3)
    stored.kept = {7: ProducerFacts(tuple(reads_of(found)), (marker,), (SEEN_COMMIT,))}
    stored.broken = {"read"} if broken else set()
    _, sweeps, _, _ = watching(found, scan(HANGING), store=Store(stored, stored.write))
    assert sweeps.facts[0] == ({} if broken else stored.kept)
    assert sweeps.facts[1] == {7: ProducerFacts(tuple(reads_of(found)), () if broken else (marker,), (SEEN_COMMIT,))}


# --- the endpoint


class Server:
    """A running endpoint."""

    def __init__(self, **access: Any) -> None:
        self.alive = self.ready = True
        self.endpoint = Endpoint(
            Access("127.0.0.1", 0, **access),
            CollectorRegistry(),
            alive=lambda: self.alive,
            ready=lambda: self.ready,
        )
        self.endpoint.start()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.endpoint.close()

    def get(self, path: str, context: ssl.SSLContext | None = None, **headers: Any) -> tuple[int, str]:
        return get(self.endpoint.url + path, context, **headers)


def basic(user: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}


def test_probes_report_life_and_the_attempt_of_each_cluster() -> None:
    with Server() as server:
        assert [server.get(path)[0] for path in ("/healthz", "/readyz", "/metrics", "/")] == [200, 200, 200, 404]
        server.alive = server.ready = False
        assert [server.get(path)[0] for path in ("/healthz", "/readyz", "/metrics")] == [503, 503, 200]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        (basic("me:right"), 200),
        (basic("you:also:right"), 200),
        (basic("me:wrong"), 401),
        (basic("nobody:right"), 401),
        (basic("nobody:"), 401),
        (basic("me"), 401),
        ({"Authorization": "Basic %%%"}, 401),
        ({"Authorization": "Basic \xe9"}, 401),
        ({"Authorization": "Basic " + base64.b64encode(b"\xff:right").decode()}, 401),
        ({"Authorization": "Bearer " + base64.b64encode(b"me:right").decode()}, 401),
    ],
)
def test_metrics_need_a_password_and_probes_do_not(headers: dict[str, Any], status: int) -> None:
    with Server(users={"me": "right", "you": "also:right"}) as server:
        assert server.get("/metrics", **headers)[0] == status
        assert server.get("/healthz")[0] == server.get("/readyz")[0] == 200


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    made = trustme.CA()
    issued = made.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    with (tmp_path / "cert.pem").open("wb") as file:
        file.write(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    made.cert_pem.write_to_path(tmp_path / "ca.pem")
    return made


def trusting(authority: trustme.CA, *, client: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if client:
        authority.issue_cert("client").configure_cert(context)
    return context


def test_tls_is_served_and_a_silent_client_does_not_block_others(tmp_path: Path, authority: trustme.CA) -> None:
    with Server(tls=Tls(tmp_path / "cert.pem", tmp_path / "key.pem")) as server:
        port = int(server.endpoint.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)):
            assert server.get("/healthz", trusting(authority)) == (200, "ok\n")


@pytest.mark.parametrize("encrypted", [False, True])
def test_clients_with_unfinished_requests_do_not_block_probes(
    tmp_path: Path, authority: trustme.CA, encrypted: bool
) -> None:
    tls = Tls(tmp_path / "cert.pem", tmp_path / "key.pem") if encrypted else None
    context = trusting(authority) if encrypted else None
    with Server(tls=tls) as server, contextlib.ExitStack() as stack:
        port = int(server.endpoint.url.rpartition(":")[2])
        for _ in range(REQUESTS_MAX):
            stack.enter_context(socket.create_connection(("127.0.0.1", port))).sendall(b"G")
        for path in ("/healthz", "/readyz", "/metrics"):
            assert server.get(path, context)[0] == 200


def test_a_slow_client_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txnscan.watch.endpoint.REQUEST_S_MAX", 0.5)
    with (
        Server() as server,
        socket.create_connection(("127.0.0.1", int(server.endpoint.url.rpartition(":")[2]))) as slow,
    ):
        slow.setblocking(False)

        def is_disconnected() -> bool:
            try:
                slow.send(b"G")
                return slow.recv(1) == b""
            except BlockingIOError:
                return False
            except OSError:
                return True

        wait_until(is_disconnected, "the client was disconnected")


def test_clients_without_a_required_certificate_are_refused(tmp_path: Path, authority: trustme.CA) -> None:
    with Server(tls=Tls(tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "ca.pem")) as server:
        assert server.get("/healthz", trusting(authority, client=True))[0] == 200
        with pytest.raises((urllib.error.URLError, OSError)):
            server.get("/healthz", trusting(authority))


@pytest.mark.parametrize(
    ("certificate", "key"), [("nowhere", "key.pem"), ("cert.pem", "cert.pem"), ("ca.pem", "key.pem")]
)
def test_an_unusable_certificate_is_an_error(tmp_path: Path, authority: trustme.CA, certificate: str, key: str) -> None:
    with pytest.raises(ConfigError, match=r"--tls-cert: .* cannot be used"):
        Server(tls=Tls(tmp_path / certificate, tmp_path / key))


def test_a_taken_address_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match=r"--listen: .* in use"):
        Endpoint(
            Access("127.0.0.1", taken.getsockname()[1]), CollectorRegistry(), alive=lambda: True, ready=lambda: True
        )


@pytest.mark.parametrize(
    ("text", "expected"),
    [(":9464", ("", 9464)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:1", ("::1", 1)), ("h:1", ("h", 1))],
)
def test_an_address_to_listen_at_is_host_and_port(text: str, expected: tuple[str, int]) -> None:
    assert parse_listen(text) == expected


def test_users_are_parsed_from_lines_without_printing_secrets() -> None:
    assert parse_users("a:b:c\n\nd:e f\n", "x") == {"a": "b:c", "d": "e f"}
    for text in (f"{SECRET}\n", "", f"a:b\n:{SECRET}"):
        with pytest.raises(ConfigError) as refused:
            parse_users(text, "--basic-auth-file")
        assert SECRET not in str(refused.value)


# --- the process


@pytest.fixture(scope="module")
def wired() -> Iterator[WireCluster]:
    with WireCluster(ClusterShape(brokers=2, partitions=20, hanging=2)) as cluster:
        yield cluster


def test_watch_sweeps_serves_notifies_and_exits_with_0_on_sigterm(wired: WireCluster) -> None:
    with Process("--bootstrap-server", wired.bootstrap_servers, "--interval", "1s") as process:
        name = wired.bootstrap_servers
        process.until(lambda found: found.get(("txnscan_sweeps_total", name, "done"), 0) >= 2, "it had swept twice")
        assert process.metrics()["txnscan_candidates", name] == 2
        assert process.end() == 0
        assert process.said.count("opened: ") == 2 and "Traceback" not in process.said


def test_ctrl_c_is_status_130(wired: WireCluster) -> None:
    with Process("--bootstrap-server", wired.bootstrap_servers) as process:
        process.until(lambda found: found["txnscan_up", wired.bootstrap_servers] == 1, "it had swept")
        assert process.end(signal.SIGINT) == 130
        assert "Traceback" not in process.said


def end(cluster: WireCluster, incident: dict[str, Any]) -> None:
    """Ends the transaction as its coordinator would: with a marker to the partition's leader."""
    topic, index, producer_id = (incident[name] for name in ("topic", "partition", "producer_id"))
    ordinals = (cluster.shape.hanging_ordinal(n) for n in range(cluster.shape.hanging))
    (leader,) = {cluster.shape.leader(one) for one in ordinals if cluster.shape.key(one) == (topic, index)}
    marker = MarkerToWrite(topic, index, producer_id, incident["producer_epoch"], 0, commit=False)
    answer = ask(cluster.ports[leader], marker.request(), WriteTxnMarkersResponse, 1)
    assert marker.answered(answer) == ErrorCode.NONE


def test_dead_or_silent_clusters_do_not_delay_other_clusters_or_the_end(
    wired: WireCluster, tmp_path: Path, wording: SnapshotAssertion
) -> None:
    """The sweeps of silent clusters run all the time."""
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(WireCluster(ClusterShape(brokers=2, partitions=20)))
        ports = [stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(3)]
        addresses = {
            **{f"mute{number}": f"127.0.0.1:{port}" for number, port in enumerate(ports)},
            "dead": "127.0.0.1:1",
            "good": wired.bootstrap_servers,
            "same": other.bootstrap_servers,
        }
        text = "".join(f'[clusters.{name}]\nbootstrap-server = "{at}"\n' for name, at in addresses.items())
        process = stack.enter_context(Process("--config", str(written(tmp_path, text)), "--interval", "1s"))
        process.until(
            lambda found: max(found.get(("txnscan_sweeps_total", one, "done"), 0) for one in ("good", "same")) >= 3,
            "one of the clusters that answer was swept",
        )
        found = process.metrics()
        assert [found["txnscan_up", name] for name in ("dead", "mute0")] == [0, 0]
        assert process.end() == 0
    # All wire clusters have the same id, and a cluster with two names is swept once.
    assert process.said.count("watches already") == 1
    assert process.said.count("dead: this sweep failed") == 1, "what stays is not said again"


def test_many_concurrent_sweeps_do_not_close_clients_of_each_other() -> None:
    factories = [ClientFactory(f"many-{n}", ConnectionSettings(), ()) for n in range(3 * _CLIENTS_MAX)]
    with contextlib.ExitStack() as stack:
        for factory in factories:
            stack.callback(factory.close)
            stack.enter_context(factory.driven())
        clients = [factory.client() for factory in factories]
        assert [factory.client() for factory in factories] == clients


def test_clients_of_unfinished_sweeps_are_closed_beyond_a_limit() -> None:
    """As on an executor, which does not learn the end of a sweep."""
    factories = [ClientFactory(f"few-{n}", ConnectionSettings(), ()) for n in range(_CLIENTS_MAX + 1)]
    clients = [factory.client() for factory in factories]
    assert factories[-1].client() is clients[-1]
    assert factories[0].client() is not clients[0]
    for factory in factories:
        factory.close()


def test_with_tables_each_sweep_is_stored_and_an_incident_survives_a_restart(tmp_path: Path) -> None:
    location = str(tmp_path / "tables")
    with WireCluster(ClusterShape(brokers=2, partitions=20, hanging=1)) as cluster:
        arguments = ("--bootstrap-server", cluster.bootstrap_servers, "--interval", "1s", "--tables", location)
        for _ in range(2):
            with Process(*arguments) as process:
                name = cluster.bootstrap_servers
                process.until(
                    lambda found, name=name: found["txnscan_table_writes_total", name, "done"] >= 1,  # type: ignore[misc]
                    "a sweep was stored",
                )
                assert process.end() == 0
                assert "Traceback" not in process.said
    (incident,) = open_tables(location, None).rows(INCIDENTS)
    assert incident["sweeps"] >= 2 and incident["resolved_at"] is None


def test_an_incident_is_notified_when_it_opens_and_when_it_closes(tmp_path: Path) -> None:
    hook = Hook()
    (tmp_path / "hook").write_text(f"{hook.url}/{SECRET}", "utf-8")
    shape = ClusterShape(brokers=2, partitions=20, hanging=1)
    try:
        with (
            WireCluster(shape) as cluster,
            Process(
                *("--bootstrap-server", cluster.bootstrap_servers, "--interval", "1s"),
                *("--notify", f"@{tmp_path / 'hook'}"),
            ) as process,
        ):
            wait_until(lambda: len(hook.received) == 1, "the opening was told", 60)
            (opened,) = hook.received[0][2]["events"]
            end(cluster, opened["incidents"][0])
            wait_until(lambda: len(hook.received) == 2, "the closing was told", 60)
            (closed,) = hook.received[1][2]["events"]
            process.until(
                lambda found: found["txnscan_candidates", cluster.bootstrap_servers] == 0, "the metrics say so"
            )
            assert process.end() == 0
            assert (opened["event"], closed["event"]) == ("opened", "closed")
            assert opened["event_id"] == closed["event_id"] and closed["open_incidents"] == 0
            (over,) = closed["incidents"]
            assert (over["incident_id"], over["resolved_how"]) == (opened["incidents"][0]["incident_id"], "ended")
            assert len(hook.received) == 2 and SECRET not in process.said
    finally:
        hook.close()
