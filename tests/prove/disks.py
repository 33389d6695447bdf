"""Change the files of a stopped broker as a crash does, and find what a running broker has written to them."""

from __future__ import annotations

import struct
from pathlib import Path

from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.errors import DemoError
from txnscan.kafka.topology import Key

# The broker that has two log directories.
TWO_DISKS = 1
_LOG_STARTS = "log-start-offset-checkpoint"
_ABOVE = ("*.log", "*.snapshot")
_REBUILT = ("*.index", "*.timeindex", "*.txnindex")
_LENGTH_END = 12


def log_dirs(cluster_directory: Path) -> str:
    """`log.dirs` of the broker with two log directories."""
    data = cluster_directory / f"broker-{TWO_DISKS}" / "data"
    return f"{data},{data}-2"


def lose_snapshots(cluster: KafkaCluster, broker_id: int, key: Key) -> None:
    """Deletes the snapshots of the producers' state of a stopped broker's replica, which is then built from the log."""
    for path in _replica(cluster, broker_id, key).glob("*.snapshot"):
        path.unlink()


def lose_end(cluster: KafkaCluster, broker_id: int, key: Key, end: int) -> None:
    """Removes the batches from this offset on from a stopped broker's replica. The broker builds the indexes again.

    end: above the start of the log. Raises DemoError if there is no such batch.
    """
    replica = _replica(cluster, broker_id, key)
    later = [path for pattern in _ABOVE for path in replica.glob(pattern) if int(path.stem) >= end]
    for path in (*later, *(path for pattern in _REBUILT for path in replica.glob(pattern))):
        path.unlink()
    last = max(replica.glob("*.log"))
    data, at = last.read_bytes(), 0
    while at < len(data):
        offset, length = struct.unpack_from(">qi", data, at)
        if offset >= end:
            break
        at += _LENGTH_END + length
    if at == len(data) and not any(path.suffix == ".log" for path in later):
        raise DemoError(f"{replica.name} has no batch from offset {end} on")
    last.write_bytes(data[:at])


def begins_at(cluster: KafkaCluster, broker_id: int, key: Key, start: int) -> bool:
    """Whether a replica's log begins at this offset on disk: the start would survive a crash of the broker, and the
    segments below it are deleted.
    """
    replica = _replica(cluster, broker_id, key)
    bases = sorted(int(path.stem) for path in replica.glob("*.log"))
    if any(after <= start for after in bases[1:]):
        return False
    # A start at the beginning of the first segment needs no checkpoint.
    checkpoint = replica.parent / _LOG_STARTS
    return bases[0] == start or f"{key[0]} {key[1]} {start}" in checkpoint.read_text("utf-8").splitlines()


def _replica(cluster: KafkaCluster, broker_id: int, key: Key) -> Path:
    (found,) = cluster.data_of(broker_id).parent.glob(f"data*/{key[0]}-{key[1]}")
    return found
