"""Answers that an error or its text has alone. Pure."""

from __future__ import annotations

from dataclasses import replace

from txnscan.explain import finding
from txnscan.explain.answers.commands import explain_id, txnscan_command
from txnscan.explain.answers.numbers import numbers_of
from txnscan.explain.answers.sentences import known_defects
from txnscan.explain.answers.subjects import matched
from txnscan.explain.cause import Subject, Told
from txnscan.explain.client_errors import ErrorKind
from txnscan.explain.facts import Facts
from txnscan.explain.symptom import SymptomKind
from txnscan.kafka.failure import FailureCode
from txnscan.kafka.units import duration


def setting(f: Facts, s: Subject) -> Told:
    longest = f.max_timeout_ms or 0
    sentence = (
        "No transaction is the cause: the producer asks for a longer transaction.timeout.ms than the brokers' "
        f"transaction.max.timeout.ms, which is {duration(longest)} ({longest} ms)."
    )
    return Told(sentence, (), (), numbers_of(f, None, None))


def itself(f: Facts, s: Subject) -> Told:
    error = matched(f.symptom.error)
    if error.kind is ErrorKind.OTHER:
        message = error.meaning.rstrip(".")
        sentence = f"The text has {error.name}, which is no error of a transaction: {message}."
        return Told(sentence, (), (explain_id(f),), numbers_of(f, None, None))
    about = f.symptom.transactional_id
    commands = (txnscan_command(f, "explain", transactional_id=about),) if about is not None else ()
    return Told(f"{error.meaning}.", (f"{error.remedy}.", *known_defects(f)), commands, numbers_of(f, None, None))


def unrecognised(f: Facts, s: Subject) -> Told:
    sentence = "The text is not explained: it has no error that txnscan knows, and no id."
    return Told(sentence, (), (explain_id(f), txnscan_command(f, "explain", group="GROUP")), numbers_of(f, None, None))


def unasked(f: Facts) -> Told:
    """The meaning of an error, if only brokers can show its cause and no broker is named."""
    asked, error = f.symptom, matched(f.symptom.error)
    about: dict[str, object] = {"group": asked.group}
    if asked.group is None:
        of_id = asked.transactional_id is not None
        which = {"transactional_id": asked.transactional_id} if of_id else {"producer_id": asked.producer_id}
        about = {**which, "error": error.name}
    remedy = (f"{error.remedy}.",) if error.remedy else ()
    evidence = (
        *remedy,
        "No broker was asked: give --bootstrap-server to find the cause on the cluster.",
        *known_defects(f),
    )
    numbers = replace(numbers_of(f, None, None), failure=FailureCode.NOT_ASKED.value)
    return Told(f"{error.meaning}.", evidence, (txnscan_command(f, "explain", **about),), numbers)


def of_error(f: Facts) -> tuple[str, ...]:
    """What the symptom's error means, as the first evidence of every answer."""
    error = f.symptom.error
    if f.symptom.kind is SymptomKind.ERROR and f.symptom.unrecognised:
        return ()
    if error is not None and error.kind is ErrorKind.OTHER:
        return (f"The text has {error.name}, which is no error of a transaction: the answer does not explain it.",)
    if error is None:
        no_error = "No error that txnscan knows is in the text: the answer does not explain it."
        return (no_error,) if f.symptom.unrecognised else ()
    if error.kind is ErrorKind.ITSELF and not f.symptom.brokers_know_more:
        return (f"The text has {error.name}.",)
    return (f"{error.name}: {error.meaning}.", *_not_fenced(f))


def _not_fenced(f: Facts) -> tuple[str, ...]:
    """That a fencing error does not fit to the epoch of its id."""
    one, error = f.transaction, f.symptom.error
    if one is None or error is None or error.kind is not ErrorKind.FENCED or not finding.has_no_later_epoch(f):
        return ()
    return (
        f"But '{one.transactional_id}' is at epoch {one.producer_epoch} of producer id {one.producer_id}, and no later "
        "epoch was seen: the error may be of an earlier producer id, or of another cluster.",
    )
