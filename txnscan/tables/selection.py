"""Which stored sweep counts: the last one of everything, of one cluster, unless another is named; and how old it is.

A sweep of some topics does not show the state of the rest, so it never silently stands for the whole cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from txnscan.config import ConfigError, printable
from txnscan.errors import ExitStatus, TxnscanError
from txnscan.kafka.units import duration
from txnscan.sweeps.column import epoch_ms

if TYPE_CHECKING:
    from txnscan.tables.tables import Tables

# A row of `sweeps`.
Sweep = Mapping[str, Any]


class Stale(TxnscanError):
    """The stored sweep is older than --max-age allows; the message is one sentence."""

    exit_status = ExitStatus.INCOMPLETE


@dataclass(frozen=True, slots=True)
class ChosenSweep:
    """A stored sweep, and notes about the choice, in sentences."""

    sweep: Sweep
    notes: tuple[str, ...] = ()


def find_sweep(tables: Tables, cluster_id: str | None = None, sweep_id: str | None = None) -> ChosenSweep:
    """The finished sweep of this id, or the sweep that counts. Raises ConfigError without such a sweep."""
    if sweep_id is None:
        return choose(tables.last_sweeps(cluster_id), cluster_id)
    # Without any tables, this raises another error than with only this sweep missing.
    found = tables.sweep(sweep_id)
    if found is None:
        raise ConfigError("--sweep-id", f"no finished sweep '{printable(sweep_id)}' is in the tables")
    if cluster_id is not None and found["cluster_id"] != cluster_id:
        said = f"sweep {printable(sweep_id)} is of cluster {printable(found['cluster_id'])}"
        raise ConfigError("--cluster-id", f"{said}, not of {printable(cluster_id)}")
    return ChosenSweep(found)


def choose(sweeps: Sequence[Sweep], cluster_id: str | None = None) -> ChosenSweep:
    """The last full sweep of the cluster that was swept last. Without full sweeps, the last sweep. Pure. Raises
    ConfigError without sweeps.
    """
    if not sweeps:
        of = "" if cluster_id is None else f" of cluster {printable(cluster_id)}"
        raise ConfigError(
            "--tables" if cluster_id is None else "--cluster-id", f"no finished sweep{of} is in the tables"
        )
    in_order = sorted(sweeps, key=lambda sweep: (sweep["started_at"], sweep["sweep_id"]))
    latest = next((sweep for sweep in reversed(in_order) if is_full(sweep)), in_order[-1])
    same = [sweep for sweep in in_order if sweep["cluster_id"] == latest["cluster_id"]]
    others = sorted({sweep["cluster_id"] for sweep in sweeps} - {latest["cluster_id"]})
    notes = []
    if not is_full(latest):
        notes.append(f"no sweep of everything is stored; this one is of {printable(latest['scope'])} alone")
    elif same[-1] is not latest:
        later = same[-1]
        notes.append(
            f"a later sweep of {printable(later['scope'])} alone is stored; --sweep-id {printable(later['sweep_id'])} "
            "chooses it"
        )
    if others:
        names = ", ".join(map(printable, others))
        notes.append(f"the tables hold sweeps of other clusters too ({names}); --cluster-id chooses one")
    return ChosenSweep(latest, tuple(notes))


def is_full(sweep: Sweep) -> bool:
    """Whether the scope was everything."""
    return bool(sweep["scope"] == "all")


def began_ms(sweep: Sweep) -> int:
    """When the sweep began, in epoch milliseconds: its age is counted from then."""
    return epoch_ms(sweep["started_at"])


def stale(sweep: Sweep, max_age_ms: int | None, now_ms: int) -> str | None:
    """Why the sweep is too old, in one sentence, if it is."""
    age_ms = now_ms - began_ms(sweep)
    if max_age_ms is None or age_ms <= max_age_ms:
        return None
    return (
        f"--max-age: sweep {printable(sweep['sweep_id'])} began {duration(age_ms)} ago, and at most "
        f"{duration(max_age_ms)} is allowed; sweep again, or see why sweeps have stopped"
    )
