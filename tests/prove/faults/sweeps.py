"""The sweeps of a world: before, during and after a fault and its healing."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.prove.faults.faults import Fault
from tests.prove.faults.figures import Figures, in_one_line, say
from tests.prove.faults.ledger import Accusation, missed
from tests.prove.faults.world import Known, World
from txnscan import ScanConfig, find_hanging
from txnscan.coordinators.cluster import ClusterUnreachable
from txnscan.demo.errors import DemoError
from txnscan.sweeps.result import Scan
from txnscan.verdict.evidence import Verdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str, int, int], None]

_STAGES = ("plan", "read every partition", "first read", "ask coordinators", "second read", "judge")
_ACT_S_MAX = 240.0


class Sweeper:
    """Sweeps a world, and stores the accusations of the sweeps.

    session_for: returns the Spark session for the sweep with this number, or None for threads.
    """

    def __init__(
        self, world: World, figures: Figures, directory: Path, session_for: Callable[[int], SparkSession | None]
    ) -> None:
        self._world = world
        self._figures = figures
        # Short timeouts, so that an unreachable broker costs only seconds.
        self._impatient = directory / "impatient.properties"
        self._impatient.write_text("request.timeout.ms=4000\nsocket.connection.setup.timeout.ms=2000\n")
        self._tables = str(directory / f"tables-{world.name}")
        self._session_for = session_for
        self.accusations: list[Accusation] = []

    def sweep(self, fault: Fault | None, moment: str, progress: Progress = lambda *_: None) -> Scan | None:
        """Runs one sweep and checks it. None if no broker answered at all."""
        figures, before, started_s = self._figures, self._world.planted, time.monotonic()
        number = figures.sweeps + 1
        session = self._session_for(number)
        name = f"#{number} {self._world.name}, {fault.what if fault is not None else 'calm'}, {moment}"
        try:
            scan = self._scan(session, progress)
        except ClusterUnreachable as unreachable:
            figures.failed += 1
            say(f"{name}: failed as a whole ({str(unreachable)[:80]})")
            return None
        figures.count_sweep(scan, fault.kind if fault is not None else "none", on_spark=session is not None)
        # Transactions that were planted or forgotten during the sweep do not count.
        self._check(name, scan, before & self._world.planted)
        on_spark = " (Spark)" if session is not None else ""
        say(f"{name}{on_spark}: {in_one_line(scan)}, {time.monotonic() - started_s:.1f} s")
        return scan

    def _scan(self, session: SparkSession | None, progress: Progress) -> Scan:
        if session is None:
            return find_hanging(self._config(), progress=progress)
        from txnscan import sweep

        return sweep(session, self._config(tables=self._tables), progress=progress).scan

    def _config(self, **options: Any) -> ScanConfig:
        servers = self._world.bootstrap_servers
        return ScanConfig(servers, command_config=str(self._impatient), **options)

    def _check(self, name: str, scan: Scan, planted: Iterable[Known]) -> None:
        figures = self._figures
        figures.violations += [f"{name}: {wrong}" for wrong in missed(scan, planted)]
        found = {judged.observation.transaction_key: judged for judged in scan.transactions}
        for known in planted:
            verdict = str(found[known.key].judgement.verdict) if known.key in found else "absent, with an error"
            figures.planted_seen[f"{'complete' if scan.complete else 'incomplete'}: {verdict}"] += 1
        for key, judged in found.items():
            if key not in self._world.ever_planted:
                figures.verdicts_on_others[str(judged.judgement.verdict)] += 1
            if judged.judgement.verdict is Verdict.HANGING:
                self.accusations.append(Accusation(name, scan.finished_at_ms, judged))


def one_round(sweeper: Sweeper, fault: Fault, rng: random.Random) -> None:
    """One fault from its start to its end: it begins in the middle of a sweep and heals in the middle of another. More
    sweeps follow while the brokers are still busy with it, and after they are done.
    """
    for now, meanwhile, then, act in (
        ("as it strikes", "striking", "struck", fault.strike),
        ("as it heals", "healing", "healed", fault.heal),
    ):
        at = At(rng.choice(_STAGES), act, waits=rng.random() < 0.4)
        sweeper.sweep(fault, now, at)
        for _ in range(rng.randint(0, 2)):
            if at.under_way:
                sweeper.sweep(fault, meanwhile)
        at.join()
        sweeper.sweep(fault, then)


class At:
    """A progress callback that starts an action in its own thread when a sweep reaches a stage. `join` raises the
    action's error.

    waits: whether the sweep waits until the action is done, or continues in parallel.
    """

    def __init__(self, stage: str, act: Callable[[], None], *, waits: bool) -> None:
        self._stage = stage
        self._act = act
        self._waits = waits
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage == self._stage:
            thread = self._start()
            if self._waits:
                thread.join(_ACT_S_MAX)

    @property
    def under_way(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def join(self) -> None:
        """Waits until the action is done. If the sweep never reached the stage, the action starts now."""
        thread = self._start()
        thread.join(_ACT_S_MAX)
        if thread.is_alive():
            raise DemoError("a fault took too long")
        if self._error is not None:
            raise self._error

    def _start(self) -> threading.Thread:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()
            return self._thread

    def _run(self) -> None:
        try:
            self._act()
        except BaseException as error:
            self._error = error
