"""`config`: which values the shared options have, and from where."""

from __future__ import annotations

import os
from operator import itemgetter
from typing import Annotated

import typer

from txnscan.cli.app import app, write_json
from txnscan.cli.command import (
    CLUSTER_VARIABLE,
    VARIABLES,
    OneCommand,
    in_file,
    options_of,
    shown_value,
)
from txnscan.cli.errors import errors_in_one_line
from txnscan.cli.options import Format, OutputFormat
from txnscan.config import printable, without_secrets
from txnscan.report.help import examples
from txnscan.report.output import write_line
from txnscan.report.rows import Column, TableRows

_TABLE = (
    Column("Option", 20, itemgetter("option")),
    Column("Value", 40, lambda row: "default" if row["value"] is None else row["value"]),
    Column("From", 0, lambda row: row["from"] or ""),
)


@app.command(
    cls=OneCommand,
    epilog=examples("txnscan config", "txnscan config --cluster orders --format json"),
)
def config(
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", metavar="NAME", envvar=CLUSTER_VARIABLE, help="A cluster of the file of named clusters."
        ),
    ] = None,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Show the values of the shared options, and the variable or file that each is from.

    The command line counts before a variable, and a variable before the file of named clusters. Asks no broker.
    """
    with errors_in_one_line():
        from txnscan.watch.clusters import CONFIG_VARIABLE, config_path, named_cluster, named_clusters

        path = config_path(os.environ)
        of_file = dict(options_of(named_cluster(cluster, path))) if cluster is not None else {}
        clusters = list(named_clusters(path)) if path.exists() or os.environ.get(CONFIG_VARIABLE) else []
        rows = []
        for option, variable in VARIABLES.items():
            value, origin = os.environ.get(variable) or None, variable
            if value is None and cluster is not None and option in of_file:
                value, origin = shown_value(of_file[option]), in_file(path, cluster, option)
            shown = None if value is None else printable(without_secrets(value))
            rows.append({"option": option, "value": shown, "from": None if value is None else origin})
        if format is Format.JSON:
            write_json({"file": str(path), "clusters": clusters, "cluster": cluster, "options": rows})
            return
        names = ", ".join(map(printable, clusters)) or "none"
        write_line(f"Clusters in {printable(str(path))}: {names}\n")
        table = TableRows(_TABLE)
        table.write(rows)
        table.end(())
