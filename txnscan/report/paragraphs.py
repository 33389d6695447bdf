"""Open transactions as paragraphs: the verdict, its reason in a sentence, the outcome, and what each partition blocks.

Takes the JSON object (`report.json`), so that a sweep looks the same fresh and from the tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.text import Text

from txnscan.config import printable
from txnscan.kafka.units import duration, first_of, plural
from txnscan.report.impact import cause_sentence, end_sentence, impact_sentences, owner_sentence, time_of
from txnscan.resolve.guard import Allowed, Refused
from txnscan.resolve.offer import answer, in_words, swept_row
from txnscan.verdict.evidence import Reason

Row = Mapping[str, Any]
STYLES = {
    "hanging": "bold red",
    "indeterminate": "yellow",
    "late_ongoing": "yellow",
    "pending_marker": "cyan",
}
# Verdicts worth a reader's time, most urgent first; of the rest, transactions that hold readers back are shown, and
# others are counted.
SHOWN = ("hanging", "indeterminate", "late_ongoing", "pending_marker")
_OUTCOMES: Mapping[str, str] = {
    "committed": "committed, proven",
    "not_committed": "not committed, proven",
    "maybe_committed": "may be committed",
    "mixed": "mixed, proven",
    "unknown": "unknown",
}
# A sweep may first see a transaction some time after it began: a difference as small as these is no age.
AT_ONCE_MS, _SWEEP_MS_MAX = 1_000, 60_000
_PARTITIONS_SHOWN = 8
# Answers of one guard in an event, and partitions of an answer.
_ANSWERS_SHOWN, _PLACES_SHOWN = 3, 3


def print_one(console: Console, found: Mapping[str, Any]) -> None:
    """The transactions of a sweep alone."""
    for group in alike(found["transactions"], _paragraph_of):
        _print_transaction(console, group, found["sweep"]["started_at"])


def print_transactions(
    console: Console,
    transactions: Sequence[Mapping[str, Any]],
    started_at: Any,
    *,
    every: bool = False,
    more: Callable[[Mapping[str, Any]], Sequence[str]] = lambda _: (),
) -> None:
    """Prints those worth a reader's time, or with `every` all, the most urgent first. started_at: of the sweep. more:
    sentences to print below a transaction; where one of a group has any, each of the group is printed by itself.
    """
    shown = sorted((t for t in transactions if every or is_shown(t)), key=urgency)
    for group in alike(shown, _paragraph_of):
        said = [(one, more(one)) for one in group]
        for together in [[one] for one in said] if any(lines for _, lines in said) else [said]:
            print_text(console, Text())
            _print_transaction(console, [one for one, _ in together], started_at)
            for line in together[0][1]:
                print_text(console, Text(printable(line)), indent=2)


def print_line(console: Console, sentence: str) -> None:
    """Prints a sentence of a command's own."""
    print_text(console, Text(sentence))


def print_text(console: Console, text: Text, indent: int = 0) -> None:
    """Prints a sentence: on a terminal wrapped under its indentation, in a pipe whole on one line."""
    width = max(console.width - indent, 20)
    for line in text.wrap(console, width) if console.is_terminal else [text]:
        line.rstrip()
        console.print(Text(" " * indent) + line, soft_wrap=True)


def print_rest(console: Console, count: int, how: str = "--format json shows all") -> None:
    """Prints how many more there are, if any, and what shows them."""
    if count > 0:
        print_text(console, Text(f"and {count:,} more; {how}"), indent=2)


def is_shown(transaction: Mapping[str, Any]) -> bool:
    """Whether a transaction is worth a reader's time."""
    return transaction["verdict"] in SHOWN or endangers_commit(transaction) or bool(transaction.get("blocking"))


def endangers_commit(transaction: Mapping[str, Any]) -> bool:
    """Whether the abort of a live transaction would delete committed records of an earlier transaction."""
    return bool(transaction["reason"] == Reason.JOINED_COMMIT)


def rank(transaction: Mapping[str, Any]) -> int:
    """The place of a transaction in the order of urgency, by its verdict, and by whether it holds readers back."""
    verdict = transaction["verdict"]
    if endangers_commit(transaction):
        return -1
    return SHOWN.index(verdict) if verdict in SHOWN else len(SHOWN) + (not transaction.get("blocking"))


def readers_blocked(of: Iterable[Mapping[str, Any]]) -> int:
    """How many groups and streaming queries wait for any of these transactions, as far as they are known."""
    rows = list(of)
    names = {("group", one["group"]) for t in rows for one in t.get("blocked_groups") or ()}
    names |= {("query", one["path"]) for t in rows for one in t.get("blocked_readers") or ()}
    counted = ((t.get("groups_blocked") or 0) + (t.get("readers_blocked") or 0) for t in rows)
    return max(len(names), *counted) if rows else 0


def urgency(transaction: Mapping[str, Any]) -> tuple[Any, ...]:
    """The order of transactions, the most urgent first: those that more readers wait for come before late ones."""
    return (
        rank(transaction),
        -readers_blocked([transaction]),
        not transaction["candidate"],
        -(transaction["blocked_records"] or 0),
        -transaction["age_ms"],
        transaction["topic"],
        transaction["partition"],
    )


