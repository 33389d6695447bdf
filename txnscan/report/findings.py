"""What `--fail-on` decides by, and the exit status of each of its values.

The options of all commands import this module, so it imports the verdicts only when a sweep is there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from txnscan.errors import ExitStatus
from txnscan.kafka.units import plural

if TYPE_CHECKING:
    from txnscan.sweeps.result import Scan


class FailOn(StrEnum):
    """The results of a sweep with their own exit status. PROVEN: a transaction is proven to hang, late or not. HANGING:
    it is late, too. Both: an abort of a live transaction would delete committed records.
    """

    PROVEN = "proven"
    HANGING = "hanging"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True)
class Findings:
    """The numbers of a sweep. hanging: proven, late or not. late: of these. endangered: live transactions whose abort
    would delete committed records. complete: whether everything was observed that the user asked for: also the
    checkpoints that the sweep looked into, which are no part of the proof.
    """

    hanging: int
    late: int
    endangered: int
    complete: bool

    @classmethod
    def of(cls, scan: Scan) -> Findings:
        """Those of a finished sweep."""
        from txnscan.verdict.evidence import Verdict

        endangered = sum(one.endangers_commit for one in scan.transactions)
        complete = scan.complete and not any(one.readers_error for one in scan.impacts.values())
        return cls(scan.counts[Verdict.HANGING], len(scan.candidates), endangered, complete)

    @classmethod
    def of_object(cls, found: Mapping[str, Any]) -> Findings:
        """Those of the JSON object. Tables of an earlier version may call a sweep complete that has errors."""
        from txnscan.verdict.evidence import Reason, Verdict

        sweep = found["sweep"]
        endangered = sum(t["reason"] == Reason.JOINED_COMMIT for t in found["transactions"])
        unread = any(t.get("readers_error") for t in found["transactions"])
        complete = sweep["complete"] and not found["errors"] and not unread
        return cls(sweep["counts"][Verdict.HANGING.value], sweep["candidates"], endangered, complete)

    def status(self, wanted: Collection[FailOn]) -> ExitStatus:
        """The exit status. Hanging outranks incomplete, because it needs action."""
        proven = FailOn.PROVEN in wanted and self.hanging + self.endangered
        if proven or (FailOn.HANGING in wanted and self.late + self.endangered):
            return ExitStatus.HANGING
        return ExitStatus.INCOMPLETE if FailOn.INCOMPLETE in wanted and not self.complete else ExitStatus.DONE

    def sentence(self) -> str | None:
        """The exit status that each value gives alone. None if all give 0."""
        status = {one: self.status([one]) for one in FailOn}
        if not any(status.values()):
            return None
        danger = f", {plural(self.endangered, 'commit')} in danger" if self.endangered else ""
        why = {
            FailOn.PROVEN: f"{self.hanging:,} hanging{danger}",
            FailOn.HANGING: f"{self.late:,} of them late{danger}",
            FailOn.INCOMPLETE: "all observed" if self.complete else "not all observed",
        }
        said = (f"{status[one].value} with --fail-on {one} ({why[one]})" for one in FailOn)
        return f"Exit status: {', '.join(said)}."
