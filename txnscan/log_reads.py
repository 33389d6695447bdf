"""Reading what was decided: the first batch of hanging transactions, and what `__transaction_state` holds of their ids.

Where the id is known its one partition of the log is read; an orphan's id is looked for in all of them. Each log is
read from the leader that all brokers name before and after, at its leader epoch, from its start to its high watermark.
An owner that its coordinator described otherwise than the log ends is described once more, and the log read on: it may
have gone on in the meantime (`log_check.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from txnscan.agreement import Agreement, Unagreed
from txnscan.cluster import Cluster
from txnscan.kafka.acls import UNKNOWN_PRINCIPAL, Permission, explained
from txnscan.kafka.client import Send
from txnscan.kafka.coordinator import coordinator_partition
from txnscan.kafka.describe_transactions import describe_transactions
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.fetch import Batch, fetch
from txnscan.kafka.list_offsets import Offset, list_offsets
from txnscan.log_check import Described, orphan_contradiction, owner_contradiction
from txnscan.model import TRANSACTION_STATE_TOPIC, Judged, Partition
from txnscan.outcome import OutcomeEvidence
from txnscan.transaction_log import LoggedTransaction, UnknownRecord, decode, producer_id, tombstone, transactional_id

# A first batch is given whole however large it is; the log is read in pieces of this size.
_FIRST_BATCH_BYTES = 1
_PIECE_BYTES = 8 * 1024 * 1024


# How often an owner that goes on all the time is described, to find what is described in its log.
_DESCRIBE_TRIES = 3


def read_outcomes(
    cluster: Cluster, hanging: Sequence[Judged], on_progress: Callable[[int, int], None]
) -> list[OutcomeEvidence]:
    """The evidence for each of these transactions, in order. What could not be read is in it."""
    if not hanging:
        return []
    topics = {TRANSACTION_STATE_TOPIC, *(judged.observation.topic for judged in hanging)}
    before = cluster.agreement(topics)
    count = len(before.indexes(TRANSACTION_STATE_TOPIC))
    wanted = _wanted(hanging, count)
    first = cluster.in_parallel(lambda judged: _first_batch(cluster.send, before, judged, cluster.principal), hanging)
    done = 0

    def read(k: int) -> Log:
        nonlocal done
        log = Log(cluster.send, before, k, wanted[k], cluster.principal)
        log.read_on()
        done += 1
        on_progress(done, len(wanted))
        return log

    logs = dict(zip(wanted, cluster.in_parallel(read, wanted), strict=True))
    of_each = [[logs[k] for k in _logs_of(judged, count)] for judged in hanging]
    said = _contradictions(cluster, list(zip(hanging, of_each, strict=True)))
    after = cluster.agreement(topics)
    for log in logs.values():
        log.confirm(after)
    return [
        _evidence(judged, batch, logs_of_it, contradiction)
        for judged, batch, logs_of_it, contradiction in zip(hanging, first, of_each, said, strict=True)
    ]


def _contradictions(cluster: Cluster, hanging: Sequence[tuple[Judged, Sequence[Log]]]) -> list[str | None]:
    """How the logs contradict what the coordinators said of each, or None. A log with an error says nothing.

    Logs do not wait for one another, and what shares a log is looked at in order.
    """
    of_owners: dict[int, list[int]] = defaultdict(list)
    said: list[str | None] = [None] * len(hanging)
    for number, (judged, logs) in enumerate(hanging):
        if judged.evidence.coordinators and logs:
            of_owners[id(logs[0])].append(number)
        elif not judged.evidence.coordinators:
            said[number] = orphan_contradiction(judged.observation, [r for log in logs for r in log.logged])

    def ask(numbers: Sequence[int]) -> list[str | None]:
        return [_owner_contradiction(hanging[number][0], hanging[number][1][0]) for number in numbers]

    groups = list(of_owners.values())
    for group, answers in zip(groups, cluster.in_parallel(ask, groups), strict=True):
        for number, answer in zip(group, answers, strict=True):
            said[number] = answer
    return said


def _owner_contradiction(judged: Judged, log: Log) -> str | None:
    """The same for one whose id is known, with the log that serves it."""
    described = Described.of(judged.evidence.coordinators[0])
    why = None
    for _ in range(_DESCRIBE_TRIES if log.error is None else 0):
        logged = log.logged
        if owner_contradiction(judged.observation, described, logged) is None:
            return None
        described = log.describe(described)
        log.read_on()
        why = owner_contradiction(judged.observation, described, logged, log.logged[len(logged) :])
        if why is None or log.error is not None:
            return None
    return why


def _logs_of(judged: Judged, count: int) -> tuple[int, ...]:
    """The partitions of the log that can hold the transaction's id."""
    names = {view.transactional_id for view in judged.evidence.coordinators}
    return (
        tuple(sorted({coordinator_partition(name, count) for name in names}))
        if names and count
        else tuple(range(count))
    )


