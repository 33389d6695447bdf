"""`txnscan check`: test in advance whether a sweep could observe everything, and whether an apply would work.

Every check only reads. The result is a list of findings, each with a remedy. A failed check is a finding, not an
exception. Spark is started only for tables that cannot be read without it.
"""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from txnscan.config import (
    ScanConfig,
    printable,
)
from txnscan.coordinators.cluster import Cluster, ClusterUnreachable, clients_of
from txnscan.coordinators.metadata_image import Latest, merged
from txnscan.engine.spark.java import JavaError, delta_jars, find_java, is_fetched, major_version
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.client.deadline import QUESTION_MS
from txnscan.kafka.errors import API_SINCE, ErrorCode, RequestFailed
from txnscan.kafka.failure import Failure, FailureCode, Permission
from txnscan.kafka.protocol.api_versions import API_KEYS, ApiVersions
from txnscan.kafka.protocol.describe_cluster import cluster_operations
from txnscan.kafka.protocol.describe_log_dirs import describe_log_dirs
from txnscan.kafka.protocol.describe_producers import describe_producers
from txnscan.kafka.protocol.list_offsets import newest
from txnscan.kafka.security.acls import DESCRIBE_CLUSTER, needing
from txnscan.kafka.topology import (
    NO_LEADER_ID,
    NO_LISTENER_ID,
    TRANSACTION_STATE_TOPIC,
    ClusterView,
    Partition,
    Topic,
)
from txnscan.kafka.units import duration, plural
from txnscan.sweeps.write_states import leaderless_in, read_in_danger
from txnscan.waiting.exposure import read_exposure, read_versions
from txnscan.waiting.groups import hidden_groups
from txnscan.waiting.in_sync import read_no_log, read_stopped
from txnscan.waiting.known_causes import exposed, sentence
from txnscan.waiting.writability import doubt_warning, log_warning, no_log_reason, no_log_remedy, partition_warning

_ALTER = Permission("Alter", "Cluster")
_CLUSTER_REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED.name
Item = TypeVar("Item")

# Records in these topics carry the time of the broker that appended them.
_BROKERS_OWN = (TRANSACTION_STATE_TOPIC, "__consumer_offsets")
# A smaller difference may be the duration of the request, or the difference between clocks under NTP.
_SKEW_MS_MAX = 5_000
_TOPICS_A_REQUEST = 500
_NAMED_MAX = 3


