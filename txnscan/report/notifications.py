"""How incidents are reported: sentences for logs and people, and the bodies that Slack, PagerDuty and others take.

Pure: a batch of news becomes bodies, each for one POST. Names and errors come from the cluster. They are data in JSON,
with control characters escaped, and cut to a length. Chat programs show them as plain text, without links or mentions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from txnscan.config import ConfigError, printable
from txnscan.kafka.units import duration, plural
from txnscan.reads.observation import TransactionKey
from txnscan.sweeps.news import Change, EventNews, News, Row
from txnscan.sweeps.result import Scan

# How many lines one chat message has; the rest is only counted.
_LINES_MAX = 20
# The most characters of a text from the cluster. A topic has 249, and an id may have 32,767.
_TEXT_MAX = 1_000
# Chat programs see no mention, link or address with this character in it, and people do not see the character.
_HIDDEN_SPACE = "\u200b"
# Incidents of an event that a body names; the rest is counted.
_INCIDENTS_MAX = 100
_ID_SHOWN = 8
# PagerDuty's own limit.
_SUMMARY_MAX = 1_024
# Alertmanager ends an alert by itself unless the alert has an end. An opening gets an end this far ahead.
_ALERT_LASTS = timedelta(days=365)


def swept(scan: Scan) -> str:
    """That a cluster is swept."""
    took = duration(scan.finished_at_ms - scan.started_at_ms)
    return (
        f"cluster {scan.cluster_id} is swept: {scan.brokers} brokers, {scan.partitions_planned} partitions, in {took}"
    )


def not_observed(scan: Scan) -> str:
    """Whether everything was observed, and if not, what was not."""
    if scan.complete:
        return "everything is observed"
    if scan.errors:
        first = scan.errors[0].failure
        return f"not everything is observed: {first}" + (
            f" (and {len(scan.errors) - 1} more)" if len(scan.errors) > 1 else ""
        )
    return "not everything is observed: some open transactions could not be judged"


def sentence(news: News) -> str:
    """One line on what happened, for a log or a message."""
    where, cluster = f"{_text(news.where.topic)}-{news.where.partition}", _text(news.cluster)
    whose = f"producer id {news.where.producer_id}, from offset {news.where.start_offset}"
    lasted = duration(max(news.at_ms - news.first_seen_ms, 0))
    if news.kind is Change.CLOSED:
        how = _ENDS.get(news.how or "", "the transaction is over")
        return printable(f"closed: {where} of {cluster}, {how}; {whose}, first seen {lasted} before")
    if news.in_danger:
        danger = f"has committed records that an abort of the live transaction there would delete{_blocks(news.row)}"
        return printable(f"opened: {where} of {cluster} {danger}; {whose}")
    reason = f" ({_text(news.row['reason'])})" if news.row else ""
    return printable(f"opened: {where} of {cluster} hangs{reason} and is late{_blocks(news.row)}; {whose}")


_ENDS = {
    "completed": "its committed records are readable now",
    "torn": "an ABORT marker deleted committed records",
    "topic_recreated": "the topic was created again",
    "topic_deleted": "the topic was deleted",
}


def _text(value: str | None) -> str | None:
    """Text from the cluster on one line, cut to a length."""
    if value is None:
        return None
    said = printable(value[: _TEXT_MAX + 1])
    return said if len(said) <= _TEXT_MAX else f"{said[: _TEXT_MAX - 1]}…"


def _blocks(row: Row) -> str:
    """The known number of records and groups that wait for it."""
    counts = ((row.get("blocked_records"), "record"), (row.get("groups_blocked"), "group"))
    said = [plural(count, what) for count, what in counts if count]
    unknown = _text(row.get("groups_error")) if row.get("groups_blocked") is None else None
    return (f", blocks {' and '.join(said)}" if said else "") + (f", groups not counted ({unknown})" if unknown else "")


def fields(news: News) -> dict[str, Any]:
    """An incident as plain data: what the generic body has, and templates see."""
    row = news.row
    return {
        "event": news.kind.value,
        "cluster": _text(news.cluster),
        "cluster_id": news.cluster_id,
        "incident_id": news.incident_id,
        "topic": _text(news.where.topic),
        "partition": news.where.partition,
        "producer_id": news.where.producer_id,
        "producer_epoch": row.get("producer_epoch"),
        "start_offset": news.where.start_offset,
        "transactional_id": _text(row.get("transactional_id")),
        "reason": _text(row.get("reason")),
        "outcome": _text(row.get("outcome")),
        "blocked_records": row.get("blocked_records"),
        "groups_blocked": row.get("groups_blocked"),
        "groups_error": _text(row.get("groups_error")),
        "cause": _text(row.get("cause")),
        "owner": _text(row.get("owner_id")),
        "explanation": _text(row.get("explanation")),
        "first_seen_at": _iso(news.first_seen_ms),
        "at": _iso(news.at_ms),
        "resolved_how": news.how,
        "summary": sentence(news),
    }


def event_sentence(event: EventNews) -> str:
    """One line about a change of an event, for a message. An event of one incident has its incident's sentence."""
    if event.merged_into is not None:
        into = f"event {event.merged_into[:_ID_SHOWN]}"
        return f"closed: event {event.event_id[:_ID_SHOWN]} of {_text(event.cluster)} is part of {into}"
    changed = (*event.opened, *event.closed)
    if len(changed) == 1 and event.open_incidents == len(event.opened):
        return sentence(changed[0])
    parts = []
    in_danger = [one for one in event.opened if one.in_danger]
    hanging = [one for one in event.opened if one not in in_danger]
    if hanging:
        count, verb = plural(len(hanging), "late transaction"), "hangs" if len(hanging) == 1 else "hang"
        parts.append(f"{count} {verb} on {_topics(hanging)}{_all_blocked(hanging)}")
    if in_danger:
        count, verb = plural(len(in_danger), "live transaction"), "endangers" if len(in_danger) == 1 else "endanger"
        parts.append(f"{count} {verb} committed records on {_topics(in_danger)}{_all_blocked(in_danger)}")
    if event.closed:
        verb = "is" if len(event.closed) == 1 else "are"
        parts.append(f"{plural(len(event.closed), 'transaction')} {verb} over")
    if event.open_incidents != len(event.opened):
        still = "still " if event.closed else ""
        parts.append(
            f"{plural(event.open_incidents, 'incident')} {still}open" if event.open_incidents else "all are over"
        )
    causes = sorted({cause for one in event.opened if (cause := one.row.get("cause")) is not None})
    if causes:
        parts.append(f"cause: {' and '.join(causes)}")
    whose = f"event {event.event_id[:_ID_SHOWN]} of {_text(event.cluster)}"
    return printable(f"{event.kind.value}: {whose}: {'; '.join(parts)}")


