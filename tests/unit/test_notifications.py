"""Notifications of incidents: their shapes, their order, and a sweep that never waits for them."""

from __future__ import annotations

import json
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import MINUTE_MS, NOW_MS
from tests.cases import Cases
from tests.fakes.http import SECRET, Hook
from tests.process import ROOT, run_python
from txnscan.config import ConfigError
from txnscan.demo.wait import wait_until
from txnscan.reads.observation import TransactionKey
from txnscan.report.notifications import SHAPES, Shape, bodies, event_fields, event_sentence, fields, sentence, template
from txnscan.sweeps.news import NEWS_COLUMNS, Announced, Change, EventNews, News, events_of
from txnscan.watch import notifier as module
from txnscan.watch.clusters import ClustersError, make_target, read_clusters
from txnscan.watch.notifier import Notifier, NotSent, Target, parse_url, post_json
from txnscan.watch.through_apprise import send_through_apprise

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

WHERE = TransactionKey("orders", "t0", 3, 7, 100)
ROW = {column.name: None for column in NEWS_COLUMNS} | {
    "producer_epoch": 3,
    "reason": "orphan",
    "outcome": "unknown",
    "blocked_records": 5,
    "explanation": "No transactional id has producer id 7.",
}
OPENED = News(Change.OPENED, "prod", "cluster-1", "0f3a", WHERE, NOW_MS - 60 * MINUTE_MS, NOW_MS, ROW, None)
CLOSED = replace(OPENED, kind=Change.CLOSED, at_ms=NOW_MS + MINUTE_MS, how="ended")


IN_DANGER = replace(OPENED, row=ROW | {"reason": "joined_commit"})


def event(*news: News, open_incidents: int | None = None, **changes: Any) -> EventNews:
    """An event of these incidents alone."""
    opened = tuple(one for one in news if one.kind is Change.OPENED)
    closed = tuple(one for one in news if one.kind is Change.CLOSED)
    still = len(opened) if open_incidents is None else open_incidents
    kind = Change.UPDATED if still > len(opened) else Change.OPENED if still else Change.CLOSED
    one = news[0]
    made = EventNews(
        kind, one.cluster, one.cluster_id, one.incident_id, one.first_seen_ms, one.at_ms, still, opened, closed
    )
    return replace(made, **changes)


def shaped(name: str, *events: EventNews, key: str | None = "key") -> list[Any]:
    return [json.loads(body) for body in bodies(SHAPES[name], events, key)]


def partitions(count: int, *topics: str) -> list[News]:
    """Incidents of this number of partitions of each topic."""
    found = []
    for topic in topics:
        for partition in range(count):
            where = WHERE._replace(topic=topic, partition=partition)
            found.append(replace(OPENED, where=where, incident_id=f"{topic}-{partition}"))
    return found


def test_a_sentence_names_the_transaction_the_partition_and_the_records(wording: SnapshotAssertion) -> None:
    assert sentence(OPENED) == wording
    assert sentence(CLOSED) == wording
    with_groups = replace(OPENED, row=ROW | {"groups_blocked": 1, "blocked_records": 1_200})
    assert sentence(with_groups) == wording
    assert "is late; producer" in sentence(replace(OPENED, row=ROW | {"blocked_records": None}))
    assert "created again" in sentence(replace(CLOSED, how="topic_recreated"))
    assert sentence(IN_DANGER) == wording
    assert sentence(replace(CLOSED, how="torn")) == wording
    assert sentence(replace(CLOSED, how="completed")) == wording


def test_a_notification_of_an_earlier_process_has_only_known_fields() -> None:
    unknown = replace(CLOSED, row={})
    assert "None" not in sentence(unknown)
    for name in SHAPES:
        assert "None" not in json.dumps(shaped(name, event(unknown)))


def test_an_event_of_one_incident_has_the_sentence_of_the_incident() -> None:
    assert event_sentence(event(OPENED)) == sentence(OPENED)
    assert event_sentence(event(CLOSED)) == sentence(CLOSED)


