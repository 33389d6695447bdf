"""The next commands. Pure."""

from __future__ import annotations

from txnscan.coordinators.transactions import Transaction, key_of
from txnscan.explain.answers.transaction_end import claimant
from txnscan.explain.facts import Facts, PartitionFacts
from txnscan.kafka.answers import TWO_PHASE_COMMIT_TIMEOUT_MS, CoordinatorView
from txnscan.resolve.guard import Allowed, fence_refusal, offered
from txnscan.resolve.offer import swept
from txnscan.shell import command
from txnscan.verdict.ending import timeout_end_ms
from txnscan.verdict.evidence import Judged, Verdict
from txnscan.waiting.blocking import ORDINARY_MS


def txnscan_command(f: Facts, name: str, **options: object) -> str:
    """A command of txnscan about this cluster."""
    return command("txnscan", name, f.connection, **options)


def kafka_tool(f: Facts, name: str, **options: object) -> str:
    """A command of Kafka's own tools, which have the same options for the connection."""
    return command(name, f.connection, **options)


def explain_id(f: Facts) -> str:
    """The command that explains an id with the text of its error."""
    return txnscan_command(f, "explain", transactional_id="ID", error="TEXT")


def commands_for(f: Facts, judged: Judged) -> tuple[str, ...]:
    """The next commands about an open transaction, by its verdict."""
    o, view = judged.observation, claimant(judged)
    if judged.judgement.verdict is Verdict.HANGING:
        return commands_to_end(f, judged)
    if view is None:
        return (txnscan_command(f, "describe-producers", topic=o.topic, partition=o.partition, open=True),)
    return commands_for_id(f, view.transactional_id, stuck=judged.judgement.verdict is Verdict.PENDING_MARKER)


def commands_to_end(f: Facts, judged: Judged, *, alone: bool = True) -> tuple[str, ...]:
    """What leads to the end of a hanging transaction, by the answer of a plan's guards. alone: whether no other one
    hangs. A plan ends several at once.
    """
    about, o = swept(judged), judged.observation
    given, sweep = offered(about), txnscan_command(f, "sweep", tables="LOCATION")
    if isinstance(given, Allowed):
        # The expert's way waits for no second sweep. Without an option it takes only an outcome that is proven.
        is_expert = alone and judged.judgement.late and not given.commit and given.needs is None
        abort = txnscan_command(f, "abort", topic=o.topic, partition=o.partition, start_offset=o.start_offset)
        return (sweep, _plan(), *((abort,) if is_expert else ()))
    if given.guard == "live_owner" and about.transactional_id is not None:
        # An id whose fence is refused ends its transaction in another way first.
        name = "force-terminate" if about.fence_refusal is None else "describe"
        return (txnscan_command(f, name, transactional_id=about.transactional_id), sweep)
    if given.guard == "consumer_offsets":
        return (sweep, _plan(include_consumer_offsets=True))
    if given.guard in ("mixed", "maybe_committed"):
        return (txnscan_command(f, "transaction-log", producer_id=o.producer_id),)
    return (txnscan_command(f, "check"), sweep)


def _plan(**options: object) -> str:
    """The command that makes a plan, which asks no broker."""
    return command("txnscan plan", tables="LOCATION", out="plan.json", **options)


def commands_for_id(f: Facts, name: str, *, stuck: bool = False) -> tuple[str, ...]:
    """The next commands about a transactional id. stuck: whether its markers are owed."""
    where = (txnscan_command(f, "coordinator", transactional_id=name),) if stuck else ()
    return (txnscan_command(f, "describe", transactional_id=name), *where)


def find_hanging(f: Facts, p: PartitionFacts) -> str:
    """The command that lists all open transactions of a partition."""
    return txnscan_command(f, "find-hanging", topic=p.topic, partition=p.partition, all=True)


def explain_partition(f: Facts, p: PartitionFacts) -> str:
    """The command that explains what its readers wait for."""
    return txnscan_command(f, "explain", topic=p.topic, partition=p.partition)


def describe_group(f: Facts) -> tuple[str, ...]:
    """Kafka's own tool, which shows members and lag."""
    if f.symptom.group is None:
        return ()
    tool = "kafka-share-groups.sh" if f.is_share else "kafka-consumer-groups.sh"
    return (kafka_tool(f, tool, describe=True, group=f.symptom.group),)


def leaderless_partitions(f: Facts) -> str:
    """Kafka's own tool, which lists the partitions without a leader."""
    return kafka_tool(f, "kafka-topics.sh", describe=True, unavailable_partitions=True)


def under_min_isr(f: Facts) -> str:
    """Kafka's own tool, which lists the partitions with too few in-sync replicas."""
    return kafka_tool(f, "kafka-topics.sh", describe=True, under_min_isr_partitions=True)


def log_dirs(f: Facts, topic: str | None) -> tuple[str, ...]:
    """Kafka's own tool, which shows the sizes of all replicas."""
    return (kafka_tool(f, "kafka-log-dirs.sh", describe=True, topic_list=topic or ""),)


def how_to_end_sooner(
    f: Facts, one: Transaction | CoordinatorView | None, judged: Judged | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What ends a live transaction before its timeout, in words and as a command. Empty if it ends in a moment, if its
    end may not be written or would lose a marker, or if the guard of fences refuses. judged: the transaction on a
    partition, if one is known.
    """
    if one is None:
        return (), ()
    blocker = f.blocker_of(one, judged)
    by_ms = timeout_end_ms(one.start_time_ms, one.timeout_ms)
    is_endless = one.timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS
    soon = by_ms is not None and 0 <= by_ms - f.now_ms <= ORDINARY_MS
    in_danger = f.writes.in_danger(one.transactional_id, map(key_of, one.partitions))
    if any(state.replicas.has_no_leader for state in in_danger):
        # Its end must wait for their leaders.
        return (), ()
    endangers_commit = judged is not None and judged.endangers_commit
    refused = fence_refusal(two_phase_commit=is_endless, endangers_commit=endangers_commit)
    if blocker is not None or by_ms is None or soon or refused is not None:
        return (), ()
    how = (
        "To end it earlier, let its application commit or abort, or restart the application: initTransactions aborts "
        "the transaction. If no application has the id any more, fence it"
    )
    return (f"{how}.",), (txnscan_command(f, "force-terminate", transactional_id=one.transactional_id),)
