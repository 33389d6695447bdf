"""How a producer was fenced. Pure."""

from __future__ import annotations

from dataclasses import replace

from txnscan.explain import finding
from txnscan.explain.answers.commands import commands_to_end, explain_id, txnscan_command
from txnscan.explain.answers.numbers import numbers_of, numbers_of_id
from txnscan.explain.answers.sentences import known_defects, of_id
from txnscan.explain.answers.transaction_end import time_of_day
from txnscan.explain.cause import Numbers, Subject, Told
from txnscan.explain.facts import Facts
from txnscan.explain.takeover import Takeover, takeover
from txnscan.kafka.units import duration
from txnscan.txnlog.facts import LoggedTransaction

_HOW_FENCED = "another instance took the id over, or its coordinator aborted a transaction that timed out"
_LOG_LINES_MAX = 8


def fenced(f: Facts, s: Subject) -> Told:
    one = s.transaction
    if one is None:
        which = "The text names no transactional id, so no epochs were read."
        if f.symptom.producer_id is not None:
            which = f"No transactional id has producer id {f.symptom.producer_id} now."
        sentence = f"The producer is fenced: its transactional id went on to a later epoch, because {_HOW_FENCED}."
        return Told(sentence, (which, *known_defects(f)), (explain_id(f),), numbers_of(f, None, None))
    epoch, producer_id = f.symptom.producer_epoch, f.symptom.producer_id
    was = f"epoch {epoch}" if producer_id is None else f"producer id {producer_id}, epoch {epoch}"
    logged = f" from {was}" if epoch is not None else ""
    event = takeover(f.logged, producer_id, epoch)
    sentence = (
        f"The producer is fenced: '{one.transactional_id}' went on{logged} to epoch {one.producer_epoch} of producer "
        f"id {one.producer_id}, because {_HOW_FENCED if event is None else _of_event(f, event)}."
    )
    records = [str(record) for record in f.logged[-_LOG_LINES_MAX:]]
    none = "Its earlier epochs are no longer in the transaction log, or could not be read."
    evidence = (of_id(one), *(records or [none, *known_defects(f)]))
    commands: tuple[str, ...] = (txnscan_command(f, "transaction-log", transactional_id=one.transactional_id),)
    open_too = finding.hanging(f)
    if open_too is not None and open_too.judged is not None:
        evidence += (f"It left a transaction hanging on {open_too.judged.observation.topic_partition}.",)
        commands = (*commands_to_end(f, open_too.judged), *commands)
    numbers = numbers_of_id(f, one, producer_epoch=epoch)
    return Told(sentence, evidence, commands, with_takeover(numbers, event) if event is not None else numbers)


def _of_event(f: Facts, event: Takeover) -> str:
    """How a producer was fenced, after "because"."""
    if event.timed_out is not None:
        return aborted_at_timeout(f, event.timed_out)
    at = time_of_day(event.at_ms, f.now_ms)
    if event.initialized == 1:
        return f"another instance initialized it at {at}"
    until = time_of_day(event.last_ms, f.now_ms)
    return (
        f"instances initialized it {event.initialized} times between {at} and {until}: they fight for it, or one "
        "restarts again and again"
    )


def aborted_at_timeout(f: Facts, one: LoggedTransaction) -> str:
    """That the coordinator aborted this transaction, after "because"."""
    at, start = time_of_day(one.updated_ms, f.now_ms), time_of_day(one.start_time_ms, f.now_ms)
    return (
        f"its coordinator aborted, at {at}, a transaction that was open since {start}, for longer than its timeout of "
        f"{duration(one.timeout_ms)}"
    )


def with_takeover(numbers: Numbers, event: Takeover) -> Numbers:
    """The numbers, with the kind and the time of the event that fenced the producer."""
    how = "timeout" if event.timed_out is not None else "instance" if event.initialized == 1 else "instances"
    return replace(numbers, fenced_by=how, fenced_at_ms=event.at_ms)
