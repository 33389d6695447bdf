"""The histories that run on real and on simulated brokers. Data only: the steps are in `steps.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.prove.stage import NEW_V1, NEW_V2, OLD_V1, SETTINGS, Setting
from tests.prove.steps import (
    Add,
    Age,
    Arrive,
    Compact,
    Crash,
    Delete,
    ElectUncleanly,
    End,
    EndInVain,
    Expire,
    Fence,
    Forge,
    ForgetProducers,
    Hold,
    Init,
    Move,
    MoveDisk,
    Rebuild,
    Replace,
    Roll,
    Start,
    Step,
    Stop,
    Swap,
    TimeOut,
    Write,
)

# Long enough for a busy machine to see the open transaction before.
SHORT_TIMEOUT_MS = 6_000
# An append may take this long, and must time out well before a paused broker counts as dead.
SHORTER_TIMEOUT_MS = 4_000


@dataclass(frozen=True)
class Script:
    """One history.

    shows: its purpose. topics: the replicas of each topic's partition, the leader first. coordinator: the kind of
    coordinator of the id (`placing.COORDINATORS`). min_isr: of topics with that many replicas. verified: whether
    brokers that can verify transactions do so. on: the settings in which it makes sense.
    """

    name: str
    shows: str
    steps: tuple[Step, ...]
    topics: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: {"p": (1, 2), "q": (2, 3)})
    coordinator: str = "moves"
    min_isr: int = 1
    verified: bool = True
    on: tuple[Setting, ...] = SETTINGS


_OWED = {"p": (1, 2), "q": (1, 3)}
# A record is in flight when the transaction ends on p, and q is owed its marker because broker 3 is down.
_OWED_IN_PART = (Init(), Write("p"), Write("q"), Hold("p"), Stop(3), End(commit=False))
_V1 = (NEW_V1, OLD_V1)
# An instance commits two records at an epoch that the log of the ids loses, and another one gets that epoch.
_LOST_EPOCH_ENDED = (*(Init(), Init(), Write("p"), Write("p"), End(commit=True), Crash(1, left=1), Start(1), Init()),)

SCRIPTS = (
    Script(
        "commit-one",
        "a commit over one partition, twice: v2 raises the epoch at each end, v1 never",
        (Init(), Write("p"), End(commit=True), Write("p"), Write("p"), End(commit=True)),
    ),
    Script(
        "abort-one",
        "an abort over one partition, and a commit after it",
        (Init(), Write("p"), End(commit=False), Write("q"), End(commit=True)),
    ),
    Script(
        "commit-two",
        "a commit over two partitions with different leaders",
        (Init(), Write("p"), Write("q"), End(commit=True)),
    ),
    Script("abort-two", "the same, aborted", (Init(), Write("p"), Write("q"), End(commit=False))),
    Script(
        "init-again",
        "a new instance goes on at the next epoch, of the same producer id",
        (Init(), Init(), Write("p"), End(commit=True), Init(), Init()),
    ),
    Script(
        "fence",
        "a new instance while a transaction is ongoing has it aborted: which epochs the markers and the id have",
        (Init(), Write("p"), Write("q"), Fence(), Init(), Write("p"), End(commit=True)),
    ),
    Script(
        "fence-owed",
        "the same, and one marker is owed: the epoch in PrepareAbort is above the partition's",
        (Init(), Write("p"), Write("q"), Stop(3), Fence(), Start(3)),
        topics=_OWED,
        min_isr=2,
    ),
    Script(
        "fence-unwritten",
        "a fence that cannot be written to the coordinator's log: v1 stays ongoing at the next epoch, v2 as it was",
        (Init(), Write("p"), Stop(2), Fence(), Fence(), Start(2), Fence(), Init(), Write("p"), End(commit=True)),
        topics={"p": (1,)},
        min_isr=2,
    ),
    Script(
        "timeout",
        "a transaction past its timeout is aborted by its coordinator: which epochs are seen",
        (Init(timeout_ms=SHORT_TIMEOUT_MS), Write("p"), TimeOut(), Init(), Write("p"), End(commit=True)),
    ),
    Script(
        "timeout-owed",
        "the same, and one marker is owed",
        (Init(timeout_ms=SHORT_TIMEOUT_MS), Write("p"), Write("q"), Stop(3), TimeOut(), Start(3)),
        topics=_OWED,
        min_isr=2,
    ),
    Script(
        "add-twice",
        "a partition that is added again changes nothing; one that gets no data is ended like the others",
        (Init(), Add("p"), Add("p"), Write("p"), Add("q"), End(commit=True), Add("q"), End(commit=False)),
        on=_V1,
    ),
    Script(
        "marker-owed",
        "a marker that cannot be written: the decided transaction lists that partition alone, until it can",
        (Init(), Write("p"), Write("q"), Stop(3), End(commit=True), Start(3), Write("q"), End(commit=False)),
        topics=_OWED,
        min_isr=2,
    ),
    Script(
        "owed-and-moved",
        "the coordinator moves while one of two markers is acknowledged: its log has both, so it sends both again",
        (Init(), Write("p"), Write("q"), Stop(3), End(commit=True), Move("coordinator", 2), Start(3)),
        topics=_OWED,
        min_isr=2,
    ),
    Script(
        "owed-and-reloaded",
        "a follower of the coordinator's log goes and comes: on 3.5.2 all markers are sent again, twice; on 4.3.1 none",
        (Init(), Write("p"), Write("q"), Forge("q", above=5), End(commit=True), Stop(2), Start(2)),
        topics={"p": (1,), "q": (3,)},
        verified=False,
    ),
    Script(
        "late-and-moved",
        "late data on the partition that is acknowledged opens it again; the marker of the new coordinator ends it",
        (*_OWED_IN_PART, Arrive(taken=True), Move("coordinator", 2), Start(3)),
        topics=_OWED,
        min_isr=2,
        verified=False,
        on=_V1,
    ),
    Script(
        "late-and-stays",
        "late data on the partition that is acknowledged stays open when the coordinator does not change: it hangs",
        (*_OWED_IN_PART, Arrive(taken=True), Start(3)),
        topics=_OWED,
        min_isr=2,
        verified=False,
        on=_V1,
    ),
    Script(
        "late-refused-in-prepare",
        "transactions v2: late data on the partition that is acknowledged is refused, by its epoch",
        (*_OWED_IN_PART, Arrive(taken=False), Move("coordinator", 2), Start(3)),
        topics=_OWED,
        min_isr=2,
        on=(NEW_V2,),
    ),
    Script(
        "ongoing-moved",
        "an ongoing transaction survives a move of its coordinator, and goes on",
        (Init(), Write("p"), Move("coordinator", 2), Write("q"), End(commit=True)),
    ),
    Script(
        "ongoing-moved-timeout",
        "an ongoing transaction survives a move of its coordinator, and is kept until its timeout",
        (Init(timeout_ms=SHORT_TIMEOUT_MS + 4_000), Write("p"), Move("coordinator", 2), TimeOut()),
    ),
    Script(
        "leaderless",
        "a partition has no leader when its transaction is committed: 4.3.1 skips its marker, 3.5.2 keeps it",
        (Init(), Write("p"), Write("q"), Stop(3), End(commit=True), Start(3)),
        topics={"p": (1,), "q": (3,)},
        coordinator="stays",
    ),
    Script(
        "leaderless-abort",
        "the same with an abort, and the id's next transaction on the partition ends what hangs",
        (Init(), Write("q"), Stop(3), End(commit=False), Start(3), Write("q"), End(commit=True)),
        topics={"q": (3,)},
        coordinator="stays",
    ),
    Script(
        "leaderless-fence",
        "a fence while the partition has no leader",
        (Init(), Write("q"), Stop(3), Fence(), Start(3), Init()),
        topics={"q": (3,)},
        coordinator="stays",
    ),
    Script(
        "late-unverified",
        "transactions v1, nothing verified: late data after an abort opens a transaction at the same epoch",
        (Init(), Write("p"), Hold("p"), End(commit=False), Arrive(taken=True), Write("p"), End(commit=True)),
        verified=False,
        on=_V1,
    ),
    Script(
        "late-verified",
        "the same on brokers that verify: it is refused",
        (Init(), Write("p"), Hold("p"), End(commit=False), Arrive(taken=False)),
        on=(NEW_V1, NEW_V2),
    ),
    Script(
        "late-into-open",
        "late data at the epoch of an open transaction is not verified: it joins what is open",
        (Init(), Write("p"), Hold("p"), End(commit=False), Write("p"), Arrive(taken=True), End(commit=True)),
        on=(NEW_V1, OLD_V1),
    ),
    Script(
        "late-fenced",
        "late data at an epoch below the partition's is refused, verified or not",
        (Init(), Write("p"), Hold("p"), Fence(), Init(), Arrive(taken=False), Write("p"), End(commit=True)),
        verified=False,
    ),
    Script(
        "late-below",
        "late data at an epoch that the coordinator has left, and the partition does not know it: it opens",
        (Init(), Write("p"), Hold("p"), End(commit=False), Init(), Arrive(taken=True), Init()),
        verified=False,
        on=_V1,
    ),
    Script(
        "joined",
        "data of the next epoch joins the transaction that late data left open, and its marker ends both",
        (
            *(Init(), Write("p"), Hold("p"), End(commit=False), Init(), Arrive(taken=True)),
            *(Write("p"), End(commit=True)),
        ),
        verified=False,
        on=_V1,
    ),
    Script(
        "marker-refused",
        "the partition knows a higher epoch than the marker's: it is refused, and the decided transaction stays",
        (Init(), Write("p"), Write("q"), Forge("q", above=5), End(commit=True), Move("coordinator", 2)),
        verified=False,
    ),
    Script(
        "commit-in-vain",
        "a commit is in the log, and not acknowledged in time: it stays there, and the transaction is aborted",
        (
            *(Init(timeout_ms=SHORTER_TIMEOUT_MS), Write("p"), EndInVain(commit=True, paused=2)),
            *(Init(), Write("p"), End(commit=True)),
        ),
        topics={"p": (1,)},
    ),
    Script(
        "abort-in-vain",
        "the same with an abort, which is made twice",
        (
            *(Init(timeout_ms=SHORTER_TIMEOUT_MS), Write("p"), EndInVain(commit=False, paused=2)),
            *(Init(), Write("p"), End(commit=True)),
        ),
        topics={"p": (1,)},
    ),
    Script(
        "forgotten",
        "the replicas forget a producer between its transactions: its epoch and the coordinator epoch of its marker",
        (
            *(Init(), Write("p"), End(commit=True), ForgetProducers((1, 2)), Write("p"), Write("p")),
            *(End(commit=False), ForgetProducers((2,)), Move("p", 2), Write("p"), End(commit=True)),
        ),
        topics={"p": (1, 2)},
    ),
    Script(
        "forgotten-late",
        "late data at an epoch that the partition forgot is taken, without a coordinator epoch, and later data of the "
        "live producer is refused: it is not the first of its epoch",
        (
            *(Init(), Write("p"), Hold("p"), End(commit=False), Init(), Write("p"), End(commit=True)),
            *(ForgetProducers((1, 2)), Arrive(taken=True), Add("p"), Hold("p"), Arrive(taken=False), End(commit=True)),
        ),
        topics={"p": (1, 2)},
        verified=False,
        on=_V1,
    ),
    Script(
        "forgotten-late-verified",
        "the same on brokers that verify: it is refused",
        (
            *(Init(), Write("p"), Hold("p"), End(commit=False), Init(), Write("p"), End(commit=True)),
            *(ForgetProducers((1, 2)), Arrive(taken=False), Write("p"), End(commit=True)),
        ),
        topics={"p": (1, 2)},
        on=(NEW_V1, NEW_V2),
    ),
    Script(
        "forgotten-by-one",
        "one replica forgets a producer and leads: late data at a lower epoch is taken, and its follower takes it too",
        (
            *(Init(), Write("p"), Hold("p"), End(commit=False), Init(), Write("p"), End(commit=True)),
            *(ForgetProducers((2,)), Move("p", 2), Arrive(taken=True), Move("p", 1), Init(), Write("p")),
            End(commit=True),
        ),
        topics={"p": (1, 2)},
        verified=False,
        on=_V1,
    ),
    Script(
        "deleted",
        "the first records of an open transaction are deleted: it begins where it did, also on the next leader",
        (
            *(Init(), Write("p"), Write("p"), Delete("p", 1), Write("p"), Move("p", 2), Write("p")),
            *(Delete("p", 4), End(commit=True)),
        ),
        topics={"p": (1, 2)},
    ),
    Script(
        "disk-moved",
        "the same, and the leader moves to another disk: the transaction begins later, at the same leader epoch",
        (Init(), Write("p"), Write("p"), Delete("p", 1), MoveDisk("p"), Write("p"), End(commit=True)),
        topics={"p": (1, 2)},
    ),
    Script(
        "disk-moved-empty",
        "all records are deleted: after the move nothing is open, and the transaction goes on",
        (Init(), Write("p"), Write("p"), Delete("p", 2), MoveDisk("p"), Write("p"), Write("p"), End(commit=False)),
        topics={"p": (1, 2)},
        on=_V1,
    ),
    Script(
        "disk-moved-empty-v2",
        "the same under transactions v2: a batch that is not the first of its epoch is refused",
        (
            *(Init(), Write("p"), Write("p"), Delete("p", 2), MoveDisk("p"), Hold("p"), Arrive(taken=False)),
            *(End(commit=False), Write("p"), End(commit=True)),
        ),
        topics={"p": (1, 2)},
        on=(NEW_V2,),
    ),
    Script(
        "disk-moved-at-rest",
        "only a marker is left: after the move its epoch is known, and no number of a record",
        (
            *(Init(), Write("p"), End(commit=True), Delete("p", 1), MoveDisk("p")),
            *(Add("p"), Hold("p"), Arrive(taken=False), End(commit=False), Init(), Write("p"), End(commit=True)),
        ),
        topics={"p": (1, 2)},
        on=_V1,
    ),
    Script(
        "disk-moved-remembers",
        "a replica that forgot a producer knows it again after the move",
        (Init(), Write("p"), End(commit=True), ForgetProducers((1, 2)), MoveDisk("p"), Write("p"), End(commit=True)),
        topics={"p": (1, 2)},
    ),
    Script(
        "rebuilt",
        "a killed broker builds its producers' state without the segments that are deleted: it begins later, as leader",
        (
            *(Init(), Roll("p"), Write("p"), Write("p"), Delete("p", 1), Stop(1, kill=True), Rebuild("p", 1)),
            *(Start(1), Move("p", 1), Write("p"), End(commit=True)),
        ),
        topics={"p": (1, 2)},
    ),
    Script(
        "killed-and-deleted",
        "a killed broker reads its last segment from the beginning, also below the start of the log: nothing moved",
        (
            *(Init(), Write("p"), Write("p"), Delete("p", 1), Stop(1, kill=True), Start(1)),
            *(Move("p", 1), Write("p"), End(commit=True)),
        ),
        topics={"p": (1, 2)},
    ),
    Script(
        "not-rebuilt",
        "a broker that stopped cleanly has its producers' state from before",
        (
            *(Init(), Write("p"), Write("p"), Delete("p", 1), Stop(1), Start(1)),
            *(Move("p", 1), Write("p"), End(commit=True)),
        ),
        topics={"p": (1, 2)},
    ),
    Script(
        "compacted",
        "the log is compacted under its coordinator: of each id the last record is left, and what it loads is the same",
        (Init(), Write("p"), End(commit=True), Write("p"), Compact(), Move("coordinator", 2), End(commit=True), Init()),
        topics={"p": (1, 2)},
    ),
    Script(
        "compacted-while-away",
        "a replica of the log is down while its leader is compacted, and leads then: its log has a hole in the middle",
        (
            *(Init(), Write("p"), Stop(2), Write("p"), End(commit=True), Write("p"), End(commit=False)),
            *(Compact(), Start(2), Move("coordinator", 2), Init(), Write("p"), End(commit=True)),
        ),
        topics={"p": (1, 3)},
    ),
    Script(
        "commit-in-a-hole",
        "the same, and the hole has a commit, whose marker was skipped because its partition is on that broker alone",
        (
            *(Init(), Write("p"), Write("q"), Stop(2), End(commit=True), Init()),
            *(Compact(), Start(2), Move("coordinator", 2)),
        ),
        topics={"p": (1,), "q": (2,)},
        on=(NEW_V2, NEW_V1),
    ),
    Script(
        "expired",
        "an id at rest is forgotten (TRANSACTIONAL_ID_NOT_FOUND), and gets a new producer id when it is back",
        (Init(), Write("p"), End(commit=True), Expire(), Init()),
        topics={"p": (1, 2)},
        coordinator="forgets",
    ),
    Script(
        "expired-empty",
        "an id that never wrote is forgotten too",
        (Init(), Expire(), Init(), Write("p"), End(commit=False), Expire()),
        topics={"p": (1, 2)},
        coordinator="forgets",
    ),
    Script(
        "leader-killed",
        "the leader of an open transaction's partition is killed: the next one shows it as it was, and ends it",
        (Init(), Write("p"), Stop(1, kill=True), Write("p"), End(commit=True), Start(1), Write("p"), End(commit=False)),
        topics={"p": (1, 2)},
    ),
    Script(
        "leader-moved",
        "the leader moves in a transaction: both replicas answer alike before and after",
        (Init(), Write("p"), Move("p", 2), Write("p"), End(commit=False), Move("p", 1), Write("p"), End(commit=True)),
    ),
    Script(
        "coordinator-killed",
        "the only coordinator is killed and restarted: what is ongoing is loaded from its log, and goes on",
        (Init(), Write("p"), Stop(1, kill=True), Start(1), Write("p"), End(commit=True)),
        topics={"p": (2, 3)},
        coordinator="stays",
    ),
    Script(
        "coordinator-killed-in-prepare",
        "it is killed when one of two markers is acknowledged: it loads the whole list, and sends both again",
        (Init(), Write("p"), Write("q"), Forge("q", above=5), End(commit=True), Stop(1, kill=True), Start(1)),
        topics={"p": (2,), "q": (2, 3)},
        coordinator="stays",
        verified=False,
    ),
    Script(
        "lost-completion",
        "the log of the ids lost the completion of a commit: its marker is written twice",
        (Init(), Write("p"), End(commit=True), Crash(1, left=3), Start(1), Write("p"), End(commit=False)),
        topics={"p": (2, 3)},
        coordinator="stays",
    ),
    Script(
        "lost-completion-and-more",
        "the same, and the next transaction is open: v1 ends it with the marker of the first; v2 refuses that marker",
        (Init(), Write("p"), End(commit=True), Write("p"), Crash(1, left=3), Start(1)),
        topics={"p": (2, 3)},
        coordinator="stays",
    ),
    Script(
        "lost-commit",
        "the log of the ids lost a commit: the transaction is ongoing again, and aborted after its commit marker",
        (
            *(Init(), Write("p"), End(commit=True), Crash(1, left=2), Start(1), Fence(), Init(), Write("p")),
            End(commit=True),
        ),
        topics={"p": (2, 3)},
        coordinator="stays",
    ),
    Script(
        "lost-id",
        "the log of the ids lost an id: its open transaction hangs, and it gets a new producer id",
        (
            *(Init("b"), Init(), Write("p"), Crash(1, left=1), Start(1), Init(), Write("p")),
            *(End(commit=True), Write("p"), End(commit=False)),
        ),
        topics={"p": (2, 3)},
        coordinator="stays",
        on=(NEW_V2, OLD_V1),
    ),
    Script(
        "lost-transaction",
        "the log of the ids lost a committed transaction, and one of two partitions has its marker: the other hangs, "
        "and the application, which begins anew, joins and aborts its data",
        (
            *(Init(), Write("p"), Write("q"), Stop(3), End(commit=True), Crash(1, left=1, started=3), Start(1)),
            *(Init(), Write("q"), End(commit=True), Write("p"), End(commit=False)),
        ),
        topics={"p": (2, 3), "q": (2,)},
        coordinator="stays",
        min_isr=2,
    ),
    Script(
        "lost-ongoing",
        "the log of the ids lost that a partition was added: its data is open, and its coordinator knows nothing",
        (
            *(Init(), Write("p"), Crash(1, left=1), Start(1), Add("q"), End(commit=False)),
            *(Init(), Write("p"), End(commit=True)),
        ),
        topics={"p": (2, 3), "q": (2,)},
        coordinator="stays",
        on=_V1,
    ),
    Script(
        "lost-ongoing-v2",
        "the same under transactions v2: its leader adds it no more while its data is open, so the commit leaves it",
        (
            *(Init(), Write("p"), Crash(1, left=1), Start(1), Write("q"), Write("p"), End(commit=True)),
            *(Write("p"), End(commit=False)),
        ),
        topics={"p": (2, 3), "q": (2,)},
        coordinator="stays",
        on=(NEW_V2,),
    ),
    Script(
        "lost-epoch",
        "transactions v1: the log of the ids lost an epoch, and a new instance gets it again. Its first batch is taken "
        "for a duplicate, acknowledged and not written; its second one joins the open transaction",
        (
            *(Init(), Init(), Write("p"), Crash(1, left=1), Start(1), Init(), Write("p"), Write("p")),
            *(End(commit=True), Write("p"), End(commit=True)),
        ),
        topics={"p": (2, 3)},
        coordinator="stays",
        on=_V1,
    ),
    Script(
        "lost-epoch-ended",
        "the same, and the transaction of the first instance was committed: a batch is a duplicate after the marker "
        "too, and after all known numbers the next one is written",
        (*_LOST_EPOCH_ENDED, Write("p"), End(commit=False), Write("p"), Write("p"), End(commit=True)),
        topics={"p": (2, 3)},
        coordinator="stays",
        on=(OLD_V1,),
    ),
    Script(
        "lost-epoch-ended-verified",
        "the same on brokers that verify: after a duplicate the next one is refused, until a marker is written",
        (
            *(*_LOST_EPOCH_ENDED, Write("p"), End(commit=False), Write("p"), Hold("p"), Arrive(taken=False)),
            *(End(commit=True), Write("p"), Write("p"), End(commit=True)),
        ),
        topics={"p": (2, 3)},
        coordinator="stays",
        on=(NEW_V1,),
    ),
    Script(
        "lost-epoch-v2",
        "the same under transactions v2",
        (
            *(Init(), Init(), Write("p"), Crash(1, left=1), Start(1), Init(), Write("q"), Write("p"), Write("p")),
            *(End(commit=True), Write("p"), End(commit=True)),
        ),
        topics={"p": (2, 3), "q": (2,)},
        coordinator="stays",
        on=(NEW_V2,),
    ),
    Script(
        "unclean-commit",
        "a replica of the log that lacks a commit leads: the transaction is ongoing there, and is aborted",
        (
            *(Init(), Write("p"), Stop(2), End(commit=True), Swap(killed=1, started=2)),
            *(ElectUncleanly("coordinator", 2), Fence(), Start(1), Init(), Write("p"), End(commit=True)),
        ),
        topics={"p": (3,)},
    ),
    Script(
        "unclean-data",
        "a replica of a partition that lacks a commit marker leads: the transaction hangs, and the next one joins it",
        (
            *(Init(), Write("p"), Stop(2), End(commit=True), Swap(killed=1, started=2), ElectUncleanly("p", 2)),
            *(Start(1), Write("p"), End(commit=False)),
        ),
        topics={"p": (1, 2)},
        coordinator="stays",
        on=(NEW_V2, OLD_V1),
    ),
    Script(
        "unclean-transaction",
        "a replica of a partition leads that lacks a record of an open transaction: it refuses the next one, and the "
        "rest of the transaction is committed",
        (
            *(Init(), Write("p"), Stop(3), Write("p"), Swap(killed=2, started=3), ElectUncleanly("p", 3)),
            *(Hold("p"), Arrive(taken=False), End(commit=True), Start(2), Init(), Write("p"), End(commit=True)),
        ),
        topics={"p": (2, 3)},
        coordinator="stays",
    ),
    Script(
        "unclean-decided",
        "the same, and the transaction is committed while nobody leads: Kafka 4 skips its marker, and 3.5.2 sends it "
        "to the new leader",
        (
            *(Init(), Write("p"), Stop(3), Write("p"), Swap(killed=2, started=3), End(commit=True)),
            *(ElectUncleanly("p", 3), Start(2), Init()),
        ),
        topics={"p": (2, 3)},
        coordinator="stays",
    ),
    Script(
        "replaced",
        "a new replica copies a log without its first records, and leads: the transaction begins later",
        (
            *(Init(), Write("p"), Write("p"), Delete("p", 1), Replace("p", 2), Move("p", 2)),
            *(Write("p"), End(commit=True)),
        ),
        topics={"p": (1, 2)},
        on=(NEW_V2, OLD_V1),
    ),
    Script(
        "epochs-used-up",
        "at the last epoch the producer id rotates: in v2 by the end of a transaction, else by the next instance",
        (
            *(Init(), Age(32_763), Move("coordinator", 2), Init(), Write("p"), End(commit=True)),
            *(Write("p"), End(commit=False), Init(), Write("p"), End(commit=True), Init(), Init()),
        ),
    ),
    Script(
        "epochs-used-up-at-the-end",
        "the marker of the last epoch is owed: the old producer id is shown until it is written",
        (
            *(Init(), Age(32_765), Move("coordinator", 2), Init(), Write("p"), Write("q"), Stop(3)),
            *(End(commit=True), Start(3), Init(), Write("q"), End(commit=True)),
        ),
        topics=_OWED,
        min_isr=2,
    ),
    Script(
        "epochs-used-up-fence",
        "a transaction is fenced at the last epoch but one",
        (
            Init(),
            Age(32_765),
            Move("coordinator", 2),
            Init(),
            Write("p"),
            Fence(),
            Init(),
            Write("p"),
            End(commit=True),
        ),
    ),
)
