"""The state that the steps of a sweep pass on. The steps are in `pipeline.py`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from txnscan.config import ScanConfig
from txnscan.coordinators.agreed_metadata import AgreedMetadata
from txnscan.coordinators.claims import ClaimedAndUnclaimed
from txnscan.coordinators.cluster import Cluster
from txnscan.coordinators.coordinator_listing import CoordinatorListing
from txnscan.coordinators.metadata_image import Latest
from txnscan.engine import Engine
from txnscan.engine.clock import BootTime
from txnscan.kafka.failure import Failure, Unobserved
from txnscan.kafka.topology import ClusterView, Key, Topic
from txnscan.parallel import OnProgress
from txnscan.reads.observation import Observation, TransactionKey
from txnscan.reads.rows import ProvenRow, WideRow
from txnscan.sweeps.checkpoints import OpenFiles, open_files
from txnscan.sweeps.history import History, Incidents, Sightings, StoredFacts
from txnscan.sweeps.reader import SweepReader, Wide
from txnscan.sweeps.restored import Fall, LogPosition, Past
from txnscan.sweeps.result import Progress
from txnscan.verdict.evidence import Judged, OutcomeEvidence
from txnscan.waiting.complete_up_to import TopicRead
from txnscan.waiting.impact import Impact
from txnscan.waiting.writability import UNREAD, WriteStates


@dataclass(frozen=True, slots=True)
class Run:
    """A sweep: what all of its steps share. Most steps read through `reader`.

    now_ms: the clock of this machine. history: what earlier sweeps left. reads_log: whether to check hanging
    transactions against the transaction log, and to read their outcomes there. reads_impact: whether to find out what
    hanging and live transactions block, and who owns them. reads_stops: whether to count, for each broker, the open
    transactions that its stop would leave without a leader. looks_at: partitions of which each live transaction is
    looked at for committed data that it joined, if only to answer about a few. open_checkpoint: opens a checkpoint of a
    streaming query. boot: the time since boot.
    """

    config: ScanConfig
    cluster: Cluster
    engine: Engine
    sweep_id: str
    now_ms: Callable[[], int]
    history: History
    progress: Progress
    reads_log: bool = True
    reads_impact: bool = False
    reads_stops: bool = False
    looks_at: Collection[Key] = ()
    open_checkpoint: OpenFiles = open_files
    boot: Callable[[], BootTime | None] = lambda: None
    reader: SweepReader = field(init=False)
    started_at_ms: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reader", SweepReader(self.cluster, self.engine, self.config))
        object.__setattr__(self, "started_at_ms", self.now_ms())

    def stage(self, name: str) -> OnProgress:
        """The progress callback of a step."""
        return partial(self.progress, name)


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """The plan of a sweep. latest: the metadata behind the plan. past: waits for the stored positions. unresolved:
    waits for the incidents of earlier sweeps. hidden_topics: why topics may be hidden from this principal, or None.
    hidden_matches: the same of a sweep of topics that patterns match.
    """

    latest: Latest
    past: Callable[[], Past]
    unresolved: Callable[[], Incidents]
    hidden_topics: Failure | None
    max_timeout_ms: int
    late_after_ms: int
    blocking_after_ms: int
    errors: tuple[Unobserved, ...]
    hidden_matches: Failure | None = None


@dataclass(frozen=True, slots=True)
class AllRead:
    """The read of every partition, without proof. suspects: the partitions with open transactions. always: the topic
    ids of partitions that are read with proof in any case: those with incidents, and `Run.looks_at`. past: the stored
    positions. incidents: first of every history of the cluster, after `believed` of the present one.
    """

    wide: Wide
    read_at_ms: int
    topics: Sequence[Topic]
    suspects: Mapping[Key, WideRow]
    incidents: Incidents
    stored: StoredFacts
    always: Mapping[Key, str]
    past: Past

    @property
    def view(self) -> ClusterView:
        """The metadata for all later steps."""
        return self.wide.view


@dataclass(frozen=True, slots=True)
class Claimed:
    """separated: the claimed transactions, and the partitions that need proof. claimed: an observation of each claimed
    transaction. last_seen: waits for the sightings of earlier sweeps; None until they are needed.
    """

    separated: ClaimedAndUnclaimed
    topic_ids: Mapping[Key, str]
    claimed: Sequence[Observation]
    last_seen: Callable[[], Sightings] | None


@dataclass(frozen=True, slots=True)
class Proof:
    """The evidence about the partitions that need proof: the first read, what the coordinators said after it, the
    second read of the same partitions after that, and the agreed metadata after all of it, which confirms all of it.
    last_seen: see Claimed. errors: of brokers that did not answer or lagged at the end.
    """

    first: Mapping[Key, ProvenRow]
    listing: CoordinatorListing
    second: Mapping[Key, ProvenRow]
    agreed: AgreedMetadata
    last_seen: Callable[[], Sightings] | None
    errors: tuple[Unobserved, ...]


@dataclass(frozen=True, slots=True)
class HistoryNow:
    """The history of the cluster, as `Scan` has it. is_new: whether it begins with this sweep."""

    history: int
    vetoes_from: int
    fall: Fall | None = None
    is_new: bool = False
    vetoes_dropped: int | None = None
    image_offset: int | None = None
    positions: tuple[LogPosition, ...] = ()


@dataclass(frozen=True, slots=True)
class Enriched:
    """The judged transactions with their outcomes; the facts behind the outcomes; and the impact of hanging
    transactions, and of live transactions that get a row.

    unsure: partitions whose open transaction may or may not continue an incident. topic_reads: of the topics of
    `complete_up_to`, with a failure for each partition without a proven read. writes: see Scan.
    """

    judged: Sequence[Judged]
    outcome_evidence: Sequence[OutcomeEvidence]
    impacts: Mapping[TransactionKey, Impact]
    warnings: tuple[str, ...]
    unsure: frozenset[Key] = frozenset()
    topic_reads: tuple[TopicRead, ...] = ()
    topic_errors: tuple[Unobserved, ...] = ()
    writes: WriteStates = UNREAD
