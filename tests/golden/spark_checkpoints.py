"""Recorded checkpoints of streaming queries, made by `tests/streaming.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

RECORDED = Path(__file__).with_name("spark_checkpoints.json")


def recorded() -> Mapping[str, Mapping[str, str]]:
    """The files of each checkpoint: contents by path, a character for each byte."""
    found: Mapping[str, Mapping[str, str]] = json.loads(RECORDED.read_text("utf-8"))["checkpoints"]
    return found


def lay_out(files: Mapping[str, str], directory: Path) -> Path:
    """Writes the files of a checkpoint into a directory, and returns the directory."""
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("latin-1"))
    return directory
