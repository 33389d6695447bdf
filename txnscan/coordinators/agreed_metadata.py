"""Agreed metadata: the views of the cluster that together prove who leads a partition.

A broker that is cut off from the controller keeps its old view of the cluster. It still answers for partitions and
coordinators that others have taken over. In KRaft mode one view proves who leads: that of a broker with the newest
image (`metadata_image.py`). Outside KRaft mode there is one round of Metadata to every broker: all must report the same
leader at the same leader epoch. In both modes every broker that is named in any answer must have answered, or in KRaft
mode the controllers must show that its image is not newer (`quorum.py`). If a broker does not answer and no other
broker names it any more, the controller has fenced it, and it is ignored.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.failure import Failure, FailureCode, Unobserved, no_leader
from txnscan.kafka.protocol.metadata import DifferentAnswers, MetadataRound
from txnscan.kafka.security.acls import needing
from txnscan.kafka.security.needs import DESCRIBE_TOPICS
from txnscan.kafka.topology import Broker, ClusterView, Partition, Topic

# How a topic can end.
TOPIC_DELETED, TOPIC_RECREATED = "topic_deleted", "topic_recreated"
# The ends of transactions whose topic is gone.
WITH_TOPIC = (TOPIC_DELETED, TOPIC_RECREATED)


# The rounds in which answers may name brokers that were not asked yet. Usually the second round has all of them.
ROUNDS_MAX = 5
NOT_ASKED = Failure("brokers named other brokers in each answer, and not all of them were asked", FailureCode.NOT_ASKED)

# Calls the function on each item, possibly in parallel, and returns the results in order.
InParallel = Callable[[Callable[[int], ClusterView | Unobserved], Iterable[int]], list[ClusterView | Unobserved]]


class LeaderUnknown(Exception):
    """Brokers do not all report the same leader at the same leader epoch. The failure gives the reason."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure

    def __str__(self) -> str:
        return self.failure.error


class NoSuchTopic(LeaderUnknown):
    """All brokers agree that there is no such topic."""


@dataclass(frozen=True)
class AgreedMetadata:
    """The views: of the newest image, or of the brokers that answered. errors: of the other brokers that these views
    name; if no broker answered, of all brokers. offsets: which offset the image of each broker had reached. unheard:
    instead of errors, if no image of those brokers can be newer (`quorum.py`). shown_by_offset: an image with this
    offset has all that the only view shows; None if no such offset is known.
    """

    views: tuple[ClusterView, ...]
    errors: tuple[Unobserved, ...]
    offsets: Mapping[int, int] = field(default_factory=dict)
    unheard: tuple[Unobserved, ...] = ()
    shown_by_offset: int | None = None

    @property
    def unproven(self) -> AgreedMetadata:
        """The same views, to find the brokers to ask. Brokers that did not answer may know other leaders."""
        return replace(self, errors=())

    @cached_property
    def brokers(self) -> tuple[Broker, ...]:
        """All brokers that appear in any answer."""
        named = {broker.broker_id: broker for brokers in _broker_lists(self.views) for broker in brokers}
        return tuple(named[broker_id] for broker_id in sorted(named))

    @cached_property
    def _beliefs(self) -> tuple[ClusterView, ...]:
        """One view for each different answer. Most brokers give the same answer, and share its decoded topics."""
        return tuple({id(view.topics): view for view in self.views}.values())

    def reached_by(self, broker_id: int) -> ClusterView | None:
        """The view of the newest image, if this broker's image had all of it when the broker reported its offset."""
        at = self.offsets.get(broker_id)
        if len(self.views) != 1 or self.shown_by_offset is None or at is None or at < self.shown_by_offset:
            return None
        (view,) = self.views
        return view

    def behind(self, offset: int) -> dict[int, int]:
        """The brokers whose images do not reach this offset, with the offsets of their images. This includes brokers
        that the controller has fenced: they may still answer, and contradict the others.
        """
        return {one: at for one, at in self.offsets.items() if at < offset and one >= 0}

    def partition(self, topic: str, index: int) -> Partition:
        """The partition with the leader and leader epoch that all views report. Raises LeaderUnknown."""
        if self.errors:
            raise LeaderUnknown(self.errors[0].failure.within("not every broker said who leads it"))
        if not self.views:
            raise _leader_unknown("no broker said who leads it", FailureCode.LEFT_OUT)
        if len({view.cluster_id for view in self.views}) > 1:
            raise _leader_unknown("the brokers say that they are of different clusters", FailureCode.BROKERS_DISAGREE)
        # The entries of each belief for this partition: exactly one, unless a broker contradicts itself.
        entries_of_each = {
            frozenset(entry for shown in _shown(belief, topic) for entry in shown.at(index)) for belief in self._beliefs
        }
        if entries_of_each == {frozenset()}:
            raise self._missing(topic)
        entries, *others = entries_of_each
        if others or len(entries) != 1:
            raise _leader_unknown(f"brokers disagree on who leads {topic}-{index}", FailureCode.BROKERS_DISAGREE)
        (partition,) = entries
        if partition.leader < 0:
            raise LeaderUnknown(no_leader(partition.leader, f"{topic}-{index}"))
        if partition.leader_epoch < 0:
            error = f"the brokers do not report the leader epoch of {topic}-{index}"
            raise _leader_unknown(error, FailureCode.LEFT_OUT)
        return partition

    def _missing(self, topic: str) -> LeaderUnknown:
        errors = {dict(view.topic_errors).get(topic) for view in self.views}
        if errors == {None}:
            return _leader_unknown(f"{topic} is not in the brokers' metadata", FailureCode.LEFT_OUT)
        if len(errors) > 1:
            said = f"brokers disagree on whether {topic} exists: {', '.join(sorted(map(str, errors)))}"
            return _leader_unknown(said, FailureCode.BROKERS_DISAGREE)
        code = str(errors.pop())
        failure = needing(Failure(f"{topic}: {code}", code), DESCRIBE_TOPICS.on(topic))
        return (NoSuchTopic if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name else LeaderUnknown)(failure)

    def gone(self, topic: str, topic_id: str) -> str | None:
        """How the topic of this name and id ended: TOPIC_DELETED, or TOPIC_RECREATED if a broker shows the name with
        another id. None if one of the brokers did not answer, may hide the topic, or shows it. A broker that never knew
        of the topic may answer like that, too, so do not ask about a topic that no broker has shown yet. An empty topic
        id is unknown: it may be that of any topic of this name.
        """
        if self.errors or not self.views or len({view.cluster_id for view in self.views}) > 1:
            return None
        found = [{one.topic_id for one in _shown(view, topic)} for view in self.views]
        for ids, view in zip(found, self.views, strict=True):
            if not ids and dict(view.topic_errors).get(topic) != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name:
                return None
            if topic_id in ids or "" in ids or (ids and not topic_id):
                return None
        return TOPIC_RECREATED if any(found) else TOPIC_DELETED

    def all_show(self, topic: str) -> bool:
        """Whether every broker that answered shows the topic."""
        return all(_shown(view, topic) for view in self.views)

    @cached_property
    def _by_broker(self) -> dict[int, ClusterView]:
        return {view.answered_by: view for view in self.views}

    def view_of(self, broker_id: int) -> ClusterView | None:
        """This broker's view, if it answered."""
        return self._by_broker.get(broker_id)

    def latest_leader(self, topic: str, index: int) -> int | None:
        """The leader at the highest leader epoch that any broker reports, if there is one leader at that epoch. This is
        no proof: brokers that did not answer may know a later leader epoch.
        """
        shown = {entry for belief in self._beliefs for one in _shown(belief, topic) for entry in one.at(index)}
        if not shown:
            return None
        epoch = max(entry.leader_epoch for entry in shown)
        leaders = {entry.leader for entry in shown if entry.leader_epoch == epoch and entry.leader >= 0}
        return leaders.pop() if len(leaders) == 1 else None

    def leader_epochs(self, topic: str) -> dict[int, int]:
        """The leader epochs by partition number, without the partitions on which brokers do not agree."""
        epochs = {}
        for index in self.indexes(topic):
            with suppress(LeaderUnknown):
                epochs[index] = self.partition(topic, index).leader_epoch
        return epochs

    def indexes(self, topic: str) -> tuple[int, ...]:
        """The partition numbers that any broker reports for a topic."""
        shown = (shown for belief in self._beliefs for shown in _shown(belief, topic))
        return tuple(sorted({index for topic in shown for index in topic.indexes}))


