"""Known causes of hanging and stuck transactions: bugs of Kafka and of clients, and settings. Data, and pure rules.

Each row has its source and its certainty. `exposed` selects the rows that apply to a cluster, from the answers of its
brokers to ApiVersions and DescribeConfigs. The highest `metadata.version` that a broker supports shows its release as a
range. The release of a broker without KRaft is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from txnscan.kafka.units import duration, whole_number
from txnscan.waiting.cause import Cause

VERIFICATION = "transaction.partition.verification.enable"
UNCLEAN = "unclean.leader.election.enable"
MAX_TIMEOUT = "transaction.max.timeout.ms"
SETTINGS = (VERIFICATION, UNCLEAN, MAX_TIMEOUT)
TRANSACTION_VERSION = "transaction.version"

# The highest `metadata.version` of a release (`MetadataVersion`). Those of 4.0 to 4.4 were read from brokers of 4.0.1,
# 4.1.1, 4.2.0, 4.3.1 and 4.4.0, the older ones are from Kafka's source.
_V3_5, _V3_7, _V3_9, _V4_0, _V4_1, _V4_2, _V4_3, _V4_4 = 11, 19, 21, 25, 27, 29, 30, 33
# A timeout from which readers wait too long for a client that died.
LONG_TIMEOUT_MS = 60 * 60 * 1_000


class Certainty(StrEnum):
    """How well a cause is known. CHECKED: on released jars or real brokers. REPORTED: by an issue or a pull request."""

    CHECKED = "checked"
    REPORTED = "reported"


@dataclass(frozen=True, slots=True)
class Exposure:
    """What the brokers of a cluster answer.

    metadata_levels: the highest `metadata.version` that each broker supports, None for a broker without KRaft.
    transaction_version: the finalized `transaction.version`, None if the cluster has none. settings: of each broker, by
    name (`SETTINGS`).
    """

    metadata_levels: Mapping[int, int | None] = field(default_factory=dict)
    transaction_version: int | None = None
    settings: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

    @property
    def levels(self) -> list[int]:
        """The known levels of all brokers."""
        return [level for level in self.metadata_levels.values() if level is not None]

    def any_level(self, lowest: int, highest: int) -> bool:
        """Whether a broker is of a release from the lowest to the highest of these levels."""
        return any(lowest <= level <= highest for level in self.levels)

    def values(self, name: str) -> list[str]:
        """The values that a setting has on the brokers."""
        return [settings[name] for settings in self.settings.values() if name in settings]

    @property
    def longest_timeout_ms(self) -> int:
        """The longest `transaction.max.timeout.ms`, 0 if it is not known."""
        return max((whole_number(text) or 0 for text in self.values(MAX_TIMEOUT)), default=0)


@dataclass(frozen=True, slots=True)
class KnownCause:
    """A known cause. applies: whether a cluster is exposed to it; None if that cannot be known from outside. explains:
    the causes of hanging transactions (`cause.Cause`) that it can be behind, or STUCK_PREPARE, or LONG_LIVED.
    """

    id: str
    affects: str
    symptom: str
    remedy: str
    source: str
    certainty: Certainty
    applies: Callable[[Exposure], bool] | None = None
    explains: frozenset[str] = frozenset()


# An id that stays in PrepareCommit or PrepareAbort, and a live transaction with a long timeout.
STUCK_PREPARE, LONG_LIVED = "stuck_prepare", "long_lived"
_LOSES_MARKERS = frozenset({Cause.MARKER_MISSING})
_LEAVES_ORPHANS = frozenset({Cause.LATE_WRITE, Cause.NEVER_ADDED})
_LEAVES_PREPARED = frozenset({STUCK_PREPARE})


@dataclass(frozen=True, slots=True)
class ExposedTo:
    """A known cause to which a cluster is exposed. sentence: with its remedy."""

    id: str
    sentence: str
    explains: frozenset[str]

    def may_explain(self, cause: str | None) -> bool:
        """Whether it can be behind this cause. If the cause is not known, behind any cause of a hanging transaction."""
        if cause is None or cause == Cause.UNKNOWN:
            return not self.explains.isdisjoint(Cause)
        return cause in self.explains


def drops_markers(metadata_level: int | None) -> bool:
    """Whether a coordinator of this level drops the marker of a partition that has no leader (KAFKA-20734)."""
    return metadata_level is not None and _V4_3 <= metadata_level <= _V4_4


def exposed(exposure: Exposure) -> Iterator[KnownCause]:
    """The causes to which a cluster is exposed, in the order of the table."""
    return (cause for cause in KNOWN_CAUSES if cause.applies is not None and cause.applies(exposure))


_C, _R = Certainty.CHECKED, Certainty.REPORTED
KNOWN_CAUSES = (
    KnownCause(
        "KAFKA-20734",
        "4.3.0 to 4.4.0",
        "The coordinator takes a partition without a leader for a deleted one and drops its marker. The commit "
        "completes, and the partition hangs",
        "keep partitions online while transactions end: restart brokers one by one",
        "reproduced on 4.3.1 and 4.4.0; PR 22680",
        _C,
        lambda e: any(map(drops_markers, e.levels)),
        _LOSES_MARKERS,
    ),
    KnownCause(
        "KAFKA-20716",
        "all releases",
        "An unclean leader election loses the marker",
        f"set {UNCLEAN}=false",
        "PR 22937",
        _R,
        lambda e: "true" in e.values(UNCLEAN),
        _LOSES_MARKERS,
    ),
    KnownCause(
        "KAFKA-20322",
        "4.2 coordinators beside leaders up to 4.1",
        "WriteTxnMarkers v2 is sent to brokers that lack it, and markers fail during the roll",
        "finish the roll of all brokers",
        "mailing list",
        _R,
        lambda e: e.any_level(0, _V4_1) and e.any_level(_V4_2, 1_000),
        _LEAVES_PREPARED,
    ),
    KnownCause(
        "KAFKA-19999",
        "4.2 with transactions v2",
        "A retried marker is rejected. The id stays in Prepare*, and clients get CONCURRENT_TRANSACTIONS",
        "move the coordinator to another broker",
        "PR 21176",
        _R,
        lambda e: e.transaction_version == 2 and e.any_level(_V4_2, _V4_2),
        _LEAVES_PREPARED,
    ),
    KnownCause(
        "KAFKA-20090",
        "transactions v2",
        "Epoch 32766 and a timeout leave the id in Ongoing",
        "upgrade; fence the id with txnscan force-terminate",
        "PR 21469, PR 21506",
        _R,
    ),
    KnownCause(
        "KAFKA-20310",
        "transactions v2 before 4.3.1",
        "The previous and the next producer id are not persisted. The producer is fenced, or stuck at the last epoch",
        "upgrade to 4.3.1",
        "fields are written in 4.3.1; PR 21828",
        _C,
    ),
    KnownCause(
        "KAFKA-20357",
        "4.0 and newer",
        "lastProducerEpoch is not persisted. The producer gets PRODUCER_FENCED after a failover",
        "restart the producer",
        "not in 4.4.0; PR 22096",
        _C,
    ),
    KnownCause(
        "KAFKA-19367",
        "4.0",
        "The epoch is raised twice, and the coordinator throws an exception at epoch 32766",
        "upgrade to 4.1",
        "PR 19910, PR 19976",
        _R,
        lambda e: e.any_level(_V3_9 + 1, _V4_0),
    ),
    KnownCause(
        "KAFKA-20785",
        "transactions v2",
        "A commit races the abort of a timeout. The client gets INVALID_TXN_STATE, and a Streams thread dies",
        "restart the client",
        "PR 23204",
        _R,
    ),
    KnownCause(
        "KAFKA-21181, KAFKA-21481",
        "4.4 and newer",
        "A former coordinator answers and lists from its cache until it resigns. This misleads finders without a "
        "coverage proof",
        "use a finder with a coverage proof",
        "mailing list",
        _R,
    ),
    KnownCause(
        "KAFKA-17507",
        "2.0 and newer",
        "A marker is acknowledged before offsets are visible. The group gets UNSTABLE_OFFSET_COMMIT",
        "move the group coordinator",
        "PR 18168",
        _R,
    ),
    KnownCause(
        "KAFKA-16352",
        "up to 3.7",
        "A race in the map of pending markers leaves the id in Prepare*",
        "move the coordinator to another broker",
        "PR 15524",
        _R,
        lambda e: e.any_level(0, _V3_7),
        _LEAVES_PREPARED,
    ),
    KnownCause(
        "KAFKA-14402 (KIP-890)",
        "before 3.6; in part with transactions v1",
        "A late or unverified produce request leaves an orphan",
        "upgrade to 4.0 and set the feature transaction.version to 2",
        "KIP-890",
        _R,
        lambda e: bool(e.levels) and e.transaction_version != 2,
        _LEAVES_ORPHANS,
    ),
    KnownCause(
        "KAFKA-15653",
        "3.6.0",
        "Verification fails on compressed data. Users turn it off, and orphans return",
        f"upgrade, and set {VERIFICATION}=true",
        "PR 15244",
        _R,
    ),
    KnownCause(
        "KAFKA-15552",
        "up to 3.5.1, migration from ZooKeeper",
        "Producer ids are given out twice",
        "upgrade to 3.5.2",
        "upgrade notes",
        _R,
    ),
    KnownCause("KAFKA-14055", "up to 3.2", "The cleaner removes markers", "upgrade", "PR 12390", _R),
    KnownCause("KAFKA-9144", "up to 2.4", "Producer state expires early", "upgrade", "KIP-664", _R),
    KnownCause(
        "KAFKA-9307",
        "2.2.0 to 2.4.0",
        "A coordinator is half a leader after it lost ZooKeeper",
        "restart the broker",
        "the issue",
        _R,
    ),
    KnownCause(
        "verification",
        "any release",
        "A produce request without verification leaves an orphan",
        f"set {VERIFICATION}=true",
        "reproduced on 4.3.1",
        _C,
        lambda e: "false" in e.values(VERIFICATION),
        _LEAVES_ORPHANS,
    ),
    KnownCause(
        "long-timeout",
        "any release",
        "A client that died, such as a Flink job, blocks readers until its timeout. No bug is needed",
        f"lower {MAX_TIMEOUT} and the timeouts of clients",
        "FLIP-572",
        _C,
        lambda e: e.longest_timeout_ms > LONG_TIMEOUT_MS,
        frozenset({LONG_LIVED}),
    ),
)


def sentence(cause: KnownCause, exposure: Exposure) -> str:
    """A cause to which a cluster is exposed, with its remedy, in one sentence."""
    longest = f" ({duration(exposure.longest_timeout_ms)} here)" if cause.id == "long-timeout" else ""
    return f"{cause.id} ({cause.certainty}): {cause.symptom[0].lower()}{cause.symptom[1:]}{longest}; {cause.remedy}"
