"""The owner of a hanging or live transaction, and the framework that the shape of its transactional id suggests. Pure.

A shape is a hint and no proof, because any application may choose such an id. The shapes come from the projects'
sources:

- Kafka Streams, `ActiveTaskCreator`: `<application.id>-<process id, a UUID>-<thread>` (exactly_once_v2). Up to 3.x with
  `exactly_once`: `<application.id>-<subtopology>_<partition>`, which ends in a task id.
- Kafka Connect (KIP-618): `connect-cluster-<group.id>` for the leading worker
  (`DistributedConfig.transactionalProducerId`), and `<group.id>-<connector>-<task>` for the task of a source connector
  (`Worker.taskTransactionalId`). The second shape alone is too common, so it counts only if the cluster has a group of
  that name with protocol "connect". Debezium runs as a task of Connect, and has the ids of Connect.
- Flink, `TransactionalIdFactory`: `<prefix>-<subtask>-<number>`. With the naming strategy INCREMENTING the number is
  that of a checkpoint, and with POOLING the lowest free number (`TransactionNamingStrategyImpl`). Flink's checkpoints
  have the producer id and epoch (`KafkaCommittable`), with which Flink resumes and commits (`KafkaTransactionTool`,
  FLINK-39218).
- Spring for Apache Kafka before 3.0: `<prefix><group>.<topic>.<partition>`
  (`KafkaMessageListenerContainer.zombieFenceTxIdSuffix`), which counts only if the cluster has that topic. Its other
  shape, `<prefix><number>` (`DefaultKafkaProducerFactory`), suggests no framework, because many other producers use it.

A restart of the application does not end a hanging transaction in any framework: InitProducerId ends the transaction
that the coordinator has, and the coordinator does not have this transaction.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from txnscan.reads.observation import Observation
from txnscan.shell import options_of
from txnscan.txnlog.facts import LoggedTransaction
from txnscan.verdict.evidence import Judged


class Framework(StrEnum):
    """The framework that made a transactional id, by the id's shape (`waiting/owner.py`)."""

    STREAMS = "Kafka Streams"
    CONNECT = "Kafka Connect"
    FLINK = "Flink"
    SPRING = "Spring for Apache Kafka"


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a transaction, as far as it is known. transactional_id: the id that has the producer id, or the last
    id in the log that had it. framework: by the shape of the id, or the name of the user's own pattern. advice: the
    first steps for the user, in sentences; None if there are none, for a live transaction only.
    """

    transactional_id: str | None
    framework: str | None
    advice: str | None


# No patterns of the user's own.
NO_OWNERS: Mapping[str, str] = MappingProxyType({})
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_STREAMS = re.compile(rf"(?P<application>.+)-{_UUID}-\d+", re.S)
_STREAMS_TASK = re.compile(r"(?P<application>.+)-\d+_\d+", re.S)
_FLINK = re.compile(r"(?P<prefix>.+)-\d+-\d+", re.S)
_SPRING = re.compile(r"(?P<before>.+)\.(?P<partition>\d+)", re.S)
_CONNECT_LEADER = "connect-cluster-"
_TASK = re.compile(r"(?P<connector>.+)-(?P<task>\d+)", re.S)

_RESTART = "A restart of the application does not end this transaction"


def owner_of(
    judged: Judged,
    logged: Sequence[LoggedTransaction],
    connect_groups: Collection[str] = (),
    topics: Collection[str] = (),
    earlier_id: str | None = None,
    own: Mapping[str, str] = NO_OWNERS,
) -> Owner:
    """The owner of a hanging transaction.

    logged: the records that `__transaction_state` still has of the ids that ever had its producer id. connect_groups:
    the groups of Kafka Connect's workers. topics: the names of the cluster's topics. earlier_id: the id from an earlier
    sweep. own: by id, the owner by the user's own patterns.
    """
    o = judged.observation
    name = id_of(judged, logged, earlier_id)
    if name is None:
        return Owner(
            None,
            None,
            f"Producers log 'ProducerId set to {o.producer_id} with epoch {o.producer_epoch}' when they start: search "
            f"for this line in the logs of the applications that write to {o.topic}",
        )
    if name in own:
        return Owner(name, own[name], f"{_by_pattern(own[name])}. {_RESTART}")
    return Owner(name, *_shape(name, o, connect_groups, topics))


def live_owner_of(
    judged: Judged,
    connect_groups: Collection[str] = (),
    topics: Collection[str] = (),
    own: Mapping[str, str] = NO_OWNERS,
) -> Owner:
    """The owner of a live transaction. Its application can end it, so only Flink needs advice: its pre-committed
    transactions wait for the job. The arguments are those of `owner_of`.
    """
    name = id_of(judged)
    if name is None:
        return Owner(None, None, None)
    if name in own:
        return Owner(name, own[name], _by_pattern(own[name]))
    framework, advice = _shape(name, judged.observation, connect_groups, topics)
    return Owner(name, framework, advice if framework is Framework.FLINK else None)


def may_be_flinks(transactional_id: str) -> bool:
    """Whether the id has the format of a Flink job's ids."""
    return _FLINK.fullmatch(transactional_id) is not None and _STREAMS.fullmatch(transactional_id) is None


