"""The content of files from a broker's disk: as a JSON object, and for a terminal.

The object has the fields of a sweep, and transactions also have `open_as_of_offset`. It adds facts that only files
have: figures of partitions, and the transactional ids of `__transaction_state`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from txnscan.config import printable
from txnscan.kafka.answers import AT_REST, State
from txnscan.kafka.failure import Failure, FailureCode, Unobserved
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC
from txnscan.kafka.units import brokers_named, duration, plural, size
from txnscan.offline.producer_snapshots import Figures, Spread
from txnscan.report.json import scan_object
from txnscan.report.paragraphs import print_rest, print_text, print_transactions
from txnscan.report.plain import SHOWN_MS_END, iso_utc, record_row, step_row, utc
from txnscan.resolve.guard import Allowed
from txnscan.resolve.offer import answer, swept_row
from txnscan.shell import command
from txnscan.sweeps.column import timestamp
from txnscan.sweeps.result import Scan
from txnscan.txnlog.facts import LoggedTransaction
from txnscan.verdict.evidence import Verdict
from txnscan.version import __version__

if TYPE_CHECKING:
    from txnscan.offline.contents import Replica
    from txnscan.offline.judging import OpenInFiles
    from txnscan.offline.paths import FileContents
    from txnscan.offline.wholeness import Hole
    from txnscan.txnlog.timeline import Step

_STAGE = "read files"
_ERRORS_SHOWN = 20
_IDS_SHOWN = 50
# The reason of a transaction with a decision that an abort may contradict. The files show only a part of its log.
_NOT_BY_HAND = ("missed_commit",)


# --- the object -------------------------------------------------------------------------------------------------------


def offline_scan(read: FileContents, sweep_id: str) -> Scan:
    """The files as a sweep that was made when they end."""
    partitions = {replica.key for replica in read.replicas if replica.key is not None}
    failed = {replica.key for replica in read.replicas if replica.unproven is not None and replica.key is not None}
    planned = len(read.logs.keys() | {k for k in read.uncovered if k >= 0})
    return Scan(
        sweep_id=sweep_id,
        cluster_id=", ".join(read.cluster_ids) or "unknown",
        scope="files",
        started_at_ms=max(read.now_ms, 0),
        finished_at_ms=max(read.now_ms, 0),
        late_after_ms=read.late_after_ms,
        max_timeout_ms=-1,
        brokers=len({d.broker_id for d in read.found.log_directories if d.broker_id is not None}),
        partitions_planned=len(partitions),
        partitions_failed=len(failed),
        producers=sum(len(replica.producers) for replica in read.replicas),
        coordinators_planned=planned,
        coordinators_proven=planned - len({k for k in read.uncovered if k >= 0}),
        transactional_ids=sum(len(log.ids) for log in read.logs.values()),
        visibility_failures=(),
        proven={},
        transactions=tuple(one.judged for one in read.transactions),
        errors=tuple(_errors(read)),
        warnings=_warnings(read),
        settings="",
        version=__version__,
    )


def _errors(read: FileContents) -> Iterator[Unobserved]:
    """Unreadable files, and files that may be from different times, if that matters: for verdicts, and for files that
    change.
    """
    for error in read.errors:
        yield Unobserved(_STAGE, Failure(f"{error.path}: {error.error}", FailureCode.FILE_UNREADABLE))
    for error in read.incomplete:
        yield Unobserved("copies", Failure(f"{error.path}: {error.error}", FailureCode.COPY_INCOMPLETE))
    for why in read.uncovered.values() if read.logs else ():
        yield Unobserved("transaction log", Failure(why, FailureCode.COPY_INCOMPLETE))
    if read.running_error is not None and (read.logs or read.changing):
        yield Unobserved("copies", Failure(read.running_error, FailureCode.COPY_INCOMPLETE))


def _warnings(read: FileContents) -> tuple[str, ...]:
    said = []
    if len(read.cluster_ids) > 1:
        said.append(f"the files are of {len(read.cluster_ids)} clusters: {', '.join(read.cluster_ids)}")
    if read.found.going:
        said.append(
            f"{len(read.found.going)} files or folders of a deletion or a move (-delete, .deleted, ...) were not read: "
            f"{read.found.going[0]}"
        )
    return tuple(said)


def offline_object(read: FileContents, sweep_id: str) -> dict[str, Any]:
    """The JSON output that both commands share."""
    found = scan_object(offline_scan(read, sweep_id))
    for row, one in zip(found["transactions"], read.transactions, strict=True):
        row["open_as_of_offset"] = one.as_of
        row.update(_seen(one))
        row["commands"] = commands(row)
        row["assumption"] = one.assumption
    return found


def segments_object(read: FileContents, sweep_id: str) -> dict[str, Any]:
    """The object of `segments`."""
    return offline_object(read, sweep_id) | {"partitions": [_partition(replica) for replica in read.replicas]}


def transaction_log_object(read: FileContents, sweep_id: str) -> dict[str, Any]:
    """The object of `transaction-log`."""
    ids = [record_row(k, last) for k, log in read.logs.items() for last in log.ids.values()]
    return offline_object(read, sweep_id) | {
        "log_partitions": [
            {
                "partition": k,
                "records": log.records,
                "transactional_ids": len(log.ids),
                "error": log.doubt,
                "holes": [asdict(hole) for hole in log.holes],
            }
            for k, log in read.logs.items()
        ],
        "transactional_ids": sorted(ids, key=lambda row: row["transactional_id"]),
        "steps": [step_row(step) for step in read.steps],
        "outcomes": [
            {"topic": topic, "partition": index, "outcome": known.outcome.value, "outcome_reason": known.why}
            for (topic, index), known in read.outcomes
        ],
        "impossible": [{"before": str(one.impossible_after), "after": str(one.record)} for one in read.impossible],
    }


def _seen(one: OpenInFiles) -> dict[str, Any]:
    begun = one.replica.begun.get(one.judged.observation.producer_id)
    return {
        "batches": begun.batches if begun is not None else None,
        "records": begun.records if begun is not None else None,
        "size_bytes": begun.size_bytes if begun is not None else None,
        "directory": one.replica.directory,
    }


# A variable of the shell, for the user to set.
_CONNECTION = "--bootstrap-server $BOOTSTRAP"


def commands(row: Mapping[str, Any]) -> list[str]:
    """The commands that abort a hanging transaction, if the files prove that it was not committed and its owner is
    gone; else empty: an abort that needs an option is not offered, as nowhere.

    `txnscan abort` comes first: running brokers must prove again that the transaction hangs, and it asks them. Brokers
    before Kafka 2.8 cannot be asked, and for them Kafka's own tool follows.
    """
    # Running brokers have their log, even if it is not among the files.
    given = answer(swept_row({**row, "log_failure": None}))
    if row["partition"] < 0 or row["reason"] in _NOT_BY_HAND or not isinstance(given, Allowed):
        return []
    if given.commit or given.needs is not None:
        return []
    where = {"topic": row["topic"], "partition": row["partition"]}
    proven = command("txnscan abort", _CONNECTION, **where, start_offset=row["start_offset"])
    whose = {"producer_id": row["producer_id"], "producer_epoch": row["producer_epoch"]}
    last_epoch = max(row["coordinator_epoch"], 0)
    tool = command("kafka-transactions.sh", _CONNECTION, "abort", **where, **whose, coordinator_epoch=last_epoch)
    return [proven, tool]


def _partition(replica: Replica) -> dict[str, Any]:
    topic, index = replica.key if replica.key is not None else (None, None)
    return {
        "topic": topic,
        "partition": index,
        "topic_id": replica.topic_id,
        "broker": replica.broker_id,
        "directory": replica.directory,
        "segments": len(replica.segments),
        "size_bytes": replica.size_bytes,
        "log_start_offset": replica.log_start_offset,
        "log_end_offset": replica.log_end_offset,
        "last_stable_offset": replica.last_stable_offset,
        "high_watermark": _known(replica.high_watermark),
        "recovery_point": _known(replica.recovery_point),
        "cleaned_until": _known(replica.cleaned_until),
        "compaction_stuck": replica.compaction_stuck,
        "moved_until": _known(replica.moved_until),
        "leader_epoch": _known(replica.leader_epoch),
        "snapshot_offset": _known(replica.snapshot_offset),
        "figures": {**asdict(replica.figures), "open": len(replica.open), "odd": dict(replica.figures.odd)},
        "aborted_in_index": replica.aborted_rows,
        "producers": [asdict(one) for one in replica.producers],
        "start_unknown": replica.start_unknown,
        "unproven": replica.unproven,
    }


def _known(value: int) -> int | None:
    return value if value >= 0 else None


# --- for a terminal ---------------------------------------------------------------------------------------------------


def print_segments(console: Console, read: FileContents, found: Mapping[str, Any], *, every: bool) -> None:
    """The partitions, by their files; with `every` also partitions without open transactions."""
    _print_headline(console, read, found)
    _print_transactions(console, found, every)
    shown = [r for r in read.replicas if every or r.open or r.unproven is not None or len(read.replicas) <= 3]
    alike: dict[tuple[Any, ...], list[Replica]] = {}
    for replica in shown:
        alike.setdefault((replica.key, *_replica_lines(replica)), []).append(replica)
    for (_, *lines), replicas in alike.items():
        print_text(console, Text())
        _print_replicas(console, replicas, lines)
    if len(shown) < len(read.replicas):
        print_text(console, Text())
        hidden = plural(len(read.replicas) - len(shown), "more replica")
        print_text(console, Text(f"{hidden} with nothing open; --all shows them."))
    _print_errors(console, found)


def print_transaction_log(console: Console, read: FileContents, found: Mapping[str, Any], *, every: bool) -> None:
    """The content of `__transaction_state`; with `every` also the ids at rest."""
    from txnscan.offline.judging import overdue

    _print_headline(console, read, found)
    if not read.logs:
        print_text(console, Text(f"No directory of {TRANSACTION_STATE_TOPIC} is among the files.", style="yellow"))
    steps = read.steps
    if steps:
        print_timeline(
            console, steps, {step.record.transactional_id: read.logs[step.partition].holes for step in steps}
        )
        _print_outcomes(console, read)
    else:
        logs = {k: list(log.ids.values()) for k, log in read.logs.items()}
        print_ids(console, logs, every=every)
    print_overdue(console, overdue(read.logs.values(), read.now_ms, read.late_after_ms), read.now_ms)
    if read.impossible and not steps:
        print_impossible(console, read.impossible)
    asked = {step.record.producer_id for step in steps}
    theirs = [t for t in found["transactions"] if not steps or t["producer_id"] in asked]
    _print_transactions(console, {**found, "transactions": theirs}, every)
    _print_errors(console, found)


def _print_outcomes(console: Console, read: FileContents) -> None:
    if read.outcomes:
        print_text(console, Text())
        print_text(console, Text("Outcome where the transaction is still open, by this log alone:", style="bold"))
    for (topic, index), known in read.outcomes:
        said = f"{topic}-{index}  {known.outcome.value.replace('_', ' ')}: {known.why}"
        print_text(console, Text(printable(said)), indent=2)


def print_ids(console: Console, logs: Mapping[int, Sequence[LoggedTransaction]], *, every: bool) -> None:
    """The latest state of each id, by partition of the log; with `every` also of those at rest."""
    rows = sorted(((k, last) for k, ids in logs.items() for last in ids), key=lambda row: row[1].transactional_id)
    shown = [(k, last) for k, last in rows if every or last.state not in AT_REST]
    print_text(console, Text())
    at_rest = sum(last.state in AT_REST for _, last in rows)
    count = plural(len(rows), "transactional id")
    print_text(console, Text(f"{count} in {plural(len(logs), 'log partition')}, {at_rest} at rest.", style="bold"))
    for k, last in shown if every else shown[:_IDS_SHOWN]:
        print_text(console, Text(f"{TRANSACTION_STATE_TOPIC}-{k}  {_step(last)}"), indent=2)
    print_rest(console, 0 if every else len(shown) - _IDS_SHOWN, "--all shows them")


def print_timeline(
    console: Console,
    steps: Iterable[Step],
    holes: Mapping[str, Sequence[Hole]] = MappingProxyType({}),
) -> None:
    """Every record of some ids, in order, with the remarks about it, and with offsets of the log that are not in the
    files.
    """
    by_id: dict[str, list[Step]] = {}
    for step in steps:
        by_id.setdefault(step.record.transactional_id, []).append(step)
    for name, taken in by_id.items():
        print_text(console, Text())
        print_text(console, Text(f"{printable(name)}: {plural(len(taken), 'record')}", style="bold"))
        missing = list(holes.get(name, ()))
        for step in taken:
            while missing and missing[0].first <= step.record.offset:
                print_text(console, Text(printable(str(missing.pop(0))), style="yellow"), indent=2)
            print_text(console, Text(_step(step.record, named=False)), indent=2)
            if step.note is not None:
                style = "yellow" if step.impossible_after is None else "bold red"
                print_text(console, Text(step.note, style=style), indent=4)
        for hole in missing:
            print_text(console, Text(printable(str(hole)), style="yellow"), indent=2)


def print_impossible(console: Console, impossible: Sequence[Step]) -> None:
    """Steps that no coordinator takes, of all ids."""
    print_text(console, Text())
    print_text(console, Text("Impossible steps, which no coordinator takes:", style="bold red"))
    for one in impossible[:_ERRORS_SHOWN]:
        print_text(console, Text(printable(f"{one.impossible_after}, and then {one.record}")), indent=2)
    print_rest(console, len(impossible) - _ERRORS_SHOWN)


def print_overdue(console: Console, prepared: Sequence[LoggedTransaction], now_ms: int) -> None:
    """Ids that have been in Prepare* for long."""
    if not prepared:
        return
    print_text(console, Text())
    print_text(console, Text("Decided long ago, but not complete:", style="yellow"))
    for last in prepared[:_ERRORS_SHOWN]:
        since = duration(now_ms - last.updated_ms)
        print_text(console, Text(f"{_step(last)}; for {since}"), indent=2)
    print_rest(console, len(prepared) - _ERRORS_SHOWN)


def _step(record: LoggedTransaction, named: bool = True) -> str:
    partitions = ", ".join(f"{topic}-{index}" for topic, index in sorted(record.partitions))
    if record.state is State.DEAD:
        return f"offset {record.offset}  expired (tombstone)"
    who = f"'{record.transactional_id}'  " if named else ""
    version = f", transactions v{record.client_version}" if record.client_version else ""
    where = f": {partitions}" if partitions else ""
    return printable(
        f"offset {record.offset}  {_at(record.updated_ms) or record.updated_ms}  "
        f"{who}{record.state}, producer id {record.producer_id}, epoch {record.producer_epoch}{version}{where}"
    )


def _at(at_ms: int) -> str | None:
    """A time from a file, if it is in the range that can be shown."""
    return utc(timestamp(at_ms)) if 0 <= at_ms < SHOWN_MS_END else None


def _print_headline(console: Console, read: FileContents, found: Mapping[str, Any]) -> None:
    sweep = found["sweep"]
    brokers = sorted({d.broker_id for d in read.found.log_directories if d.broker_id is not None})
    of = f" of {brokers_named(brokers)}" if brokers else ""
    bytes_in_all = size(sum(replica.size_bytes for replica in read.replicas))
    files = sum(len(replica.segments) for replica in read.replicas)
    print_text(
        console,
        Text.assemble(
            "Cluster ",
            (printable(sweep["cluster_id"]), "bold"),
            f", files{of}: {plural(len(read.replicas), 'replica')} of "
            f"{plural(sweep['partitions']['planned'], 'partition')}, {plural(files, 'segment file')}, {bytes_in_all}"
            + (f", as of {at}." if (at := _at(read.now_ms)) else "."),
        ),
    )
    counts = {verdict: count for verdict, count in sweep["counts"].items() if count}
    said = ", ".join(f"{count} {verdict.replace('_', ' ')}" for verdict, count in counts.items())
    print_text(console, Text(f"{plural(sum(counts.values()), 'open transaction')}{f': {said}' if said else ''}."))
    if sweep["counts"][Verdict.HANGING.value]:
        late = sweep["candidates"]
        text = f"{sweep['counts']['hanging']} hanging, of which {late} late (KIP-664 candidates)."
        print_text(console, Text(text, style="bold red"))


def _print_transactions(console: Console, found: Mapping[str, Any], every: bool) -> None:
    def more(t: Mapping[str, Any]) -> list[str]:
        lines = [f"Open as of offset {t['open_as_of_offset']} of {t['directory']}."]
        if t["assumption"]:
            lines.append(f"Assumes that {t['assumption']}.")
        if t["commands"]:
            proven, unproven = t["commands"]
            lines += [
                "To end it, run txnscan sweep, plan and apply, or the command below.",
                "Running brokers must prove again that it hangs. The command does that first:",
                f"  {proven}",
                "By these files it was not committed. Brokers before Kafka 2.8 cannot prove that it hangs.",
                "For them, and only if no broker ran since these files were copied:",
                f"  {unproven}",
            ]
        elif t["verdict"] == "indeterminate":
            lines.append("These files do not prove that it hangs. To prove it: txnscan sweep.")
        elif t["outcome"] == "committed":
            lines.append("To complete the commit: txnscan sweep, plan, and apply --complete-commits.")
        elif t["outcome"] == "unknown" and isinstance(answer(swept_row({**t, "log_failure": None})), Allowed):
            lines += [
                "Running brokers must prove again that it hangs, and may know its outcome: txnscan sweep, then plan.",
                "If they do not know it: apply --accept-unknown-outcome.",
            ]
        return lines

    print_transactions(console, found["transactions"], found["sweep"]["started_at"], every=every, more=more)


def _print_replicas(console: Console, replicas: Sequence[Replica], lines: Sequence[str]) -> None:
    """Replicas of a partition with the same lines."""
    brokers = [r.broker_id for r in replicas if r.broker_id is not None]
    whose = f", {brokers_named(brokers)}" if brokers else ""
    where = f"  {printable(replicas[0].directory)}" if len(replicas) == 1 else ""
    print_text(console, Text.assemble((printable(replicas[0].name), "bold"), whose, where))
    for line in lines:
        print_text(console, Text(printable(line)), indent=2)
    for r in replicas:
        unknown = r.unproven and f"Not known from offset {r.log_end_offset} on: {r.unproven}"
        for said in (r.start_unknown, unknown):
            if said:
                print_text(console, Text(printable(said), style="yellow"), indent=2)


def _replica_lines(r: Replica) -> list[str]:
    upto = [f"high watermark at least {r.high_watermark}"] if r.high_watermark >= 0 else []
    upto += [f"snapshot at {r.snapshot_offset}"] if r.snapshot_offset >= 0 else []
    lines = [
        f"offsets {r.log_start_offset} to {r.log_end_offset} (exclusive), last stable offset {r.last_stable_offset}"
        + "".join(f", {one}" for one in upto)
        + f"; {plural(len(r.segments), 'segment file')}, {size(r.size_bytes)}, {plural(len(r.producers), 'producer')}",
        _figures(r.figures, len(r.open), r.aborted_rows),
    ]
    for one in r.open:
        begun = r.begun.get(one.producer_id)
        held = (
            f", {plural(begun.batches, 'batch').replace('batchs', 'batches')} with {plural(begun.records, 'record')}"
            if begun is not None and begun.batches
            else ", begun before the first record here"
        )
        lines.append(
            f"open: producer id {one.producer_id}, epoch {one.producer_epoch}, coordinator epoch "
            f"{one.coordinator_epoch}, from offset {one.start_offset}{held}"
        )
    if r.compaction_stuck:
        lines.append(f"compaction reached offset {r.cleaned_until} and cannot pass {r.last_stable_offset}")
    if r.moved_until >= 0:
        lines.append(
            f"offsets {r.log_start_offset} to {r.moved_until - 1} are not on this disk: in tiered storage, or lost"
        )
    if r.figures.legacy:
        lines.append(f"{r.figures.legacy} batches have formats without producer ids")
    if r.figures.gaps:
        lines.append(f"{plural(r.figures.gaps, 'gap')} between its batches, the last before offset {r.gap_until}")
    return lines + [f"odd: {what}, {plural(count, 'time')}" for what, count in sorted(r.figures.odd.items())]


def _figures(figures: Figures, still_open: int, aborted_rows: int) -> str:
    said = (
        f"transactions: {figures.committed} committed, {figures.aborted} aborted, {still_open} open, {figures.empty} "
        "empty" + (f" ({aborted_rows} in the transaction index)" if aborted_rows else "")
    )
    if figures.sizes.count:
        said += f"; data batches in each: {_spread(figures.sizes, str)}; duration: {_spread(figures.durations_ms, _ms)}"
    return said


def _spread(spread: Spread, shown: Any) -> str:
    mean = spread.mean or 0.0
    return f"{shown(spread.least)} to {shown(spread.most)}, on average {shown(round(mean, 1))}"


def _ms(value: float) -> str:
    return duration(round(value))


def _print_errors(console: Console, found: Mapping[str, Any]) -> None:
    errors = found["errors"]
    if errors:
        print_text(console, Text())
        print_text(console, Text("Not observed:", style="yellow"))
        for error in errors[:_ERRORS_SHOWN]:
            print_text(console, Text(printable(error["error"])), indent=2)
        print_rest(console, len(errors) - _ERRORS_SHOWN)
    for warning in found["sweep"]["warnings"][:_ERRORS_SHOWN]:
        print_text(console, Text(f"warning: {printable(warning)}", style="yellow"))


__all__ = [
    "commands",
    "iso_utc",
    "print_ids",
    "print_impossible",
    "print_overdue",
    "print_segments",
    "print_timeline",
    "print_transaction_log",
    "segments_object",
    "transaction_log_object",
]
