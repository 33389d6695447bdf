"""The partitions of a share group, as its coordinator answers."""

from __future__ import annotations

import uuid
from typing import Any

from tests.cases import Cases
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.failure import FailureCode
from txnscan.kafka.protocol.share_group_offsets import DescribeShareGroupOffsetsResponse, share_group_partitions

GROUP = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
TOPIC = GROUP.DescribeShareGroupOffsetsResponseTopic
PARTITION = TOPIC.DescribeShareGroupOffsetsResponsePartition


def answer(*groups: Any) -> Any:
    return DescribeShareGroupOffsetsResponse(groups=list(groups))


def topic(name: str, *partitions: tuple[int, int]) -> Any:
    found = [PARTITION(partition_index=index, start_offset=-1, error_code=code) for index, code in partitions]
    return TOPIC(topic_name=name, topic_id=uuid.UUID(int=1), partitions=found)


def test_the_partitions_and_failures_of_a_share_group() -> None:
    denied = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    table: tuple[tuple[str, Any, tuple[tuple[str, int], ...], str | None], ...] = (
        ("two topics", answer(GROUP(group_id="g", topics=[topic("u", (0, 0)), topic("t", (1, 0), (0, 0))])),
         (("t", 0), ("t", 1), ("u", 0)), None),
        ("one that failed", answer(GROUP(group_id="g", topics=[topic("t", (0, 3), (1, 0))])), (("t", 1),), None),
        ("no partition", answer(GROUP(group_id="g", topics=[])), (), None),
        ("refused", answer(GROUP(group_id="g", topics=[], error_code=denied)), (), "GROUP_AUTHORIZATION_FAILED"),
        ("another group", answer(GROUP(group_id="h", topics=[])), (), FailureCode.LEFT_OUT),
        ("null topics", answer(GROUP(group_id="g", topics=None)), (), FailureCode.UNUSABLE_ANSWER),
    )  # fmt: skip
    with Cases() as cases:
        for why, answered, keys, code in table:
            with cases.case(why):
                found = share_group_partitions(lambda broker_id, request, one=answered: one, 1, "g")
                assert (found.keys, found.failure.code if found.failure is not None else None) == (keys, code)
                is_refused = code == "GROUP_AUTHORIZATION_FAILED"
                assert (found.failure is not None and found.failure.needs is not None) is is_refused


def test_a_broker_that_does_not_answer_is_a_failure() -> None:
    def send(broker_id: int, request: Any) -> Any:
        raise RequestFailed("broker 1 cannot be reached", FailureCode.UNREACHABLE)

    failure = share_group_partitions(send, 1, "g").failure
    assert failure is not None and failure.code == FailureCode.UNREACHABLE
