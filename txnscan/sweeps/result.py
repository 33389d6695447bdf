"""The result of a sweep: plain values, without sockets or Spark."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from txnscan.coordinators.agreed_metadata import TOPIC_RECREATED, WITH_TOPIC
from txnscan.engine.choice import WITHOUT_SESSION, EngineChoice
from txnscan.engine.clock import BootTime, StageTime
from txnscan.kafka.failure import Failure, Unobserved
from txnscan.kafka.security.acls import UNKNOWN_PRINCIPAL
from txnscan.kafka.topology import Key
from txnscan.reads.observation import TransactionKey
from txnscan.sweeps.history import Incident, Incidents
from txnscan.sweeps.restored import Fall, LogPosition, is_of_other_log
from txnscan.txnlog.facts import Facts, ProducerFacts, together
from txnscan.verdict.evidence import Judged, OutcomeEvidence, Verdict
from txnscan.waiting.blocking import blocks
from txnscan.waiting.complete_up_to import TopicRead
from txnscan.waiting.impact import CarriedImpact, Impact
from txnscan.waiting.writability import UNREAD, WriteStates

# How an incident ended: without a marker of `apply`, and its topic still exists.
ENDED = "ended"
# The same, if the data was committed: by a COMMIT marker, or by an ABORT marker, which deleted it.
COMPLETED, TORN = "completed", "torn"


@dataclass(frozen=True, slots=True)
class HealthyCount:
    """The number of healthy transactions of a verdict that a sweep saw on the partitions of a topic."""

    topic: str
    verdict: str
    transactions: int


# Called with the name of a stage, the number of finished units, and the number of all units. Calls follow one another.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Scan:
    """A finished sweep: the plan, the reads, and a judgement on every open transaction.

    max_timeout_ms: the longest `transaction.max.timeout.ms` of the brokers. store_all: whether healthy transactions get
    rows in the tables too. proven: the topic id of each partition whose last read was proven to come from its leader.
    ends: the leader epoch and high watermark of that read. boot: the time since boot when the sweep finished. stages:
    the duration of each stage. principal: the principal that brokers most likely see. broker_ids: the brokers in
    Metadata. impacts: of hanging transactions, and of live transactions that get a row (`waiting/blocking.py`), if the
    sweep looked for them. blocking_after_ms: the age from which live transactions get a row. read_bytes: bytes of
    producer states and of `__transaction_state` that were read. outcome_evidence: the facts about hanging transactions
    whose log was read. log_epochs: by partition of `__transaction_state`, the last leader epoch that all brokers agreed
    on. topics_gone: by name and id, the topics with incidents that all brokers agree are gone, and how: TOPIC_DELETED
    or TOPIC_RECREATED. engine: the engine that read the partitions, and why. topic_reads: of the topics of
    `complete_up_to`, concluded. endings: COMPLETED or TORN for incidents of committed data, if the marker is known.
    replicated: the partitions in whose log an incident ended, as far as an election cannot undo that (`endings.py`).
    history: the number of the cluster's history. fall: how the sweep noticed that it went back, if it did. vetoes_from:
    the first history whose facts still veto. vetoes_dropped: how many facts do not veto any more, if the user began
    this history. image_offset, positions: of now, for later sweeps (`restored.py`). writes: whether the transaction
    log, and the partitions of old or decided transactions, take writes, if the sweep looked for it.
    """

    sweep_id: str
    cluster_id: str
    scope: str
    started_at_ms: int
    finished_at_ms: int
    late_after_ms: int
    max_timeout_ms: int
    brokers: int
    partitions_planned: int
    partitions_failed: int
    producers: int
    coordinators_planned: int
    coordinators_proven: int
    transactional_ids: int
    visibility_failures: tuple[Failure, ...]
    proven: Mapping[Key, str]
    transactions: tuple[Judged, ...]
    errors: tuple[Unobserved, ...]
    warnings: tuple[str, ...]
    settings: str
    version: str
    store_all: bool = False
    principal: str = UNKNOWN_PRINCIPAL
    broker_ids: tuple[int, ...] = ()
    impacts: Mapping[TransactionKey, Impact] = field(default_factory=dict)
    read_bytes: int = 0
    boot: BootTime | None = None
    stages: tuple[StageTime, ...] = ()
    outcome_evidence: Mapping[TransactionKey, OutcomeEvidence] = field(default_factory=dict)
    ends: Mapping[Key, tuple[int, int | None]] = field(default_factory=dict)
    log_epochs: Mapping[int, int] = field(default_factory=dict)
    topics_gone: Mapping[tuple[str, str], str] = field(default_factory=dict)
    engine: EngineChoice = WITHOUT_SESSION
    topic_reads: tuple[TopicRead, ...] = ()
    blocking_after_ms: int = 0
    endings: Mapping[TransactionKey, str] = field(default_factory=dict)
    replicated: frozenset[Key] = frozenset()
    history: int = 0
    fall: Fall | None = None
    vetoes_from: int = 0
    vetoes_dropped: int | None = None
    image_offset: int | None = None
    positions: tuple[LogPosition, ...] = ()
    writes: WriteStates = UNREAD

    @property
    def named_principal(self) -> str | None:
        """The principal of the sweep, if SASL names it."""
        return None if self.principal == UNKNOWN_PRINCIPAL else self.principal

    def over(self, incidents: Incidents) -> dict[TransactionKey, str]:
        """The incidents that the sweep proved to be over, and how: ENDED, COMPLETED, TORN, TOPIC_DELETED or
        TOPIC_RECREATED.

        An incident on an existing topic is over only if the leader's answer for its partition was proven, the
        transaction is not open with any verdict, and the log is replicated so far. A topic id that was not known is no
        other topic id, but a lower position is one of another log.
        """
        found = self.seen_over(incidents)
        return {which: how for which, how in found.items() if how in WITH_TOPIC or which.key in self.replicated}

    def seen_over(self, incidents: Incidents) -> dict[TransactionKey, str]:
        """The same, but an election may undo the ends on existing topics."""
        if not incidents:
            return {}
        seen = {j.observation.transaction_key for j in self.transactions if j.judgement.verdict is not Verdict.GONE}
        found = {}
        for which, incident in incidents.items():
            topic_id = self.proven.get(which.key)
            if (how := self.topics_gone.get((which.topic, which.topic_id))) is not None:
                found[which] = how
            elif topic_id is not None and which not in seen:
                is_other = self._is_of_other_topic(which, topic_id, incident)
                found[which] = TOPIC_RECREATED if is_other else self.endings.get(which, ENDED)
        return found

    def _is_of_other_topic(self, which: TransactionKey, topic_id: str, incident: Incident) -> bool:
        if "" not in (which.topic_id, topic_id):
            return which.topic_id != topic_id
        if which.key not in self.ends:
            return False
        now = LogPosition(which.topic, topic_id, which.partition, *self.ends[which.key])
        return is_of_other_log(incident.position(which), now)

    @property
    def read_epochs(self) -> Mapping[int, int]:
        """By partition of `__transaction_state`, the leader epoch at which it was read for hanging transactions."""
        news = [evidence.news for evidence in self.outcome_evidence.values()]
        scanned = {log.partition: log.leader_epoch for one in news for scan in one.scans for log in scan.logs}
        return scanned | {read.partition: read.leader_epoch for one in news for read in one.reads}

    def impact(self, judged: Judged) -> Impact | None:
        """The impact of a transaction, if it hangs or is live and gets a row, and if the sweep looked for it."""
        return self.impacts.get(judged.observation.transaction_key)

    def blocks(self, judged: Judged) -> bool | None:
        """Whether a live transaction holds readers back. None if that is not known, and for other transactions."""
        return blocks(judged, self.impact(judged), self.blocking_after_ms)

    @property
    def blocking(self) -> tuple[Judged, ...]:
        """The live transactions that hold readers back."""
        return tuple(judged for judged in self.transactions if self.blocks(judged))

    def evidence_of_outcome(self, judged: Judged) -> OutcomeEvidence | None:
        """The facts about a transaction's outcome, if the log was read for it."""
        return self.outcome_evidence.get(judged.observation.transaction_key)

    def carried_impact(self, judged: Judged) -> CarriedImpact | None:
        """The part of the impact that the next sweep needs; None if this sweep did not look for it, and for a live
        transaction.
        """
        impact, o = self.impact(judged), judged.observation
        if impact is None or impact.cause is None:
            return None
        since_ms = o.second.read_at_ms if impact.lso_since_ms is None else impact.lso_since_ms
        known_since_ms = None if o.second.last_stable_offset is None else since_ms
        owner = impact.owner.transactional_id
        return CarriedImpact(
            o.second.last_stable_offset, known_since_ms, impact.cause, impact.cause_reason or "", owner, impact.event_id
        )

    @property
    def stored(self) -> tuple[Judged, ...]:
        """The transactions that get a row in the tables. Healthy ones get one only with `store_all`, or if their
        impact was examined.
        """
        return tuple(j for j in self.transactions if self.store_all or not j.healthy or self.impact(j) is not None)

    @property
    def healthy(self) -> tuple[HealthyCount, ...]:
        """The healthy transactions, counted by topic and verdict."""
        found = Counter((j.observation.topic, j.judgement.verdict.value) for j in self.transactions if j.healthy)
        return tuple(HealthyCount(*which, number) for which, number in sorted(found.items()))

    @property
    def candidates(self) -> tuple[Judged, ...]:
        return tuple(judged for judged in self.transactions if judged.candidate)

    @property
    def counts(self) -> dict[str, int]:
        """The number of transactions of each verdict; zero is included."""
        found = Counter(judged.judgement.verdict for judged in self.transactions)
        return {verdict.value: found[verdict] for verdict in Verdict}

    @property
    def complete(self) -> bool:
        """Whether everything in scope was observed: every partition answered, every coordinator is proven, no
        transactional id is hidden, and no verdict is indeterminate. Any entry in `errors` makes a sweep incomplete.
        """
        return (
            not self.errors
            and self.partitions_failed == 0
            and self.coordinators_proven == self.coordinators_planned
            and not self.visibility_failures
            and self.counts[Verdict.INDETERMINATE] == 0
        )


def news_of(scan: Scan) -> Facts:
    """The facts that a sweep learned, each under its own producer id."""
    found: dict[int, list[ProducerFacts]] = defaultdict(list)
    for evidence in scan.outcome_evidence.values():
        found[evidence.observation.producer_id].append(replace(evidence.news, commits=()))
        for commit in evidence.news.commits:
            found[commit.producer_id].append(ProducerFacts(commits=(commit,)))
    return {producer_id: together(facts) for producer_id, facts in found.items()}
