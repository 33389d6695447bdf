"""Whether an image of the metadata is as new as the image of every broker, including silent brokers.

Theory
======
A broker that does not answer may have a newer image than all others, and lead partitions by it (`metadata_image.py`).
But no image has a record that is not committed, and the leader of the controllers knows how far the metadata log is
committed: its high watermark H (`KafkaRaftClient.onUpdateLeaderHighWatermark`). If it was still the leader when it
answered, an image with all records below H is as new as the image that any broker had until then.

**A leader that was replaced may not know it**, and its H stands still. So it is asked again, until it shows that it was
the leader at its first answer: since then, by its own clock and at the same epoch, a majority of voters has fetched
from it. A voter that has voted for another leader has a higher epoch, for ever, and fetches at no lower one. A
leader that replaced it before its first answer has the votes of a majority, and every two majorities share a voter.
(`LeaderState.updateCheckQuorumForFollowingVoter`; a change of voters adds or removes one, so majorities still overlap,
KIP-853.) The leader counts itself. Its clock may be wrong, but must not go back: a fetch after the second answer's own
time shows that it did.

A newly elected leader knows no high watermark until a record of its own epoch is committed, so H is above all records
of earlier leaders.

The order: the reads that the metadata is to confirm · the first answer · an image with all below H · a majority.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from txnscan.coordinators.agreed_metadata import AgreedMetadata
from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.describe_quorum import Quorum, describe_quorum

# Voters fetch twice a second, and images get a record as often (`metadata.max.idle.interval.ms`).
_WAIT_S, _TRIES = 0.25, 8
# A voter that has not fetched for longer begins an election (`controller.quorum.fetch.timeout.ms`, 2 s), or is away.
VOTER_RECENT_MS = 3_000


def led_still(first: Quorum, second: Quorum) -> bool:
    """Whether the second answer shows that the leader was the leader of the controllers at the first."""
    if (first.leader, first.leader_epoch) != (second.leader, second.leader_epoch):
        return False
    if {voter.broker_id for voter in first.voters} != {voter.broker_id for voter in second.voters}:
        return False
    since = [one for one in second.voters if first.time_ms < one.fetched_ms <= second.time_ms]
    return len({one.broker_id for one in since} | {second.leader}) * 2 > len(second.voters)


def voters_left(quorum: Quorum, stopping: Collection[int]) -> int:
    """The number of voters that fetch from the leader, or lead, when these nodes have stopped."""
    since_ms = quorum.time_ms - VOTER_RECENT_MS
    alive = {one.broker_id for one in quorum.voters if one.fetched_ms >= since_ms} | {quorum.leader}
    return len(alive.difference(stopping))


def keeps_majority(quorum: Quorum, stopping: Collection[int]) -> bool:
    """Whether a majority of controllers is left when these nodes have stopped. True if none of them is a voter."""
    voters = {one.broker_id for one in quorum.voters}
    return voters.isdisjoint(stopping) or voters_left(quorum, stopping) * 2 > len(voters)


def confirmed_by_quorum(
    send: Send, agreed: AgreedMetadata, ask: Callable[[], AgreedMetadata], sleep: Callable[[float], None]
) -> AgreedMetadata:
    """The metadata, with its failures in `unheard`, if the quorum shows that no broker that did not answer has a newer
    image. Otherwise the metadata with its failures.

    agreed: asked for after what it is to confirm. Outside KRaft mode there is no quorum. ask: asks for it again.
    """
    if not agreed.views or not agreed.offsets:
        return agreed
    through = _shown_by(agreed)
    try:
        first = describe_quorum(send, through)
        if any(offset >= first.high_watermark for offset in agreed.offsets.values()):
            # A broker had more records before the leader answered.
            return agreed
        for _ in range(_TRIES):
            if _reaches(agreed, first.high_watermark):
                break
            sleep(_WAIT_S)
            agreed = ask()
        if not _reaches(agreed, first.high_watermark):
            return agreed
        for _ in range(_TRIES):
            if led_still(first, describe_quorum(send, through)):
                return replace(agreed, errors=(), unheard=agreed.errors)
            sleep(_WAIT_S)
    except RequestFailed:
        pass
    return agreed


def _reaches(agreed: AgreedMetadata, high_watermark: int) -> bool:
    """Whether the image that the metadata shows has all records below a high watermark."""
    offset = agreed.offsets.get(_shown_by(agreed)) if agreed.views else None
    return offset is not None and offset >= high_watermark - 1


def _shown_by(agreed: AgreedMetadata) -> int:
    """The broker that showed the view. In KRaft mode there is only one."""
    return agreed.views[0].answered_by
