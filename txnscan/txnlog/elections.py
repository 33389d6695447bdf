"""Elections at which the transaction log may have lost a commit. Pure.

Theory
======
A commit that is not in the log was never written, or the log lost it. Compaction leaves gaps, which a chain shows
(`transitions.py`). The only other loss is an election: an unclean election, or a restart of the last in-sync replica
after a crash of its machine, which had not flushed the end of the log. The new leader continues from an older state of
the id. A producer that restarts then gets the next epoch, and the chain has no gap.

**A leader only appends.** So a stretch of the log that was written at one leader epoch lost nothing in its middle. Let
e be the leader epoch of the chain, from the last record before the data's epoch to a record after it. No coordinator
has committed this data without a record in the chain, if

1. *all of the chain was written at e.* A commit by the coordinator of e would be in the chain: within its leader epoch,
   a coordinator never returns to an earlier epoch of an id;
2. *the data was written after e began.* Then no earlier coordinator has committed it. An earlier coordinator may have
   reached the same epochs, in records that the election of e lost. The data is known to be later if
   - e is 0, the first leader epoch of the partition, or
   - the producer id was first used at e, or
   - the data's partition has a marker of its producer id from a coordinator of e or later. A marker ends all open data
     of its producer id, so the open data follows it. The coordinator epoch of a marker is the leader epoch of its
     coordinator's log (`TransactionCoordinator.onElection`);
3. *the record after the data's epoch was acknowledged at e.* Then every in-sync replica has it, and no later
   coordinator continues from before it. It was acknowledged if it is a completed end that raised the epoch (its
   decision was acknowledged), if the coordinator of e wrote the next state, or if a read from the leader of e shows it.

Otherwise the absence of a commit is proven only unless the log lost acknowledged records at that election.
Replication, `min.insync.replicas` and the settings of elections make such a loss less likely, and prove nothing.

**Leader epochs must rise at every restart of a leader.** A leader that restarts at the same leader epoch may have lost
the end of its log, and the chain does not show it. The controller raises the leader epoch if it sees that the leader is
away, or shuts down. It need not see either:

- With ZooKeeper a new controller elects no other leader than one that is alive
  (`PartitionStateMachine.initializePartitionState`). So the leader epoch stays if the controller ends with the leader,
  and the leader is back before the next controller is elected, or is the next controller. A single broker keeps it at
  every restart, and so does the last in-sync replica if its broker is the next controller (both seen with 3.5.2). A
  controller that goes on sees a restart of another broker (KIP-380).
- In KRaft mode it rises if the controller fences the broker, or if the broker shuts down in a controlled way
  (`ReplicationControlManager.handleBrokerFenced`, `handleBrokerInControlledShutdown`). A broker that registers again
  before it was fenced keeps the leader epoch, for example a single node that is broker and controller (seen with
  3.5.2).
- With eligible leader replicas (KIP-966) it rises at every registration without a clean shutdown
  (`handleBrokerUncleanShutdown`).

So without that feature the absence of a commit is not proven. A process that is killed loses nothing that the operating
system has; the machine must crash.

Not covered:
- Two elections that lose records: the first loses a record that was acknowledged at e, and the second elects a replica
  that still has it. Also an unclean election while the former leader still acknowledges.
- Such a restart from before eligible leader replicas were switched on. Brokers do not report when that was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from txnscan.kafka.answers import PREPARED, State
from txnscan.reads.observation import Observation
from txnscan.txnlog.facts import LoggedTransaction
from txnscan.txnlog.transitions import chain_of, ends_and_raises, is_past, same_state

_FIRST_LEADER_EPOCH = 0


@dataclass(frozen=True, slots=True)
class Election:
    """An election of the log's leader. leader_epoch: the new leader epoch, None if only its existence is known.
    after_ms, before_ms: times of records before and after it, by the coordinators' clocks; None if not known.
    is_restart: it may also be a restart of the leader, which no leader epoch shows.
    """

    leader_epoch: int | None
    after_ms: int | None
    before_ms: int | None
    is_restart: bool = False

    def __str__(self) -> str:
        if self.is_restart:
            return (
                "a restart of its leader, which leader epochs need not show without eligible leader replicas (KIP-966)"
            )
        which = "an election" if self.leader_epoch is None else f"the election to leader epoch {self.leader_epoch}"
        after, before = _time(self.after_ms), _time(self.before_ms)
        if after and before:
            return f"{which} between {after} and {before}"
        return f"{which} after {after}" if after else f"{which} before {before}" if before else which


def _time(ms: int | None) -> str | None:
    return None if ms is None else f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def election_of(logged: Sequence[LoggedTransaction], o: Observation) -> Election | None:
    """An election at which the log of this id may have lost a commit of the open data; None if there is none.

    logged: the records of one id, with a chain for this data. If the chain does not show that the epoch is over, the
    result holds for the commits up to the newest read.
    """
    chain = chain_of(logged, o)
    over = next((n for n, one in enumerate(chain) if is_past(one, o) and one.state not in PREPARED), None)
    covered = chain if over is None else chain[: over + 1]
    for a, b in pairwise(covered):
        if a.leader_epoch != b.leader_epoch or b.leader_epoch < _FIRST_LEADER_EPOCH:
            return _between(a, b)
    last = covered[-1]
    if not last.epochs_rise:
        return Election(None, None, None, is_restart=True)
    if not _began_before(logged, o, last.leader_epoch):
        earlier = [one for one in logged if one.leader_epoch < last.leader_epoch]
        at_epoch = next(one for one in logged if one.leader_epoch == last.leader_epoch)
        return _between(earlier[-1] if earlier else None, at_epoch)
    at_end = last.log_epoch == last.leader_epoch if over is None else _acknowledged(chain, over)
    later = next((one for one in logged if one.leader_epoch > last.leader_epoch), None)
    return None if at_end else Election(None, _ms(last), _ms(later))


def _began_before(logged: Sequence[LoggedTransaction], o: Observation, leader_epoch: int) -> bool:
    """Whether this leader epoch is known to have begun before the open data was written."""
    if leader_epoch < _FIRST_LEADER_EPOCH:
        return False
    if leader_epoch == _FIRST_LEADER_EPOCH or o.coordinator_epoch >= leader_epoch:
        return True
    ours = next(n for n, one in enumerate(logged) if one.producer_id == o.producer_id)
    if logged[ours].producer_epoch != 0:
        return False
    begun = logged[ours]
    if begun.state is not State.EMPTY:
        # A completion takes the next producer id, which its decision has already chosen.
        if ours == 0 or logged[ours - 1].state not in PREPARED:
            return False
        begun = logged[ours - 1]
    return begun.leader_epoch == leader_epoch


def _acknowledged(chain: Sequence[LoggedTransaction], over: int) -> bool:
    """Whether the record after the epoch was acknowledged at its leader epoch."""
    past = chain[over]
    if ends_and_raises(past) or past.acknowledged:
        return True
    following = next((one for one in chain[over:] if not same_state(one, past)), None)
    return following is not None and following.leader_epoch == past.leader_epoch


def _between(a: LoggedTransaction | None, b: LoggedTransaction) -> Election:
    known = b.leader_epoch >= _FIRST_LEADER_EPOCH
    return Election(b.leader_epoch if known else None, _ms(a), _ms(b))


def _ms(record: LoggedTransaction | None) -> int | None:
    return record.updated_ms if record is not None and record.updated_ms > 0 else None
