"""`python -m tests.golden.disks`: records the disks of real brokers after a clean shutdown and after a kill.

Each disk is small: one or two brokers, two partitions of `__transaction_state`, two of data, a few segments each.
Transactions are live whose records are in the first, a middle and the last segment of the log, others have ended, and
one hangs. Tests make these disks incomplete in every way (`tests/search/test_incomplete_disks.py`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.prove.compaction import alter_topic, id_served_by
from txnscan.demo.admin import create_topic, unverified
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.jars import KAFKA_VERSION, OLD_KAFKA_VERSION
from txnscan.demo.plant import describe_owner
from txnscan.demo.producer import PRODUCE_V1, Producer
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC
from txnscan.offline.files import checkpoint

DISKS = Path(__file__).parent / "disks"
PARTITIONS = 2
# Longer than brokers wait between two writes of their high watermarks.
_IDLE_S = 8.0
_PROPERTIES = {
    "transaction.state.log.num.partitions": str(PARTITIONS),
    "offsets.topic.num.partitions": "1",
    "log.index.size.max.bytes": "64",
    "log.cleaner.backoff.ms": "100",
}


@dataclass(frozen=True)
class Kind:
    """How a disk comes about. compacted: the cleaner ran. killed: while its last transactions were under way. With two
    brokers each partition has two replicas.
    """

    name: str
    version: str
    compacted: bool = False
    killed: bool = False
    brokers: int = 1


KINDS = (
    Kind("clean", KAFKA_VERSION),
    Kind("compacted", KAFKA_VERSION, compacted=True),
    Kind("killed", KAFKA_VERSION, killed=True),
    Kind("clean-v1", OLD_KAFKA_VERSION),
    Kind("two-brokers", KAFKA_VERSION, killed=True, brokers=2),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Records the disks, and prints what was recorded."""
    parser = argparse.ArgumentParser(prog="tests.golden.disks", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--kind", action="append", choices=[kind.name for kind in KINDS], help="only this one")
    options = parser.parse_args(arguments)
    for kind in KINDS:
        if not options.kind or kind.name in options.kind:
            with tempfile.TemporaryDirectory(prefix="txnscan-disks-") as directory:
                sys.stdout.write(f"{record(kind, Path(directory))}\n")
    return 0


def record(kind: Kind, directory: Path) -> Path:
    """Makes a disk, and stores it."""
    ratio = {"log.cleaner.min.cleanable.ratio": "0"} if kind.compacted else {"log.cleaner.enable": "false"}
    properties, earlier = _PROPERTIES | ratio, directory / "earlier"
    with KafkaCluster(directory, brokers=kind.brokers, properties=properties, version=kind.version) as cluster:
        with cluster.wire() as wire:
            begun = _write(wire, cluster, earlier)
            if kind.compacted:
                wait_until(lambda: _is_cleaned(cluster.data_of(1)), "both partitions were cleaned", 60.0)
            if kind.killed:
                time.sleep(_IDLE_S)
                _in_the_last_seconds(wire, begun)
        if kind.killed:
            cluster.stop()
        else:
            cluster.stop_broker(1)
        _copy(cluster, directory / "data")
        return _stored(kind, directory / "data", earlier)


def unpacked(kind: str, to: Path) -> Path:
    """A recorded disk, a folder for each broker, with the times of its files."""
    with tarfile.open(DISKS / f"{kind}.tar.gz") as archive:
        archive.extractall(to, filter="data")
    return to / "data"


def _write(wire: Wire, cluster: KafkaCluster, earlier: Path) -> list[Producer]:
    """Returns producers with live transactions. earlier: where to copy the files in the middle."""
    for topic, replicas in (("a", cluster.broker_ids), ("b", cluster.broker_ids[::-1])):
        create_topic(wire, topic, [replicas])
    _begin(wire, "first", "b")
    later = _begin(wire, "commits-later", "a")
    _end_some(wire, "early")
    _roll(wire)
    _begin(wire, "middle", "a")
    _end_some(wire, "between")
    _copy(cluster, earlier)
    _roll(wire)
    begun = _begin(wire, "last", "a")
    with unverified(wire):
        hangs = Producer(wire)
        hangs.init_producer_id()
        hangs.produce("b", 0, [b"hangs"], version=PRODUCE_V1)
    # The marker alone is in the last segment of its partition.
    alter_topic(wire, "a", {"segment.ms": "1"})
    for one in later:
        _end(wire, one, commit=True)
    alter_topic(wire, "a", {"segment.ms": None})
    return begun


def _copy(cluster: KafkaCluster, to: Path) -> None:
    for broker_id in cluster.broker_ids:
        shutil.copytree(cluster.data_of(broker_id), to / str(broker_id), ignore=shutil.ignore_patterns("*.deleted"))


def _begin(wire: Wire, prefix: str, topic: str) -> list[Producer]:
    """A live transaction of an id of each partition of the log."""
    made = []
    for k in range(PARTITIONS):
        producer = Producer(wire, id_served_by(f"{prefix}-{k}", k, PARTITIONS))
        producer.init_producer_id()
        producer.write(topic, 0, [b"live"])
        made.append(producer)
    return made


def _end_some(wire: Wire, prefix: str) -> None:
    for number, producer in enumerate(_begin(wire, prefix, "a")):
        producer.write("b", 0, [b"ended"] * 3)
        _end(wire, producer, commit=number == 0)


def _end(wire: Wire, producer: Producer, *, commit: bool) -> None:
    producer.end(commit=commit)
    name, state = str(producer.transactional_id), "CompleteCommit" if commit else "CompleteAbort"
    wait_until(lambda: describe_owner(wire, name).state == state, f"{name} was in {state}")


def _roll(wire: Wire) -> None:
    """Begins new segments of the transaction log and of topic a."""
    for topic in (TRANSACTION_STATE_TOPIC, "a"):
        alter_topic(wire, topic, {"segment.ms": "1"})
    # Brokers receive new configs asynchronously.
    time.sleep(0.5)
    for k in range(PARTITIONS):
        Producer(wire, id_served_by(f"rolls-{k}", k, PARTITIONS)).init_producer_id()
    with unverified(wire):
        rolls = Producer(wire)
        rolls.init_producer_id()
        rolls.produce("a", 0, [b"rolls"], version=PRODUCE_V1)
    for topic in (TRANSACTION_STATE_TOPIC, "a"):
        alter_topic(wire, topic, {"segment.ms": None})
    time.sleep(0.5)


def _is_cleaned(data: Path) -> bool:
    path = data / "cleaner-offset-checkpoint"
    rows = checkpoint(path.read_bytes()) if path.exists() else {}
    return all(
        rows.get((TRANSACTION_STATE_TOPIC, k), 0)
        >= max(int(one.stem) for one in (data / f"{TRANSACTION_STATE_TOPIC}-{k}").glob("*.log"))
        for k in range(PARTITIONS)
    )


def _in_the_last_seconds(wire: Wire, begun: Sequence[Producer]) -> None:
    """Some transactions begin, and some end, in the seconds after the last checkpoint."""
    _begin(wire, "begins", "a")
    for producer in begun:
        _end(wire, producer, commit=True)


def _stored(kind: Kind, data: Path, earlier: Path) -> Path:
    DISKS.mkdir(exist_ok=True)
    path = DISKS / f"{kind.name}.tar.gz"
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for folder in (data, earlier):
            for index in folder.glob("*/__cluster_metadata-0/*index"):
                _shorten(index)
            archive.add(folder, folder.name)
    return path


def _shorten(index: Path) -> None:
    """Shortens a reserved file of 10 MB of zeros."""
    stamp = index.stat()
    os.truncate(index, min(stamp.st_size, 240))
    os.utime(index, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


if __name__ == "__main__":
    sys.exit(main())
