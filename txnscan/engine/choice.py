"""Which engine reads the partitions of a sweep, and why.

With `auto`, a sweep reads on the executors of a given session if each of them can connect to a bootstrap server. That
is tried, not guessed. Otherwise, and without a session, threads of the driver read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from txnscan.config import EngineName
from txnscan.engine import Batch, Engine, Row
from txnscan.parallel import OnProgress


class EngineReason(StrEnum):
    """Why an engine was chosen."""

    REQUESTED = "requested"
    # Without a Spark session.
    NO_SESSION = "no_session"
    # Every executor connected to a broker.
    EXECUTORS_CONNECT = "executors_connect"
    # An executor could not connect to a broker, or its Python could not start.
    EXECUTORS_FAILED = "executors_failed"


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine of a sweep. failure: with EXECUTORS_FAILED, the cause as a clause."""

    name: EngineName
    reason: EngineReason
    failure: str | None = None

    @property
    def warning(self) -> str | None:
        """A sentence for the user, if this engine is a substitute."""
        return None if self.failure is None else f"threads of the driver read all partitions: {self.failure}"


WITHOUT_SESSION = EngineChoice(EngineName.THREADS, EngineReason.NO_SESSION)


class AutoEngine:
    """Reads on executors if they can connect, else in the driver.

    failure: waits for the trial, and returns why an executor cannot read, or None.
    """

    def __init__(self, executors: Engine, failure: Callable[[], str | None]) -> None:
        self._executors = executors
        self._failure = failure

    @property
    def choice(self) -> EngineChoice:
        """Which engine reads. Waits for the trial."""
        failure = self._failure()
        if failure is None:
            return EngineChoice(EngineName.SPARK, EngineReason.EXECUTORS_CONNECT)
        return EngineChoice(EngineName.THREADS, EngineReason.EXECUTORS_FAILED, failure)

    @property
    def driver(self) -> Engine:
        """See Engine."""
        return self._executors.driver

    def map(
        self,
        function: Callable[[Batch], Iterable[Row]],
        batches: Sequence[Batch],
        row_type: type[Row],
        on_progress: OnProgress,
    ) -> list[Row]:
        """See Engine."""
        return self._chosen.map(function, batches, row_type, on_progress)

    @property
    def _chosen(self) -> Engine:
        return self._executors if self._failure() is None else self._executors.driver
