"""A hook of MkDocs: the pages and sources outside docs/ become pages of the site, and links to them work there.

The docs are written for a checkout: they link to README.md, to modules and to notebooks. MkDocs knows only docs/. So
this hook adds the pages of the root folder, and a page for each source that some page links to. It resolves each link
in the checkout, and writes the link to the page of that file.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

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
LINK = re.compile(r"(?<=\]\()([^)#\s]+)((?:#[^)\s]*)?)(?=\))")
# The folder of the site with the pages of sources.
SOURCES = "source/"
# Longer than any fence in a source.
FENCE = "~" * 10
HEAD = "---\ntitle: {path}\nsearch:\n  exclude: true\n---\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of the root folder, and of each source outside docs/ that a page links to."""
    for path, name in ROOT_PAGES.items():
        files.append(File.generated(config, name, content=(ROOT / path).read_text("utf-8")))
    for path in sorted(set(_linked_sources(files))):
        files.append(File.generated(config, _of_source(path), content=source_page(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lets each link of a page lead to the page of the file that it names. Sources stay as they are."""
    return markdown if page.file.src_uri.startswith(SOURCES) else linked(markdown, page.file.src_uri)


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
    if path.endswith(".ipynb"):
        shown = _notebook(json.loads(text))
    else:
        shown = f"# {path}\n\n{_code(text, Path(path).suffix[1:])}"
    return f"{HEAD.format(path=path)}{shown}\n"


def _notebook(notebook: Mapping[str, list[Mapping[str, object]]]) -> str:
    return "\n\n".join(
        "".join(cell["source"]) if cell["cell_type"] == "markdown" else _code("".join(cell["source"]), "py")  # type: ignore[arg-type]
        for cell in notebook["cells"]
    )


def _code(text: str, language: str) -> str:
    return f"{FENCE}{language}\n{text.rstrip()}\n{FENCE}"


def _linked_sources(files: Files) -> Iterator[str]:
    for file in files.documentation_pages():
        for target, _ in LINK.findall(file.content_string):
            path = _target(file.src_uri, target)
            if "://" not in target and not path.startswith("docs/") and path not in ROOT_PAGES:
                yield path


def _target(uri: str, target: str) -> str:
    """The path in the checkout that a link names. uri: of the page with the link, on the site."""
    at = next((path for path, name in ROOT_PAGES.items() if name == uri), f"docs/{uri}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(at), target))


def _uri(path: str) -> str:
    """The name on the site of the page that has a file of the checkout."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return ROOT_PAGES.get(path) or _of_source(path)


def _of_source(path: str) -> str:
    return f"{SOURCES}{path}.md"