class Level(StrEnum):
    """The severity of a finding. NOTE: a sweep would still observe everything. INCOMPLETE: it would not. FAILED: no
    sweep is possible.
    """

    OK = "ok"
    NOTE = "note"
    INCOMPLETE = "incomplete"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, in one sentence with a remedy. area: connection, metadata, security, apis, acls,
    coordinators, partitions, clock, causes, java or tables.
    """

    area: str
    level: Level
    said: str


@dataclass(frozen=True, slots=True)
class Checked:
    """All findings, and the id of the cluster if it was reached."""

    cluster_id: str | None
    findings: tuple[Finding, ...]

    @property
    def level(self) -> Level:
        """The worst level of all findings."""
        levels = list(Level)
        return max((one.level for one in self.findings), key=levels.index)


def check(
    config: ScanConfig, *, now_ms: Callable[[], int], sweep_id: str, check_tables: Callable[[str], Iterable[Finding]]
) -> Checked:
    """Runs all checks. check_tables: called with the location of the tables, if one is set (`tables/preflight.py`).

    Raises ConfigError for settings that cannot be used.
    """
    settings = config.connection()
    findings = list(check_security(settings))
    findings += [Finding("security", Level.NOTE, said) for said in config.exposed_files()]
    cluster_id = None
    clients = clients_of(config, settings, sweep_id, QUESTION_MS)
    with Cluster(clients, deadline=clients.client().deadline) as cluster:
        try:
            latest = cluster.latest()
        except ClusterUnreachable as error:
            findings.append(Finding("connection", Level.FAILED, str(error)))
        else:
            cluster_id = latest.view.cluster_id
            findings += check_cluster(cluster, latest, now_ms)
    findings += check_java(config.tables is not None)
    if config.tables is not None:
        findings += check_tables(config.tables)
    return Checked(cluster_id, tuple(findings))


def check_security(settings: ConnectionSettings) -> Iterator[Finding]:
    """How the connections are secured, and a note for each weakness. Pure."""
    yield Finding("security", Level.OK, _security(settings))
    if settings.sasl_mechanism == "PLAIN" and settings.tls is None:
        said = "PLAIN without TLS sends the password readable; set security.protocol=SASL_SSL, or use SCRAM"
        yield Finding("security", Level.NOTE, said)
    if settings.tls is not None and not settings.tls.check_hostname:
        said = "the brokers' host names are not checked; remove ssl.endpoint.identification.algorithm"
        yield Finding("security", Level.NOTE, said)


def _security(settings: ConnectionSettings) -> str:
    protocol = settings.security_protocol
    if settings.sasl_mechanism is not None:
        return f"{protocol} with {settings.sasl_mechanism}, as {printable(settings.principal)}"
    if settings.tls is not None and settings.tls.certificate_pem is not None:
        return f"{protocol}, with a client certificate"
    return f"{protocol}, without credentials" + ("" if settings.tls else ", and not encrypted")


# --- the cluster


def check_cluster(cluster: Cluster, latest: Latest, now_ms: Callable[[], int]) -> Iterator[Finding]:
    """Checks the brokers' answers, and this principal's permissions."""
    view = latest.view
    brokers = sorted(broker.broker_id for broker in view.brokers)
    versions, failures = read_versions(cluster, brokers)
    reached, failed = sorted(versions), [one.error for one in failures]
    if failed:
        said = f"{len(reached)} of {len(brokers)} brokers answer: {merged(failed)}"
        yield Finding("connection", Level.INCOMPLETE, said)
    else:
        yield Finding("connection", Level.OK, f"{plural(len(brokers), 'broker')}, and all of them answer")
    yield from _metadata(cluster, latest)
    yield from _apis(versions)
    yield from _acls(cluster, view, reached)
    yield from _coordinators(cluster)
    yield from _partitions(view)
    yield from _writes(cluster, view, now_ms)
    yield from _clock(cluster, view, reached, now_ms)
    yield from _causes(cluster, versions)


def _metadata(cluster: Cluster, latest: Latest) -> Iterator[Finding]:
    """How current each broker's metadata is. Unreachable brokers are reported under `connection`."""
    missing = frozenset(one for one in latest.unreachable() if one.failure.code != FailureCode.BROKER_BEHIND)
    late = [one for one in cluster.lagging(latest, latest.offset) if one not in missing]
    yield from (Finding("metadata", Level.INCOMPLETE, cluster.format_failure(one.failure)) for one in late)
    if latest.disputed:
        names = [f"{topic}-{index}" for topic, index in sorted(latest.disputed)]
        yield Finding("metadata", Level.INCOMPLETE, f"brokers disagree on who leads {named(names)}; run it again")
    elif latest.outside_kraft and not late:
        yield Finding("metadata", Level.OK, "all brokers have the same leaders")
    elif latest.offset is not None and not late:
        lag = latest.offset - min(latest.behind(latest.offset).values(), default=latest.offset)
        behind = f", at most {plural(lag, 'record')} behind" if lag else ""
        yield Finding("metadata", Level.OK, f"current on all brokers (offset {latest.offset:,}{behind})")


