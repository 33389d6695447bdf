"""Files of real brokers, read offline: the same results as from the brokers, and from Kafka's own tools.

A cluster runs every kind of transactional traffic, answers every request, and is then killed. Its files are read in
place and in copies.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.protocol.admin import DescribeProducersRequest
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatch
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata
from typer.testing import CliRunner

from tests.prove.compaction import PROPERTIES, alter_topic
from txnscan.api import find_hanging
from txnscan.cli.app import app
from txnscan.config import ScanConfig
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.jars import java
from txnscan.demo.node import java_command
from txnscan.demo.producer import Producer
from txnscan.demo.requests import Wire
from txnscan.demo.story import plant_all
from txnscan.demo.traffic import HealthyTraffic
from txnscan.demo.wait import wait_until
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.protocol.record_batch import HEADER
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key
from txnscan.offline import walk
from txnscan.offline.cluster_metadata import Metadata
from txnscan.offline.contents import Replica
from txnscan.offline.disk import find, read
from txnscan.offline.files import snapshot
from txnscan.offline.paths import FileContents, read_paths
from txnscan.sweeps.result import Scan

LATE_AFTER_MS = 20 * 60_000
COMPACTED, CODECS, V1, V2 = "compacted", "codecs", "traffic-v1", "traffic-v2"
# Numbers in the attributes of a batch.
CODEC_BITS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
METADATA_TOPIC = "__cluster_metadata"
IDLE_S = 10.0
_AT_ONCE = {"segment.ms": "1", "min.cleanable.dirty.ratio": "0", "min.compaction.lag.ms": "0"}
# Brokers write snapshots of the metadata log all the time.
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "2000"}
# Every producer of a replica: id, epoch, coordinator epoch, start offset, last timestamp, last sequence.
Producers = list[tuple[int, int, int, int, int, int]]


@dataclass(frozen=True)
class Left:
    """The last answers of the brokers, and the places of their files. earlier: copies made while they ran. restarted:
    the broker that shut down once, and came back.
    """

    directory: Path
    earlier: Path
    jars: Path
    restarted: int
    live: Scan
    described: Mapping[tuple[int, Key], Producers]

    def data(self, broker_id: int) -> str:
        return str(self.directory / f"broker-{broker_id}" / "data")

    @property
    def all_data(self) -> list[str]:
        return [self.data(broker_id) for broker_id in (1, 2, 3)]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Left]:
    directory = tmp_path_factory.mktemp("offline")
    earlier = tmp_path_factory.mktemp("earlier")
    with KafkaCluster(directory, properties=PROPERTIES | SNAPSHOTS) as cluster, cluster.wire() as wire:
        plant_all(cluster, wire)
        with HealthyTraffic(cluster) as traffic:
            _both_versions(wire)
            _client(cluster.bootstrap_servers, wire)
            _compacted(wire)
            _compressed_by_brokers(wire)
            wait_until(lambda: traffic.count.committed >= 20, "healthy transactions had ended")
        # Its snapshots are of a clean shutdown, and its own later entries.
        restarted = _without(wire, "shipments-service")
        cluster.stop_broker(restarted)
        cluster.start_broker(restarted)
        for broker_id in cluster.broker_ids:
            shutil.copytree(cluster.data_of(broker_id), earlier / f"broker-{broker_id}" / "data")
        _open(wire, V2, "begun-later")
        live = find_hanging(ScanConfig(cluster.bootstrap_servers))
        described = {key: _described(wire, *key) for key in _replicas(cluster)}
        # After a kill, the last checkpoint of high watermarks shows only what was idle for longer than its interval.
        wait_until(lambda: _idle_s(cluster) > IDLE_S, "all partitions were idle", 180.0)
        cluster.stop()
        yield Left(directory, earlier, cluster.jars, restarted, live, described)


def _without(wire: Wire, transactional_id: str) -> int:
    """A broker that does not coordinate this id. After an election no outcome is proven (`txnlog/elections.py`)."""
    count = len(wire.view([TRANSACTION_STATE_TOPIC]).partitions)
    coordinator = wire.partition(TRANSACTION_STATE_TOPIC, coordinator_partition(transactional_id, count)).leader
    return next(broker_id for broker_id in (2, 3) if broker_id != coordinator)


def _both_versions(wire: Wire) -> None:
    for topic, v2 in ((V1, False), (V2, True)):
        create_topic(wire, topic, [[1, 2, 3], [2, 3, 1]])
        one, two = (Producer(wire, f"{topic}-{name}", v2=v2) for name in ("one", "two"))
        for producer in (one, two):
            producer.init_producer_id()
        for number in range(6):
            for partition in (0, 1):
                one.write(topic, partition, [b"x"] * (number + 1))
                two.write(topic, partition, [b"y"])
            one.write(topic, 0, [b"z"])
            one.end(commit=number % 3 > 0)
            two.end(commit=number % 2 > 0)
        # Fenced with an ongoing transaction, which aborts it, and a marker without data.
        one.write(topic, 0, [b"fenced"])
        one.init_producer_id()
        if not v2:
            two.add_partitions([(topic, 1)])
            two.end(commit=True)
        two.write(topic, 1, [b"open"])


def _open(wire: Wire, topic: str, name: str) -> None:
    producer = Producer(wire, name)
    producer.init_producer_id()
    producer.write(topic, 0, [b"later"])


def _client(servers: str, wire: Wire) -> None:
    """Writes as an application does: with codecs, offsets of a group, and an idempotent producer."""
    create_topic(wire, CODECS, [[3, 1, 2]])
    for codec in (None, "gzip", "zstd"):
        producer = KafkaProducer(
            bootstrap_servers=servers.split(","), transactional_id=f"codec-{codec}", compression_type=codec
        )
        producer.init_transactions()
        producer.begin_transaction()
        for number in range(20):
            producer.send(CODECS, b"value %d" % number, partition=0)
        group = ConsumerGroupMetadata("group", -1, "", None)
        producer.send_offsets_to_transaction({TopicPartition(CODECS, 0): OffsetAndMetadata(1, "", -1)}, group)
        producer.commit_transaction()
        producer.close()
    idempotent = KafkaProducer(bootstrap_servers=servers.split(","), enable_idempotence=True, acks="all")
    for _ in range(3):
        idempotent.send(CODECS, b"idempotent", partition=0).get(30)
    idempotent.close()


def _compressed_by_brokers(wire: Wire) -> None:
    """Topics whose `compression.type` makes the broker compress, by each codec, so no library is needed here. Each has
    an open transaction.
    """
    for codec in CODEC_BITS:
        topic = f"written-{codec}"
        create_topic(wire, topic, [[1, 2, 3]], {"compression.type": codec})
        producer = Producer(wire, topic)
        producer.init_producer_id()
        for commit in (True, False, True):
            producer.write(topic, 0, [b"value " * 50] * 20)
            producer.write(topic, 0, [b"more " * 50] * 5)
            producer.end(commit=commit)
        producer.write(topic, 0, [b"open " * 50] * 20)


def _compacted(wire: Wire) -> None:
    """Compacted up to an open transaction, which stops compaction."""
    create_topic(wire, COMPACTED, [[1, 2, 3]], {"cleanup.policy": "compact", **_AT_ONCE})
    producer = Producer(wire, "compacts")
    producer.init_producer_id()
    for number in range(5):
        _keyed(producer, b"key", b"%d" % number)
        producer.end(commit=number != 2)
    _keyed(producer, b"key", b"open")
    other = Producer(wire, "goes-on")
    other.init_producer_id()

    def cleaned() -> bool:
        _keyed(other, b"other", b"x")
        other.end(commit=True)
        partition = wire.partition(COMPACTED, 0)
        from txnscan.kafka.protocol.fetch import fetch

        found = fetch(wire.send, partition, 0, 1 << 20, records=False)
        held = sum(one.records_count for one in found.batches)
        return held < found.next_offset(0)

    wait_until(cleaned, f"{COMPACTED} was compacted", 60.0)
    alter_topic(wire, COMPACTED, dict.fromkeys(_AT_ONCE))


def _keyed(producer: Producer, key: bytes, value: bytes) -> None:
    from kafka.record import MemoryRecordsBuilder

    batch = producer._batch

    def keyed(values: Any, timestamp_ms: int, sequence: int) -> bytes:
        builder = MemoryRecordsBuilder(
            *(2, 0, 1 << 20),
            transactional=True,
            producer_id=producer.known.producer_id,
            producer_epoch=producer.known.producer_epoch,
            base_sequence=sequence,
        )
        builder.append(timestamp=timestamp_ms, key=key, value=value)
        builder.close()
        return bytes(builder.buffer())

    producer._batch = keyed  # type: ignore[method-assign]
    try:
        producer.write(COMPACTED, 0, [value])
    finally:
        producer._batch = batch  # type: ignore[method-assign]


def _idle_s(cluster: KafkaCluster) -> float:
    """For how long no partition has changed on any broker."""
    folders = [one for broker_id in cluster.broker_ids for one in cluster.data_of(broker_id).glob("*-*/")]
    of_partitions = [one for one in folders if METADATA_TOPIC not in one.name]
    changed = [path.stat().st_mtime for one in of_partitions for path in (one, *one.glob("*.log"))]
    return time.time() - max(changed)


def _replicas(cluster: KafkaCluster) -> list[tuple[int, Key]]:
    found = []
    for broker_id in cluster.broker_ids:
        for replica in find([str(cluster.data_of(broker_id))]).replicas:
            if replica.key is not None and replica.key[0] != METADATA_TOPIC:
                found.append((broker_id, replica.key))
    return found


def _described(wire: Wire, broker_id: int, key: Key) -> Producers:
    topic = DescribeProducersRequest.TopicRequest
    request = DescribeProducersRequest(topics=[topic(name=key[0], partition_indexes=[key[1]])])
    answer = wire.send(broker_id, request).topics[0].partitions[0]
    assert answer.error_code == 0
    return sorted(
        (
            p.producer_id,
            p.producer_epoch,
            p.coordinator_epoch,
            p.current_txn_start_offset,
            p.last_timestamp,
            p.last_sequence,
        )
        for p in answer.active_producers or ()
    )


def producers(replica: Replica) -> Producers:
    return sorted(
        (p.producer_id, p.producer_epoch, p.coordinator_epoch, p.start_offset, p.last_timestamp_ms, p.last_sequence)
        for p in replica.producers
    )


@pytest.fixture(scope="module")
def found(left: Left) -> FileContents:
    return read_paths(left.all_data, late_after_ms=LATE_AFTER_MS)


# --- the same as the brokers ---


def test_the_producers_of_every_replica_equal_the_description_of_its_broker(left: Left, found: FileContents) -> None:
    ours = {(r.broker_id, r.key): producers(r) for r in found.replicas if r.key and r.key[0] != METADATA_TOPIC}
    assert ours == left.described
    assert sum(map(len, ours.values())) > 50


def test_verdicts_and_outcomes_equal_those_of_the_live_sweep(left: Left, found: FileContents) -> None:
    def told(judged: Any) -> dict[Any, Any]:
        return {j.observation.transaction_key: (j.judgement.verdict, j.judgement.reason, j.outcome) for j in judged}

    live, offline = told(left.live.transactions), told(one.judged for one in found.transactions)
    assert found.errors == () and found.uncovered == {} and found.running_error is None
    # A transaction begun just before the end also has an owner.
    assert offline == live
    assert {verdict.value for verdict, _, _ in live.values()} >= {"hanging", "ongoing"}
    assert "committed" in {outcome for _, _, outcome in live.values()}


def test_last_stable_offsets_and_high_watermarks_equal_those_of_the_sweep(left: Left, found: FileContents) -> None:
    live = {j.observation.transaction_key: j.observation for j in left.live.transactions}
    for one in found.transactions:
        o = one.judged.observation
        theirs = live[o.transaction_key]
        if theirs.second.high_watermark is not None:
            assert o.second.last_stable_offset == theirs.second.last_stable_offset
            assert o.second.high_watermark == theirs.second.high_watermark
        assert one.as_of + 1 == o.second.high_watermark


def test_snapshots_of_brokers_equal_the_state_folded_from_the_log(left: Left, found: FileContents) -> None:
    compared = 0
    for replica in found.replicas:
        for offset, path in replica.files.snapshots.items():
            if replica.figures.compacted or replica.figures.gaps or 0 not in replica.files.segments:
                continue
            states = {one.producer_id: one for one in snapshot(read(path), _crc)}
            assert states == _folded_until(replica, offset), path
            compared += bool(states)
    assert compared >= 3


def _crc(data: bytes) -> int:
    from crc32c import crc32c

    return int(crc32c(data))


def _folded_until(replica: Replica, offset: int) -> dict[int, Any]:
    from txnscan.offline.producer_snapshots import LogState

    state = LogState()
    seen: dict[int, dict[int, Any]] = {}

    def before(base_offset: int) -> None:
        if base_offset >= offset and not seen:
            seen[offset] = {pid: _copied(one) for pid, one in state.producers.items()}

    for base in sorted(replica.files.segments):
        walk.fold(read(replica.files.segments[base]), state, base, before=before)
    return seen.get(offset, state.producers)


def _copied(one: Any) -> Any:
    from dataclasses import replace

    return replace(one)


def test_no_real_step_is_reported_as_impossible(found: FileContents) -> None:
    assert found.impossible == []
    assert sum(log.records for log in found.logs.values()) > 100


@pytest.mark.parametrize("codec", CODEC_BITS)
def test_a_log_compressed_by_its_broker_has_the_same_state_in_any_codec(found: FileContents, codec: str) -> None:
    """Headers are sufficient, and markers are never compressed.

    Another test compares them with the brokers' answers.
    """
    copies = [one for one in found.replicas if one.key == (f"written-{codec}", 0)]
    assert len(copies) == 3
    for replica in copies:
        figures, (log,) = replica.figures, replica.files.segments.values()
        flags = {HEADER.unpack_from(read(log), at)[5] for at, _ in walk.headers(read(log))}
        assert {flag & 7 for flag in flags if flag & 16 and not flag & 32} == {CODEC_BITS[codec]}
        assert {flag & 7 for flag in flags if flag & 32} == {0}
        assert (figures.committed, figures.aborted, figures.records, len(replica.open)) == (2, 1, 98, 1)
        assert replica.last_stable_offset == replica.open[0].start_offset == 78 and not figures.odd
    (judged,) = (one.judged for one in found.transactions if one.judged.observation.topic == f"written-{codec}")
    assert judged.judgement.verdict.value == "ongoing"


def test_compaction_is_reported_as_stuck_at_the_open_transaction(found: FileContents) -> None:
    (leader,) = (r for r in found.replicas if r.key == (COMPACTED, 0) and r.broker_id == 1)
    assert leader.compaction_stuck and leader.figures.compacted + leader.figures.gaps > 0
    assert leader.cleaned_until <= leader.last_stable_offset < leader.log_end_offset


def test_lock_files_of_killed_brokers_are_not_locked(left: Left, found: FileContents) -> None:
    assert all((Path(data) / ".lock").is_file() for data in left.all_data)
    assert (found.found.seen.locked, found.found.seen.lock_error, found.changing) == (None, None, False)


# --- incomplete files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("brokers", [(1,), (2,), (3,), (1, 2)])
def test_files_of_some_brokers_give_no_hanging_verdict(left: Left, brokers: tuple[int, ...]) -> None:
    some = read_paths([left.data(broker_id) for broker_id in brokers], late_after_ms=LATE_AFTER_MS)
    verdicts = {one.judged.judgement.verdict.value for one in some.transactions}
    if brokers == (1, 2):
        # Partitions with replicas on only these would also need the whole transaction log.
        assert some.uncovered
    assert "hanging" not in verdicts and "indeterminate" in verdicts


def test_without_the_whole_transaction_log_no_verdict_is_hanging(left: Left, tmp_path: Path) -> None:
    for without in (r"__transaction_state-\d+", r"__transaction_state-0"):
        part = tmp_path / without.replace("\\", "")
        for broker_id in (1, 2, 3):
            shutil.copytree(
                left.data(broker_id),
                part / f"broker-{broker_id}" / "data",
                ignore=lambda _, names, without=without: [n for n in names if re.fullmatch(without, n)],
            )
        some = read_paths([str(part)], late_after_ms=LATE_AFTER_MS)
        orphans = [one.judged for one in some.transactions if one.judged.observation.topic == "clicks"]
        assert {(j.judgement.verdict.value, j.judgement.reason.value) for j in orphans} == {
            ("indeterminate", "coverage")
        }
        assert some.uncovered


def test_a_metadata_log_from_its_newest_snapshot_gives_the_same_result(
    left: Left, found: FileContents, tmp_path: Path
) -> None:
    """As in brokers, which delete records covered by their newest snapshot."""
    newest = {}
    for broker_id in (1, 2, 3):
        shutil.copytree(left.data(broker_id), tmp_path / f"broker-{broker_id}" / "data")
        log = tmp_path / f"broker-{broker_id}" / "data" / f"{METADATA_TOPIC}-0"
        *earlier, newest[broker_id] = sorted(log.glob("*.checkpoint"))
        offset = int(newest[broker_id].name[:20])
        (segment,) = log.glob("*.log")
        content, written_ns = segment.read_bytes(), segment.stat().st_mtime_ns
        kept = [(at, size) for at, size in walk.headers(content) if int.from_bytes(content[at : at + 8]) >= offset]
        (log / f"{offset:020d}.log").write_bytes(b"".join(content[at : at + size] for at, size in kept))
        for path in (*earlier, segment, log / "leader-epoch-checkpoint"):
            path.unlink()
        # The broker wrote to the log until it was killed.
        os.utime(log / f"{offset:020d}.log", ns=(written_ns, written_ns))
    shortened = read_paths([str(tmp_path)], late_after_ms=LATE_AFTER_MS)
    assert (shortened.errors, shortened.uncovered, shortened.running_error) == ((), {}, found.running_error)
    assert [one.judged.judgement for one in shortened.transactions] == [
        one.judged.judgement for one in found.transactions
    ]
    for path in newest.values():
        path.unlink()
    without = read_paths([str(tmp_path)], late_after_ms=LATE_AFTER_MS)
    assert len(without.errors) == 3 and without.uncovered
    assert "hanging" not in {one.judged.judgement.verdict.value for one in without.transactions}


def test_data_copied_after_the_transaction_log_is_not_hanging(left: Left, tmp_path: Path) -> None:
    """A transaction begun in between has no owner in the earlier copy."""
    for broker_id in (1, 2, 3):
        mixed = tmp_path / f"broker-{broker_id}" / "data"
        shutil.copytree(left.data(broker_id), mixed)
        for old in (left.earlier / f"broker-{broker_id}" / "data").iterdir():
            if old.is_dir() and old.name.startswith((TRANSACTION_STATE_TOPIC, METADATA_TOPIC)):
                shutil.rmtree(mixed / old.name)
                shutil.copytree(old, mixed / old.name)
    some = read_paths([str(tmp_path)], late_after_ms=LATE_AFTER_MS)
    (later,) = (one.judged for one in some.transactions if one.judged.evidence.coordinators == () and _is_later(one))
    assert later.judgement.verdict.value == "indeterminate"


def _is_later(one: Any) -> bool:
    return bool(one.judged.observation.topic == V2 and one.judged.observation.partition == 0)


def test_a_broker_that_ran_after_its_copy_causes_no_hanging_verdict(left: Left, tmp_path: Path) -> None:
    """Its copy predates the restart, which is in the metadata log of the others."""
    name = f"broker-{left.restarted}"
    for one in ("broker-1", "broker-2", "broker-3"):
        shutil.copytree((left.earlier if one == name else left.directory) / one / "data", tmp_path / one / "data")
    (stopped,) = (tmp_path / name / "data" / f"{METADATA_TOPIC}-0").glob("*.log")
    # Its metadata log ends before its second registration.
    data = stopped.read_bytes()
    end = _last_registration(data, left.restarted)
    stopped.write_bytes(data[:end])
    next_offset = int.from_bytes(data[end : end + 8])
    for checkpoint in stopped.parent.glob("*.checkpoint"):
        if int(checkpoint.name[:20]) > next_offset:
            checkpoint.unlink()
    some = read_paths([str(tmp_path)], late_after_ms=LATE_AFTER_MS)
    assert some.running_error is not None and some.running_error.startswith(f"broker {left.restarted} ")
    assert "hanging" not in {one.judged.judgement.verdict.value for one in some.transactions}


def _last_registration(data: bytes, broker_id: int) -> int:
    """The position of the batch with this broker's last registration."""
    metadata, found = Metadata(), -1
    for at, size in walk.headers(data):
        before = metadata.registered_at.get(broker_id)
        batch = DefaultRecordBatch(data[at : at + size])
        for record in () if batch.is_control_batch else batch:
            metadata.take(record.offset, bytes(record.value))
        if metadata.registered_at.get(broker_id) != before:
            found = at
    assert found >= 0
    return found


