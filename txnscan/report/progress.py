"""Progress on stderr while a command runs: one line with the present step. Only if stderr is a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType, TracebackType

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from txnscan.kafka.units import duration

# For each stage: the text while it runs, and the text between it and the next stage.
_STAGES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "start Spark": ("Starting Spark", "Starting Spark"),
        "open tables": ("Opening the tables", "Opening the tables"),
        "sweep clusters": ("Sweeping the clusters", "Preparing the output"),
        "plan": ("Asking for topics and brokers", "Planning the reads"),
        "read every partition": ("Reading every partition", "Looking for open transactions"),
        "read again what failed": ("Reading failed partitions again", "Looking for open transactions"),
        "ask who claims them": ("Asking coordinators for claims", "Preparing to prove the rest"),
        "first read": ("Proving open transactions", "Preparing to ask the coordinators"),
        "ask coordinators": ("Asking the coordinators", "Proving open transactions again"),
        "second read": ("Proving open transactions again", "Judging"),
        "read files": ("Reading files", "Judging"),
        "judge": ("Judging", "Preparing to read decisions"),
        "read decisions": ("Reading decisions", "Concluding"),
        "ask who waits": ("Finding blocked groups", "Concluding"),
        "read checkpoints": ("Reading checkpoints", "Concluding"),
        "write tables": ("Writing the tables", "Preparing the output"),
        "read tables": ("Reading the tables", "Reading the tables"),
        "apply": ("Applying the plan", "Applying the plan"),
        "rehearse": ("Rehearsing the plan", "Rehearsing the plan"),
        "check": ("Checking", "Checking"),
        "check before the stop": ("Reading the partitions of the brokers", "Asking coordinators"),
        "prove": ("Proving it", "Proving it"),
        "tidy tables": ("Tidying the tables", "Preparing the output"),
    }
)


class TerminalProgress:
    """One line for the stage under way. Call it with (stage, done, total); use it as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._stage: str | None = None
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
            TextColumn("{task.fields[counted]}", table_column=Column(no_wrap=True)),
            _Elapsed(table_column=Column(no_wrap=True)),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("", total=None, visible=False, counted="")

    def __call__(self, stage: str, done: int, total: int) -> None:
        doing, afterwards = _STAGES.get(stage, (stage.capitalize(), stage.capitalize()))
        if stage != self._stage:
            self._stage = stage
            self._progress.reset(self._task, start=True, visible=True)
        # Once a stage is complete, the work before the next stage takes the time.
        complete = total > 0 and done >= total
        self._progress.update(
            self._task,
            description=afterwards if complete else doing,
            counted="" if complete or total <= 1 else f"{done:,} of {total:,}",
        )

    def say(self, sentence: str) -> None:
        """A sentence on stderr, above the line."""
        self._console.print(Text(sentence), soft_wrap=True)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The line is hidden meanwhile, so that stdout can be written to the same terminal."""
        self._progress.stop()
        try:
            yield
        finally:
            self._progress.start()

    def __enter__(self) -> TerminalProgress:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


class _Elapsed(ProgressColumn):
    """For how long."""

    def render(self, task: Task) -> Text:
        elapsed_s = int(task.elapsed or 0)
        return Text("" if elapsed_s < 1 else duration(elapsed_s * 1_000), style="dim")
