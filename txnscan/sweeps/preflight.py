"""`txnscan check`: test in advance whether a sweep could observe everything, and whether an apply would work.

Every check only reads. The result is a list of findings, each with a remedy. A failed check is a finding, not an
exception. The needs are not listed here: ACLs are in `kafka/security/needs.py`, needs of this machine in `machine.py`,
and those of tables in `tables/creation.py`. A sweep itself asks the same functions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from txnscan.config import EngineName, Location, ScanConfig, printable
from txnscan.coordinators.cluster import Cluster, ClusterUnreachable, clients_of
from txnscan.coordinators.metadata_image import Latest, merged
from txnscan.errors import TxnscanError
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.client.deadline import QUESTION_MS
from txnscan.kafka.errors import API_SINCE, RequestFailed
from txnscan.kafka.failure import Failure, FailureCode, Permission
from txnscan.kafka.protocol.api_versions import API_KEYS, ApiVersions
from txnscan.kafka.protocol.describe_log_dirs import describe_log_dirs
from txnscan.kafka.protocol.list_offsets import newest
from txnscan.kafka.security.acls import UNKNOWN_PRINCIPAL, needing
from txnscan.kafka.security.needs import DESCRIBE_CLUSTER, Use
from txnscan.kafka.topology import (
    NO_LEADER_ID,
    NO_LISTENER_ID,
    TRANSACTION_STATE_TOPIC,
    ClusterView,
    Partition,
    Topic,
)
from txnscan.kafka.units import brokers_named, duration, first_of, plural
from txnscan.sweeps.checkpoints import OpenFiles, open_files, read_positions
from txnscan.sweeps.machine import Part, lacking
from txnscan.sweeps.permissions import Asked, Lacking, permissions_of, read_lacking
from txnscan.sweeps.scope import check_scope, in_scope
from txnscan.sweeps.write_states import leaderless_in, read_in_danger
from txnscan.waiting.exposure import read_exposure, read_versions
from txnscan.waiting.in_sync import read_no_log, read_stopped
from txnscan.waiting.known_causes import exposed, sentence
from txnscan.waiting.writability import doubt_warning, log_warning, no_log_reason, no_log_remedy, partition_warning

# The needs of a sweep, and the further needs of an apply.
SCANNING = frozenset({Use.PROOF, Use.IMPACT})
APPLYING = frozenset({*SCANNING, Use.APPLY})
# Records in these topics carry the time of the broker that appended them.
_BROKERS_OWN = (TRANSACTION_STATE_TOPIC, "__consumer_offsets")
# A smaller difference may be the duration of the request, or the difference between clocks under NTP.
_SKEW_MS_MAX = 5_000
_NAMED_MAX = 3
# The API that only an apply needs.
_OF_APPLY = "WriteTxnMarkers"


class Level(StrEnum):
    """The severity of a finding. NOTE: a sweep would still observe everything. INCOMPLETE: it would not. FAILED: no
    sweep is possible; or no apply, if that is asked for.
    """

    OK = "ok"
    NOTE = "note"
    INCOMPLETE = "incomplete"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, in one sentence with a remedy. area: connection, metadata, security, apis, acls,
    coordinators, partitions, clock, causes, java, checkpoints or tables.
    """

    area: str
    level: Level
    said: str


# The level of a missing ACL, by its use.
_LEVELS = {Use.PROOF: Level.INCOMPLETE, Use.IMPACT: Level.NOTE, Use.APPLY: Level.FAILED}


@dataclass(frozen=True, slots=True)
class Machine:
    """How a sweep would run on this machine. parts: what needs something of it. executors: why executors cannot read,
    asked of a session; None without a session. open_checkpoint: as for a sweep.
    """

    parts: frozenset[Part] = frozenset()
    executors: Callable[[], str | None] | None = None
    open_checkpoint: Callable[[], OpenFiles] = lambda: open_files


@dataclass(frozen=True, slots=True)
class Checked:
    """All findings, and the id of the cluster if it was reached. principal: the one that was checked. lacking: the
    permissions to grant to it. applies: whether an apply was asked for, too.
    """

    cluster_id: str | None
    findings: tuple[Finding, ...]
    principal: str = UNKNOWN_PRINCIPAL
    lacking: tuple[Permission, ...] = ()
    applies: bool = False

    @property
    def level(self) -> Level:
        """The worst level of all findings."""
        levels = list(Level)
        return max((one.level for one in self.findings), key=levels.index)


