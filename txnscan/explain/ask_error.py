"""An error without an id: the transactions of the whole cluster that can cause it."""

from __future__ import annotations

from dataclasses import replace

from txnscan.coordinators.transactions import Transaction, list_on
from txnscan.explain.client_errors import ErrorKind
from txnscan.explain.cluster_reads import Asking, hidden_by, names_of, offsets_at, partition_facts, swept_by, with_sweep
from txnscan.explain.facts import Facts, PendingOffsets
from txnscan.kafka.answers import PREPARED
from txnscan.kafka.failure import Failure, Unobserved
from txnscan.kafka.protocol.list_transactions import ListingFilter
from txnscan.kafka.topology import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from txnscan.sweeps.names import absent_topic
from txnscan.verdict.evidence import Verdict
from txnscan.waiting.pending_offsets import pending_offsets


def ask_error(asking: Asking, facts: Facts) -> Facts:
    """What the cluster has that can cause the error. Nothing for an error that no state of a cluster explains."""
    error = facts.symptom.error
    kind = error.kind if error is not None else None
    if kind is ErrorKind.BUSY:
        return _ask_prepared(asking, facts)
    if kind is ErrorKind.OFFSETS:
        return _ask_all_offsets(asking, facts)
    return facts


def _ask_prepared(asking: Asking, facts: Facts) -> Facts:
    """The ids in Prepare* of all coordinators, and whether all were seen."""
    cluster = asking.cluster
    agreed = cluster.agreed_metadata([TRANSACTION_STATE_TOPIC])
    wanted = ListingFilter(states=tuple(PREPARED))
    found: list[Transaction] = []
    failures: list[Failure] = []
    for broker in agreed.brokers:
        for some in list_on(cluster.send, broker.broker_id, wanted, asking.now_ms):
            if isinstance(some, Unobserved):
                failures.append(some.failure)
            else:
                found += some
    listing = cluster.coordinator_listing({}, agreed, lambda done, total: None)
    hidden = hidden_by(listing.coverage_failure, listing.visibility_failures, ())
    return replace(facts, prepared=tuple(found), failures=(*facts.failures, *failures, *hidden))


def _ask_all_offsets(asking: Asking, facts: Facts) -> Facts:
    """The open transactions on `__consumer_offsets`, with the groups whose offsets they have."""
    view = asking.cluster.newest([CONSUMER_OFFSETS_TOPIC])
    if not any(topic.name == CONSUMER_OFFSETS_TOPIC and topic.indexes for topic in view.topics):
        unseen = absent_topic(asking.cluster, "--error", CONSUMER_OFFSETS_TOPIC).unseen
        return facts if unseen is None else replace(facts, failures=(*facts.failures, unseen))
    swept = swept_by(asking, replace(asking.config, topic_names=(CONSUMER_OFFSETS_TOPIC,)))
    found: list[PendingOffsets] = []
    open_there = [one for one in swept.transactions if one.judgement.verdict is not Verdict.GONE]
    after, _ = offsets_at(asking, sorted({one.observation.key for one in open_there})) if open_there else ({}, view)
    for key, row in after.items():
        where = replace(partition_facts(key, swept, row, row), lso_before=None)
        for holder in where.still_open:
            has = pending_offsets(asking.cluster.send, holder.observation)
            for group, keys in sorted(has.groups.items()):
                found.append(PendingOffsets(group, names_of(keys), where, holder))
            if not has.groups:
                found.append(PendingOffsets(None, (), where, holder, has.failure))
    return replace(with_sweep(facts, swept), pending=tuple(found))
