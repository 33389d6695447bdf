"""The explanation of each rule: one sentence for the user. Pure."""

from __future__ import annotations

from txnscan.kafka.answers import PREPARED, CoordinatorView
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC
from txnscan.kafka.units import duration
from txnscan.verdict import predicates
from txnscan.verdict.evidence import Evidence

# If a partition refuses a marker (INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED), the coordinator sends no
# more markers of that decision and stays in Prepare* (`TransactionMarkerRequestCompletionHandler`). Kafka 4.3 skips a
# partition that has no leader when markers are sent (`TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue`).
SENDS_AGAIN = (
    "It sends again only when it loads its log anew: once every partition of the id has a leader, move the leader of "
    f"the id's {TRANSACTION_STATE_TOPIC} partition, or restart that broker"
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
    return f"{pending(e)}. As a rule it ends by itself as soon as the partition can take it."


def stuck(e: Evidence) -> str:
    return (
        f"{pending(e)}. It is overdue: see why the partition takes no writes. Where it takes writes, its "
        "coordinator has given up sending, because a partition refused a marker of this decision. "
        f"{SENDS_AGAIN}. Do not abort it."
    )


def owned(e: Evidence) -> str:
    return f"Transactional id '{predicates.owners(e)[0].transactional_id}' has this transaction open and will end it."


def late_owned(e: Evidence) -> str:
    view, *_ = predicates.owners(e)
    return (
        f"Transactional id '{view.transactional_id}' has this transaction open for longer than its own timeout of "
        f"{duration(view.timeout_ms)}; its coordinator, broker {view.broker_id}, should have aborted it and still can."
    )


def two_phase(e: Evidence) -> str:
    name = predicates.owners(e)[0].transactional_id
    return (
        f"Transactional id '{name}' takes part in a two-phase commit: it has no timeout, and "
        "only its outside coordinator may end it."
    )


def behind(e: Evidence) -> str:
    view, *_ = predicates.behind(e)
    return (
        f"Broker {view.broker_id} knows '{view.transactional_id}' at epoch {view.producer_epoch}, before the "
        f"partition's {e.observation.producer_epoch}: it may have lost state, so what it says proves nothing."
    )


def ongoing_nowhere(e: Evidence) -> str:
    view, *_ = predicates.ongoing_nowhere(e)
    return (
        f"Transactional id '{view.transactional_id}' is Ongoing but shows no partitions, so some are hidden from this "
        "principal."
    )


def split(e: Evidence) -> str:
    if len(e.coordinators) > 1:
        claims = ", ".join(f"'{v.transactional_id}' on broker {v.broker_id}" for v in e.coordinators)
        return f"More than one claim stands on producer id {e.observation.producer_id} ({claims}), so neither is proof."
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
    return f"A coordinator that could own this transaction was not seen: {why}."


def may_send_again(e: Evidence) -> str:
    view = the_view(e)
    return (
        f"{the_id(e)} is in {view.state} and owes this partition nothing at present, yet sends it the marker again "
        "should a coordinator load its log before it completes. If it stays so, see which of its other partitions "
        f"takes no writes. Where all take writes, its coordinator has given up sending. {SENDS_AGAIN}."
    )


def committed(e: Evidence) -> str:
    return (
        f"{the_id(e)} committed, yet this partition never got the marker and nobody will send it: the data "
        "is probably committed, and aborting would delete it."
    )


def stale(e: Evidence) -> str:
    view = the_view(e)
    return (
        f"Transactional id '{view.transactional_id}' went on to epoch {view.producer_epoch} ({view.state}) and does "
        f"not hold this partition: nobody will end what epoch {e.observation.producer_epoch} left open."
    )


def live(e: Evidence) -> str:
    view = the_view(e)
    return (
        f"Transactional id '{view.transactional_id}' is still at epoch {view.producer_epoch} ({view.state}) and does "
        "not hold this partition: nobody will end this, but its producer can still write here and must be fenced first."
    )


def ended(e: Evidence) -> str:
    return "The transaction ended while the sweep was looking."


def partition(e: Evidence) -> str:
    return f"The partition could not be proven: {predicates.partition_doubt(e)}."


def hidden(e: Evidence) -> str:
    why = "; ".join(map(str, e.context.visibility_failures))
    return f"A transactional id that this principal cannot see could own it: {why}."


def contradicted(e: Evidence) -> str:
    return (
        f"The log {TRANSACTION_STATE_TOPIC} does not bear out what the coordinators said: {e.log_contradiction}. "
        "A coordinator that loads it anew may own this transaction."
    )


def orphan(e: Evidence) -> str:
    return f"No transactional id has producer id {e.observation.producer_id}: nobody will ever end this transaction."


def otherwise(e: Evidence) -> str:
    return f"{the_id(e)} is in state '{the_view(e).state}', which contradicts what the partition shows."
