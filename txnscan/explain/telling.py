"""The answer of each rule: the sentence, the evidence, the next commands and the numbers. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from txnscan.config import shown_location
from txnscan.coordinators.transactions import Transaction, key_of
from txnscan.explain import finding
from txnscan.explain.cause import Numbers, Subject, Told
from txnscan.explain.client_errors import ErrorKind
from txnscan.explain.facts import Facts, PartitionFacts, PendingOffsets
from txnscan.explain.symptom import SymptomKind
from txnscan.explain.takeover import Takeover, takeover
from txnscan.kafka.answers import PREPARED, TWO_PHASE_COMMIT_TIMEOUT_MS, CoordinatorView, State
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.kafka.security.acls import explained
from txnscan.kafka.topology import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from txnscan.kafka.units import duration, plural, size
from txnscan.resolve.guard import Allowed, fence_refusal, offered
from txnscan.resolve.offer import in_words, swept
from txnscan.txnlog.facts import LoggedTransaction
from txnscan.verdict.ending import coordinator_aborts, timeout_end_ms, utc_time
from txnscan.verdict.evidence import Judged, Reason, Verdict
from txnscan.verdict.explanations import SENDS_AGAIN
from txnscan.verdict.predicates import TIMEOUT_SLACK_MS, held_by
from txnscan.waiting.ahead import Ahead
from txnscan.waiting.blocking import ORDINARY_MS, aborts_by_ms, end_of
from txnscan.waiting.cause import sentence as sentence_of_cause
from txnscan.waiting.groups import NO_MEMBERS
from txnscan.waiting.writability import WriteState, no_log_reason, no_log_remedy, reason, remedy, stopped_logs

_LOG_LINES_MAX = 8
# local.retention.ms and .bytes take the value of retention.ms and .bytes.
_INHERITED = -2
_NAMED_MAX = 5
_EXPLAIN_ID = "txnscan explain --transactional-id ID --error TEXT"

Found = TypeVar("Found")


_HOW_FENCED = "another instance took the id over, or its coordinator aborted a transaction that timed out"
_EXPIRES = "transactional.id.expiration.ms"


def fenced(f: Facts, s: Subject) -> Told:
    one = s.transaction
    if one is None:
        which = "The text names no transactional id, so no epochs were read."
        if f.symptom.producer_id is not None:
            which = f"No transactional id has producer id {f.symptom.producer_id} now."
        sentence = f"The producer is fenced: its transactional id went on to a later epoch, because {_HOW_FENCED}."
        return Told(sentence, (which, *_known(f)), (_EXPLAIN_ID,), _numbers(f, None, None))
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
    evidence = (_state(one), *(records or [none, *_known(f)]))
    open_too = finding.hanging(f)
    if open_too is not None and open_too.judged is not None:
        evidence += (f"It left a transaction hanging on {open_too.judged.observation.topic_partition}.",)
    commands = (f"txnscan transaction-log --transactional-id {_quoted(one.transactional_id)}",)
    numbers = _of_transaction(f, one, producer_epoch=epoch)
    return Told(sentence, evidence, commands, _with_event(numbers, event) if event is not None else numbers)


def _of_event(f: Facts, event: Takeover) -> str:
    """How a producer was fenced, after "because"."""
    if event.timed_out is not None:
        return _aborted_at_timeout(f, event.timed_out)
    at = _moment(event.at_ms, f.now_ms)
    if event.initialized == 1:
        return f"another instance initialized it at {at}"
    until = _moment(event.last_ms, f.now_ms)
    return (
        f"instances initialized it {event.initialized} times between {at} and {until}: they fight for it, or one "
        "restarts again and again"
    )


def _aborted_at_timeout(f: Facts, one: LoggedTransaction) -> str:
    at, start = _moment(one.updated_ms, f.now_ms), _moment(one.start_time_ms, f.now_ms)
    return (
        f"its coordinator aborted, at {at}, a transaction that was open since {start}, for longer than its timeout of "
        f"{duration(one.timeout_ms)}"
    )


def _with_event(numbers: Numbers, event: Takeover) -> Numbers:
    how = "timeout" if event.timed_out is not None else "instance" if event.initialized == 1 else "instances"
    return replace(numbers, fenced_by=how, fenced_at_ms=event.at_ms)


def setting(f: Facts, s: Subject) -> Told:
    longest = f.max_timeout_ms or 0
    sentence = (
        "No transaction is the cause: the producer asks for a longer transaction.timeout.ms than the brokers' "
        f"transaction.max.timeout.ms, which is {duration(longest)} ({longest} ms)."
    )
    return Told(sentence, (), (), _numbers(f, None, None))


def itself(f: Facts, s: Subject) -> Told:
    error = _found(f.symptom.error)
    if error.kind is ErrorKind.OTHER:
        message = error.meaning.rstrip(".")
        sentence = f"The text has {error.name}, which is no error of a transaction: {message}."
        return Told(sentence, (), (_EXPLAIN_ID,), _numbers(f, None, None))
    about = f.symptom.transactional_id
    commands = (f"txnscan explain --transactional-id {_quoted(about)}",) if about is not None else ()
    return Told(f"{error.meaning}.", (f"{error.remedy}.", *_known(f)), commands, _numbers(f, None, None))


def unrecognised(f: Facts, s: Subject) -> Told:
    sentence = "The text is not explained: it has no error that txnscan knows, and no id."
    return Told(sentence, (), (_EXPLAIN_ID, "txnscan explain --group GROUP"), _numbers(f, None, None))


def pending(f: Facts, s: Subject) -> Told:
    pending, holder = _pending(s), s.judged
    named = ", ".join(pending.partitions[:_NAMED_MAX]) or "some of its partitions"
    group = f"Group '{pending.group}'" if pending.group is not None else "A group"
    begin = f"{group} does not get its offsets of {named}: they are in a transaction"
    if holder is not None:
        numbers = _numbers(f, pending.log, holder, group=pending.group)
        evidence = (holder.judgement.explanation, *_stands(pending.log))
        return Told(
            f"{begin} on {pending.log.name} {_how_it_ends(f, holder)}.", evidence, _of_judged(f, holder), numbers
        )
    where = f"--topic {pending.log.topic} --partition {pending.log.partition}"
    commands = (f"txnscan describe-producers {where} --open",)
    withheld = f"Broker {f.coordinator}, the group's coordinator, withholds them (UNSTABLE_OFFSET_COMMIT)."
    numbers = _numbers(f, pending.log, None, group=pending.group)
    if pending.unread is not None:
        sentence = f"{begin} that has not ended, and that could not be read: {_why(f, pending.unread)}."
        return Told(sentence, (withheld,), commands, numbers)
    sentence = (
        f"{group} does not get its offsets of {named}: its coordinator counts them as pending, though "
        f"{pending.log.name} has no open transaction."
    )
    again = "Move the leader of that partition: the next coordinator loads it again."
    return Told(sentence, (withheld, again, *_known(f)), commands, numbers)


def hanging(f: Facts, s: Subject) -> Told:
    p, judged = _both(s)
    o, every = judged.observation, [_both(one) for one in finding.every_hanging(f)]
    names = tuple(dict.fromkeys(where.name for where, _ in every))
    stopped = [*(["compaction"] if p.compacted else []), *(["tiering"] if p.tiered else [])]
    stop = f"{' and '.join(['read_committed readers', *stopped])} stop"
    if len(names) > 1:
        what = f"transactions that hang on {plural(len(names), 'partition')}, {_some(names)}"
        waits = f"{_waits(f, p)} {what}" if f.symptom.is_reader else what[0].upper() + what[1:].replace(" that", "", 1)
        sentence = f"{waits}: no coordinator will end them."
    elif f.symptom.is_reader:
        sentence = f"{_waits(f, p)} a transaction that hangs on {p.name}: no coordinator will end it."
    elif judged.holds_lso is False:
        sentence = f"A transaction hangs on {p.name} from offset {o.start_offset}, and no coordinator will end it."
    else:
        sentence = (
            f"A transaction hangs on {p.name}, and no coordinator will end it: {stop} at offset {o.start_offset}."
        )
    proof = (
        f"A sweep proves it: two reads of the partition's leader, and all coordinators between them ({f.sweep_id})."
        if f.sweep_id is not None
        else "A sweep proves it: two reads of the partition's leader, and all coordinators between them."
    )
    outcome = judged.judgement.outcome
    reason = judged.judgement.outcome_reason
    decided = (f"Outcome of its data: {outcome}, {reason}.",) if outcome is not None and reason else ()
    cause = p.cause(judged)
    caused = (sentence_of_cause(*cause),) if cause is not None else ()
    more = (f"All partitions: {', '.join(names)}.",) if len(names) > _NAMED_MAX else ()
    evidence = (judged.judgement.explanation, proof, *caused, *_stands(p), *decided, *_offers(every), *more)
    commands = dict.fromkeys(one for _, each in every for one in _to_end(each, alone=len(every) == 1))
    numbers = replace(_numbers(f, p, judged), partitions=names)
    return Told(sentence, (*evidence, *_of_group(f, p)), tuple(commands), numbers)


def _some(names: Sequence[str]) -> str:
    """The first of these names, and the number of others."""
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _offers(every: Sequence[tuple[PartitionFacts, Judged]]) -> Iterable[str]:
    """What ends each of these hanging transactions, with its partitions if the answers differ."""
    places: dict[str, list[str]] = {}
    for p, judged in every:
        places.setdefault(in_words(offered(swept(judged))), []).append(p.name)
    if len(places) == 1:
        return list(places)
    shown = [f"{_some(where)}: {said}" for said, where in list(places.items())[:_NAMED_MAX]]
    more = len(places) - len(shown)
    return [
        *shown,
        *([f"And {plural(more, 'more answer')}, which txnscan find-hanging --verbose has."] if more else []),
    ]


def unasked(f: Facts) -> Told:
    """What an error means whose cause only brokers can show, if none is named."""
    asked, error = f.symptom, _found(f.symptom.error)
    ids = (("--transactional-id", asked.transactional_id), ("--producer-id", asked.producer_id))
    given = [f"{option} {_quoted(str(one))}" for option, one in ids if one is not None]
    about = [f"--group {_quoted(asked.group)}"] if asked.group is not None else [*given[:1], f"--error {error.name}"]
    remedy = (f"{error.remedy}.",) if error.remedy else ()
    evidence = (*remedy, "No broker was asked: give --bootstrap-server to find the cause on the cluster.", *_known(f))
    numbers = replace(_numbers(f, None, None), failure=FailureCode.NOT_ASKED.value)
    return Told(f"{error.meaning}.", evidence, (f"txnscan explain {' '.join(about)}",), numbers)


def no_writes(f: Facts, s: Subject) -> Told:
    stopped, one = _found(s.stopped), s.transaction
    of_kind = "unavailable" if stopped.replicas.has_no_leader else "under-min-isr"
    commands = (f"kafka-topics.sh --describe --{of_kind}-partitions",)
    if s.judged is not None:
        p, judged = _both(s)
        what = f"transaction on {p.name} {_how_it_ends(f, judged)}"
        sentence = f"{_begin(f)} waits for a {what}." if f.symptom.is_reader else f"There is an open {what}."
        began = f"It began {duration(judged.judgement.age_ms)} ago."
        compaction = ("Compaction stops there, too.",) if p.compacted else ()
        evidence = (judged.judgement.explanation, began, *_stands(p), *compaction, *_of_group(f, p))
        return Told(sentence, evidence, (*commands, *_of_judged(f, judged)), _numbers(f, p, judged))
    why, help_ = reason(stopped), f"{remedy(stopped)}."
    if one is not None:
        states = {State.ONGOING: "has a transaction open that cannot end", **_PREPARED_AND_STOPPED}
        what = states.get(State(one.state), "has no transaction open, and cannot begin one")
        known = (help_, _state(one), *_partitions_of(one), *_known(f))
        ids = _of_id(one.transactional_id, stuck=one.state in PREPARED)
        return Told(f"'{one.transactional_id}' {what}: {why}.", known, (*commands, *ids), _of_transaction(f, one))
    about = f.symptom.transactional_id
    if about is not None:
        sentence = f"'{about}' cannot begin a transaction: {why}."
        return Told(sentence, (help_, "Its coordinator knows no such id."), commands, _numbers(f, None, None))
    what, why = _found(stopped_logs(f.writes))
    return Told(f"{what}.", (f"{why}.", *_known(f)), commands, _numbers(f, None, None))


def leaderless(f: Facts, s: Subject) -> Told:
    p, stopped = _found(s.partition), _found(s.stopped)
    sentence = f"{reason(stopped)}, so nobody reads or writes it, and a transaction on it could not be observed."
    evidence = (f"{remedy(stopped)}.", *_of_group(f, p), *_known(f))
    return Told(sentence, evidence, ("kafka-topics.sh --describe --unavailable-partitions",), _numbers(f, p, None))


_PREPARED_AND_STOPPED = {state: f"is in {state}, and cannot complete" for state in PREPARED}


def marker_at_risk(f: Facts, s: Subject) -> Told:
    one, stopped = _id(s), _found(s.stopped)
    left = due(f, one.start_time_ms, one.timeout_ms)
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
    evidence = (why, help_, _state(one), *_partitions_of(one), *_known(f))
    commands = ("kafka-topics.sh --describe --unavailable-partitions", *_of_id(one.transactional_id))
    return Told(sentence, evidence, commands, _of_transaction(f, one))


def no_log(f: Facts, s: Subject) -> Told:
    missing, about = _found(f.writes.no_log), f.symptom.transactional_id
    subject = f"'{about}' has no transaction, and cannot begin one" if about is not None else "No transaction can begin"
    help_ = f"{no_log_remedy(missing)}. Until then producers get a timeout from InitProducerId."
    sentence = f"{subject}: {no_log_reason(missing)}."
    return Told(sentence, (help_, *_known(f)), ("txnscan check",), _numbers(f, None, None))


def prepared(f: Facts, s: Subject) -> Told:
    if s.judged is not None:
        p, judged = _both(s)
        view = _view(judged)
        name = f"'{view.transactional_id}'" if view is not None else "its transactional id"
        decision = "commit" if view is not None and view.state == State.PREPARE_COMMIT else "abort"
        late = judged.judgement.reason is Reason.STUCK
        how = "and its marker is overdue" if late else "and its marker is on the way"
        sentence = f"The transaction on {p.name} is decided: {name} decided to {decision}, {how}."
        evidence = (judged.judgement.explanation, *_stands(p), *_of_group(f, p))
        return Told(sentence, evidence, _of_judged(f, judged), _numbers(f, p, judged))
    one = _id(s)
    late = one.age_ms is not None and one.age_ms > f.late_after_ms
    owed = ", ".join(one.partitions[:_NAMED_MAX]) or "no listed partition"
    since = f" for a transaction that began {duration(one.age_ms)} ago" if one.age_ms is not None else ""
    how = f"stuck in {one.state}{since}" if late else f"in {one.state}"
    then = "and cannot begin another transaction before that" if late else "which normally takes a moment"
    sentence = f"'{one.transactional_id}' is {how}: it owes a marker to {owed}, {then}."
    more = len(f.prepared) - 1 if f.transaction is None else 0
    evidence = (
        _state(one),
        *([f"{SENDS_AGAIN}."] if late else []),
        *([f"Also in Prepare*: {plural(more, 'id')}."] if more > 0 else []),
        *_known(f),
    )
    return Told(sentence, evidence, _of_id(one.transactional_id, stuck=True), _of_transaction(f, one))


def cleaner(f: Facts, s: Subject) -> Told:
    p, judged = _both(s)
    age = duration(judged.judgement.age_ms)
    sentence = (
        f"Compaction of {p.name} has been stopped at offset {p.last_stable_offset} for {age}, before a transaction "
        f"{_how_it_ends(f, judged)}."
    )
    sooner, fence = _sooner(f, _view(judged), f.writes.blocker_of(judged))
    passes = "The cleaner does not pass the last stable offset."
    evidence = (judged.judgement.explanation, *sooner, *_stands(p), passes)
    return Told(sentence, evidence, (*_of_judged(f, judged), *fence), _numbers(f, p, judged))


def tiering(f: Facts, s: Subject) -> Told:
    p, judged = _both(s)
    age = duration(judged.judgement.age_ms)
    sentence = (
        f"Segments of {p.name} from offset {p.last_stable_offset} on have stayed on local disks for {age}, behind a "
        f"transaction {_how_it_ends(f, judged)}."
    )
    sooner, fence = _sooner(f, _view(judged), f.writes.blocker_of(judged))
    evidence = (judged.judgement.explanation, *sooner, *_stands(p))
    return Told(sentence, evidence, (*_of_judged(f, judged), *fence), _numbers(f, p, judged))


def cleaner_gave_up(f: Facts, s: Subject) -> Told:
    p = s.partition
    if p is None:
        sentence = "A broker's log cleaner has given up on some or all compacted logs: they grow until it restarts."
        return Told(sentence, (_OF_EXCEPTION,), ("txnscan explain --topic TOPIC",), _numbers(f, None, None))
    sentence = f"The log cleaner of a broker has given up on {p.name}: it does not clean it until the broker restarts."
    open_too = finding.hanging(f)
    hangs = (f"A transaction hangs on {p.name} too.",) if open_too is not None else ()
    return Told(sentence, (_OF_EXCEPTION, *_stands(p), *hangs), _log_dirs(p), _numbers(f, p, None))


_OF_EXCEPTION = "The next lines of the log have the exception. Remove its reason before the restart."


def cleaner_behind(f: Facts, s: Subject) -> Told:
    p = _partition(s)
    sentence = (
        f"Compaction of {p.name} is due and not done, and no transaction holds it back: the log cleaner is behind or "
        "has stopped."
    )
    return Told(sentence, _of_cleaner(p), _log_dirs(p), _numbers(f, p, None))


def compaction_free(f: Facts, s: Subject) -> Told:
    p, count = _partition(s), len(f.partitions)
    where = p.name if count == 1 else f"the {plural(count, 'partition')} of {p.topic}"
    sentence = f"No transaction is open on {where}, so no transaction holds compaction back."
    lag = ("The log ends with a marker: a group that has read everything may show a lag of 1.",)
    ends_with_marker = p.ahead is not None and p.ahead.markers > 0
    evidence = (*_of_cleaner(p), *(lag if ends_with_marker else ()))
    return Told(sentence, evidence, _log_dirs(p), _numbers(f, p, None))


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
    brokers = [str(each.broker_id) for each in p.disk.read.replicas] if p.disk.read is not None else []
    where = f"broker {', '.join(brokers)}" if brokers else "the brokers with its replicas"
    return (
        *_stands(p),
        *said,
        f"Kafka has no API for the state of a cleaner. On {where}, look at log-cleaner.log, and at the metrics "
        "uncleanable-partitions-count and time-since-last-run-ms of kafka.log:type=LogCleanerManager and "
        "DeadThreadCount of kafka.log:type=LogCleaner.",
    )


def _log_dirs(p: PartitionFacts) -> tuple[str, ...]:
    """Kafka's own tool, which shows the sizes of all replicas."""
    return _log_dirs_of(p.topic)


