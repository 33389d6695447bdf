"""Tables in a catalog, through Spark Connect: only the catalog can be asked what is in them.

A server of Spark Connect needs a process without another session.
"""

from __future__ import annotations

import json
import re

from tests.cases import Cases
from tests.process import run_python
from txnscan.demo.ports import choose_ports

# Name, a change of a table, and the reason; None if the catalog does not show it.
CHANGES: dict[str, tuple[tuple[str, ...], str | None]] = {
    "a property of the user": (("SET TBLPROPERTIES ('team' = 'me')",), None),
    "a column of the user": (("ADD COLUMNS (z STRING)",), None),
    "a constraint": (("ADD CONSTRAINT z CHECK (abs(history) >= 0)",), r"the constraint z, which is none of txnscan's"),
    "a default": (
        (
            "SET TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')",
            "ALTER COLUMN txnscan_version SET DEFAULT upper('x')",
        ),
        r"the metadata of the column txnscan_version has CURRENT_DEFAULT",
    ),
}
SCRIPT = """
import json, sys
from tests.connect import local_server
from tests.tables.stored import next_sweep
from txnscan.config import ConfigError, Location
from txnscan.tables.delta import arrow_rows
from txnscan.tables.schema import SWEEPS
from txnscan.tables.spark import SparkDelta, last_actions

port, changes = int(sys.argv[1]), json.loads(sys.argv[2])
spark = local_server(port)
rows = arrow_rows(SWEEPS.columns, SWEEPS.rows(next_sweep(1), [next_sweep(1)]))
found = {}
for number, (name, statements) in enumerate(changes.items()):
    schema = f"spark_catalog.txnscan_{number}"
    spark.sql(f"CREATE SCHEMA {schema}")
    delta = SparkDelta(spark, Location.of(schema))
    delta.create(SWEEPS)
    delta.append(SWEEPS, rows)
    for statement in statements:
        spark.sql(f"ALTER TABLE {schema}.{SWEEPS.name} {statement}")
    answers = found[name] = {}
    uses = {
        "columns": lambda: bool(delta.columns(SWEEPS)),
        "read": lambda: len(delta.read(SWEEPS)),
        "append": lambda: delta.append(SWEEPS, rows),
        "compact": lambda: bool(delta.compact(SWEEPS)),
    }
    for use, call in uses.items():
        try:
            answers[use] = call()
        except ConfigError as error:
            answers[use] = str(error)
print(json.dumps({"found": found, "asked": last_actions(spark, "/") is None}))
"""


def test_a_catalog_is_asked_before_its_tables_are_used() -> None:
    port, *_ = choose_ports(1)
    changes = {name: statements for name, (statements, _) in CHANGES.items()}
    ran = run_python("-c", SCRIPT, str(port), json.dumps(changes))
    assert ran.returncode == 0, ran.stderr
    answer = json.loads(ran.stdout.splitlines()[-1])
    assert answer["asked"]
    with Cases() as cases:
        for name, (_, why) in CHANGES.items():
            with cases.case(name):
                found = answer["found"][name]
                if why is None:
                    assert found == {"columns": True, "read": 1, "append": None, "compact": True}
                else:
                    assert all(re.search(why, str(said)) for said in found.values()), found
