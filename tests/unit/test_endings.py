"""An incident is over only if its log is replicated up to the end that the last read saw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tests.builders import judged, scan
from tests.cases import Cases
from tests.fakes.cluster import FakeCluster, FakeFactory, offset_kind
from txnscan.coordinators.agreed_metadata import TOPIC_DELETED, AgreedMetadata
from txnscan.coordinators.cluster import Cluster
from txnscan.kafka.client.deadline import Deadline, TimeLeft
from txnscan.kafka.client.factory import ClientFactory
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.protocol.metadata import read_metadata
from txnscan.sweeps.endings import replicated, with_ends
from txnscan.sweeps.history import Incident
from txnscan.sweeps.result import ENDED
from txnscan.sweeps.warnings import unreplicated_ends

# Two partitions, led by brokers 1 and 2. Their high watermarks are 200.
P, Q = ("p", 0), ("p", 1)
Change = Callable[[FakeCluster], object]


@dataclass
class Brokers:
    """The state of the two partitions. ends: the ends of their logs. before: changes before the request of a number.
    deadline: of the sweep.
    """

    ends: tuple[int, int]
    before: Mapping[int, Change] = field(default_factory=dict)
    deadline: Deadline = field(default_factory=Deadline)

    def replicated(self) -> tuple[set[tuple[str, int]], list[str], int]:
        """What `replicated` finds, the offsets that it asked for, and how often it waited."""
        fake, waits = FakeCluster(), list[float]()
        fake.lead("p", [1, 2])
        for key, end in zip((P, Q), self.ends, strict=True):
            fake.partitions[key].log_end = end

        def changed(broker_id: int, request: Any, asked: list[Any]) -> bool:
            if (change := self.before.get(len(asked) - 1)) is not None:
                change(fake)
            return False

        fake.fail_when = changed
        factory = cast(ClientFactory, FakeFactory(fake, ()))
        with Cluster(factory, threads=0, sleep=waits.append, deadline=self.deadline) as cluster:
            found = replicated(cluster, fake.planned(P, Q))
        return set(found), [offset_kind(request) for request in fake.requests], len(waits)


def mark(key: tuple[str, int], offset: int) -> Change:
    return lambda fake: setattr(fake.partitions[key], "high_watermark", offset)


def refuses(which: str, code: ErrorCode) -> Change:
    return lambda fake: fake.partitions[P].errors.update({which: code})


def elected(key: tuple[str, int]) -> Change:
    return lambda fake: setattr(fake.partitions[key], "epoch", 6)


REFUSED, BEHIND = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.OFFSET_NOT_AVAILABLE
ENDS, MARKS = ["log end"] * 2, ["high watermark"] * 2
ONE = ["high watermark"]


def test_a_log_is_replicated_if_a_later_high_watermark_reached_its_end() -> None:
    with Cases() as cases:
        for why, brokers, expected in (
            ("both are", Brokers((200, 200)), ({P, Q}, ENDS + MARKS, 0)),
            ("one is behind, and stays behind", Brokers((201, 200)), ({Q}, ENDS + MARKS + ONE * 2, 2)),
            ("it is behind, and gets there", Brokers((201, 200), {4: mark(P, 201)}), ({P, Q}, ENDS + MARKS + ONE, 1)),
            ("the end may rise meanwhile", Brokers((201, 200), {2: mark(P, 250)}), ({P, Q}, ENDS + MARKS, 0)),
            ("an end that is not shown", Brokers((200, 200), {0: refuses("log end", REFUSED)}),
             ({Q}, [*ENDS, *ONE], 0)),
            ("a mark that is not shown", Brokers((200, 200), {0: refuses("high watermark", BEHIND)}),
             ({Q}, ENDS + MARKS + ONE * 2, 2)),
            ("an election before", Brokers((200, 200), {0: elected(P)}), ({Q}, [*ENDS, *ONE], 0)),
            ("an election between", Brokers((200, 200), {2: elected(P)}), ({Q}, ENDS + MARKS + ONE * 2, 2)),
            ("a leader that does not answer", Brokers((200, 200), {0: lambda fake: fake.unreachable.add(2)}),
             ({P}, [*ENDS, *ONE], 0)),
        ):  # fmt: skip
            with cases.case(why):
                assert brokers.replicated() == expected


@pytest.mark.parametrize("request_number", [1, 3])
def test_after_the_deadline_a_log_that_is_behind_is_not_asked_again(request_number: int) -> None:
    """It is asked once, so that the sweep notices that its time was up."""
    clock_s = [0.0]
    deadline = Deadline(TimeLeft(10**15, 1_000, 1_000), monotonic_s=lambda: clock_s[-1])
    brokers = Brokers((201, 200), {request_number: lambda fake: clock_s.append(2.0)}, deadline)
    assert brokers.replicated() == ({Q}, ENDS + MARKS, 0)


def test_logs_with_ends_are_asked_for_in_order() -> None:
    fake = FakeCluster()
    fake.lead("p", [1] * 12)
    agreed = AgreedMetadata((read_metadata(fake.send, 1, ["p"]),), ())
    here = judged().observation.transaction_key
    incidents = {here._replace(partition=number): Incident(0) for number in range(12)}
    found = with_ends(scan(proven={which.key: "t0" for which in incidents}), incidents, agreed)
    assert [one.partition for one in found] == list(range(12))


def test_only_the_logs_with_ends_are_asked_for() -> None:
    fake = FakeCluster()
    fake.lead("p", [1, 2])
    agreed = AgreedMetadata((read_metadata(fake.send, 1, ["p"]),), ())
    here = judged().observation.transaction_key
    there, gone = here._replace(partition=1), here._replace(topic="gone", topic_id="g0")
    incidents = {which: Incident(0) for which in (here, there, gone)}
    swept = scan(judged(), topics_gone={("gone", "g0"): TOPIC_DELETED}, replicated=frozenset())
    assert [one.key for one in with_ends(swept, incidents, agreed)] == [Q]
    assert swept.over(incidents) == {gone: TOPIC_DELETED}
    assert scan(judged(), replicated=frozenset({Q})).over(incidents) == {there: ENDED}


def test_a_warning_names_the_first_partition_and_counts_the_others() -> None:
    assert unreplicated_ends([]) == ()
    (said,) = unreplicated_ends([("t", 10), ("t", 2), ("s", 3)])
    assert said.startswith("s-3 and 2 other partitions:")
    assert unreplicated_ends([P])[0].startswith("p-0:")
