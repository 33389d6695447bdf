"""Transactions that hold readers back: hanging, decided, owned, or not observed; and offsets inside one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from txnscan.explain import finding
from txnscan.explain.answers.commands import (
    commands_for,
    commands_for_id,
    commands_to_end,
    explain_partition,
    find_hanging,
    how_to_end_sooner,
    txnscan_command,
)
from txnscan.explain.answers.numbers import numbers_of, numbers_of_id
from txnscan.explain.answers.sentences import (
    NAMED_MAX,
    expired,
    expired_at_ms,
    failure_in_words,
    known_defects,
    of_id,
    of_partition,
    of_reader,
    partitions_of_id,
    reader_first,
    waits_for,
)
from txnscan.explain.answers.subjects import both, matched
from txnscan.explain.answers.transaction_end import cannot_end, claimant, end_in_words, how_it_ends
from txnscan.explain.cause import Subject, Told
from txnscan.explain.facts import Facts, PartitionFacts
from txnscan.kafka.answers import State
from txnscan.kafka.units import duration, first_of, plural
from txnscan.resolve.guard import offered
from txnscan.resolve.offer import in_words, swept
from txnscan.verdict.evidence import Judged, Reason
from txnscan.verdict.explanations import SENDS_AGAIN
from txnscan.waiting.cause import sentence as sentence_of_cause


def pending(f: Facts, s: Subject) -> Told:
    pending, holder = matched(s.pending), s.judged
    named = ", ".join(pending.partitions[:NAMED_MAX]) or "some of its partitions"
    group = f"Group '{pending.group}'" if pending.group is not None else "A group"
    begin = f"{group} does not get its offsets of {named}: they are in a transaction"
    if holder is not None:
        numbers = numbers_of(f, pending.log, holder, group=pending.group)
        evidence = (holder.judgement.explanation, *of_partition(pending.log))
        return Told(
            f"{begin} on {pending.log.name} {how_it_ends(f, holder)}.", evidence, commands_for(f, holder), numbers
        )
    log = pending.log
    commands = (txnscan_command(f, "describe-producers", topic=log.topic, partition=log.partition, open=True),)
    withheld = f"Broker {f.coordinator}, the group's coordinator, withholds them (UNSTABLE_OFFSET_COMMIT)."
    numbers = numbers_of(f, pending.log, None, group=pending.group)
    if pending.unread is not None:
        sentence = f"{begin} that has not ended, and that could not be read: {failure_in_words(f, pending.unread)}."
        return Told(sentence, (withheld,), commands, numbers)
    sentence = (
        f"{group} does not get its offsets of {named}: its coordinator counts them as pending, though "
        f"{pending.log.name} has no open transaction."
    )
    again = "Move the leader of that partition: the next coordinator loads it again."
    return Told(sentence, (withheld, again, *known_defects(f)), commands, numbers)


def hanging(f: Facts, s: Subject) -> Told:
    p, judged = both(s)
    o, every = judged.observation, [both(one) for one in finding.every_hanging(f)]
    names = tuple(dict.fromkeys(where.name for where, _ in every))
    stopped = [*(["compaction"] if p.compacted else []), *(["tiering"] if p.tiered else [])]
    stop = f"{' and '.join(['read_committed readers', *stopped])} stop"
    if len(names) > 1:
        what = f"transactions that hang on {plural(len(names), 'partition')}, {first_of(names, NAMED_MAX)}"
        waits = (
            f"{waits_for(f, p)} {what}" if f.symptom.is_reader else what[0].upper() + what[1:].replace(" that", "", 1)
        )
        sentence = f"{waits}: no coordinator will end them."
    elif f.symptom.is_reader:
        sentence = f"{waits_for(f, p)} a transaction that hangs on {p.name}: no coordinator will end it."
    elif judged.holds_lso is False:
        sentence = f"A transaction hangs on {p.name} from offset {o.start_offset}, and no coordinator will end it."
    else:
        sentence = (
            f"A transaction hangs on {p.name}, and no coordinator will end it: {stop} at offset "
            f"{o.start_offset if p.last_stable_offset is None else p.last_stable_offset}."
        )
    proof = (
        f"A sweep proves it: two reads of the partition's leader, and all coordinators between them ({f.sweep_id})."
        if f.sweep_id is not None
        else "A sweep proves it: two reads of the partition's leader, and all coordinators between them."
    )
    outcome = judged.outcome
    reason = judged.outcome_reason
    decided = (f"Outcome of its data: {outcome}, {reason}.",) if outcome is not None and reason else ()
    cause = p.cause(judged)
    caused = (sentence_of_cause(*cause),) if cause is not None else ()
    more = (f"All partitions: {', '.join(names)}.",) if len(names) > NAMED_MAX else ()
    evidence = (judged.judgement.explanation, proof, *caused, *of_partition(p), *decided, *_offers(every), *more)
    commands = dict.fromkeys(one for _, each in every for one in commands_to_end(f, each, alone=len(every) == 1))
    numbers = replace(numbers_of(f, p, judged), partitions=names)
    return Told(sentence, (*evidence, *of_reader(f, p)), tuple(commands), numbers)


def _offers(every: Sequence[tuple[PartitionFacts, Judged]]) -> Iterable[str]:
    """What ends each of these hanging transactions, with its partitions if the answers differ."""
    places: dict[str, list[str]] = {}
    for p, judged in every:
        places.setdefault(in_words(offered(swept(judged))), []).append(p.name)
    if len(places) == 1:
        return list(places)
    shown = [f"{first_of(where, NAMED_MAX)}: {said}" for said, where in list(places.items())[:NAMED_MAX]]
    more = len(places) - len(shown)
    return [
        *shown,
        *([f"And {plural(more, 'more answer')}, which txnscan find-hanging --verbose has."] if more else []),
    ]


def prepared(f: Facts, s: Subject) -> Told:
    if s.judged is not None:
        p, judged = both(s)
        view = claimant(judged)
        name = f"'{view.transactional_id}'" if view is not None else "its transactional id"
        decision = "commit" if view is not None and view.state == State.PREPARE_COMMIT else "abort"
        late = judged.judgement.reason is Reason.STUCK
        how = "and its marker is overdue" if late else "and its marker is on the way"
        sentence = f"The transaction on {p.name} is decided: {name} decided to {decision}, {how}."
        evidence = (judged.judgement.explanation, *of_partition(p), *of_reader(f, p))
        return Told(sentence, evidence, commands_for(f, judged), numbers_of(f, p, judged))
    one = matched(s.transaction)
    late = one.age_ms is not None and one.age_ms > f.late_after_ms
    owed = ", ".join(one.partitions[:NAMED_MAX]) or "no listed partition"
    since = f" for a transaction that began {duration(one.age_ms)} ago" if one.age_ms is not None else ""
    how = f"stuck in {one.state}{since}" if late else f"in {one.state}"
    then = "and cannot begin another transaction before that" if late else "which normally takes a moment"
    sentence = f"'{one.transactional_id}' is {how}: it owes a marker to {owed}, {then}."
    more = len(f.prepared) - 1 if f.transaction is None else 0
    evidence = (
        of_id(one),
        *([f"{SENDS_AGAIN}."] if late else []),
        *([f"Also in Prepare*: {plural(more, 'id')}."] if more > 0 else []),
        *known_defects(f),
    )
    return Told(sentence, evidence, commands_for_id(f, one.transactional_id, stuck=True), numbers_of_id(f, one))


def owned(f: Facts, s: Subject) -> Told:
    if s.judged is not None:
        p, judged = both(s)
        what = f"transaction on {p.name} {how_it_ends(f, judged)}"
        waits = f"{waits_for(f, p)} a {what}."
        sentence = waits if f.symptom.is_reader else f"There is an open {what}."
        began = f"It began {duration(judged.judgement.age_ms)} ago."
        sooner, fence = how_to_end_sooner(f, claimant(judged), judged)
        alone, elsewhere = _read_alone(f)
        evidence = (judged.judgement.explanation, began, *sooner, *of_partition(p), *of_reader(f, p), *alone)
        # An earlier transaction must end first.
        first = (explain_partition(f, p),) if judged.holds_lso is False else ()
        commands = (*first, *commands_for(f, judged), *fence, *elsewhere)
        return Told(sentence, evidence, commands, numbers_of(f, p, judged))
    one = matched(s.transaction)
    blocker = f.blocker_of(one)
    ends = (
        end_in_words(f.now_ms, one.start_time_ms, one.timeout_ms) if blocker is None else f" that {cannot_end(blocker)}"
    )
    sentence = f"'{one.transactional_id}' has a transaction open{ends}."
    sooner, fence = how_to_end_sooner(f, one, None)
    alone, elsewhere = _read_alone(f)
    evidence = (of_id(one), *sooner, *partitions_of_id(one), *alone)
    commands = (*commands_for_id(f, one.transactional_id), *fence, *elsewhere)
    return Told(sentence, evidence, commands, numbers_of_id(f, one))


def _read_alone(f: Facts) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """That only the partitions of an id's transaction were read, and the command that reads all; else empty."""
    one = f.transaction
    if one is None or f.whole_cluster:
        return (), ()
    said = (
        "Only the partitions that its coordinator lists were read: what its producer has open on another one is not in "
        "this answer."
    )
    return (said,), (txnscan_command(f, "explain", producer_id=one.producer_id),)