def test_damage_after_an_open_transaction_makes_the_verdict_indeterminate(left: Left, tmp_path: Path) -> None:
    """In any of its replicas, and outside of headers: checksums are checked before a hanging verdict."""
    for broker_id in (1, 2, 3):
        shutil.copytree(left.data(broker_id), tmp_path / f"broker-{broker_id}" / "data")
    log = tmp_path / "broker-1" / "data" / "clicks-0" / f"{0:020d}.log"
    whole = log.read_bytes()
    times = (log.stat().st_atime_ns, log.stat().st_mtime_ns)
    for position in (len(whole) - 1, 50, 18, 8, 30):
        damaged = bytearray(whole)
        damaged[position] ^= 0x55
        log.write_bytes(bytes(damaged))
        os.utime(log, ns=times)
        some = read_paths([str(tmp_path)], late_after_ms=LATE_AFTER_MS)
        clicks = [one.judged.judgement for one in some.transactions if one.judged.observation.topic == "clicks"]
        # Although other replicas have it: the damaged replica may have had more.
        assert all(j.verdict.value == "indeterminate" for j in clicks), (position, clicks)


# --- compared with Kafka's tools, and kafka-python --------------------------------------------------------------------


@pytest.fixture(scope="module")
def dumped(left: Left, found: FileContents) -> dict[str, list[str]]:
    """The output of DumpLogSegments for each segment and snapshot, run once."""
    files = [
        path
        for replica in found.replicas
        if replica.key is not None and replica.key[0] != METADATA_TOPIC
        for path in (
            *replica.files.segments.values(),
            *replica.files.snapshots.values(),
            *replica.files.indexes.values(),
        )
    ]
    command = java_command(
        *(java(), left.jars, left.directory, "org.apache.kafka.tools.DumpLogSegments"),
        ["--deep-iteration", "--files", ",".join(files)],
        log_level="WARN",
        to="SYSTEM_ERR",
    )
    ran = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
    by_file: dict[str, list[str]] = defaultdict(list)
    for line in ran.stdout.splitlines():
        if line.startswith("Dumping "):
            name = line.removeprefix("Dumping ").strip()
        by_file[name].append(line)
    return by_file


