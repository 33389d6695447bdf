"""OffsetFetch as bytes: requests and answers equal the bytes of kafka-python's objects."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import OffsetFetchRequest, OffsetFetchResponse

from tests.builders import said
from tests.cases import Cases
from txnscan.kafka.errors import ErrorCode, RequestFailed, answered
from txnscan.kafka.protocol.frames import Body
from txnscan.kafka.protocol.offset_fetch import GroupOffsets, decode, encode, offset_fetch
from txnscan.kafka.topology import Key

AskedGroup = OffsetFetchRequest.OffsetFetchRequestGroup
AskedTopic = AskedGroup.OffsetFetchRequestTopics
Group = OffsetFetchResponse.OffsetFetchResponseGroup
Topic = Group.OffsetFetchResponseTopics
Partition = Topic.OffsetFetchResponsePartitions
UNSTABLE, REFUSED = int(ErrorCode.UNSTABLE_OFFSET_COMMIT), int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
WANTED: Mapping[str, Collection[Key] | None] = {
    "one": (("t", 3), ("u", 0), ("t", 1)),
    "all": None,
    "none": (),
    "größer": [("t", n) for n in range(200)],
}


def partition(index: int, offset: int = -1, metadata: str | None = "", error: int = 0) -> Any:
    return Partition(
        partition_index=index,
        committed_offset=offset,
        committed_leader_epoch=-1 if offset < 0 else 7,
        metadata=metadata,
        error_code=error,
    )


def answer(*groups: Any, version: int = 9) -> Body:
    return Body(version, bytes(OffsetFetchResponse(throttle_time_ms=3, groups=groups).encode(version=version)))


def group(name: str, *partitions: Any, error: int = 0, topic: str = "t") -> Any:
    return Group(group_id=name, topics=[Topic(name=topic, partitions=list(partitions))], error_code=error)


@pytest.mark.parametrize(("version", "require_stable"), product((8, 9), (False, True)))
def test_a_request_is_encoded_as_kafka_python_encodes_it(version: int, require_stable: bool) -> None:
    by_topic = {"one": {"t": [1, 3], "u": [0]}, "none": {}, "größer": {"t": list(range(200))}}
    plain = OffsetFetchRequest(
        groups=[
            AskedGroup(
                group_id=name,
                topics=None
                if keys is None
                else [AskedTopic(name=topic, partition_indexes=of) for topic, of in by_topic[name].items()],
            )
            for name, keys in WANTED.items()
        ],
        require_stable=require_stable,
    )
    assert encode(version, WANTED, require_stable) == plain.encode(version=version)


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        ((partition(0, 5), partition(1)), GroupOffsets(committed={("t", 0): 5})),
        ((partition(0, metadata=None), partition(1, 0, "mine")), GroupOffsets(committed={("t", 1): 0})),
        ((partition(2, error=UNSTABLE), partition(3, 9)), GroupOffsets(None, {("t", 3): 9}, {("t", 2)})),
        ((partition(0, 5, error=3), partition(1, 6)), GroupOffsets(committed={("t", 1): 6})),
        ((partition(0, metadata="left behind"),), GroupOffsets()),
        ((), GroupOffsets()),
    ],
    ids=["a commit", "at the beginning", "in an open transaction", "an error", "metadata and no offset", "nothing"],
)
@pytest.mark.parametrize("version", [8, 9])
def test_each_partition_has_its_commit_or_is_unstable(
    partitions: tuple[Any, ...], expected: GroupOffsets, version: int
) -> None:
    # The next group is read from its correct position.
    found = decode(answer(group("g", *partitions), group("after", partition(4, 44), topic="u"), version=version))
    assert found == {"g": expected, "after": GroupOffsets(committed={("u", 4): 44})}


SHAPES = {
    "nothing": (partition(0), partition(1)),
    "nothing of one": (partition(0),),
    "a commit": (partition(0, 5), partition(1)),
    "unstable": (partition(0), partition(1, error=UNSTABLE)),
    "no partitions": (),
}


@given(st.lists(st.sampled_from(sorted(SHAPES)), max_size=8), st.sampled_from([8, 9]))
def test_each_of_many_groups_is_read_as_if_alone(shapes: list[str], version: int) -> None:
    groups = [group(f"g{number}", *SHAPES[shape]) for number, shape in enumerate(shapes)]
    alone = [decode(answer(one, version=version)) for one in groups]
    assert decode(answer(*groups, version=version)) == {name: one for found in alone for name, one in found.items()}


def test_a_refused_group_has_only_its_error() -> None:
    assert decode(answer(group("g", error=REFUSED))) == {"g": GroupOffsets(answered(REFUSED))}


def test_a_group_missing_in_the_answer_is_an_error_of_that_group() -> None:
    found = offset_fetch(lambda *_: answer(group("one", partition(0, 5))), 1, WANTED, require_stable=False)
    assert found["one"].committed == {("t", 0): 5}
    assert {said(found[name].failure) for name in ("all", "none", "größer")} == {"the broker left it out"}


@given(st.integers(0, 400), st.one_of(st.none(), st.binary(min_size=1, max_size=4)))
def test_a_damaged_answer_is_an_error_or_is_decoded(at: int, put: bytes | None) -> None:
    whole = answer(group("g", partition(0, 5), partition(1), partition(2, error=UNSTABLE)), group("h", error=REFUSED))
    damaged = whole.data[:at] if put is None else whole.data[:at] + put + whole.data[at + len(put) :]
    try:
        decode(Body(9, damaged))
    except RequestFailed:
        assert damaged != whole.data


def test_a_truncated_answer_is_an_error() -> None:
    whole = answer(group("g", partition(0, 5), partition(1), partition(2)))
    assert len(whole.data) > 60
    with Cases() as cases:
        for size in range(1, 60):
            with cases.case(f"{size} bytes"), pytest.raises(RequestFailed):
                decode(Body(9, whole.data[:size]))


# With a limit of 10 elements of all lists.
SIZES: dict[str, tuple[list[Any], bool]] = {
    "as many groups as may be": ([group(f"g{n}", error=REFUSED) for n in range(5)], True),
    "more groups": ([group(f"g{n}", error=REFUSED) for n in range(11)], False),
    "as many partitions as may be": ([group("g", *(partition(n, 5) for n in range(8)))], True),
    "more partitions": ([group("g", *(partition(n, 5) for n in range(9)))], False),
    "more partitions without an offset": ([group("g", *(partition(n) for n in range(9)))], False),
    "more partitions in all": ([group(f"g{n}", partition(0, n), partition(1, n)) for n in range(3)], False),
}


def test_the_elements_of_an_answer_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 MB of groups took 15 s and 900 MB."""
    monkeypatch.setattr("txnscan.kafka.protocol.frames.ELEMENTS_MAX", 10)
    with Cases() as cases:
        for name, (groups, fits) in SIZES.items():
            with cases.case(name):
                if fits:
                    assert len(decode(answer(*groups))) == len(groups)
                else:
                    with pytest.raises(RequestFailed, match="elements"):
                        decode(answer(*groups))
