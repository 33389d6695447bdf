"""The HTML page: its content, its independence of other files, and its escaping of names from a cluster."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from tests.builders import MINUTE_MS, NOW_MS, failed, judged, known, scan, unobserved, view
from txnscan.cli.app import app
from txnscan.sweeps.column import timestamp
from txnscan.tables.open import open_tables
from txnscan.verdict.evidence import Judged
from txnscan.verdict.outcome import with_outcome

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

# Tags without an end tag.
_VOID = {"meta", "br", "link", "img", "hr", "input"}
EVIL = "</td><script>alert(1)</script>"


class Page(HTMLParser):
    """Open tags, in order. Raises if a tag is closed out of order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[int] = []
        self.seen: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes += attrs
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text.append(data)


def sweep(number: int, *transactions: Judged, **changes: Any) -> Any:
    at_ms = NOW_MS + number * 10 * MINUTE_MS
    return scan(*transactions, sweep_id=f"sweep-{number}", started_at_ms=at_ms, finished_at_ms=at_ms + 500, **changes)


def page_of(location: Path, *sweeps: Any) -> tuple[str, Page]:
    tables = open_tables(str(location / "tables"), None)
    tables.create()
    for one in sweeps:
        tables.write(one)
    out = location / "report.html"
    ran = CliRunner().invoke(app, ["report", "--tables", str(location / "tables"), "--out", str(out)])
    assert (ran.exit_code, ran.stdout) == (0, ""), (ran.output, ran.exception)
    assert ran.stderr.startswith(f"note: {out} ") and sweeps[-1].sweep_id in ran.stderr
    text = out.read_text("utf-8")
    return text, Page(text)


ORPHAN = with_outcome(judged(), known("unknown", "the log holds nothing of producer id 7"))
DOUBTFUL = judged(view("Empty", 5, coverage_failure=failed("broker 2 cannot be reached")), partition=1)


def test_a_page_shows_verdict_impact_cause_and_advice(tmp_path: Path, wording: SnapshotAssertion) -> None:
    text, page = page_of(tmp_path, sweep(1), sweep(2, ORPHAN, DOUBTFUL))
    said = " ".join(" ".join(page.text).split())
    assert "hanging (orphan)" in said and "p-0, late" in said and "indeterminate (coverage)" in said
    assert "txnscan first saw it open" in said
    assert f"txnscan plan --tables {tmp_path}/tables --out plan.json" in text
    assert page.open == []
    said = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "<time>", said.partition(" The history ")[0])
    assert re.sub(r"\d+ d( \d+ h)?", "<age>", said).replace(str(tmp_path), "<tmp>") == wording


def test_a_page_needs_no_scripts_or_other_files(tmp_path: Path) -> None:
    text, page = page_of(tmp_path, sweep(1, ORPHAN), sweep(2, ORPHAN))
    assert "svg" in page.seen and "script" not in page.seen and "link" not in page.seen
    assert not [value for name, value in page.attributes if name == "src" or name.startswith("on")]
    assert all(str(value).startswith("#") for name, value in page.attributes if name == "href")
    assert not [url for url in re.findall(r"https?://[^\s\"']+", text) if "www.w3.org" not in url]
    assert "prefers-color-scheme: dark" in text and "@media print" in text and "width=device-width" in text
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert "script-src" not in rules and text.index("Content-Security-Policy") < text.index("<style>")


def test_a_page_has_a_heading_outline_and_readable_colours_on_paper_and_phone(tmp_path: Path) -> None:
    text, page = page_of(tmp_path, sweep(1, ORPHAN, DOUBTFUL), sweep(2, ORPHAN))
    assert page.headings[0] == 1 and page.headings.count(1) == 1
    assert all(deeper - upper <= 1 for upper, deeper in pairwise(page.headings))
    assert ("lang", "en") in page.attributes and "<title>" in text
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.S)
    light, dark = re.search(r":root \{([^}]*)\}", style), re.search(r"dark\) \{ :root \{([^}]*)\}", style)
    assert light is not None and dark is not None
    colours = re.compile(r"--(bad|warn|good): (#[0-9a-f]{6})")
    for found, paper in ((light[1], "#ffffff"), (dark[1], "#121212")):
        assert len(colours.findall(found)) == 3
        # WCAG's contrast for text.
        assert all(contrast(colour, paper) >= 4.5 for _, colour in colours.findall(found))
    assert re.search(r"@media print \{.*break-inside: avoid", style) and "@media screen and (max-width:" in style
    # Wide content scrolls by itself, not the page.
    assert text.count("<table>") == text.count('<div class="wide"><table>') > 0