def not_observed(f: Facts, s: Subject) -> Told:
    if s.judged is not None:
        p, judged = both(s)
        sentence = f"A transaction is open on {p.name}, and it is not proven whether it hangs."
        evidence = (judged.judgement.explanation, *of_partition(p), *of_reader(f, p))
        commands = (txnscan_command(f, "check"), find_hanging(f, p))
        return Told(sentence, evidence, commands, numbers_of(f, p, judged, failure=judged.judgement.reason.value))
    failure = matched(s.failure)
    why = failure_in_words(f, failure)
    named = s.partition is None or why.startswith(s.partition.name)
    where = "" if named or s.partition is None else f" on {s.partition.name}"
    sentence = f"The cause{where} could not be observed: {why}."
    others = dict.fromkeys(failure_in_words(f, one) for one in f.failures)
    more = [one for one in others if one != why][:NAMED_MAX]
    slow = finding.real_lag(f)
    read = (f"{reader_first(f)} has records to read on {slow.partition.name}.",) if slow and slow.partition else ()
    numbers = numbers_of(f, s.partition, None, failure=failure.code)
    if f.absent and f.logged:
        read = (f"'{f.symptom.transactional_id}' {expired(f)}.",)
        numbers = replace(numbers, expired_at_ms=expired_at_ms(f))
    unread = (txnscan_command(f, "explain", topic="TOPIC"),) if f.symptom.is_reader and not f.partitions else ()
    return Told(
        sentence,
        (*read, *(f"Also not observed: {one}." for one in more)),
        (*unread, txnscan_command(f, "check")),
        numbers,
    )
