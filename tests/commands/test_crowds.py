"""Whole commands against a peer that names a crowd of brokers: each ends soon after its time limit, with one sentence.

Times have wide margins for a busy machine.
"""

from __future__ import annotations

import json
import socket
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse

from tests.cases import Cases
from tests.fakes.applying import PLAN
from tests.fakes.cluster import ADDRESS, broker
from tests.fakes.peer import API_VERSIONS, METADATA, SILENCE, FakeBroker, dripped, framed, starting
from tests.fakes.wire import planted
from tests.process import PEAK_KIB, run_here, run_python
from tests.sim.wire import ClusterShape, WireCluster
from tests.watching import Process
from txnscan import ScanConfig
from txnscan.coordinators import cluster as cluster_module
from txnscan.coordinators.cluster import ClusterUnreachable, opened_cluster
from txnscan.errors import ExitStatus
from txnscan.kafka.client import deadline
from txnscan.kafka.client.deadline import SWEEP_MS, Deadline
from txnscan.kafka.errors import RequestFailed
from txnscan.resolve.apply import PartitionState, Status
from txnscan.resolve.brokers import LiveBrokers
from txnscan.resolve.plan import Action
from txnscan.sweeps import preflight

MetadataTopic = MetadataResponse.MetadataResponseTopic
LIMIT_MS = 1_000
LIMIT = f"{LIMIT_MS}ms"
SECONDS_MAX = LIMIT_MS / 1_000 + 10
RSS_KIB_MAX = 300 * 1024
# More than can be asked within the limit.
BROKERS = 400
INIT_PRODUCER_ID, WRITE_TXN_MARKERS = 22, 27
# A sentence names a few brokers, and counts the others.
SENTENCE_MAX = 600


class Crowd:
    """A cluster of this many brokers, of which all but the first are at one port. Counts the requests of the first.

    Each broker leads a partition of the topic t.
    """

    def __init__(self, port: int, brokers: int) -> None:
        self._port, self._brokers = port, brokers
        self.requests: Counter[int] = Counter()
        self.first: FakeBroker | None = None

    def __call__(self, key: int, version: int, correlation_id: int) -> Any:
        self.requests[key] += 1
        if key == API_VERSIONS:
            keys = [
                ApiVersionsResponse.ApiVersion(api_key=k, min_version=0, max_version={METADATA: 12, key: 3}.get(k, 20))
                for k in range(90)
            ]
            feature = ApiVersionsResponse.FinalizedFeatureKey(
                name="metadata.version", max_version_level=20, min_version_level=1
            )
            answer = ApiVersionsResponse(
                version=version, error_code=0, api_keys=keys, finalized_features_epoch=7, finalized_features=[feature]
            )
            return framed(answer, correlation_id)
        return framed(self._metadata(version), correlation_id) if key == METADATA else SILENCE

    def _metadata(self, version: int) -> MetadataResponse:
        assert self.first is not None
        ports = dict.fromkeys(range(self._brokers), self._port) | {0: self.first.port}
        shown = [
            MetadataTopic.MetadataResponsePartition(
                error_code=0, partition_index=number, leader_id=number, leader_epoch=1,
                replica_nodes=[number], isr_nodes=[number], offline_replicas=[],
            )
            for number in range(self._brokers)
        ]  # fmt: skip
        topic = MetadataTopic(error_code=0, name="t", topic_id=uuid.UUID(int=1), is_internal=False, partitions=shown)
        one = MetadataResponse.MetadataResponseBroker
        return MetadataResponse(
            version=version, throttle_time_ms=0, cluster_id="c", controller_id=0, topics=[topic],
            brokers=[one(node_id=number, host=ADDRESS, port=port, rack=None) for number, port in ports.items()],
        )  # fmt: skip


@contextmanager
def refusing() -> Iterator[int]:
    """A port at which nothing listens, and that no other process gets."""
    with socket.socket() as bound:
        bound.bind((ADDRESS, 0))
        yield bound.getsockname()[1]


@contextmanager
def misbehaving(answer: Callable[[int, int, int], Any]) -> Iterator[int]:
    """A port whose broker gives these answers."""
    with starting() as start:
        yield start(answer).port


