"""Commits of a Delta log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def field(name: Any = "extra", type_: Any = "string", *, nullable: Any = True, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, "nullable": nullable, "metadata": metadata}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def metadata(*fields: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The metadata of a table with these columns."""
    schema = json.dumps(struct(field("sweep_id", nullable=False, comment="x"), *fields))
    return {"id": "1", "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
            "partitionColumns": [], "configuration": {}} | changes  # fmt: skip


ZERO, CHECKPOINT = f"{0:020}.json", f"{1:020}.checkpoint.parquet"
SAFE = json.dumps({"metaData": metadata()})


def written(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / "_delta_log" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return folder
