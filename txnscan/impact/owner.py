"""Whose a hanging transaction is, and which framework the shape of its transactional id suggests. Pure.

A shape is a hint and no proof: anybody may choose such an id. The shapes, from the projects' sources:

- Kafka Streams, `ActiveTaskCreator`: `<application.id>-<process id, a UUID>-<thread>` (exactly_once_v2); up to 3.x with
  `exactly_once` `<application.id>-<subtopology>_<partition>`, which is a task id.
- Kafka Connect (KIP-618), `DistributedConfig.transactionalProducerId`: `connect-cluster-<group.id>` for a worker that
  leads; `Worker.taskTransactionalId`: `<group.id>-<connector>-<task>` for the task of a source connector. That shape
  alone is too common, so it is recognised by the groups of protocol "connect" that the cluster has. Debezium runs as a
  task of Connect, and its ids are Connect's.
- Flink, `TransactionalIdFactory`: `<prefix>-<subtask>-<number>`, the number being that of a checkpoint, or with the
  pooling strategy (`TransactionNamingStrategyImpl`) any that is free. Its checkpoints hold producer id and epoch
  (`KafkaCommittable`), with which it resumes and commits (`KafkaTransactionTool`, FLINK-39218).
- Spring for Apache Kafka before 3.0, `KafkaMessageListenerContainer.zombieFenceTxIdSuffix`:
  `<prefix><group>.<topic>.<partition>`, which is recognised by the topics that the cluster has; else
  `<prefix><number>` (`DefaultKafkaProducerFactory`), which many other producers use, so that it suggests nothing.

No framework ends a hanging transaction by starting again: InitProducerId ends the transaction that the coordinator
holds, and it does not hold this one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from txnscan.reads.observation import Observation
from txnscan.txnlog.facts import LoggedTransaction
from txnscan.verdict.evidence import Judged


class Framework(StrEnum):
    """What made a transactional id, by its shape (`impact/owner.py`)."""

    STREAMS = "Kafka Streams"
    CONNECT = "Kafka Connect"
    FLINK = "Flink"
    SPRING = "Spring for Apache Kafka"


@dataclass(frozen=True, slots=True)
class Owner:
    """Who wrote a transaction, as far as is known. transactional_id: the one that has the producer id, or the last one
    of the log that had it. framework: what its shape suggests, or the name of the user's own pattern. advice: what to
    ask or do first, in sentences.
    """

    transactional_id: str | None
    framework: str | None
    advice: str


_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_STREAMS = re.compile(rf"(?P<application>.+)-{_UUID}-\d+", re.S)
_STREAMS_TASK = re.compile(r"(?P<application>.+)-\d+_\d+", re.S)
_FLINK = re.compile(r"(?P<prefix>.+)-\d+-\d+", re.S)
_SPRING = re.compile(r"(?P<before>.+)\.(?P<partition>\d+)", re.S)
_CONNECT_LEADER = "connect-cluster-"
_TASK = re.compile(r"(?P<connector>.+)-(?P<task>\d+)", re.S)

_RESTART = "Starting it again does not end this transaction"


def owner_of(
    judged: Judged,
    logged: Sequence[LoggedTransaction],
    connect_groups: Collection[str] = (),
    topics: Collection[str] = (),
    earlier_id: str | None = None,
    patterns: Sequence[tuple[str, re.Pattern[str]]] = (),
) -> Owner:
    """The owner of what hangs.

    logged: what is left in `__transaction_state` of the ids that ever had its producer id. connect_groups: the groups
    of Kafka Connect's workers. topics: the names of the cluster's topics. earlier_id: what an earlier sweep knew.
    patterns: the user's own: an owner's name, and the pattern that the whole id has to match.
    """
    o = judged.observation
    name = _id_of(judged, logged)
    if name is None:
        name = earlier_id
    if name is None:
        return Owner(
            None,
            None,
            f"Producers log 'ProducerId set to {o.producer_id} with epoch {o.producer_epoch}' when they start: look "
            f"for that in the logs of what writes to {o.topic}",
        )
    own = next((whose for whose, pattern in patterns if pattern.fullmatch(name)), None)
    if own is not None:
        return Owner(name, own, f"By --owner-pattern it is {own}'s. {_RESTART}")
    return Owner(name, *_shape(name, o, connect_groups, topics))


def _id_of(judged: Judged, logged: Sequence[LoggedTransaction]) -> str | None:
    """The id that has the producer id at its coordinator, or else the one in the log that had it, if there is one."""
    views = judged.evidence.coordinators
    if views:
        return views[0].transactional_id
    names = {record.transactional_id for record in logged if record.producer_id == judged.observation.producer_id}
    return names.pop() if len(names) == 1 else None


def _shape(
    name: str, o: Observation, connect_groups: Collection[str], topics: Collection[str]
) -> tuple[str | None, str]:
    """The framework, None where the shape suggests none, and the advice. The most specific shapes come first."""
    if found := _STREAMS.fullmatch(name):
        return Framework.STREAMS, _streams(found["application"])
    if name.startswith(_CONNECT_LEADER):
        group = name.removeprefix(_CONNECT_LEADER)
        return Framework.CONNECT, f"By its shape the leading worker of the Connect cluster '{group}'. {_RESTART}"
    # The longest group that fits: one may begin with the name of another.
    for group in sorted(connect_groups, key=len, reverse=True):
        rest = name.removeprefix(f"{group}-")
        if rest != name and (task := _TASK.fullmatch(rest)):
            return Framework.CONNECT, _connect(group, task["connector"], task["task"])
    if found := _FLINK.fullmatch(name):
        return Framework.FLINK, _flink(name, found["prefix"], o)
    if found := _STREAMS_TASK.fullmatch(name):
        return Framework.STREAMS, _streams(found["application"])
    if (found := _SPRING.fullmatch(name)) and (topic := _topic_at_the_end(found["before"], topics)):
        read = f"{topic}-{found['partition']}"
        return Framework.SPRING, f"By its shape a listener of Spring for Apache Kafka that read {read}. {_RESTART}"
    return None, _RESTART


def _topic_at_the_end(text: str, topics: Collection[str]) -> str | None:
    """The longest topic name that follows a dot, to the end: groups and topics may contain dots themselves."""
    dots = (at for at, character in enumerate(text) if character == ".")
    return next((text[at + 1 :] for at in dots if text[at + 1 :] in topics), None)


def _streams(application: str) -> str:
    return (
        f"By its shape the Kafka Streams application '{application}', which is also the id of its consumer group. "
        "Outputs, changelogs and offsets are written in one transaction: see which other partitions hang before one is "
        f"ended. {_RESTART}"
    )


def _connect(group: str, connector: str, task: str) -> str:
    return (
        f"By its shape task {task} of the source connector '{connector}' in the Connect cluster '{group}'. Its records "
        "and source offsets are written in one transaction: see whether the offsets topic hangs as well before one is "
        f"ended. {_RESTART}"
    )


def _flink(name: str, prefix: str, o: Observation) -> str:
    return (
        f"By its shape a Flink job with the transactional id prefix '{prefix}'. First see whether a completed "
        "checkpoint of the job has this transaction: then Flink counts its records as delivered, and an abort would "
        f"lose them. As Flink's KafkaTransactionTool names it: --transactional-id {shlex.quote(name)} --producer-id "
        f"{o.producer_id} --epoch {o.producer_epoch}"
    )
