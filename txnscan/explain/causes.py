"""The rules: the facts about a symptom to its cause. Pure.

A rule has a code, a search in the facts, and an answer: a sentence, the evidence, the next commands. The rules are in
order below, and the first rule with a subject gives the cause. The most urgent causes come first:
- `fenced` first, but only for a fencing error: the producer that logged it is fenced, whatever else is open;
- then a setting that an error names, an error that shows its cause itself, a text without an error or an id, and a log
  cleaner that has given up by its log, for the same reason;
- then offsets that a transaction withholds, and transactions that hold readers back: proven hanging before those that
  cannot end because a log takes no writes, before decided, before owned, over all partitions of the symptom;
- then a share group that waits for no transaction by its isolation level;
- then an error of the leader's disk at the reader's next records, and a partition without a leader;
- then failures to observe. All rules below conclude from absence, and absence counts only if all was seen;
- then, for a compacted topic, the log cleaner: compaction that is due and not done, or that no transaction holds back;
- then lag without a transaction: a reader that passes the last stable offset, records that wait for a slow reader, and
  last aborted data and markers, which are no records to a reader.

`hanging` is the verdict of a sweep's rules for these partitions (`verdict/rules.py`), and no other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from txnscan.explain import finding, writes
from txnscan.explain.answers import (
    absence,
    blockers,
    error_texts,
    fences,
    growing_logs,
    readers,
    sentences,
    unwritable_logs,
)
from txnscan.explain.cause import CauseCode, Explanation, Subject, Told
from txnscan.explain.facts import Facts
from txnscan.explain.symptom import Symptom
from txnscan.verdict.evidence import Verdict
from txnscan.waiting.known_causes import LONG_LIVED, STUCK_PREPARE, ExposedTo


@dataclass(frozen=True, slots=True)
class CauseRule:
    """If `finds` gives a subject, the cause has this code, and `tells` words it."""

    code: CauseCode
    finds: Callable[[Facts], Subject | None]
    tells: Callable[[Facts, Subject], Told]


RULES: tuple[CauseRule, ...] = (
    CauseRule(CauseCode.FENCED, finding.fenced, fences.fenced),
    CauseRule(CauseCode.NO_TRANSACTION, finding.setting, error_texts.setting),
    CauseRule(CauseCode.CLIENT_ERROR, finding.itself, error_texts.itself),
    CauseRule(CauseCode.UNRECOGNISED, finding.unrecognised, error_texts.unrecognised),
    CauseRule(CauseCode.CLEANER_STUCK, finding.cleaner_gave_up, growing_logs.cleaner_gave_up),
    CauseRule(CauseCode.PENDING_OFFSETS, finding.pending, blockers.pending),
    CauseRule(CauseCode.HANGING, finding.hanging, blockers.hanging),
    CauseRule(CauseCode.NO_WRITES, finding.no_writes, unwritable_logs.no_writes),
    CauseRule(CauseCode.MARKER_AT_RISK, finding.marker_at_risk, unwritable_logs.marker_at_risk),
    CauseRule(CauseCode.STUCK_PREPARE, finding.stuck_prepare, blockers.prepared),
    CauseRule(CauseCode.MARKER_OWED, finding.marker_owed, blockers.prepared),
    CauseRule(CauseCode.CLEANER_STUCK, finding.cleaner_stuck, growing_logs.cleaner),
    CauseRule(CauseCode.TIERING_STUCK, finding.tiering_stuck, growing_logs.tiering),
    CauseRule(CauseCode.OWNED, finding.owned, blockers.owned),
    CauseRule(CauseCode.NO_TRANSACTION, finding.share_uncommitted, readers.share_uncommitted),
    CauseRule(CauseCode.UNREADABLE, finding.unreadable, readers.unreadable),
    CauseRule(CauseCode.NO_WRITES, finding.leaderless, unwritable_logs.leaderless),
    # Absence counts only from here on: all was observed.
    CauseRule(CauseCode.NOT_OBSERVED, finding.not_observed, blockers.not_observed),
    CauseRule(CauseCode.NO_TRANSACTION_LOG, finding.no_log, unwritable_logs.no_log),
    CauseRule(CauseCode.CLEANER_STUCK, finding.cleaner_behind, growing_logs.cleaner_behind),
    CauseRule(CauseCode.NO_TRANSACTION, finding.compaction_free, growing_logs.compaction_free),
    CauseRule(CauseCode.NOT_READ_COMMITTED, finding.not_read_committed, readers.not_read_committed),
    CauseRule(CauseCode.AT_MARKER, finding.at_marker, readers.at_marker),
    CauseRule(CauseCode.NO_TRANSACTION, finding.real_lag, readers.real_lag),
    CauseRule(CauseCode.ABORTED_DATA, lambda f: finding.nothing_to_read(f, aborted=True), readers.aborted),
    CauseRule(CauseCode.MARKER_LAG, lambda f: finding.nothing_to_read(f, aborted=False), readers.marker),
    CauseRule(CauseCode.NO_TRANSACTION, lambda f: Subject(), absence.none),
)


def cause_of(facts: Facts) -> Explanation:
    """The cause of a symptom. The same facts always give the same cause."""
    for rule in RULES:
        subject = rule.finds(facts)
        if subject is not None:
            told = writes.completed(facts, subject, rule.tells(facts, subject))
            known = _behind(facts, rule.code, subject)
            return Explanation(
                code=rule.code,
                sentence=told.sentence,
                evidence=(
                    *error_texts.of_error(facts),
                    *told.evidence,
                    *sentences.of_members(facts),
                    *(f"A known cause that can occur on this cluster: {one.sentence}." for one in known),
                ),
                next=told.commands,
                numbers=told.numbers,
                known_causes=tuple(one.id for one in known),
                error=facts.symptom.error.name if facts.symptom.error is not None else None,
            )
    raise AssertionError("the last rule finds something always")


def _behind(facts: Facts, code: CauseCode, subject: Subject) -> tuple[ExposedTo, ...]:
    """The known causes that can be behind this one on this cluster, by the verdict and cause of each transaction."""
    wanted: set[str | None] = set()
    if code is CauseCode.STUCK_PREPARE:
        wanted = {STUCK_PREPARE}
    elif code in _LIVE and finding.long_lived(facts):
        wanted = {LONG_LIVED}
    elif code is CauseCode.HANGING:
        wanted = {_cause_of(one) for one in finding.every_hanging(facts)}
    elif code is CauseCode.PENDING_OFFSETS and subject.pending is not None:
        holder = subject.pending.holder
        if holder is not None and finding.is_(holder, Verdict.HANGING):
            wanted = {_cause_of(Subject(subject.pending.log, holder))}
    return tuple(one for one in facts.exposed_to if any(map(one.may_explain, wanted)))


_LIVE = (CauseCode.OWNED, CauseCode.CLEANER_STUCK, CauseCode.TIERING_STUCK)


def _cause_of(subject: Subject) -> str | None:
    """The cause of a hanging transaction, None if it was not examined."""
    if subject.partition is None or subject.judged is None:
        return None
    found = subject.partition.cause(subject.judged)
    return found[0] if found is not None else None


def cause_unasked(symptom: Symptom) -> Explanation:
    """The meaning of an error by its text alone, if only brokers can show its cause and no broker is named."""
    facts = Facts(symptom, 0, 0)
    error = symptom.error
    if error is None:
        raise ValueError("without an error nothing is known of a symptom")
    told = error_texts.unasked(facts)
    return Explanation(
        code=CauseCode.NOT_OBSERVED,
        sentence=told.sentence,
        evidence=told.evidence,
        next=told.commands,
        numbers=told.numbers,
        error=error.name,
    )
