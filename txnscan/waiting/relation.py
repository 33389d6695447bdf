"""Which reader waits for which open transaction: the theory, and one table of rules. Pure.

A reader is a consumer group, a share group, or a streaming query of Spark. It waits for an open transaction if it gets
no further record, or not its committed offsets, before this transaction ends. The question has two ends: a sweep starts
at the transactions (`who_waits.py`), `explain` at the reader. Both read the same facts and ask `relation`.

1. **Offsets.** A transaction on `__consumer_offsets` has committed offsets of groups, and its records name groups and
   partitions (`pending_offsets.py`). The groups' coordinator confirms them: with requireStable it withholds an offset
   that is in an open transaction (UNSTABLE_OFFSET_COMMIT). That answer alone does not identify the transaction, because
   exactly-once applications often get it for a moment. So a group waits if both name the same offset. If one of the two
   could not be read, it may wait.
2. **Records.** read_committed readers get no record from the last stable offset on. The last stable offset is at the
   first open transaction of the partition, so readers wait for no other transaction there.
3. **The next offset** of a group is its committed offset, and that of a query is in its checkpoint (`checkpoint.py`). A
   reader at the last stable offset waits. A reader further back waits if it gets no record before the last stable
   offset: there may be only markers, aborted records and gaps of compaction. The log decides (`delivered.py`).
4. **Isolation levels** of consumer groups and queries are not visible. A reader beyond the last stable offset reads
   read_uncommitted, and waits for no transaction. One that stopped exactly at it looks as if it waited. One that reads
   read_committed, and whose offset a tool set beyond it, waits and does not look so: `--reset-offsets --to-latest` sets
   the high watermark. Each read_uncommitted group looks the same, so it is not counted, and `explain` says so.
5. **Share groups** have no committed offsets. Their isolation level is a setting: with read_uncommitted, the default,
   they wait for no transaction, and with any other level it is not known. A transaction on `__share_group_state` has
   acknowledgements of share groups (KIP-1289, a draft). Its records are not decoded, so share groups may wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, TypeVar

from txnscan.kafka.failure import Failure
from txnscan.waiting.impact import BlockedGroup, BlockedReader, BlockReason

One = TypeVar("One", BlockedGroup, BlockedReader)

# The limit of readers of a kind to keep per transaction. Readers with the greatest lag come first.
KEPT_MAX = 100


class NotBlocked(Enum):
    """Why a reader is not among the readers that wait. READS: it gets a record before the last stable offset. BEYOND:
    it is past the last stable offset. STABLE: its offsets are not in this transaction, or are not withheld.
    UNCOMMITTED: it reads uncommitted records. NOT_FIRST: another open transaction starts before this one.
    """

    READS = auto()
    BEYOND = auto()
    STABLE = auto()
    UNCOMMITTED = auto()
    NOT_FIRST = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class Pair:
    """The facts about a reader and an open transaction. A fact is None if it is not known, or was not looked for.

    has_offsets: whether the transaction has committed offsets of the reader. withheld: whether the reader's coordinator
    withholds offsets: these ones, or any if `has_offsets` is not known. is_first: whether the last stable offset of the
    partition is at the transaction. next_offset: of the reader on the partition. delivers: whether a read_committed
    reader gets a record between these two offsets. reads_uncommitted: by a setting.
    """

    has_offsets: bool | None = None
    withheld: bool | None = None
    is_first: bool | None = None
    last_stable_offset: int | None = None
    next_offset: int | None = None
    delivers: bool | None = None
    reads_uncommitted: bool | None = None

    @property
    def is_about_offsets(self) -> bool:
        """Whether the transaction may withhold offsets, and no records."""
        return self.has_offsets is not None or self.withheld is not None

    @property
    def missing(self) -> int:
        """Offsets from the reader to the last stable offset, which must both be known."""
        return (self.last_stable_offset or 0) - (self.next_offset or 0)


# The first rule that applies gives the answer.
RULES: tuple[tuple[Callable[[Pair], object], BlockReason | NotBlocked], ...] = (
    (lambda p: p.reads_uncommitted, NotBlocked.UNCOMMITTED),
    (lambda p: p.has_offsets and p.withheld, BlockReason.UNSTABLE),
    (lambda p: p.has_offsets and p.withheld is None, BlockReason.MAYBE_UNSTABLE),
    (lambda p: p.has_offsets is None and p.withheld, BlockReason.MAYBE_UNSTABLE),
    (lambda p: p.is_about_offsets, NotBlocked.STABLE),
    (lambda p: p.last_stable_offset is None or p.is_first is None, NotBlocked.UNKNOWN),
    (lambda p: not p.is_first, NotBlocked.NOT_FIRST),
    (lambda p: p.next_offset is None, NotBlocked.UNKNOWN),
    (lambda p: p.missing < 0, NotBlocked.BEYOND),
    (lambda p: p.missing == 0, BlockReason.AT_LSO),
    (lambda p: p.delivers, NotBlocked.READS),
    (lambda p: p.delivers is False, BlockReason.AT_LSO),
    (lambda p: True, NotBlocked.UNKNOWN),
)


def relation(pair: Pair) -> BlockReason | NotBlocked:
    """How the transaction blocks the reader, or why it does not. The only place that decides it."""
    return next(answer for applies, answer in RULES if applies(pair))


@dataclass(frozen=True, slots=True)
class Blocked(Generic[One]):
    """The first of the groups, or of the queries, that a transaction blocks, or may block, and their number. asked: the
    number of groups that were asked about. unknown: why there may be more.
    """

    readers: tuple[One, ...] = ()
    count: int = 0
    asked: int = 0
    unknown: tuple[Failure, ...] = ()

    @property
    def known_count(self) -> int | None:
        """Their number, None if some may be missing."""
        return None if self.unknown else self.count


def kept(blocked: Iterable[One], unknown: Iterable[Failure] = (), *, asked: int = 0) -> Blocked[One]:
    """The readers with the greatest lag, and the number of all."""
    every = sorted(blocked, key=lambda one: (-(one.lag or 0), one.group if isinstance(one, BlockedGroup) else one.path))
    return Blocked(tuple(every[:KEPT_MAX]), len(every), asked, tuple(dict.fromkeys(unknown)))