KINDS: dict[str, Callable[[], Any]] = {
    "refusing": refusing,
    "silent": lambda: misbehaving(lambda *_: SILENCE),
    "dripping": lambda: misbehaving(lambda key, version, correlation_id: dripped(correlation_id)),
}


@contextmanager
def crowd(kind: str, brokers: int = BROKERS) -> Iterator[tuple[Crowd, str]]:
    """A crowd, and the address of its first broker."""
    with KINDS[kind]() as port, starting() as start:
        one = Crowd(port, brokers)
        one.first = start(one)
        yield one, f"{ADDRESS}:{one.first.port}"


def one_line(text: str) -> str:
    (line,) = text.splitlines()
    return line


# Refused connections take no time: the sweep ends before its limit, or at it, if the machine is slow.
COMMANDS: dict[str, tuple[str, ...]] = {
    "check": ("check", "--format", "json"),
    "find-hanging": ("find-hanging", "--format", "json", "--fail-on", "incomplete"),
    "explain": ("explain", "--topic", "t", "--format", "json"),
    "describe-producers": ("describe-producers", "--format", "json"),
    "list": ("list", "--format", "json"),
    "gate": ("gate", "--topic", "t", "--wait", "0s", "--format", "json"),
    "transaction-log": ("transaction-log", "--transactional-id", "x", "--format", "json"),
}


def test_a_command_ends_soon_after_its_limit() -> None:
    with Cases() as cases:
        for kind in KINDS:
            for name in COMMANDS if kind == "silent" else ("check", "find-hanging"):
                with cases.case(f"{kind}: {name}"), crowd(kind) as (_, address):
                    began_s = time.monotonic()
                    ran = run_here(*COMMANDS[name], "--bootstrap-server", address, "--timeout", LIMIT)
                    assert time.monotonic() - began_s < SECONDS_MAX
                    assert ran.returncode in (ExitStatus.FAILED, ExitStatus.INCOMPLETE)
                    if kind != "refusing":
                        assert ran.returncode == ExitStatus.FAILED, "the brokers were not all asked"
                    if not ran.stdout:
                        assert len(one_line(ran.stderr)) < SENTENCE_MAX
                    elif name == "check":
                        found = [one for one in json.loads(ran.stdout)["findings"] if one["area"] == "connection"]
                        assert found[0]["level"] in ("failed", "incomplete")
                        assert all(len(one["said"]) < SENTENCE_MAX for one in found)
                    else:
                        assert json.loads(ran.stdout)


def test_a_default_limit_that_expires_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cluster_module, preflight):
        monkeypatch.setattr(module, "QUESTION_MS", LIMIT_MS)
    monkeypatch.setattr(deadline, "SWEEP_MS", LIMIT_MS)
    monkeypatch.setattr(deadline, "SWEEP_TIMES", 0)
    with Cases() as cases:
        for name, words in COMMANDS.items():
            with cases.case(name), crowd("silent") as (_, address):
                began_s = time.monotonic()
                ran = run_here(*words, "--bootstrap-server", address)
                assert LIMIT_MS / 1_000 <= time.monotonic() - began_s < SECONDS_MAX
                assert ran.returncode == ExitStatus.FAILED
                assert "limit of 1 s" in ran.stdout + ran.stderr


def test_a_sweep_of_watch_ends_soon_after_its_limit() -> None:
    with Cases() as cases:
        for kind in KINDS:
            with (
                cases.case(kind),
                crowd(kind) as (_, address),
                Process("--bootstrap-server", address, "--timeout", LIMIT, "--interval", "1h") as watch,
            ):
                began_s = time.monotonic()

                def ended(values: dict[tuple[str, ...], float], address: str = address) -> bool:
                    done = [values.get(("txnscan_sweeps_total", address, result), 0) for result in ("done", "failed")]
                    return sum(done) == 1

                watch.until(ended, "the sweep ended")
                # The start of the process counts, too.
                assert time.monotonic() - began_s < SECONDS_MAX + 10
                assert watch.metrics()["txnscan_up", address] == (1 if watch_done(watch, address) else 0)


