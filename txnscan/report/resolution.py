"""Plans, and what came of them, for a terminal and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from txnscan.config import printable
from txnscan.report.table import print_text
from txnscan.resolve.apply import DONE, Result, Status
from txnscan.resolve.plan import Action, Plan, Refusal
from txnscan.resolve.run import Applied

_STYLES = {
    Status.RESOLVED: "green",
    Status.GONE: "green",
    Status.WOULD_SEND: "cyan",
    Status.REFUSED: "yellow",
    Status.RACED: "yellow",
}


def print_plan(console: Console, plan: Plan, path: str) -> None:
    """What would be done, and what is refused and why."""
    print_text(
        console,
        Text(f"Plan {plan.digest[:12]} of sweep {printable(plan.sweep_id)}, cluster {printable(plan.cluster_id)}:"),
    )
    if not plan.actions:
        print_text(console, Text("nothing is to be done."), indent=2)
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
    print_text(console, Text())
    print_text(
        console, Text(f"Written to {printable(path)}; `txnscan apply` rehearses it, and with --execute does it.")
    )


def _where(item: Action | Refusal) -> str:
    return printable(item.where)


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
    """What came of each action."""
    for result in applied.settled:
        _print_result(console, result, "before: ")
    for result in applied.results:
        _print_result(console, result)
    done = sum(result.status in DONE for result in applied.results)
    verb = "done" if applied.executed else "would be done; nothing was sent (--execute sends)"
    print_text(console, Text(f"{done} of {len(applied.results)} {verb}."))


def _print_result(console: Console, result: Result, prefix: str = "") -> None:
    status = result.status.replace("_", " ")
    title = Text.assemble(
        prefix,
        (status, _STYLES.get(result.status, "bold red")),
        f"  {result.action.marker} ",
        (_where(result.action), "bold"),
    )
    print_text(console, title)
    print_text(console, Text(f"{printable(result.detail)}."), indent=2)


def plan_object(plan: Plan) -> dict[str, Any]:
    """The plan as one JSON object."""
    return {**asdict(plan), "digest": plan.digest}


def applied_object(applied: Applied) -> dict[str, Any]:
    """What came of a plan as one JSON object."""
    return {
        "executed": applied.executed,
        "results": [_result_object(result) for result in applied.results],
        "settled": [_result_object(result) for result in applied.settled],
    }


def _result_object(result: Result) -> dict[str, Any]:
    return {**asdict(result.action), "status": result.status.value, "detail": result.detail}
