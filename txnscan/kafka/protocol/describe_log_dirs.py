"""DescribeLogDirs (api key 35): the size of replicas, and the space of the volumes of their log directories.

Any broker answers, and only about its own directories. Versions: the space of volumes since v4 (KIP-827, Kafka 3.3).
ACLs: Describe on the Cluster. Without it the answer is CLUSTER_AUTHORIZATION_FAILED from v3 on (Kafka 3.2), and an
empty list before. Kafka 3.5 lists the names of all its topics, also without requested replicas. An offline directory
has KAFKA_STORAGE_ERROR and lists no replica, so it is not known which replicas it has. A cordoned directory (v5) keeps
its replicas, and they still grow. The broker adds up the sizes of segments, and asks the file system for the space.
Source: `KafkaApis.handleDescribeLogDirsRequest`, `ReplicaManager.describeLogDirs`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kafka.protocol.admin import DescribeLogDirsRequest

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import ErrorCode, RequestFailed, answered, present
from txnscan.kafka.failure import Failure
from txnscan.kafka.topology import Key


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log directory of a broker. sizes_bytes: of the requested replicas in it; of segments, without remote storage.
    total_bytes, usable_bytes: of its volume, if the broker knows them: since Kafka 3.3. failure: why the
    directory cannot be used.
    """

    path: str
    sizes_bytes: Mapping[Key, int] = field(default_factory=dict)
    total_bytes: int | None = None
    usable_bytes: int | None = None
    failure: Failure | None = None


def describe_log_dirs(send: Send, broker_id: int, partitions: Iterable[Key]) -> tuple[LogDir, ...]:
    """The broker's log directories, with its replicas of these partitions. A replica that is on its way to another
    directory counts where it is now. Raises RequestFailed, also if the principal may not describe the cluster.
    """
    indexes: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        indexes[topic].append(index)
    wanted = DescribeLogDirsRequest.DescribableLogDirTopic
    request = DescribeLogDirsRequest(topics=[wanted(topic=name, partitions=of) for name, of in indexes.items()])
    response = send(broker_id, request)
    results = tuple(present(response.results))
    # Up to v2 an answer has no error code. Every broker has a directory.
    error_code = response.error_code or (ErrorCode.NONE if results else ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if error_code != ErrorCode.NONE:
        raise RequestFailed.answered(f"broker {broker_id}", "DescribeLogDirs", error_code)
    return tuple(
        LogDir(
            path=one.log_dir,
            sizes_bytes={
                (topic.name, replica.partition_index): replica.partition_size
                for topic in present(one.topics)
                for replica in present(topic.partitions)
                if not replica.is_future_key and replica.partition_size >= 0
            },
            total_bytes=_known(one.total_bytes),
            usable_bytes=_known(one.usable_bytes),
            failure=answered(one.error_code) if one.error_code != ErrorCode.NONE else None,
        )
        for one in results
    )


def _known(size_bytes: int | None) -> int | None:
    """A size of a volume. Brokers answer -1 for an unknown one, and a negative number for one beyond 8 EiB."""
    return size_bytes if size_bytes is not None and size_bytes >= 0 else None