def _log_dirs_of(topic: str | None) -> tuple[str, ...]:
    return (f"kafka-log-dirs.sh --describe --topic-list {_quoted(topic or '')}",)


def owned(f: Facts, s: Subject) -> Told:
    if s.judged is not None:
        p, judged = _both(s)
        what = f"transaction on {p.name} {_how_it_ends(f, judged)}"
        waits = f"{_waits(f, p)} a {what}."
        sentence = waits if f.symptom.is_reader else f"There is an open {what}."
        began = f"It began {duration(judged.judgement.age_ms)} ago."
        sooner, fence = _sooner(f, _view(judged), f.writes.blocker_of(judged))
        evidence = (judged.judgement.explanation, began, *sooner, *_stands(p), *_of_group(f, p))
        return Told(sentence, evidence, (*_of_judged(f, judged), *fence), _numbers(f, p, judged))
    one = _id(s)
    blocker = f.writes.blocker(one.transactional_id, one.state, map(key_of, one.partitions))
    ends = _ends(f.now_ms, one.start_time_ms, one.timeout_ms) if blocker is None else f" that {_cannot_end(blocker)}"
    sentence = f"'{one.transactional_id}' has a transaction open{ends}."
    sooner, fence = _sooner(f, one, blocker)
    evidence = (_state(one), *sooner, *_partitions_of(one))
    return Told(sentence, evidence, (*_of_id(one.transactional_id), *fence), _of_transaction(f, one))


