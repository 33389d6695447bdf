"""Partitions that take no writes, so that no transaction ends there. Pure."""

from __future__ import annotations

from txnscan.explain.answers.commands import (
    commands_for,
    commands_for_id,
    leaderless_partitions,
    txnscan_command,
    under_min_isr,
)
from txnscan.explain.answers.numbers import numbers_of, numbers_of_id
from txnscan.explain.answers.sentences import (
    known_defects,
    of_id,
    of_partition,
    of_reader,
    partitions_of_id,
    reader_first,
)
from txnscan.explain.answers.subjects import both, matched
from txnscan.explain.answers.transaction_end import due, how_it_ends
from txnscan.explain.cause import Subject, Told
from txnscan.explain.facts import Facts
from txnscan.kafka.answers import PREPARED, State
from txnscan.kafka.units import duration
from txnscan.waiting.writability import no_log_reason, no_log_remedy, reason, remedy, stopped_logs


def no_writes(f: Facts, s: Subject) -> Told:
    stopped, one = matched(s.stopped), s.transaction
    commands = (leaderless_partitions(f) if stopped.replicas.has_no_leader else under_min_isr(f),)
    if s.judged is not None:
        p, judged = both(s)
        what = f"transaction on {p.name} {how_it_ends(f, judged)}"
        sentence = f"{reader_first(f)} waits for a {what}." if f.symptom.is_reader else f"There is an open {what}."
        began = f"It began {duration(judged.judgement.age_ms)} ago."
        compaction = ("Compaction stops there, too.",) if p.compacted else ()
        evidence = (judged.judgement.explanation, began, *of_partition(p), *compaction, *of_reader(f, p))
        return Told(sentence, evidence, (*commands, *commands_for(f, judged)), numbers_of(f, p, judged))
    why, help_ = reason(stopped), f"{remedy(stopped)}."
    if one is not None:
        states = {State.ONGOING: "has a transaction open that cannot end", **_PREPARED_AND_STOPPED}
        what = states.get(State(one.state), "has no transaction open, and cannot begin one")
        known = (help_, of_id(one), *partitions_of_id(one), *known_defects(f))
        ids = commands_for_id(f, one.transactional_id, stuck=one.state in PREPARED)
        return Told(f"'{one.transactional_id}' {what}: {why}.", known, (*commands, *ids), numbers_of_id(f, one))
    about = f.symptom.transactional_id
    if about is not None:
        sentence = f"'{about}' cannot begin a transaction: {why}."
        return Told(sentence, (help_, "Its coordinator knows no such id."), commands, numbers_of(f, None, None))
    what, why = matched(stopped_logs(f.writes))
    return Told(f"{what}.", (f"{why}.", *known_defects(f)), commands, numbers_of(f, None, None))


_PREPARED_AND_STOPPED = {state: f"is in {state}, and cannot complete" for state in PREPARED}


def leaderless(f: Facts, s: Subject) -> Told:
    p, stopped = matched(s.partition), matched(s.stopped)
    sentence = f"{reason(stopped)}, so nobody reads or writes it, and a transaction on it could not be observed."
    evidence = (f"{remedy(stopped)}.", *of_reader(f, p), *known_defects(f))
    return Told(sentence, evidence, (leaderless_partitions(f),), numbers_of(f, p, None))


def marker_at_risk(f: Facts, s: Subject) -> Told:
    one, stopped = matched(s.transaction), matched(s.stopped)
    left = due(f, one, f.blocker_of(one))
    by = f": at the latest {left}" if left is not None else ""
    sentence = (
        f"'{one.transactional_id}' has a transaction open, and its marker for {stopped.name} will be lost unless that "
        f"partition has a leader when the transaction ends{by}."
    )
    why = (
        f"The coordinator, broker {one.coordinator}, takes a partition without a leader for a deleted one, and drops "
        f"its marker (KAFKA-20734): {stopped.name} would hang."
    )
    help_ = f"{remedy(stopped)}. The application may end the transaction earlier: let it wait, if you can."
    evidence = (why, help_, of_id(one), *partitions_of_id(one), *known_defects(f))
    commands = (leaderless_partitions(f), *commands_for_id(f, one.transactional_id))
    return Told(sentence, evidence, commands, numbers_of_id(f, one))


def no_log(f: Facts, s: Subject) -> Told:
    missing, about = matched(f.writes.no_log), f.symptom.transactional_id
    subject = f"'{about}' has no transaction, and cannot begin one" if about is not None else "No transaction can begin"
    help_ = f"{no_log_remedy(missing)}. Until then producers get a timeout from InitProducerId."
    sentence = f"{subject}: {no_log_reason(missing)}."
    return Told(sentence, (help_, *known_defects(f)), (txnscan_command(f, "check"),), numbers_of(f, None, None))
