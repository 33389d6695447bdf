"""Shared by the benchmarks: timing in turn, medians and ratios, tables, JSON, the machine, the memory of processes."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from txnscan.engine.spark.java import JavaError, find_java

ROOT = Path(__file__).parents[2]
# Counts of the work, such as the partitions and producers read. Two sides must agree on every count that both report.
Work = Mapping[str, int]
_WIDTH = 140
# The processes from which Python workers are forked, on this machine and elsewhere.
_DAEMONS = (["-m", "txnscan.engine.spark.daemon"], ["-m", "pyspark.daemon"])


@dataclass(frozen=True)
class Options:
    """The options of the command line.

    quiet: measure on a cluster without live transactions and without transactional ids. Otherwise `live_share` of the
    partitions have a live transaction, and the cluster has `transactional_ids` at rest and `log_records` in
    `__transaction_state`. Both clusters have the same number of consumer groups.
    """

    runs: int = 5
    brokers: int = 50
    partitions: int = 100_000
    tool_brokers: int | None = None
    tool_runs: int = 2
    largest: int = 1_000_000
    quiet: bool = False
    live_share: float = 0.05
    transactional_ids: int = 100_000
    log_records: int = 300_000
    long_log_records: int = 5_000_000
    groups: int = 1_000
    segment_batches: int = 400_000
    sweeps: int = 1_000
    incidents: int = 10_000


# --- timing ---


@dataclass(frozen=True, slots=True)
class Side:
    """One way to do the work. run: does the work and returns its counts.

    runs_max: the most rounds, for a side that takes too long for every round. times: the factor for its seconds, for a
    side that does a part of the work.
    """

    name: str
    run: Callable[[], Work]
    runs_max: int | None = None
    times: float = 1.0


@dataclass(frozen=True, slots=True)
class Timed:
    """How long something took, run by run, in seconds."""

    name: str
    samples_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        return statistics.median(self.samples_s)

    def __str__(self) -> str:
        return f"{_short(self.median_s)} ({_short(min(self.samples_s))}..{_short(max(self.samples_s))})"


class DifferentWork(Exception):
    """Two sides of a comparison did different work."""


def timed_in_turn(
    sides: Sequence[Side],
    runs: int,
    *,
    before: Callable[[], None] = lambda: None,
    after: Callable[[], Work] = dict,
) -> tuple[tuple[Timed, ...], Work]:
    """Times the sides in turn, round after round, after a warm-up round that does not count. Returns also their work.

    before and after: called around each run, outside the clock. The counts from `after` belong to the work.
    Raises DifferentWork.
    """
    done: dict[str, tuple[int, str]] = {}
    samples: dict[str, list[float]] = {side.name: [] for side in sides}
    for number in range(runs + 1):
        for side in sides:
            if side.runs_max is not None and number > side.runs_max:
                continue
            before()
            began_s = time.perf_counter()
            work = side.run()
            took_s = (time.perf_counter() - began_s) * side.times
            _compare(done, side.name, work)
            _compare(done, side.name, after())
            say(f"  {f'run {number}' if number else 'warm-up'}, {side.name}: {_short(took_s)} s")
            if number:
                samples[side.name].append(took_s)
    timed = tuple(Timed(name, tuple(each)) for name, each in samples.items())
    return timed, {what: count for what, (count, _) in done.items()}


def _compare(done: dict[str, tuple[int, str]], name: str, work: Work) -> None:
    for what, count in work.items():
        before, who = done.setdefault(what, (count, name))
        if before != count:
            raise DifferentWork(f"{what}: {who} did {before}, and {name} {count}")


# --- findings ---


@dataclass(frozen=True, slots=True)
class Ratio:
    """Two sides compared by their medians.

    target: with `faster`, how many times faster ours has to be, at least; otherwise ours may take at most so many times
    as long as the peer. None if there is no target.
    """

    ours: str
    peer: str
    target: float | None = None
    faster: bool = False

    def of(self, medians_s: Mapping[str, float]) -> float:
        """The ratio itself."""
        ours_s, peer_s = medians_s[self.ours], medians_s[self.peer]
        return peer_s / ours_s if self.faster else ours_s / peer_s

    def is_met(self, ratio: float) -> bool | None:
        """Whether this ratio meets the target, if there is one."""
        if self.target is None:
            return None
        return ratio >= self.target if self.faster else ratio <= self.target

    def in_words(self, ratio: float) -> str:
        """The ratio as the table has it."""
        return f"{ratio:.1f} times faster" if self.faster else f"{ratio:.2f} x {self.peer}"

    @property
    def target_in_words(self) -> str:
        """The target as the table has it."""
        if self.target is None:
            return ""
        return f"at least {self.target:g}" if self.faster else f"at most {self.target:g}"


@dataclass(frozen=True, slots=True)
class Grid:
    """A further table, for figures other than seconds."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a benchmark. setting: where it ran. work: counts of each run. notes: facts beside the tables."""

    name: str
    title: str
    setting: Mapping[str, Any]
    timed: Sequence[Timed] = ()
    ratios: Sequence[Ratio] = ()
    work: Work = field(default_factory=dict)
    grids: Sequence[Grid] = ()
    notes: Sequence[str] = ()

    @property
    def medians_s(self) -> dict[str, float]:
        """The median of each side."""
        return {each.name: each.median_s for each in self.timed}

    def as_json(self) -> dict[str, Any]:
        """All of it, samples included."""
        medians_s = self.medians_s
        return {
            "title": self.title,
            "setting": dict(self.setting),
            "work": dict(self.work),
            "sides": {
                each.name: {
                    "runs": len(each.samples_s),
                    "median_s": each.median_s,
                    "min_s": min(each.samples_s),
                    "max_s": max(each.samples_s),
                    "samples_s": list(each.samples_s),
                }
                for each in self.timed
            },
            "ratios": [
                {
                    "ours": each.ours,
                    "peer": each.peer,
                    "times_faster" if each.faster else "times_as_long": (ratio := each.of(medians_s)),
                    "target": each.target,
                    "met": each.is_met(ratio),
                }
                for each in self.ratios
            ],
            "grids": [
                {"title": grid.title, "rows": [dict(zip(grid.columns, row, strict=True)) for row in grid.rows]}
                for grid in self.grids
            ],
            "notes": list(self.notes),
        }