def _sooner(
    f: Facts, one: Transaction | CoordinatorView | None, blocker: WriteState | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What ends a live transaction before its timeout, in words and as a command. Empty if it ends in a moment, if its
    end cannot be written, or if the guard of fences refuses.
    """
    if one is None or blocker is not None:
        return (), ()
    by_ms = timeout_end_ms(one.start_time_ms, one.timeout_ms)
    is_endless = one.timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS
    soon = by_ms is not None and 0 <= by_ms - f.now_ms <= ORDINARY_MS
    if by_ms is None or soon or fence_refusal(two_phase_commit=is_endless) is not None:
        return (), ()
    how = (
        "To end it earlier, let its application commit or abort, or restart the application: initTransactions aborts "
        "the transaction. If no application has the id any more, fence it"
    )
    return (f"{how}.",), (f"txnscan force-terminate --transactional-id {_quoted(one.transactional_id)}",)


def not_observed(f: Facts, s: Subject) -> Told:
    if s.judged is not None:
        p, judged = _both(s)
        sentence = f"A transaction is open on {p.name}, and it is not proven whether it hangs."
        evidence = (judged.judgement.explanation, *_stands(p), *_of_group(f, p))
        commands = ("txnscan check", _find_hanging(p))
        return Told(sentence, evidence, commands, _numbers(f, p, judged, failure=judged.judgement.reason.value))
    failure = _failure(s)
    why = _why(f, failure)
    named = s.partition is None or why.startswith(s.partition.name)
    where = "" if named or s.partition is None else f" on {s.partition.name}"
    sentence = f"The cause{where} could not be observed: {why}."
    more = [_why(f, one) for one in f.failures if one is not failure][:_NAMED_MAX]
    numbers = _numbers(f, s.partition, None, failure=failure.code)
    unread = ("txnscan explain --topic TOPIC",) if f.symptom.is_reader and not f.partitions else ()
    return Told(sentence, tuple(f"Also not observed: {one}." for one in more), (*unread, "txnscan check"), numbers)


def share_uncommitted(f: Facts, s: Subject) -> Told:
    sentence = f"No transaction blocks {_reader(f)}: its share.isolation.level is read_uncommitted."
    return Told(sentence, _open_on(f), _describe_group(f), _numbers(f, s.partition, None))


def _open_on(f: Facts) -> tuple[str, ...]:
    """The open transactions on the partitions of a group, which do not block it."""
    held = [(one, holder) for one in f.partitions if (holder := one.holder) is not None]
    if not held:
        return (f"No transaction is open on its {plural(len(f.partitions), 'partition')}.",) if f.partitions else ()
    return tuple(
        f"On {one.name} a transaction is open at offset {holder.observation.start_offset} "
        f"({holder.judgement.verdict.value})."
        for one, holder in held[:_NAMED_MAX]
    )


def not_read_committed(f: Facts, s: Subject) -> Told:
    p, judged = _both(s)
    sentence = (
        f"{_begin(f)} is not read_committed on {p.name}, so no transaction blocks it: {_at(f, p)}, and the last stable "
        f"offset is {p.last_stable_offset}."
    )
    lag = f"Its lag is {p.lag:,}: it is slow or stopped." if p.lag else "It has read everything."
    evidence = (lag, f"The open transaction there does not concern it: {judged.judgement.explanation}", *_stands(p))
    return Told(sentence, evidence, (*_describe_group(f), _find_hanging(p)), _numbers(f, p, judged))


def unreadable(f: Facts, s: Subject) -> Told:
    p, failure = _partition(s), _failure(s)
    sentence = (
        f"No transaction blocks {_reader(f)}: the leader cannot read the next records of {p.name} from its disk "
        f"({failure.code})."
    )
    leader = "Look at the log of the broker that leads the partition, and at its disk."
    replica = "Another replica may have the records: move the leader, and ask again."
    evidence = (f"{_at(f, p).capitalize()}. {_why(f, failure)}.", *_stands(p), leader, replica)
    where = f"--topic {p.topic} --partition {p.partition}"
    commands = (*_describe_group(f), f"txnscan explain {where}")
    return Told(sentence, evidence, commands, _numbers(f, p, None, failure=failure.code))


def at_marker(f: Facts, s: Subject) -> Told:
    p, ahead = _end(s)
    sentence = (
        f"No transaction blocks {_reader(f)}: it stands on a transaction marker of {p.name}, at offset {p.committed}, "
        f"and its next record is at offset {ahead.record_at}."
    )
    client = "A client that cannot step over control records stays there. A reader that is slow or stopped does too."
    lag = f"Its lag is {p.lag or 0:,}, up to the high watermark."
    return Told(sentence, (client, lag, *_stands(p)), _describe_group(f), _numbers(f, p, None))


def real_lag(f: Facts, s: Subject) -> Told:
    p = _partition(s)
    sentence = f"No transaction blocks {_reader(f)}: it has records to read on {p.name}, and is slow or stopped."
    if p.ahead is not None and p.ahead.aborted:
        skipped = f"{plural(p.ahead.aborted, 'record')} of aborted transactions"
        sentence = (
            f"No transaction blocks {_reader(f)}: on {p.name} it has to skip {skipped} before its next record, at "
            f"offset {p.ahead.record_at}."
        )
    ahead = [(one, one.holder) for one in f.partitions if one.holder is not None]
    evidence = [f"{_at(f, p).capitalize()}, and its lag is {p.lag or 0:,}, up to the high watermark."]
    for one, holder in ahead[:_NAMED_MAX]:
        where = "where the reader waits" if one.waits else "after the next records of the reader"
        evidence.append(
            f"On {one.name} a transaction is open at offset {holder.observation.start_offset} "
            f"({holder.judgement.verdict.value}), {where}."
        )
    commands = (
        *_describe_group(f),
        *(f"txnscan explain --topic {one.topic} --partition {one.partition}" for one, _ in ahead[:1]),
    )
    return Told(sentence, tuple(evidence), commands, _numbers(f, p, None))


def aborted(f: Facts, s: Subject) -> Told:
    p, ahead = _end(s)
    what = f"{plural(ahead.aborted, 'record')} of aborted transactions and {plural(ahead.markers, 'marker')}"
    sentence = (
        f"No transaction is stuck: the lag of {p.lag or 0:,} on {p.name} is {what}, which read_committed readers skip."
        if f.symptom.is_reader
        else f"No transaction is open on {p.name}; its log ends with {what}, which read_committed readers skip."
    )
    return Told(sentence, _end_of(f, p), _describe_group(f), _numbers(f, p, None))


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
    return Told(sentence, _end_of(f, p), _describe_group(f), _numbers(f, p, None))


def none(f: Facts, s: Subject) -> Told:
    asked = f.symptom
    first = f.partitions[0] if len(f.partitions) == 1 else None
    numbers = _numbers(f, first, None)
    if f.transaction is not None:
        return at_rest(f, f.transaction)
    if asked.transactional_id is not None:
        return _absent(f, asked.transactional_id, numbers)
    if asked.kind is SymptomKind.PRODUCER_ID:
        sentence = f"Producer id {asked.producer_id} has no open transaction, and no transactional id has it now."
        evidence = (
            f"A sweep read {plural(f.asked, 'partition')}." if f.whole_cluster else "A sweep saw all coordinators.",
        )
        return Told(sentence, evidence, (f"txnscan transaction-log --producer-id {asked.producer_id}",), numbers)
    if asked.kind is SymptomKind.ERROR:
        return Told(*_of_error_alone(f), numbers)
    if asked.kind is SymptomKind.TOPIC:
        where = first.name if first is not None else f"the {plural(len(f.partitions), 'partition')} of {asked.topic}"
        kept = _kept_by(first or f.partitions[0]) if f.partitions else ()
        because = f": {kept[0].rstrip('.')}" if kept else ""
        sentence = f"No transaction is open on {where}, so no transaction keeps its data{because}."
        largest = sorted(f.partitions, key=lambda p: -(p.disk.partition_bytes or 0))[:1]
        numbers = _numbers(f, first or next(iter(largest), None), None)
        return Told(sentence, tuple(x for p in largest for x in _stands(p)), _log_dirs_of(asked.topic), numbers)
    moving = next((one for one in f.partitions if one.blocked_records), None)
    if moving is not None:
        sentence = (
            f"No transaction blocks {_reader(f)}: the last stable offset of {moving.name} moved from "
            f"{moving.lso_before} to {moving.last_stable_offset} in the meantime, as transactions ended."
        )
        return Told(sentence, _stands(moving), _describe_group(f), _numbers(f, moving, None))
    if f.is_share:
        sentence = f"No transaction blocks {_reader(f)}: none is open on its {plural(len(f.partitions), 'partition')}."
        return Told(sentence, _of_group(f, f.partitions[0]) if f.partitions else (), _describe_group(f), numbers)
    lag = sum(one.lag or 0 for one in f.partitions)
    read = "has read everything" if not lag else f"has a lag of {lag:,}, of offsets without records"
    sentence = f"No transaction blocks {_reader(f)}: it {read} on {plural(len(f.partitions), 'partition')}."
    return Told(sentence, (), _describe_group(f), numbers)


def _absent(f: Facts, name: str, numbers: Numbers) -> Told:
    """An id that its coordinator does not know: what the transaction log has of it."""
    commands = (f"txnscan transaction-log --transactional-id {_quoted(name)}",)
    if f.logged:
        at_ms = f.logged[-1].updated_ms
        when = f" at about {_moment(at_ms, f.now_ms)}" if at_ms >= 0 else ""
        sentence = f"'{name}' has no transaction: it expired{when} ({_EXPIRES})."
        evidence = (
            "The transaction log has its tombstone, and the coordinator does not know it any more.",
            "Its producer gets INVALID_PRODUCER_ID_MAPPING, and has to call initTransactions again.",
        )
        return Told(sentence, evidence, commands, replace(numbers, expired_at_ms=at_ms if at_ms >= 0 else None))
    if f.writes.no_log is not None:
        why = f"{TRANSACTION_STATE_TOPIC} does not exist, so no id was ever used"
        return Told(f"'{name}' has no transaction: {why}.", (), commands, numbers)
    sentence = f"'{name}' has no transaction: its coordinator knows no such id."
    if f.log_failure is not None:
        return Told(sentence, (f"Whether it expired is not known: {_why(f, f.log_failure)}.",), commands, numbers)
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
        how = f"{_aborted_at_timeout(f, event.timed_out)}"
    elif error is not None and error.name == "INVALID_TXN_STATE" and one.state == State.EMPTY:
        how = "nothing was added to one since it was initialized (Empty), so there is nothing to commit or to abort"
    sentence = f"'{one.transactional_id}' has no transaction open: {how}."
    swept = "and a sweep of all partitions found no open transaction of its producer id" if f.whole_cluster else ""
    state = _state(one).rstrip(".")
    evidence = (f"{state}, {swept}." if swept else f"{state}.", *_known(f))
    command = f"txnscan transaction-log --transactional-id {_quoted(one.transactional_id)}"
    numbers = _of_transaction(f, one)
    return Told(sentence, evidence, (command,), _with_event(numbers, event) if event is not None else numbers)


def _of_error_alone(f: Facts) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    kind = f.symptom.error.kind if f.symptom.error is not None else None
    if kind is ErrorKind.OFFSETS:
        sentence = f"No group's offsets are in an open transaction now: {CONSUMER_OFFSETS_TOPIC} has none."
        return sentence, (), ("txnscan explain --group GROUP",)
    if kind is ErrorKind.EXPIRED:
        sentence = (
            "No open transaction is the cause: the partition's leader has forgotten the producer, because its records "
            "were deleted or its state expired."
        )
        return sentence, (), (_EXPLAIN_ID,)
    sentence = (
        "No transactional id of this cluster is in PrepareCommit or PrepareAbort now: the error has probably passed."
    )
    return sentence, ("The text names no transactional id, so no id was read.",), (_EXPLAIN_ID,)


# --- words and numbers


def of_error(f: Facts) -> tuple[str, ...]:
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
    return (f"{error.name}: {error.meaning}.",)


def of_members(f: Facts) -> tuple[str, ...]:
    return ("The group has no members now.",) if f.group_state in NO_MEMBERS else ()


def _known(f: Facts) -> tuple[str, ...]:
    return (
        tuple(f"A known defect shows the same error: {one}." for one in f.symptom.error.known)
        if f.symptom.error
        else ()
    )


def _why(f: Facts, failure: Failure) -> str:
    return explained(failure, f.principal)


def _both(s: Subject) -> tuple[PartitionFacts, Judged]:
    return _partition(s), _found(s.judged)


def _partition(s: Subject) -> PartitionFacts:
    return _found(s.partition)


def _end(s: Subject) -> tuple[PartitionFacts, Ahead]:
    p = _partition(s)
    return p, _found(p.ahead)


def _id(s: Subject) -> Transaction:
    return _found(s.transaction)


def _pending(s: Subject) -> PendingOffsets:
    return _found(s.pending)


def _failure(s: Subject) -> Failure:
    return _found(s.failure)


def _found(one: Found | None) -> Found:
    """The part of the subject that every match of the rule has."""
    if one is None:
        raise ValueError("a rule tells of what it did not find")
    return one


def _view(judged: Judged) -> CoordinatorView | None:
    """The coordinator that claims it."""
    held = held_by(judged.evidence, State.ONGOING, *PREPARED)
    return held[0] if held else None


def _how_it_ends(f: Facts, judged: Judged) -> str:
    """The words after "a transaction": its owner and its end."""
    verdict, view = judged.judgement.verdict, _view(judged)
    if verdict is Verdict.HANGING:
        return "that hangs: no coordinator will end it"
    if verdict is Verdict.INDETERMINATE:
        return "that may hang, which is not proven"
    if view is None:
        return "that its coordinator will end"
    if verdict is Verdict.PENDING_MARKER and (stopped := f.writes.blocker_of(judged)) is not None:
        return f"of '{view.transactional_id}' that is decided, and {_cannot_end(stopped)}"
    if verdict is Verdict.PENDING_MARKER:
        late = ", and is overdue" if judged.judgement.reason is Reason.STUCK else ""
        return f"of '{view.transactional_id}' that is decided: its marker is owed{late}"
    if (blocker := f.writes.blocker_of(judged)) is not None:
        return f"of '{view.transactional_id}' that {_cannot_end(blocker)}"
    torn = ", and its abort would delete committed records" if judged.endangers_commit else ""
    return f"of '{view.transactional_id}'{_ends(f.now_ms, view.start_time_ms, view.timeout_ms)}{torn}"


def _cannot_end(blocker: WriteState) -> str:
    """The end of a transaction that this partition holds back, after "that"."""
    if blocker.takes_writes is None:
        return f"can end only if {blocker.name} takes writes, which is not known"
    return f"cannot end: {blocker.name} {'has no leader' if blocker.replicas.has_no_leader else 'takes no writes'}"


def due(f: Facts, start_ms: int | None, timeout_ms: int | None) -> str | None:
    """When a live transaction ends at the latest: the time that is left, and the time."""
    by_ms = timeout_end_ms(start_ms, timeout_ms)
    if by_ms is None:
        return None
    left_ms = by_ms - f.now_ms
    return f"in {duration(left_ms)} ({utc_time(by_ms)})" if left_ms > 0 else "at any moment"


def _ends(now_ms: int, start_ms: int | None, timeout_ms: int | None) -> str:
    """The end of a live transaction, right behind its name."""
    if timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS:
        return " that has no timeout: it takes part in a two-phase commit, and only its external coordinator ends it"
    by_ms = timeout_end_ms(start_ms, timeout_ms)
    if by_ms is None:
        return " that its coordinator will end"
    if by_ms + TIMEOUT_SLACK_MS < now_ms:
        overdue = duration(now_ms - by_ms)
        return f" that is past its timeout, {utc_time(by_ms)}, by {overdue}: its coordinator should have aborted it"
    return f": {coordinator_aborts(by_ms, now_ms)}"


def _moment(at_ms: int, now_ms: int) -> str:
    """A time of the day; with its date if that is not today."""
    at = datetime.fromtimestamp(at_ms / 1_000, UTC)
    same_day = at.date() == datetime.fromtimestamp(now_ms / 1_000, UTC).date()
    return f"{at:%H:%M:%S} UTC" if same_day else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _stands(p: PartitionFacts) -> tuple[str, ...]:
    if p.last_stable_offset is None or p.high_watermark is None:
        return ()
    return (
        f"{p.name}: last stable offset {p.last_stable_offset}, high watermark {p.high_watermark}, and "
        f"{plural(p.blocked_records or 0, 'offset')} between them.",
        *_more_open(p),
        *_kept_by(p),
        *_disk(p),
    )


def _more_open(p: PartitionFacts) -> tuple[str, ...]:
    more = len(p.still_open) - 1
    return (f"{plural(more, 'more transaction')} {'is' if more == 1 else 'are'} open on {p.name}.",) if more > 0 else ()


def _kept_by(p: PartitionFacts) -> tuple[str, ...]:
    """What a topic's settings keep on the disk of its leader."""
    if "cleanup.policy" not in p.settings:
        return ()
    said = f"cleanup.policy of {p.topic} is {p.settings['cleanup.policy']}"
    if "delete" in p.settings["cleanup.policy"].split(","):
        said += f": segments are deleted {_limits(p, 'retention')}"
    if p.tiered:
        local = _limits(p, "local.retention", inherits=True)
        said += f". Tiered: segments below the last stable offset go to remote storage, and leave local disks {local}"
    return (f"{said}.",)


def _limits(p: PartitionFacts, name: str, *, inherits: bool = False) -> str:
    """The limits of age and size with this name, in words. inherits: whether -2 is the limit of `retention`."""

    def value(unit: str) -> int:
        found = _whole(p.settings.get(f"{name}.{unit}"))
        return _whole(p.settings.get(f"retention.{unit}")) if inherits and found == _INHERITED else found

    age_ms, size_bytes = value("ms"), value("bytes")
    by_age = [f"after {duration(age_ms)} ({name}.ms)"] if age_ms >= 0 else []
    by_size = [f"above {size(size_bytes)} ({name}.bytes)"] if size_bytes >= 0 else []
    return " or ".join([*by_age, *by_size]) or f"never ({name}.ms and {name}.bytes set no limit)"


def _whole(text: str | None) -> int:
    return int(text) if text is not None and text.lstrip("-").isdigit() else -1


def _disk(p: PartitionFacts) -> tuple[str, ...]:
    """The size of a partition, and the free space of its disk."""
    disk = p.disk
    if disk.partition_bytes is None:
        return (f"The size of {p.name} is not known: {disk.error}.",) if disk.error is not None else ()
    free = f", and its volume has {size(disk.usable_bytes)} free" if disk.usable_bytes is not None else ""
    return (f"The replica on broker {disk.broker_id} has {size(disk.partition_bytes)}{free}.",)


def _of_group(f: Facts, p: PartitionFacts) -> tuple[str, ...]:
    if f.is_share:
        return (f"Its share.isolation.level is {f.isolation_level}.",)
    if not f.symptom.is_reader or p.committed is None:
        return ()
    before = "" if p.committed == p.last_stable_offset else ", and before the last stable offset it gets no record"
    not_visible = "Its isolation level is not visible: a read_uncommitted group that stopped there looks the same."
    if f.symptom.kind is SymptomKind.QUERY:
        not_visible = "A read_uncommitted query would be at the high watermark. A stopped query looks the same."
    return (f"{_at(f, p).capitalize()}{before}; its lag is {p.lag or 0:,}, up to the high watermark.", not_visible)


def _reader(f: Facts) -> str:
    """The group or the query of the symptom, inside a sentence."""
    if f.symptom.checkpoint is not None:
        return f"the query of '{shown_location(f.symptom.checkpoint)}'"
    return f"{'share ' if f.is_share else ''}group '{f.symptom.group}'"


def _begin(f: Facts) -> str:
    """The same at the beginning of a sentence."""
    reader = _reader(f)
    return reader[0].upper() + reader[1:]


def _waits(f: Facts, p: PartitionFacts) -> str:
    """That the reader waits, up to the transaction."""
    if f.is_share:
        # Where it stands is not visible.
        return f"{_begin(f)} gets no record of {p.name} from offset {p.last_stable_offset} on, because of"
    return f"{_begin(f)} waits for"


def _at(f: Facts, p: PartitionFacts) -> str:
    """Where the reader is."""
    is_query = f.symptom.kind is SymptomKind.QUERY
    return f"the query's next offset is {p.committed}" if is_query else f"the group committed offset {p.committed}"


def _end_of(f: Facts, p: PartitionFacts) -> tuple[str, ...]:
    at = (f"{_at(f, p).capitalize()}.",) if p.committed is not None else ()
    return (*at, *_stands(p))


def _state(one: Transaction) -> str:
    began = f", began {duration(one.age_ms)} ago" if one.age_ms is not None else ""
    timeout = f", timeout {duration(one.timeout_ms)}" if one.timeout_ms is not None and not one.two_phase_commit else ""
    return (
        f"Its coordinator, broker {one.coordinator}: '{one.transactional_id}' is in {one.state}, producer id "
        f"{one.producer_id}, epoch {one.producer_epoch}{began}{timeout}."
    )


def _partitions_of(one: Transaction) -> tuple[str, ...]:
    if not one.partitions:
        return ()
    more = len(one.partitions) - _NAMED_MAX
    return (f"Its partitions: {', '.join(one.partitions[:_NAMED_MAX])}{f' and {more} more' if more > 0 else ''}.",)


def _numbers(
    f: Facts, p: PartitionFacts | None, judged: Judged | None, *, group: str | None = None, failure: str | None = None
) -> Numbers:
    """The numbers of a partition and of a transaction on it."""
    o = judged.observation if judged is not None else None
    view = _view(judged) if judged is not None else None
    start_ms = view.start_time_ms if view is not None and view.start_time_ms >= 0 else None
    timeout_ms = view.timeout_ms if view is not None else None
    by_ms = timeout_end_ms(start_ms, timeout_ms)
    ahead = p.ahead if p is not None else None
    return Numbers(
        group=group or f.symptom.group,
        checkpoint=shown_location(f.symptom.checkpoint) if f.symptom.checkpoint is not None else None,
        group_state=f.group_state,
        isolation_level=f.isolation_level,
        topic=p.topic if p is not None else f.symptom.topic,
        partition=p.partition if p is not None else f.symptom.partition,
        transactional_id=view.transactional_id if view is not None else f.symptom.transactional_id,
        producer_id=o.producer_id if o is not None else f.symptom.producer_id,
        producer_epoch=o.producer_epoch if o is not None else f.symptom.producer_epoch,
        owner_epoch=view.producer_epoch if view is not None else None,
        coordinator=view.broker_id if view is not None else f.coordinator,
        state=view.state if view is not None else None,
        verdict=judged.judgement.verdict.value if judged is not None else None,
        reason=judged.judgement.reason.value if judged is not None else None,
        start_offset=o.start_offset if o is not None else None,
        last_stable_offset=p.last_stable_offset if p is not None else None,
        high_watermark=p.high_watermark if p is not None else None,
        blocked_records=p.blocked_records if p is not None else None,
        committed_offset=p.committed if p is not None else None,
        lag=p.lag if p is not None else None,
        markers=ahead.markers if ahead is not None else None,
        aborted=ahead.aborted if ahead is not None else None,
        open_transactions=len(p.still_open) if p is not None else None,
        next_record_offset=ahead.record_at if ahead is not None else None,
        compacted=p.compacted if p is not None else None,
        tiered=p.tiered if p is not None and p.settings else None,
        partition_bytes=p.disk.partition_bytes if p is not None else None,
        usable_bytes=p.disk.usable_bytes if p is not None else None,
        started_at_ms=start_ms,
        timeout_ms=timeout_ms,
        ends_by_ms=end_of(judged, f.writes) if judged is not None else None,
        age_ms=judged.judgement.age_ms if judged is not None else None,
        overdue_ms=max(f.now_ms - by_ms, 0) if by_ms is not None else None,
        max_timeout_ms=f.max_timeout_ms,
        failure=failure,
        asked=f.asked,
    )


def _of_transaction(f: Facts, one: Transaction, *, producer_epoch: int | None = None) -> Numbers:
    """The numbers of an id at its coordinator. producer_epoch: of the producer that logged the error."""
    blocker = f.writes.blocker(one.transactional_id, one.state, map(key_of, one.partitions))
    return Numbers(
        transactional_id=one.transactional_id,
        producer_id=one.producer_id,
        producer_epoch=producer_epoch if producer_epoch is not None else f.symptom.producer_epoch,
        owner_epoch=one.producer_epoch,
        coordinator=one.coordinator,
        state=one.state,
        started_at_ms=one.start_time_ms,
        timeout_ms=one.timeout_ms,
        ends_by_ms=aborts_by_ms(one.start_time_ms, one.timeout_ms, blocker) if one.state == State.ONGOING else None,
        age_ms=one.age_ms,
        overdue_ms=one.overdue_ms,
        max_timeout_ms=f.max_timeout_ms,
        asked=f.asked,
    )


# --- the next commands


def _of_judged(f: Facts, judged: Judged) -> tuple[str, ...]:
    o, view = judged.observation, _view(judged)
    if judged.judgement.verdict is Verdict.HANGING:
        return _to_end(judged)
    if view is None:
        return (f"txnscan describe-producers --topic {o.topic} --partition {o.partition} --open",)
    return _of_id(view.transactional_id, stuck=judged.judgement.verdict is Verdict.PENDING_MARKER)


_SWEEP = "txnscan sweep --tables LOCATION"
_PLAN = "txnscan plan --tables LOCATION --out plan.json"


def _to_end(judged: Judged, *, alone: bool = True) -> tuple[str, ...]:
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
        return (f"txnscan force-terminate --transactional-id {_quoted(about.transactional_id)}", _SWEEP)
    if given.guard == "consumer_offsets":
        return (_SWEEP, f"{_PLAN} --include-consumer-offsets")
    if given.guard in ("mixed", "maybe_committed"):
        return (f"txnscan transaction-log --producer-id {o.producer_id}",)
    return ("txnscan check", _SWEEP)


def _of_id(name: str, *, stuck: bool = False) -> tuple[str, ...]:
    quoted = _quoted(name)
    where = (f"txnscan coordinator --transactional-id {quoted}",) if stuck else ()
    return (f"txnscan describe --transactional-id {quoted}", *where)


def _find_hanging(p: PartitionFacts) -> str:
    return f"txnscan find-hanging --topic {p.topic} --partition {p.partition} --all"


def _describe_group(f: Facts) -> tuple[str, ...]:
    """Kafka's own tool, which shows members and lag."""
    if f.symptom.group is None:
        return ()
    tool = "kafka-share-groups.sh" if f.is_share else "kafka-consumer-groups.sh"
    return (f"{tool} --describe --group {_quoted(f.symptom.group)}",)


def _quoted(name: str) -> str:
    return shlex.quote(name)


def command(f: Facts, command: str) -> str:
    """The command with the options that reach the cluster, right behind its name. Kafka's tools have the same ones, and
    `txnscan plan` asks no broker.
    """
    words = command.split(" ")
    if words[:2] == ["txnscan", "plan"]:
        return command
    at = 2 if words[0] == "txnscan" else 1
    return " ".join([*words[:at], f.connection, *words[at:]])