def fields(line: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+): (\S+)", line))


def test_headers_equal_those_of_dump_log_segments(found: FileContents, dumped: Mapping[str, list[str]]) -> None:
    compared = 0
    for path, lines in dumped.items():
        if not path.endswith(".log"):
            continue
        data = read(path)
        ours = []
        for at, size in walk.headers(data):
            header = HEADER.unpack_from(data, at)
            flags = header[5]
            ours.append(
                [
                    *(header[0], header[0] + header[6], header[12], header[9], header[10]),
                    *(bool(flags & 16), bool(flags & 32), at, size, header[4]),
                ]
            )
        names = ["baseOffset", "lastOffset", "count", "producerId", "producerEpoch", "isTransactional", "isControl"]
        names += ["position", "size", "crc"]
        theirs = [
            [
                {"true": True, "false": False}.get(f[name]) if f[name] in ("true", "false") else int(f[name])
                for name in names
            ]
            for f in map(fields, lines)
            if "baseOffset" in f
        ]
        assert ours == theirs, path
        compared += len(ours)
    assert compared > 500


def test_snapshots_equal_those_of_dump_log_segments(dumped: Mapping[str, list[str]]) -> None:
    compared = 0
    for path, lines in dumped.items():
        if not path.endswith(".snapshot"):
            continue
        ours = {
            (s.producer_id, s.producer_epoch, s.coordinator_epoch, s.start_offset, s.last_timestamp_ms)
            for s in snapshot(read(path), _crc)
        }
        theirs = set()
        for line in lines[1:]:
            f = fields(line)
            first = re.search(r"currentTxnFirstOffset: Optional\w*(?:\[(\d+)\]|\.empty)", line)
            assert first is not None, line
            theirs.add(
                (
                    *(int(f[name]) for name in ("producerId", "producerEpoch", "coordinatorEpoch")),
                    int(first[1]) if first[1] else -1,
                    int(f["lastTimestamp"]),
                )
            )
        assert ours == theirs, path
        compared += len(ours)
    assert compared > 10


