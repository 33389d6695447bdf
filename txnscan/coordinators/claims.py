"""Claims: open transactions that a coordinator reports as its own. All others are read with proof.

On a busy cluster nearly every open transaction has an owner, and evidence *for* an owner needs no obligation (see
`rules.py`). So after the wide read every broker is asked once, without any proof:

    ListTransactions(Ongoing, PrepareCommit, PrepareAbort)
    DescribeTransactions(the listed ids whose producer id is open somewhere, and those in Prepare*)

A *claim* is a transactional id in one of these states, as a broker describes it. A transaction with a claim that counts
is *claimed*. It stays out of the two proven reads and of the proven snapshot between them, and is `ongoing`,
`late_ongoing` or `pending_marker`, by the same rules as any other (`rules.py`). A claim hides a transaction from the
proof, so it counts only
- for the partitions that it lists, at the partition's producer epoch or a later one. The same producer may have left
  something open on another partition, and a coordinator that has fallen behind ends nothing;
- from the broker that leads the id's partition of `__transaction_state`, at the latest leader epoch that any broker
  names. A broker that was deposed and does not know it yet still makes its claims (a zombie);
- when there is no other claim on the producer id.
An id that is Ongoing and lists no partitions claims nothing. Whatever fails here is left to the proof, and is no error.

A partition with anything left to prove is read whole, and all its transactions are judged from that. A transaction that
is only claimed proves nothing about its partition: it closes no incident, and no outcome is read for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from txnscan.coordinators.metadata_quorum import Agreement
from txnscan.kafka.answers import IN_TRANSACTION, PREPARED, CoordinatorView, OpenProducer
from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.protocol.describe_transactions import DescribedTransaction, describe_transactions
from txnscan.kafka.protocol.list_transactions import ListedTransaction, list_transactions
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key
from txnscan.reads.rows import WideRow


@dataclass(frozen=True, slots=True)
class ClaimedTransaction:
    """An open transaction as the wide read saw it, and the view of the coordinator that claims it (`claims.py`)."""

    row: WideRow
    producer: OpenProducer
    claimant: CoordinatorView

    @property
    def key(self) -> Key:
        """Its partition."""
        return (self.row.topic or "", self.row.partition if self.row.partition is not None else -1)


@dataclass(frozen=True, slots=True)
class ClaimAnswers:
    """What one broker reports about the ids in a transaction: those listed, and those described where that was asked
    for. Empty where a request failed.
    """

    broker_id: int
    listed: Mapping[str, ListedTransaction] = field(default_factory=dict)
    described: Mapping[str, DescribedTransaction] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CountedClaims:
    """The claims that count, by producer id, each with the partitions that it lists.

    prepared: the ids in Prepare*, as the leaders of their `__transaction_state` partitions describe them; no verdict
    rests on these. transactional_ids: how many ids are in a transaction.
    """

    claims: Mapping[int, tuple[CoordinatorView, frozenset[str]]]
    prepared: tuple[CoordinatorView, ...]
    transactional_ids: int

    def claimant(self, topic_partition: str, producer: OpenProducer) -> CoordinatorView | None:
        """The claim on what this producer has open on the partition, or None."""
        claim = self.claims.get(producer.producer_id)
        if claim is None:
            return None
        view, partitions = claim
        return view if topic_partition in partitions and view.producer_epoch >= producer.producer_epoch else None


@dataclass(frozen=True, slots=True)
class ClaimSplit:
    """What is claimed, and the partitions that are left to be read with proof, as the wide read saw them.

    agreed: what all brokers agree on about `__transaction_state` and the topics of what is left. prepared,
    transactional_ids: see CountedClaims.
    """

    claimed: tuple[ClaimedTransaction, ...]
    unclaimed: Mapping[Key, WideRow]
    agreed: Agreement
    prepared: tuple[CoordinatorView, ...]
    transactional_ids: int


def ask_claims(send: Send, broker_id: int, open_producer_ids: Collection[int]) -> ClaimAnswers:
    """Asks one broker. Never raises: what fails is left to the proof."""
    try:
        listed = list_transactions(send, broker_id, states=IN_TRANSACTION)
        wanted = [n for n, one in listed.items() if one.producer_id in open_producer_ids or one.state in PREPARED]
        return ClaimAnswers(broker_id, listed, describe_transactions(send, broker_id, sorted(wanted)))
    except RequestFailed:
        return ClaimAnswers(broker_id)


def counted_claims(answers: Iterable[ClaimAnswers], latest: Agreement | None) -> CountedClaims:
    """The claims that count. Pure. latest: who leads `__transaction_state`, as far as brokers know; where it is None,
    claims of any broker count.
    """
    by_producer_id: dict[int, list[CoordinatorView | None]] = defaultdict(list)
    names: set[str] = set()
    prepared: list[CoordinatorView] = []
    leaders = None if latest is None else _leaders(latest)
    for answer in answers:
        names.update(answer.listed)
        for name, listing in answer.listed.items():
            described = answer.described.get(name)
            view = described.view(name, answer.broker_id) if described is not None and not described.error else None
            if view is not None and leaders is not None and not _leads(leaders, view):
                view = None
            by_producer_id[listing.producer_id].append(view)
            if view is not None and view.state in PREPARED:
                prepared.append(view)
    claims = {
        view.producer_id: (view, frozenset(view.partitions))
        for producer_id, (view, *others) in by_producer_id.items()
        if not others and view is not None and view.producer_id == producer_id and view.state in IN_TRANSACTION
    }
    return CountedClaims(claims, tuple(sorted(prepared, key=lambda view: view.transactional_id)), len(names))


def _leaders(latest: Agreement) -> list[int | None]:
    """Who leads each partition of the log."""
    indexes = latest.indexes(TRANSACTION_STATE_TOPIC)
    return [latest.latest_leader(TRANSACTION_STATE_TOPIC, k) for k in range(len(indexes))]


def _leads(leaders: Sequence[int | None], view: CoordinatorView) -> bool:
    """Whether the broker leads the id's partition of the log."""
    return bool(leaders) and leaders[coordinator_partition(view.transactional_id, len(leaders))] == view.broker_id


def split_by_claim(
    suspects: Mapping[Key, WideRow],
    always: Collection[Key],
    claimant: Callable[[str, OpenProducer], CoordinatorView | None],
) -> tuple[list[ClaimedTransaction], dict[Key, WideRow]]:
    """What is claimed, and the partitions that are left to be read with proof. Pure.

    always: partitions that are read with proof even if all that is open there is claimed: those of incidents.
    claimant: `CountedClaims.claimant`.
    """
    claimed: list[ClaimedTransaction] = []
    left: dict[Key, WideRow] = {}
    for key, row in suspects.items():
        topic, index = key
        found = [(producer, claimant(f"{topic}-{index}", producer)) for producer in row.open_producers]
        here = [ClaimedTransaction(row, producer, view) for producer, view in found if view is not None]
        if key in always or len(here) < len(found):
            left[key] = row
        else:
            claimed += here
    return claimed, left
