"""State kept between the sweeps of a watch: ages, incidents, and their news."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.builders import MINUTE_MS, NOW_MS, failed, judged, scan, unobserved, view
from tests.tables.stored import COMMIT, SEEN_COMMIT, read_for, reads_of, swept
from txnscan.sweeps.history import Incident, Sighting
from txnscan.sweeps.news import Change, News
from txnscan.sweeps.restored import LogPosition, Past
from txnscan.sweeps.result import Scan
from txnscan.sweeps.row import incident_id as stored_id
from txnscan.txnlog.facts import LogRead, ProducerFacts
from txnscan.verdict.evidence import Judged
from txnscan.waiting.complete_up_to import TopicRead
from txnscan.watch import incident_tracker as module
from txnscan.watch.incident_tracker import IncidentTracker, TrackedHistory, remember, together

STALE = view("Empty", epoch=9)
LATE = judged(STALE)
# Hanging, first seen by this sweep.
EARLY = judged(STALE, first_seen_ms=NOW_MS, last_timestamp_ms=NOW_MS)
GONE = judged(STALE, second_start_offset=None, second_producer_epoch=None)
UNPROVEN = judged(STALE, second_failure=failed("broker 1 cannot be reached"))
WHERE = LATE.observation.transaction_key


def told(*sweeps: Scan, memory: IncidentTracker | None = None) -> list[News]:
    """The news of these sweeps, in order."""
    found: list[News] = []
    remembered = memory or IncidentTracker()
    for sweep in sweeps:
        remembered, news, _ = remember(remembered, "c", sweep)
        found += news
    return found


def kinds(*sweeps: Scan) -> list[str]:
    return [one.kind.value for one in told(*sweeps)]


@pytest.mark.parametrize(
    ("sweeps", "expected"),
    [
        ([scan(LATE)], ["opened"]),
        ([scan(LATE), scan(LATE), scan(LATE)], ["opened"]),
        # Hanging and not late is an early warning, and no candidate.
        ([scan(EARLY)], []),
        ([scan(EARLY), scan(EARLY), scan(LATE)], ["opened"]),
        ([scan(EARLY), scan()], []),
        ([scan(LATE), scan()], ["opened", "closed"]),
        ([scan(LATE), scan(GONE)], ["opened", "closed"]),
        ([scan(LATE), scan(), scan()], ["opened", "closed"]),
        # It hangs again after a proven end.
        ([scan(LATE), scan(), scan(LATE)], ["opened", "closed", "opened"]),
        # Absence of evidence closes no incident.
        ([scan(LATE), scan(proven={})], ["opened"]),
        ([scan(LATE), scan(proven={("p", 1): "t0"})], ["opened"]),
        ([scan(LATE), scan(UNPROVEN)], ["opened"]),
        ([scan(LATE), scan(proven={}), scan(LATE)], ["opened"]),
        ([scan(LATE), scan(proven={}), scan()], ["opened", "closed"]),
        # A notified opening is followed by a notified end, whatever its age in a later sweep.
        ([scan(LATE), scan(EARLY), scan()], ["opened", "closed"]),
    ],
)
def test_each_opening_and_each_closing_is_news_once(sweeps: list[Scan], expected: list[str]) -> None:
    assert kinds(*sweeps) == expected


def test_news_of_an_opening_has_the_details_of_the_sweep() -> None:
    (opened,) = told(scan(LATE))
    assert (opened.cluster, opened.cluster_id, opened.where, opened.at_ms) == ("c", "cluster-1", WHERE, NOW_MS + 500)
    assert [opened.row[name] for name in ("reason", "transactional_id", "blocked_records")] == ["stale_epoch", "X", 5]


@pytest.mark.parametrize(
    ("changes", "how"),
    [
        ({"proven": {("p", 0): "t0"}}, "ended"),
        ({"proven": {("p", 0): "t1"}}, "topic_recreated"),
        ({"proven": {}, "topics_gone": {("p", "t0"): "topic_deleted"}}, "topic_deleted"),
        ({"proven": {}, "topics_gone": {("p", "t0"): "topic_recreated"}}, "topic_recreated"),
    ],
)
def test_a_closing_has_its_reason(changes: dict[str, Any], how: str) -> None:
    _, closed = told(scan(LATE), scan(**changes))
    assert (closed.kind, closed.how, closed.row) == (Change.CLOSED, how, told(scan(LATE))[0].row)


def test_an_incident_has_the_same_id_as_in_the_tables() -> None:
    assert WHERE.incident_id("cluster-1") == stored_id("cluster-1", LATE)


def test_the_next_sweep_gets_ages_and_incidents_of_its_cluster_only() -> None:
    memory, *_ = remember(IncidentTracker(), "c", scan(EARLY, judged(partition=1)))
    history = TrackedHistory(memory)
    assert history.last_seen("cluster-1")()[WHERE] == Sighting(NOW_MS, 3)
    assert history.unresolved("cluster-1")()[WHERE] == Incident(NOW_MS, None, 3, 4, 105, 0, 5)
    assert history.last_seen("another")() == {}
    assert history.unresolved("another")() == {}


def read_by(number: int, producer_id: int = 7, read: LogRead = COMMIT) -> Scan:
    """A sweep with a hanging transaction of this producer id, and with this read of the log."""
    one = judged(STALE, producer_id=producer_id, partition=producer_id % 2)
    return swept(one, sweep_id=f"sweep-{number}", **read_for(one, read))


def facts(memory: IncidentTracker, cluster_id: str = "cluster-1", producer_id: int = 7) -> list[LogRead]:
    known_of = TrackedHistory(memory).facts(cluster_id, {producer_id})()
    return list(known_of.get(producer_id, ProducerFacts()).reads)


def test_log_reads_are_kept_while_their_producer_id_hangs() -> None:
    first, second = read_by(1), read_by(2, read=replace(COMMIT, leader_epoch=3))
    memory, *_ = remember(IncidentTracker(), "c", first)
    memory, *_ = remember(memory, "c", second)
    assert facts(memory) == reads_of(first, second)
    assert facts(memory, "another") == facts(memory, producer_id=8) == []
    memory, *_ = remember(memory, "c", scan(proven={}))
    assert facts(memory) == reads_of(first, second), "a sweep that read nothing forgets nothing"
    memory, *_ = remember(memory, "c", read_by(3, producer_id=8))
    assert facts(memory) == [] != facts(memory, producer_id=8), "it is over"
    memory, *_ = remember(memory, "c", scan(cluster_id="cluster-2"))
    assert facts(memory, producer_id=8) == facts(memory, "cluster-2", 8) == []


def test_a_seen_commit_is_kept_once_although_later_sweeps_lack_it() -> None:
    """As long as a transaction of its producer id hangs."""
    saw = scan(LATE, **read_for(LATE, commits=[SEEN_COMMIT]))
    memory, *_ = remember(IncidentTracker(), "c", scan(LATE, **read_for(LATE)))
    assert TrackedHistory(memory).facts("cluster-1", {7})()[7].commits == ()
    for sweep in (saw, scan(LATE, **read_for(LATE)), scan(LATE), saw, scan(proven={})):
        memory, *_ = remember(memory, "c", sweep)
        assert TrackedHistory(memory).facts("cluster-1", {7})()[7].commits == (SEEN_COMMIT,)
    memory, *_ = remember(memory, "c", scan())
    assert TrackedHistory(memory).facts("cluster-1", {7})() == {}


@pytest.mark.parametrize(
    ("second", "kept"),
    [
        (scan(), False),
        (scan(errors=(unobserved("read", "broker 1 cannot be reached", 1, "p", 0),)), True),
        (scan(errors=(unobserved("read", "broker 1 cannot be reached", 1, "p", 1),)), False),
    ],
    ids=["it is gone", "its partition was not read", "another partition was not read"],
)
def test_an_age_is_kept_only_if_a_sweep_could_not_read_its_partition(second: Scan, kept: bool) -> None:
    memory, *_ = remember(IncidentTracker(), "c", scan(EARLY))
    memory, *_ = remember(memory, "c", second)
    assert (WHERE in memory.sightings) == kept


def test_another_cluster_at_the_same_address_starts_anew() -> None:
    memory, *_ = remember(IncidentTracker(), "c", scan(LATE))
    memory, news, _ = remember(memory, "c", scan(cluster_id="cluster-2"))
    assert (memory.cluster_id, dict(memory.incidents), news) == ("cluster-2", {}, ())


def test_an_incident_of_an_earlier_process_is_closed_or_opened_again() -> None:
    left = {WHERE: Incident(NOW_MS - 90 * MINUTE_MS)}
    memory, news, _ = remember(IncidentTracker(), "c", scan(), left)
    assert [(one.kind, one.first_seen_ms) for one in news] == [(Change.CLOSED, NOW_MS - 90 * MINUTE_MS)]
    memory, news, _ = remember(IncidentTracker(), "c", scan(LATE), left)
    assert [(one.kind, one.first_seen_ms) for one in news] == [(Change.OPENED, NOW_MS - 90 * MINUTE_MS)]
    _, news, _ = remember(memory, "c", scan())
    assert [one.kind for one in news] == [Change.CLOSED]


def test_merged_histories_keep_the_earlier_time() -> None:
    one = {WHERE: Incident(5)}
    other = {WHERE: Incident(3), WHERE._replace(partition=1): Incident(9)}
    for two in (together(one, other), together(other, one)):
        assert two[WHERE] == Incident(3)
        assert set(two) == set(other)
    assert together(one, {WHERE: Incident(7)}) == one


def many(count: int, **changes: Any) -> list[Judged]:
    return [judged(STALE, topic=f"t{n}", first_seen_ms=NOW_MS - 60 * MINUTE_MS - n, **changes) for n in range(count)]


def test_the_memory_is_bounded_and_keeps_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INCIDENTS_MAX", 3)
    monkeypatch.setattr(module, "SIGHTINGS_MAX", 2)
    memory, *_ = remember(IncidentTracker(), "c", scan(*many(10)))
    assert sorted(which.topic for which in memory.incidents) == ["t7", "t8", "t9"]
    assert sorted(which.topic for which in memory.sightings) == ["t8", "t9"]


def test_excess_incidents_are_notified_at_most_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INCIDENTS_MAX", 3)
    memory, counts = IncidentTracker(), []
    # The fourth is older than the others, but comes later. Finally the first three are over.
    sweeps = [
        scan(*many(3)),
        scan(*many(4)),
        scan(*many(4)),
        scan(*many(4)[3:], proven={(f"t{n}", 0): "t0" for n in range(3)}),
    ]
    for sweep in sweeps:
        memory, news, _ = remember(memory, "c", sweep)
        counts.append(([(one.kind.value, one.where.topic) for one in news], memory.unwatched))
    opened = [("opened", f"t{n}") for n in (2, 1, 0)]
    closed = [("closed", f"t{n}") for n in (0, 1, 2)]
    assert counts == [(opened, 0), ([], 1), ([], 1), ([("opened", "t3"), *closed], 0)]


def test_the_last_reads_of_topics_are_kept_for_the_same_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOPIC_READS_MAX", 2)
    memory = IncidentTracker()
    reads = [TopicRead(topic, "t0", at_ms) for at_ms in (1, 2, 3) for topic in ("t", "u")]
    for at in (0, 2, 4):
        memory = remember(memory, "c", scan(topic_reads=tuple(reads[at : at + 2]))).memory
    assert list(TrackedHistory(memory).topic_reads("cluster-1", ["t", "u"])()) == reads[2:]
    assert list(TrackedHistory(memory).topic_reads("another cluster", ["t", "u"])()) == []


def test_a_new_history_of_the_cluster_starts_everything_anew() -> None:
    """But stored commits still veto, until the user says that the earlier history is over."""
    first = replace(read_by(1), positions=(LogPosition("p", "t0", 1, 5, 105),), image_offset=9)
    memory, *_ = remember(IncidentTracker(), "c", first)
    ((which, before),) = memory.incidents.items()
    assert TrackedHistory(memory).past("cluster-1")() == Past(0, 0, 9, first.positions)
    for vetoes_from, reads in ((0, tuple(reads_of(first))), (1, ())):
        later = judged(STALE, producer_id=7, partition=1, first_seen_ms=before.first_seen_ms + 5)
        after, *_ = remember(memory, "c", swept(later, history=1, vetoes_from=vetoes_from))
        assert after.incidents[which].first_seen_ms == before.first_seen_ms + 5
        assert after.incidents[which].history == 1
        assert after.past == Past(1, vetoes_from)
        seen = after.facts.get(7, ProducerFacts())
        assert (seen.reads, seen.reads_before) == ((), reads)
