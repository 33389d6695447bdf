"""The results of a run, and their report: sentences on stderr during the run, figures at its end."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from txnscan.sweeps.result import Scan


def say(text: str) -> None:
    """Prints to stderr, unbuffered."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def in_one_line(scan: Scan) -> str:
    verdicts = " ".join(f"{name} {number}" for name, number in scan.counts.items() if number)
    coverage = "complete" if scan.complete else "incomplete"
    return (
        f"{verdicts or 'nothing open'}; {coverage}, "
        f"coordinators {scan.coordinators_proven}/{scan.coordinators_planned}, "
        f"{scan.partitions_failed} of {scan.partitions_planned} partitions failed"
    )


@dataclass
class Figures:
    """All counts. Sweeps that failed as a whole are only in `failed`."""

    sweeps: int = 0
    failed: int = 0
    complete: int = 0
    spark: int = 0
    by_fault: Counter[str] = field(default_factory=Counter)
    complete_by_fault: Counter[str] = field(default_factory=Counter)
    rounds: Counter[str] = field(default_factory=Counter)
    planted_seen: Counter[str] = field(default_factory=Counter)
    verdicts_on_others: Counter[str] = field(default_factory=Counter)
    accusations: Counter[str] = field(default_factory=Counter)
    open_for_ever: dict[str, int] = field(default_factory=dict)
    traffic: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def count_sweep(self, scan: Scan, fault_kind: str, *, on_spark: bool) -> None:
        self.sweeps += 1
        self.spark += on_spark
        self.complete += scan.complete
        self.by_fault[fault_kind] += 1
        self.complete_by_fault[fault_kind] += scan.complete

    def report(self, seed: int, seconds: float) -> dict[str, Any]:
        """The report for people and machines. The violations themselves are printed separately."""
        return {
            "seed": seed,
            "seconds": round(seconds),
            "sweeps": self.sweeps,
            "sweeps that failed as a whole": self.failed,
            "on Spark": self.spark,
            "complete": self.complete,
            "by fault": {
                kind: {"rounds": self.rounds[kind], "sweeps": many, "complete": self.complete_by_fault[kind]}
                for kind, many in sorted(self.by_fault.items())
            },
            "planted": dict(sorted(self.planted_seen.items())),
            "verdicts on all else": dict(self.verdicts_on_others),
            "accusations": sum(self.accusations.values()),
            "accusations by what became of them": dict(self.accusations),
            "false accusations": self.accusations["FALSE"],
            "open for ever at the end": self.open_for_ever,
            "transactions of the traffic": dict(self.traffic),
            "violations": len(self.violations),
        }
