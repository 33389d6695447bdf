"""The cluster as the driver sees it: its brokers, agreed metadata, and the coordinators.

Most methods ask every broker, in parallel, and return failures as data. Partitions are read elsewhere, by the engines
(`txnscan/reads`).
"""

from __future__ import annotations

import secrets
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from txnscan.config import ScanConfig
from txnscan.coordinators.agreed_metadata import AgreedMetadata, read_all_views
from txnscan.coordinators.claims import ClaimAnswers, ClaimedAndUnclaimed, ask_claims, counted_claims, separate_by_claim
from txnscan.coordinators.coordinator_listing import (
    COORDINATOR_PARTITIONS_MAX,
    CoordinatorAnswers,
    CoordinatorListing,
    ask_coordinators,
    conclude,
    strangers,
)
from txnscan.coordinators.metadata_image import Latest, catch_up, merged, read_agreed, read_latest
from txnscan.coordinators.quorum import confirmed_by_quorum
from txnscan.errors import TxnscanError
from txnscan.kafka.client.client import Send
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.client.deadline import QUESTION_MS, Deadline
from txnscan.kafka.client.factory import ClientFactory
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.failure import Failure, FailureCode, Unobserved
from txnscan.kafka.protocol.coordinator_partition import probe_ids
from txnscan.kafka.protocol.describe_configs import transaction_max_timeout_ms
from txnscan.kafka.protocol.describe_transactions import describe_transactions
from txnscan.kafka.protocol.metadata import BROKERS_MAX, MetadataRound, read_metadata
from txnscan.kafka.security.acls import explained, needing
from txnscan.kafka.security.needs import CONFIGS_OF_BROKERS, DESCRIBE_IDS, DESCRIBE_TOPICS
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Broker, ClusterView, Key
from txnscan.kafka.units import duration
from txnscan.parallel import OnProgress, as_finished
from txnscan.reads.rows import WideRow

Item = TypeVar("Item")
Result = TypeVar("Result")

DRIVER_THREADS = 32
# A newly elected coordinator loads for a moment. Partitions that are not covered after these tries remain uncovered.
LISTING_TRIES = 3
RETRY_WAIT_S = 0.5
# The broker's own default, for brokers that do not report their value.
_DEFAULT_MAX_TIMEOUT_MS = 900_000


class ClusterUnreachable(TxnscanError):
    """No bootstrap server answered. The message is one sentence for users. is_late: whether the only reason is that the
    time of the requests was up.
    """

    def __init__(self, why: str, *, is_late: bool = False) -> None:
        super().__init__(why)
        self.option = "--timeout" if is_late else "--bootstrap-server"

    @property
    def failure(self) -> Failure:
        """The same failure as data."""
        return Failure(str(self), FailureCode.UNREACHABLE)


