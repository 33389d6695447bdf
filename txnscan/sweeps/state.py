"""The state that the steps of a sweep pass on. The steps are in `pipeline.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from txnscan.config import ScanConfig
from txnscan.coordinators.agreed_metadata import AgreedMetadata
from txnscan.coordinators.claims import ClaimedAndUnclaimed
from txnscan.coordinators.cluster import Cluster
from txnscan.coordinators.metadata_image import Latest
from txnscan.coordinators.snapshot import Snapshot
from txnscan.engine import Engine
from txnscan.engine.clock import BootTime
from txnscan.kafka.failure import Failure, Unobserved
from txnscan.kafka.topology import ClusterView, Key, Topic
from txnscan.parallel import OnProgress
from txnscan.reads.observation import Observation, TransactionKey
from txnscan.reads.rows import FencedRow, WideRow
from txnscan.sweeps.checkpoints import OpenFiles, open_files
from txnscan.sweeps.history import History, Incidents, Sightings, StoredFacts
from txnscan.sweeps.reader import Reader, Wide
from txnscan.sweeps.restored import Fall, LogPosition, Past
from txnscan.sweeps.result import Progress
from txnscan.verdict.evidence import Judged, OutcomeEvidence
from txnscan.waiting.complete_up_to import TopicRead
from txnscan.waiting.impact import Impact
from txnscan.waiting.writability import UNREAD, WriteStates


@dataclass(frozen=True, slots=True)
class Run:
    """The arguments that all steps of a sweep share. reads_log, reads_impact, reads_stops, open_checkpoint: see
    `scan`.
    """

    config: ScanConfig
    cluster: Cluster
    engine: Engine
    reader: Reader
    sweep_id: str
    started_at_ms: int
    now_ms: Callable[[], int]
    history: History
    progress: Progress
    reads_log: bool
    reads_impact: bool
    boot: Callable[[], BootTime | None]
    open_checkpoint: OpenFiles = open_files
    reads_stops: bool = False

    def stage(self, name: str) -> OnProgress:
        """The progress callback of a step."""
        return partial(self.progress, name)


@dataclass(frozen=True, slots=True)
class Planned:
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
    """The read of every partition, without proof. suspects: the partitions with open transactions. of_incidents: the
    topic ids of partitions with incidents. past: the stored positions. incidents: first of every history of the
    cluster, after `believed` of the present one.
    """

    wide: Wide
    read_at_ms: int
    topics: Sequence[Topic]
    suspects: Mapping[Key, WideRow]
    incidents: Incidents
    stored: StoredFacts
    of_incidents: Mapping[Key, str]
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

    first: Mapping[Key, FencedRow]
    snapshot: Snapshot
    second: Mapping[Key, FencedRow]
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