def _topics(opened: Sequence[News]) -> str:
    topics = {one.where.topic for one in opened}
    return f"topic '{_text(opened[0].where.topic)}'" if len(topics) == 1 else f"{len(topics)} topics"


def _all_blocked(opened: Sequence[News]) -> str:
    records = sum(one.row.get("blocked_records") or 0 for one in opened)
    return f", {plural(records, 'record')} blocked" if records else ""


def event_fields(event: EventNews) -> dict[str, Any]:
    """An event as plain data: the members of the generic body, which templates see."""
    return {
        "event": event.kind.value,
        "event_id": event.event_id,
        "cluster": _text(event.cluster),
        "cluster_id": event.cluster_id,
        "open_incidents": event.open_incidents,
        "opened_incidents": len(event.opened),
        "closed_incidents": len(event.closed),
        "incidents": [fields(one) for one in (*event.opened, *event.closed)[:_INCIDENTS_MAX]],
        "merged_into": event.merged_into,
        "first_seen_at": _iso(event.first_seen_ms),
        "at": _iso(event.at_ms),
        "summary": event_sentence(event),
    }


Shape = Callable[[Sequence[EventNews], str | None], list[Any]]
_SIGNS = {Change.OPENED: "🔴", Change.UPDATED: "🟠", Change.CLOSED: "🟢"}
# Apprise's types of notifications, the worst first.
_TYPES = {Change.OPENED: "failure", Change.UPDATED: "warning", Change.CLOSED: "success"}
# The shape of messages for Apprise.
APPRISE = "apprise"


def _slack(batch: Sequence[EventNews], _: str | None) -> list[Any]:
    """One message. Mattermost and Rocket.Chat take it too. mrkdwn: no marks of emphasis in Slack."""
    lines = [f"{_SIGNS[one.kind]} {_slack_text(event_sentence(one))}" for one in batch[:_LINES_MAX]]
    if len(batch) > _LINES_MAX:
        lines.append(f"and {len(batch) - _LINES_MAX} more")
    return [{"text": "\n".join(lines), "mrkdwn": False}]