def _apis(versions: Mapping[int, ApiVersions]) -> Iterator[Finding]:
    fine = True
    for api, key in API_KEYS.items():
        lacking = sorted(broker_id for broker_id, known in versions.items() if key not in known.apis)
        if lacking:
            fine = False
            since = f", which is of Kafka {API_SINCE[api]} and newer: upgrade" if api in API_SINCE else ""
            level = Level.NOTE if api == "WriteTxnMarkers" else Level.INCOMPLETE
            yield Finding("apis", level, f"{_brokers(lacking)} without {api}{since}")
    if fine and versions:
        yield Finding("apis", Level.OK, "every broker has every API that a sweep and an apply send")


def _acls(cluster: Cluster, view: ClusterView, brokers: Sequence[int]) -> Iterator[Finding]:
    missing = []
    hidden = cluster.hidden_topics()
    if hidden is not None:
        missing.append(Finding("acls", Level.INCOMPLETE, cluster.format_failure(hidden)))
    missing += _unreadable(cluster, view.topics)
    unseen = hidden_groups(cluster.send, brokers, cluster.random_token())
    if unseen is not None:
        said = f"which groups wait behind what hangs is not known: {cluster.format_failure(unseen)}"
        missing.append(Finding("acls", Level.NOTE, said))
    missing += _disks(cluster, brokers)
    _, config_errors = cluster.max_timeout_ms()
    missing += [Finding("acls", Level.INCOMPLETE, cluster.format_failure(error.failure)) for error in config_errors[:1]]
    for broker_id in brokers[:1]:
        try:
            may = cluster_operations(cluster.send, broker_id)
        except RequestFailed:
            # Older brokers do not report the operations.
            continue
        if "Describe" in may and not may & {"Alter", "ClusterAction"}:
            refused = Failure("apply --execute would be refused", _CLUSTER_REFUSED, needs=_ALTER)
            missing.append(Finding("acls", Level.NOTE, cluster.format_failure(refused)))
    yield from missing or [Finding("acls", Level.OK, "every topic is visible, and one partition of each could be read")]


def _disks(cluster: Cluster, brokers: Sequence[int]) -> list[Finding]:
    """Whether a broker reports its log directories. The request is about no partition."""
    for broker_id in brokers[:1]:
        try:
            describe_log_dirs(cluster.send, broker_id, ())
        except RequestFailed as failed:
            why = cluster.format_failure(needing(failed.failure, DESCRIBE_CLUSTER))
            return [Finding("acls", Level.NOTE, f"the disks behind blocked compaction are not known: {why}")]
    return []


def _causes(cluster: Cluster, versions: Mapping[int, ApiVersions]) -> Iterator[Finding]:
    """The known causes of hanging transactions to which the cluster is exposed (`waiting/known_causes.py`)."""
    # Other checks report settings that this principal may not read.
    exposure = read_exposure(cluster, versions)
    found = [Finding("causes", Level.NOTE, sentence(cause, exposure)) for cause in exposed(exposure)]
    yield from found or [
        Finding("causes", Level.OK, "the brokers show none of the known causes of hanging transactions")
    ]


def _unreadable(cluster: Cluster, topics: Sequence[Topic]) -> list[Finding]:
    """The topics that this principal may not read, found by reading one partition of each."""
    by_leader: dict[int, dict[str, tuple[int, ...]]] = defaultdict(dict)
    for topic in topics:
        led = ((leader, index) for index, leader in zip(topic.indexes, topic.leaders, strict=True) if leader >= 0)
        for leader, index in list(led)[:1]:
            by_leader[leader][topic.name] = (index,)
    refused: dict[Failure, list[str]] = defaultdict(list)
    for leader, indexes in by_leader.items():
        for names in _groups(sorted(indexes), _TOPICS_A_REQUEST):
            try:
                answers = describe_producers(cluster.send, leader, {name: indexes[name] for name in names})
            except RequestFailed as failed:
                refused[failed.failure].extend(names)
                continue
            for (name, _), answer in answers.items():
                if answer.failure is not None:
                    refused[answer.failure].append(name)
    findings = []
    for failure, names in sorted(refused.items(), key=lambda item: (item[0].error, item[1])):
        name = names[0] if len(names) == 1 else "*"
        why = cluster.format_failure(needing(failure, Permission("Read", "Topic", name)))
        findings.append(Finding("acls", Level.INCOMPLETE, f"{named(names)} cannot be read: {why}"))
    return findings


