"""Signs that the transaction log lost a decision about open data. Pure.

Theory
======
A log that lost its end at an election shows no gap (`elections.py`). But other partitions of the lost transaction may
have its marker. DescribeProducers lists a producer also after its transaction has ended: its epoch and its coordinator
epoch are those of its last marker. The coordinator epoch is the leader epoch of the coordinator's log at that time
(`TransactionCoordinator.onElection`).

A coordinator writes a marker after its decision (Prepare*) was acknowledged, and before it writes the completion. If it
is replaced in between, the next coordinator writes the marker again. So the log explains a closed producer, if it has a
decision with the marker's epoch whose leader epoch is not above the coordinator epoch, and whose completion has a
leader epoch that is not below it.

A commit of data of epoch e writes markers of epoch e (transactions v1) or e + 1 (v2). Let a chain without gaps show the
whole epoch e (`transitions.py`). A closed producer is a sign of loss, if the chain does not explain it, and

- it has epoch e. Exception: the first record of the chain is an end that raised the epoch to e. Its decision may be
  compacted away, and explains coordinator epochs up to its own; or
- it has epoch e + 1, from a coordinator before the one that wrote the record after the epoch. From that coordinator on,
  transactions of epoch e + 1 may have written the marker.

A sign is a **veto**: the lost decision may be a commit of this data. It proves nothing. Leaders forget closed producers
(`producer.id.expiration.ms`), and later transactions replace them, so their absence says nothing. A marker that an
operator wrote by hand is a sign, too, unless txnscan sent it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from txnscan.kafka.answers import PREPARED
from txnscan.reads.observation import Observation
from txnscan.txnlog.facts import ClosedProducer, LoggedTransaction, SentMarker
from txnscan.txnlog.transitions import chain_of, completes, ends_and_raises, is_past

_NO_MARKER_YET = -1
_UNKNOWN_LEADER_EPOCH = -1


def sign_of_loss(
    logged: Sequence[LoggedTransaction], o: Observation, closed: Iterable[ClosedProducer], sent: Iterable[SentMarker]
) -> ClosedProducer | None:
    """A closed producer on another partition that only a lost decision about the open data explains; None if there is
    none.

    logged: the records of one id, with a chain without gaps for this data. sent: the markers that txnscan sent.
    """
    chain, ours = chain_of(logged, o), frozenset(sent)
    over = next((record for record in chain[1:] if is_past(record, o) and record.state not in PREPARED), None)
    for one in sorted(closed, key=lambda one: (one.topic, one.partition, one.producer_epoch, one.coordinator_epoch)):
        other = one.producer_id == o.producer_id and (one.topic, one.partition) != o.key
        if not other or one.coordinator_epoch == _NO_MARKER_YET or one.marker in ours:
            continue
        of_v1 = one.producer_epoch == o.producer_epoch and not _explained_by_first(chain[0], one)
        of_v2 = one.producer_epoch == o.producer_epoch + 1 and (
            over is None or one.coordinator_epoch < over.leader_epoch
        )
        if (of_v1 or of_v2) and not any(_explains(*each, one) for each in _decisions(chain)):
            return one
    return None


def _explained_by_first(first: LoggedTransaction, one: ClosedProducer) -> bool:
    """Whether the decision before the first record of the chain explains it."""
    raised_to = ends_and_raises(first) and first.producer_epoch == one.producer_epoch
    known = first.leader_epoch != _UNKNOWN_LEADER_EPOCH
    return raised_to and not (known and one.coordinator_epoch > first.leader_epoch)


def _decisions(chain: Sequence[LoggedTransaction]) -> Iterator[tuple[LoggedTransaction, LoggedTransaction | None]]:
    """The decisions, each with its completion, if the chain has it."""
    for at, record in enumerate(chain):
        if record.state in PREPARED:
            yield record, next((later for later in chain[at + 1 :] if completes(record, later)), None)


def _explains(decision: LoggedTransaction, completion: LoggedTransaction | None, one: ClosedProducer) -> bool:
    if (decision.producer_id, decision.producer_epoch) != (one.producer_id, one.producer_epoch):
        return False
    last = None if completion is None or completion.leader_epoch == _UNKNOWN_LEADER_EPOCH else completion.leader_epoch
    return decision.leader_epoch <= one.coordinator_epoch and (last is None or one.coordinator_epoch <= last)
