"""The only request that changes data: its exact content, and the matching of its answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kafka.protocol.producer.transaction import WriteTxnMarkersRequest, WriteTxnMarkersResponse

from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.write_txn_markers import MarkerToWrite

MARKER = MarkerToWrite("p", 4, 7, 3, 12, commit=False)


def decoded(request: Any, version: int) -> Any:
    """The request as a broker reads it."""
    return WriteTxnMarkersRequest.decode(request.encode(version=version, header=False), version=version, header=False)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("changes", "coordinator_epoch", "commit"),
    [
        ({}, 12, False),
        ({"commit": True}, 12, True),
        ({"coordinator_epoch": 0}, 0, False),
        ({"coordinator_epoch": -1}, 0, False),
        ({"coordinator_epoch": 2**31 - 1}, 2**31 - 1, False),
        ({"producer_id": 2**63 - 1, "producer_epoch": 32_767, "partition": 2**31 - 1}, 12, False),
        ({"producer_id": 0, "producer_epoch": 0, "partition": 0}, 12, False),
    ],
)
def test_a_request_is_one_marker_for_one_partition_with_the_given_epochs(
    version: int, changes: dict[str, Any], coordinator_epoch: int, commit: bool
) -> None:
    marker = replace(MARKER, **changes)
    (sent,) = decoded(marker.request(), version).markers
    (topic,) = sent.topics
    assert (sent.producer_id, sent.producer_epoch) == (marker.producer_id, marker.producer_epoch)
    assert (sent.coordinator_epoch, sent.transaction_result) == (coordinator_epoch, commit)
    assert (topic.name, topic.partition_indexes) == ("p", [marker.partition])
    assert version < 2 or sent.transaction_version == 0


@pytest.mark.parametrize("coordinator_epoch", [-1, 0, 12])
@pytest.mark.parametrize("commit", [True, False])
def test_the_displayed_fields_equal_the_sent_request(coordinator_epoch: int, commit: bool) -> None:
    marker = replace(MARKER, coordinator_epoch=coordinator_epoch, commit=commit)
    (sent,) = decoded(marker.request(), 2).markers
    assert marker.fields() == {
        "api": "WriteTxnMarkers",
        "producer_id": sent.producer_id,
        "producer_epoch": sent.producer_epoch,
        "coordinator_epoch": sent.coordinator_epoch,
        "transaction_version": sent.transaction_version,
        "marker": "COMMIT" if sent.transaction_result else "ABORT",
        "topic": sent.topics[0].name,
        "partition": sent.topics[0].partition_indexes[0],
    }


def answer(*rows: tuple[int, str, int, int]) -> Any:
    """An answer with a marker for each row: producer id, topic, partition, code."""
    marker = WriteTxnMarkersResponse.WritableTxnMarkerResult
    topic = marker.WritableTxnMarkerTopicResult
    partition = topic.WritableTxnMarkerPartitionResult
    return WriteTxnMarkersResponse(
        markers=[
            marker(
                producer_id=producer_id,
                topics=[topic(name=name, partitions=[partition(partition_index=index, error_code=code)])],
            )
            for producer_id, name, index, code in rows
        ]
    )


@pytest.mark.parametrize("code", [0, 6, 31, 47, 52, -1, 999])
def test_the_answer_is_the_code_of_this_marker_regardless_of_others(code: int) -> None:
    mine, others = (7, "p", 4, code), ((8, "p", 4, 31), (7, "q", 4, 31), (7, "p", 5, 31))
    assert MARKER.answered(answer(mine)) == code
    assert MARKER.answered(answer(*others, mine)) == MARKER.answered(answer(mine, *others)) == code


@pytest.mark.parametrize(
    "response",
    [
        answer(),
        answer((8, "p", 4, 0)),
        answer((7, "q", 4, 0)),
        answer((7, "p", 5, 0)),
        answer((7, "p", 4, 0), (7, "p", 4, 0)),
        WriteTxnMarkersResponse(markers=None),
        WriteTxnMarkersResponse(
            markers=[WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id=7, topics=None)],
        ),
    ],
    ids=["none", "another producer", "another topic", "another partition", "twice", "null", "null topics"],
)
def test_an_answer_about_another_marker_is_no_answer(response: Any) -> None:
    with pytest.raises(RequestFailed) as failed:
        MARKER.answered(response)
    assert failed.value.sent, "the marker may stand all the same"
