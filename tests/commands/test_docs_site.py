"""The docs build as a site, strictly and without a network, and every page is in its navigation."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml

from tests.cases import Cases
from tests.docs_site import LINK, NOTEBOOK_PAGES, RECORDED, ROOT_PAGES, digest, linked, notebook_page
from tests.process import ROOT, run_to_end

CONFIG = ROOT / "conf" / "mkdocs.yml"
DOCS = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
# Resources that a browser fetches: scripts, style sheets, pictures and fonts. Links for readers are no resources.
RESOURCE = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\ssrc=["']?([^"'\s>]+)|<link\b[^>]*\shref=["']?([^"'\s>]+)"""
)
IN_CSS = re.compile(r"""(?:url\(|@import\s+)["']?(https?://[^"')]+)""")


def built(config: Path, site: Path) -> CompletedProcess[str]:
    """Builds the site. A proxy that does not exist would make each request fail."""
    nowhere = "http://127.0.0.1:9"
    variables = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere}
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        str(config),
        "--site-dir",
        str(site),
    ]
    return run_to_end(command, environment=variables)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    ran = built(CONFIG, directory)
    assert ran.returncode == 0, ran.stderr
    return directory


def in_navigation(entries: object) -> Iterator[str]:
    for entry in entries if isinstance(entries, list) else [entries]:
        if isinstance(entry, dict):
            for below in entry.values():
                yield from in_navigation(below)
        else:
            yield str(entry)


def test_every_page_is_in_the_navigation_once() -> None:
    assert sorted(in_navigation(yaml.safe_load(CONFIG.read_text("utf-8"))["nav"])) == sorted(
        [*DOCS, *ROOT_PAGES.values(), *NOTEBOOK_PAGES.values()]
    )


def test_every_page_is_in_the_index_by_task() -> None:
    index = ROOT / "docs" / "README.md"
    listed = {(index.parent / target).resolve() for target, _ in LINK.findall(index.read_text("utf-8"))}
    pages = {*(ROOT / "docs" / page for page in DOCS), *(ROOT / page for page in (*ROOT_PAGES, *NOTEBOOK_PAGES))}
    assert pages - listed == {index}


def test_every_page_starts_with_its_use() -> None:
    with Cases() as cases:
        for page in DOCS:
            with cases.case(page):
                title, first, *_ = (ROOT / "docs" / page).read_text("utf-8").split("\n\n")
                assert title.startswith("# ") and re.match(r"[A-Z`]", first)


def test_the_site_has_every_page(site: Path) -> None:
    for page in [*DOCS, *ROOT_PAGES.values(), *NOTEBOOK_PAGES.values()]:
        name = re.sub(r"README\.md$", "index.md", page)
        assert (site / name).with_suffix(".html").is_file(), page


def test_the_first_page_says_what_txnscan_is_and_shows_it(site: Path) -> None:
    (description,) = re.findall(r"site_description: (.*)", CONFIG.read_text("utf-8"))
    page = " ".join((ROOT / "docs" / "README.md").read_text("utf-8").partition("## Start")[0].split())
    assert description in page
    picture, *_ = re.findall(r"<img\b[^>]*\ssrc=[\"']?([^\"'\s>]+)", (site / "index.html").read_text("utf-8"))
    assert picture == "find-hanging.svg" and (site / picture).is_file()


def test_every_link_leads_to_a_file_of_the_site(site: Path) -> None:
    """Also links to sources and notebooks, which stand outside docs/."""
    links = 0
    with Cases() as cases:
        # The page for wrong addresses has absolute links.
        for page in sorted({*site.rglob("*.html")} - {site / "404.html"}):
            with cases.case(page.relative_to(site)):
                targets = re.findall(r"""<a\b[^>]*\shref=["']?([^"'\s>]+)""", page.read_text("utf-8"))
                inside = [one.partition("#")[0] for one in targets if "://" not in one]
                assert [one for one in inside if one and not (page.parent / one).is_file()] == []
                links += len(inside)
    assert links > 20 * len(DOCS)
    assert (site / "source" / "txnscan" / "verdict" / "rules.py.html").is_file()


