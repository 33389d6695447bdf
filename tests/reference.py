"""`python -m tests.reference` writes docs/commands.md from the help of the commands, docs/tables.md from the schema,
docs/known-causes.md from the known causes, docs/acls.md from the list of ACLs, and conf/share: the manual page and the
completions of shells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from typer.completion import get_completion_script  # type: ignore[attr-defined]
from typer.main import get_command
from typer.testing import CliRunner

from tests.manual import manual_page
from txnscan.cli.app import app
from txnscan.engine.rows import spark_type
from txnscan.kafka.failure import FailureCode
from txnscan.kafka.security.acls import grants
from txnscan.kafka.security.needs import ACLS, TO_SCAN, Acl, Use
from txnscan.sweeps.column import StoredColumn
from txnscan.sweeps.machine import NEEDS
from txnscan.tables.schema import TABLES
from txnscan.waiting.known_causes import KNOWN_CAUSES

DOCS = Path(__file__).parents[1] / "docs"
# Files of the wheel, at their places below the `share` of an environment.
SHARE = Path(__file__).parents[1] / "conf" / "share"
COMMANDS_HEAD = """# Commands

Look up a command and its options, as `txnscan COMMAND --help` prints them. Made by `python -m tests.reference`.
"""
TABLES_HEAD = """# Tables

Look up a table, a column, or the code of a failure. `--tables` names a path, an object store or catalog.schema. Names
and types are a contract. Each column has its comment in the table. Times are UTC.

A sweep is visible whole or not at all: its row in `sweeps` is written last. txnscan refuses a
location where a table is missing or damaged while others have rows. `txnscan maintain` deletes old sweeps, also their
rows in `topic_reads`. It keeps the other facts, incidents and the journal for ever.

## Versions

The tables have a schema version (`txnscan.schemaVersion` in their properties, `schema_version` in `sweeps`).

| tables | a sweep, `plan`, `apply` | `show`, `report`, `history` |
|---|---|---|
| of this version | write | read |
| of an earlier version, to which only tables and columns were added | add them in place, then write | read |
| of an earlier version, with any other change | refused until `txnscan maintain --upgrade` has run | refused |
| of a later version that says that this one can read it (`txnscan.readableSince`) | refused | read |
| of any other version | refused | refused |

- Added columns may be null. Rows from before have null there.
- `txnscan maintain --upgrade` prints each step before it makes it. You may run it again after a failure. End the
  sweeps of the earlier release before: rows that it writes later would have the earlier form.
- A column keeps its name, its type and its meaning. A value that a column did not have before, such as a new reason,
  counts as another change.

## Facts and computed rows

- Facts are what brokers answered and what `apply` did: `facts`, `resolutions`, `scan_errors`,
  in `open_transactions` the columns `evidence` and `disk_read` and the columns from `first_epoch` on to `read_at`, and
  in `topic_reads` the column `partitions`.
- Computed are the verdicts, outcomes and impacts in `open_transactions` and `candidates`, and all of `incidents`,
  `first_seen` and the counts in `sweeps`. In `topic_reads`: `complete_up_to`, `status`, and `mark` of each partition.
- A row in `facts` or `topic_reads` counts at once, even if its sweep was never finished.
- `plan` and `apply` compute each outcome again, from all facts. The stored outcomes are for people.
- You can compute the verdict of a row again from its `evidence`.
- `incidents` has one row for each hanging transaction. Leader epoch and high watermark decide which of two sweeps saw
  the partition later, so sweeps may be stored in any order.
