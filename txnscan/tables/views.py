"""Views over the tables, for dashboards and data-quality checks: a contract that is narrower than the tables.

Written in Spark SQL. In a catalog they are created beside the tables; for tables at a path they are temporary views of
a session.
"""

from __future__ import annotations

from dataclasses import dataclass

from txnscan.config import Location
from txnscan.tables.schema import CANDIDATES, INCIDENTS, OPEN_TRANSACTIONS, SWEEPS, TOPIC_READS, Table


@dataclass(frozen=True, slots=True)
class View:
    """A view, what it is for, and its query, in which `{name}` stands for a table."""

    name: str
    meaning: str
    query: str


_LAST_FULL = (
    "(SELECT cluster_id, max_by(sweep_id, started_at) AS sweep_id FROM {sweeps} "
    "WHERE scope = 'all' GROUP BY cluster_id)"
)
VIEWS = (
    View(
        "current_candidates",
        "Hanging and late transactions in the last full sweep of each cluster",
        "SELECT c.* FROM {candidates} AS c JOIN " + _LAST_FULL + " AS l ON c.sweep_id = l.sweep_id",
    ),
    View(
        "current_transactions",
        "Stored open transactions in the last full sweep of each cluster, without the evidence. "
        "Healthy transactions are stored only with --store-all, or if they may hold readers back",
        "SELECT t.* EXCEPT (evidence, disk_read) FROM {open_transactions} AS t JOIN "
        + _LAST_FULL
        + " AS l ON t.sweep_id = l.sweep_id",
    ),
    View(
        "blocking_transactions",
        "Live transactions that hold readers back, in the last full sweep of each cluster: owner, records and groups "
        "that wait, and the time by which the coordinator ends them. They do not hang",
        "SELECT t.cluster_id, t.sweep_id, t.started_at, t.topic, t.partition, t.transactional_id, t.framework, "
        "t.verdict, t.producer_id, t.start_offset, t.age_ms, t.ends_by, t.blocked_records, t.groups_blocked, "
        "transform(t.blocked_groups, g -> g.group) AS groups FROM {open_transactions} AS t JOIN "
        + _LAST_FULL
        + " AS l ON t.sweep_id = l.sweep_id WHERE t.blocking",
    ),
    View(
        "open_incidents",
        "Hanging transactions without proof of their end",
        "SELECT incident_id, cluster_id, topic, partition, producer_id, producer_epoch, start_offset, reason, outcome, "
        "transactional_id, blocked_records, event_id, first_seen_at, last_seen_at, sweeps, "
        "CAST(unix_timestamp(last_seen_at) - unix_timestamp(first_seen_at) AS BIGINT) AS seen_for_s "
        "FROM {incidents} WHERE is_open",
    ),
    View(
        "events",
        "Events: hanging transactions that share producer id, owner or cause, and time. open is the number of "
        "incidents without proof of their end",
        "SELECT event_id, cluster_id, min(first_seen_at) AS first_seen_at, max(last_seen_at) AS last_seen_at, "
        "CASE WHEN count_if(is_open) = 0 THEN max(resolved_at) END AS resolved_at, "
        "count(*) AS incidents, count_if(is_open) AS open, array_sort(collect_set(topic)) AS topics, "
        "array_sort(collect_set(cause)) AS causes, array_sort(collect_set(owner_id)) AS owner_ids, "
        "coalesce(sum(CASE WHEN is_open THEN blocked_records END), 0) AS blocked_records "
        "FROM {incidents} WHERE event_id IS NOT NULL GROUP BY event_id, cluster_id",
    ),
    View(
        "incidents_by_day",
        "Number of incidents that began and ended on each day (UTC), of each cluster",
        "SELECT cluster_id, day, sum(opened) AS opened, sum(closed) AS closed FROM ("
        "SELECT cluster_id, to_date(first_seen_at) AS day, 1 AS opened, 0 AS closed FROM {incidents} UNION ALL "
        "SELECT cluster_id, to_date(resolved_at), 0, 1 FROM {incidents} WHERE NOT is_open"
        ") GROUP BY cluster_id, day",
    ),
    View(
        "coverage",
        "Share of partitions and coordinators that each sweep observed, 1 is all",
        "SELECT sweep_id, cluster_id, started_at, scope, complete, "
        "partitions_answered / greatest(partitions_planned, 1) AS partitions, "
        "CASE WHEN coordinators_planned = 0 THEN 1.0 ELSE coordinators_proven / coordinators_planned END "
        "AS coordinators, indeterminate, CAST(unix_timestamp(finished_at) - unix_timestamp(started_at) AS BIGINT) "
        "AS took_s FROM {sweeps}",
    ),
    View(
        "time_to_resolve",
        "Duration of each closed incident, and how it ended",
        "SELECT incident_id, cluster_id, topic, partition, reason, resolved_how, first_seen_at, resolved_at, "
        "CAST(unix_timestamp(resolved_at) - unix_timestamp(first_seen_at) AS BIGINT) AS lasted_s "
        "FROM {incidents} WHERE NOT is_open",
    ),
    View(
        "worst_topics",
        "Topics with their number of incidents and the records that they block now",
        "SELECT cluster_id, topic, count(*) AS incidents, count_if(is_open) AS open, "
        "coalesce(sum(CASE WHEN is_open THEN blocked_records END), 0) AS blocked_records "
        "FROM {incidents} GROUP BY cluster_id, topic",
    ),
    View(
        "complete_up_to",
        "Topics of --complete-up-to: the time up to which read_committed consumers can read everything, by the last "
        "sweep that read the topic; null if it is not known",
        "SELECT cluster_id, topic, last.complete_up_to, last.status, last.read_at, last.sweep_id, "
        "coalesce(last.code, get(filter(last.partitions, p -> p.code IS NOT NULL), 0).code) AS code, "
        "transform(filter(last.partitions, p -> p.code IS NOT NULL), p -> p.partition) AS not_observed, "
        "transform(filter(last.partitions, p -> p.last_stable_offset < p.high_watermark), p -> p.partition) AS blocked "
        "FROM (SELECT t.cluster_id, t.topic, max_by(struct(t.*), t.read_at) AS last FROM {topic_reads} AS t "
        "LEFT SEMI JOIN {sweeps} AS s ON t.sweep_id = s.sweep_id GROUP BY t.cluster_id, t.topic)",
    ),
)
_TABLES: tuple[Table, ...] = (CANDIDATES, INCIDENTS, OPEN_TRANSACTIONS, SWEEPS, TOPIC_READS)


def view_statements(location: Location) -> list[str]:
    """The statements that create the views over the tables there."""
    names = {table.name: location.sql_name(table.name) for table in _TABLES}
    kind = "VIEW" if location.in_catalog else "TEMPORARY VIEW"
    return [
        f"CREATE OR REPLACE {kind} {view_name(view, location)} COMMENT '{view.meaning}' AS\n"
        + view.query.format(**names)
        for view in VIEWS
    ]


def view_name(view: View, location: Location) -> str:
    """The view's name in SQL."""
    return location.of_table(view.name) if location.in_catalog else f"txnscan_{view.name}"
