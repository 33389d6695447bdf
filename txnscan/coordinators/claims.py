"""Claims: open transactions that a coordinator reports as its own. All other transactions need the proof.

On a busy cluster nearly every open transaction has an owner, and evidence *for* an owner needs no obligation (see
`rules.py`). So after the wide read the sweep asks every broker once, without any proof:

    ListTransactions(Ongoing, PrepareCommit, PrepareAbort)
    DescribeTransactions(the listed ids whose producer id has an open transaction, and the ids in Prepare*)

A *claim* is a transactional id in one of these states, as a broker describes it. A transaction with a claim that counts
is *claimed*. A claimed transaction skips the two proven reads and the proven listing between them. The same rules
apply to it as to all others (`rules.py`) and make it `ongoing`, `late_ongoing` or `pending_marker`. A claim exempts a
transaction from the proof, so it counts only under these conditions:
- It lists the partition, at the partition's producer epoch or a later epoch. The same producer may have left another
  transaction open on a partition that the claim does not list. A coordinator with an earlier epoch ends no transaction.
- It comes from the broker that leads the id's partition of `__transaction_state`, at the latest leader epoch that any
  broker reports before the claims. A broker that was deposed before that, and does not know of its successor, still
  makes its old claims (a zombie). One that is deposed later claims what it led until then.
- There is no other claim on the producer id.
- It can be about the open data. Before an id begins a transaction, the markers of its last one are acknowledged. If an
  Ongoing claim began before the wide read, and has a later epoch than the partition had in that read, the partition has
  data of an earlier transaction that missed its marker. The new transaction may have joined committed data
  (`joined_commit` in `rules.py`).

An id that is Ongoing without partitions makes no claim. If a request fails here, the proof covers its transactions, and
the failure is no error.

If any transaction of a partition needs the proof, the whole partition is read, and all its transactions are judged from
that read. A transaction that is only claimed is no proof about its partition: it closes no incident, and its outcome is
not read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from txnscan.coordinators.agreed_metadata import AgreedMetadata
from txnscan.kafka.answers import IN_TRANSACTION, PREPARED, CoordinatorView, OpenProducer, State
from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import Failure
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.protocol.describe_transactions import DescribedTransaction, describe_transactions
from txnscan.kafka.protocol.list_transactions import ListedTransaction, list_transactions
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key
from txnscan.reads.rows import WideRow


@dataclass(frozen=True, slots=True)
class ClaimedTransaction:
    """An open transaction from the wide read, and the view of the coordinator that claims it (`claims.py`)."""

    row: WideRow
    producer: OpenProducer
    claimant: CoordinatorView

    @property
    def key(self) -> Key:
        """The partition of the transaction."""
        return (self.row.topic or "", self.row.partition if self.row.partition is not None else -1)


@dataclass(frozen=True, slots=True)
class ClaimAnswers:
    """The ids in a transaction on one broker: the listed ids, and the requested descriptions of ids. Empty if a request
    failed, which `failure` then has.
    """

    broker_id: int
    listed: Mapping[str, ListedTransaction] = field(default_factory=dict)
    described: Mapping[str, DescribedTransaction] = field(default_factory=dict)
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class CountedClaims:
    """The claims that count, by producer id, each with its partitions.

    prepared: the ids in Prepare*, as the leaders of their `__transaction_state` partitions describe them; no verdict
    depends on these. transactional_ids: the number of ids in a transaction. read_from_ms: the time before the wide
    read, with an allowance for different clocks.
    """

    claims: Mapping[int, tuple[CoordinatorView, frozenset[str]]]
    prepared: tuple[CoordinatorView, ...]
    transactional_ids: int
    read_from_ms: int

    def claimant(self, topic_partition: str, producer: OpenProducer) -> CoordinatorView | None:
        """The claim on this producer's open transaction on the partition, if it is claimed."""
        claim = self.claims.get(producer.producer_id)
        if claim is None:
            return None
        view, partitions = claim
        if topic_partition not in partitions or view.producer_epoch < producer.producer_epoch:
            return None
        earlier_data = view.producer_epoch > producer.producer_epoch and 0 <= view.start_time_ms < self.read_from_ms
        return None if earlier_data and view.state == State.ONGOING else view


@dataclass(frozen=True, slots=True)
class ClaimedAndUnclaimed:
    """The claimed transactions, and the partitions that need the proof (`unclaimed`), with their rows of the wide read.
    prepared, transactional_ids: see CountedClaims.
    """

    claimed: tuple[ClaimedTransaction, ...]
    unclaimed: Mapping[Key, WideRow]
    prepared: tuple[CoordinatorView, ...]
    transactional_ids: int


def ask_claims(send: Send, broker_id: int, open_producer_ids: Collection[int]) -> ClaimAnswers:
    """Asks one broker for its claims. Never raises: if a request fails, the broker makes no claims."""
    try:
        listed = list_transactions(send, broker_id, states=IN_TRANSACTION)
        wanted = [n for n, one in listed.items() if one.producer_id in open_producer_ids or one.state in PREPARED]
        return ClaimAnswers(broker_id, listed, describe_transactions(send, broker_id, sorted(wanted)))
    except RequestFailed as failed:
        return ClaimAnswers(broker_id, failure=failed.failure)


def counted_claims(answers: Iterable[ClaimAnswers], latest: AgreedMetadata | None, read_from_ms: int) -> CountedClaims:
    """The claims that count. Pure. latest: the leaders of `__transaction_state`, asked for before the answers: a broker
    that was deposed since then claims what it led at that time. If it is None, claims of any broker count.
    read_from_ms: see CountedClaims.
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
    of_names = tuple(sorted(prepared, key=lambda view: view.transactional_id))
    return CountedClaims(claims, of_names, len(names), read_from_ms)


def _leaders(latest: AgreedMetadata) -> list[int | None]:
    """The leader of each partition of the log."""
    indexes = latest.indexes(TRANSACTION_STATE_TOPIC)
    return [latest.latest_leader(TRANSACTION_STATE_TOPIC, k) for k in range(len(indexes))]


def _leads(leaders: Sequence[int | None], view: CoordinatorView) -> bool:
    """Whether the broker leads the id's partition of the log."""
    return bool(leaders) and leaders[coordinator_partition(view.transactional_id, len(leaders))] == view.broker_id


def separate_by_claim(
    suspects: Mapping[Key, WideRow],
    always: Collection[Key],
    claimant: Callable[[str, OpenProducer], CoordinatorView | None],
) -> tuple[list[ClaimedTransaction], dict[Key, WideRow]]:
    """The claimed transactions, and the partitions that need the proof. Pure.

    always: partitions of incidents. They are read with proof even if all their open transactions are claimed.
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
