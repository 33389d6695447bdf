"""Reads what `waiting/before_stop.py` judges: would the stop of some brokers harm transactions?

    the metadata, and the replicas, by the newest image
    the ids in a transaction, from coordinators that are proven to list all of theirs, with their partitions
    DescribeProducers of the partitions that have a replica on these brokers
    the settings, and the eligible leader replicas, only of partitions that may be harmed
    the metadata and the replicas again, by the newest image

If the leaders, or what may be harmed, differ between both images, all of it is read again. Only reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from txnscan.config import ConfigError, ScanConfig
from txnscan.coordinators.cluster import RETRY_WAIT_S, Cluster, ClusterUnreachable
from txnscan.coordinators.quorum import keeps_majority, voters_left
from txnscan.coordinators.transactions import key_of
from txnscan.engine import Engine
from txnscan.kafka.answers import IN_TRANSACTION, CoordinatorView, OpenProducer
from txnscan.kafka.errors import ErrorCode, RequestFailed, answered
from txnscan.kafka.failure import Failure, FailureCode, Unobserved
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.protocol.describe_configs import unclean_elections
from txnscan.kafka.protocol.describe_quorum import Quorum, describe_quorum
from txnscan.kafka.protocol.describe_transactions import describe_transactions
from txnscan.kafka.protocol.list_transactions import list_transactions
from txnscan.kafka.protocol.replicas import OnBrokers, read_on_brokers, with_eligible
from txnscan.kafka.security.acls import needing
from txnscan.kafka.security.needs import DESCRIBE_CLUSTER, DESCRIBE_IDS
from txnscan.kafka.topology import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, Key, PartitionReplicas, Topic
from txnscan.parallel import OnProgress
from txnscan.reads.planner import plan_wide
from txnscan.reads.rows import WideAnswer
from txnscan.reads.tasks import ReadWide
from txnscan.waiting.before_stop import (
    Concerned,
    Effect,
    Harm,
    Held,
    Note,
    StopEffects,
    StopVerdict,
    What,
    after_stop,
    are_at_work,
    judge,
    verdict,
)
from txnscan.waiting.blocking import ends_by_ms
from txnscan.waiting.exposure import read_versions
from txnscan.waiting.groups import groups_at
from txnscan.waiting.in_sync import read_write_states, states_of
from txnscan.waiting.known_causes import drops_markers
from txnscan.waiting.writability import UNREAD, WriteState, WriteStates

OPTION = "--before-stop"
STAGE = "check before the stop"
# Leaders move back for some seconds after a broker has started.
_TRIES = 3
_POLL_S = 2.0
_LOGS = (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC)
_OUTSIDE_KRAFT = Failure("a broker is not in KRaft mode, and shows no age of its metadata", FailureCode.LEFT_OUT)
_NO_LOG = Failure(
    f"ids are in a transaction, and there is no {TRANSACTION_STATE_TOPIC}: no coordinator can be proven here",
    FailureCode.LEFT_OUT,
)
_CHANGED = Failure(
    "leaders or in-sync replicas changed while they were read; ask again when they are stable", FailureCode.LEADER_MOVED
)


@dataclass(frozen=True, slots=True)
class BeforeStop:
    """Whether these brokers may stop. at_ms: the time before the first read, by this machine's clock. held: the number
    of partitions with a replica there, of all `partitions`. drops: whether a coordinator drops the marker of a
    partition without a leader, None if that is not known. errors: what was not observed.
    """

    cluster_id: str
    stopping: tuple[int, ...]
    at_ms: int
    partitions: int
    held: int
    drops: bool | None
    judged: StopEffects
    notes: tuple[Note, ...]
    errors: tuple[Unobserved, ...]

    @property
    def unknown(self) -> tuple[Unobserved, ...]:
        """The partitions of which it is not known whether the stop harms them."""
        return tuple(Unobserved(STAGE, why, None, one.topic, one.partition) for one, why in self.judged.unknown)

    @property
    def verdict(self) -> StopVerdict:
        return verdict(self.judged, self.notes, observed=not self.errors)


@dataclass(frozen=True, slots=True)
class _Image:
    """The replicas by the newest metadata, and what was not observed of it."""

    cluster_id: str
    asked: int
    brokers: tuple[int, ...]
    found: OnBrokers
    errors: tuple[Unobserved, ...]

    def of(self, topic: str) -> list[PartitionReplicas]:
        """All partitions of one of `_LOGS`."""
        return [one for one in self.found.partitions if one.topic == topic]

    def held(self, stopping: Collection[int]) -> dict[Key, PartitionReplicas]:
        """The partitions that the stop concerns: with a replica on one of these brokers; without a leader, with an
        in-sync one. Others without a leader have none after the stop, either.
        """
        wanted = frozenset(stopping)
        return {
            one.key: one
            for one in self.found.partitions
            if not wanted.isdisjoint(one.in_sync if one.has_no_leader else one.replicas)
        }


@dataclass(frozen=True, slots=True)
class _Activity:
    """The producers of a partition by its leader, or why they are not known."""

    open: tuple[OpenProducer, ...] = ()
    ended: int = 0
    newest_ended_ms: int = -1
    failure: Failure | None = None

    def may_concern(self, now_ms: int) -> bool:
        """Whether the partition concerns a transaction, or may."""
        at_work = are_at_work(self.ended, self.newest_ended_ms, now_ms)
        return bool(self.open) or self.failure is not None or at_work


_IDLE = _Activity()


@dataclass(frozen=True, slots=True)
class _Ids:
    """The transactional ids in a transaction, as all brokers list and describe them. errors: what is missing."""

    views: tuple[CoordinatorView, ...] = ()
    errors: tuple[Unobserved, ...] = ()
    by_producer: Mapping[int, list[CoordinatorView]] = field(default_factory=dict)
    by_key: Mapping[Key, list[CoordinatorView]] = field(default_factory=dict)

    def listed(self, keys: Iterable[Key]) -> set[Key]:
        """The partitions of the transactions that list one of these."""
        return {key_of(name) for key in keys for claim in self.by_key.get(key, ()) for name in claim.partitions}

    def concerned(self, key: Key, opened: Iterable[OpenProducer], writes: WriteStates) -> tuple[Concerned, ...]:
        """The transactions that a partition concerns, on which these are open. writes: of their partitions, now."""
        found: dict[tuple[int, str | None], Concerned] = {}
        name = f"{key[0]}-{key[1]}"
        for producer in opened:
            claims = [one for one in self.by_producer.get(producer.producer_id, ()) if name in one.partitions]
            for claim in claims:
                found[claim.producer_id, claim.transactional_id] = _concerned(claim, writes, has_data=True)
            if not claims:
                found[producer.producer_id, None] = Concerned(producer.producer_id)
        for claim in self.by_key.get(key, ()):
            found.setdefault((claim.producer_id, claim.transactional_id), _concerned(claim, writes, has_data=False))
        return tuple(found.values())


def _concerned(claim: CoordinatorView, writes: WriteStates, *, has_data: bool) -> Concerned:
    blocker = writes.blocker(claim.transactional_id, claim.state, map(key_of, claim.partitions))
    return Concerned(claim.producer_id, claim.transactional_id, claim.state, ends_by_ms(claim, blocker), has_data)


def read_before_stop(
    cluster: Cluster,
    engine: Engine,
    config: ScanConfig,
    stopping: Collection[int],
    now_ms: Callable[[], int],
    on_progress: OnProgress,
) -> BeforeStop:
    """Whether these brokers may stop. Raises ClusterUnreachable, and ConfigError for a broker that does not exist."""
    for attempt in range(1, _TRIES + 1):
        found, is_stable = _Reading(cluster, engine, config, tuple(sorted({*stopping})), now_ms, on_progress).read()
        if is_stable or cluster.deadline.is_up:
            break
        cluster.sleep(RETRY_WAIT_S * attempt)
    return found


def wait_until_safe(
    ask: Callable[[], BeforeStop],
    *,
    wait_ms: int,
    now_ms: Callable[[], int],
    sleep: Callable[[float], None],
    say: Callable[[BeforeStop], None],
) -> BeforeStop:
    """Asks until the brokers may stop, or the time to wait is over. Returns the last answer. say: called with each
    answer after which it waits. A cluster that cannot be reached meanwhile is asked again. Raises as `ask`, if the
    first or the last call does.
    """
    began_ms = now_ms()
    ends_ms, found = began_ms + wait_ms, ask()
    while found.verdict is not StopVerdict.SAFE and (left_ms := ends_ms - now_ms()) > 0:
        say(found)
        # Large clusters are not asked all the time.
        sleep(min(max(_POLL_S, (now_ms() - began_ms) / 1_000), left_ms / 1_000))
        began_ms = now_ms()
        try:
            found = ask()
        except ClusterUnreachable:
            if now_ms() >= ends_ms:
                raise
    return found


@dataclass(frozen=True, slots=True)
class _Reading:
    """One try."""

    cluster: Cluster
    engine: Engine
    config: ScanConfig
    stopping: tuple[int, ...]
    now_ms: Callable[[], int]
    on_progress: OnProgress

    def read(self) -> tuple[BeforeStop, bool]:
        """The result, and whether both images agree."""
        at_ms = self.now_ms()
        first = self._image()
        hidden = self.cluster.hidden_topics(first.asked)
        quorum = self._quorum(first.asked)
        self._check_brokers(first, quorum)
        held = first.held(self.stopping)
        ids = self._ids(first)
        activity = self._activity(held.values())
        drops = self._drops(first.brokers)
        states = self._states(first, held, activity, ids)
        second = self._image()
        now_ms = self.now_ms()
        writes = read_write_states(self.cluster, first.asked, ids.listed(states)) if ids.views else UNREAD
        opened = {key: ids.concerned(key, activity.get(key, _IDLE).open, writes) for key in states}
        judged = judge((replace(one, transactions=opened[key]) for key, one in sorted(states.items())), drops, now_ms)
        is_stable = self._same_leaders(first, second) and self._same_replicas(first, second, states)
        errors = [
            *([] if hidden is None else [Unobserved(STAGE, hidden)]),
            *([quorum] if isinstance(quorum, Unobserved) else []),
            *first.errors,
            *ids.errors,
            *second.errors,
            *([] if is_stable else [Unobserved(STAGE, _CHANGED)]),
        ]
        found = BeforeStop(
            first.cluster_id,
            self.stopping,
            at_ms,
            first.found.total,
            len(held),
            drops,
            replace(judged, harms=self._with_groups(first, judged.harms)),
            self._notes(first, quorum, judged, ids, states),
            tuple(dict.fromkeys(errors)),
        )
        return found, is_stable

    def _image(self) -> _Image:
        latest = self.cluster.latest([])
        errors = list(self.cluster.lagging(latest, latest.offset))
        if latest.outside_kraft:
            errors.append(Unobserved(STAGE, _OUTSIDE_KRAFT))
        asked = latest.view.answered_by
        try:
            found = read_on_brokers(self.cluster.send, asked, self.stopping, _LOGS)
        except RequestFailed as failed:
            found = OnBrokers((), 0)
            errors.append(Unobserved(STAGE, failed.failure, asked))
        brokers = tuple(one.broker_id for one in latest.view.brokers)
        return _Image(latest.view.cluster_id, asked, brokers, found, tuple(errors))

    def _quorum(self, asked: int) -> Quorum | Unobserved:
        try:
            return describe_quorum(self.cluster.send_to_controller, asked)
        except RequestFailed as failed:
            why = needing(failed.failure, DESCRIBE_CLUSTER.permission).within("the quorum of controllers is not known")
            return Unobserved(STAGE, why, asked)

    def _check_brokers(self, image: _Image, quorum: Quorum | Unobserved) -> None:
        """Raises ConfigError for a number that is no broker's, no replica's, and no controller's."""
        if not image.found.total and image.errors:
            # The replicas could not be read.
            return
        voters = set[int]() if isinstance(quorum, Unobserved) else {one.broker_id for one in quorum.voters}
        known = {*image.brokers, *voters, *(one for held in image.found.partitions for one in held.replicas)}
        for broker_id in self.stopping:
            if broker_id not in known:
                names = sorted({*image.brokers, *voters})
                raise ConfigError(OPTION, f"{broker_id} is not among the cluster's brokers {names}")

    def _activity(self, held: Iterable[PartitionReplicas]) -> dict[Key, _Activity]:
        """The producers of these partitions. One without any is left out."""
        by_topic: dict[str, list[PartitionReplicas]] = defaultdict(list)
        for one in held:
            if one.topic != TRANSACTION_STATE_TOPIC:
                by_topic[one.topic].append(one)
        topics = [_topic(name, some) for name, some in by_topic.items()]
        batches, unled = plan_wide(
            topics, batch_size=self.config.batch_size, in_flight_max=self.config.in_flight_max, with_ended=True
        )
        count = sum(batch.size for batch in batches)
        answers = self.engine.map(
            ReadWide(self.cluster.clients),
            batches,
            WideAnswer,
            lambda done, total: self.on_progress(done * count // total, count),
        )
        found: dict[Key, _Activity] = {
            (error.topic or "", error.partition or 0): _Activity(failure=error.failure) for error in unled
        }
        for row in (row for answer in answers for row in answer.rows):
            known = found.get(row.key, _IDLE)
            found[row.key] = _Activity(
                known.open or row.open_producers,
                known.ended or row.ended,
                max(known.newest_ended_ms, row.newest_ended_ms),
                known.failure or row.failure,
            )
        return found

    def _drops(self, brokers: Iterable[int]) -> bool | None:
        """Whether a coordinator of these brokers drops markers. None if that is not known."""
        versions, failures = read_versions(self.cluster, brokers)
        if any(drops_markers(one.metadata_level) for one in versions.values()):
            return True
        return None if failures else False

    def _states(
        self,
        image: _Image,
        held: Mapping[Key, PartitionReplicas],
        activity: Mapping[Key, _Activity],
        ids: _Ids,
    ) -> dict[Key, Held]:
        """The partitions that may be harmed: with no in-sync replica left; and partitions of `__transaction_state`, and
        those in a transaction or with producers at work, whose minimum matters.
        """
        now_ms = self.now_ms()
        after = {key: after_stop(one, self.stopping) for key, one in held.items()}
        lost = with_eligible(self.cluster.send, image.asked, [held[k] for k, one in after.items() if one.has_no_leader])
        after |= {one.key: after_stop(one, self.stopping) for one in lost}
        before = {**held, **{one.key: one for one in lost}}
        by_eligible = {one.key for one in lost}
        wanted = [
            one
            for key, one in after.items()
            if not one.has_no_leader
            and (
                key in by_eligible
                or key in ids.by_key
                or one.topic == TRANSACTION_STATE_TOPIC
                or activity.get(key, _IDLE).may_concern(now_ms)
            )
        ]
        states = {one.replicas.key: one for one in states_of(self.cluster, image.asked, wanted)}
        states |= {one.key: WriteState(after[one.key]) for one in lost if after[one.key].has_no_leader}
        found = {
            key: _held(before[key], replace(one, replicas=after[key]), activity.get(key, _IDLE))
            for key, one in states.items()
        }
        return self._with_unclean(image.asked, found)

    def _with_unclean(self, asked: int, states: dict[Key, Held]) -> dict[Key, Held]:
        """The same, with whether unclean elections are allowed if no replica remains and another one lives."""
        may = {key: replace(one, unclean=True) for key, one in states.items() if not one.is_left}
        topics = sorted({topic for (topic, _), one in may.items() if one.loses_end})
        try:
            allowed = unclean_elections(self.cluster.send, asked, topics) if topics else {}
        except RequestFailed:
            allowed = {}
        answers = {topic: one if isinstance(one, bool) else None for topic, one in allowed.items()}
        return states | {key: replace(one, unclean=answers.get(key[0])) for key, one in may.items()}

    def _ids(self, image: _Image) -> _Ids:
        """The ids in a transaction, from all brokers, with their partitions. A transaction that has no data on a
        partition yet is seen nowhere else. So it counts if a coordinator may be missing.
        """
        log_partitions = len(image.of(TRANSACTION_STATE_TOPIC))
        errors: list[Unobserved] = []
        if log_partitions:
            agreed = self.cluster.agreed_metadata([TRANSACTION_STATE_TOPIC])
            listing = self.cluster.coordinator_listing({}, agreed, lambda done, total: None)
            errors += listing.coverage_errors[:1]
            errors += [Unobserved(STAGE, failure) for failure in listing.visibility_failures]
        answers = self.cluster.in_parallel(lambda broker_id: _ids_on(self.cluster, broker_id), sorted(image.brokers))
        views = tuple(view for some, _ in answers for view in some)
        errors += [error for _, error in answers if error is not None]
        if views and not log_partitions:
            errors.append(Unobserved(STAGE, _NO_LOG))
        return _by_place(views, tuple(errors), log_partitions)

    def _with_groups(self, image: _Image, harms: Iterable[Harm]) -> tuple[Harm, ...]:
        found = tuple(harms)
        offsets = image.of(CONSUMER_OFFSETS_TOPIC)
        by_leader: dict[int, list[int]] = defaultdict(list)
        for harm in found:
            if harm.held.before.topic == CONSUMER_OFFSETS_TOPIC and harm.held.before.leader >= 0:
                by_leader[harm.held.before.leader].append(harm.held.before.partition)
        groups: dict[int, tuple[str, ...]] = {}
        for leader, indexes in by_leader.items():
            groups |= groups_at(self.cluster.send, leader, indexes, len(offsets))
        return tuple(
            replace(harm, groups=groups.get(harm.held.before.partition, ()))
            if harm.held.before.topic == CONSUMER_OFFSETS_TOPIC
            else harm
            for harm in found
        )

    def _notes(
        self,
        image: _Image,
        quorum: Quorum | Unobserved,
        judged: StopEffects,
        ids: _Ids,
        states: Mapping[Key, Held],
    ) -> tuple[Note, ...]:
        moving = {*self.stopping}
        # Without a majority no other leader is elected.
        elects = isinstance(quorum, Quorum) and keeps_majority(quorum, moving)

        def moved(topic: str) -> set[int]:
            """The partitions of a topic that get another leader."""
            led = [one for one in image.of(topic) if elects and one.leader in moving]
            return {
                one.partition
                for one in led
                if (states[one.key].is_left if one.key in states else not after_stop(one, moving).has_no_leader)
            }

        logs = moved(TRANSACTION_STATE_TOPIC)
        ids_moved = sum(len(ids.by_key.get((TRANSACTION_STATE_TOPIC, k), ())) for k in logs)
        leaderless = [one.key for one in image.found.partitions if one.has_no_leader]
        unclaimed = sum(
            one.transactional_id is None
            for harm in judged.harms
            if not harm.held.is_left
            for one in harm.held.transactions
        )
        out_of_sync = [one for one in image.found.partitions if not {*one.in_sync}.issuperset({*one.replicas} - moving)]
        notes = [
            Note(Effect.MOVED, What.TRANSACTION_COORDINATORS, len(logs)),
            Note(Effect.MOVED, What.IDS, ids_moved),
            Note(Effect.MOVED, What.GROUP_COORDINATORS, len(moved(CONSUMER_OFFSETS_TOPIC))),
            Note(Effect.EXPOSED, What.UNCLAIMED, unclaimed),
            Note(Effect.EXPOSED, What.OUT_OF_SYNC, len(out_of_sync)),
            Note(Effect.EXPOSED, What.WITHOUT_LEADER, sum(key in ids.by_key for key in leaderless), unsafe=True),
        ]
        if isinstance(quorum, Quorum):
            notes.append(Note(Effect.MOVED, What.CONTROLLER, int(elects and quorum.leader in moving)))
        found = [note for note in notes if note.count]
        if isinstance(quorum, Quorum) and not elects:
            found.append(Note(Effect.NO_MAJORITY, What.VOTERS, voters_left(quorum, self.stopping), unsafe=True))
        return tuple(found)

    def _same_leaders(self, first: _Image, second: _Image) -> bool:
        """Whether the same brokers lead at the same leader epochs: the partitions held, and the transaction log."""
        log = TRANSACTION_STATE_TOPIC
        held = _led_by(first.held(self.stopping).values()) == _led_by(second.held(self.stopping).values())
        return held and _led_by(first.of(log)) == _led_by(second.of(log))

    def _same_replicas(self, first: _Image, second: _Image, states: Mapping[Key, Held]) -> bool:
        """Whether the replicas of what may be harmed are the same, and nothing else may be harmed."""
        before, now = first.held(self.stopping), second.held(self.stopping)
        changed = [one for key, one in now.items() if one != before.get(key)]
        if any(one.key in states or after_stop(one, self.stopping).has_no_leader for one in changed):
            return False
        eligible = [one.before for one in states.values() if one.before.eligible]
        again = with_eligible(self.cluster.send, second.asked, eligible)
        return [one.eligible for one in eligible] == [one.eligible for one in again]


def _by_place(views: tuple[CoordinatorView, ...], errors: tuple[Unobserved, ...], log_partitions: int) -> _Ids:
    """The ids by their producers, and by the partitions that they concern: those of the transaction and of its log."""
    by_producer: dict[int, list[CoordinatorView]] = defaultdict(list)
    by_key: dict[Key, list[CoordinatorView]] = defaultdict(list)
    for view in views:
        by_producer[view.producer_id].append(view)
        for name in view.partitions:
            by_key[key_of(name)].append(view)
        if log_partitions:
            k = coordinator_partition(view.transactional_id, log_partitions)
            by_key[TRANSACTION_STATE_TOPIC, k].append(view)
    return _Ids(views, errors, by_producer, by_key)


def _led_by(partitions: Iterable[PartitionReplicas]) -> set[tuple[str, int, int, int]]:
    return {(one.topic, one.partition, one.leader, one.leader_epoch) for one in partitions}


def _topic(name: str, partitions: Iterable[PartitionReplicas]) -> Topic:
    some = sorted(partitions, key=lambda one: one.partition)
    return Topic(
        name,
        "",
        tuple(one.partition for one in some),
        tuple(one.leader for one in some),
        tuple(one.leader_epoch for one in some),
    )


def _held(before: PartitionReplicas, after: WriteState, activity: _Activity) -> Held:
    return Held(
        before,
        after,
        ended=activity.ended,
        newest_ended_ms=activity.newest_ended_ms,
        failure=activity.failure,
    )


def _ids_on(cluster: Cluster, broker_id: int) -> tuple[list[CoordinatorView], Unobserved | None]:
    """The ids in a transaction that a broker lists, as it describes them, and what is missing."""
    try:
        listed = list_transactions(cluster.send, broker_id, states=IN_TRANSACTION)
        described = describe_transactions(cluster.send, broker_id, sorted(listed))
    except RequestFailed as failed:
        return [], Unobserved(STAGE, failed.failure, broker_id)
    views, error = [], None
    for name in listed:
        one = described.get(name)
        if one is None or (one.error and one.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
            failure = (
                Failure("the broker left the id out of its answer", FailureCode.LEFT_OUT)
                if one is None
                else needing(answered(one.error_code), DESCRIBE_IDS.on(name))
            )
            error = Unobserved(STAGE, failure.within(f"'{name}'"), broker_id)
        elif not one.error and one.state in IN_TRANSACTION:
            views.append(one.view(name, broker_id))
    return views, error