def test_a_sentence_about_an_event_counts_opened_and_closed_incidents(wording: SnapshotAssertion) -> None:
    caused = [replace(one, row=ROW | {"cause": "marker_missing"}) for one in partitions(25, "a", "b")]
    over = [replace(one, kind=Change.CLOSED, how="ended") for one in caused]
    assert [
        event_sentence(event(*caused)),
        event_sentence(event(*caused[:3], open_incidents=53)),
        event_sentence(event(*over[:3], open_incidents=47)),
        event_sentence(event(*over)),
        event_sentence(event(CLOSED, closed=(), merged_into="ab" * 16)),
        event_sentence(event(*caused[:2], IN_DANGER)),
    ] == wording


def test_an_outage_of_50_partitions_is_one_message_in_every_shape() -> None:
    outage = event(*partitions(10, "a", "b", "c", "d", "e"))
    assert {name: len(shaped(name, outage)) for name in SHAPES} == dict.fromkeys(SHAPES, 1)
    (message,) = shaped("slack", outage)
    assert len(message["text"].splitlines()) == 1 and "50 late transactions" in message["text"]


def test_slack_gets_one_message_for_a_batch() -> None:
    (message,) = shaped("slack", event(OPENED), event(CLOSED))
    assert message["text"].splitlines()[0] == f"🔴 {sentence(OPENED)}"
    assert len(message["text"].splitlines()) == 2
    (long,) = shaped("slack", *[event(OPENED)] * 50)
    assert long["text"].splitlines()[-1] == "and 30 more"


def test_slack_markup_in_names_is_escaped() -> None:
    (message,) = shaped("slack", event(replace(OPENED, cluster="<!channel> & co")))
    assert "&lt;!channel&gt; &amp; co" in message["text"]


def test_pagerduty_events_of_one_incident_share_a_dedup_key() -> None:
    updated = event(replace(OPENED, incident_id="0f3a"), open_incidents=9)
    opened, more, closed = shaped("pagerduty", event(OPENED), updated, event(CLOSED))
    assert [one["event_action"] for one in (opened, more, closed)] == ["trigger", "trigger", "resolve"]
    assert {one["dedup_key"] for one in (opened, more, closed)} == {"0f3a"}
    assert opened["routing_key"] == "key"
    assert set(opened["payload"]) >= {"summary", "source", "severity"}, "what the API demands"
    assert opened["payload"]["severity"] in ("critical", "error", "warning", "info")


@pytest.mark.parametrize(
    ("found", "component"),
    [
        (event(OPENED), "orders-3"),
        (event(*partitions(2, "a")), "a"),
        (event(*partitions(2, "a", "b")), None),
        (event(OPENED, open_incidents=4), "orders"),
    ],
    ids=["a partition", "a topic", "several topics", "one of several partitions"],
)
def test_the_component_of_an_event_is_its_common_partition_or_topic(found: EventNews, component: str | None) -> None:
    (body,) = shaped("pagerduty", found)
    assert body["payload"]["component"] == component


def test_alertmanager_gets_equal_labels_for_both_and_an_end() -> None:
    """Without an end it resolves the alert after five minutes."""
    ((opened, closed),) = shaped("alertmanager", event(OPENED), event(CLOSED))
    assert opened["labels"] == closed["labels"]
    assert closed["endsAt"] == "2023-11-14T22:14:20.000Z"
    assert opened["endsAt"].startswith("2024-11-13") and opened["startsAt"] < opened["endsAt"]


def test_the_generic_body_has_the_names_of_the_tables() -> None:
    ((body,),) = [one["events"] for one in shaped("json", event(OPENED))]
    assert body == event_fields(event(OPENED))
    assert body["incidents"] == [fields(OPENED)]
    row = ROW | {"groups_blocked": 2, "cause": "late_write", "owner_id": "orders-service"}
    named = fields(replace(OPENED, row=row))
    assert (named["groups_blocked"], named["cause"], named["owner"]) == (2, "late_write", "orders-service")
    unknown = fields(replace(OPENED, row=ROW | {"groups_error": "why"}))
    assert "(why)" in unknown["summary"]
    assert (unknown["groups_blocked"], unknown["groups_error"]) == (None, "why")
    assert {"event", "topic", "partition", "producer_id", "reason", "incident_id", "first_seen_at"} <= set(
        fields(OPENED)
    )
    many = event_fields(event(*partitions(150, "a")))
    assert (len(many["incidents"]), many["opened_incidents"], many["open_incidents"]) == (100, 150, 150)