def check(
    config: ScanConfig,
    *,
    now_ms: Callable[[], int],
    sweep_id: str,
    check_tables: Callable[[Location], Iterable[Finding]],
    machine: Machine = Machine(),
    applies: bool = False,
) -> Checked:
    """Runs all checks for a sweep with these settings. check_tables: called with the location of the tables, if one is
    set (`tables/preflight.py`). applies: whether to check what `apply --execute` needs, too.

    Raises ConfigError for settings that cannot be used, as a sweep does.
    """
    settings = config.connection()
    findings = list(check_security(settings))
    findings += [Finding("security", Level.NOTE, said) for said in config.exposed_files()]
    cluster_id, missing = None, list[Lacking]()
    clients = clients_of(config, settings, sweep_id, QUESTION_MS)
    with Cluster(clients, deadline=clients.client().deadline) as cluster:
        try:
            latest = cluster.latest()
        except ClusterUnreachable as error:
            findings.append(Finding("connection", Level.FAILED, str(error)))
        else:
            cluster_id = latest.view.cluster_id
            uses = APPLYING if applies else SCANNING
            findings += check_cluster(cluster, latest, now_ms, config, uses, missing)
    on_machine = list(check_machine(config, machine))
    findings += on_machine
    if machine.executors is not None and all(one.level is Level.OK for one in on_machine):
        findings += check_executors(config, machine.executors)
    findings += check_checkpoints(config, machine.open_checkpoint)
    if config.location is not None:
        findings += check_tables(config.location)
    return Checked(cluster_id, tuple(findings), settings.principal, permissions_of(missing), applies)


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


def check_cluster(
    cluster: Cluster,
    latest: Latest,
    now_ms: Callable[[], int],
    config: ScanConfig | None = None,
    uses: frozenset[Use] = SCANNING,
    missing: list[Lacking] | None = None,
) -> Iterator[Finding]:
    """Checks the brokers' answers, and this principal's permissions. config: with the scope of the sweep. missing:
    receives what the principal lacks. Raises ConfigError for a scope that does not exist.
    """
    view = latest.view
    if config is not None:
        check_scope(config, view, in_scope(config, view), cluster)
        view = replace(view, topics=tuple(_needed_topics(config, view)))
    brokers = sorted(broker.broker_id for broker in view.brokers)
    versions, failures = read_versions(cluster, brokers)
    reached, failed = sorted(versions), [failures[one].error for one in sorted(failures)]
    if failed:
        said = f"{len(reached)} of {len(brokers)} brokers answer: {merged(failed)}"
        yield Finding("connection", Level.INCOMPLETE, said)
    else:
        yield Finding("connection", Level.OK, f"{plural(len(brokers), 'broker')}, and all of them answer")
    yield from _metadata(cluster, latest, which="all brokers that answer" if failed else "all brokers")
    yield from _apis(
        versions, applies=Use.APPLY in uses, which="every broker that answers" if failed else "every broker"
    )
    whole = config is None or config.scope == "all"
    found = list(read_lacking(Asked(cluster, view.topics, view.answered_by, whole, versions), uses))
    if missing is not None:
        missing += found
    lacked = permissions_of(found)
    asked = [_of_acl(one) for one in found] + _disks(cluster, reached, lacked)
    yield from asked or [Finding("acls", Level.OK, f"this principal has {_have(uses)}")]
    yield from _unknown_topics(config, view)
    yield from _coordinators(cluster, lacked)
    yield from _partitions(view)
    yield from _writes(cluster, view, now_ms)
    yield from _clock(cluster, view, reached, now_ms)
    yield from _causes(cluster, versions, which="the brokers that answer" if failed else "the brokers")


def _needed_topics(config: ScanConfig, view: ClusterView) -> Iterator[Topic]:
    """The topics of the view that a sweep of this scope reads."""
    wanted = {topic.name for topic in in_scope(config, view)} | {*config.complete_up_to, TRANSACTION_STATE_TOPIC}
    return (topic for topic in view.topics if topic.name in wanted)


def _unknown_topics(config: ScanConfig | None, view: ClusterView) -> Iterator[Finding]:
    known = {topic.name for topic in view.topics}
    absent = [name for name in config.complete_up_to if name not in known] if config is not None else []
    if absent:
        said = f"--complete-up-to: {named(absent)} does not exist, or this principal may not describe it"
        yield Finding("partitions", Level.INCOMPLETE, said)


def _have(uses: frozenset[Use]) -> str:
    return f"every ACL of {'a sweep and an apply' if Use.APPLY in uses else 'a sweep'}, on all topics in scope"


