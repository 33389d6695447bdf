"""OffsetForLeaderEpoch (api key 23): the end of a leader epoch in the leader's log.

With `currentLeaderEpoch` set (v2, Kafka 2.1) a broker answers only if it leads at exactly that epoch. Otherwise the
error is FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH or NOT_LEADER_OR_FOLLOWER. ACLs: Describe on the topic.
Source: `Partition.lastOffsetForLeaderEpoch`, `UnifiedLog.endOffsetForEpoch`, `LeaderEpochFileCache.endOffsetFor`.

The leader looks up the epoch in its epoch cache, which has the first offset of each epoch:

- It answers the largest epoch in the cache that is not above the requested epoch, and the offset at which the next
  epoch begins.
- Its latest epoch ends at the log's end, which may be above the high watermark.
- For an epoch above its latest, and for -1, it answers -1 and -1.
- For an epoch below its first, it answers the requested epoch, as if it had that epoch, and the offset at which the
  first epoch begins. Only the offset distinguishes this case.

A cleaner does not change the cache. A replica that copies a compacted log fills its own cache from the remaining
batches (`UnifiedLog.append`). In such a replica an epoch begins with its first remaining batch, and an epoch without
remaining batches is not known. So the epoch before may seem to end later than it did. It never seems to end earlier.
"""

from __future__ import annotations

from collections.abc import Collection

from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from txnscan.kafka.answers import EpochEnd
from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import ANSWERED_TWICE, LEFT_OUT, ErrorCode, RequestFailed, answered, present
from txnscan.kafka.topology import Partition

_CONSUMER = -1
# The first version with the replica id in requests.
_MIN_VERSION = 3
# The limit of epochs to ask for, because each epoch is a separate request.
EPOCHS_MAX = 20
# Less than every epoch, and not UNDEFINED_EPOCH, which is -1.
_BELOW_ALL = -2


def epoch_ends(send: Send, partition: Partition, epochs: Collection[int]) -> dict[int, int]:
    """The end offset of each of these leader epochs that the partition's leader has in its epoch cache.

    Epochs that the leader does not have, or for which it has no offset, are left out. Only the highest `EPOCHS_MAX`
    epochs are asked for; the others are also left out. Raises RequestFailed, also if the broker does not lead the
    partition at its leader epoch.
    """
    ends = _answers(send, partition, epochs)
    if not ends:
        return {}
    # This is asked last: retention may move the beginning of the first epoch up meanwhile, and never back.
    first = _epoch_end(send, partition, _BELOW_ALL)
    if first.leader_epoch != _BELOW_ALL or first.end_offset < 0:
        return {}
    return {
        epoch: end.end_offset
        for epoch, end in ends.items()
        if end.leader_epoch == epoch and end.end_offset > first.end_offset
    }


def epoch_bounds(send: Send, partition: Partition, epochs: Collection[int]) -> dict[int, int]:
    """For each of these leader epochs, the offset below which the partition's leader has the records of that epoch and
    of all earlier ones. Also for an epoch that the leader does not have.

    It is the beginning of the first later epoch, and so never below what those leaders had replicated. Epochs that are
    not over, and those for which the leader has no offset, are left out. Limit and errors are those of `epoch_ends`.
    """
    ends = _answers(send, partition, [epoch for epoch in epochs if epoch < partition.leader_epoch])
    return {epoch: end.end_offset for epoch, end in ends.items() if end.end_offset >= 0}


def _answers(send: Send, partition: Partition, epochs: Collection[int]) -> dict[int, EpochEnd]:
    asked = sorted({epoch for epoch in epochs if 0 <= epoch <= partition.leader_epoch})[-EPOCHS_MAX:]
    return {epoch: _epoch_end(send, partition, epoch) for epoch in asked}


def _epoch_end(send: Send, partition: Partition, epoch: int) -> EpochEnd:
    """The leader's answer: the epoch may differ from the requested epoch, and the end offset may be -1."""
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    request = OffsetForLeaderEpochRequest(
        replica_id=_CONSUMER,
        topics=[
            topic(
                topic=partition.topic,
                partitions=[
                    topic.OffsetForLeaderPartition(
                        partition=partition.partition,
                        current_leader_epoch=partition.leader_epoch,
                        leader_epoch=epoch,
                    )
                ],
            )
        ],
        min_version=_MIN_VERSION,
    )
    answers = [
        answer
        for topic_answer in present(send(partition.leader, request).topics)
        for answer in present(topic_answer.partitions)
        if (topic_answer.topic, answer.partition) == partition.key
    ]
    if len(answers) != 1:
        raise RequestFailed(ANSWERED_TWICE if answers else LEFT_OUT)
    (answer,) = answers
    if answer.error_code != ErrorCode.NONE:
        raise RequestFailed(answered(answer.error_code))
    return EpochEnd(answer.leader_epoch, answer.end_offset)
