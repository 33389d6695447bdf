"""Charts as SVG, which every browser shows without scripts. Drawn by Altair, made SVG by vl-convert."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import altair as alt
from vl_convert import vegalite_to_svg

from txnscan.config import printable

# Colours with contrast on white and on black, also for readers with red-green blindness.
_SERIES = {"hanging": "#d1495b", "of which late": "#a06cd5", "indeterminate": "#c98b0b"}
_GREY = "#808080"
# On a phone the wide chart would have letters of half their size.
_WIDE_PX, _NARROW_PX = 640, 300
# Between two labels of times.
_TICK_PX = 80
# Of the names beside the bars of events, and how many characters of a partition's name they have.
_LABEL_PX, _NARROW_LABEL_PX = 160, 120
_NAME_MAX, _NARROW_NAME_MAX = 20, 11
BARS_MAX = 20


@dataclass(frozen=True, slots=True)
class Drawn:
    """A chart as two `<svg>` elements, for a screen and for a phone. Each scales to any width."""

    wide: str
    narrow: str


def sweeps_chart(sweeps: Sequence[Mapping[str, Any]]) -> Drawn:
    """The results of sweeps over time, oldest first."""
    return Drawn(_of_sweeps(sweeps, _WIDE_PX), _of_sweeps(sweeps, _NARROW_PX))


def _of_sweeps(sweeps: Sequence[Mapping[str, Any]], width_px: int) -> str:
    values = [
        {"at": sweep["started_at"].isoformat(), "what": what, "transactions": sweep[column]}
        for sweep in sweeps
        for what, column in zip(_SERIES, ("hanging", "candidates", "indeterminate"), strict=True)
    ]
    first, last = sweeps[0]["started_at"], sweeps[-1]["started_at"]
    chart = (
        alt.Chart(alt.InlineData(values=values), width=width_px, height=180, background="transparent")
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X("at:T", title=None, scale=alt.Scale(type="utc"), axis=_time_axis(first, last, width_px)),
            y=alt.Y("transactions:Q", title="transactions", axis=alt.Axis(format="d", tickMinStep=1)),
            color=alt.Color(
                "what:N",
                title=None,
                scale=alt.Scale(domain=list(_SERIES), range=list(_SERIES.values())),
                legend=alt.Legend(orient="top"),
            ),
        )
        .configure_axis(labelColor=_GREY, titleColor=_GREY, gridColor=_GREY, gridOpacity=0.2, domainColor=_GREY)
        .configure_legend(labelColor=_GREY)
        .configure_view(stroke=None)
    )
    return _responsive(vegalite_to_svg(chart.to_dict()))


def events_chart(incidents: Sequence[Mapping[str, Any]], now: datetime) -> Drawn:
    """When each of the newest events was open, a bar each, as `sweeps_chart`. incidents: newest first. Open events last
    until now.
    """
    wide = _of_events(incidents, now, _WIDE_PX - _LABEL_PX, _LABEL_PX, _NAME_MAX)
    narrow = _of_events(incidents, now, _NARROW_PX - _NARROW_LABEL_PX, _NARROW_LABEL_PX, _NARROW_NAME_MAX)
    return Drawn(wide, narrow)


def _of_events(
    incidents: Sequence[Mapping[str, Any]], now: datetime, width_px: int, label_px: int, name_max: int
) -> str:
    events: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in incidents:
        events[row["event_id"] or row["incident_id"]].append(row)
    values = [
        {
            "where": _label(event_id, rows, name_max),
            "from": min(row["first_seen_at"] for row in rows).isoformat(),
            "to": max(row["resolved_at"] or now for row in rows).isoformat(),
            "what": "open" if any(row["resolved_at"] is None for row in rows) else "over",
        }
        for event_id, rows in list(events.items())[:BARS_MAX]
    ]
    first = min((row["first_seen_at"] for row in incidents), default=now)
    chart = (
        alt.Chart(alt.InlineData(values=values), width=width_px, height=alt.Step(22), background="transparent")
        .mark_bar(minBandSize=2, height=12)
        .encode(
            x=alt.X("from:T", title=None, scale=alt.Scale(type="utc"), axis=_time_axis(first, now, width_px)),
            x2="to:T",
            y=alt.Y("where:N", title=None, sort=None, axis=alt.Axis(labelLimit=label_px)),
            color=alt.Color(
                "what:N",
                title=None,
                scale=alt.Scale(domain=["open", "over"], range=[_SERIES["hanging"], _GREY]),
                legend=alt.Legend(orient="top"),
            ),
        )
        .configure_axis(labelColor=_GREY, titleColor=_GREY, gridColor=_GREY, gridOpacity=0.2, domainColor=_GREY)
        .configure_legend(labelColor=_GREY)
        .configure_view(stroke=None)
        # Browsers have wider fonts than the font that labels are measured with.
        .properties(padding={"left": 40, "top": 5, "right": 5, "bottom": 5})
    )
    return _responsive(vegalite_to_svg(chart.to_dict()))


def _label(event_id: str, rows: Sequence[Mapping[str, Any]], name_max: int) -> str:
    """The first partition of an event, its event's id, and how many more partitions there are."""
    first = min(rows, key=lambda row: (row["first_seen_at"], row["topic"], row["partition"]))
    name = printable(f"{first['topic']}-{first['partition']}")
    more = f" +{len(rows) - 1}" if len(rows) > 1 else ""
    return f"{name if len(name) <= name_max else name[: name_max - 1] + '…'}{more} ({event_id[:4]})"


def _time_axis(first: datetime, last: datetime, width_px: int) -> alt.Axis:
    """An axis with as many ticks as have room for their labels."""
    return alt.Axis(format=_time_format(first, last), tickCount=max(width_px // _TICK_PX, 2), labelOverlap=True)


def _time_format(first: datetime, last: datetime) -> str:
    """How ticks show a time, in UTC: as time of day, or as date if days lie between the first and the last."""
    lasted = last - first
    if lasted > timedelta(days=2):
        return "%Y-%m-%d"
    return "%H:%M" if lasted > timedelta(minutes=10) else "%H:%M:%S"


def _responsive(svg: str) -> str:
    """The same chart for any width: its size stays in the viewBox."""
    return re.sub(r'(<svg[^>]*?) width="[\d.]+" height="[\d.]+"', r"\1", svg, count=1)
