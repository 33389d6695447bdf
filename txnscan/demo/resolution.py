"""The plan for the hanging transactions, and its rehearsal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from txnscan.api import sweep
from txnscan.config import ScanConfig
from txnscan.demo.plant import Planted, live_epoch
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.kafka.units import duration
from txnscan.report.resolution import print_applied, print_plan
from txnscan.resolve.plan import Plan, to_json
from txnscan.resolve.run import apply_to, plan_sweep

_WATCHED_S_MAX = 180
# Each of these sweeps is stored.
_SWEEP_EVERY_S = 2.0
# One outcome is a commit, and others are unknown.
OPTIONS = ("--complete-commits", "--accept-unknown-outcome")


def plan_and_rehearse(
    wire: Wire,
    config: ScanConfig,
    hanging: list[Planted],
    console: Console,
    say: Callable[[str], None],
) -> Plan:
    """Sweeps until all hanging transactions were watched for long enough, makes a plan, and rehearses it. Sends no
    markers.

    It runs without Spark, on the tables that Spark has written. It also plants a transaction that hangs while its owner
    can still write, so that the plan refuses it.
    """
    tables = str(config.tables)
    say(
        f"Sweeping again, once txnscan has watched for {duration(config.late_after_ms or 0)} (the brokers' longest "
        "timeout), and planning; without Spark from here on (--engine threads)"
    )
    live_epoch(wire, "refunds")
    console.print(
        Text(
            "Two things are different then. The owner of invoices-1 has been silent for too long: its coordinator has "
            "aborted what it knew of that transaction, at the next epoch, so that invoices-1 is stale_epoch and no "
            "longer live_epoch, and can be ended. And refunds-1 is made now in the way that invoices-1 was, with an "
            "owner that can still write: the plan must refuse it."
        )
    )

    def planned() -> Plan | None:
        sweep(None, replace(config, engine="threads"))
        plan = plan_sweep(None, tables)
        return plan if len(plan.actions) >= len(hanging) else None

    plan = wait_until(
        planned, "everything that hangs was watched for long enough", _WATCHED_S_MAX, every_s=_SWEEP_EVERY_S
    )
    path = Path(tables).absolute().parent / "plan.json"
    path.write_text(to_json(plan))
    console.rule("What could be done about it", align="left")
    console.print()
    print_plan(console, plan, str(path))
    console.print()
    console.rule("The rehearsal: everything up to the sending", align="left")
    console.print()
    print_applied(console, apply_to(None, config, plan, options=OPTIONS))
    console.print()
    command = f"{sys.argv[0]} apply {path} --bootstrap-server {config.bootstrap_servers} --tables {tables}"
    console.print(Text("The rehearsal was this, while the brokers are up:"))
    console.print(Text(f"  {command} {' '.join(OPTIONS)}"), soft_wrap=True)
    return plan
