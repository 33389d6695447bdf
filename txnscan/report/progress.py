"""Progress on stderr while a sweep runs; nothing at all when stderr is not a terminal."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)


class TerminalProgress:
    """One line per stage. Call it with (stage, done, total); use it as a context manager."""

    def __init__(self, console: Console) -> None:
        self._tasks: dict[str, TaskID] = {}
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage not in self._tasks:
            self._finish_earlier()
            self._tasks[stage] = self._progress.add_task(stage, total=total)
        self._progress.update(self._tasks[stage], completed=done, total=total)

    def _finish_earlier(self) -> None:
        for task_id in self._tasks.values():
            total = next(task.total for task in self._progress.tasks if task.id == task_id)
            self._progress.update(task_id, completed=total or 0)

    def __enter__(self) -> TerminalProgress:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
