"""The tools: what each takes, and how it reads its answer.

Each gives the object of its command's `--format json`. The connection is that of the command line: no argument names a
broker, a file or a credential.
"""

from __future__ import annotations

import fnmatch
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from txnscan.config import ScanConfig, parse_duration_ms
from txnscan.kafka.units import INT_MAX, LONG_MAX
from txnscan.mcp.bounded import FirstRows, bounded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnscan.tables.tables import Tables

# Items of a list without the argument `limit`, and the most that it may ask for.
ROWS_DEFAULT, ROWS_MAX = 20, 200
# Ids in one call. Each is a request to a coordinator at worst.
_IDS_MAX = 50

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Source:
    """The cluster and the tables. config: the settings of the command line. tables: opens the tables as they are now,
    if there are any. spark: starts a session, for tables that need it.
    """

    config: ScanConfig
    spark: Callable[[], SparkSession]
    tables: Callable[[], Tables] | None = None

    def opened(self) -> Tables:
        """The tables. Without tables the tools that need them do not exist."""
        if self.tables is None:
            raise ValueError("there are no tables")
        return self.tables()


@dataclass(frozen=True, slots=True)
class Answer:
    """found: an object of `--format json`. left_out: items that were counted and not kept, by the path of their list.
    notes: what the command prints on stderr.
    """

    found: Mapping[str, Any]
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadOnlyTool:
    """A tool. arguments: the JSON schema of each. narrow: how a caller gets what was left out."""

    name: str
    description: str
    read: Callable[[Source, Arguments, int], Answer]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    narrow: str = ""
    needs_tables: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of all arguments."""
        return {
            "type": "object",
            "properties": {**self.arguments, "limit": _LIMIT},
            "required": list(self.required),
            "additionalProperties": False,
        }

    def answer(self, source: Source, arguments: Arguments) -> dict[str, Any]:
        """The answer to arguments that follow the schema. Raises TxnscanError."""
        rows_max = arguments.get("limit", ROWS_DEFAULT)
        answer = self.read(source, arguments, rows_max)
        kept, left_out = bounded(answer.found, rows_max)
        left_out += Counter(answer.left_out)
        said = {"notes": list(answer.notes)} if answer.notes else {}
        narrow = {"to_narrow": f"{self.narrow}; or raise limit, up to {ROWS_MAX}"} if left_out else {}
        return {**kept, **said, "left_out": dict(left_out), **narrow}


def tools_for(source: Source) -> tuple[ReadOnlyTool, ...]:
    """The tools that this source can answer."""
    return tuple(tool for tool in TOOLS if source.tables is not None or not tool.needs_tables)


# --- the cluster


def _explain(source: Source, arguments: Arguments, _: int) -> Answer:
    from txnscan.api import explain_symptom
    from txnscan.explain.symptom import symptom
    from txnscan.report.explain import explained_object

    asked = symptom(**{name: arguments.get(name) for name in _SYMPTOM})
    # Checks the topic's name.
    config = replace(source.config, topic_names=() if asked.topic is None else (asked.topic,))
    return Answer(for_an_assistant(explained_object(explain_symptom(config, asked))))


def for_an_assistant(found: Mapping[str, Any]) -> dict[str, Any]:
    """An explanation without the next commands that change a cluster: only a person decides about these."""
    from txnscan.report.help import CHANGE_A_CLUSTER

    changing = tuple(f"txnscan {name} " for name in CHANGE_A_CLUSTER)
    return {**found, "next": [one for one in found["next"] if not one.startswith(changing)]}


def _check(source: Source, _: Arguments, __: int) -> Answer:
    from txnscan.api import check_sweep
    from txnscan.engine.spark.session import starts_jvm
    from txnscan.report.check import check_object
    from txnscan.tables.open import needs_spark

    needs_session = source.config.location is not None and needs_spark(source.config.location)
    starts = source.spark if needs_session else None
    return Answer(check_object(check_sweep(source.config, starts, starts_jvm=starts_jvm(None))))


def _find_hanging(source: Source, arguments: Arguments, _: int) -> Answer:
    from txnscan.api import find_hanging
    from txnscan.report.json import scan_object
    from txnscan.report.paragraphs import urgency

    config = replace(
        source.config,
        tables=None,
        topic_names=tuple(arguments.get("topic", ())),
        partitions=tuple(arguments.get("partition", ())),
        broker_ids=tuple(arguments.get("broker_id", ())),
    )
    found = scan_object(find_hanging(config))
    return Answer({**found, "transactions": sorted(found["transactions"], key=urgency)})


def _list(source: Source, arguments: Arguments, rows_max: int) -> Answer:
    from txnscan.coordinators.cluster import opened_cluster
    from txnscan.kafka.clock import wall_clock_ms
    from txnscan.kafka.protocol.list_transactions import ListingFilter
    from txnscan.report.admin_output import write_listed
    from txnscan.sweeps.scope import chosen_brokers

    wanted = ListingFilter(
        states=tuple(arguments.get("state", ())),
        producer_ids=tuple(arguments.get("producer_id", ())),
        longer_than_ms=arguments.get("duration_filter", -1),
        pattern=arguments.get("transactional_id_pattern"),
    )
    rows = FirstRows(rows_max)
    with opened_cluster(source.config) as cluster:
        brokers = chosen_brokers(cluster.newest([]), arguments.get("broker_id", ()))
        errors = write_listed(rows, cluster, brokers, wanted, wall_clock_ms)
    return Answer({"transactions": rows.kept, "errors": errors}, {"transactions": rows.left_out})


def _describe(source: Source, arguments: Arguments, _: int) -> Answer:
    from txnscan.coordinators.cluster import opened_cluster
    from txnscan.kafka.clock import wall_clock_ms
    from txnscan.report.admin_output import described_row, read_described

    with opened_cluster(source.config) as cluster:
        found, errors = read_described(cluster, arguments["transactional_id"], wall_clock_ms, time.sleep)
    return Answer({"transactions": [described_row(one) for one in found], "errors": errors})


# --- the tables


def _history(source: Source, arguments: Arguments, rows_max: int) -> Answer:
    from txnscan.tables.history import counted, life, remembered

    tables = source.opened()
    if "incident" in arguments:
        return Answer(asdict(life(tables, arguments["incident"])))
    cluster_id = arguments.get("cluster_id")
    found = asdict(remembered(tables, cluster_id, rows_max))
    total = counted(tables, cluster_id)
    return Answer(found, {name: max(total[name] - len(rows), 0) for name, rows in found.items()})


def glob(text: str) -> str:
    """The regular expression for a name in which `*` stands for any text and `?` for a character. Its time grows with
    the product of both lengths: an expression of an assistant's own could keep this process busy for years, as Python's
    `re` cannot be interrupted.
    """
    return fnmatch.translate(text.replace("[", "[[]"))


def _plan(source: Source, arguments: Arguments, _: int) -> Answer:
    from txnscan.kafka.clock import wall_clock_ms
    from txnscan.resolve.guard import Limits
    from txnscan.resolve.plan import plan_object
    from txnscan.resolve.plan_of_sweep import plan_of
    from txnscan.tables.selection import Stale, find_sweep, stale

    patterns = tuple(map(glob, arguments.get("topic", ())))
    max_age = arguments.get("max_age")
    max_age_ms = None if max_age is None else parse_duration_ms(max_age, "--max-age")
    tables = source.opened()
    chosen = find_sweep(tables, arguments.get("cluster_id"), arguments.get("sweep_id"))
    too_old = stale(chosen.sweep, max_age_ms, wall_clock_ms())
    if too_old is not None:
        raise Stale(too_old)
    limits = Limits(consumer_offsets=arguments.get("include_consumer_offsets", False))
    return Answer(plan_object(plan_of(tables, chosen.sweep, limits, patterns)), notes=(*chosen.notes, _NO_FILE))


_NO_FILE = (
    "this plan is stored nowhere, and apply refuses it; `txnscan plan --tables ... --out FILE` makes one to apply"
)

# --- the table of tools

_LIMIT = {
    "type": "integer",
    "minimum": 1,
    "maximum": ROWS_MAX,
    "default": ROWS_DEFAULT,
    "description": "The most items of each list in the answer.",
}
_ID = {"type": "integer", "minimum": 0, "maximum": LONG_MAX}
# As many characters as the name of a topic can have.
_NAME_MAX, _TOPICS_MAX = 249, 100
_NUMBER = {"type": "integer", "minimum": 0, "maximum": INT_MAX}
_TEXT = {"type": "string", "minLength": 1}
_BROKER_ID = {"type": "array", "items": _NUMBER, "description": "Only these brokers."}
_CLUSTER_ID = {**_TEXT, "description": "Only this cluster."}
_SYMPTOM = ("group", "topic", "partition", "transactional_id", "producer_id", "error")

TOOLS: tuple[ReadOnlyTool, ...] = (
    ReadOnlyTool(
        "explain",
        "Explain why a consumer group, a topic, a transactional id or a producer makes no progress, or what an error "
        "of a Kafka client means. Give one of group, topic, transactional_id, producer_id and error; partition narrows "
        "topic, and error may stand beside an id. The answer has a cause, a sentence, evidence, and the next commands "
        "for a person. Start here.",
        _explain,
        {
            "group": {**_TEXT, "description": "A consumer group that is stuck, or has lag."},
            "topic": {**_TEXT, "description": "A topic whose readers, lag or compaction are stuck."},
            "partition": {**_NUMBER, "description": "Only this partition of topic."},
            "transactional_id": {**_TEXT, "description": "A transactional id that is stuck."},
            "producer_id": {**_ID, "description": "A producer id, as logs and brokers show it."},
            "error": {**_TEXT, "description": "Lines of a client's or a broker's log."},
        },
        narrow="give a partition",
    ),
    ReadOnlyTool(
        "check",
        "Check whether a sweep can observe everything: connection, security, ACLs, APIs, coordinators, clock, and the "
        "known causes of hanging transactions to which the cluster is exposed. Each finding has a level and a remedy. "
        "Use it if an answer is indeterminate, incomplete or not_observed.",
        _check,
        narrow="each finding has an area; fix those of level failed first",
    ),
    ReadOnlyTool(
        "find_hanging",
        "Sweep the cluster for open transactions, and prove which ones hang. Without topic it reads every partition. "
        "Only the verdict hanging is proven; indeterminate means that it could not be observed, with the reason. "
        "Those that most readers wait for come first.",
        _find_hanging,
        {
            "topic": {"type": "array", "items": _TEXT, "description": "Only these topics, by name."},
            "partition": {"type": "array", "items": _NUMBER, "description": "Only these partitions of topic."},
            "broker_id": {**_BROKER_ID, "description": "Only partitions that these brokers lead."},
        },
        narrow="give a topic and a partition",
    ),
    ReadOnlyTool(
        "list_transactions",
        "List transactional ids as all coordinators report them: state, age, timeout. All filters must match.",
        _list,
        {
            "state": {
                "type": "array",
                "items": {
                    "enum": ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]
                },
                "description": "Only ids in one of these states.",
            },
            "producer_id": {"type": "array", "items": _ID, "description": "Only ids that have one of these now."},
            "duration_filter": {
                "type": "integer",
                "minimum": 0,
                "maximum": LONG_MAX,
                "description": "Only transactions that began longer ago, in milliseconds (Kafka 3.8 and newer).",
            },
            "transactional_id_pattern": {
                **_TEXT,
                "description": "A regular expression for the whole id (Kafka 4.1 and newer).",
            },
            "broker_id": {**_BROKER_ID, "description": "Only ids of these coordinators."},
        },
        narrow="give state, duration_filter, transactional_id_pattern, producer_id or broker_id",
    ),
    ReadOnlyTool(
        "describe_transaction",
        "Describe the transaction of transactional ids: state, age, timeout, coordinator, and the last stable offset "
        "and high watermark of its partitions.",
        _describe,
        {
            "transactional_id": {
                "type": "array",
                "items": _TEXT,
                "minItems": 1,
                "maxItems": _IDS_MAX,
                "description": "The ids.",
            }
        },
        required=("transactional_id",),
        narrow="give fewer ids",
    ),
    ReadOnlyTool(
        "history",
        "Show the history in the tables: the last sweeps, the incidents (hanging transactions, open ones first) and "
        "the journal of apply. With incident: how each sweep saw this one, and what was done about it.",
        _history,
        {
            "incident": {
                "type": "string",
                "pattern": "^[A-Za-z0-9]+$",
                "description": "An incident id, or its beginning.",
            },
            "cluster_id": _CLUSTER_ID,
        },
        narrow="give an incident or a cluster_id",
        needs_tables=True,
    ),
    ReadOnlyTool(
        "plan",
        "Show what `txnscan apply` would do about the hanging transactions of the last stored sweep: the markers, and "
        "each refusal with its guard. Read-only: it stores no plan and sends no marker. Only a person can plan and "
        "apply, with the commands `txnscan plan` and `txnscan apply`.",
        _plan,
        {
            "topic": {
                "type": "array",
                "items": {**_TEXT, "maxLength": _NAME_MAX},
                "maxItems": _TOPICS_MAX,
                "description": "Only these topics. * stands for any text, ? for a character.",
            },
            "include_consumer_offsets": {
                "type": "boolean",
                "description": "Also __consumer_offsets and __share_group_state.",
            },
            "max_age": {**_TEXT, "description": "Fail if the sweep began longer ago, such as 15m."},
            "sweep_id": {**_TEXT, "description": "This sweep. Default: the last one of the whole cluster."},
            "cluster_id": _CLUSTER_ID,
        },
        narrow="give a topic",
        needs_tables=True,
    ),
)