def _leader_unknown(error: str, code: FailureCode) -> LeaderUnknown:
    return LeaderUnknown(Failure(error, code))


def _shown(view: ClusterView, topic: str) -> Sequence[Topic]:
    """The entries of a view for a topic. The topics of a view are sorted by name."""
    first = bisect_left(view.topics, topic, key=lambda t: t.name)
    return view.topics[first : bisect_right(view.topics, topic, key=lambda t: t.name)]


def _broker_lists(views: Sequence[ClusterView]) -> list[tuple[Broker, ...]]:
    """The different lists of brokers, by their last view. Most brokers give the same list, and share the object: each
    of thousands may name thousands.
    """
    return [*{id(view.brokers): view.brokers for view in reversed(views)}.values()][::-1]


def read_all_views(
    send: Send,
    broker_ids: Iterable[int],
    topics: Iterable[str] | None,
    in_parallel: InParallel,
    learn: Callable[[Iterable[Broker]], None],
) -> AgreedMetadata:
    """Asks the known brokers about these topics or about all, then any other brokers that the answers name.

    `learn` is called with all brokers that are named, so that `send` can reach them.
    """
    round_of_all = MetadataRound(topics)

    different = DifferentAnswers()

    def ask(broker_id: int) -> ClusterView | Unobserved:
        try:
            return different.kept(round_of_all.ask(send, broker_id))
        except RequestFailed as failed:
            return Unobserved("metadata", failed.failure, broker_id)

    asked: set[int] = set()
    views: list[ClusterView] = []
    errors: dict[int, Unobserved] = {}
    to_ask = set(broker_ids)
    for _ in range(ROUNDS_MAX):
        asked |= to_ask
        asking = sorted(to_ask)
        for broker_id, answer in zip(asking, in_parallel(ask, asking), strict=True):
            if isinstance(answer, Unobserved):
                errors[broker_id] = answer
            else:
                views.append(answer)
        for brokers in _broker_lists(views):
            learn(brokers)
        named = {broker.broker_id for brokers in _broker_lists(views) for broker in brokers}
        to_ask = named - asked
        if not to_ask:
            break
    errors |= {broker_id: Unobserved("metadata", NOT_ASKED, broker_id) for broker_id in to_ask}
    return AgreedMetadata(
        views=tuple(sorted(views, key=lambda view: view.answered_by)),
        errors=tuple(error for broker_id, error in sorted(errors.items()) if broker_id in named or not views),
    )
