"""No open transaction is the cause: the answer to each kind of symptom. Pure."""

from __future__ import annotations

from dataclasses import replace

from txnscan.coordinators.transactions import Transaction
from txnscan.explain.answers.commands import describe_group, explain_id, log_dirs, txnscan_command
from txnscan.explain.answers.fences import aborted_at_timeout, with_takeover
from txnscan.explain.answers.numbers import numbers_of, numbers_of_id
from txnscan.explain.answers.sentences import (
    expired,
    expired_at_ms,
    failure_in_words,
    kept_by,
    known_defects,
    of_id,
    of_partition,
    of_reader,
    reader_name,
)
from txnscan.explain.cause import Numbers, Subject, Told
from txnscan.explain.client_errors import ErrorKind
from txnscan.explain.facts import Facts
from txnscan.explain.symptom import SymptomKind
from txnscan.explain.takeover import takeover
from txnscan.kafka.answers import State
from txnscan.kafka.topology import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from txnscan.kafka.units import plural


def none(f: Facts, s: Subject) -> Told:
    asked = f.symptom
    first = f.partitions[0] if len(f.partitions) == 1 else None
    numbers = numbers_of(f, first, None)
    if f.transaction is not None:
        return at_rest(f, f.transaction)
    if asked.transactional_id is not None:
        return _absent(f, asked.transactional_id, numbers)
    if asked.kind is SymptomKind.PRODUCER_ID:
        sentence = f"Producer id {asked.producer_id} has no open transaction, and no transactional id has it now."
        evidence = (
            f"A sweep read {plural(f.asked, 'partition')}." if f.whole_cluster else "A sweep saw all coordinators.",
        )
        return Told(
            sentence, evidence, (txnscan_command(f, "transaction-log", producer_id=asked.producer_id),), numbers
        )
    if asked.kind is SymptomKind.ERROR:
        return Told(*_of_error_alone(f), numbers)
    if asked.kind is SymptomKind.TOPIC:
        where = first.name if first is not None else f"the {plural(len(f.partitions), 'partition')} of {asked.topic}"
        kept = kept_by(first or f.partitions[0]) if f.partitions else ()
        because = f": {kept[0].rstrip('.')}" if kept else ""
        sentence = f"No transaction is open on {where}, so no transaction keeps its data{because}."
        largest = sorted(f.partitions, key=lambda p: -(p.disk.partition_bytes or 0))[:1]
        numbers = numbers_of(f, first or next(iter(largest), None), None)
        return Told(sentence, tuple(x for p in largest for x in of_partition(p)), log_dirs(f, asked.topic), numbers)
    moving = next((one for one in f.partitions if one.blocked_records), None)
    if moving is not None:
        sentence = (
            f"No transaction blocks {reader_name(f)}: the last stable offset of {moving.name} moved from "
            f"{moving.lso_before} to {moving.last_stable_offset} in the meantime, as transactions ended."
        )
        return Told(sentence, of_partition(moving), describe_group(f), numbers_of(f, moving, None))
    if f.is_share:
        sentence = (
            f"No transaction blocks {reader_name(f)}: none is open on its {plural(len(f.partitions), 'partition')}."
        )
        return Told(sentence, of_reader(f, f.partitions[0]) if f.partitions else (), describe_group(f), numbers)
    lag = sum(one.lag or 0 for one in f.partitions)
    read = "has read everything" if not lag else f"has a lag of {lag:,}, of offsets without records"
    sentence = f"No transaction blocks {reader_name(f)}: it {read} on {plural(len(f.partitions), 'partition')}."
    return Told(sentence, (), describe_group(f), numbers)


def _absent(f: Facts, name: str, numbers: Numbers) -> Told:
    """An id that its coordinator does not know: what the transaction log has of it."""
    commands = (txnscan_command(f, "transaction-log", transactional_id=name),)
    if f.logged:
        sentence = f"'{name}' has no transaction: it {expired(f)}."
        evidence = (
            "The transaction log has its tombstone, and the coordinator does not know it any more.",
            "Its producer gets INVALID_PRODUCER_ID_MAPPING, and has to call initTransactions again.",
        )
        return Told(sentence, evidence, commands, replace(numbers, expired_at_ms=expired_at_ms(f)))
    if f.writes.no_log is not None:
        why = f"{TRANSACTION_STATE_TOPIC} does not exist, so no id was ever used"
        return Told(f"'{name}' has no transaction: {why}.", (), commands, numbers)
    sentence = f"'{name}' has no transaction: its coordinator knows no such id."
    if f.log_failure is not None:
        return Told(
            sentence, (f"Whether it expired is not known: {failure_in_words(f, f.log_failure)}.",), commands, numbers
        )
    left = (
        "The transaction log has no record of it. An id that expired longer than delete.retention.ms ago looks like "
        "an id that never was."
    )
    return Told(sentence, (left,), commands, numbers)


def at_rest(f: Facts, one: Transaction) -> Told:
    error = f.symptom.error
    is_busy = error is not None and error.kind is ErrorKind.BUSY
    passed = f", and {error.name} has passed" if error is not None and is_busy else ""
    how = f"it is in {one.state}{passed}"
    event = takeover(f.logged, f.symptom.producer_id, f.symptom.producer_epoch) if is_busy else None
    if event is not None and event.timed_out is not None and one.state == State.COMPLETE_ABORT:
        how = f"{aborted_at_timeout(f, event.timed_out)}"
    elif error is not None and error.name == "INVALID_TXN_STATE" and one.state == State.EMPTY:
        how = "nothing was added to one since it was initialized (Empty), so there is nothing to commit or to abort"
    sentence = f"'{one.transactional_id}' has no transaction open: {how}."
    swept = "and a sweep of all partitions found no open transaction of its producer id" if f.whole_cluster else ""
    state = of_id(one).rstrip(".")
    evidence = (f"{state}, {swept}." if swept else f"{state}.", *known_defects(f))
    command = txnscan_command(f, "transaction-log", transactional_id=one.transactional_id)
    numbers = numbers_of_id(f, one)
    return Told(sentence, evidence, (command,), with_takeover(numbers, event) if event is not None else numbers)


def _of_error_alone(f: Facts) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    kind = f.symptom.error.kind if f.symptom.error is not None else None
    if kind is ErrorKind.OFFSETS:
        sentence = f"No group's offsets are in an open transaction now: {CONSUMER_OFFSETS_TOPIC} has none."
        return sentence, (), (txnscan_command(f, "explain", group="GROUP"),)
    if kind is ErrorKind.EXPIRED:
        sentence = (
            "No open transaction is the cause: the partition's leader has forgotten the producer, because its records "
            "were deleted or its state expired."
        )
        return sentence, (), (explain_id(f),)
    sentence = (
        "No transactional id of this cluster is in PrepareCommit or PrepareAbort now: the error has probably passed."
    )
    return sentence, ("The text names no transactional id, so no id was read.",), (explain_id(f),)