def watch_done(watch: Process, address: str) -> bool:
    return watch.metrics()["txnscan_sweeps_total", address, "done"] == 1


def test_a_crowd_of_thousands_takes_little_memory() -> None:
    script = (
        "import atexit, sys\n"
        f"atexit.register(lambda: sys.stderr.write('\\n%d' % {PEAK_KIB}))\n"
        "from txnscan.__main__ import main\n"
        "main()"
    )
    with Cases() as cases:
        for name in ("check", "find-hanging"):
            with cases.case(name), crowd("refusing", 10_000) as (_, address):
                began_s = time.monotonic()
                ran = run_python("-c", script, *COMMANDS[name], "--bootstrap-server", address, "--timeout", LIMIT)
                assert time.monotonic() - began_s < SECONDS_MAX + 10
                assert ran.returncode in (ExitStatus.FAILED, ExitStatus.INCOMPLETE)
                assert int(ran.stderr.splitlines()[-1]) < RSS_KIB_MAX


# --- commands that write


WRITING: dict[str, tuple[str, ...]] = {
    "abort": ("abort", "--topic", "t", "--partition", "0", "--start-offset", "5", "--yes"),
    "force-terminate": ("force-terminate", "--transactional-id", "x", "--yes"),
}


def test_a_command_that_writes_ends_soon_after_its_limit_and_has_sent_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "SWEEP_MS", LIMIT_MS)
    monkeypatch.setattr(deadline, "SWEEP_TIMES", 0)
    with Cases() as cases:
        for kind in ("silent", "dripping"):
            for name, words in WRITING.items():
                with cases.case(f"{kind}: {name}"), crowd(kind) as (peer, address):
                    began_s = time.monotonic()
                    ran = run_here(*words, "--bootstrap-server", address)
                    # Each of its questions has the limit.
                    assert time.monotonic() - began_s < 2 * SECONDS_MAX
                    assert ran.returncode not in (ExitStatus.DONE, ExitStatus.PARTLY_DONE)
                    assert not {INIT_PRODUCER_ID, WRITE_TXN_MARKERS} & peer.requests.keys()