def _wanted(hanging: Iterable[Judged], count: int) -> Mapping[int, frozenset[int]]:
    """The producer ids to look for, by partition of the log."""
    wanted: dict[int, set[int]] = defaultdict(set)
    for judged in hanging:
        for k in _logs_of(judged, count):
            wanted[k].add(judged.observation.producer_id)
    return {k: frozenset(wanted[k]) for k in sorted(wanted)}


def _evidence(judged: Judged, first: Batch | str, logs: Sequence[Log], contradiction: str | None) -> OutcomeEvidence:
    o = judged.observation
    logged = [record for log in logs for record in log.logged]
    names = {record.transactional_id for record in logged if record.producer_id == o.producer_id}
    errors = [log.error for log in logs if log.error is not None]
    return OutcomeEvidence(
        observation=o,
        owner_epoch=max((view.producer_epoch for view in judged.evidence.coordinators), default=None),
        first_epoch=first.producer_epoch if isinstance(first, Batch) else None,
        first_sequence=first.base_sequence if isinstance(first, Batch) else None,
        batch_error=None if isinstance(first, Batch) else first,
        logged=tuple(record for record in logged if record.transactional_id in names),
        log_error=None if logs and not errors else (errors or [f"{TRANSACTION_STATE_TOPIC} is not there"])[0],
        contradiction=contradiction,
    )


def _first_batch(send: Send, before: Agreement, judged: Judged, principal: str) -> Batch | str:
    """The transaction's first batch, or why it is not known."""
    o = judged.observation
    try:
        fetched = fetch(send, before.partition(o.topic, o.partition), o.start_offset, _FIRST_BATCH_BYTES, records=False)
    except (RequestFailed, Unagreed) as failed:
        return explained(str(failed), Permission("Read", "Topic", o.topic), principal)
    for batch in fetched.batches[:1]:
        data = batch.is_transactional and not batch.is_control
        if data and (batch.base_offset, batch.producer_id) == (o.start_offset, o.producer_id):
            return batch
    return f"at offset {o.start_offset} there is no record of producer id {o.producer_id} any more"