@dataclass
class Klog:
    """The counts of klog's txn-stat for a dump: by producer id and epoch (`TransactionalInfoCollector`)."""

    committed: int = 0
    aborted: int = 0
    empty: int = 0
    sizes: tuple[int, ...] = ()
    durations_ms: tuple[int, ...] = ()
    open: tuple[int, ...] = ()


def klog(lines: list[str]) -> Klog:
    found = Klog()
    begun: dict[Any, Any] = {}
    for line in lines:
        f = fields(line)
        if "baseOffset" in f:
            batch, session = f, (f["producerId"], f["producerEpoch"])
            if f["isTransactional"] == "true" and f["isControl"] == "false":
                first, count = begun.get(session, (f, 0))
                begun[session] = (first, count + 1)
        elif "endTxnMarker" in f:
            found.committed += f["endTxnMarker"] == "COMMIT"
            found.aborted += f["endTxnMarker"] == "ABORT"
            if session in begun:
                first, count = begun.pop(session)
                found.sizes += (count,)
                found.durations_ms += (int(batch["CreateTime"]) - int(first["CreateTime"]),)
            else:
                found.empty += 1
    found.open = tuple(sorted(int(first["baseOffset"]) for first, _ in begun.values()))
    return found


def test_figures_equal_those_of_klog_where_klog_is_correct(
    left: Left, found: FileContents, dumped: Mapping[str, list[str]]
) -> None:
    """klog identifies a transaction by producer id and epoch. If the end raised the epoch, as under transactions v2, it
    reports the data as open and the marker as empty. Its committed and aborted counts are still correct.
    """
    told = []
    for replica in found.replicas:
        if replica.key is None or replica.key[0] == METADATA_TOPIC or replica.broker_id != 1:
            continue
        lines = [line for base in sorted(replica.files.segments) for line in dumped[replica.files.segments[base]]]
        theirs, ours = klog(lines), replica.figures
        assert (ours.committed, ours.aborted) == (theirs.committed, theirs.aborted), replica.key
        if replica.key == (V1, 1):
            assert ours.empty == theirs.empty == 1
            assert [one.start_offset for one in replica.open] == list(theirs.open)
            assert (ours.sizes.least, ours.sizes.most, ours.sizes.count) == (1, 1, len(theirs.sizes))
            assert ours.durations_ms.mean == statistics.mean(theirs.durations_ms)
            assert (ours.durations_ms.least, ours.durations_ms.most) == (
                min(theirs.durations_ms),
                max(theirs.durations_ms),
            )
        told.append(theirs)
    assert sum(one.committed for one in told) > 20 and sum(one.aborted for one in told) > 5