def _coordinators(cluster: Cluster) -> Iterator[Finding]:
    agreed = cluster.agreed_metadata([TRANSACTION_STATE_TOPIC])
    separated = cluster.separate_by_claim({}, (), agreed, lambda done, total: None, read_from_ms=0)
    snapshot = cluster.snapshot({}, agreed, lambda done, total: None)
    if snapshot.visibility_failures:
        said = "; ".join(map(cluster.format_failure, snapshot.visibility_failures))
        yield Finding("acls", Level.INCOMPLETE, said)
    if not snapshot.coordinators_planned and separated.transactional_ids:
        ids = plural(separated.transactional_ids, "transactional id")
        yield Finding(
            "coordinators",
            Level.INCOMPLETE,
            f"{ids} in a transaction and no {TRANSACTION_STATE_TOPIC}, as where brokers keep it elsewhere (Redpanda): "
            "nothing can be proven here, nothing is called hanging, and no COMMIT is ever sent",
        )
    elif not snapshot.coordinators_planned and (no_log := _no_log(cluster)) is not None:
        yield no_log
    elif not snapshot.coordinators_planned:
        yield Finding("coordinators", Level.OK, f"there is no {TRANSACTION_STATE_TOPIC}: no transaction ever ran here")
    elif snapshot.coverage_failure is not None:
        proven = f"{snapshot.coordinators_proven} of {snapshot.coordinators_planned} coordinator partitions proven"
        why = cluster.format_failure(snapshot.coverage_failure)
        yield Finding("coordinators", Level.INCOMPLETE, f"{proven}: {why}")
    else:
        ids = plural(separated.transactional_ids, "transactional id")
        count = snapshot.coordinators_planned
        yield Finding(
            "coordinators", Level.OK, f"all {count} coordinator partitions proven, with {ids} in a transaction"
        )


def _partitions(view: ClusterView) -> Iterator[Finding]:
    leaderless: dict[int, list[str]] = {NO_LEADER_ID: [], NO_LISTENER_ID: []}
    for topic in view.topics:
        for index, leader in zip(topic.indexes, topic.leaders, strict=True):
            if leader < 0:
                what = NO_LISTENER_ID if leader == NO_LISTENER_ID else NO_LEADER_ID
                leaderless[what].append(f"{topic.name}-{index}")
    total = sum(len(topic.indexes) for topic in view.topics)
    for leader, said, remedy in (
        (NO_LEADER_ID, "have no leader", "start the brokers that hold them"),
        (
            NO_LISTENER_ID,
            "have a leader without the listener that txnscan connects to",
            "give each broker this listener",
        ),
    ):
        names = leaderless[leader]
        if names:
            yield Finding(
                "partitions", Level.INCOMPLETE, f"{len(names)} of {total:,} {said} ({named(names)}): {remedy}"
            )
    if not any(leaderless.values()):
        yield Finding(
            "partitions",
            Level.OK,
            f"{plural(total, 'partition')} of {plural(len(view.topics), 'topic')}, each with a leader",
        )


def _no_log(cluster: Cluster) -> Finding | None:
    """A note if `__transaction_state` does not exist, and too few brokers run to create it."""
    found = read_no_log(cluster, cluster.newest([TRANSACTION_STATE_TOPIC]))
    if found is None or not found.cannot_be_made:
        return None
    return Finding(
        "coordinators", Level.NOTE, f"no transaction can begin: {no_log_reason(found)}. {no_log_remedy(found)}"
    )