def _of_acl(one: Lacking) -> Finding:
    """What cannot be read that needs an ACL, and why."""
    topics = f"{named(one.topics)} cannot be read" if one.acl.operation == "Read" else named(one.topics)
    lacks = one.failure.within(topics) if one.topics else one.failure
    area = "partitions" if one.topics and one.failure.needs is None else _area(one.failure)
    return Finding(area, _LEVELS[one.acl.use], f"{one.acl.lacking}: {lacks}")


def _area(failure: Failure) -> str:
    """The area of a failed request. The ACLs are not at fault for a broker that does not answer."""
    if failure.needs is not None:
        return "acls"
    return "connection" if failure.lacks_api is None else "apis"


def _metadata(cluster: Cluster, latest: Latest, *, which: str) -> Iterator[Finding]:
    """How current each broker's metadata is. Unreachable brokers are reported under `connection`. which: the brokers
    that answer.
    """
    missing = frozenset(one for one in latest.unreachable() if one.failure.code != FailureCode.BROKER_BEHIND)
    late = [one for one in cluster.lagging(latest, latest.offset) if one not in missing]
    yield from (Finding("metadata", Level.INCOMPLETE, cluster.format_failure(one.failure)) for one in late)
    if latest.disputed:
        names = [f"{topic}-{index}" for topic, index in sorted(latest.disputed)]
        yield Finding("metadata", Level.INCOMPLETE, f"brokers disagree on who leads {named(names)}; run it again")
    elif latest.outside_kraft and not late:
        yield Finding("metadata", Level.OK, f"{which} have the same leaders")
    elif latest.offset is not None and not late:
        lag = latest.offset - min(latest.behind(latest.offset).values(), default=latest.offset)
        behind = f", at most {plural(lag, 'record')} behind" if lag else ""
        yield Finding("metadata", Level.OK, f"current on {which} (offset {latest.offset:,}{behind})")


def _apis(versions: Mapping[int, ApiVersions], *, applies: bool, which: str) -> Iterator[Finding]:
    fine = True
    for api, key in API_KEYS.items():
        if api == _OF_APPLY and not applies:
            continue
        lacking = sorted(broker_id for broker_id, known in versions.items() if key not in known.apis)
        if lacking:
            fine = False
            since = f", which is of Kafka {API_SINCE[api]} and newer: upgrade" if api in API_SINCE else ""
            level = Level.FAILED if api == _OF_APPLY else Level.INCOMPLETE
            yield Finding("apis", level, f"{api} is missing on {brokers_named(lacking)}{since}")
    if fine and versions:
        sends = "a sweep and an apply send" if applies else "a sweep sends"
        yield Finding("apis", Level.OK, f"{which} has every API that {sends}")


def _disks(cluster: Cluster, brokers: Sequence[int], lacked: Sequence[Permission]) -> list[Finding]:
    """Whether a broker reports its log directories. The request is about no partition."""
    for broker_id in brokers[:1]:
        try:
            describe_log_dirs(cluster.send, broker_id, ())
        except RequestFailed as failed:
            why = needing(failed.failure, DESCRIBE_CLUSTER.permission)
            if why.needs not in lacked:
                said = f"the disks behind blocked compaction are not known: {cluster.format_failure(why)}"
                return [Finding(_area(why), Level.NOTE, said)]
    return []


def _causes(cluster: Cluster, versions: Mapping[int, ApiVersions], *, which: str) -> Iterator[Finding]:
    """The known causes of hanging transactions to which the cluster is exposed (`waiting/known_causes.py`)."""
    # Other checks report settings that this principal may not read.
    exposure = read_exposure(cluster, versions)
    found = [Finding("causes", Level.NOTE, sentence(cause, exposure)) for cause in exposed(exposure)]
    yield from found or [Finding("causes", Level.OK, f"{which} show none of the known causes of hanging transactions")]


