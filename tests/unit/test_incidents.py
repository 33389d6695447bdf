"""Folding sweeps into incidents, in any order."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import NOW_MS
from tests.cases import Cases
from txnscan.coordinators.agreed_metadata import TOPIC_DELETED, TOPIC_RECREATED
from txnscan.tables.incidents import Row, folded

START = datetime.fromtimestamp(NOW_MS / 1000, UTC)


def hanging(sweep: str, epoch: int, mark: int | None, at_s: int = 0, history: int = 0, topic_id: str = "t0") -> Row:
    """The row of a sweep that saw it hanging."""
    at = START + timedelta(seconds=at_s)
    return {
        "incident_id": "i",
        "topic_id": topic_id,
        "sweep_date": at.date(),
        "first_seen_at": at - timedelta(seconds=60),
        "last_seen_at": at,
        "last_sweep_id": sweep,
        "sweeps": 1,
        "is_open": True,
        "resolved_at": None,
        "resolved_how": None,
        "leader_epoch": epoch,
        "high_watermark": mark,
        "history": history,
    }


def end(epoch: int, mark: int | None, at_s: int = 0, how: str = "ended", history: int = 0) -> Row:
    """The row of a sweep that proved its end."""
    return {
        "incident_id": "i",
        "resolved_at": START + timedelta(seconds=at_s),
        "resolved_how": how,
        "leader_epoch": epoch,
        "high_watermark": mark,
        "history": history,
    }


def incident(rows: Iterable[Row]) -> Row | None:
    """The incident of these sweeps, folded in order."""
    return reduce(folded, rows, None)


# Name, the sweeps in folding order, and the incident's resolution and number of sweeps.
TABLE: tuple[tuple[str, list[Row], tuple[str | None, int] | None], ...] = (
    ("nothing was seen", [], None),
    ("it hangs", [hanging("a", 5, 105)], (None, 1)),
    ("an end without an incident", [end(5, 106)], None),
    ("it hangs on", [hanging("a", 5, 105), hanging("b", 5, 105), hanging("c", 5, 110)], (None, 3)),
    ("a sweep that is folded again", [hanging("a", 5, 105), hanging("a", 5, 105)], (None, 1)),
    ("it ended", [hanging("a", 5, 105), end(5, 106)], ("ended", 1)),
    ("its end is folded again", [hanging("a", 5, 105), end(5, 106), end(5, 106)], ("ended", 1)),
    ("its sighting is folded again after its end", [hanging("a", 5, 105), end(5, 106), hanging("a", 5, 105)],
     ("ended", 1)),
    ("a live transaction endangers its commit", [hanging("a", 5, 105), {**hanging("b", 5, 107), "sweeps": 0}],
     (None, 1)),
    ("its commit was torn", [{**hanging("a", 5, 105), "sweeps": 0}, end(5, 106, how="torn")], ("torn", 0)),
    ("apply ended it", [hanging("a", 5, 105), end(5, 106, how="abort_marker")], ("abort_marker", 1)),
    ("a sweep that was slow to write saw it before its end", [hanging("a", 5, 105), end(5, 110), hanging("b", 5, 107)],
     ("ended", 1)),
    ("one that was slow to write is folded twice", [hanging("a", 5, 109), hanging("b", 5, 107), hanging("b", 5, 107)],
     (None, 1)),
    ("an end that was slow to be written, from before it was seen", [hanging("a", 5, 105), end(5, 100)], (None, 1)),
    ("an end at an earlier leader epoch, which has lost its tail", [hanging("a", 6, 90), end(5, 106)], (None, 1)),
    ("it hangs again at a later leader epoch", [hanging("a", 5, 105), end(5, 106), hanging("b", 6, 105)], (None, 2)),
    ("an end where the partition was as it was seen", [hanging("a", 5, 105, 9), end(5, 105, 0)], ("ended", 1)),
    ("a sighting where the partition was as at its end",
     [hanging("a", 5, 105, 0), end(5, 105, 0), hanging("b", 5, 105, 9)], ("ended", 1)),
    ("clocks jump back at its end", [hanging("a", 5, 105, 500), end(5, 106, 0)], ("ended", 1)),
    ("clocks jump back and it hangs on", [hanging("a", 5, 105, 500), end(5, 106, 500), hanging("b", 5, 107, 0)],
     (None, 2)),
    ("its high watermark was not known", [hanging("a", 5, None), hanging("b", 5, 100), hanging("c", 5, None)],
     (None, 2)),
    ("it was not known, and a partition without a record is later", [hanging("a", 5, 0), hanging("b", 5, None)],
     (None, 1)),
    ("nor that of its end", [hanging("a", 5, None), end(5, None)], ("ended", 1)),
    ("a topic that was made anew begins at leader epoch 0", [hanging("a", 5, 105), end(0, 0, how=TOPIC_RECREATED)],
     (TOPIC_RECREATED, 1)),
    ("a topic that was deleted has no leader epoch", [hanging("a", 5, 105), end(-1, None, how=TOPIC_DELETED)],
     (TOPIC_DELETED, 1)),
    ("and the old topic does not come back",
     [hanging("a", 5, 105), end(0, 0, how=TOPIC_RECREATED), hanging("b", 6, 120)], (TOPIC_RECREATED, 1)),
    ("the id of the topic was not known: the next topic may have an incident of the same id",
     [hanging("a", 5, 105, topic_id=""), end(0, 0, how=TOPIC_RECREATED), hanging("b", 0, 5, topic_id="")], (None, 1)),
    ("the id of the topic is not known, and it hangs on",
     [hanging("a", 5, 105, topic_id=""), hanging("b", 5, 105, topic_id="")], (None, 2)),
    ("the id of the topic is not known, and it hangs again at a later leader epoch",
     [hanging("a", 5, 105, topic_id=""), end(5, 106), hanging("b", 6, 105, topic_id="")], (None, 2)),
    ("the id was not known, and the last sweep is folded again",
     [hanging("a", 5, 105, topic_id=""), end(0, 0, how=TOPIC_RECREATED), hanging("a", 5, 105, topic_id="")],
     (TOPIC_RECREATED, 1)),
    ("the cluster was restored: it hangs again, at the same leader epoch and a lower high watermark",
     [hanging("a", 5, 105), end(5, 106), hanging("b", 5, 105, history=1)], (None, 1)),
    ("it hangs on in the restored cluster, and is counted anew",
     [hanging("a", 5, 105), hanging("b", 5, 105), hanging("c", 3, 105, history=1)], (None, 1)),
    ("its topic was created again, and the restored cluster has the old topic",
     [hanging("a", 5, 105), end(0, 0, how=TOPIC_RECREATED), hanging("b", 2, 105, history=1)], (None, 1)),
    ("it is not in the restored cluster", [hanging("a", 5, 105), end(2, 90, history=1)], ("ended", 1)),
    ("a slow sweep of the earlier history saw its end",
     [hanging("a", 5, 105), hanging("b", 3, 105, history=1), end(5, 106)], (None, 1)),
    ("a slow sweep of the earlier history saw it hang",
     [hanging("a", 5, 105), end(2, 90, history=1), hanging("b", 5, 107)], ("ended", 1)),
)  # fmt: skip


def test_an_incident_is_opened_counted_closed_and_reopened() -> None:
    with Cases() as cases:
        for name, rows, expected in TABLE:
            with cases.case(name):
                found = incident(rows)
                assert (None if found is None else (found["resolved_how"], found["sweeps"])) == expected


def test_an_incident_shows_the_latest_sweep_of_its_partition() -> None:
    early, late = hanging("a", 5, 105, 500), hanging("b", 5, 107, 0)
    for rows in ([early, late], [late, early]):
        found = incident(rows)
        assert found is not None
        assert (found["last_sweep_id"], found["high_watermark"]) == ("b", 107)
        assert (found["first_seen_at"], found["last_seen_at"]) == (late["first_seen_at"], early["last_seen_at"])


def test_an_incident_has_the_date_of_its_first_sweep() -> None:
    first, second = hanging("a", 5, 105), hanging("b", 5, 107, at_s=2 * 86_400)
    assert first["sweep_date"] < second["sweep_date"]
    for rows in ([first, second], [second, first]):
        found = incident(rows)
        assert found is not None
        assert found["sweep_date"] == first["sweep_date"]


# --- every order of the sweeps of a history ---------------------------------------------------------------------------


@st.composite
def sweeps(draw: st.DrawFn) -> list[Row]:
    """Rows of sweeps about one transaction, in the order of the partition.

    At each leader epoch the transaction hangs until it ends, if it does. An unclean leader may have lost that end: then
    it hangs again at the next epoch. A recreated topic ends it for good. Clocks may be wrong.
    """
    clock = st.integers(-1_000, 1_000)
    rows: list[Row] = []
    mark = 101
    for epoch in range(5, 5 + draw(st.integers(1, 3))):
        mark = draw(st.integers(101, mark))
        for over in (False, True):
            for _ in range(draw(st.integers(0, 3))):
                mark += draw(st.integers(0, 2))
                if over:
                    rows.append(end(epoch, mark, draw(clock), draw(st.sampled_from(["ended", "abort_marker"]))))
                else:
                    rows.append(hanging(f"sweep-{len(rows)}", epoch, mark, draw(clock)))
    if draw(st.booleans()):
        rows.append(end(draw(st.integers(0, 1)), 0, draw(clock), TOPIC_RECREATED))
    return rows


def is_end(row: Row) -> bool:
    return row["resolved_how"] is not None


def facts(found: Row) -> dict[str, Any]:
    """The fields that do not depend on the order."""
    names = ("first_seen_at", "last_seen_at", "sweep_date", "resolved_how", "leader_epoch", "high_watermark")
    return {name: found[name] for name in names}


@given(rows=sweeps(), data=st.data())
def test_any_order_and_a_repeated_last_sweep_give_the_same_incident(rows: list[Row], data: st.DataObject) -> None:
    """An end folded before any sighting is lost, so each order begins with a sighting here; see below."""

    def sighting_first(order: list[Row]) -> list[Row]:
        first = next(row for row in order if not is_end(row))
        return sorted(order, key=lambda row: row is not first)

    if all(map(is_end, rows)):
        assert incident(rows) is None
        return
    order = sighting_first(data.draw(st.permutations(rows)))
    found, again, expected = incident(order), incident([*order, order[-1]]), incident(sighting_first(rows))
    assert found is not None and expected is not None
    assert facts(found) == facts(expected)
    assert found["is_open"] == (found["resolved_how"] is None)
    assert again == found


@given(rows=sweeps(), data=st.data())
def test_missing_sweeps_never_add_a_claim(rows: list[Row], data: st.DataObject) -> None:
    """In any order. An end before the first sighting is lost: it counts as missing, a later sighting opens the
    incident, and only a later sweep closes it.
    """
    order = [row for row in data.draw(st.permutations(rows)) if data.draw(st.booleans())]
    found = incident(order)
    sightings = [row for row in order if not is_end(row)]
    if not sightings:
        assert found is None
        return
    assert found is not None
    counted = order[order.index(sightings[0]) :]
    seen_last = max(counted, key=rows.index)
    assert (found["resolved_how"] is not None) == is_end(seen_last)
    if is_end(seen_last):
        ends = [(row["resolved_how"], row["resolved_at"]) for row in counted if is_end(row)]
        assert (found["resolved_how"], found["resolved_at"]) in ends
    assert found["first_seen_at"] == min(row["first_seen_at"] for row in sightings)
    assert found["last_seen_at"] == max(row["last_seen_at"] for row in sightings)
    assert 1 <= found["sweeps"] <= len(sightings)


def test_a_lost_end_is_restored_by_the_next_sweep() -> None:
    """It was folded before any sighting. The incident is open until another sweep proves the end."""
    lost = [end(5, 106), hanging("a", 5, 105)]
    found = incident(lost)
    assert found is not None and found["resolved_how"] is None
    found = incident([*lost, end(5, 107)])
    assert found is not None and found["resolved_how"] == "ended"


@given(rows=sweeps(), later=sweeps(), data=st.data())
def test_an_earlier_history_of_the_cluster_shows_nothing(
    rows: list[Row], later: list[Row], data: st.DataObject
) -> None:
    """Without the rule, the end of the earlier history would count, or its age, if its positions are higher."""
    later = [row | {"history": 1, "last_sweep_id": f"later {number}"} for number, row in enumerate(later)]
    in_order = data.draw(st.permutations([*rows, *later]))
    of_later = [row for row in in_order if row["history"]]
    if not of_later or is_end(of_later[0]) or not rows:
        return
    found, expected = incident(in_order), incident(of_later)
    assert found is not None and expected is not None
    assert facts(found) | {"sweeps": found["sweeps"]} == facts(expected) | {"sweeps": expected["sweeps"]}
