"""Logs that grow: compaction and tiering that stop at a transaction, and the log cleaner. Pure."""

from __future__ import annotations

from txnscan.explain import finding
from txnscan.explain.answers.commands import commands_for, how_to_end_sooner, log_dirs, txnscan_command
from txnscan.explain.answers.numbers import numbers_of
from txnscan.explain.answers.sentences import of_partition
from txnscan.explain.answers.subjects import both, matched
from txnscan.explain.answers.transaction_end import claimant, how_it_ends
from txnscan.explain.cause import Subject, Told
from txnscan.explain.facts import Facts, PartitionFacts
from txnscan.kafka.units import brokers_named, duration, plural


def cleaner(f: Facts, s: Subject) -> Told:
    p, judged = both(s)
    age = duration(judged.judgement.age_ms)
    sentence = (
        f"Compaction of {p.name} has been stopped at offset {p.last_stable_offset} for {age}, before a transaction "
        f"{how_it_ends(f, judged)}."
    )
    return _held_back(f, s, sentence, "The cleaner does not pass the last stable offset.")


def tiering(f: Facts, s: Subject) -> Told:
    p, judged = both(s)
    age = duration(judged.judgement.age_ms)
    sentence = (
        f"Segments of {p.name} from offset {p.last_stable_offset} on have stayed on local disks for {age}, behind a "
        f"transaction {how_it_ends(f, judged)}."
    )
    return _held_back(f, s, sentence)


def _held_back(f: Facts, s: Subject, sentence: str, *rules: str) -> Told:
    """The answer for a log that a transaction holds back. rules: of Kafka, which explain the sentence."""
    p, judged = both(s)
    sooner, fence = how_to_end_sooner(f, claimant(judged), judged)
    evidence = (judged.judgement.explanation, *sooner, *of_partition(p), *rules)
    return Told(sentence, evidence, (*commands_for(f, judged), *fence), numbers_of(f, p, judged))


def cleaner_gave_up(f: Facts, s: Subject) -> Told:
    p = s.partition
    if p is None:
        sentence = "A broker's log cleaner has given up on some or all compacted logs: they grow until it restarts."
        return Told(
            sentence, (_OF_EXCEPTION,), (txnscan_command(f, "explain", topic="TOPIC"),), numbers_of(f, None, None)
        )
    sentence = f"The log cleaner of a broker has given up on {p.name}: it does not clean it until the broker restarts."
    open_too = finding.hanging(f)
    hangs = (f"A transaction hangs on {p.name} too.",) if open_too is not None else ()
    return Told(sentence, (_OF_EXCEPTION, *of_partition(p), *hangs), log_dirs(f, p.topic), numbers_of(f, p, None))


_OF_EXCEPTION = "The next lines of the log have the exception. Remove its reason before the restart."


def cleaner_behind(f: Facts, s: Subject) -> Told:
    p = matched(s.partition)
    sentence = (
        f"Compaction of {p.name} is due and not done, and no transaction holds it back: the log cleaner is behind or "
        "has stopped."
    )
    return Told(sentence, _of_cleaner(p), log_dirs(f, p.topic), numbers_of(f, p, None))


def compaction_free(f: Facts, s: Subject) -> Told:
    p, count = matched(s.partition), len(f.partitions)
    where = p.name if count == 1 else f"the {plural(count, 'partition')} of {p.topic}"
    sentence = f"No transaction is open on {where}, so no transaction holds compaction back."
    lag = ("The log ends with a marker: a group that has read everything may show a lag of 1.",)
    ends_with_marker = p.ahead is not None and p.ahead.markers > 0
    evidence = (*_of_cleaner(p), *(lag if ends_with_marker else ()))
    return Told(sentence, evidence, log_dirs(f, p.topic), numbers_of(f, p, None))


def _of_cleaner(p: PartitionFacts) -> tuple[str, ...]:
    """What the records show about the cleaner, and where the broker reports it."""
    one = p.cleaning
    said: tuple[str, ...] = ()
    if one is not None and one.records_read:
        first, again = plural(one.records_read, "record"), plural(one.duplicates, "record")
        said = (f"No key comes twice among the first {first} of {p.name}: they do not show that cleaning is missing.",)
        if one.duplicates:
            settings = "" if one.is_due else " By its size and its settings, it may not have to yet."
            said = (
                f"Of the first {first} of {p.name}, the key of {again} comes again: the cleaner keeps one record of "
                f"each key, so it has not cleaned them.{settings}",
            )
    brokers = [each.broker_id for each in p.disk.read.replicas] if p.disk.read is not None else []
    where = brokers_named(brokers) if brokers else "the brokers with its replicas"
    return (
        *of_partition(p),
        *said,
        f"Kafka has no API for the state of a cleaner. On {where}, look at log-cleaner.log, and at the metrics "
        "uncleanable-partitions-count and time-since-last-run-ms of kafka.log:type=LogCleanerManager and "
        "DeadThreadCount of kafka.log:type=LogCleaner.",
    )
