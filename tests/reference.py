"""`python -m tests.reference` writes docs/commands.md from the help of the commands, docs/tables.md from the schema."""

from __future__ import annotations

from pathlib import Path

from typer.main import get_command
from typer.testing import CliRunner

from txnscan.cli import app
from txnscan.engine.rows import spark_type
from txnscan.store.schema import TABLES, Column

DOCS = Path(__file__).parents[1] / "docs"
COMMANDS_HEAD = """# Commands

What `txnscan COMMAND --help` prints. Made by `python -m tests.reference`.
"""
TABLES_HEAD = """# Tables

Under `--tables`, a path, an object store or catalog.schema. A sweep is visible whole or not at all: its row in `sweeps`
is written last. Names and types are a contract, and each column has this comment in the table. Times are UTC. New
columns are added at the end; tables of an earlier version get them, and the constraints of this one, at the next sweep,
and a line says so. Tables of a later schema are refused, and so is a place where one table is gone or damaged while
others are in use. `txnscan maintain` keeps them small.

The tables are not clustered. `ALTER TABLE ... CLUSTER BY` would give one the features `clustering` and
`domainMetadata`, which delta-rs cannot write and `DROP FEATURE` cannot remove. To get rid of them let a sweep make
tables at another location, and copy each table in Spark:

```sql
INSERT OVERWRITE delta.`/data/txnscan-new/sweeps` BY NAME SELECT * FROM delta.`/data/txnscan/sweeps`;
```

The verdict of a row can be computed again from its column `evidence`. What is healthy is counted in `sweeps.healthy`,
and has rows with `--store-all` alone. Made from `txnscan/store/schema.py` by `python -m tests.reference`.
"""


def commands() -> str:
    """The page of all commands."""
    parts = [COMMANDS_HEAD]
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        if command.hidden:
            continue
        shown = CliRunner().invoke(app, [name, "--help"], terminal_width=100).stdout.rstrip()
        parts.append(f"## {name}\n\n```text\n{shown}\n```\n")
    return "\n".join(parts)


def tables() -> str:
    """The page of all tables."""
    parts = [TABLES_HEAD]
    for table in TABLES:
        rows = "\n".join(
            f"| `{column.name}` | {_type(column)}{'' if column.required else ', null'} | {column.meaning} |"
            for column in table.columns
        )
        parts.append(f"## `{table.name}`\n\n{table.meaning}.\n\n| column | type | meaning |\n|---|---|---|\n{rows}\n")
    return "\n".join(parts)


def _type(column: Column) -> str:
    if isinstance(column.type, str):
        return column.type.lower()
    # A nested row has its own names; all of them would fill the page.
    return "array of struct" if spark_type(column.type).startswith("ARRAY") else "struct"


PAGES = {"commands.md": commands, "tables.md": tables}

if __name__ == "__main__":
    for name, made in PAGES.items():
        (DOCS / name).write_text(made(), "utf-8")
