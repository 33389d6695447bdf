"""All files together: the copies of each partition, the brokers' metadata, and what the user asserts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from txnscan.kafka.protocol.api_versions import ELIGIBLE_LEADER_REPLICAS
from txnscan.kafka.topology import Key
from txnscan.offline.contents import METADATA_TOPIC, LogDirectory, Replica
from txnscan.offline.wholeness import end_error, gap_error

if TYPE_CHECKING:
    from txnscan.offline.cluster_metadata import Metadata


@dataclass(frozen=True)
class Copies:
    """All files together.

    metadata: `__cluster_metadata` by broker. metadata_errors: why a broker's copy of it is not whole, if it is not.
    vouched: the user asserts that the files are of all brokers, and that no broker ran while they were copied.
    log_partitions: the number of partitions of `__transaction_state`, if the user gave it. newest_file_ms: when the
    newest file was written. newest_record: the newest time in the records of `__transaction_state`, and when the file
    with it was written. running: evidence that a broker ran while the files were read, if any. lock_error: why the
    state of a lock is unknown, if it is. unlisted: a directory that could not be listed and may contain replicas.
    """

    replicas: Mapping[Key, Sequence[Replica]]
    directories: Sequence[LogDirectory]
    metadata: Mapping[int, Metadata]
    vouched: bool
    newest_file_ms: int
    newest_record: tuple[int, int] = (-1, -1)
    metadata_errors: Mapping[int, str] = field(default_factory=dict)
    log_partitions: int | None = None
    running: str | None = None
    lock_error: str | None = None
    unlisted: str | None = None

    @cached_property
    def latest(self) -> Metadata | None:
        """The longest metadata log of all brokers."""
        return max(self.metadata.values(), key=lambda one: one.next_offset, default=None)

    @property
    def epochs_rise(self) -> bool:
        """Whether leader epochs rise at every restart of a leader, by the features of the newest metadata
        (`txnlog/elections.py`). Outside KRaft mode they need not rise.
        """
        return self.latest is not None and self.latest.features.get(ELIGIBLE_LEADER_REPLICAS, 0) >= 1

    def is_clean(self, directory: LogDirectory | None) -> bool:
        """Whether the last run of the directory's broker ended with a clean shutdown. A record of an earlier run, as an
        earlier copy in the same place leaves it, does not count.
        """
        if directory is None or not directory.clean:
            return False
        latest = self.latest
        registered = (
            latest.broker_epochs.get(directory.broker_id) if latest and directory.broker_id is not None else None
        )
        return directory.broker_epoch is None or registered is None or directory.broker_epoch == registered

    @cached_property
    def killed(self) -> dict[str, LogDirectory]:
        """The log directories without a clean shutdown, by path. One with the metadata log alone has no such record."""
        with_data = {
            one.files.log_directory.path
            for key, here in self.replicas.items()
            for one in here
            if key[0] != METADATA_TOPIC and one.files.log_directory is not None
        }
        return {one.path: one for one in self.directories if one.path in with_data and not self.is_clean(one)}

    def leader(self, key: Key) -> Replica | None:
        """The copy of the broker that leads the partition by the newest metadata, if it is among the files."""
        assigned = self.latest.assigned(key) if self.latest is not None else None
        theirs = [one for one in self.replicas.get(key, ()) if assigned and one.broker_id == assigned[1].leader]
        return best(theirs) if theirs else None

    def leading(self, key: Key) -> Replica:
        """The copy of the partition's leader, or else the best copy."""
        return self.leader(key) or best(self.replicas[key])


def best(replicas: Sequence[Replica]) -> Replica:
    """The copy with the highest leader epoch, then with the longest log. Copies that are known to lack something come
    last.
    """
    return max(replicas, key=lambda r: (_lacks(r) is None, r.leader_epoch, r.log_end_offset))


def _lacks(replica: Replica) -> str | None:
    return replica.unproven or gap_error(replica) or end_error(replica)
