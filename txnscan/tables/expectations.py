"""Rules for data-quality tools, from the constraints of the tables. Pure.

Delta refuses rows that violate a table's constraints. Copies and views of a table have no constraints, so a tool can
check the same rules there.
"""

from __future__ import annotations

from typing import Any

from txnscan.config import ConfigError, printable
from txnscan.tables.schema import TABLES, Table


def expectations(table: str) -> dict[str, str]:
    """The rules of a table, each as a SQL condition by its name: for `expect_all` of Databricks Lakeflow.

    Raises ConfigError if there is no table of this name.
    """
    found = _named(table)
    required = {f"{column.name}_is_set": f"{column.name} IS NOT NULL" for column in found.columns if column.required}
    return {**required, **dict(found.checks)}


def dqx_rules(table: str) -> list[dict[str, Any]]:
    """The same rules for Databricks DQX: the argument of `DQEngine.apply_checks_by_metadata`.

    Raises ConfigError if there is no table of this name.
    """
    return [
        {
            "name": name,
            "criticality": "error",
            "check": {"function": "sql_expression", "arguments": {"expression": condition, "name": name}},
        }
        for name, condition in expectations(table).items()
    ]


def _named(name: str) -> Table:
    for table in TABLES:
        if table.name == name:
            return table
    names = ", ".join(table.name for table in TABLES)
    raise ConfigError("table", f"there is no table '{printable(name)}'; the tables are {names}")