def _by_pattern(own: str) -> str:
    return f"By --owner-pattern the owner is {own}"


def id_of(judged: Judged, logged: Sequence[LoggedTransaction] = (), earlier_id: str | None = None) -> str | None:
    """The id that has the producer id at its coordinator, or else the only id in the log that had it, or else the id
    from an earlier sweep, if any.
    """
    views = judged.evidence.coordinators
    if views:
        return views[0].transactional_id
    names = {record.transactional_id for record in logged if record.producer_id == judged.observation.producer_id}
    return names.pop() if len(names) == 1 else earlier_id


def _shape(
    name: str, o: Observation, connect_groups: Collection[str], topics: Collection[str]
) -> tuple[str | None, str]:
    """The framework, if the shape suggests any, and the advice. The most specific shapes come first."""
    if found := _STREAMS.fullmatch(name):
        return Framework.STREAMS, _streams(found["application"])
    if name.startswith(_CONNECT_LEADER):
        group = name.removeprefix(_CONNECT_LEADER)
        return (
            Framework.CONNECT,
            f"The id has the format of the leading worker of the Connect cluster '{group}'. {_RESTART}",
        )
    # Try long groups first: a group may begin with the name of another group.
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
        return (
            Framework.SPRING,
            f"The id has the format of a listener of Spring for Apache Kafka that read {read}. {_RESTART}",
        )
    return None, _RESTART


def _topic_at_the_end(text: str, topics: Collection[str]) -> str | None:
    """The longest topic name that follows a dot and ends the text. Groups and topics may contain dots."""
    dots = (at for at, character in enumerate(text) if character == ".")
    return next((text[at + 1 :] for at in dots if text[at + 1 :] in topics), None)


def _streams(application: str) -> str:
    return (
        f"The id has the format of the Kafka Streams application '{application}', which is also the id of its consumer "
        "group. Outputs, changelogs and offsets are in one transaction: check which other partitions hang before you "
        f"end one. {_RESTART}"
    )


def _connect(group: str, connector: str, task: str) -> str:
    return (
        f"The id has the format of task {task} of the source connector '{connector}' in the Connect cluster "
        f"'{group}'. Its records and source offsets are in one transaction: check whether the offsets topic also hangs "
        f"before you end one. {_RESTART}"
    )


def _flink(name: str, prefix: str, o: Observation) -> str:
    return (
        f"The id has the format of a Flink job with the transactional id prefix '{prefix}'. Before you end it, check "
        "whether a completed checkpoint of the job has this transaction: if so, Flink counts its records as delivered, "
        "and an abort would lose them. The options of Flink's KafkaTransactionTool for it: "
        f"{options_of(transactional_id=name, producer_id=o.producer_id, epoch=o.producer_epoch)}"
    )
