"""A hook of MkDocs: the pages and sources outside docs/ become pages of the site, and links to them work there.

The docs are written for a checkout: they link to README.md, to modules and to notebooks. MkDocs knows only docs/. So
this hook adds the pages of the root folder, a page for each notebook, with what it shows (`notebooks.py`), and a page
for each source that some page links to. It resolves each link in the checkout, and writes the link to the page of that
file.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
# The pages of the root folder, and their names on the site.
ROOT_PAGES = {
    "README.md": "start.md",
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
NOTEBOOKS = ROOT / "notebooks"
# What they show when they are executed.
RECORDED = Path(__file__).parent / "notebooks.json"
# The notebooks, and their names on the site.
NOTEBOOK_PAGES = {f"notebooks/{one.name}": f"notebooks/{one.stem}.md" for one in sorted(NOTEBOOKS.glob("*.ipynb"))}
LINK = re.compile(r"(?<=\]\()([^)#\s]+)((?:#[^)\s]*)?)(?=\))")
# The folder of the site with the pages of sources.
SOURCES = "source/"
# Longer than any fence in a source.
FENCE = "~" * 10
EXECUTED = "_`{path}`, executed with the brokers and the tables of the quick start._"
HEAD = "---\ntitle: {path}\nsearch:\n  exclude: true\n---\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of the root folder, of the notebooks, and of each source outside docs/ that a page links to."""
    for path, name in ROOT_PAGES.items():
        files.append(File.generated(config, name, content=(ROOT / path).read_text("utf-8")))
    recorded = json.loads(RECORDED.read_text("utf-8"))
    for path, name in NOTEBOOK_PAGES.items():
        files.append(File.generated(config, name, content=notebook_page(path, recorded[Path(path).stem])))
    for path in sorted(set(_linked_sources(files))):
        files.append(File.generated(config, _of_source(path), content=source_page(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lets each link of a page lead to the page of the file that it names. Sources and notebooks stay as they are."""
    uri = page.file.src_uri
    return markdown if uri.startswith(SOURCES) or uri in NOTEBOOK_PAGES.values() else linked(markdown, uri)


def linked(markdown: str, uri: str) -> str:
    """A page with its links as the site needs them. uri: of the page, on the site."""

    def on_site(link: re.Match[str]) -> str:
        target, heading = link.groups()
        if "://" in target:
            return link[0]
        return posixpath.relpath(_uri(_target(uri, target)), posixpath.dirname(uri) or ".") + heading

    return LINK.sub(on_site, markdown)


def source_page(path: str) -> str:
    """A page that shows a file of the checkout."""
    text = (ROOT / path).read_text("utf-8")
    return f"{HEAD.format(path=path)}# {path}\n\n{_code(text, Path(path).suffix[1:])}\n"


def notebook_page(path: str, recorded: list[Mapping[str, Any]]) -> str:
    """The page of a notebook: its text, its code, and what each cell shows. recorded: its code cells."""
    shows, blocks = (cell["shows"] for cell in recorded), list[str]()
    for cell in json.loads((ROOT / path).read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            blocks.append(source)
        else:
            blocks += [_code(source, "py"), *map(_output, next(shows))]
    return "\n\n".join([blocks[0], EXECUTED.format(path=path), *blocks[1:]]) + "\n"


def digest(code: str) -> str:
    """Distinguishes the code of a cell from any other."""
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def _output(one: Mapping[str, str]) -> str:
    """What a cell shows, in a block that scrolls."""
    data = one["data"] if one["kind"] != "text" else f"<pre>{escape(one['data'].rstrip(), quote=False)}</pre>"
    return f'<div class="output">{data}</div>'


def _code(text: str, language: str) -> str:
    return f"{FENCE}{language}\n{text.rstrip()}\n{FENCE}"


def _linked_sources(files: Files) -> Iterator[str]:
    for file in files.documentation_pages():
        for target, _ in LINK.findall(file.content_string):
            path = _target(file.src_uri, target)
            if "://" not in target and not path.startswith("docs/") and path not in ROOT_PAGES | NOTEBOOK_PAGES:
                yield path


def _target(uri: str, target: str) -> str:
    """The path in the checkout that a link names. uri: of the page with the link, on the site."""
    at = next((path for path, name in ROOT_PAGES.items() if name == uri), f"docs/{uri}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(at), target))


def _uri(path: str) -> str:
    """The name on the site of the page that has a file of the checkout."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return ROOT_PAGES.get(path) or NOTEBOOK_PAGES.get(path) or _of_source(path)


def _of_source(path: str) -> str:
    return f"{SOURCES}{path}.md"
