"""Wait until topics are complete up to a time. Reads the cluster until they are, or the wait is over."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from txnscan.kafka.failure import Unobserved
from txnscan.sweeps.history import TOPIC_READS_MAX
from txnscan.sweeps.restored import Fall
from txnscan.waiting.complete_up_to import GateState, TopicRead, concluded

_POLL_S = 1.0
# A topic that is blocked needs action. One that is not observed may have a transient failure.
_WORST_FIRST = (GateState.BLOCKED, GateState.NOT_YET, GateState.NOT_OBSERVED)

# Reads these topics once: see `complete.read_topics`.
Read = Callable[[Collection[str]], tuple[tuple[TopicRead, ...], tuple[Unobserved, ...]]]


@dataclass(frozen=True, slots=True)
class Gate:
    """Whether topics are complete up to a time. topics: the last read of each, concluded. errors: failures of these
    reads. fall: how the history of the cluster went back, if it did. Then no stored read counts.
    """

    cluster_id: str | None
    until_ms: int
    topics: tuple[TopicRead, ...]
    errors: tuple[Unobserved, ...] = ()
    fall: Fall | None = None

    @property
    def state(self) -> GateState:
        """The worst state of all topics."""
        states = {read.state(self.until_ms) for read in self.topics}
        return next((state for state in _WORST_FIRST if state in states), GateState.COMPLETE)


def wait_at_gate(
    read: Read,
    cluster_id: str,
    topics: Sequence[str],
    *,
    until_ms: int,
    wait_ms: int,
    earlier: Iterable[TopicRead],
    now_ms: Callable[[], int],
    sleep: Callable[[float], None],
    fall_in: Callable[[Sequence[TopicRead]], Fall | None] = lambda reads: None,
) -> Gate:
    """Reads the topics, and reads those that are not complete again, until all are or the time to wait is over.

    A transaction that was open at a read is harmless once it ends: a later read then shows that everything before the
    first one is readable. So a busy topic passes, although it has open transactions at each read. earlier: stored
    reads. fall_in: how these reads, of now, show that the history of the cluster went back since the stored ones.
    """
    ends_ms = now_ms() + wait_ms
    known, own, fell = list(earlier), 0, None
    found: dict[str, TopicRead] = {}
    errors: dict[str, list[Unobserved]] = {}
    to_read = list(dict.fromkeys(topics))
    while True:
        reads, failures = read(to_read)
        if fell is None and (fell := fall_in(reads)) is not None:
            # Only reads from now on are of this history.
            known = []
        for one in reads:
            found[one.topic] = concluded(one, known)
            errors[one.topic] = [failure for failure in failures if failure.topic == one.topic]
        if own < TOPIC_READS_MAX:
            # The first reads are the first to be readable.
            known += reads
            own += 1
        to_read = [topic for topic, one in found.items() if one.state(until_ms) is not GateState.COMPLETE]
        left_ms = ends_ms - now_ms()
        if not to_read or left_ms <= 0:
            break
        sleep(min(_POLL_S, left_ms / 1_000))
    failed = tuple(one for some in errors.values() for one in some)
    return Gate(cluster_id, until_ms, tuple(found.values()), failed, fell)


def stored_gate(reads: Sequence[tuple[str, TopicRead]], topics: Sequence[str], until_ms: int) -> Gate:
    """The same from stored reads of one cluster, newest first, each with its cluster's id. A topic without a stored
    read is not observed.
    """
    found = []
    for topic in dict.fromkeys(topics):
        of_topic = [read for _, read in reads if read.topic == topic]
        unread = TopicRead(topic, "", 0, code="NOT_ASKED")
        found.append(concluded(of_topic[0], of_topic[1:]) if of_topic else unread)
    return Gate(reads[0][0] if reads else None, until_ms, tuple(found))
