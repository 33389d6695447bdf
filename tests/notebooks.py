"""`make pictures` executes the notebooks, and keeps what they show in tests/notebooks.json, for the site.

The quick start starts real brokers, makes transactions hang, and sweeps them. The other notebooks read its tables. The
site shows the text and the code of the notebooks from notebooks/, which have no outputs, and below each cell what is
kept here (`docs_site.py`).
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from tests.docs_site import NOTEBOOKS, RECORDED, ROOT, digest

# In this order: the first writes the tables that the others read.
NAMES = ("quickstart", "investigate", "dashboards", "capacity")
# Who ran it. Tables show the name.
_USER = "operator"
_ADDRESS = re.compile(r"(?:localhost|127\.0\.0\.1):\d+")
_PORT = 9092
# The best kind of an output comes first.
_KINDS = {"image/svg+xml": "svg", "text/html": "html", "text/plain": "text"}
# The table that pandas shows, without its style sheet, and what of it needs that.
_TABLE = re.compile(r"<table.*</table>", re.S)
_STYLES = re.compile(r' border="1"| class="dataframe"| style="text-align: right;"')


def executed(name: str, folder: str, variables: Mapping[str, str]) -> nbformat.NotebookNode:
    """A notebook with its outputs, from a kernel in this folder with these environment variables besides."""
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    client = NotebookClient(notebook, timeout=900, resources={"metadata": {"path": folder}})
    return client.execute(env={**os.environ, **variables})


def recorded(notebook: nbformat.NotebookNode) -> list[dict[str, Any]]:
    """Each code cell, and what it shows."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [{"code": digest(cell.source), "shows": list(_shown(cell.outputs))} for cell in cells]


def _shown(outputs: list[Any]) -> Iterator[dict[str, str]]:
    for output in outputs:
        if output.output_type == "stream":
            if output.name == "stdout":
                yield {"kind": "text", "data": output.text}
        elif "data" in output:
            kind = next(kind for kind in _KINDS if kind in output.data)
            data = output.data[kind]
            table = _TABLE.search(data) if kind == "text/html" else None
            yield {"kind": _KINDS[kind], "data": data if table is None else _STYLES.sub("", table[0])}


def _with_known_addresses(text: str) -> str:
    """Ports are free ones here, and Kafka's own on the page."""
    ports = count(_PORT)
    known: dict[str, str] = {}
    for found in _ADDRESS.findall(text):
        if found not in known:
            known[found] = f"localhost:{next(ports)}"
    return _ADDRESS.sub(lambda found: known[found[0]], text)


def recorded_anew() -> dict[str, Any]:
    """What all notebooks show."""
    variables = {
        "LOGNAME": _USER,
        "MASTER": "local[2]",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    with tempfile.TemporaryDirectory() as folder:
        found = {name: recorded(executed(name, folder, variables)) for name in NAMES}
    known: dict[str, Any] = json.loads(_with_known_addresses(json.dumps(found)))
    return known


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(recorded_anew(), indent=1) + "\n", "utf-8")