class Unread(Mapping[str, Any]):
    """An empty row, which notes the columns that are read."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def test_news_has_the_columns_that_notifications_read() -> None:
    row = Unread()
    fields(replace(OPENED, row=row))
    assert row.names == {column.name for column in NEWS_COLUMNS}


def test_a_template_is_a_shape() -> None:
    shape = template('{"title": {{ events[0].summary | tojson }}, "n": {{ events | length }}}')
    made = bodies(shape, [event(OPENED), event(CLOSED)])
    assert [json.loads(body) for body in made] == [{"title": sentence(OPENED), "n": 2}]


# --- events changed by a sweep ----------------------------------------------------------------------------------------


def told(
    before: dict[str, str], after: dict[str, str], opened: str = "", closed: str = ""
) -> list[tuple[str, str, int, int, int, str | None]]:
    """By event: its id, its change, its numbers of open, opened and closed incidents, and its target event.

    before, after: the event of each incident of which notifications were sent. opened, closed: incidents. An incident
    was first seen at the place of its id in the alphabet.
    """
    news = [replace(OPENED, incident_id=one) for one in opened] + [replace(CLOSED, incident_id=one) for one in closed]
    first_seen_ms = {one: at for at, one in enumerate("abcdef")}
    announced = [
        {one: Announced(event_id, first_seen_ms[one]) for one, event_id in known.items()} for known in (before, after)
    ]
    found = events_of("prod", "cluster-1", NOW_MS, news, *announced)
    return [
        (one.event_id, one.kind.value, one.open_incidents, len(one.opened), len(one.closed), one.merged_into)
        for one in found
    ]


ONE, TWO = {"a": "a"}, {"a": "a", "b": "a"}
BOTH_OPENED = ("a", "opened", 2, 2, 0, None)
CHANGES: dict[str, tuple[dict[str, str], dict[str, str], dict[str, str], list[Any]]] = {
    "no incident": ({}, {}, {}, []),
    "two that opened at once": ({}, TWO, {"opened": "ab"}, [BOTH_OPENED]),
    "another one opened": (ONE, TWO, {"opened": "b"}, [("a", "updated", 2, 1, 0, None)]),
    "one closed, and another is open": (TWO, {"b": "a"}, {"closed": "a"}, [("a", "updated", 1, 0, 1, None)]),
    "all closed": (TWO, {}, {"closed": "ab"}, [("a", "closed", 0, 0, 2, None)]),
    "one event after another": (
        ONE,
        {"b": "b"},
        {"opened": "b", "closed": "a"},
        [("a", "closed", 0, 0, 1, None), ("b", "opened", 1, 1, 0, None)],
    ),
    "an incident takes the place of another": (
        ONE,
        {"b": "a"},
        {"opened": "b", "closed": "a"},
        [("a", "updated", 1, 1, 1, None)],
    ),
    "two events are one": (
        {"a": "a", "b": "b"},
        TWO,
        {},
        [("a", "updated", 2, 0, 0, None), ("b", "closed", 0, 0, 0, "a")],
    ),
    "nothing changed": (TWO, TWO, {}, []),
    "incidents without earlier notifications": (ONE, ONE, {"opened": "c", "closed": "d"}, []),
    "the earliest event comes first": (
        {"b": "b", "c": "b"},
        {"b": "b", "a": "a"},
        {"opened": "a", "closed": "c"},
        [("a", "opened", 1, 1, 0, None), ("b", "updated", 1, 0, 1, None)],
    ),
    "a new process notifies again": (TWO, TWO, {"opened": "ab"}, [BOTH_OPENED]),
}


@pytest.mark.parametrize(("before", "after", "changes", "expected"), CHANGES.values(), ids=CHANGES)
def test_each_changed_event_is_notified_once(
    before: dict[str, str], after: dict[str, str], changes: dict[str, str], expected: list[Any]
) -> None:
    assert told(before, after, **changes) == expected


def test_an_event_was_first_seen_with_its_earliest_incident() -> None:
    before = {"a": Announced("a", 5), "b": Announced("a", 3)}
    (found,) = events_of("prod", "cluster-1", NOW_MS, (), before, {"a": Announced("a", 5)})
    assert found.first_seen_ms == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{{ events[0].sumary }}", "no attribute 'sumary'"),
        ("{% for %}", "cannot be rendered"),
        ('{"topic": "{{ events[0].incidents[0].topic }}"}', "gives no JSON"),
        ("{{ ''.__class__.__mro__ }}", "cannot be rendered"),
    ],
    ids=["no such field", "no template", "a value that is not quoted", "what is not for a template"],
)
def test_an_unusable_template_is_refused_at_the_start(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match="--notify-template") as refused:
        template(text)
    assert says in str(refused.value)


# --- sending


def numbered() -> Shape:
    """Bodies that are the events' ids."""
    return lambda batch, _: [one.event_id for one in batch]