def _slack_text(text: str) -> str:
    """As Slack asks for it."""
    return _without_marks(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _without_marks(text: str) -> str:
    """Mattermost, Rocket.Chat and others take `@all` and `[text](address)` from plain text."""
    for mark in ("@", "](", "://"):
        text = text.replace(mark, f"{mark[0]}{_HIDDEN_SPACE}{mark[1:]}")
    return text


def _apprise(batch: Sequence[EventNews], _: str | None) -> list[Any]:
    """One message of plain text. The worst event gives its type, which services show as a colour."""
    worst = next(kind for kind in _TYPES if any(one.kind is kind for one in batch))
    lines = [_without_marks(event_sentence(one)) for one in batch[:_LINES_MAX]]
    if len(batch) > _LINES_MAX:
        lines.append(f"and {len(batch) - _LINES_MAX} more")
    return [{"title": "Hanging transactions", "body": "\n".join(lines), "type": _TYPES[worst]}]


def _pagerduty(batch: Sequence[EventNews], routing_key: str | None) -> list[Any]:
    """An event of PagerDuty (Events API v2) for each: its key is the event id, so that an update and the closing
    match the opening.
    """
    return [
        {
            "routing_key": routing_key,
            "event_action": "resolve" if one.kind is Change.CLOSED else "trigger",
            "dedup_key": one.event_id,
            "client": "txnscan",
            "payload": {
                "summary": event_sentence(one)[:_SUMMARY_MAX],
                "source": _text(one.cluster),
                "severity": "critical",
                "timestamp": _iso(one.at_ms),
                "component": _component(one),
                "group": _text(one.cluster),
                "class": "hanging transaction",
                "custom_details": event_fields(one),
            },
        }
        for one in batch
    ]


def _component(event: EventNews) -> str | None:
    """The partition if there is only one partition, else the topic. None for several topics."""
    names = {(one.where.topic, one.where.partition) for one in (*event.opened, *event.closed)}
    topics = {topic for topic, _ in names}
    if len(topics) != 1:
        return None
    (topic,) = topics
    return f"{_text(topic)}-{min(names)[1]}" if len(names) == 1 and event.open_incidents <= 1 else _text(topic)


def _alertmanager(batch: Sequence[EventNews], _: str | None) -> list[Any]:
    """All alerts in one body (POST /api/v2/alerts). Labels are what stays the same until the closing."""
    return [
        [
            {
                "labels": {
                    "alertname": "TxnscanEvent",
                    "severity": "critical",
                    "cluster": _text(one.cluster),
                    "event_id": one.event_id,
                },
                "annotations": {"summary": event_sentence(one), "description": _description(one)},
                "startsAt": _iso(one.first_seen_ms),
                "endsAt": _iso(one.at_ms) if one.kind is Change.CLOSED else _iso(one.at_ms, _ALERT_LASTS),
            }
            for one in batch
        ]
    ]


def _description(event: EventNews) -> str:
    row: Row = next((one.row for one in (*event.opened, *event.closed) if one.row), {})
    return _text(row.get("explanation")) or event_sentence(event)


def _json(batch: Sequence[EventNews], _: str | None) -> list[Any]:
    """All of them in one body."""
    return [{"version": 1, "events": [event_fields(one) for one in batch]}]


# The values of --notify-as.
SHAPES: Mapping[str, Shape] = MappingProxyType(
    {"json": _json, "slack": _slack, "pagerduty": _pagerduty, "alertmanager": _alertmanager, APPRISE: _apprise}
)


def bodies(shape: Shape, batch: Sequence[EventNews], routing_key: str | None = None) -> list[bytes]:
    """The body of each POST, in the order in which they are to be sent."""
    return [json.dumps(body).encode() for body in shape(batch, routing_key)]


def template(text: str) -> Shape:
    """A shape of one's own: a Jinja2 template that gives JSON, with `events` as `event_fields` has them. If it gives
    null for a batch, no notification is sent.

    Raises ConfigError where it cannot be rendered, or gives no JSON for an opening and a closing.
    """
    from jinja2 import StrictUndefined, TemplateError
    from jinja2.sandbox import SandboxedEnvironment

    def shape(batch: Sequence[EventNews], _: str | None) -> list[Any]:
        # Below, the template is tried with examples first.
        body = json.loads(made.render(events=[event_fields(one) for one in batch]))
        return [] if body is None else [body]

    try:
        made = SandboxedEnvironment(undefined=StrictUndefined, autoescape=False).from_string(text)
        for batch in (_EXAMPLE[:1], _EXAMPLE[1:], _EXAMPLE):
            shape(batch, None)
    except TemplateError as error:
        raise ConfigError("--notify-template", f"cannot be rendered: {printable(str(error))}") from None
    except ValueError as error:
        raise ConfigError(
            "--notify-template", f"gives no JSON ({error}); write {{{{ value | tojson }}}} for each value"
        ) from None
    return shape


def _iso(epoch_ms: int, later: timedelta = timedelta()) -> str:
    at = datetime.fromtimestamp(epoch_ms / 1_000, UTC) + later
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_WHERE = TransactionKey('a "topic"', "id", 0, 7, 100)
_OPENED, _CLOSED = (
    News(kind, "cluster", "id", "0f", _WHERE, 0, 1_000, {}, how="ended") for kind in (Change.OPENED, Change.CLOSED)
)
_EXAMPLE = (
    EventNews(Change.OPENED, "cluster", "id", "0f", 0, 1_000, 1, opened=(_OPENED,)),
    EventNews(Change.CLOSED, "cluster", "id", "0f", 0, 1_000, 0, closed=(_CLOSED,)),
)
