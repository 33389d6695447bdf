"""The output of `list`, `describe`, `describe-producers` and `coordinator`: rows for programs, and text for people.

The names of the fields of rows are a contract, like the names in the JSON object of a sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from txnscan.config import ConfigError, printable
from txnscan.coordinators.streamed import streamed
from txnscan.coordinators.transactions import (
    Transaction,
    describe,
    key_of,
    list_on,
    with_offsets,
)
from txnscan.kafka.answers import IN_TRANSACTION, TWO_PHASE_COMMIT_TIMEOUT_MS, OpenProducer
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.failure import Failure, FailureCode, Unobserved
from txnscan.kafka.units import duration, plural
from txnscan.report.plain import error_object, iso_utc
from txnscan.report.rows import Column, Row, Rows, headers, table_line

if TYPE_CHECKING:
    from txnscan.coordinators.cluster import Cluster
    from txnscan.coordinators.locate import Coordinator
    from txnscan.coordinators.producers import PartitionProducers
    from txnscan.kafka.protocol.list_transactions import ListingFilter

_PARTITIONS_SHOWN = 100

LISTED = (
    *("transactional_id", "coordinator", "producer_id", "producer_epoch", "state", "started_at", "age_ms"),
    *("timeout_ms", "overdue_ms"),
)
DESCRIBED = (*LISTED, "coordinator_partition", "partitions")
PRODUCERS = (
    *("topic", "partition", "broker", "of_leader", "producer_id", "producer_epoch", "coordinator_epoch"),
    *("last_sequence", "last_timestamp_ms", "start_offset", "last_stable_offset", "high_watermark"),
    *("transactional_id", "coordinator", "state", "has_partition", "started_at", "age_ms", "timeout_ms"),
)
STEPS = (
    *("log_partition", "offset", "written_at", "transactional_id", "producer_id", "producer_epoch", "state"),
    *("started_at", "timeout_ms", "transactions_version", "partitions", "impossible", "note"),
)
COORDINATORS = (
    *("kind", "name", "topic", "partition", "partitions", "broker", "host", "port", "leader_epoch", "error"),
)


# --- transactions -----------------------------------------------------------------------------------------------------


def write_listed(
    rows: Rows, cluster: Cluster, brokers: Collection[int], wanted: ListingFilter, now_ms: Callable[[], int]
) -> list[dict[str, Any]]:
    """Writes the transactional ids that these brokers list, as they answer. Returns the failures: one for each broker
    without an answer; one for each broker whose metadata lags, so that another broker may list its ids; and one if this
    principal may not describe every id. Raises ConfigError for a pattern of ids that brokers do not understand.
    """
    errors = []
    for some in streamed(lambda broker_id: list_on(cluster.send, broker_id, wanted, now_ms), brokers):
        if isinstance(some, Unobserved):
            if some.failure.code == ErrorCode.INVALID_REGULAR_EXPRESSION.name:
                said = f"'{printable(wanted.pattern or '')}' is no regular expression of RE2, which brokers use"
                raise ConfigError("--transactional-id-pattern", said)
            errors.append(error_object(some, cluster.principal))
        else:
            rows.write([listed_row(one) for one in some])
    silent = {error["broker"] for error in errors}
    errors += [error_object(one, cluster.principal) for one in cluster.behind() if one.broker not in silent]
    hidden = cluster.hidden_ids(brokers)
    if hidden is not None:
        errors.append(error_object(Unobserved("snapshot", hidden), cluster.principal))
    rows.end(errors)
    return errors


def read_described(
    cluster: Cluster, ids: Iterable[str], now_ms: Callable[[], int], sleep: Callable[[float], None]
) -> tuple[list[Transaction], list[dict[str, Any]]]:
    """Each id as its coordinator describes it, with the offsets of its partitions, and the failures. If an id was not
    described, the failures name the brokers whose metadata lags: they may know the id.
    """
    found, failed = describe(cluster.send, ids, cluster.newest, now_ms, sleep)
    behind = cluster.behind() if failed else ()
    failed = [replace(one, failure=_unless_behind(one.failure, behind)) for one in failed]
    # A description leaves out topics that this principal may not describe.
    coordinators = sorted({one.coordinator for one in found if one.state in IN_TRANSACTION})
    hidden = [one for one in map(cluster.hidden_topics, coordinators) if one is not None]
    if hidden:
        failed.append(Unobserved("describe", hidden[0].within("partitions of a transaction may be missing")))
    errors = [error_object(one, cluster.principal) for one in (*failed, *behind)]
    return with_offsets(cluster.send, found, cluster.newest), errors


def _unless_behind(failure: Failure, behind: Collection[Unobserved]) -> Failure:
    """An id that its coordinator does not know may be known to a broker that lags or does not answer."""
    if not behind or failure.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND.name:
        return failure
    return Failure(f"{failure.error}; another broker may know it", FailureCode.BROKER_BEHIND)


def listed_row(one: Transaction) -> dict[str, Any]:
    """A transactional id, a line."""
    return {
        "transactional_id": one.transactional_id,
        "coordinator": one.coordinator,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "state": one.state,
        "started_at": None if one.start_time_ms is None else iso_utc(one.start_time_ms),
        "age_ms": one.age_ms,
        "timeout_ms": one.timeout_ms,
        "overdue_ms": one.overdue_ms,
    }


def described_row(one: Transaction) -> dict[str, Any]:
    """A transactional id with all that is known of it."""
    partitions = [
        {
            "topic": topic,
            "partition": index,
            "last_stable_offset": offsets.last_stable_offset if offsets is not None else None,
            "high_watermark": offsets.high_watermark if offsets is not None else None,
        }
        for name in one.partitions
        for (topic, index), offsets in ((key_of(name), one.offsets.get(name)),)
    ]
    return {
        **listed_row(one),
        "two_phase_commit": one.two_phase_commit,
        "coordinator_partition": one.coordinator_partition,
        "partitions": partitions,
    }


def described_csv(row: Row) -> dict[str, Any]:
    """The same with its partitions as "topic-partition" names."""
    return {**row, "partitions": [f"{one['topic']}-{one['partition']}" for one in row["partitions"]]}


# The id stands last: it may be of any length.
LIST_TABLE = (
    Column("ProducerId", 10, lambda row: row["producer_id"], right=True),
    Column("State", 14, lambda row: row["state"]),
    Column("Age", 12, lambda row: None if row["age_ms"] is None else duration(row["age_ms"])),
    Column("Timeout", 10, lambda row: _timeout(row)),
    Column("Coordinator", 11, lambda row: row["coordinator"], right=True),
    Column("TransactionalId", 0, lambda row: row["transactional_id"]),
)


def _timeout(row: Row) -> str | None:
    if row["timeout_ms"] is None:
        return None
    if row["timeout_ms"] == TWO_PHASE_COMMIT_TIMEOUT_MS:
        return "none (2PC)"
    return duration(row["timeout_ms"]) + (" late" if row["overdue_ms"] is not None else "")


def described_lines(row: Row) -> Iterator[str]:
    """A transactional id for people: a line for each thing that is known."""
    yield printable(row["transactional_id"])
    overdue = row["overdue_ms"]
    late = f", past its timeout by {duration(overdue)}" if overdue is not None else ""
    yield _field("state", f"{row['state']}{late}")
    yield _field("producer id", f"{row['producer_id']}, epoch {row['producer_epoch']}")
    k = row["coordinator_partition"]
    log = f", partition {k} of __transaction_state" if k is not None else ""
    yield _field("coordinator", f"broker {row['coordinator']}{log}")
    if row["started_at"] is not None:
        yield _field("began", f"{row['started_at']}, {duration(row['age_ms'])} ago by the coordinator's clock")
    timeout = "none: it takes part in two-phase commit" if row["two_phase_commit"] else duration(row["timeout_ms"])
    yield _field("timeout", f"{timeout} ({row['timeout_ms']} ms)")
    for place, one in enumerate(row["partitions"][:_PARTITIONS_SHOWN]):
        yield _field("partitions" if not place else "", _stands(one))
    if len(row["partitions"]) > _PARTITIONS_SHOWN:
        yield _field("", f"and {len(row['partitions']) - _PARTITIONS_SHOWN} more; --format json shows all")
    if not row["partitions"]:
        yield _field("partitions", "none")


def _field(name: str, said: str) -> str:
    return f"  {name:<12}  {printable(said)}"


def _stands(one: Mapping[str, Any]) -> str:
    where = f"{one['topic']}-{one['partition']}"
    if one["high_watermark"] is None:
        return f"{where}  its leader does not report its offsets"
    return f"{where}  last stable offset {one['last_stable_offset']}, high watermark {one['high_watermark']}"


# --- producers --------------------------------------------------------------------------------------------------------


def producer_rows(one: PartitionProducers, now_ms: int, *, only_open: bool = False) -> list[dict[str, Any]]:
    """The producers on a partition, a row each."""
    return [_producer_row(one, producer, now_ms) for producer in (one.open if only_open else one.producers)]


def _producer_row(one: PartitionProducers, producer: OpenProducer, now_ms: int) -> dict[str, Any]:
    is_open = producer.start_offset >= 0
    offsets = one.offsets if is_open else None
    owner = one.owners.get(producer.producer_id) if is_open else None
    started = owner.start_time_ms if owner is not None and owner.start_time_ms >= 0 else None
    return {
        "topic": one.partition.topic,
        "partition": one.partition.partition,
        "broker": one.broker_id,
        "of_leader": one.of_leader,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "last_sequence": producer.last_sequence,
        "last_timestamp_ms": producer.last_timestamp_ms,
        "start_offset": producer.start_offset if is_open else None,
        "last_stable_offset": offsets.last_stable_offset if offsets is not None else None,
        "high_watermark": offsets.high_watermark if offsets is not None else None,
        "transactional_id": owner.transactional_id if owner is not None else None,
        "coordinator": owner.broker_id if owner is not None else None,
        "state": owner.state if owner is not None else None,
        "has_partition": one.name in owner.partitions if owner is not None else None,
        "started_at": iso_utc(started) if started is not None else None,
        "age_ms": now_ms - started if started is not None else None,
        "timeout_ms": owner.timeout_ms if owner is not None else None,
    }


_PRODUCER_TABLE = (
    Column("ProducerId", 10, lambda row: row["producer_id"], right=True),
    Column("Epoch", 5, lambda row: row["producer_epoch"], right=True),
    Column("CoordinatorEpoch", 16, lambda row: row["coordinator_epoch"], right=True),
    Column("LastSequence", 12, lambda row: row["last_sequence"], right=True),
    Column("LastTimestamp", 13, lambda row: row["last_timestamp_ms"], right=True),
    Column("StartOffset", 11, lambda row: "None" if row["start_offset"] is None else row["start_offset"], right=True),
)


def producers_lines(rows: Iterable[Row]) -> Iterator[str]:
    """The producers of one partition for people: where it stands, a table, and of each open transaction its owner."""
    listed = list(rows)
    first = listed[0]
    by = f"broker {first['broker']}, which leads it" if first["of_leader"] else f"broker {first['broker']}, a follower"
    stands = next((row for row in listed if row["high_watermark"] is not None), None)
    where = f"{printable(first['topic'])}-{first['partition']}"
    at = (
        f": last stable offset {stands['last_stable_offset']}, high watermark {stands['high_watermark']}"
        if stands is not None
        else ""
    )
    yield f"{where}, by {by}{at}"
    yield headers(_PRODUCER_TABLE)
    for row in listed:
        yield table_line(_PRODUCER_TABLE, row)
    for row in listed:
        if row["start_offset"] is not None:
            yield f"  open from offset {row['start_offset']}: {_owner(row)}"
    yield ""


def _owner(row: Row) -> str:
    producer_id = row["producer_id"]
    if row["transactional_id"] is None:
        return (
            f"no broker that answered lists a transactional id in a transaction with producer id {producer_id}; "
            "`txnscan find-hanging` checks whether it hangs"
        )
    endless = row["timeout_ms"] == TWO_PHASE_COMMIT_TIMEOUT_MS
    timeout = "none (two-phase commit)" if endless else duration(row["timeout_ms"])
    without = "" if row["has_partition"] else ", without this partition"
    began = f", begun {duration(row['age_ms'])} ago" if row["age_ms"] is not None else ""
    return (
        f"'{printable(row['transactional_id'])}' is {row['state']} at broker {row['coordinator']}{without}{began}, "
        f"timeout {timeout}"
    )


def no_proof(broker_id: int) -> str:
    """A warning about the answer of a broker that does not lead the partitions."""
    return (
        f"broker {broker_id} also answers for partitions that it does not lead; a follower may list a transaction that "
        "has ended, so its answer is no proof"
    )


# --- the transaction log ----------------------------------------------------------------------------------------------


STEPS_TABLE = (
    Column("Partition", 9, lambda row: row["log_partition"], right=True),
    Column("Offset", 10, lambda row: row["offset"], right=True),
    Column("Written", 24, lambda row: row["written_at"]),
    Column("State", 14, lambda row: row["state"]),
    Column("ProducerId", 10, lambda row: row["producer_id"], right=True),
    Column("Epoch", 5, lambda row: row["producer_epoch"], right=True),
    Column("TransactionalId", 0, lambda row: row["transactional_id"]),
)


def step_lines(row: Row) -> Iterator[str]:
    """A record for people, with its partitions and its note below."""
    yield table_line(STEPS_TABLE, row)
    if row["partitions"]:
        version = f" (transactions v{row['transactions_version']})" if row["transactions_version"] else ""
        yield f"{'':<23}{printable(', '.join(row['partitions']))}{version}"
    if row["note"] is not None:
        yield f"{'':<23}{'! ' if row['impossible'] else ''}{row['note']}"


# --- coordinators -----------------------------------------------------------------------------------------------------


def coordinator_row(one: Coordinator, error: str | None) -> dict[str, Any]:
    """The coordinator of a name. error: the failure in words."""
    return {
        "kind": one.kind,
        "name": one.name,
        "topic": one.topic,
        "partition": one.partition,
        "partitions": one.partitions,
        "broker": one.broker.broker_id if one.broker is not None else None,
        "host": one.broker.host if one.broker is not None else None,
        "port": one.broker.port if one.broker is not None else None,
        "leader_epoch": one.leader_epoch,
        "error": error,
    }


def coordinator_lines(row: Row) -> Iterator[str]:
    """The coordinator of a name, for people."""
    kind = row["kind"].replace("_", " ")
    yield f"{kind} '{printable(row['name'])}'"
    if row["partition"] is not None:
        yield _field("partition", f"{row['topic']}-{row['partition']} of {plural(row['partitions'], 'partition')}")
    if row["broker"] is not None:
        yield _field(
            "coordinator", f"broker {row['broker']} ({row['host']}:{row['port']}), leader epoch {row['leader_epoch']}"
        )
    elif row["error"] is not None:
        yield _field("coordinator", f"not known: {row['error']}")
