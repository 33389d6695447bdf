"""The run: one benchmark after the other, each in a process of its own; a table for each, and JSON of all."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.bench import (
    busy,
    cold,
    commands,
    cores,
    costs,
    distribution,
    history,
    judge,
    long_log,
    metadata,
    offline,
    scale,
    slow,
    stop,
    sweep,
    wide,
    year,
)
from tests.bench.harness import ROOT, Finding, Options, console, machine, say, show
from tests.bench.processes import Failed, apart

BENCHMARKS: Mapping[str, Callable[[Options], Finding]] = MappingProxyType(
    {
        "wide": wide.run,
        "metadata": metadata.run,
        "sweep": sweep.run,
        "busy": busy.run,
        "stop": stop.run,
        "cold": cold.run,
        "commands": commands.run,
        "long-log": long_log.run,
        "slow": slow.run,
        "scale": scale.run,
        "costs": costs.run,
        "judge": judge.run,
        "distribution": distribution.run,
        "offline": offline.run,
        "cores": cores.run,
        "history": history.run,
        "year": year.run,
    }
)

_MAY_BE_NONE = ("quiet", "live_share", "transactional_ids", "log_records", "groups")
OUT = ROOT / ".venv" / "bench.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 1 where a benchmark could not be run. Slow is not wrong."""
    names, out, options = parsed(arguments)
    report: dict[str, Any] = {"machine": machine(), "options": asdict(options), "benchmarks": {}}
    screen, status, began_s = console(), 0, time.monotonic()
    screen.print(f"{', '.join(f'{name} {value}' for name, value in report['machine'].items())}", soft_wrap=True)
    for name in names:
        say(name)
        try:
            finding = apart(BENCHMARKS[name], options)
        except Failed as failed:
            say(f"{name} could not be run:\n{failed}")
            report["benchmarks"][name] = {"failed": str(failed)}
            status = 1
        else:
            show(finding, screen)
            report["benchmarks"][name] = finding.as_json()
        # After each: what was measured is not lost to what comes next.
        out.write_text(f"{json.dumps(report, indent=2)}\n", "utf-8")
    say(f"{out} has every sample ({time.monotonic() - began_s:.0f} s)")
    return status


def parsed(arguments: Sequence[str] | None) -> tuple[list[str], Path, Options]:
    """Which benchmarks, where the JSON goes, and how large."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description="Measures txnscan beside other ways to do the same."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)} (default: all)")
    for name, what in (
        ("runs", "of each side, besides a warm-up"),
        ("brokers", "of the big cluster"),
        ("partitions", "of the big cluster"),
        ("tool_runs", "sweep: rounds in which Kafka's tool runs too"),
        ("tool_brokers", "sweep: run Kafka's tool for so many brokers, and multiply"),
        ("largest", "scale: partitions of the largest cluster"),
        ("live_share", "of the partitions, 0 to 1: those that have a live transaction"),
        ("transactional_ids", "at rest"),
        ("log_records", "in __transaction_state, at least; each id has one or more"),
        ("long_log_records", "long-log: in __transaction_state"),
        ("groups", "of consumers"),
        ("segment_batches", "offline: batches of one record in the segment"),
        ("sweeps", "history: sweeps that are stored"),
        ("incidents", "history: hanging transactions over all of them"),
    ):
        default = getattr(Options, name)
        said = f"{what} (default: {'all' if default is None else default})"
        kind = float if isinstance(default, float) else int
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=default, metavar="N", help=said)
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="nothing is live and there are no transactional ids; `busy` has both",
    )
    parser.add_argument(
        "--out", type=Path, default=OUT, metavar="FILE", help="every sample (default: .venv/bench.json)"
    )
    told = parser.parse_args(arguments)
    unknown = [name for name in told.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]}; there are {', '.join(BENCHMARKS)}")
    options = Options(**{field.name: getattr(told, field.name) for field in fields(Options)})
    for name, value in asdict(options).items():
        least = 0 if name in _MAY_BE_NONE else 1
        if value is not None and value < least:
            parser.error(f"--{name.replace('_', '-')} must be {least} or more")
    if options.live_share > 1:
        parser.error("--live-share must be between 0 and 1")
    return told.names or list(BENCHMARKS), told.out, options


if __name__ == "__main__":
    sys.exit(main())