def ids(*names: str) -> list[EventNews]:
    return [event(OPENED, event_id=name) for name in names]


def sending(*targets: Target, post: Callable[[Target, bytes], None] | None = None) -> tuple[Notifier, list[str]]:
    said: list[str] = []
    return Notifier(targets, said.append, post, wait_s=0.0), said


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.close()


SECONDS_MAX = 60.0


def test_each_notification_is_sent_once_and_in_order(hook: Hook) -> None:
    notifier, said = sending(Target(f"{hook.url}/x", numbered()))
    notifier.tell(ids("a", "b"))
    notifier.tell(ids("c"))
    wait_until(lambda: notifier.notified()[0].ended["sent"] == 3, "three were sent")
    notifier.close(5)
    assert [body for _, _, body in hook.received] == ["a", "b", "c"]
    assert said == [] and notifier.notified()[0].waiting == 0


@pytest.mark.parametrize("status", [500, 503, 429, 408])
def test_a_temporary_failure_is_retried(hook: Hook, status: int) -> None:
    hook.answers = [status, status]
    notifier, said = sending(Target(hook.url, numbered()))
    notifier.tell(ids("a", "b"))
    wait_until(lambda: notifier.notified()[0].ended["sent"] == 2, "both were sent")
    notifier.close(5)
    assert [body for _, _, body in hook.received] == ["a", "a", "a", "b"] and said == []


@pytest.mark.parametrize("status", [400, 401, 404, 302])
def test_a_refused_notification_is_reported_and_not_sent_again(
    hook: Hook, status: int, wording: SnapshotAssertion
) -> None:
    hook.answers = [status]
    notifier, said = sending(Target(f"{hook.url}/{SECRET}?key={SECRET}", numbered()))
    notifier.tell(ids("a", "b"))
    wait_until(lambda: notifier.notified()[0].ended["sent"] == 1, "the one behind it was sent")
    notifier.close(5)
    assert [body for _, _, body in hook.received] == ["a", "b"], "nor is it sent elsewhere"
    (line,) = said
    assert SECRET not in line and str(status) in line
    assert line.replace(hook.url, "<url>") == wording


def test_credentials_of_the_url_are_sent_as_basic_authentication(hook: Hook) -> None:
    url = hook.url.replace("http://", "http://me:p%40ss@") + "/path?a=b"
    post_json(Target(url, numbered()), b"1")
    assert hook.received == [("/path?a=b", "Basic bWU6cEBzcw==", 1)]


def test_secrets_are_never_printed(hook: Hook, capfd: pytest.CaptureFixture[str]) -> None:
    url = f"http://user:{SECRET}@127.0.0.1:1/{SECRET}?token={SECRET}"
    target = Target(url, SHAPES["pagerduty"], SECRET)
    with pytest.raises(NotSent) as failed:
        post_json(target, b"1")
    failure = failed.value
    notifier, said = sending(target, post=lambda *_: (_ for _ in ()).throw(NotSent(str(failure), passing=False)))
    notifier.tell([event(OPENED)])
    wait_until(lambda: bool(said), "it was given up")
    notifier.close(5)
    shown = f"{target!r} {failure} {said} {notifier.notified()} {''.join(capfd.readouterr())}"
    assert "127.0.0.1:1" in shown and SECRET not in shown