def test_every_incident_has_an_id_and_links_lead_to_places_of_the_page(tmp_path: Path) -> None:
    over = with_outcome(judged(topic="q"), known())
    _, page = page_of(tmp_path, sweep(1, ORPHAN, over), sweep(2, ORPHAN))
    told = ORPHAN.observation.transaction_key.incident_id("cluster-1")
    gone = over.observation.transaction_key.incident_id("cluster-1")
    ids = [value for name, value in page.attributes if name == "id" and value and "-" in value]
    assert sorted(ids) == sorted([f"incident-{told}", f"incident-{gone}", f"transaction-{told}"])
    links = [value.removeprefix("#") for name, value in page.attributes if name == "href" and value]
    assert sorted(links) == sorted(ids), "the story and its row link to each other, and a row without a story to itself"


def test_on_a_phone_each_cell_has_its_header_and_charts_are_drawn_for_its_width(tmp_path: Path) -> None:
    text, _ = page_of(tmp_path, sweep(1, ORPHAN, DOUBTFUL), sweep(2, ORPHAN, partitions_failed=1))
    for table in re.findall(r"<table>(.*?)</table>", text, re.S):
        heads = re.findall(r"<th[^>]*>([^<]*)</th>", table)
        for row in re.findall(r"<tr[^>]*>(.*?)</tr>", table, re.S)[1:]:
            assert re.findall(r'<td[^>]* data-label="([^"]*)"', row) == heads
    narrow = re.findall(r'<div class="on-narrow"><svg[^>]* viewBox="0 0 ([\d.]+) ', text)
    assert len(narrow) == 2 and all(float(width) < 400 for width in narrow)
    assert text.count('<div class="on-wide"><svg') == 2


def contrast(one: str, other: str) -> float:
    """The ratio of two colours' luminances, as in WCAG 2."""
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(
    ("minutes", "ticks"), [(5, r"\d\d:\d\d:\d\d"), (60, r"\d\d:\d\d"), (60 * 24 * 9, r"2023-11-\d\d")]
)
def test_times_in_the_chart_are_utc_and_fit_its_duration(minutes: int, ticks: str) -> None:
    from txnscan.report.charts import sweeps_chart

    began = timestamp(NOW_MS)
    drawn = sweeps_chart(
        [
            {"started_at": began + timedelta(minutes=each), "hanging": 1, "candidates": 0, "indeterminate": 0}
            for each in (0, minutes)
        ]
    )
    for svg in (drawn.wide, drawn.narrow):
        shown = [text for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg) if re.search(r"\d[:-]\d", text)]
        assert shown and all(re.fullmatch(ticks, text) for text in shown)


def test_names_from_a_cluster_are_escaped_in_html(tmp_path: Path) -> None:
    observation = replace(ORPHAN.observation, topic=EVIL)
    evil = replace(ORPHAN, evidence=replace(ORPHAN.evidence, observation=observation))
    error = unobserved("read", EVIL, 1, EVIL, 0)
    text, page = page_of(tmp_path, sweep(1, evil, errors=(error,), warnings=(EVIL,), partitions_failed=1))
    assert "script" not in page.seen and "<script" not in text and text.count("&lt;script&gt;") >= 4


@pytest.mark.parametrize(
    ("changes", "headline"),
    [
        ({}, "No transaction hangs"),
        ({"partitions_failed": 1}, "No observed transaction hangs, but not everything was observed"),
    ],
)
def test_an_empty_page_reports_whether_the_sweep_was_complete(
    tmp_path: Path, changes: dict[str, Any], headline: str
) -> None:
    _, page = page_of(tmp_path, sweep(1, **changes))
    assert headline in " ".join(" ".join(page.text).split())


def test_an_unwritable_path_is_reported_before_tables_are_read(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["report", "--tables", "./absent", "--out", "/nowhere/report.html"])
    assert ran.exit_code == 2 and ran.stderr.startswith("txnscan: --out: ")


def test_a_missing_library_is_reported_with_its_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    monkeypatch.setattr("txnscan.cli.app.find_spec", lambda name: None)
    ran = CliRunner().invoke(app, ["report", "--tables", "./absent", "--out", str(tmp_path / "report.html")])
    assert ran.exit_code == 2
    assert ran.stderr == wording
