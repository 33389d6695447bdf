"""What the driver asks of the cluster as a whole: what brokers there are, what they agree on, the coordinators.

Everything here asks every broker, in parallel, and returns failures as data. Partitions are read elsewhere, by the
engines (`reads.py`).
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from txnscan.coordinators.claims import ClaimAnswers, ClaimSplit, ask_claims, counted_claims, split_by_claim
from txnscan.coordinators.metadata_image import Latest, catch_up, read_latest
from txnscan.coordinators.metadata_quorum import Agreement, read_agreement
from txnscan.coordinators.snapshot import CoordinatorAnswers, Snapshot, ask_coordinators, conclude
from txnscan.errors import TxnscanError
from txnscan.kafka.client.client import Send
from txnscan.kafka.client.deadline import Deadline
from txnscan.kafka.client.factory import ClientFactory
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.failure import Failure, FailureCode, Permission, Unobserved
from txnscan.kafka.protocol.coordinator_partition import probe_ids
from txnscan.kafka.protocol.describe_configs import transaction_max_timeout_ms
from txnscan.kafka.protocol.metadata import MetadataRound, read_metadata
from txnscan.kafka.security.acls import DESCRIBE_CONFIGS, explained, needing
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Broker, ClusterView, Key
from txnscan.kafka.units import duration
from txnscan.reads.rows import OnProgress, WideRow

Item = TypeVar("Item")
Result = TypeVar("Result")

DRIVER_THREADS = 32
# A coordinator that was just elected loads for a moment; what is not covered after these tries stays uncovered.
SNAPSHOT_TRIES = 3
_RETRY_WAIT_S = 0.5
# The broker's own default, for brokers that do not report theirs.
_DEFAULT_MAX_TIMEOUT_MS = 900_000


class ClusterUnreachable(TxnscanError):
    """No bootstrap server answered; the message is one sentence for users."""

    option = "--bootstrap-server"

    @property
    def failure(self) -> Failure:
        """The same as data."""
        return Failure(str(self), FailureCode.UNREACHABLE)


class Cluster:
    """A cluster as the driver sees it. Use it as a context manager.

    threads: how many brokers to ask at once; with 0 they are asked in order, in the caller's thread.
    deadline: of the sweep. sleep: waits between tries, in seconds. random_token: makes ids that no application has.
    read_bytes: bytes of producers' states and of `__transaction_state` that were read, by the driver or by executors.
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
        # Keeps what was decoded of the last answers about all topics.
        self._metadata = MetadataRound()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="txnscan-cluster") if threads else None
        self._sleep = sleep
        self.deadline = deadline if deadline is not None else Deadline()
        self.random_token = random_token
        self.read_bytes = 0

    @property
    def principal(self) -> str:
        """The principal that brokers see, for the commands that grant it permissions."""
        return self._clients.settings.principal

    def format_failure(self, failure: Failure) -> str:
        """A failure in words, with what to grant this principal."""
        return explained(failure, self.principal)

    @property
    def send(self) -> Send:
        return self._client.send

    @property
    def clients(self) -> ClientFactory:
        """What an executor needs to reach the brokers known now."""
        clients = replace(self._clients, brokers=tuple(self._brokers.values()))
        left = self.deadline.time_left()
        return clients if left is None else replace(clients, time_left=left)

    def sleep(self, seconds: float) -> None:
        """Waits so long, or until the sweep's time is up."""
        self._sleep(min(seconds, self.deadline.left_s))

    def _learn(self, brokers: Iterable[Broker]) -> None:
        named = tuple(brokers)
        self._client.learn(named)
        self._brokers.update((broker.broker_id, broker) for broker in named)

    def in_parallel(self, call: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """What the call returns for each item, in their order."""
        return list(self._pool.map(call, items) if self._pool is not None else map(call, items))

    def view(self, topics: Iterable[str] | None = None) -> ClusterView:
        """The Metadata of the first broker that answers: known ones first, then the bootstrap servers.

        Raises ClusterUnreachable.
        """
        failures = []
        for broker_id in (*sorted(self._brokers), *self._bootstrap):
            try:
                view = read_metadata(self.send, broker_id, topics)
            except RequestFailed as failed:
                failures.append(failed.error)
                continue
            finally:
                self._tried.add(broker_id)
            self._learn(view.brokers)
            return view
        raise ClusterUnreachable("; ".join(failures))

    def latest(self, topics: Iterable[str] | None = None) -> Latest:
        """The latest metadata that any broker has, of these topics or of all. Raises ClusterUnreachable."""
        if not self._brokers:
            self.view([])
        metadata = MetadataRound(topics) if topics is not None else self._metadata
        try:
            found = read_latest(self.send, self._brokers, metadata, self.in_parallel, self._learn)
            if found.unreachable() or len(found.view.brokers) == 1:
                # The broker may be cut off, and what it names may be gone: other bootstrap servers may know more.
                known = {*self._brokers, *self._other_bootstrap_servers()}
                if known > found.reported.keys():
                    found = read_latest(self.send, known, metadata, self.in_parallel, self._learn)
        except RequestFailed as failed:
            raise ClusterUnreachable(failed.error) from None
        return found

    def _other_bootstrap_servers(self) -> Iterator[int]:
        """Those that are not known to be a broker, and that did not fail to answer before."""
        known = {broker.address for broker in self._brokers.values()}
        return (b.broker_id for b in self._clients.brokers if b.broker_id not in self._tried and b.address not in known)

    def lagging(self, latest: Latest, offset: int | None) -> tuple[Unobserved, ...]:
        """The brokers that did not answer, and those whose metadata stays behind this offset for some seconds."""
        behind = {} if offset is None else latest.behind(offset)
        late = catch_up(self.send, behind, offset or 0, self.in_parallel, self.sleep)
        return (*latest.unreachable(), *late)

    def hidden_topics(self) -> Failure | None:
        """Why topics may be invisible to this principal, or None. Metadata leaves out what it may not describe.

        To find out, Metadata is asked for a name that no topic has. It is refused exactly where topics without a rule
        of their own are (`KafkaApis.handleTopicMetadataRequest`). A topic with a DENY of its own is not found so.
        """
        nowhere = f"txnscan-{self.random_token()}"
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED.name
        try:
            errors = dict(self.view([nowhere]).topic_errors)
        except ClusterUnreachable as error:
            return error.failure.within("it is not known whether topics are invisible")
        if errors.get(nowhere) != refused:
            return None
        return Failure("topics may be invisible", refused, needs=Permission("Describe", "Topic"))

    def agreement(self, topics: Iterable[str]) -> Agreement:
        """What all brokers agree on about these topics, now."""
        return read_agreement(self.send, tuple(self._brokers), topics, self.in_parallel, self._learn)

    def topics_gone(self, view: ClusterView, known: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """Which of these topics, by name and id, all brokers agree are gone, and how. Only those are asked about that
        the view does not have.
        """
        missing = {*known} - {(topic.name, topic.topic_id) for topic in view.topics}
        if not missing:
            return {}
        agreed = self.agreement({name for name, _ in missing})
        return {which: how for which in missing if (how := agreed.gone(*which)) is not None}

    def max_timeout_ms(self) -> tuple[int, tuple[Unobserved, ...]]:
        """The longest `transaction.max.timeout.ms` of all brokers; one that does not report its own counts with the
        default.
        """
        assumed = f"transaction.max.timeout.ms is taken to be {duration(_DEFAULT_MAX_TIMEOUT_MS)}"

        def ask(broker_id: int) -> int | Unobserved:
            try:
                return transaction_max_timeout_ms(self.send, broker_id)
            except RequestFailed as failed:
                return Unobserved("configs", needing(failed.failure, DESCRIBE_CONFIGS).within(assumed), broker_id)

        answers = self.in_parallel(ask, sorted(self._brokers))
        timeouts = [_DEFAULT_MAX_TIMEOUT_MS if isinstance(answer, Unobserved) else answer for answer in answers]
        return max(timeouts), tuple(answer for answer in answers if isinstance(answer, Unobserved))

    def split_by_claim(
        self, suspects: Mapping[Key, WideRow], always: Collection[Key], on_progress: OnProgress
    ) -> ClaimSplit:
        """Which open transactions coordinators report as theirs, and what is left to be proven.

        suspects: what the wide read saw open. always: partitions that are read with proof, even if all that is open
        there is claimed.
        """
        producer_ids = {producer.producer_id for row in suspects.values() for producer in row.open_producers}
        answers = self.ask_claims(producer_ids, on_progress)
        # What is left is worked out before it is known who leads `__transaction_state`, so that one round asks for all
        # leaders. Knowing that rarely changes what is left.
        likely = counted_claims(answers, None)
        claimed, left = split_by_claim(suspects, always, likely.claimant)
        agreed = self.agreement({TRANSACTION_STATE_TOPIC, *(topic for topic, _ in (*left, *always))})
        found = counted_claims(answers, agreed)
        if found.claims != likely.claims:
            claimed, left = split_by_claim(suspects, always, found.claimant)
        return ClaimSplit(tuple(claimed), left, agreed, found.prepared, found.transactional_ids)

    def ask_claims(self, producer_ids: Collection[int], on_progress: OnProgress) -> list[ClaimAnswers]:
        """What every broker reports about the ids in a transaction."""
        ask = self._counted(lambda broker_id: ask_claims(self.send, broker_id, producer_ids), on_progress)
        return self.in_parallel(ask, sorted(self._brokers))

    def snapshot(
        self,
        open_producer_ids: frozenset[int],
        open_topics: frozenset[str],
        agreed: Agreement,
        on_progress: OnProgress,
    ) -> tuple[Snapshot, Agreement]:
        """The snapshot of the coordinators, with its coverage, and what all brokers agree on after it. Taken again
        while coverage may still become complete: not where a broker lacks an API.

        agreed: the last round on `__transaction_state` and these topics.
        """
        topics = {TRANSACTION_STATE_TOPIC, *open_topics}
        before = agreed
        for attempt in range(1, SNAPSHOT_TRIES + 1):
            answers = self._ask_coordinators(before, open_producer_ids, on_progress)
            after = self.agreement(topics)
            snapshot = conclude(answers, before, after, open_topics, self.principal)
            passing = [error for error in snapshot.coverage_errors if error.failure.lacks_api is None]
            if not passing or snapshot.coordinators_planned == 0 or attempt == SNAPSHOT_TRIES:
                break
            self.sleep(_RETRY_WAIT_S * attempt)
            before = after
        return snapshot, after

    def _ask_coordinators(
        self, before: Agreement, open_producer_ids: frozenset[int], on_progress: OnProgress
    ) -> list[CoordinatorAnswers]:
        probes = probe_ids(len(before.indexes(TRANSACTION_STATE_TOPIC)), self.random_token)

        def ask(broker_id: int) -> CoordinatorAnswers:
            return ask_coordinators(self.send, broker_id, probes, open_producer_ids)

        return self.in_parallel(self._counted(ask, on_progress), [broker.broker_id for broker in before.brokers])

    def _counted(self, ask: Callable[[int], Result], on_progress: OnProgress) -> Callable[[int], Result]:
        """The same, with progress in brokers."""
        done = 0

        def counted(broker_id: int) -> Result:
            nonlocal done
            answer = ask(broker_id)
            done += 1
            on_progress(done, max(done, len(self._brokers)))
            return answer

        return counted

    def close(self) -> None:
        """Ends all connections of this process."""
        if self._pool is not None:
            self._pool.shutdown()
        self._clients.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if exc_info[0] is KeyboardInterrupt:
            # Threads wait for brokers that may not answer; after Ctrl-C nobody waits for these threads.
            threading.Thread(target=self.close, daemon=True).start()
        else:
            self.close()
