"""Plans and their results, for a terminal and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from txnscan.config import printable
from txnscan.kafka.units import duration, plural
from txnscan.report.paragraphs import print_text
from txnscan.report.plain import utc
from txnscan.report.progress import TerminalProgress
from txnscan.resolve.apply import DONE, Result, Status
from txnscan.resolve.plan import Action, Plan, Refusal
from txnscan.resolve.run import Applied
from txnscan.sweeps.column import timestamp

_STYLES = {
    Status.RESOLVED: "green",
    Status.GONE: "green",
    Status.WOULD_SEND: "cyan",
    Status.REFUSED: "yellow",
    Status.RACED: "yellow",
}


def print_plan(console: Console, plan: Plan, path: str) -> None:
    """The planned markers, and the refusals with their reasons."""
    narrow = plan.scope != "all"
    of = f"sweep {printable(plan.sweep_id)}" + (f" of {printable(plan.scope)} alone" if narrow else "")
    swept = (
        f"begun {utc(timestamp(plan.swept_at_ms))}, {duration(plan.planned_at_ms - plan.swept_at_ms)} before the plan"
    )
    print_text(
        console, Text(f"Plan {plan.digest[:12]} of {of}, cluster {printable(plan.cluster_id)} (the sweep {swept}):")
    )
    if not plan.actions:
        rest = " in this scope; the sweep did not read the rest" if narrow else ""
        print_text(console, Text(f"no marker to send{rest}."), indent=2)
    for action in plan.actions:
        _print_action(console, action)
    if plan.refused:
        print_text(console, Text())
        print_text(console, Text("Refused:", style="yellow"))
    for refusal in plan.refused:
        title = Text.assemble(
            (_where(refusal), "bold"), f"  {printable(refusal.reason)}, from offset {refusal.start_offset}"
        )
        print_text(console, title, indent=2)
        print_text(console, Text(f"{refusal.guard}: {printable(refusal.why)}."), indent=4)
    for warning in plan.warnings:
        print_text(console, Text(f"warning of the sweep: {printable(warning)}", style="yellow"))
    print_text(console, Text())
    does = (
        "`txnscan apply` rehearses it, and --execute sends the markers" if plan.actions else "it has nothing to apply"
    )
    print_text(console, Text(f"Written to {printable(path)}; {does}."))


def _where(item: Action | Refusal) -> str:
    return printable(item.topic_partition)


def _print_action(console: Console, action: Action) -> None:
    needs = f"; needs {action.needs}" if action.needs is not None else ""
    title = Text.assemble((f"{action.marker} ", "bold cyan"), (_where(action), "bold"), needs)
    print_text(console, title, indent=2)
    request = (
        f"WriteTxnMarkers: producer id {action.producer_id}, producer epoch {action.producer_epoch}, coordinator epoch "
        f"{max(action.coordinator_epoch, 0)}, transaction version 0, to the partition's leader"
    )
    print_text(console, Text(request), indent=4)
    print_text(console, Text(printable(action.why)), indent=4)


def print_applied(console: Console, applied: Applied) -> None:
    """The result of each action."""
    for result in applied.settled:
        print_result(console, result, "before: ")
    for result in applied.results:
        print_result(console, result)
    print_count(console, applied)


def print_fenced(console: Console, result: Result) -> None:
    """The result of fencing an id."""
    status = "fenced" if result.status is Status.RESOLVED else result.status.replace("_", " ")
    title = Text.assemble(
        (status, _STYLES.get(result.status, "bold red")), f"  '{printable(str(result.action.transactional_id))}'"
    )
    print_text(console, title)
    print_text(console, Text(f"{printable(result.detail)}."), indent=2)


def print_count(console: Console, applied: Applied) -> None:
    """How much of a plan is done."""
    if not applied.results:
        print_text(console, Text("Nothing to apply: the plan has no marker to send."))
        return
    done = sum(result.status in DONE for result in applied.results)
    verb = "done" if applied.executed else "would be done; no marker was sent (--execute sends them)"
    print_text(console, Text(f"{done} of {len(applied.results)} {verb}."))
    if applied.executed and done:
        print_text(console, Text("Sweep again: the sweep closes the incidents that are over."))


def print_result(console: Console, result: Result, prefix: str = "") -> None:
    """The result of an action."""
    status = result.status.replace("_", " ")
    title = Text.assemble(
        prefix,
        (status, _STYLES.get(result.status, "bold red")),
        f"  {result.action.marker} ",
        (_where(result.action), "bold"),
    )
    print_text(console, title)
    print_text(console, Text(f"{printable(result.detail)}."), indent=2)


def applied_object(applied: Applied) -> dict[str, Any]:
    """The results of a plan as one JSON object."""
    return {
        "executed": applied.executed,
        "results": [result_object(result) for result in applied.results],
        "settled": [result_object(result) for result in applied.settled],
    }


def result_object(result: Result) -> dict[str, Any]:
    """One of the results."""
    return {**asdict(result.action), "status": result.status.value, "detail": result.detail}


# The text of each step, for the line of progress.
_STEPS = {
    "intend": "Storing the intent for {}",
    "prove": "Proving {} again",
    "look": "Checking {} once more",
    "send": "Sending the {marker} marker to {}",
    "conclude": "Storing the result of {}",
}


class LiveReport:
    """Reports an apply while it runs: the present step as progress, each result as soon as it is known, and a summary
    if the apply ends early.

    progress: of the terminal. console: for the results; None if they are written at the end.
    """

    def __init__(self, actions: int, progress: TerminalProgress, console: Console | None) -> None:
        self._actions = actions
        self._progress = progress
        self._console = console
        self._under_way: tuple[str, Action] | None = None
        self.results: list[Result] = []
        self.settled: list[Result] = []

    def on_step(self, step: str, action: Action) -> None:
        """See `apply_plan`."""
        self._under_way = (step, action)
        doing = _STEPS[step].format(printable(action.topic_partition), marker=action.marker)
        self._progress(doing, len(self.results), self._actions)

    def on_result(self, result: Result) -> None:
        """See `apply_plan`."""
        self.results.append(result)
        self._under_way = None
        self._print(result, "")

    def on_settled(self, result: Result) -> None:
        """See `settle_interrupted`."""
        self.settled.append(result)
        self._print(result, "before: ")

    @property
    def has_begun(self) -> bool:
        return bool(self._under_way or self.results or self.settled)

    def so_far(self, *, executed: bool) -> str:
        """The progress up to now, in one sentence."""
        done = sum(result.status in DONE for result in self.results)
        left = self._actions - len(self.results)
        said = f"{len(self.results)} of {plural(self._actions, 'marker')} processed, {done} done"
        if not executed:
            return f"{said}; no marker was sent"
        if self._under_way is None:
            return f"{said}; {left} not started"
        step, action = self._under_way
        where = f"{action.marker} {printable(action.topic_partition)}"
        if step == "conclude":
            return (
                f"{said}; the result of {where} may not be in the journal, and the next apply --execute checks it; "
                f"{left} not started"
            )
        state = (
            "its marker may have been sent, and the next apply --execute checks it first"
            if step == "send"
            else "its marker was not sent"
        )
        return f"{said}; {where} was under way: {state}; {left - 1} not started"

    def _print(self, result: Result, prefix: str) -> None:
        if self._console is not None:
            with self._progress.paused():
                print_result(self._console, result, prefix)