@pytest.mark.parametrize("url", ["", "ftp://h/x", "https://", "http://h:99999/x", "hooks.example/x", "https://h/a b"])
def test_an_invalid_url_is_refused_without_being_printed(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_url(url + ("/" + SECRET if url else ""), "--notify")
    assert SECRET not in str(refused.value)


def test_an_unresponsive_target_does_not_delay_other_targets_or_the_sweep() -> None:
    gate = threading.Event()
    sent: list[bytes] = []

    def post(target: Target, body: bytes) -> None:
        if "dead" in target.url:
            gate.wait(600)
        sent.append(body)

    notifier, _ = sending(Target("http://dead:1", numbered()), Target("http://alive:1", numbered()), post=post)
    notifier.tell(ids("a", "b"))
    wait_until(lambda: sent == [b'"a"', b'"b"'], "the other target got both")
    assert [one.waiting for one in notifier.notified()] == [2, 0]
    gate.set()
    notifier.close(5)


def test_the_queue_is_bounded_and_dropped_notifications_are_counted(
    monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    monkeypatch.setattr(module, "QUEUE_MAX", 3)
    gate, under_way = threading.Event(), threading.Event()

    def post(target: Target, body: bytes) -> None:
        under_way.set()
        gate.wait(600)

    notifier, said = sending(Target("http://h:1", numbered()), post=post)
    notifier.tell(ids("a"))
    under_way.wait(600)
    notifier.tell(ids(*"bcdefg"))
    assert notifier.notified()[0].ended["dropped"] == 3
    assert said == wording
    gate.set()
    notifier.close(0)


def test_unsent_notifications_are_counted_at_the_end(wording: SnapshotAssertion) -> None:
    gate, under_way = threading.Event(), threading.Event()

    def post(target: Target, body: bytes) -> None:
        under_way.set()
        gate.wait(600)

    notifier, said = sending(Target("http://h:1", numbered()), post=post)
    notifier.tell(ids("a", "b"))
    under_way.wait(600)
    notifier.close(0)
    gate.set()
    assert said == wording


def test_an_unexpected_error_ends_one_notification_and_not_the_thread(wording: SnapshotAssertion) -> None:
    sent: list[bytes] = []

    def post(target: Target, body: bytes) -> None:
        if body == b'"a"':
            raise RuntimeError(SECRET)
        sent.append(body)

    notifier, said = sending(Target("http://h:1", numbered()), post=post)
    notifier.tell(ids("a", "b"))
    wait_until(lambda: sent == [b'"b"'], "the one behind it was sent")
    notifier.close(5)
    assert said == wording


def test_a_failing_template_does_not_affect_other_targets(hook: Hook, wording: SnapshotAssertion) -> None:
    shape = template('{"n": {{ 1 / (events[0].incidents[0].partition - 3) }} }')
    notifier, said = sending(Target("http://h:1", shape), Target(hook.url, numbered()))
    notifier.tell(ids("a"))
    wait_until(lambda: len(hook.received) == 1, "the other target was told")
    notifier.close(5)
    assert said == wording
    assert notifier.notified()[0].ended["failed"] == 1


def test_a_target_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "hook").write_text("https://hooks.example/x\n", "utf-8")
    assert make_target(f"@{tmp_path / 'hook'}", "slack", None, None).url == "https://hooks.example/x"


def test_pagerduty_without_a_key_is_refused() -> None:
    with pytest.raises(ConfigError, match="TXNSCAN_PAGERDUTY_ROUTING_KEY"):
        make_target("https://events.example/v2/enqueue", "pagerduty", None, None)


# --- through Apprise --------------------------------------------------------------------------------------------------


def through_apprise(hook: Hook, tmp_path: Path) -> Target:
    """A target whose URL, with its secrets, is in a file."""
    file = tmp_path / "apprise"
    file.write_text(f"json://me:{SECRET}@{hook.url.removeprefix('http://')}/{SECRET}\n", "utf-8")
    return make_target(f"@{file}", "apprise", None, None)


def test_apprise_delivers_one_message_for_a_batch(hook: Hook, tmp_path: Path) -> None:
    notifier, said = sending(through_apprise(hook, tmp_path))
    notifier.tell([event(CLOSED), event(OPENED)])
    notifier.tell([event(CLOSED)])
    wait_until(lambda: notifier.notified()[0].ended["sent"] == 2, "both were sent")
    notifier.close(5)
    (path, credentials, both), (_, _, closed) = hook.received
    assert path.rstrip("/") == f"/{SECRET}"
    assert credentials is not None and b64decode(credentials.removeprefix("Basic ")).decode() == f"me:{SECRET}"
    assert (both["type"], closed["type"], both["title"]) == ("failure", "success", closed["title"])
    assert both["message"].splitlines() == [sentence(CLOSED), sentence(OPENED)]
    assert closed["message"] == sentence(CLOSED) and said == []


def test_the_type_of_a_message_is_that_of_its_worst_event() -> None:
    updated = event(OPENED, open_incidents=9)
    table = (
        ((event(OPENED), updated, event(CLOSED)), "failure"),
        ((event(CLOSED), updated), "warning"),
        ((event(CLOSED),), "success"),
    )
    with Cases() as cases:
        for events, expected in table:
            with cases.case(expected):
                (message,) = shaped("apprise", *events)
                assert message["type"] == expected and len(message["body"].splitlines()) == len(events)
    (long,) = shaped("apprise", *[event(OPENED)] * 50)
    assert long["body"].splitlines()[-1] == "and 30 more"
    (named,) = shaped("apprise", event(replace(OPENED, cluster="@all [x](http://y)")))
    assert not any(mark in named["body"] for mark in ("@all", "](", "://"))


@pytest.mark.parametrize("status", [500, 401])
def test_a_failure_of_apprise_is_retried(hook: Hook, tmp_path: Path, status: int) -> None:
    hook.answers = [status]
    notifier, said = sending(through_apprise(hook, tmp_path))
    notifier.tell([event(OPENED)])
    wait_until(lambda: notifier.notified()[0].ended["sent"] == 1, "it was sent")
    notifier.close(5)
    assert len(hook.received) == 2 and said == []


def test_apprise_follows_no_redirect(hook: Hook, tmp_path: Path) -> None:
    hook.answers = [302]
    with pytest.raises(NotSent) as failed:
        send_through_apprise(through_apprise(hook, tmp_path), bodies(SHAPES["apprise"], [event(OPENED)])[0])
    assert failed.value.passing and [path.rstrip("/") for path, _, _ in hook.received] == [f"/{SECRET}"]


def test_the_url_of_apprise_is_never_printed_nor_logged(hook: Hook, tmp_path: Path) -> None:
    target = through_apprise(hook, tmp_path)
    script = f"""
import sys
from txnscan.cli.logs import LogLevel, log_to_stderr
from txnscan.report.notifications import SHAPES, bodies
from txnscan.watch.clusters import make_target
from txnscan.watch.through_apprise import send_through_apprise
log_to_stderr(LogLevel.DEBUG)
target = make_target("@{tmp_path / "apprise"}", "apprise", None, None)
print(repr(target), target.shown)
send_through_apprise(target, sys.argv[1].encode())
"""
    (body,) = bodies(SHAPES["apprise"], [event(OPENED)])
    ran = run_python("-c", script, body.decode())
    assert ran.returncode == 0, ran.stderr
    assert len(hook.received) == 1 and target.shown == "apprise json" and target.shown in ran.stdout
    assert SECRET not in ran.stdout + ran.stderr


def test_an_unusable_target_of_apprise_is_refused_without_its_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    chat = tmp_path / "chat.j2"
    chat.write_text("{}", "utf-8")
    said = {}
    for name, url, file in (
        ("an unknown scheme", f"nonsense://{SECRET}", None),
        ("several URLs", f"json://h/{SECRET}, json://h/{SECRET}\n", None),
        ("a template", f"json://h/{SECRET}", chat),
        ("no package", f"json://h/{SECRET}", None),
    ):
        if name == "no package":
            monkeypatch.setattr("txnscan.watch.through_apprise.find_spec", lambda _: None)
        with pytest.raises(ConfigError) as refused:
            make_target(url, "apprise", file, None)
        said[name] = str(refused.value)
    assert SECRET not in str(said)
    assert said == wording


def test_a_file_of_clusters_may_have_a_target_of_apprise(tmp_path: Path) -> None:
    (tmp_path / "apprise").write_text(f"json://127.0.0.1:1/{SECRET}\n", "utf-8")
    head = '[clusters.a]\nbootstrap-server = "h:1"\n[[notify]]\nas = "apprise"\n'
    (tmp_path / "right.toml").write_text(f'{head}url-file = "apprise"\n', "utf-8")
    (tmp_path / "wrong.toml").write_text(f'{head}url = "nonsense://{SECRET}"\n', "utf-8")
    (target,) = read_clusters(tmp_path / "right.toml", {}).targets
    assert (target.apprise, target.shown) == (True, "apprise json")
    with pytest.raises(ClustersError) as refused:
        read_clusters(tmp_path / "wrong.toml", {})
    (complaint,) = refused.value.complaints
    assert SECRET not in complaint


# --- the templates of the documentation -------------------------------------------------------------------------------


def documented(name: str) -> Shape:
    return template((ROOT / "docs" / "monitoring" / f"{name}.json.j2").read_text("utf-8"))


def templated(name: str, *events: EventNews) -> list[Any]:
    return [json.loads(body) for body in bodies(documented(name), events)]


def test_a_template_that_gives_null_sends_nothing(hook: Hook) -> None:
    shape = template('{{ "null" if events[0].event == "closed" else 1 }}')
    notifier, said = sending(Target(hook.url, shape))
    notifier.tell([event(CLOSED)])
    notifier.tell([event(OPENED)])
    wait_until(lambda: notifier.notified()[0].ended["sent"] == 1, "the opening was sent")
    notifier.close(5)
    assert [body for _, _, body in hook.received] == [1] and said == []


def test_jira_gets_an_issue_for_each_event_that_opens() -> None:
    hostile = replace(
        OPENED, cluster='{noformat} {nofor{noformat}mat} "x" [~admin]', where=WHERE._replace(topic="t" * 249)
    )
    (body,) = templated("jira", event(hostile, event_id="0f3a"), event(CLOSED), event(OPENED))
    first, second = (one["fields"] for one in body["issueUpdates"])
    assert {"project", "issuetype", "summary"} <= first.keys() == second.keys()
    assert first["labels"] == ["txnscan", "txnscan-0f3a"]
    assert len(first["summary"]) == 255 and "\n" not in first["summary"]
    assert second["summary"] == event_sentence(event(OPENED))
    assert first["description"].count("{noformat") == 2, "names cannot end the plain text"
    assert json.loads(second["description"].replace("{noformat}", "")) == event_fields(event(OPENED))
    assert templated("jira", event(CLOSED), event(OPENED, open_incidents=9)) == []


def test_servicenow_gets_an_alert_for_each_event_and_its_end() -> None:
    merged = event(CLOSED, closed=(), merged_into="ab" * 16)
    (body,) = templated("servicenow", event(OPENED), event(OPENED, open_incidents=9), event(CLOSED), merged)
    records = body["records"]
    assert [one["severity"] for one in records] == ["1", "1", "0", "0"]
    assert {one["message_key"] for one in records} == {"0f3a"}
    assert (records[0]["node"], records[0]["resource"], records[3]["resource"]) == ("prod", "orders", "")
    assert records[0]["time_of_event"] == "2023-11-14 22:13:20"
    assert json.loads(records[0]["additional_info"]) == event_fields(event(OPENED))
    assert all(isinstance(value, str) for one in records for value in one.values())
