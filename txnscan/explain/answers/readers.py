"""Readers that no transaction blocks: their isolation level, the records before them, and the end of logs. Pure."""

from __future__ import annotations

from txnscan.explain.answers.commands import describe_group, find_hanging, txnscan_command
from txnscan.explain.answers.numbers import numbers_of
from txnscan.explain.answers.sentences import (
    NAMED_MAX,
    failure_in_words,
    of_partition,
    reader_first,
    reader_name,
    reader_position,
)
from txnscan.explain.answers.subjects import both, matched
from txnscan.explain.cause import Subject, Told
from txnscan.explain.facts import Facts, PartitionFacts
from txnscan.kafka.units import plural
from txnscan.waiting.ahead import Ahead


def share_uncommitted(f: Facts, s: Subject) -> Told:
    sentence = f"No transaction blocks {reader_name(f)}: its share.isolation.level is read_uncommitted."
    return Told(sentence, _open_on(f), describe_group(f), numbers_of(f, s.partition, None))


def _open_on(f: Facts) -> tuple[str, ...]:
    """The open transactions on the partitions of a group, which do not block it."""
    held = [(one, holder) for one in f.partitions if (holder := one.holder) is not None]
    if not held:
        return (f"No transaction is open on its {plural(len(f.partitions), 'partition')}.",) if f.partitions else ()
    return tuple(
        f"On {one.name} a transaction is open at offset {holder.observation.start_offset} "
        f"({holder.judgement.verdict.value})."
        for one, holder in held[:NAMED_MAX]
    )


def not_read_committed(f: Facts, s: Subject) -> Told:
    p, judged = both(s)
    sentence = (
        f"{reader_first(f)} is not read_committed on {p.name}, so no transaction blocks it, unless a tool set its "
        f"offset: {reader_position(f, p)}, and the last stable offset is {p.last_stable_offset}."
    )
    lag = f"Its lag is {p.lag:,}: it is slow or stopped." if p.lag else "It has read everything."
    evidence = (
        lag,
        f"The open transaction there: {judged.judgement.explanation}",
        "A read_committed reader never reads past the last stable offset. One whose offset was set there, as with "
        "kafka-consumer-groups.sh --reset-offsets --to-latest, waits for that transaction.",
        *of_partition(p),
    )
    return Told(sentence, evidence, (*describe_group(f), find_hanging(f, p)), numbers_of(f, p, judged))


def unreadable(f: Facts, s: Subject) -> Told:
    p, failure = matched(s.partition), matched(s.failure)
    sentence = (
        f"No transaction blocks {reader_name(f)}: the leader cannot read the next records of {p.name} from its disk "
        f"({failure.code})."
    )
    leader = "Look at the log of the broker that leads the partition, and at its disk."
    replica = "Another replica may have the records: move the leader, and ask again."
    evidence = (
        f"{reader_position(f, p).capitalize()}. {failure_in_words(f, failure)}.",
        *of_partition(p),
        leader,
        replica,
    )
    commands = (*describe_group(f), txnscan_command(f, "explain", topic=p.topic, partition=p.partition))
    return Told(sentence, evidence, commands, numbers_of(f, p, None, failure=failure.code))


def at_marker(f: Facts, s: Subject) -> Told:
    p, ahead = _end(s)
    sentence = (
        f"No transaction blocks {reader_name(f)}: it stands on a transaction marker of {p.name}, at offset "
        f"{p.committed}, and its next record is at offset {ahead.record_at}."
    )
    client = "A client that cannot step over control records stays there. A reader that is slow or stopped does too."
    lag = f"Its lag is {p.lag or 0:,}, up to the high watermark."
    return Told(sentence, (client, lag, *of_partition(p)), describe_group(f), numbers_of(f, p, None))


def real_lag(f: Facts, s: Subject) -> Told:
    p = matched(s.partition)
    sentence = f"No transaction blocks {reader_name(f)}: it has records to read on {p.name}, and is slow or stopped."
    if p.ahead is not None and p.ahead.aborted:
        skipped = f"{plural(p.ahead.aborted, 'record')} of aborted transactions"
        sentence = (
            f"No transaction blocks {reader_name(f)}: on {p.name} it has to skip {skipped} before its next record, at "
            f"offset {p.ahead.record_at}."
        )
    ahead = [(one, one.holder) for one in f.partitions if one.holder is not None]
    evidence = [f"{reader_position(f, p).capitalize()}, and its lag is {p.lag or 0:,}, up to the high watermark."]
    if p.ahead is not None and p.ahead.failure is not None:
        evidence.append(f"{failure_in_words(f, p.ahead.failure)}.")
    for one, holder in ahead[:NAMED_MAX]:
        where = "where the reader waits" if one.waits else "after the next records of the reader"
        evidence.append(
            f"On {one.name} a transaction is open at offset {holder.observation.start_offset} "
            f"({holder.judgement.verdict.value}), {where}."
        )
    commands = (
        *describe_group(f),
        *(txnscan_command(f, "explain", topic=one.topic, partition=one.partition) for one, _ in ahead[:1]),
    )
    return Told(sentence, tuple(evidence), commands, numbers_of(f, p, None))


def aborted(f: Facts, s: Subject) -> Told:
    p, ahead = _end(s)
    what = f"{plural(ahead.aborted, 'record')} of aborted transactions and {plural(ahead.markers, 'marker')}"
    sentence = (
        f"No transaction is stuck: the lag of {p.lag or 0:,} on {p.name} is {what}, which read_committed readers skip."
        if f.symptom.is_reader
        else f"No transaction is open on {p.name}; its log ends with {what}, which read_committed readers skip."
    )
    return Told(sentence, _end_of(f, p), describe_group(f), numbers_of(f, p, None))


def marker(f: Facts, s: Subject) -> Told:
    p, ahead = _end(s)
    what = (
        "a transaction marker, which is no record"
        if ahead.markers == 1
        else "transaction markers, which are no records"
    )
    sentence = (
        f"No transaction is stuck: the lag of {p.lag or 0:,} on {p.name} is {what}."
        if f.symptom.is_reader
        else f"No transaction is open on {p.name}, and its last offset is {what}: a group that has read everything "
        "may show a lag of 1."
    )
    return Told(sentence, _end_of(f, p), describe_group(f), numbers_of(f, p, None))


def _end(s: Subject) -> tuple[PartitionFacts, Ahead]:
    p = matched(s.partition)
    return p, matched(p.ahead)


def _end_of(f: Facts, p: PartitionFacts) -> tuple[str, ...]:
    at = (f"{reader_position(f, p).capitalize()}.",) if p.committed is not None else ()
    return (*at, *of_partition(p))
