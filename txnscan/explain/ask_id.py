"""A transactional id or a producer id: its transaction, and what it has open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from txnscan.coordinators.transactions import Transaction, describe, key_of
from txnscan.explain import finding
from txnscan.explain.client_errors import ErrorKind
from txnscan.explain.cluster_reads import (
    Asking,
    hidden_by,
    offsets_at,
    partition_facts,
    read_writes,
    sweep_of,
    swept_by,
    why_unseen,
    with_sweep,
)
from txnscan.explain.facts import Facts
from txnscan.kafka.answers import State
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.failure import Failure, FailureCode, Unobserved
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key
from txnscan.sweeps.names import absent_id
from txnscan.sweeps.result import Scan
from txnscan.txnlog.expired import dated
from txnscan.txnlog.timeline import timeline, to_read
from txnscan.verdict.evidence import Judged, Verdict
from txnscan.waiting.owner import id_of

_ABSENT = (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name)


def ask_id(asking: Asking, facts: Facts) -> Facts:
    """A transactional id, by its coordinator, and by its log if the coordinator does not know it."""
    name = facts.symptom.transactional_id or ""
    asking.progress("ask the coordinator", 0, 1)
    found, failed = describe(asking.cluster.send, [name], asking.cluster.newest, asking.now_ms, asking.sleep)
    if not found and any(one.failure.code in _ABSENT for one in failed):
        facts = _with_log(asking, facts, name)
        absent = replace(facts, absent=True)
        is_name_alone = not facts.logged and facts.log_failure is None and facts.symptom.id_may_be_misspelt
        if is_name_alone and finding.no_writes(read_writes(asking, absent)) is None:
            # Whatever its name, no id can begin a transaction if its log takes no writes.
            unseen = why_unseen(asking, absent_id(asking.cluster, name))
            return replace(facts, failures=(*facts.failures, unseen))
        if not facts.logged:
            return absent
        if facts.logged[-1].state == State.DEAD:
            swept = swept_by(asking, asking.config)
            return _of_producer(asking, replace(absent, whole_cluster=True), swept, None, name=name)
        # The log is newer than the answer, or the coordinator did not load all of it.
        found, failed = describe(asking.cluster.send, [name], asking.cluster.newest, asking.now_ms, asking.sleep)
        if any(one.failure.code in _ABSENT for one in failed):
            last = facts.logged[-1]
            why = f"the transaction log has '{name}' in {last.state}, and its coordinator does not know it"
            return replace(facts, failures=(*facts.failures, Failure(why, FailureCode.LEFT_OUT)))
    if not found:
        return replace(facts, failures=(*facts.failures, *(one.failure for one in failed)))
    return _of_transaction(asking, facts, found[0])


def _of_transaction(asking: Asking, facts: Facts, one: Transaction, swept: Scan | None = None) -> Facts:
    """The open transactions of an id: on its partitions, or for an id at rest anywhere. swept: a sweep of all."""
    facts = replace(facts, transaction=one, whole_cluster=swept is not None or not one.partitions)
    error = facts.symptom.error
    if error is not None and error.kind in (ErrorKind.FENCED, ErrorKind.BUSY):
        facts = _with_log(asking, facts, one.transactional_id)
    keys = [key_of(name) for name in one.partitions]
    if swept is None:
        swept = sweep_of(asking, keys) or swept_by(asking, asking.config)
    return _of_producer(asking, facts, swept, one.producer_id, keys, one.transactional_id)


def _of_producer(
    asking: Asking,
    facts: Facts,
    swept: Scan,
    producer_id: int | None,
    keys: Sequence[Key] = (),
    name: str | None = None,
) -> Facts:
    """The open transactions of this producer id, those that hang of earlier producer ids of the transactional id with
    this name, and these partitions of its transaction.
    """
    of_name = [one for one in swept.transactions if name is not None and _owner_id(swept, one) == name]
    wanted = {producer_id, *(one.observation.producer_id for one in of_name)}
    facts = replace(facts, earlier_producer_ids=frozenset(one for one in wanted if one not in (producer_id, None)))
    judged = [one for one in swept.transactions if one.observation.producer_id in wanted]
    every = sorted({*keys, *(one.observation.key for one in judged if one.judgement.verdict is not Verdict.GONE)})
    after = offsets_at(asking, every)[0] if every else {}
    found = []
    for key in every:
        seen = next((one.observation.second for one in judged if one.observation.key == key), None)
        lso = seen.last_stable_offset if seen is not None else None
        row = after.get(key)
        before = row if row is None or lso is None else replace(row, last_stable_offset=lso)
        found.append(replace(partition_facts(key, swept, before, row), failure=None))
    return replace(with_sweep(facts, swept), partitions=tuple(found))


def _owner_id(swept: Scan, one: Judged) -> str | None:
    """The transactional id of a transaction's owner, as the sweep knows it."""
    evidence = swept.evidence_of_outcome(one)
    return id_of(one, evidence.logged if evidence is not None else ())


def _with_log(asking: Asking, facts: Facts, name: str) -> Facts:
    """The facts with the records of this id in the transaction log."""
    asking.progress("read the transaction log", 0, 1)
    send = asking.cluster.send
    wanted, failed = to_read(asking.cluster.newest([TRANSACTION_STATE_TOPIC]), [name], [])
    steps = [
        one for each in wanted for one in dated(send, each.partition, timeline(send, each.partition, names=each.names))
    ]
    failures = [*failed, *(one for one in steps if isinstance(one, Unobserved))]
    return replace(
        facts,
        logged=tuple(one.record for one in steps if not isinstance(one, Unobserved)),
        log_failure=failures[0].failure if failures else None,
    )


def ask_producer_id(asking: Asking, facts: Facts) -> Facts:
    """A producer id: the transactional id that has it, if any, and what it has open in the whole cluster."""
    producer_id = facts.symptom.producer_id
    wanted = {} if producer_id is None else {producer_id: frozenset[str]()}
    cluster = asking.cluster
    cluster.newest([TRANSACTION_STATE_TOPIC])
    agreed = cluster.agreed_metadata([TRANSACTION_STATE_TOPIC])
    listing = cluster.coordinator_listing(wanted, agreed, lambda done, total: None)
    swept = swept_by(asking, asking.config)
    names = sorted({view.transactional_id for view in listing.views})
    if names:
        found, failed = describe(cluster.send, names[:1], cluster.newest, asking.now_ms, asking.sleep)
        failures = tuple(one.failure for one in failed)
        if found and found[0].producer_id == producer_id:
            return _of_transaction(asking, replace(facts, failures=failures), found[0], swept)
        gone = Failure(f"'{names[0]}' had it a moment ago, and went on meanwhile", FailureCode.WRITTEN_MEANWHILE)
        return _of_producer(asking, replace(facts, failures=failures or (gone,)), swept, producer_id or 0)
    hidden = hidden_by(listing.coverage_failure, listing.visibility_failures, listing.views)
    facts = replace(facts, whole_cluster=True, failures=(*facts.failures, *hidden))
    return _of_producer(asking, facts, swept, producer_id or 0)
