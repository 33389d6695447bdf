"""The next commands. Pure."""

from __future__ import annotations

import shlex

from txnscan.explain.answers.transaction_end import claimant
from txnscan.explain.facts import Facts, PartitionFacts
from txnscan.resolve.guard import Allowed, offered
from txnscan.resolve.offer import swept
from txnscan.verdict.evidence import Judged, Verdict


def commands_for(f: Facts, judged: Judged) -> tuple[str, ...]:
    """The next commands about an open transaction, by its verdict."""
    o, view = judged.observation, claimant(judged)
    if judged.judgement.verdict is Verdict.HANGING:
        return commands_to_end(judged)
    if view is None:
        return (f"txnscan describe-producers --topic {o.topic} --partition {o.partition} --open",)
    return commands_for_id(view.transactional_id, stuck=judged.judgement.verdict is Verdict.PENDING_MARKER)


_SWEEP = "txnscan sweep --tables LOCATION"
_PLAN = "txnscan plan --tables LOCATION --out plan.json"


def commands_to_end(judged: Judged, *, alone: bool = True) -> tuple[str, ...]:
    """What leads to the end of a hanging transaction, by the answer of a plan's guards. alone: whether no other one
    hangs. A plan ends several at once.
    """
    about, o = swept(judged), judged.observation
    given, where = offered(about), f"--topic {o.topic} --partition {o.partition}"
    if isinstance(given, Allowed):
        # The expert's way waits for no second sweep. Without an option it takes only an outcome that is proven.
        is_expert = alone and judged.judgement.late and not given.commit and given.needs is None
        abort = (f"txnscan abort {where} --start-offset {o.start_offset}",) if is_expert else ()
        return (_SWEEP, _PLAN, *abort)
    if given.guard == "live_owner" and about.transactional_id is not None:
        return (f"txnscan force-terminate --transactional-id {shlex.quote(about.transactional_id)}", _SWEEP)
    if given.guard == "consumer_offsets":
        return (_SWEEP, f"{_PLAN} --include-consumer-offsets")
    if given.guard in ("mixed", "maybe_committed"):
        return (f"txnscan transaction-log --producer-id {o.producer_id}",)
    return ("txnscan check", _SWEEP)


def commands_for_id(name: str, *, stuck: bool = False) -> tuple[str, ...]:
    """The next commands about a transactional id. stuck: whether its markers are owed."""
    quoted = shlex.quote(name)
    where = (f"txnscan coordinator --transactional-id {quoted}",) if stuck else ()
    return (f"txnscan describe --transactional-id {quoted}", *where)


def find_hanging(p: PartitionFacts) -> str:
    """The command that lists all open transactions of a partition."""
    return f"txnscan find-hanging --topic {p.topic} --partition {p.partition} --all"


def describe_group(f: Facts) -> tuple[str, ...]:
    """Kafka's own tool, which shows members and lag."""
    if f.symptom.group is None:
        return ()
    tool = "kafka-share-groups.sh" if f.is_share else "kafka-consumer-groups.sh"
    return (f"{tool} --describe --group {shlex.quote(f.symptom.group)}",)


def log_dirs(topic: str | None) -> tuple[str, ...]:
    """Kafka's own tool, which shows the sizes of all replicas."""
    return (f"kafka-log-dirs.sh --describe --topic-list {shlex.quote(topic or '')}",)


def with_connection(f: Facts, command: str) -> str:
    """The command with the options that reach the cluster, right behind its name. Kafka's tools have the same ones, and
    `txnscan plan` asks no broker.
    """
    words = command.split(" ")
    if words[:2] == ["txnscan", "plan"]:
        return command
    at = 2 if words[0] == "txnscan" else 1
    return " ".join([*words[:at], f.connection, *words[at:]])
