"""DescribeQuorum (api key 55): the quorum of controllers, as its leader describes it (KIP-595, KIP-836).

A broker in KRaft mode forwards the request to the active controller. ACLs: Describe on the cluster.
Source: `KafkaRaftClient.handleDescribeQuorumRequest`, `LeaderState`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka.protocol.admin import DescribeQuorumRequest

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import ErrorCode, RequestFailed, answered, present
from txnscan.kafka.failure import Failure, FailureCode

METADATA_LOG = "__cluster_metadata"
# The first version with times (Kafka 3.3).
_MIN_VERSION = 1


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter, and when it last fetched from the leader: epoch milliseconds by the leader's clock, -1 for never."""

    broker_id: int
    fetched_ms: int


@dataclass(frozen=True, slots=True)
class Quorum:
    """The quorum. high_watermark: every record of the metadata log below it is committed. time_ms: of the answer, by
    the leader's clock. voters: with the leader.
    """

    leader: int
    leader_epoch: int
    high_watermark: int
    time_ms: int
    voters: tuple[Voter, ...]


def describe_quorum(send: Send, broker_id: int) -> Quorum:
    """The quorum, by way of this broker. Raises RequestFailed, also if the leader does not know the high watermark."""
    topic = DescribeQuorumRequest.TopicData
    request = DescribeQuorumRequest(
        topics=[topic(topic_name=METADATA_LOG, partitions=[topic.PartitionData(partition_index=0)])],
        min_version=_MIN_VERSION,
    )
    try:
        response = send(broker_id, request)
    except RequestFailed as failed:
        if failed.failure.code != FailureCode.NO_ANSWER:
            raise
        # The broker waits for the controller.
        unheard = f"the active controller does not answer by way of broker {broker_id}"
        why = Failure(f"{unheard}; check that a majority of the controllers runs", FailureCode.NO_ANSWER)
        raise RequestFailed(why) from None
    if response.error_code != ErrorCode.NONE:
        raise RequestFailed(answered(response.error_code))
    found = [one for shown in present(response.topics) for one in present(shown.partitions)]
    if len(found) != 1:
        raise RequestFailed("the answer does not describe the quorum of controllers", FailureCode.UNUSABLE_ANSWER)
    (partition,) = found
    if partition.error_code != ErrorCode.NONE:
        raise RequestFailed(answered(partition.error_code))
    voters = tuple(Voter(one.replica_id, one.last_fetch_timestamp) for one in present(partition.current_voters))
    # The leader's own entry has the present time.
    times_ms = [voter.fetched_ms for voter in voters if voter.broker_id == partition.leader_id]
    if len(times_ms) != 1 or partition.high_watermark < 0:
        raise RequestFailed("the leader of the controllers knows no high watermark yet", FailureCode.LEFT_OUT)
    return Quorum(partition.leader_id, partition.leader_epoch, partition.high_watermark, times_ms[0], voters)