def urgency_of_event(group: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    """The same for the transactions of an event."""
    return (
        min(map(rank, group)),
        -readers_blocked(group),
        not any(t["candidate"] for t in group),
        -sum(t["blocked_records"] or 0 for t in group),
        -max(t["age_ms"] for t in group),
    )


def alike(rows: Iterable[Row], what: Callable[[Row], Hashable]) -> list[list[Row]]:
    """The rows in groups that have the same `what`, in the order of their first rows."""
    groups: dict[Hashable, list[Row]] = {}
    for row in rows:
        groups.setdefault(what(row), []).append(row)
    return list(groups.values())


def _paragraph_of(t: Row) -> Hashable:
    """The same for transactions in one paragraph, such as a producer's transaction on many partitions."""
    of_verdict = ("verdict", "reason", "producer_id", "producer_epoch", "explanation", "outcome_reason")
    of_impact = ("cause_reason", "owner_id", "advice")
    return (*(t[name] for name in of_verdict), *(t.get(name) for name in of_impact))


def _print_transaction(console: Console, group: Sequence[Mapping[str, Any]], started_at: Any) -> None:
    first = group[0]
    title = Text.assemble(
        (f"{first['verdict']} ({first['reason']})", STYLES.get(first["verdict"], "green")),
        f"  producer id {first['producer_id']}, epoch {first['producer_epoch']}",
    )
    print_text(console, title)
    print_text(console, Text(printable(first["explanation"])), indent=2)
    # The owner comes before the markers.
    for sentence in (end_sentence(first, time_of(started_at)), cause_sentence(first), owner_sentence(first)):
        if sentence is not None:
            print_text(console, Text(printable(sentence)), indent=2)
    if (outcome := outcome_sentence(first, len(group))) is not None:
        print_text(console, Text(outcome), indent=2)
    for transaction in group[:_PARTITIONS_SHOWN]:
        print_text(console, where(transaction, started_at), indent=2)
        for line in impact_sentences(transaction):
            print_text(console, Text(line), indent=4)
    if len(group) > _PARTITIONS_SHOWN:
        print_text(console, Text(f"and {plural(len(group) - _PARTITIONS_SHOWN, 'more partition')}"), indent=2)


def outcome_sentence(t: Mapping[str, Any], partitions: int = 1) -> str | None:
    """The outcome of its data, and the guard's answer about it. None for a transaction that does not hang: if it
    endangers a commit, its explanation has the outcome, and no marker is right. partitions: with the same.
    """
    given = answer(swept_row(t))
    if given is None:
        return None
    because = t["outcome_reason"]
    known = f"Outcome {_outcome(t['outcome'])}: {because}. " if because is not None else ""
    return printable(f"{known}{in_words(given, partitions)}")


def marker_sentences(group: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """The guard's answers about hanging transactions with different reasons or outcomes, each once, with its partitions
    and the outcome of their data. Of one guard's refusals, the first few.
    """
    alike_by: dict[tuple[Allowed | Refused, str | None], list[Mapping[str, Any]]] = {}
    for t in group:
        given = answer(swept_row(t))
        if given is not None:
            given = replace(given, detail=None) if isinstance(given, Refused) else given
            alike_by.setdefault((given, t["outcome"]), []).append(t)
    shown = Counter[str]()
    for (given, outcome), of in alike_by.items():
        guard = given.guard if isinstance(given, Refused) else ""
        shown[guard] += 1
        if not guard or shown[guard] <= _ANSWERS_SHOWN:
            known = f"outcome {_outcome(outcome)}. " if outcome is not None else ""
            yield printable(f"{_places(of)}: {known}{in_words(given, len(of))}")
    for guard, count in shown.items():
        if guard and count > _ANSWERS_SHOWN:
            yield f"{plural(count - _ANSWERS_SHOWN, 'more refusal')} of {guard}; --verbose has all."


def _places(of: Sequence[Mapping[str, Any]]) -> str:
    """The partitions of some transactions."""
    return first_of([*map(place_name, of)], _PLACES_SHOWN)


def _outcome(outcome: str) -> str:
    """The words for an outcome. The outcome of another version of txnscan is unchanged."""
    return _OUTCOMES.get(outcome, outcome)


def where(t: Mapping[str, Any], started_at: Any) -> Text:
    """One partition of a transaction: its age, start offset, and the records that it blocks if no earlier transaction
    does. started_at: of the sweep.
    """
    late = (", late" if t["late"] else ", not late yet") if t["verdict"] == "hanging" else ""
    line = Text.assemble(
        (place_name(t), "bold"),
        f"  {_since(t, started_at)}{late}, from offset {t['start_offset']}",
    )
    if t["blocked_records"] and t["holds_lso"] is not False:
        line.append(
            f"; blocks {plural(t['blocked_records'], 'record')} from read_committed consumers "
            f"(last stable offset {t['last_stable_offset']}, high watermark {t['high_watermark']})"
        )
    return line


def place_name(t: Mapping[str, Any]) -> str:
    """The partition; for files in a directory without a partition's name, the directory."""
    return printable(t["topic"] if t["partition"] < 0 else f"{t['topic']}-{t['partition']}")


def _since(t: Mapping[str, Any], started_at: Any) -> str:
    """Its age and the source of the age. An age that was not watched names its clock."""
    seen_ms = seen_for_ms(t, started_at)
    first_seen = "first seen now" if seen_ms < AT_ONCE_MS else f"first seen {duration(seen_ms)} ago"
    if t["age_ms"] > seen_ms + _SWEEP_MS_MAX:
        whose = "records'" if t["verdict"] in ("hanging", "indeterminate") else "coordinator's"
        return f"open for {duration(t['age_ms'])} by its {whose} time, {first_seen}"
    return f"open, {first_seen}"


def seen_for_ms(t: Mapping[str, Any], started_at: Any) -> int:
    """For how long sweeps had seen the transaction when this sweep began."""
    return int((time_of(started_at) - time_of(t["first_seen_at"])).total_seconds() * 1_000)
