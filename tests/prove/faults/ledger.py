"""The conditions: the reports of sweeps, compared with the planted transactions and with the fate of all others."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from kafka.protocol.admin import ListTransactionsRequest

from tests.prove.faults.figures import Figures, say
from tests.prove.faults.traffic import Sleepers
from tests.prove.faults.world import LIVE_OWNER, LIVE_PARTITION, Known, World
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.kafka.errors import ErrorCode, RequestFailed, error_name
from txnscan.kafka.protocol.describe_producers import by_topic, describe_producers
from txnscan.reads.observation import TransactionKey
from txnscan.sweeps.result import Scan
from txnscan.verdict.evidence import Judged, Verdict

# Longer than any transaction of the traffic may live, including the interval of its coordinator's timeout check.
_SETTLED_S = 15.0
_QUIET_S_MAX = 240.0
_ENDED_STATES = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
# The reasons for which a returning application may end the transaction: its next transaction also ends the open data.
_EXCUSABLE = ("live_epoch", "stale_epoch", "missed_commit")


@dataclass(frozen=True)
class Accusation:
    """A sweep's report that a transaction hangs."""

    sweep: str
    at_ms: int
    judged: Judged

    @property
    def reason(self) -> str:
        return str(self.judged.judgement.reason)


# --- after each sweep


def missed(scan: Scan, planted: Iterable[Known]) -> list[str]:
    """The errors of this sweep about the planted transactions, which were open from its start to its end."""
    found = {judged.observation.transaction_key: judged.judgement for judged in scan.transactions}
    unread = {(error.topic, error.partition) for error in scan.errors}
    wrong = []
    for known in planted:
        judgement = found.get(known.key)
        if judgement is None:
            if scan.complete or (known.key[0], known.key[2]) not in unread:
                wrong.append(f"planted {known.key} is absent, and no error stands for its partition")
        elif judgement.verdict is Verdict.HANGING:
            if str(judgement.reason) not in known.reasons:
                wrong.append(f"planted {known.key} is hanging for '{judgement.reason}' and not for {known.reasons}")
        elif scan.complete or judgement.verdict is not Verdict.INDETERMINATE:
            wrong.append(f"planted {known.key} is {judgement.verdict} ({judgement.reason}): {judgement.explanation}")
    return wrong


# --- at the end of a run


def settle(world: World, sleepers: Sleepers) -> set[TransactionKey]:
    """Stops all clients, and waits until the state no longer changes. Transactions that are open then are open
    forever.
    """
    world.traffic.stop()
    sleepers.end()
    wait_until(lambda: _busy(world.wire) <= {LIVE_OWNER}, "coordinators had nothing left to do", _QUIET_S_MAX)
    found: set[TransactionKey] | None = None
    since_s = 0.0

    def unchanged() -> bool:
        nonlocal found, since_s
        now_s, now_open = time.monotonic(), _open_now(world.wire)
        if now_open != found:
            found, since_s = now_open, now_s
        return now_s - since_s > _SETTLED_S

    wait_until(unchanged, "nothing changed any more", _QUIET_S_MAX)
    return found or set()


def audit(world: World, accusations: Iterable[Accusation], for_ever: set[TransactionKey], figures: Figures) -> None:
    """Compares the accusations with the fate of the transactions."""
    for known in world.planted:
        if known.key not in for_ever:
            figures.violations.append(f"{world.name}: planted {known.key} has ended by itself")
    topics = {(p.topic, p.topic_id) for p in world.wire.view().partitions}
    for accusation in accusations:
        fate = fate_of(world, accusation, topics, for_ever)
        figures.accusations[fate] += 1
        if fate == "FALSE":
            figures.violations.append(_false_accusation(world, accusation))


def fate_of(world: World, accusation: Accusation, topics: set[tuple[str, str]], for_ever: set[TransactionKey]) -> str:
    """The fate of an accused transaction. topics: the present topics with their ids. for_ever: the transactions that
    stay open.
    """
    key = accusation.judged.observation.transaction_key
    if key in world.ever_planted:
        return "of what was planted"
    if key in for_ever:
        return "of what the faults made hang"
    if key[:2] not in topics:
        return "on a topic that was deleted since"
    producer_id = accusation.judged.observation.producer_id
    if accusation.reason in _EXCUSABLE and world.traffic.came_back(producer_id, accusation.at_ms):
        return "ended by its own client's return"
    return "FALSE"


def overlooked(final: Scan | None, for_ever: set[TransactionKey]) -> list[str]:
    """The transactions that are open forever, but that the last sweep of the healed cluster does not report."""
    if final is None or not final.complete:
        for error in final.errors if final is not None else ():
            say(f"  {error}")
        return ["the last sweep of a healed cluster was not complete"]
    found = {judged.observation.transaction_key: judged.judgement for judged in final.transactions}
    return [
        f"{key} is open for ever, and the last sweep says {found.get(key)}"
        for key in for_ever
        if (key[0], key[2]) != LIVE_PARTITION and (key not in found or found[key].verdict is not Verdict.HANGING)
    ]


def _open_now(wire: Wire) -> set[TransactionKey]:
    """Every open transaction, according to the leaders of all partitions. Raises RequestFailed."""
    found: set[TransactionKey] = set()
    for partition in wire.view().partitions:
        if partition.leader < 0:
            raise RequestFailed(f"{partition.topic}-{partition.partition} has no leader")
        described = describe_producers(wire.send, partition.leader, by_topic([partition.key]))[partition.key]
        if described.failure is not None:
            raise RequestFailed(described.failure)
        for producer in described.open_producers:
            found.add(
                TransactionKey(
                    partition.topic,
                    partition.topic_id,
                    partition.partition,
                    producer.producer_id,
                    producer.start_offset,
                )
            )
    return found


def _busy(wire: Wire) -> set[str]:
    """The transactional ids with unfinished work at a coordinator. Raises RequestFailed."""
    busy = set()
    for broker in wire.brokers:
        answer = wire.send(broker.broker_id, ListTransactionsRequest(state_filters=[], producer_id_filters=[]))
        if answer.error_code != ErrorCode.NONE:
            raise RequestFailed(error_name(answer.error_code))
        busy |= {s.transactional_id for s in answer.transaction_states if s.transaction_state not in _ENDED_STATES}
    return busy


def _false_accusation(world: World, accusation: Accusation) -> str:
    observation = accusation.judged.observation
    acts = "\n".join(f"  {at_ms} {act}" for at_ms, act in world.traffic.acts.get(observation.producer_id, ()))
    return (
        f"FALSE ACCUSATION in {accusation.sweep} at {accusation.at_ms}: {observation.transaction_key} was called "
        f"hanging ({accusation.reason}) and has ended.\n{json.dumps(asdict(accusation.judged), indent=2)}\n"
        f"What its client did:\n{acts or '  unknown'}"
    )
