"""Charts as SVG, which every browser shows without scripts. Drawn by Altair, made SVG by vl-convert."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import altair as alt
from vl_convert import vegalite_to_svg

from txnscan.config import printable

# Colours that can be told apart on white and on black, and by who sees red and green alike.
_SERIES = {"hanging": "#d1495b", "of which late": "#a06cd5", "indeterminate": "#c98b0b"}
_GREY = "#808080"


def sweeps_chart(sweeps: Sequence[Mapping[str, Any]]) -> str:
    """What each sweep found, over time, oldest first, as an `<svg>` element that takes the width it is given."""
    values = [
        {"at": sweep["started_at"].isoformat(), "what": what, "transactions": sweep[column]}
        for sweep in sweeps
        for what, column in zip(_SERIES, ("hanging", "candidates", "indeterminate"), strict=True)
    ]
    chart = (
        alt.Chart(alt.InlineData(values=values), width=640, height=180, background="transparent")
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X("at:T", title=None, scale=alt.Scale(type="utc"), axis=alt.Axis(format=_time_format(sweeps))),
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


def incidents_chart(incidents: Sequence[Mapping[str, Any]], now: datetime) -> str:
    """When each incident was open, a bar each, as `sweeps_chart`. Open incidents last until now."""
    values = [
        {
            "where": printable(f"{row['topic']}-{row['partition']} from offset {row['start_offset']}"),
            "from": row["first_seen_at"].isoformat(),
            "to": (row["resolved_at"] or now).isoformat(),
            "what": "open" if row["resolved_at"] is None else "over",
        }
        for row in incidents
    ]
    chart = (
        alt.Chart(alt.InlineData(values=values), width=420, height=alt.Step(14), background="transparent")
        .mark_bar(minBandSize=2)
        .encode(
            x=alt.X("from:T", title=None, scale=alt.Scale(type="utc")),
            x2="to:T",
            y=alt.Y("where:N", title=None, sort=None, axis=alt.Axis(labelLimit=320)),
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
    )
    return _responsive(vegalite_to_svg(chart.to_dict()))


def _time_format(sweeps: Sequence[Mapping[str, Any]]) -> str:
    """How ticks show a time, in UTC: as time of day, or as date where days lie between the first sweep and the last."""
    lasted = sweeps[-1]["started_at"] - sweeps[0]["started_at"]
    if lasted > timedelta(days=2):
        return "%Y-%m-%d"
    return "%H:%M" if lasted > timedelta(minutes=10) else "%H:%M:%S"


def _responsive(svg: str) -> str:
    """The same chart for any width: its size stays in the viewBox."""
    return re.sub(r'(<svg[^>]*?) width="[\d.]+" height="[\d.]+"', r"\1", svg, count=1)
