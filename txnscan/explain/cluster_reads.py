"""What every question of `explain` reads: sweeps, the offsets around them, and which logs take writes.

The order matters if a transaction is open: the offsets, a sweep of these partitions, the offsets again. A transaction
that the last stable offset has passed by then has ended, and is no cause.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from txnscan.config import ScanConfig, printable
from txnscan.coordinators.cluster import Cluster
from txnscan.coordinators.transactions import key_of, offsets_of
from txnscan.engine.threads import ThreadsEngine
from txnscan.explain import finding
from txnscan.explain.facts import Facts, PartitionFacts
from txnscan.explain.writes import with_writes
from txnscan.kafka.answers import CoordinatorView
from txnscan.kafka.failure import Failure, FailureCode, Unobserved, no_leader
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, ClusterView, Key, Partition
from txnscan.reads.observation import TransactionKey
from txnscan.reads.rows import OffsetsRow
from txnscan.sweeps.history import NoHistory
from txnscan.sweeps.names import Absent
from txnscan.sweeps.pipeline import scan
from txnscan.sweeps.result import Progress, Scan
from txnscan.sweeps.scope import narrowed
from txnscan.sweeps.state import Run
from txnscan.verdict.evidence import Judged, Verdict
from txnscan.waiting.cause import Cause
from txnscan.waiting.cause import cause_of as hanging_cause_of
from txnscan.waiting.in_sync import read_no_log, read_write_states
from txnscan.waiting.writability import claim_of

# Partitions whose end is read: those with the greatest lag first.
PARTITIONS_READ_MAX = 100
# Partitions of which live transactions are looked at for committed data that they have joined.
LOOKED_AT_MAX = 100
_OFFSETS_NOT_KNOWN = Failure("its leader did not tell its offsets", FailureCode.NOT_ASKED)


@dataclass(frozen=True, slots=True)
class Asking:
    """The cluster and the settings of all questions. config: without topics. sweep_id: makes the id of a sweep."""

    cluster: Cluster
    config: ScanConfig
    now_ms: Callable[[], int]
    sleep: Callable[[float], None]
    sweep_id: Callable[[], str]
    progress: Progress


def sweep_of(asking: Asking, keys: Collection[Key]) -> Scan | None:
    """A sweep of these partitions, None without any. If they are of several topics, it sweeps whole topics."""
    return swept_by(asking, narrowed(asking.config, keys), keys) if keys else None


def swept_by(asking: Asking, config: ScanConfig, keys: Collection[Key] = ()) -> Scan:
    """A sweep with these settings. keys: the partitions that the answer is about. Answers advise to end a transaction
    early, and that would delete committed data that it has joined. So the first of these partitions are looked at.
    """
    return scan(
        Run(
            config,
            asking.cluster,
            ThreadsEngine(),
            sweep_id=asking.sweep_id(),
            now_ms=asking.now_ms,
            history=NoHistory(),
            progress=asking.progress,
            looks_at=frozenset(sorted(keys)[:LOOKED_AT_MAX]),
        )
    )


def failures_of(swept: Scan) -> tuple[Failure, ...]:
    """All failures of a sweep, those of partitions with the partition."""
    return (*map(_with_place, swept.errors), *swept.visibility_failures)


def _with_place(one: Unobserved) -> Failure:
    if one.topic is None or one.partition is None:
        return one.failure
    place = f"{one.topic}-{one.partition}"
    # Not that of p-10 for p-1.
    is_named = one.failure.error.startswith((f"{place} ", f"{place}:"))
    return one.failure if is_named else one.failure.within(place)


def _causes(swept: Scan, transactions: Iterable[Judged]) -> Mapping[TransactionKey, tuple[Cause, str]]:
    """The causes of the hanging transactions among these."""
    return {
        one.observation.transaction_key: hanging_cause_of(one, evidence.logged if evidence.log_failure is None else ())
        for one in transactions
        if one.judgement.verdict is Verdict.HANGING
        if (evidence := swept.evidence_of_outcome(one)) is not None
    }


def why_unseen(asking: Asking, absent: Absent) -> Failure:
    """Why it was not observed that there is no such name. Raises ConfigError if there is none."""
    if absent.unseen is None:
        raise absent.error(asking.cluster.format_failure)
    return absent.unseen.within(f"whether there is a {absent.what} '{printable(absent.name)}'")


def with_sweep(facts: Facts, swept: Scan) -> Facts:
    """The facts with the failures of a sweep, and what it asked."""
    failures = (*facts.failures, *failures_of(swept))
    return replace(facts, failures=failures, sweep_id=swept.sweep_id, asked=swept.partitions_planned)


def hidden_by(
    coverage: Failure | None, visibility: Sequence[Failure], views: Sequence[CoordinatorView]
) -> tuple[Failure, ...]:
    """Failures that may hide an id from the listings of coordinators."""
    if views:
        return ()
    covered = (coverage.within("not every coordinator was seen"),) if coverage is not None else ()
    return (*covered, *visibility)


def read_writes(asking: Asking, facts: Facts) -> Facts:
    """The facts with the write states of the logs that the transactions in them need for their end, or that the id of
    the symptom needs to begin one, and of partitions without a leader.
    """
    seen = [*facts.partitions, *(one.log for one in facts.pending)]
    claims = [claim_of(one) for each in seen for one in each.still_open]
    ids = [one for one in (*claims, facts.transaction, *facts.prepared) if one is not None]
    unled = {
        (one.topic, one.partition)
        for one in facts.partitions
        if one.failure is not None and one.failure.code == FailureCode.NO_LEADER
    }
    if not (ids or unled or facts.symptom.transactional_id is not None or finding.is_busy(facts)):
        return facts
    asking.progress("ask which logs take writes", 0, 1)
    view = asking.cluster.newest([TRANSACTION_STATE_TOPIC])
    keys = {key_of(name) for one in ids for name in one.partitions} | unled
    states = read_write_states(asking.cluster, view.answered_by, keys, with_last=True)
    return with_writes(facts, replace(states, no_log=read_no_log(asking.cluster, view)))


def offsets_at(asking: Asking, keys: Collection[Key]) -> tuple[dict[Key, OffsetsRow], ClusterView]:
    """High watermark and last stable offset of these partitions, as far as their leaders answer."""
    view = asking.cluster.newest(sorted({topic for topic, _ in keys}))
    return offsets_of(asking.cluster.send, keys, view) if keys else {}, view


def partition_facts(
    key: Key,
    swept: Scan | None,
    before: OffsetsRow | None,
    after: OffsetsRow | None,
    no_offsets: Failure = _OFFSETS_NOT_KNOWN,
) -> PartitionFacts:
    """A partition between the offsets before and after a sweep of it. no_offsets: why one of them is missing."""
    found, failure = PartitionFacts(*key), None
    if swept is not None:
        there = [one for one in swept.transactions if one.observation.key == key]
        there.sort(key=lambda one: one.observation.start_offset)
        found = replace(found, open=tuple(there), causes=_causes(swept, there))
        failure = next((one.failure for one in swept.errors if (one.topic, one.partition) == key), None)
    if before is None or after is None:
        return replace(found, failure=failure or no_offsets)
    found = replace(
        found,
        high_watermark=after.high_watermark,
        last_stable_offset=after.last_stable_offset,
        lso_before=before.last_stable_offset,
    )
    # If no record was blocked before the sweep, the transaction began during it.
    blocked_before = before.high_watermark > before.last_stable_offset
    same = blocked_before and found.lso_before == found.last_stable_offset
    if not (found.blocked_records and found.holder is None and same):
        return found
    unseen = Failure("the transaction that holds its last stable offset was not seen", FailureCode.ENDED_MEANWHILE)
    return replace(found, failure=failure or next(iter(failures_of(swept) if swept is not None else ()), unseen))


def no_offsets_of(view: ClusterView, key: Key) -> Failure:
    """Why the offsets of a partition are not known, by the metadata."""
    found = _shown(view, key)
    if found is None:
        return Failure(
            "the metadata does not have it: it was deleted, or this principal may not describe it",
            FailureCode.NOT_ASKED,
        )
    return no_leader(found.leader) if found.leader < 0 else _OFFSETS_NOT_KNOWN


def led(view: ClusterView, key: Key) -> Partition | None:
    """The partition, if it has a leader."""
    found = _shown(view, key)
    return found if found is not None and found.leader >= 0 else None


def _shown(view: ClusterView, key: Key) -> Partition | None:
    return next((one for topic in view.topics if topic.name == key[0] for one in topic.at(key[1])), None)


def names_of(keys: Iterable[Key]) -> tuple[str, ...]:
    """The names of partitions, such as "orders-0", in order."""
    return tuple(f"{topic}-{index}" for topic, index in sorted(keys))