def test_aborted_transactions_equal_those_of_the_transaction_index(found: FileContents) -> None:
    of_traffic = [r for r in found.replicas if r.key and r.key[0] in (V1, V2, "orders")]
    assert sum(r.aborted_rows for r in of_traffic) > 5
    for replica in of_traffic:
        # Traffic may abort before its data was sent: a marker without data, which is not in the index.
        of_nothing = replica.figures.empty if replica.key and replica.key[0] == "orders" else 0
        assert 0 <= replica.figures.aborted - replica.aborted_rows <= of_nothing, replica.key


def test_batches_equal_those_of_kafka_pythons_record_module(found: FileContents) -> None:
    compared = 0
    for replica in found.replicas:
        theirs = [
            one for base in sorted(replica.files.segments) for one in MemoryRecords(read(replica.files.segments[base]))
        ]
        assert replica.figures.batches == len(theirs)
        assert replica.figures.records == sum(one.records_count for one in theirs)
        assert not theirs or replica.log_end_offset == theirs[-1].last_offset + 1
        compared += len(theirs)
    assert compared > 500


# --- the commands ---


def test_the_commands_print_the_result_as_json_and_as_text(left: Left) -> None:
    for command in ("segments", "transaction-log"):
        ran = CliRunner().invoke(app, [command, *left.all_data, "--format", "json"])
        assert ran.exit_code == 0, ran.output
        told = json.loads(ran.stdout)
        hanging = [t for t in told["transactions"] if t["verdict"] == "hanging"]
        assert {t["topic"] for t in hanging} >= {"clicks", "payments-solo", "shipments", "invoices", "sensors"}
        assert all(t["open_as_of_offset"] >= t["start_offset"] for t in told["transactions"])
        assert told["sweep"]["cluster_id"] == left.live.cluster_id
        # The brokers were killed: what they wrote in their last seconds is shown by no other file.
        assert told["sweep"]["complete"] == (told["errors"] == [])
        assert {error["stage"] for error in told["errors"]} <= {"copies"}
        (torn,) = (t for t in hanging if t["topic"] == "payments-solo")
        assert torn["outcome"] == "committed" and torn["commands"] == []
        (stale,) = (t for t in hanging if t["topic"] == "shipments")
        words = stale["commands"][0].split()
        assert words[:2] == ["txnscan", "abort"]
        assert words[-6:] == ["--topic", "shipments", "--partition", "0", "--start-offset", "0"]
        said = CliRunner().invoke(app, [command, *left.all_data])
        assert said.exit_code == 0 and "hanging (missed_commit)" in said.stdout
    one = CliRunner().invoke(app, ["transaction-log", *left.all_data, "--transactional-id", f"{V2}-one"])
    assert "PrepareAbort" in one.stdout and "impossible" not in one.stdout
    failed = CliRunner().invoke(app, ["segments", *left.all_data, "--fail-on", "hanging"])
    assert failed.exit_code == 3
    only = CliRunner().invoke(app, ["segments", left.data(1), "--fail-on", "incomplete"])
    assert only.exit_code == 4
