"""The latest metadata of the cluster, and the brokers that lag behind it.

Theory
======
A broker that is cut off from the controller answers Metadata from its old image. That answer lacks newer topics, and
has leaders that were replaced. A sweep with such a plan misses partitions, and reads others from replicas that
may lack records of the leader. **A plan is current if its image is at least as new as the image of every broker.** A
broker leads a partition because its image says so. So a current plan has every partition that takes records.

In KRaft mode all brokers apply one metadata log. A broker reports the offset of its image in that log as the epoch of
the finalized features (`KRaftMetadataCache.features`). Of two images, the one with the higher offset is newer. A sweep
asks all brokers for their offsets, then asks a broker with the highest offset for Metadata.

**The same proves who led a partition during a read, if all of it is asked for after the read.** Let the answer name
leader B at leader epoch e. No broker has a newer image than the answer. For one topic id, leader epochs rise at every
change of the leader (`PartitionRegistration.merge`). So a broker that believes in another leader believes in an earlier
leader epoch, and a read at B that names the leader epoch e came from the leader. If B led at e already in an earlier
image, it led all the while: then one answer proves several reads. The order is needed: a broker that had the newest
image before a read may be cut off since. And the image must be as new as that of *every* broker: a deposed leader
answers ListOffsets at its own leader epoch, and names itself in its Metadata.

The offset of an image never falls and is never negative (`FinalizedFeatures`). A broker that reports such an offset
counts as one without an answer. So does a broker that reports the highest offset and then does not answer Metadata: it
may know another leader.

Brokers outside KRaft mode report an epoch of another kind. They are all asked for Metadata. For each partition the
entry with the highest leader epoch counts. A partition on which brokers differ is disputed.

A broker outside KRaft mode that has just started knows no topic until the controller has sent it all of them
(`KafkaController.onControllerFailover`: the brokers first, and then, at once, all partitions with a live replica). If
all brokers have just started, they agree. So a broker without any topic counts as one that lags, and a topic is deleted
only if brokers that do not show it show `__transaction_state`.

A broker that does not answer may have a newer image, unless the controllers show that it has not (`quorum.py`). Not
covered: a broker that is newer than all brokers that answered, and that none of them knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from txnscan.coordinators.agreed_metadata import NOT_ASKED, ROUNDS_MAX, AgreedMetadata, read_all_views
from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import Failure, FailureCode, Unobserved
from txnscan.kafka.protocol.api_versions import image_offset
from txnscan.kafka.protocol.metadata import MetadataRound
from txnscan.kafka.topology import Broker, ClusterView, Key, Partition, Topic
from txnscan.kafka.units import plural

DISPUTED = Failure("brokers disagree on who leads the partition", FailureCode.BROKERS_DISAGREE)

# The offset of a broker's image; None for a broker outside KRaft mode; or why the broker did not report it.
Reported = int | Failure | None
InParallel = Callable[[Callable[[int], Any], Iterable[int]], list[Any]]

# Up to date brokers differ by one or two records for some milliseconds. A broker that is still behind after five
# seconds is cut off, paused, or very slow.
_LAG_WAIT_S, _LAG_WAITS = 0.25, 20
_NAMED_MAX = 3
_OF_BROKER = re.compile(r"(?P<where>(?:broker \d+|the bootstrap server) \([^()\s]+\)) (?P<why>.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Latest:
    """The metadata of the cluster at one moment.

    view: the latest metadata of any broker. reported: the answer of each broker that was asked. disputed: partitions on
    which brokers outside KRaft mode differ. outside_kraft: whether a broker is not in KRaft mode. newer: the brokers
    that reported a newer image but did not show it. of_all: the metadata of all brokers, outside KRaft mode.
    shown_by_offset: see AgreedMetadata.
    """

    view: ClusterView
    reported: Mapping[int, Reported]
    disputed: frozenset[Key] = frozenset()
    outside_kraft: bool = False
    newer: frozenset[int] = frozenset()
    of_all: AgreedMetadata | None = None
    shown_by_offset: int | None = None

    @property
    def agreed(self) -> AgreedMetadata:
        """The metadata that no broker contradicts."""
        if self.of_all is not None:
            return self.of_all
        return _by_image(self.view, self.reported, self.newer, self.shown_by_offset)

    @property
    def offset(self) -> int | None:
        """The highest offset of an image. None outside KRaft mode."""
        return max(_offsets(self.reported).values(), default=None)

    def unreachable(self) -> tuple[Unobserved, ...]:
        """A failure for each broker of the cluster that did not answer, and for each of `newer`."""
        return _unheard("plan", self.view, self.reported, self.newer)

    def behind(self, offset: int) -> dict[int, int]:
        """See AgreedMetadata."""
        return self.agreed.behind(offset)


def ask_offsets(
    send: Send, broker_ids: Iterable[int], in_parallel: InParallel, reached: dict[int, int] | None = None
) -> dict[int, Reported]:
    """The answer of each of these brokers. An offset that falls, or is negative, shows no age.

    reached: the highest offset that each broker ever reported; it is updated.
    """
    highest = {} if reached is None else reached

    def ask(broker_id: int) -> Reported:
        try:
            offset = image_offset(send, broker_id)
        except RequestFailed as failed:
            return failed.failure
        if offset is None:
            return None
        before = highest.get(broker_id, 0)
        if offset < before:
            return _went_back(broker_id, before, offset)
        highest[broker_id] = offset
        return offset

    asked = sorted(broker_ids)
    return dict(zip(asked, in_parallel(ask, asked), strict=True))


def read_latest(
    send: Send,
    broker_ids: Iterable[int],
    metadata: MetadataRound,
    in_parallel: InParallel,
    learn: Callable[[Iterable[Broker]], None],
    reached: dict[int, int] | None = None,
) -> Latest:
    """The latest metadata of these brokers and of all other brokers that it names. Raises RequestFailed if every broker
    fails to answer.

    metadata: the request, for some topics or for all. learn: is called with all brokers that are named, so that `send`
    can reach them. reached: see ask_offsets.
    """
    view, reported, newer = _read_newest(send, broker_ids, metadata, in_parallel, learn, reached)
    if None in reported.values():
        agreed = read_all_views(send, reported, metadata.topics, in_parallel, learn)
        return _without_order(agreed, reported, of_all_topics=metadata.topics is None)
    if view is None:
        errors = merged(answer.error for answer in reported.values() if isinstance(answer, Failure))
        raise RequestFailed(errors, FailureCode.UNREACHABLE)
    return Latest(view, reported, newer=newer, shown_by_offset=_offset_after(send, view))


def read_agreed(
    send: Send,
    broker_ids: Iterable[int],
    topics: Iterable[str],
    in_parallel: InParallel,
    learn: Callable[[Iterable[Broker]], None],
    reached: dict[int, int] | None = None,
) -> AgreedMetadata:
    """The metadata of these topics that no broker contradicts: by one image, or outside KRaft mode by the Metadata of
    all brokers. See `read_latest`.
    """
    metadata = MetadataRound(topics)
    view, reported, newer = _read_newest(send, broker_ids, metadata, in_parallel, learn, reached)
    if None in reported.values():
        return read_all_views(send, reported, metadata.topics, in_parallel, learn)
    return _by_image(view, reported, newer)


def _offset_after(send: Send, view: ClusterView) -> int | None:
    """The offset of the image of the broker that showed this view, asked for after the view: the image that it showed
    has at most this offset. None if the broker does not answer.
    """
    try:
        return image_offset(send, view.answered_by)
    except RequestFailed:
        return None


def _by_image(
    view: ClusterView | None, reported: Mapping[int, Reported], newer: Iterable[int], shown_by_offset: int | None = None
) -> AgreedMetadata:
    """What the newest image proves, if there is one. See `_read_newest`."""
    views = (view,) if view is not None else ()
    errors = _unheard("metadata", view, reported, newer)
    return AgreedMetadata(views, errors, _offsets(reported), shown_by_offset=shown_by_offset)


def _unheard(
    stage: str, view: ClusterView | None, reported: Mapping[int, Reported], newer: Iterable[int]
) -> tuple[Unobserved, ...]:
    """A failure for each broker that did not answer, and that the newest view names, or that reported a newer image: it
    may know another leader. Without a view, for each broker that did not answer.
    """
    matter = reported.keys() if view is None else {broker.broker_id for broker in view.brokers} | {*newer}
    asked = ((one, reported.get(one)) for one in sorted(matter))
    return tuple(Unobserved(stage, answer, one) for one, answer in asked if isinstance(answer, Failure))


def _read_newest(
    send: Send,
    broker_ids: Iterable[int],
    metadata: MetadataRound,
    in_parallel: InParallel,
    learn: Callable[[Iterable[Broker]], None],
    reached: dict[int, int] | None,
) -> tuple[ClusterView | None, dict[int, Reported], frozenset[int]]:
    """The Metadata of a broker with the newest image, asked after all brokers have reported their offsets; None if a
    broker is not in KRaft mode, or if none answers. Then the report of each broker, and the brokers that reported a
    newer image but did not show it.
    """
    reported: dict[int, Reported] = {}
    newer: frozenset[int] = frozenset()
    to_ask = set(broker_ids)
    for _ in range(ROUNDS_MAX):
        reported |= ask_offsets(send, to_ask, in_parallel, reached)
        offsets = _offsets(reported)
        view = None if None in reported.values() else _ask_newest(send, metadata, reported)
        if view is None:
            return None, reported, frozenset()
        newer = frozenset(one for one, at in offsets.items() if at > offsets[view.answered_by])
        learn(view.brokers)
        to_ask = {broker.broker_id for broker in view.brokers} - reported.keys()
        if not to_ask:
            break
    return view, {**reported, **dict.fromkeys(to_ask, NOT_ASKED)}, newer


def catch_up(
    send: Send, behind: Mapping[int, int], offset: int, in_parallel: InParallel, sleep: Callable[[float], None]
) -> tuple[Unobserved, ...]:
    """Waits for brokers that are behind an offset. Returns a failure for each that does not reach it in time."""
    waiting, failed = dict(behind), {}
    for _ in range(_LAG_WAITS):
        if not waiting:
            break
        sleep(_LAG_WAIT_S)
        for broker_id, answer in ask_offsets(send, waiting, in_parallel).items():
            if isinstance(answer, Failure):
                failed[broker_id] = answer
            waiting[broker_id] = answer if isinstance(answer, int) else offset
        waiting = {broker_id: at for broker_id, at in waiting.items() if at < offset}
    late = {broker_id: _lags(broker_id, offset - at) for broker_id, at in waiting.items()}
    return tuple(Unobserved("plan", failure, broker_id) for broker_id, failure in sorted({**failed, **late}.items()))


def _lags(broker_id: int, records: int) -> Failure:
    lacks = f"lacks {plural(records, 'record')} that other brokers have"
    error = f"the metadata of broker {broker_id} {lacks}; check its connection to the controller"
    return Failure(error, FailureCode.BROKER_BEHIND)


def _went_back(broker_id: int, before: int, offset: int) -> Failure:
    error = f"the metadata of broker {broker_id} went back from record {before} to {offset}, and shows no leaders"
    return Failure(error, FailureCode.BROKER_BEHIND)


def _no_topics(broker_id: int) -> Failure:
    error = f"broker {broker_id} shows no topics; it may have just started, and know none yet: sweep again"
    return Failure(error, FailureCode.BROKER_BEHIND)


def merged(errors: Iterable[str]) -> str:
    """The errors of brokers in one text, in order. Brokers with the same error share a sentence, which names some."""
    brokers: dict[str, list[str]] = {}
    for error in errors:
        found = _OF_BROKER.fullmatch(error)
        where = brokers.setdefault(error if found is None else found["why"], [])
        if found is not None:
            where.append(found["where"])
    return "; ".join(f"{_named(where)} {why}" if where else why for why, where in brokers.items())


def _named(where: Sequence[str]) -> str:
    """The subject of a sentence about these brokers."""
    *others, last = where if len(where) <= _NAMED_MAX + 1 else (*where[:_NAMED_MAX], f"{len(where) - _NAMED_MAX} more")
    return f"{', '.join(others)} and {last}: each" if others else last


def _ask_newest(send: Send, metadata: MetadataRound, reported: dict[int, Reported]) -> ClusterView | None:
    """The Metadata of the broker with the newest image. If a broker does not answer, its failure is recorded in
    `reported`, and the next is asked. None if no broker answers.
    """
    offsets = _offsets(reported)
    # If offsets are equal, prefer a broker of the cluster to a bootstrap server, whose number is negative.
    for newest in sorted(offsets, key=lambda broker_id: (offsets[broker_id], broker_id), reverse=True):
        try:
            return metadata.ask(send, newest)
        except RequestFailed as failed:
            reported[newest] = failed.failure
    return None


def _offsets(reported: Mapping[int, Reported]) -> dict[int, int]:
    return {broker_id: answer for broker_id, answer in reported.items() if isinstance(answer, int)}


def _without_order(agreed: AgreedMetadata, reported: Mapping[int, Reported], *, of_all_topics: bool) -> Latest:
    """The merged metadata of brokers outside KRaft mode. Raises RequestFailed."""
    failures = {one.broker: one.failure for one in agreed.errors if one.broker is not None}
    if of_all_topics:
        failures |= {view.answered_by: _no_topics(view.answered_by) for view in agreed.views if not view.topics}
    if not agreed.views:
        raise RequestFailed(merged(failure.error for failure in failures.values()), FailureCode.UNREACHABLE)
    topics, disputed = _merged([view.topics for view in agreed.views])
    view = replace(agreed.views[0], brokers=agreed.brokers, topics=topics)
    return Latest(view, {**reported, **failures}, disputed, outside_kraft=True, of_all=agreed)


def _merged(shown: Sequence[tuple[Topic, ...]]) -> tuple[tuple[Topic, ...], frozenset[Key]]:
    """The topics of several views, each partition with its highest leader epoch, and the partitions that differ."""
    first, *others = shown
    if all(other == first for other in others):
        return first, frozenset()
    views = [{topic.name: topic for topic in topics} for topics in shown]
    merged, disputed = [], set()
    for name in sorted({name for view in views for name in view}):
        # The different entries; None for a view without the topic.
        found = dict.fromkeys(view.get(name) for view in views)
        topics = [topic for topic in found if topic is not None]
        shown_by_all = set[Partition]() if None in found else set.intersection(*(set(t.partitions) for t in topics))
        by_epoch = sorted((p for topic in topics for p in topic.partitions), key=lambda p: p.leader_epoch)
        latest = {partition.partition: partition for partition in by_epoch}
        disputed |= {partition.key for partition in latest.values() if partition not in shown_by_all}
        indexes = tuple(sorted(latest))
        leaders = tuple(latest[index].leader for index in indexes)
        epochs = tuple(latest[index].leader_epoch for index in indexes)
        merged.append(Topic(name, topics[-1].topic_id, indexes, leaders, epochs))
    return tuple(merged), frozenset(disputed)


def differing(before: Iterable[Topic], after: Iterable[Topic]) -> set[Key]:
    """The partitions of `after` that `before` lacks, or has with another topic id, leader or leader epoch."""
    known = {topic.name: topic for topic in before}
    return {
        partition.key
        for topic in after
        # Nearly all topics are equal, so whole topics are compared first.
        if topic != (was := known.get(topic.name))
        for partition in set(topic.partitions) - set(was.partitions if was is not None else ())
    }