class Cluster:
    """The cluster, as the driver sees it. Use it as a context manager.

    threads: the number of brokers to ask at once; 0 asks them in order, in the caller's thread. deadline: of the sweep.
    sleep: waits between tries, in seconds. random_token: makes ids that no application uses. read_bytes: the bytes of
    producer states and of `__transaction_state` that the driver and the executors have read.
    """

    def __init__(
        self,
        clients: ClientFactory,
        *,
        threads: int = DRIVER_THREADS,
        deadline: Deadline | None = None,
        sleep: Callable[[float], None] = time.sleep,
        random_token: Callable[[], str] = lambda: secrets.token_hex(12),
    ) -> None:
        self._clients = clients
        self._brokers: dict[int, Broker] = {}
        self._client = clients.client()
        self._bootstrap = tuple(broker.broker_id for broker in clients.brokers)
        self._tried: set[int] = set()
        # Caches the decoded parts of the last answers about all topics.
        self._metadata = MetadataRound()
        # The highest offset of a metadata image that each broker reported, and whether a broker reports none.
        self._reached: dict[int, int] = {}
        self._outside_kraft = False
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="txnscan-cluster") if threads else None
        self._sleep = sleep
        self.deadline = deadline if deadline is not None else Deadline()
        self.random_token = random_token
        self.read_bytes = 0

    @property
    def principal(self) -> str:
        """The principal that brokers see. The suggested ACL commands use it."""
        return self._clients.settings.principal

    def format_failure(self, failure: Failure) -> str:
        """The failure in words, with the permission to grant to this principal."""
        return explained(failure, self.principal)

    @property
    def send(self) -> Send:
        return self._client.send

    def send_to_controller(self, broker_id: int, request: Any) -> Any:
        """Sends to a broker what it passes on to the active controller. See ClientFactory."""
        return self.clients.for_controller().client().send(broker_id, request)

    @property
    def clients(self) -> ClientFactory:
        """The clients that an executor needs to reach all currently known brokers."""
        clients = replace(self._clients, brokers=tuple(self._brokers.values()))
        left = self.deadline.time_left()
        return clients if left is None else replace(clients, time_left=left)

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The currently known brokers."""
        return tuple(sorted(self._brokers))

    def sleep(self, seconds: float) -> None:
        """Waits for this time, or until the deadline of the sweep."""
        self._sleep(min(seconds, self.deadline.left_s))

    def _learn(self, brokers: Iterable[Broker]) -> None:
        """Notes the brokers that an answer names, up to a limit: each answer could make up others. A broker that is not
        known is not asked, and its requests fail.
        """
        known, room = [], BROKERS_MAX - len(self._brokers)
        for broker in brokers:
            is_new = broker.broker_id not in self._brokers
            room -= is_new
            if not is_new or room >= 0:
                known.append(broker)
        self._client.learn(known)
        self._brokers.update((broker.broker_id, broker) for broker in known)

    def in_parallel(
        self, call: Callable[[Item], Result], items: Iterable[Item], on_progress: OnProgress | None = None
    ) -> list[Result]:
        """The results of the call for each item, in the order of the items. Progress is reported in this thread, so
        that a callback is never called twice at once.
        """
        asked, results = list(items), dict[int, Result]()
        # After the deadline each request fails at once.
        pool = None if self.deadline.is_up else self._pool
        finished = enumerate(map(call, asked)) if pool is None else as_finished(pool, self._threads, call, asked)
        for number, result in finished:
            results[number] = result
            if on_progress is not None:
                on_progress(len(results), len(asked))
        return [results[number] for number in range(len(asked))]

    def view(self, topics: Iterable[str] | None = None) -> ClusterView:
        """The Metadata of the first broker that answers. Asks known brokers first, then the bootstrap servers.

        Raises ClusterUnreachable.
        """
        failures = []
        for broker_id in (*sorted(self._brokers), *self._bootstrap):
            try:
                view = read_metadata(self.send, broker_id, topics)
            except RequestFailed as failed:
                failures.append(failed.failure)
                if self.deadline.is_up:
                    break
                continue
            finally:
                self._tried.add(broker_id)
            self._learn(view.brokers)
            return view
        raise self._unreachable(failures)

    def _unreachable(self, failures: list[Failure]) -> ClusterUnreachable:
        is_late = set(failures) == {self.deadline.time_is_up}
        return ClusterUnreachable(merged(one.error for one in failures), is_late=is_late)

    def shown_by(self, broker_id: int) -> ClusterView | None:
        """This broker's Metadata of all topics. None if it does not answer."""
        try:
            view = self._metadata.ask(self.send, broker_id)
        except RequestFailed:
            return None
        self._learn(view.brokers)
        return view

    def latest(self, topics: Iterable[str] | None = None) -> Latest:
        """The latest metadata that any broker has, of these topics or of all. Raises ClusterUnreachable."""
        if not self._brokers:
            self.view([])
        metadata = MetadataRound(topics) if topics is not None else self._metadata
        try:
            found = self._read_latest(self._brokers, metadata)
            if found.unreachable() or len(found.view.brokers) == 1:
                # This broker may be cut off, and the brokers that it names may be gone. Other bootstrap servers may
                # know more.
                known = {*self._brokers, *self._other_bootstrap_servers()}
                if known > found.reported.keys():
                    found = self._read_latest(known, metadata)
        except RequestFailed as failed:
            raise self._unreachable([failed.failure]) from None
        self._outside_kraft = found.outside_kraft
        return found

    def _read_latest(self, broker_ids: Iterable[int], metadata: MetadataRound) -> Latest:
        return read_latest(self.send, broker_ids, metadata, self.in_parallel, self._learn, self._reached)

    def newest(self, topics: Iterable[str] | None = None) -> ClusterView:
        """The Metadata of these topics, or of all, by the broker with the newest image. Raises ClusterUnreachable.

        The first broker that answers (`view`) may be cut off from the controller: then it lacks newer topics, and names
        earlier leaders, so its answer shows no absence.
        """
        return self.latest(topics).view

    def newest_leaders(self, topics: Collection[str]) -> AgreedMetadata:
        """The metadata of these topics by the newest image alone, to find a leader or coordinator to ask. Outside KRaft
        mode by all brokers. Raises ClusterUnreachable.
        """
        latest = self.latest(topics)
        return self.agreed_metadata(topics) if latest.offset is None else AgreedMetadata((latest.view,), ())

    def behind(self) -> tuple[Unobserved, ...]:
        """The brokers that do not answer, and those that lag behind the newest image for some seconds. Each may know or
        serve something that no other broker shows. Raises ClusterUnreachable.
        """
        latest = self.latest([])
        return self.lagging(latest, latest.offset)

    def _other_bootstrap_servers(self) -> Iterator[int]:
        """The bootstrap servers that are no known broker and have not yet failed to answer."""
        known = {broker.address for broker in self._brokers.values()}
        return (b.broker_id for b in self._clients.brokers if b.broker_id not in self._tried and b.address not in known)

    def lagging(self, latest: Latest, offset: int | None) -> tuple[Unobserved, ...]:
        """The brokers that did not answer, and those whose metadata stays behind this offset for some seconds."""
        return (*latest.unreachable(), *self.late(latest.agreed, offset))

    def late(self, agreed: AgreedMetadata, offset: int | None) -> tuple[Unobserved, ...]:
        """The brokers whose metadata stays behind this offset for some seconds."""
        behind = {} if offset is None else agreed.behind(offset)
        return catch_up(self.send, behind, offset or 0, self.in_parallel, self.sleep)

    def hidden_topics(self, asked: int) -> Failure | None:
        """Why topics may be invisible to this principal in the answers of a broker, if they may be. Metadata and
        descriptions leave out topics that it may not describe. Each broker applies ACLs in its own time, so ask the
        broker whose answers are used.

        The test asks for the Metadata of a random name that no topic has. Brokers refuse it exactly if they refuse
        topics without an ACL of their own (`KafkaApis.handleTopicMetadataRequest`). The test does not detect a topic
        with its own DENY.
        """
        nowhere = f"txnscan-{self.random_token()}"
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED.name
        try:
            errors = dict(read_metadata(self.send, asked, [nowhere]).topic_errors)
        except RequestFailed as failed:
            return failed.failure.within("it is not known whether topics are invisible")
        if errors.get(nowhere) != refused:
            return None
        return Failure("topics may be invisible", refused, needs=DESCRIBE_TOPICS.permission)

    def hidden_ids(self, asked: Iterable[int]) -> Failure | None:
        """Why transactional ids may be invisible to this principal in the listings of these brokers, if they are. A
        listing leaves out ids that it may not describe.

        The test describes a random id. A broker refuses it exactly if it refuses ids without an ACL of their own,
        before it looks at who coordinates them (`KafkaApis.handleDescribeTransactionsRequest`). The test does not
        detect an id with its own DENY; a sweep does (`visibility.py`). A broker that does not answer is left out: then
        its listing has a failure, too.
        """
        nobody = f"txnscan-{self.random_token()}"
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

        def refuses(broker_id: int) -> bool:
            try:
                return describe_transactions(self.send, broker_id, [nobody])[nobody].error_code == refused
            except (RequestFailed, KeyError):
                return False

        if not any(self.in_parallel(refuses, asked)):
            return None
        return needing(Failure("transactional ids may be invisible", refused.name), DESCRIBE_IDS.permission)

    def agreed_metadata(self, topics: Iterable[str]) -> AgreedMetadata:
        """The present metadata of these topics that no broker contradicts."""
        known = tuple(self._brokers)
        if self._outside_kraft:
            return read_all_views(self.send, known, topics, self.in_parallel, self._learn)
        wanted = frozenset(topics)

        def ask() -> AgreedMetadata:
            return read_agreed(self.send, known, wanted, self.in_parallel, self._learn, self._reached)

        agreed = ask()
        return confirmed_by_quorum(self.send_to_controller, agreed, ask, self.sleep) if agreed.errors else agreed

    def topics_gone(
        self, view: ClusterView, known: Iterable[tuple[str, str]], *, outside_kraft: bool
    ) -> dict[tuple[str, str], str]:
        """The topics, by name and id, that are gone according to all brokers, and how they ended. Brokers are asked
        only about topics that the view lacks. outside_kraft: whether a broker is not in KRaft mode.
        """
        missing = {*known} - {(topic.name, topic.topic_id) for topic in view.topics}
        if not missing:
            return {}
        agreed = self.agreed_metadata({TRANSACTION_STATE_TOPIC, *(name for name, _ in missing)})
        # The theory is in `metadata_image.py`.
        if outside_kraft and not agreed.all_show(TRANSACTION_STATE_TOPIC):
            return {}
        return {which: how for which in missing if (how := agreed.gone(*which)) is not None}

    def max_timeout_ms(self) -> tuple[int, tuple[Unobserved, ...]]:
        """The highest `transaction.max.timeout.ms` of all brokers. A broker that does not report its value counts with
        the default.
        """
        assumed = f"transaction.max.timeout.ms is taken to be {duration(_DEFAULT_MAX_TIMEOUT_MS)}"

        def ask(broker_id: int) -> int | Unobserved:
            try:
                return transaction_max_timeout_ms(self.send, broker_id)
            except RequestFailed as failed:
                return Unobserved(
                    "configs", needing(failed.failure, CONFIGS_OF_BROKERS.permission).within(assumed), broker_id
                )

        answers = self.in_parallel(ask, sorted(self._brokers))
        timeouts = [_DEFAULT_MAX_TIMEOUT_MS if isinstance(answer, Unobserved) else answer for answer in answers]
        return max(timeouts), tuple(answer for answer in answers if isinstance(answer, Unobserved))

    def separate_by_claim(
        self,
        suspects: Mapping[Key, WideRow],
        always: Collection[Key],
        agreed: AgreedMetadata,
        on_progress: OnProgress,
        read_from_ms: int,
    ) -> ClaimedAndUnclaimed:
        """Separates the open transactions into claimed transactions and partitions that need the proof.

        suspects: the partitions on which the wide read saw open transactions. always: partitions that are read with
        proof, even if all their open transactions are claimed. agreed: the metadata of `__transaction_state`.
        read_from_ms: see CountedClaims.
        """
        producer_ids = {producer.producer_id for row in suspects.values() for producer in row.open_producers}
        found = counted_claims(self.ask_claims(producer_ids, on_progress), agreed, read_from_ms)
        claimed, left = separate_by_claim(suspects, always, found.claimant)
        return ClaimedAndUnclaimed(tuple(claimed), left, found.prepared, found.transactional_ids)

    def ask_claims(self, producer_ids: Collection[int], on_progress: OnProgress) -> list[ClaimAnswers]:
        """Every broker's report of its ids in a transaction."""
        return self.in_parallel(
            lambda broker_id: ask_claims(self.send, broker_id, producer_ids), sorted(self._brokers), on_progress
        )

    def coordinator_listing(
        self,
        open_topics: Mapping[int, frozenset[str]],
        agreed: AgreedMetadata,
        on_progress: OnProgress,
    ) -> CoordinatorListing:
        """The listing of the coordinators, with its coverage. Repeated while coverage may still become complete.

        open_topics: by producer id, the topics in which it has open transactions. agreed: the metadata before.
        """
        before = agreed
        for attempt in range(1, LISTING_TRIES + 1):
            answers = self.ask_coordinators(before, open_topics, on_progress)
            after = self.metadata_after(answers)
            listing = self.concluded(answers, before, after)
            if not listing.may_improve or attempt == LISTING_TRIES or self.deadline.is_up:
                break
            self.sleep(RETRY_WAIT_S * attempt)
            before = after
        return listing

    def metadata_after(self, answers: Iterable[CoordinatorAnswers], topics: Iterable[str] = ()) -> AgreedMetadata:
        """The agreed metadata of `__transaction_state` and of these topics, to be asked for after these answers. If one
        of them is of another cluster, the metadata proves nothing.
        """
        after = self.agreed_metadata({TRANSACTION_STATE_TOPIC, *topics})
        return replace(after, errors=(*after.errors, *strangers(answers, after)))

    def concluded(
        self, answers: Iterable[CoordinatorAnswers], before: AgreedMetadata, after: AgreedMetadata
    ) -> CoordinatorListing:
        """The listing that these answers prove. before, after: see `conclude`."""
        return conclude(answers, before, after, self.principal)

    def ask_coordinators(
        self, before: AgreedMetadata, open_topics: Mapping[int, frozenset[str]], on_progress: OnProgress
    ) -> list[CoordinatorAnswers]:
        """The answers of all brokers that this metadata names. open_topics: see `ask_coordinators`."""
        partition_count = len(before.indexes(TRANSACTION_STATE_TOPIC))
        if partition_count > COORDINATOR_PARTITIONS_MAX:
            return []
        probes, log = probe_ids(partition_count, self.random_token), MetadataRound([TRANSACTION_STATE_TOPIC])

        def ask(broker_id: int) -> CoordinatorAnswers:
            return ask_coordinators(self.send, broker_id, log, probes, open_topics, before.reached_by(broker_id))

        return self.in_parallel(ask, [broker.broker_id for broker in before.brokers], on_progress)

    def close(self) -> None:
        """Closes all connections of this process."""
        if self._pool is not None:
            self._pool.shutdown()
        self._clients.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if exc_info[0] is KeyboardInterrupt:
            # Threads wait for brokers that may not answer. After Ctrl-C the process does not wait for these threads.
            threading.Thread(target=self.close, daemon=True).start()
        else:
            self.close()


def clients_of(
    config: ScanConfig, settings: ConnectionSettings, sweep_id: str, limit_ms: int, *, waits_ms: int = 0
) -> ClientFactory:
    """The connections of a sweep, or of other questions, for as long as the timeout of `config` allows. limit_ms:
    without a timeout. waits_ms: the time between the requests, which the limits do not include.
    """
    timeout_ms = None if config.timeout_ms is None else config.timeout_ms + waits_ms
    time_left = Deadline.after(timeout_ms, limit_ms + waits_ms).time_left()
    return ClientFactory(sweep_id, settings, config.brokers, time_left)


def opened_cluster(config: ScanConfig, *, waits_ms: int = 0) -> Cluster:
    """The cluster of these settings, for questions that are no sweep. waits_ms: see clients_of. Raises ConfigError."""
    clients = clients_of(config, config.connection(), f"ask-{uuid.uuid4()}", QUESTION_MS, waits_ms=waits_ms)
    return Cluster(clients, deadline=clients.client().deadline)
