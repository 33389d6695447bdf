"""The warnings of a sweep about settings, and about brokers that lack an API."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence

from txnscan.config import ScanConfig, printable, topics_matching
from txnscan.kafka.errors import API_SINCE
from txnscan.kafka.failure import Failure, Unobserved
from txnscan.kafka.topology import ClusterView, Key
from txnscan.kafka.units import brokers_named, duration, plural
from txnscan.sweeps.restored import HISTORY_WENT_BACK, Fall


def idle_patterns(config: ScanConfig, view: ClusterView) -> tuple[str, ...]:
    """A warning for each pattern that matched no topic."""
    idle = [p for p in config.topic if not topics_matching((p,), {topic.name for topic in view.topics})]
    return tuple(f"--topic '{printable(pattern)}' matches no topic" for pattern in idle)


def hidden_matches(failure: Failure | None, format_failure: Callable[[Failure], str]) -> tuple[str, ...]:
    """A warning that a pattern may match topics that this principal does not see."""
    return () if failure is None else (f"--topic may match more topics than were read: {format_failure(failure)}",)


def early_threshold(late_after_ms: int, max_timeout_ms: int) -> tuple[str, ...]:
    """A warning if the threshold calls transactions late that may still be live."""
    if late_after_ms >= max_timeout_ms:
        return ()
    return (
        f"--late-after {duration(late_after_ms)} is below the brokers' transaction.max.timeout.ms of "
        f"{duration(max_timeout_ms)}: transactions will be called late that may live",
    )


def history_warnings(fell: Fall | None, vetoes_dropped: int | None) -> tuple[str, ...]:
    """A warning if the history of the cluster went back, and one with the number of facts that the user dropped."""
    dropped = vetoes_dropped is not None
    forbid = "" if dropped else ". Commits that they saw still forbid an ABORT"
    said = (
        f"{HISTORY_WENT_BACK}: {fell}. The cluster was restored, is a clone, or lost acknowledged data, or every "
        "broker that answers is cut off from one that is ahead. What earlier sweeps stored proves nothing any more: "
        f"ages begin anew{forbid}"
    )
    facts = f"--new-history: {plural(vetoes_dropped or 0, 'stored fact')} of before forbid no ABORT any more"
    return (*((said,) if fell is not None else ()), *((facts,) if dropped else ()))


def unreplicated_ends(partitions: Iterable[Key]) -> tuple[str, ...]:
    """A warning if incidents seem to have ended, but an election may still undo that."""
    found = [f"{topic}-{index}" for topic, index in sorted(partitions)]
    if not found:
        return ()
    more = f" and {plural(len(found) - 1, 'other partition')}" if found[1:] else ""
    return (
        f"{found[0]}{more}: an incident seems to have ended, but the end of the log is not known to be on all in-sync "
        "replicas. The incident stays open until it is",
    )


def old_brokers(errors: Sequence[Unobserved]) -> tuple[str, ...]:
    """One sentence about the brokers that lack an API, and its consequences; empty if all brokers have all APIs."""
    lacking: dict[str | None, set[int]] = defaultdict(set)
    for error in errors:
        if error.broker is not None and error.failure.lacks_api in API_SINCE:
            lacking[error.failure.lacks_api].add(error.broker)
    consequences = (
        (("DescribeProducers",), "what is open on the partitions led there is not seen"),
        (
            ("ListTransactions", "DescribeTransactions"),
            "an open transaction is indeterminate unless another broker shows its owner",
        ),
    )
    clauses = [
        f"{' and '.join(f'{_brokers(lacking[api])} {api} (since Kafka {API_SINCE[api]})' for api in missing)}: {so}"
        for apis, so in consequences
        if (missing := [api for api in apis if api in lacking])
    ]
    return ("; ".join(clauses),) if clauses else ()


def _brokers(broker_ids: Collection[int]) -> str:
    return f"{brokers_named(sorted(broker_ids))} {'lacks' if len(broker_ids) == 1 else 'lack'}"
