"""The sentences that several answers share: about a partition, a reader, an id, an error. Pure."""

from __future__ import annotations

from txnscan.config import shown_location
from txnscan.coordinators.transactions import Transaction
from txnscan.explain.answers.transaction_end import time_of_day
from txnscan.explain.facts import Facts, PartitionFacts
from txnscan.explain.symptom import SymptomKind
from txnscan.kafka.failure import Failure
from txnscan.kafka.security.acls import explained
from txnscan.kafka.units import duration, first_of, plural, size, whole_number
from txnscan.verdict.evidence import Verdict
from txnscan.waiting.groups import NO_MEMBERS

NAMED_MAX = 5


def of_members(f: Facts) -> tuple[str, ...]:
    """That the group has no members, if so."""
    return ("The group has no members now.",) if f.group_state in NO_MEMBERS else ()


def expired_at_ms(f: Facts) -> int | None:
    """When the id expired, by its tombstone: the last record of it in the log."""
    at_ms = f.logged[-1].updated_ms
    return at_ms if at_ms >= 0 else None


def expired(f: Facts) -> str:
    """That the id expired."""
    at_ms = expired_at_ms(f)
    when = f" at about {time_of_day(at_ms, f.now_ms)}" if at_ms is not None else ""
    return f"expired{when} (transactional.id.expiration.ms)"


def known_defects(f: Facts) -> tuple[str, ...]:
    """The known defects that show the error of the symptom."""
    return (
        tuple(f"A known defect shows the same error: {one}." for one in f.symptom.error.known)
        if f.symptom.error
        else ()
    )


def failure_in_words(f: Facts, failure: Failure) -> str:
    """The failure, with the permission that this principal lacks."""
    return explained(failure, f.principal)


def of_partition(p: PartitionFacts) -> tuple[str, ...]:
    """The last stable offset, what is open below it, and what the log keeps on disk."""
    if p.last_stable_offset is None or p.high_watermark is None:
        return ()
    return (
        f"{p.name}: last stable offset {p.last_stable_offset}, high watermark {p.high_watermark}, and "
        f"{plural(p.blocked_records or 0, 'offset')} between them.",
        *_more_open(p),
        *kept_by(p),
        *_disk(p),
    )


def _more_open(p: PartitionFacts) -> tuple[str, ...]:
    """How many transactions are open if there are several, how many of them hang, and which one must end first."""
    every = p.still_open
    if len(every) < 2:
        return ()
    hanging = sum(one.judgement.verdict is Verdict.HANGING for one in every)
    of_these = f", of which {hanging} {'hangs' if hanging == 1 else 'hang'}" if hanging else ""
    first = p.holder
    holds = f": producer id {first.observation.producer_id} holds the last stable offset" if first is not None else ""
    return (f"{len(every)} transactions are open on {p.name}{of_these}{holds}.",)


# local.retention.ms and .bytes take the value of retention.ms and .bytes.
_INHERITED = -2


def kept_by(p: PartitionFacts) -> tuple[str, ...]:
    """What a topic's settings keep on the disk of its leader."""
    if "cleanup.policy" not in p.settings:
        return ()
    said = f"cleanup.policy of {p.topic} is {p.settings['cleanup.policy']}"
    if "delete" in p.settings["cleanup.policy"].split(","):
        said += f": segments are deleted {_limits(p, 'retention')}"
    if p.tiered:
        local = _limits(p, "local.retention", inherits=True)
        said += f". Tiered: segments below the last stable offset go to remote storage, and leave local disks {local}"
    return (f"{said}.",)


def _limits(p: PartitionFacts, name: str, *, inherits: bool = False) -> str:
    """The limits of age and size with this name, in words. inherits: whether -2 is the limit of `retention`."""

    def value(unit: str) -> int:
        found = _whole(p.settings.get(f"{name}.{unit}"))
        return _whole(p.settings.get(f"retention.{unit}")) if inherits and found == _INHERITED else found

    age_ms, size_bytes = value("ms"), value("bytes")
    by_age = [f"after {duration(age_ms)} ({name}.ms)"] if age_ms >= 0 else []
    by_size = [f"above {size(size_bytes)} ({name}.bytes)"] if size_bytes >= 0 else []
    return " or ".join([*by_age, *by_size]) or f"never ({name}.ms and {name}.bytes set no limit)"


def _whole(text: str | None) -> int:
    number = whole_number(text)
    return -1 if number is None else number


def _disk(p: PartitionFacts) -> tuple[str, ...]:
    """The size of a partition, and the free space of its disk."""
    disk = p.disk
    if disk.partition_bytes is None:
        return (f"The size of {p.name} is not known: {disk.error}.",) if disk.error is not None else ()
    free = f", and its volume has {size(disk.usable_bytes)} free" if disk.usable_bytes is not None else ""
    return (f"The replica on broker {disk.broker_id} has {size(disk.partition_bytes)}{free}.",)


def of_reader(f: Facts, p: PartitionFacts) -> tuple[str, ...]:
    """The reader's position and lag, or the isolation level of a share group."""
    if f.is_share:
        return (f"Its share.isolation.level is {f.isolation_level}.",)
    if not f.symptom.is_reader or p.committed is None:
        return ()
    if p.lag is None or p.last_stable_offset is None:
        return (f"{reader_position(f, p).capitalize()}; its lag is not known.",)
    before = "" if p.committed == p.last_stable_offset else ", and before the last stable offset it gets no record"
    not_visible = "Its isolation level is not visible: a read_uncommitted group that stopped there looks the same."
    if f.symptom.kind is SymptomKind.QUERY:
        not_visible = "A read_uncommitted query would be at the high watermark. A stopped query looks the same."
    return (
        f"{reader_position(f, p).capitalize()}{before}; its lag is {p.lag:,}, up to the high watermark.",
        not_visible,
    )


def reader_name(f: Facts) -> str:
    """The group or the query of the symptom, inside a sentence."""
    if f.symptom.checkpoint is not None:
        return f"the query of '{shown_location(f.symptom.checkpoint)}'"
    return f"{'share ' if f.is_share else ''}group '{f.symptom.group}'"


def reader_first(f: Facts) -> str:
    """The same at the beginning of a sentence."""
    reader = reader_name(f)
    return reader[0].upper() + reader[1:]


def waits_for(f: Facts, p: PartitionFacts) -> str:
    """That the reader waits, up to the transaction."""
    if f.is_share:
        # Where it stands is not visible.
        return f"{reader_first(f)} gets no record of {p.name} from offset {p.last_stable_offset} on, because of"
    return f"{reader_first(f)} waits for"


def reader_position(f: Facts, p: PartitionFacts) -> str:
    """Where the reader is."""
    is_query = f.symptom.kind is SymptomKind.QUERY
    return f"the query's next offset is {p.committed}" if is_query else f"the group committed offset {p.committed}"


def of_id(one: Transaction) -> str:
    """What the coordinator of a transactional id has of it."""
    began = f", began {duration(one.age_ms)} ago" if one.age_ms is not None else ""
    timeout = f", timeout {duration(one.timeout_ms)}" if one.timeout_ms is not None and not one.two_phase_commit else ""
    return (
        f"Its coordinator, broker {one.coordinator}: '{one.transactional_id}' is in {one.state}, producer id "
        f"{one.producer_id}, epoch {one.producer_epoch}{began}{timeout}."
    )


def partitions_of_id(one: Transaction) -> tuple[str, ...]:
    """The partitions that the coordinator lists, up to the first few."""
    return (f"Its partitions: {first_of(one.partitions, NAMED_MAX)}.",) if one.partitions else ()