def _coordinators(cluster: Cluster, lacked: Sequence[Permission] = ()) -> Iterator[Finding]:
    """lacked: permissions that are reported already."""
    agreed = cluster.agreed_metadata([TRANSACTION_STATE_TOPIC])
    separated = cluster.separate_by_claim({}, (), agreed, lambda done, total: None, read_from_ms=0)
    listing = cluster.coordinator_listing({}, agreed, lambda done, total: None)
    hidden = [one for one in listing.visibility_failures if one.needs is None or one.needs not in lacked]
    by_area: dict[str, list[Failure]] = defaultdict(list)
    for one in hidden:
        by_area[_area(one)].append(one)
    for area, failures in by_area.items():
        yield Finding(area, Level.INCOMPLETE, "; ".join(map(cluster.format_failure, failures)))
    if not listing.coordinators_planned and separated.transactional_ids:
        ids = plural(separated.transactional_ids, "transactional id")
        yield Finding(
            "coordinators",
            Level.INCOMPLETE,
            f"{ids} in a transaction and no {TRANSACTION_STATE_TOPIC}, as where brokers keep it elsewhere (Redpanda): "
            "nothing can be proven here, nothing is called hanging, and no COMMIT is ever sent",
        )
    elif not listing.coordinators_planned and (no_log := _no_log(cluster)) is not None:
        yield no_log
    elif not listing.coordinators_planned:
        yield Finding("coordinators", Level.OK, f"there is no {TRANSACTION_STATE_TOPIC}: no transaction ever ran here")
    elif listing.coverage_failure is not None:
        proven = f"{listing.coordinators_proven} of {listing.coordinators_planned} coordinator partitions proven"
        why = cluster.format_failure(listing.coverage_failure)
        yield Finding("coordinators", Level.INCOMPLETE, f"{proven}: {why}")
    else:
        ids = plural(separated.transactional_ids, "transactional id")
        count = listing.coordinators_planned
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
    clock that is ahead can be detected: an old timestamp may belong to an old record. brokers: those that answer.
    """
    led: dict[int, list[Partition]] = defaultdict(list)
    unseen, errors = set[int](), list[str]()
    for topic in view.topics:
        if topic.name in _BROKERS_OWN:
            for index in topic.indexes:
                (partition,) = topic.at(index)
                if partition.leader in brokers:
                    led[partition.leader].append(partition)
                elif partition.leader >= 0:
                    unseen.add(partition.leader)
    ahead: dict[int, int] = {}
    for broker_id, partitions in sorted(led.items()):
        try:
            answers = newest(cluster.send, broker_id, partitions)
        except RequestFailed as failed:
            unseen.add(broker_id)
            errors.append(cluster.format_failure(failed.failure))
            continue
        stamps = [answer.timestamp_ms for answer in answers.values() if answer.timestamp_ms >= 0]
        if stamps:
            ahead[broker_id] = max(stamps) - now_ms()
    if unseen:
        why = f": {merged(errors)}" if errors else ""
        yield Finding("clock", Level.NOTE, f"no clock was observed on {brokers_named(sorted(unseen))}{why}")
    elif not ahead:
        yield Finding("clock", Level.OK, "no broker has stamped a record yet, so that none shows its clock")
    if not ahead:
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
        which = "clock of the other brokers" if unseen else "broker's clock"
        said = f"no {which} is ahead of this machine's (the newest record that one stamped is {last} old)"
        yield Finding("clock", Level.OK, said)


# --- this machine


def check_machine(config: ScanConfig, machine: Machine) -> Iterator[Finding]:
    """Whether this machine has what the sweep needs of it."""
    found = list(lacking(machine.parts))
    yield from (Finding("java", Level.FAILED, str(one)) for one in found if not isinstance(one, str))
    if all(isinstance(one, str) for one in found):
        threads = "threads read" + ("" if config.tables is None else ", and delta-rs writes the tables")
        said = ", and ".join(map(str, found)) or f"neither Spark nor Java is needed: {threads}"
        yield Finding("java", Level.OK, said)


def check_executors(config: ScanConfig, executors: Callable[[], str | None]) -> Iterator[Finding]:
    """Whether executors can read, if they are asked for."""
    if config.engine == EngineName.THREADS:
        return
    try:
        why = executors()
    except TxnscanError as error:
        yield Finding("java", Level.FAILED, str(error))
        return
    if why is None:
        yield Finding("java", Level.OK, "the executors of Spark start Python, and connect to the brokers")
    elif config.engine == EngineName.SPARK:
        yield Finding("java", Level.FAILED, f"{why}; --engine threads reads from the driver")
    else:
        yield Finding("java", Level.NOTE, f"threads of the driver would read all partitions: {why}")


def check_checkpoints(config: ScanConfig, opens: Callable[[], OpenFiles]) -> Iterator[Finding]:
    """Whether the checkpoints of streaming queries can be read."""
    if config.spark_checkpoint:
        positions = read_positions(config.spark_checkpoint, None, open_files=opens())
        yield from (Finding("checkpoints", Level.INCOMPLETE, str(one)) for one in positions.failures)
        if not positions.failures:
            said = f"{plural(len(positions.queries), 'streaming query')} can be read"
            yield Finding("checkpoints", Level.OK, said)


# --- words


def named(names: Sequence[str]) -> str:
    """The first of these names, and the number of the others."""
    return first_of([*map(printable, names)], _NAMED_MAX)
