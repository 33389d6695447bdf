"""What a sweep at rest says of each transaction that hangs: a table of classes, without an exception for any world.

`history.overlooked` is stricter, but leaves out the worlds in which a sweep promises no complete report. Here each
transaction of each world has a class, and SILENT is the one that must stay empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum

from tests.sim.history import Simulation, something_open, sweep
from tests.sim.records import still_open, without_beginning
from tests.sim.truth import hanging, open_in, settled
from tests.sim.world import World
from txnscan.kafka.topology import Key
from txnscan.sweeps.result import Scan
from txnscan.verdict.evidence import Judged, Verdict


class Said(StrEnum):
    """What the report says of a transaction that hangs while the cluster is at rest."""

    ACCUSED = "hanging"
    DOUBTED = "indeterminate, with its reason"
    OWED = "pending_marker: its coordinator stays in Prepare*, and the partition refuses the marker"
    CLAIMED = "ongoing, by a coordinator that stays in Prepare* with this partition"
    UNREAD = "no row, but an error of the sweep names its partition"
    DELETED = "no row: no record of it is left, and so no replica shows it open"
    SILENT = "nothing that is true of it"


def said_at_rest(end: World) -> Iterator[tuple[Said, str]]:
    """The class of each transaction that hangs in this world, with the verdict and reason of its row, or ""."""
    if not something_open(end):
        return
    calm = settled(end)
    left = sorted({(key, producer_id) for key, producer_id, _ in hanging(calm)})
    if not left:
        return
    found = sweep(Simulation(calm))
    rows = {(one.observation.key, one.observation.producer_id): one for one in found.transactions}
    for which in left:
        row = rows.get(which)
        name = "" if row is None else f"{row.judgement.verdict}/{row.judgement.reason}"
        yield _said(found, row, *which, calm), name


def counted(ends: Iterator[World]) -> Counter[tuple[Said, str]]:
    """How often each class and each verdict occurs in these worlds."""
    return Counter(one for end in ends for one in said_at_rest(end))


def _said(found: Scan, row: Judged | None, key: Key, producer_id: int, calm: World) -> Said:
    if row is None:
        if any((error.topic, error.partition) == key for error in found.errors):
            return Said.UNREAD
        return Said.DELETED if _is_deleted(calm, key, producer_id) else Said.SILENT
    if row.observation.start_offset != open_in(calm, key).get(producer_id):
        return Said.SILENT
    verdict = row.judgement.verdict
    if verdict is Verdict.HANGING:
        return Said.ACCUSED
    if verdict is Verdict.INDETERMINATE:
        return Said.DOUBTED
    stays = any(
        held.metadata.state.startswith("Prepare") and held.metadata.producer_id == producer_id
        for held in calm.held.values()
    )
    if verdict is Verdict.PENDING_MARKER and stays:
        return Said.OWED
    if verdict in (Verdict.ONGOING, Verdict.LATE_ONGOING) and stays:
        return Said.CLAIMED
    return Said.SILENT


def _is_deleted(world: World, key: Key, producer_id: int) -> bool:
    """Whether the records that are left on the leader show nothing open of this producer."""
    leader = world.leadership(world.image, key).leader
    readable = without_beginning(world.logs[key, leader], world.log_starts[key, leader])
    return producer_id not in still_open(readable) and producer_id not in open_in(world, key)