- `sweeps.healthy` counts healthy transactions. They have rows only with `--store-all`, or if they are live and may hold
  readers back ([live transactions](impact.md#find-live-transactions-that-hold-readers-back)).

Anyone who may write to the tables decides what `apply` may send: `apply` takes stored facts, first sightings and counts
as true. Give write access only to the principals that sweep and apply. See [resolving](resolving.md).

## Spark or delta-rs

Both write the same tables, and may do so in turns. The location and the session decide which of them opens the tables:

| location | Spark session | opened by |
|---|---|---|
| `catalog.schema` | any session; without one, txnscan starts it | Spark |
| an object store, or a path on HDFS or DBFS | any session | Spark |
| a path of the driver's machine | with executors, or Spark Connect | Spark |
| a path of the driver's machine | with the master `local` or `local[N]` | delta-rs |
| a path, or an object store | none | delta-rs |

With a master `local`, Spark would also write in the driver's process, and a sweep takes twice as long
([figures](benchmarks.md#compared-with-kafkas-tool)). Spark writes even there if the extra `delta` is not installed, or
if a table has a feature of Delta that delta-rs does not know. `DESCRIBE HISTORY` names the writer of each commit in
`engineInfo`.

delta-rs cannot open a path with one of `[ ] ^ | \\`, a control character, bytes that are not UTF-8, or `%` before two
hexadecimal digits. Commands refuse such a path before they make tables.

## Clustering

The tables are partitioned by `cluster_id`, and `incidents` also by `is_open`. On Databricks they are clustered by
`cluster_id` instead, because Delta does not cluster a partitioned table. If a table was clustered, it has the features
`clustering` and `domainMetadata`. delta-rs cannot write such a table, and `DROP FEATURE` cannot remove them. To get rid
of them, let a sweep create tables at another location. Then copy each table in Spark:

```sql
INSERT OVERWRITE delta.`/data/txnscan-new/sweeps` BY NAME SELECT * FROM delta.`/data/txnscan/sweeps`;
```

`python -m tests.reference` makes this page from `txnscan/tables/schema.py`, `txnscan/sweeps/row.py` and
`txnscan/kafka/failure.py`.
"""
CODES_HEAD = """## Codes of failures

`scan_errors.code`, and `code` in each failure of `evidence`, is the name of an error of Kafka's protocol, such as
`NOT_LEADER_OR_FOLLOWER`, or one of these:

| code | meaning |
|---|---|
"""
CAUSES_HEAD = """# Known causes

Look up the bugs and settings that make transactions hang or get stuck, with their remedies. `txnscan check` reports
those to which your cluster is exposed, as far as its brokers show their release and their settings. *checked* means
verified on released jars or real brokers, *reported* means known from an issue or a pull request.

[Prevention](prevention.md) has the settings and the check that keep most of them from happening.

| cause | affects | symptom | remedy | source |
|---|---|---|---|---|
"""

ACLS_HEAD = """# ACLs

Grant the ACLs that txnscan needs, and no more. Use two principals:

- a reading principal for sweeps, which run unattended;
- an applying principal, which a person uses to send markers.

`txnscan check` lists the ACLs that its principal lacks, all at once, with the commands that grant them. Give it the
options of the sweep. With `--apply` it also asks for the ACLs of the applying principal.

`python -m tests.reference` makes this page from `txnscan/kafka/security/needs.py`, which `check` and sweeps use, too.

## Grant the reading principal

`check`, `find-hanging`, `explain`, `mcp`, `sweep`, `watch`, rehearsals of `apply`, and every command that lists or
describes need these ACLs. Without one of the last three, the sweep is complete, and has a warning:

"""
ACLS_READING = """
- The reading principal cannot write records, commit offsets, fence an id or send a marker: brokers refuse these without
  further ACLs.
- Its credentials can read every record of every topic, because Read is Kafka's smallest right for DescribeProducers.
  txnscan stores no key and no value of the records in your topics. To limit the right, grant Read only on some topics
  and sweep them with `--topic`, or bind the ACLs to the scanner's hosts (`kafka-acls.sh --add --allow-host HOST`).
- `sweep`, `plan` and `watch --tables` also write to [the tables](resolving.md#restrict-write-access-to-the-tables).

If an ACL is missing, the sweep reports it with the `kafka-acls.sh` command that grants it. The report is in the error,
and in the explanation of every transaction that is `indeterminate` because of it. A permanent DENY on a topic makes the
topic invisible, and no client can detect that.

"""
ACLS_APPLYING = """## Grant the applying principal

`apply --execute`, `abort` and `force-terminate` repeat the proof before they send. Their principal needs the ACLs
above, and in addition one of these:

"""
ACLS_END = """
- Alter on Cluster is the right of an administrator. Its credentials can also change ACLs and SCRAM passwords, and move
  partitions. ClusterAction is the right of a broker, which is no smaller. Kafka has no right for markers alone.
- With Write on a transactional id, a client can fence its producers and abort their transactions.
- Do not give these credentials to a scheduler or to `watch`. Keep them in a separate `client.properties`, which only
  the person who applies can read.

"""
ACLS_MACHINE = """## Needs of the machine

A sweep by threads needs neither Spark nor Java. For tables at a path or in an object store it needs `txnscan[delta]`. A
sweep by Spark's executors, or with tables in a catalog, needs:

"""
ACLS_LOAD = """
## Load on the brokers

Only `apply --execute`, `abort` and `force-terminate` send requests that change the cluster.

- txnscan sends at most `--in-flight` requests (2) to a broker at a time, each for at most `--batch-size` partitions
  (2,048).
- It waits for the throttle time of a broker.
- An unreachable broker costs each process a single connection timeout (8 s), not a timeout for each partition.
- A slow broker costs a [limited time](deployment/README.md#limit-the-time-of-a-sweep).
"""
# Strimzi's names of types of resources.
STRIMZI = {"Topic": "topic", "Group": "group", "TransactionalId": "transactionalId", "Cluster": "cluster"}


def commands() -> str:
    """The page of all commands."""
    parts = [COMMANDS_HEAD]
    for name in shown_commands():
        shown = CliRunner().invoke(app, [name, "--help"], terminal_width=100).stdout.rstrip()
        parts.append(f"## {name}\n\n```text\n{shown}\n```\n")
    return "\n".join(parts)


def shown_commands() -> list[str]:
    """The names of all commands that the help shows, in its order."""
    group: Any = get_command(app)
    return [name for name in group.list_commands(None) if not group.commands[name].hidden]


def tables() -> str:
    """The page of all tables."""
    parts = [TABLES_HEAD]
    for table in TABLES:
        rows = "\n".join(
            f"| `{column.name}` | {_type(column)}{'' if column.required else ', null'} | {column.meaning} |"
            for column in table.columns
        )
        parts.append(f"## `{table.name}`\n\n{table.meaning}.\n\n| column | type | meaning |\n|---|---|---|\n{rows}\n")
    codes = "\n".join(f"| `{code}` | {code.meaning} |" for code in FailureCode)
    return "\n".join([*parts, f"{CODES_HEAD}{codes}\n"])


def _type(column: StoredColumn) -> str:
    if isinstance(column.type, str):
        return column.type.lower()
    # A nested row has its own names; all of them would fill the page.
    return "array of struct" if spark_type(column.type).startswith("ARRAY") else "struct"


def known_causes() -> str:
    """The page of known causes."""
    rows = "\n".join(
        f"| {one.id} | {one.affects} | {one.symptom} | {one.remedy} | {one.source}; {one.certainty} |"
        for one in KNOWN_CAUSES
    )
    return f"{CAUSES_HEAD}{rows}\n"


def acls() -> str:
    """The page of ACLs."""
    applying = [one for one in ACLS if not one.use.only_reads]
    to_apply = [*TO_SCAN, *(one for one in ACLS if one.use is Use.APPLY)]
    return "".join(
        [
            *(ACLS_HEAD, _acl_rows(TO_SCAN), "\nWith Kafka's tool:\n\n", _acl_lines(TO_SCAN, "txnscan")),
            *("\nWith Strimzi:\n\n", _kafka_user(TO_SCAN, "txnscan"), ACLS_READING),
            *(ACLS_APPLYING, _acl_rows(applying), ACLS_END, "The whole set with Kafka's tool:\n\n"),
            *(_acl_lines(to_apply, "txnscan-apply"), "\nWith Strimzi:\n\n", _kafka_user(to_apply, "txnscan-apply")),
            *("\n", ACLS_MACHINE, *(f"- {one.what}\n" for one in NEEDS), ACLS_LOAD),
        ]
    )


def _acl_rows(wanted: Iterable[Acl]) -> str:
    rows = [f"| {one.operation} on {_resource(one)} | {one.reads} | {one.lacking} |" for one in wanted]
    return "\n".join(["| ACL | for | without it |", "|---|---|---|", *rows, ""])


def _resource(one: Acl) -> str:
    return one.resource_type if one.resource_type == "Cluster" else f"{one.resource_type} `*`"


def _acl_lines(wanted: Iterable[Acl], user: str) -> str:
    lines = grants([one.permission for one in wanted], f"User:{user}")
    return "```sh\n" + "\n".join(lines) + "\n```\n"


def _kafka_user(wanted: Iterable[Acl], user: str) -> str:
    """Strimzi's resource. Strimzi itself names the resource of the cluster."""
    by_type: dict[str, list[str]] = {}
    for one in wanted:
        by_type.setdefault(one.resource_type, []).append(one.operation)
    every = ', name: "*"'
    rules = [
        f"      - resource: {{type: {STRIMZI[kind]}{'' if kind == 'Cluster' else every}}}\n"
        f"        operations: [{', '.join(operations)}]\n"
        for kind, operations in by_type.items()
    ]
    return f"""```yaml
apiVersion: kafka.strimzi.io/v1
kind: KafkaUser
metadata:
  name: {user}
  labels:
    strimzi.io/cluster: my-cluster
spec:
  authentication:
    type: scram-sha-512
  authorization:
    type: simple
    acls:
{"".join(rules)}```
"""


def completion(shell: str) -> str:
    """The script that lets this shell complete the command line of txnscan. It asks `txnscan` itself."""
    script = get_completion_script(prog_name="txnscan", complete_var="_TXNSCAN_COMPLETE", shell=shell)
    if shell == "zsh":
        # zsh reads the file at the first completion, which shall have a result too.
        definition, declaration = script.rsplit("\n\n", 1)
        script = f"""{definition}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _txnscan_completion "$@"
else
  {declaration}
fi"""
    return f"{script}\n"


SHARED: dict[str, Callable[[], str]] = {
    "bash-completion/completions/txnscan": lambda: completion("bash"),
    "fish/vendor_completions.d/txnscan.fish": lambda: completion("fish"),
    "man/man1/txnscan.1": manual_page,
    "zsh/site-functions/_txnscan": lambda: completion("zsh"),
}
PAGES = {"commands.md": commands, "tables.md": tables, "known-causes.md": known_causes, "acls.md": acls}

if __name__ == "__main__":
    for name, made in PAGES.items():
        (DOCS / name).write_text(made(), "utf-8")
    for name, made in SHARED.items():
        (SHARE / name).parent.mkdir(parents=True, exist_ok=True)
        (SHARE / name).write_text(made(), "utf-8")