# --- tables ---


def show(finding: Finding, console: Console) -> None:
    """The finding for people."""
    console.print()
    console.print(Text(f"{finding.name}: {finding.title}", style="bold"))
    console.print(Text(_listed(finding.setting)))
    if finding.work:
        console.print(Text(f"every run: {_listed(finding.work)}"))
    if finding.timed:
        console.print(_sides(finding))
    for grid in finding.grids:
        console.print(_grid(grid))
    for note in finding.notes:
        console.print(Text(f"- {note}"))


def console() -> Console:
    """Stdout, as wide as the tables are where it is no terminal."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)


def _sides(finding: Finding) -> Table:
    table = Table("what", "seconds (min..max)", "runs", "ratio to the peer", "target", "met?")
    medians_s = finding.medians_s
    for each in finding.timed:
        ratios = [(ratio, ratio.of(medians_s)) for ratio in finding.ratios if ratio.ours == each.name]
        table.add_row(
            each.name,
            str(each),
            str(len(each.samples_s)),
            "\n".join(ratio.in_words(value) for ratio, value in ratios),
            "\n".join(ratio.target_in_words for ratio, _ in ratios),
            "\n".join({True: "yes", False: "NO", None: ""}[ratio.is_met(value)] for ratio, value in ratios),
        )
    return table


def _grid(grid: Grid) -> Table:
    table = Table(title=grid.title, title_justify="left")
    for column in grid.columns:
        table.add_column(column, justify="right")
    for row in grid.rows:
        table.add_row(*(_cell(value) for value in row))
    return table


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return _short(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_cell(value)}" for name, value in values.items())


def _short(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201


# --- the machine and its processes ---


def machine() -> dict[str, Any]:
    """The machine, the date and the versions."""
    memory = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)),
        "processor": models[0].split(":", 1)[1].strip() if models else platform.machine(),
        "memory_mb": int(memory.split()[1]) // 1024,
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "java": _java_version(),
        **{name: version(name) for name in ("pyspark", "delta-spark", "kafka-python", "pyarrow", "txnscan")},
        "commit": _commit(),
    }


def _java_version() -> str:
    try:
        ran = subprocess.run([find_java(), "-version"], capture_output=True, text=True, check=False)
    except JavaError as error:
        return str(error)
    return (ran.stderr or ran.stdout).splitlines()[0]


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def most_memory_mb(pid: int | str = "self") -> float:
    """The most that a process ever had in memory (VmHWM), or 0 where it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0.0)


def most_memory_of_spark_mb() -> dict[str, float]:
    """The same for this process's JVMs together and for the largest of their Python workers, while they run."""
    commands = {pid: command_line(pid) for pid in descendants(os.getpid())}
    jvms = [most_memory_mb(pid) for pid, command in commands.items() if command.split("\0")[0].endswith("java")]
    # The process that forks the workers counts as a worker, and they share its memory.
    workers = [most_memory_mb(pid) for pid, command in commands.items() if command.split("\0")[1:3] in _DAEMONS]
    return {"jvm": sum(jvms), "worker": max(workers, default=0.0)}


def descendants(ancestor: int) -> Iterable[int]:
    """The ids of all processes below this ancestor: its children, their children, and so on."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # The name of the command, in parentheses, may contain any character.
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found = list(children.get(ancestor, ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def command_line(pid: int) -> str:
    """A process's command and its arguments, each ending in NUL; "" where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