def test_brokers_that_fall_silent_after_a_marker_end_at_the_limit_with_a_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The read after the marker has a limit of its own, and the result is printed."""
    monkeypatch.setattr(deadline, "SWEEP_TIMES", 0)
    shape = ClusterShape(brokers=2, partitions=4, partitions_per_topic=4, hanging=1)
    read_partition = LiveBrokers.read_partition
    with WireCluster(shape) as cluster:

        def read_in_silence(brokers: LiveBrokers, action: Action) -> PartitionState:
            assert cluster.stats()
            cluster.pause()
            monkeypatch.setattr(deadline, "SWEEP_MS", LIMIT_MS)
            return read_partition(brokers, action)

        monkeypatch.setattr(LiveBrokers, "read_partition", read_in_silence)
        ((topic, partition, _, start_offset),) = planted(shape, hanging=True)
        began_s = time.monotonic()
        ran = run_here(
            *("abort", "--bootstrap-server", cluster.bootstrap_servers, "--topic", topic),
            *("--partition", str(partition), "--start-offset", str(start_offset)),
            *("--accept-unknown-outcome", "--yes", "--format", "json"),
        )
        assert time.monotonic() - began_s < 2 * SECONDS_MAX
        assert ran.returncode == ExitStatus.PARTLY_DONE
        (result,) = json.loads(ran.stdout)["results"]
        assert result["status"] == Status.UNKNOWN.value


def test_each_question_of_a_command_that_writes_has_a_limit_of_its_own() -> None:
    brokers = LiveBrokers(ScanConfig("127.0.0.1:1"))
    for _ in range(2):
        with brokers._cluster() as cluster:
            assert cluster.deadline.timeout_s == SWEEP_MS / 1_000
            assert cluster.deadline is cluster._client.deadline
            cluster.deadline._ends_s = -1.0
    # A marker and its answer have the request timeout, and nothing else ends them.
    with crowd("silent") as (peer, _):
        assert peer.first is not None
        brokers._known[0] = broker(0, peer.first.port)
        with brokers.marker_connection(0) as write:
            (client,) = (
                cell.cell_contents for cell in write.__closure__ or () if hasattr(cell.cell_contents, "deadline")
            )
            assert client.deadline.left_s == float("inf") and not client.resends


def test_a_cut_read_of_closed_producers_ends_the_command() -> None:
    """Their absence would veto nothing."""
    with crowd("silent") as (peer, address):
        brokers = LiveBrokers(ScanConfig(address, timeout_ms=LIMIT_MS // 2))
        with pytest.raises(ClusterUnreachable):
            brokers.closed_producers({7})
        assert brokers.closed_producers(()) == {}
    assert not {INIT_PRODUCER_ID, WRITE_TXN_MARKERS} & peer.requests.keys()


def test_the_time_limit_of_an_apply_ends_proofs_and_no_read_after_a_marker() -> None:
    with crowd("silent") as (peer, address):
        over = LiveBrokers(ScanConfig(address), deadline=Deadline.after(0))
        for proof in (over.prove, over.prove_without_log):
            with pytest.raises(RequestFailed, match="time limit") as failed:
                proof(PLAN.actions[0])
            assert not failed.value.sent
        for call in (over.cluster_id, lambda: over.closed_producers({7})):
            with pytest.raises(ClusterUnreachable, match="time limit"):
                call()
        assert over.time_is_up is not None and not peer.requests
        left = LiveBrokers(ScanConfig(address), deadline=Deadline.after(LIMIT_MS // 2))
        assert left.time_is_up is None
        with pytest.raises(RequestFailed, match="time limit"):
            left.prove(PLAN.actions[0])
        assert left.time_is_up is not None
        for interrupted in (over, LiveBrokers(ScanConfig(address), deadline=Deadline.after(LIMIT_MS // 2))):
            assert "time limit" in str(interrupted.read_partition(PLAN.actions[0], sent=False).error)
        with over._cluster() as cluster:
            assert cluster.deadline.timeout_s == SWEEP_MS / 1_000


# --- the default limits


def test_the_limit_of_gate_does_not_include_its_wait() -> None:
    with Cases() as cases:
        for timeout_ms, waits_ms, limit_s in ((None, 0, 60), (None, 30_000, 90), (2_000, 0, 2), (2_000, 3_000, 5)):
            with (
                cases.case(f"{timeout_ms}, {waits_ms}"),
                opened_cluster(ScanConfig("127.0.0.1:1", timeout_ms=timeout_ms), waits_ms=waits_ms) as cluster,
            ):
                assert cluster.deadline.timeout_s == cluster._client.deadline.timeout_s == limit_s


def test_describe_producers_gets_more_time_for_many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    limits_s: list[float] = []
    allow = Deadline.allow

    def allowed(one: Deadline, limit_ms: int) -> None:
        allow(one, limit_ms)
        limits_s.append(one.timeout_s)

    monkeypatch.setattr(Deadline, "allow", allowed)
    monkeypatch.setattr(
        "txnscan.sweeps.capacity.longest_expected_s", lambda view: sum(len(t.indexes) for t in view.topics)
    )
    shape = ClusterShape(brokers=1, partitions=40, partitions_per_topic=4)
    with WireCluster(shape) as cluster:
        words = ("describe-producers", "--bootstrap-server", cluster.bootstrap_servers, "--format", "json")
        for more in ((), ("--topic", shape.topic_name(0)), ("--timeout", "50s")):
            assert run_here(*words, *more).returncode == ExitStatus.DONE
    of_all, of_one, of_user = limits_s
    assert of_all >= 10 * shape.partitions
    assert (of_one, of_user) == (60, 50)


def test_a_limit_of_requests_is_refused_with_files() -> None:
    ran = run_here("transaction-log", "/nowhere", "--timeout", "5s")
    assert ran.returncode == ExitStatus.USAGE
    assert one_line(ran.stderr).startswith("txnscan: --timeout: ")