def test_a_page_fetches_nothing_from_other_hosts(site: Path) -> None:
    seen = 0
    for page in site.rglob("*.html"):
        resources = [script or sheet for script, sheet in RESOURCE.findall(page.read_text("utf-8"))]
        assert [one for one in resources if "//" in one] == [], page
        seen += len(resources)
    assert seen > len(DOCS)
    sheets = [*site.rglob("*.css")]
    assert sheets and [found for sheet in sheets for found in IN_CSS.findall(sheet.read_text("utf-8"))] == []


def test_a_strict_build_refuses_broken_links_anchors_and_pages_that_are_not_listed(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    shutil.copytree(ROOT / "docs", docs)
    (docs / "unlisted.md").write_text("# Unlisted\n", "utf-8")
    with (docs / "acls.md").open("a", encoding="utf-8") as page:
        page.write("\n[file](absent.md), [heading](proof.md#absent)\n")
    config = tmp_path / "mkdocs.yml"
    config.write_text(f"INHERIT: {CONFIG}\ndocs_dir: {docs}\nhooks: [{ROOT / 'tests' / 'docs_site.py'}]\n", "utf-8")
    ran = built(config, tmp_path / "site")
    assert ran.returncode == 1
    warnings = [line for line in ran.stderr.splitlines() if line.startswith("WARNING")]
    assert len(warnings) == 3
    assert all(name in ran.stderr for name in ("'absent.md'", "'#absent'", "unlisted.md"))


def test_a_link_leads_to_the_page_of_its_file() -> None:
    cases = {
        ("acls.md", "resolving.md#the-lock"): "resolving.md#the-lock",
        ("acls.md", "#load"): "#load",
        ("acls.md", "https://example.com/a.md#b"): "https://example.com/a.md#b",
        ("proof.md", "../txnscan/verdict/rules.py"): "source/txnscan/verdict/rules.py.md",
        ("README.md", "../README.md#start"): "start.md#start",
        ("deployment/README.md", "../monitoring/README.md#set-it-up"): "../monitoring/README.md#set-it-up",
        ("deployment/README.md", "../../notebooks/capacity.ipynb"): "../notebooks/capacity.md",
        ("deployment/README.md", "../../SECURITY.md"): "../security.md",
        ("start.md", "docs/find-hanging.svg"): "find-hanging.svg",
        ("start.md", "CONTRIBUTING.md"): "contributing.md",
        ("contributing.md", "tests/slow.py"): "source/tests/slow.py.md",
    }
    with Cases() as checked:
        for (uri, link), expected in cases.items():
            with checked.case(f"{uri}: {link}"):
                assert linked(f"See [it]({link}).", uri) == f"See [it]({expected})."


def test_the_page_of_a_notebook_has_its_text_its_code_and_what_it_shows() -> None:
    recorded = json.loads(RECORDED.read_text("utf-8"))
    assert {Path(path).stem for path in NOTEBOOK_PAGES} == {*recorded}
    page = notebook_page("notebooks/quickstart.ipynb", recorded["quickstart"])
    assert page.startswith("# ") and "~~~~~~~~~~py\nfrom txnscan import" in page and '"cell_type"' not in page
    after_sweep = page.partition("sweep(spark, config)")[2]
    assert after_sweep.index('<div class="output"><pre>') < after_sweep.index("## What hangs")
    assert '<div class="output"><table>' in page and '<div class="output"><svg' in page


def test_the_notebooks_were_executed_as_they_are() -> None:
    """`make pictures` executes them."""
    recorded = json.loads(RECORDED.read_text("utf-8"))
    with Cases() as cases:
        for path in NOTEBOOK_PAGES:
            with cases.case(path):
                cells = json.loads((ROOT / path).read_text("utf-8"))["cells"]
                code = [digest("".join(cell["source"])) for cell in cells if cell["cell_type"] == "code"]
                assert [cell["code"] for cell in recorded[Path(path).stem]] == code


def test_what_notebooks_show_names_no_machine_and_fetches_nothing() -> None:
    text = RECORDED.read_text("utf-8")
    of_machine = (f"{ROOT}/", f"{tempfile.gettempdir()}/", f"{Path.home()}/", f'"{socket.gethostname()}"')
    assert [one for one in of_machine if one in text] == []
    assert {*re.findall(r"\b[a-z][\w.-]*:\d{4,5}\b(?!-)", text)} == {f"localhost:{9092 + one}" for one in range(3)}
    assert not re.findall(r"<script|<style|https?://(?!www\.w3\.org/)", text)