def _writes(cluster: Cluster, view: ClusterView, now_ms: Callable[[], int]) -> Iterator[Finding]:
    """The partitions that take no writes, so that transactions do not end there, and markers that will be lost."""
    asked, leaderless = view.answered_by, leaderless_in(view.topics)
    states, in_danger = read_in_danger(cluster, asked, (), leaderless, now_ms)
    try:
        stopped = read_stopped(cluster, asked)
    except RequestFailed as failed:
        why = cluster.format_failure(failed.failure)
        yield Finding("partitions", Level.NOTE, f"it is not known which partitions take writes: {why}")
        return
    found = (
        ("coordinators", log_warning(states)),
        ("coordinators", doubt_warning(states)),
        ("partitions", partition_warning(stopped)),
        ("partitions", in_danger),
    )
    yield from (Finding(area, Level.NOTE, said) for area, said in found if said is not None)


def _clock(cluster: Cluster, view: ClusterView, brokers: Sequence[int], now_ms: Callable[[], int]) -> Iterator[Finding]:
    """Compares the brokers' clocks with this machine's, by the newest timestamp in topics that brokers stamp. Only a
    clock that is ahead can be detected: an old timestamp may belong to an old record.
    """
    led: dict[int, list[Partition]] = defaultdict(list)
    for topic in view.topics:
        if topic.name in _BROKERS_OWN:
            for index in topic.indexes:
                (partition,) = topic.at(index)
                if partition.leader in brokers:
                    led[partition.leader].append(partition)
    ahead: dict[int, int] = {}
    for broker_id, partitions in sorted(led.items()):
        try:
            answers = newest(cluster.send, broker_id, partitions)
        except RequestFailed:
            continue
        stamps = [answer.timestamp_ms for answer in answers.values() if answer.timestamp_ms >= 0]
        if stamps:
            ahead[broker_id] = max(stamps) - now_ms()
    if not ahead:
        yield Finding("clock", Level.OK, "no broker has stamped a record yet, so that none shows its clock")
        return
    fast = {broker_id: ms for broker_id, ms in ahead.items() if ms > _SKEW_MS_MAX}
    for broker_id, ms in fast.items():
        said = (
            f"the clock of a broker is at least {duration(ms)} ahead of this machine's (by a record that broker "
            f"{broker_id} leads): set both by NTP; ages are counted by this machine's clock"
        )
        yield Finding("clock", Level.NOTE, said)
    if not fast:
        last = duration(max(-max(ahead.values()), 0))
        said = f"no broker's clock is ahead of this machine's (the newest record that one stamped is {last} old)"
        yield Finding("clock", Level.OK, said)


# --- this machine


def check_java(needed: bool) -> Iterator[Finding]:
    """Whether Spark and Java are installed. needed: whether tables are configured; `find-hanging` needs neither Spark
    nor Java.
    """
    level = Level.FAILED if needed else Level.NOTE
    without = "" if needed else "; find-hanging needs none"
    if importlib.util.find_spec("pyspark") is None:
        yield Finding("java", level, f"Spark is not installed: install txnscan[spark]{without}")
        return
    try:
        executable = find_java()
        fetched = is_fetched(delta_jars())
    except JavaError as error:
        yield Finding("java", level, f"{error}{without}")
        return
    delta = "Delta's jars are here" if fetched else "Delta's jars are downloaded at the first sweep"
    yield Finding("java", Level.OK, f"{executable} is Java {major_version(str(executable))}, and {delta}")


# --- words


def _groups(items: Sequence[Item], size: int) -> Iterable[Sequence[Item]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def named(names: Sequence[str]) -> str:
    """The first of these names, and the number of the others."""
    shown = ", ".join(printable(name) for name in names[:_NAMED_MAX])
    return shown if len(names) <= _NAMED_MAX else f"{shown} and {len(names) - _NAMED_MAX} more"


def _brokers(broker_ids: Sequence[int]) -> str:
    named = ", ".join(map(str, broker_ids))
    return f"broker {named} is" if len(broker_ids) == 1 else f"brokers {named} are"
