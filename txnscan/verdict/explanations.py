"""The explanation of each rule: one sentence for the user. Pure."""

from __future__ import annotations

from txnscan.kafka.answers import PREPARED, CoordinatorView
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC
from txnscan.kafka.units import duration
from txnscan.verdict import predicates
from txnscan.verdict.ending import coordinator_aborts, timeout_end_ms
from txnscan.verdict.evidence import Evidence

# If a partition refuses a marker (INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED), the coordinator sends no
# more markers of that decision and stays in Prepare* (`TransactionMarkerRequestCompletionHandler`). Kafka 4.3 skips a
# partition that has no leader when markers are sent (`TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue`).
SENDS_AGAIN = (
    "It sends markers again only when it reloads its log: once every partition of the id has a leader, move the leader "
    f"of the id's {TRANSACTION_STATE_TOPIC} partition, or restart that broker"
)


def the_view(e: Evidence) -> CoordinatorView:
    """The only view. If there are several, an earlier rule gives the reason `split`."""
    (view,) = e.coordinators
    return view


def the_id(e: Evidence) -> str:
    return f"Transactional id '{the_view(e).transactional_id}'"


def pending(e: Evidence) -> str:
    view, *_ = predicates.held_by(e, *PREPARED)
    decision = "commit" if view.state == "PrepareCommit" else "abort"
    return (
        f"Transactional id '{view.transactional_id}' has decided to {decision} and still owes this partition the marker"
    )


def decided(e: Evidence) -> str:
    return f"{pending(e)}. Normally the transaction ends by itself, as soon as the partition accepts the marker."


def stuck(e: Evidence) -> str:
    return (
        f"{pending(e)}. The marker is overdue: check why the partition accepts no writes. If it accepts writes, the "
        "coordinator has stopped sending, because a partition refused a marker of this decision. "
        f"{SENDS_AGAIN}. Do not abort the transaction."
    )


def owned(e: Evidence) -> str:
    name = predicates.owners(e)[0].transactional_id
    return f"Transactional id '{name}' has this transaction open, and its coordinator will end it."


def joined_commit(e: Evidence, held_back: str | None = None) -> str:
    """held_back: what may hold back the end of the transaction, as a clause, in place of when it ends."""
    view, *_ = predicates.owners(e)
    by_ms = timeout_end_ms(view.start_time_ms, view.timeout_ms)
    if held_back is not None:
        until = held_back
    elif predicates.two_phase_commit(e):
        until = "it has no timeout, and only its external coordinator may end it"
    else:
        until = coordinator_aborts(by_ms, e.context.now_ms) if by_ms is not None else "its timeout is not known"
    return (
        f"Transactional id '{view.transactional_id}' has a transaction open here, and its marker will also end records "
        f"from offset {e.observation.start_offset} on that an earlier transaction committed: {e.joined_commit}. If it "
        "commits, these records become readable. If it aborts, they are lost to read_committed consumers. No marker "
        f"helps now. Let the application commit; {until}. If the application is about to abort, stop it, and copy the "
        "records before that."
    )


def late_owned(e: Evidence) -> str:
    view, *_ = predicates.owners(e)
    return (
        f"Transactional id '{view.transactional_id}' has had this transaction open for longer than its timeout of "
        f"{duration(view.timeout_ms)}; its coordinator, broker {view.broker_id}, should have aborted it and still can."
    )


def two_phase(e: Evidence) -> str:
    name = predicates.owners(e)[0].transactional_id
    return (
        f"Transactional id '{name}' takes part in a two-phase commit: it has no timeout, and "
        "only its external coordinator may end it."
    )


def behind(e: Evidence) -> str:
    view, *_ = predicates.behind(e)
    return (
        f"Broker {view.broker_id} reports '{view.transactional_id}' at epoch {view.producer_epoch}, before the "
        f"partition's epoch {e.observation.producer_epoch}: it may have lost state, so its answer is no proof."
    )


def ongoing_nowhere(e: Evidence) -> str:
    view, *_ = predicates.ongoing_nowhere(e)
    return (
        f"Transactional id '{view.transactional_id}' is Ongoing but lists no partitions, so some are hidden from this "
        "principal."
    )


def split(e: Evidence) -> str:
    if len(e.coordinators) > 1:
        claims = ", ".join(f"'{v.transactional_id}' on broker {v.broker_id}" for v in e.coordinators)
        return f"Producer id {e.observation.producer_id} has more than one claim ({claims}), so no claim is proof."
    why = the_view(e).split_failure if e.coordinators else e.context.split_failure
    return f"Brokers disagree about {TRANSACTION_STATE_TOPIC}: {why}."


def undescribed(e: Evidence) -> str:
    view = the_view(e)
    return (
        f"Transactional id '{view.transactional_id}' has this producer id but could not be described: "
        f"{view.describe_failure}."
    )


def uncovered(e: Evidence) -> str:
    why = the_view(e).coverage_failure if e.coordinators else e.context.coverage_failure
    return f"A coordinator that may own this transaction was not observed: {why}."


def may_send_again(e: Evidence) -> str:
    view = the_view(e)
    return (
        f"{the_id(e)} is in {view.state} and owes this partition no marker now, but a coordinator that loads its log "
        f"before it completes sends the marker here again. If it stays in {view.state}, check which of its other "
        "partitions accepts no writes. If all accept writes, the coordinator has stopped sending. "
        f"{SENDS_AGAIN}."
    )


def committed(e: Evidence) -> str:
    return (
        f"{the_id(e)} committed, but this partition never got the marker, and no coordinator will send it. "
        "An abort would delete data of the commit, if this data belongs to it."
    )


def stale(e: Evidence) -> str:
    view = the_view(e)
    return (
        f"Transactional id '{view.transactional_id}' went on to epoch {view.producer_epoch} ({view.state}) and does "
        f"not list this partition: no coordinator will end the transaction of epoch {e.observation.producer_epoch}."
    )


def live(e: Evidence) -> str:
    view = the_view(e)
    return (
        f"Transactional id '{view.transactional_id}' is still at epoch {view.producer_epoch} ({view.state}) and does "
        "not list this partition: no coordinator will end this transaction, but its producer can still write here and "
        "must be fenced first."
    )


def ended(e: Evidence) -> str:
    return "The transaction ended during the sweep."


def partition(e: Evidence) -> str:
    return f"The partition could not be read with proof: {predicates.partition_doubt(e)}."


def hidden(e: Evidence) -> str:
    why = "; ".join(map(str, e.context.visibility_failures))
    return f"A transactional id that is hidden from this principal may own this transaction: {why}."


def contradicted(e: Evidence) -> str:
    return (
        f"The log {TRANSACTION_STATE_TOPIC} contradicts the coordinators: {e.log_contradiction}. "
        "A coordinator that reloads it may own this transaction."
    )


def orphan(e: Evidence) -> str:
    return f"No transactional id has producer id {e.observation.producer_id}: no coordinator will end this transaction."


def otherwise(e: Evidence) -> str:
    return f"{the_id(e)} is in state '{the_view(e).state}', which contradicts the partition."