class Log:
    """One partition of `__transaction_state`: what it still holds of ids that ever had a wanted producer id.

    error: why it is not known, or None; then there is nothing in `logged`.
    """

    def __init__(
        self,
        send: Send,
        before: Agreement,
        k: int,
        producer_ids: frozenset[int],
        principal: str = UNKNOWN_PRINCIPAL,
    ) -> None:
        self.error: str | None = None
        self._send = send
        self._before = before
        self._k = k
        self._principal = principal
        self._records = _Records(producer_ids)
        self._reached: int | None = None

    @property
    def logged(self) -> tuple[LoggedTransaction, ...]:
        """The records, in the order of the log for each id."""
        return self._records.logged if self.error is None else ()

    def read_on(self) -> None:
        """Reads from where it is to the high watermark; from its start at first."""
        if self.error is not None:
            return
        try:
            partition = self._before.partition(TRANSACTION_STATE_TOPIC, self._k)
            if self._reached is None:
                self._reached = _start_of(self._send, partition)
            self._reached = self._read(partition, self._reached)
        except (RequestFailed, Unagreed, UnknownRecord) as failed:
            needed = Permission("Read", "Topic", TRANSACTION_STATE_TOPIC)
            self.error = f"{TRANSACTION_STATE_TOPIC}-{self._k}: {explained(str(failed), needed, self._principal)}"

    def _read(self, partition: Partition, offset: int) -> int:
        """Reads from this offset on, and gives the one that was reached."""
        while True:
            fetched = fetch(self._send, partition, offset, _PIECE_BYTES, records=True)
            for batch in fetched.batches:
                if not batch.is_control:
                    for record in batch.records or ():
                        if record[0] >= offset:
                            self._records.take(*record)
            reached = fetched.next_offset(offset)
            if reached >= fetched.high_watermark:
                return reached
            if reached == offset:
                end = fetched.high_watermark
                raise RequestFailed(f"it gave no records at offset {offset}, before its end at {end}")
            offset = reached

    def describe(self, before: Described) -> Described:
        """The id as its coordinator describes it now; as it was described where it cannot be."""
        name = before.transactional_id
        try:
            leader = self._before.partition(TRANSACTION_STATE_TOPIC, self._k).leader
            now = describe_transactions(self._send, leader, [name])[name]
        except (RequestFailed, Unagreed):
            return before
        if now.error_code != ErrorCode.NONE:
            return before
        return Described(name, leader, now.producer_id, now.producer_epoch, now.state)

    def confirm(self, after: Agreement) -> None:
        """Makes it an error where the leader is not the same as before the log was read."""
        try:
            before = self._before.partition(TRANSACTION_STATE_TOPIC, self._k)
            same = before == after.partition(TRANSACTION_STATE_TOPIC, self._k)
        except Unagreed as unagreed:
            self.error = self.error or str(unagreed)
        else:
            if not same:
                self.error = f"{TRANSACTION_STATE_TOPIC}-{self._k} moved while it was read"


def _start_of(send: Send, partition: Partition) -> int:
    start = list_offsets(send, partition.leader, [partition], Offset.LOG_START)[partition.key]
    if start.error is not None:
        raise RequestFailed(start.error)
    return start.offset


# Where a record stands, from where on no offset is missing before it, and its value.
_Kept = tuple[int, int, bytes | None]


@dataclass
class _Records:
    """Keeps each id's last record; from its first one with a wanted producer id on, all, and the one before.

    So a log that is larger than memory can be read: what is kept is one value for each id.
    """

    producer_ids: frozenset[int]
    last: dict[str, _Kept] = field(default_factory=dict)
    kept: dict[str, list[LoggedTransaction]] = field(default_factory=dict)
    order: list[LoggedTransaction] = field(default_factory=list)
    whole_from: int = -1
    expected: int = -1

    def take(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        """Takes the next record of the log. Raises UnknownRecord."""
        if offset != self.expected:
            self.whole_from = offset
        self.expected = offset + 1
        name = transactional_id(key) if key is not None else None
        if name is None:
            # Brokers skip keys of another kind.
            return
        record = (offset, self.whole_from, value)
        if value is not None and producer_id(value) in self.producer_ids and name not in self.kept:
            self.kept[name] = []
            if name in self.last:
                self._keep(name, self.last.pop(name))
        if name in self.kept:
            self._keep(name, record)
        elif value is not None:
            self.last[name] = record
        else:
            # It expired; whoever has the name next begins anew.
            self.last.pop(name, None)

    def _keep(self, name: str, record: _Kept) -> None:
        offset, whole_from, value = record
        decoded = tombstone(offset, whole_from, name) if value is None else decode(offset, whole_from, name, value)
        self.kept[name].append(decoded)
        self.order.append(decoded)

    @property
    def logged(self) -> tuple[LoggedTransaction, ...]:
        """All that is kept, so that what is read later comes later."""
        return tuple(self.order)
