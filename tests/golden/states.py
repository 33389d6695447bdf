"""Part "states": the answers of real brokers after every step of every conformance script.

`record_scripts` plays the scripts (`tests/prove/scripts.py`) on real brokers beside the simulator. After each step on
which both agree, it asks every broker for all that txnscan reads, and keeps the bytes. `look` has the requests: the
observation of `tests/prove/conformance.py`, and the product's other requests. `replayed` decodes the recorded answers
again. `Simulated` plays a script on the simulator alone, so that its answers can be compared without brokers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from kafka.protocol.metadata import FindCoordinatorRequest

from tests.golden.raw import Asked, Offered, Replay, Sender, Sockets
from tests.golden.store import State
from tests.prove import steps
from tests.prove.conformance import Numbers, Observed, Result, cluster_of, conform, observed
from tests.prove.scripts import Script
from tests.prove.stage import Setting, Stage, scenario_of, settings_of, simulated
from tests.sim.answers import answer
from txnscan.demo.producer import ProducerIdAndEpoch
from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import ErrorCode, RequestFailed, error_name
from txnscan.kafka.protocol.api_versions import api_versions
from txnscan.kafka.protocol.describe_acls import transactional_id_rules
from txnscan.kafka.protocol.describe_cluster import cluster_operations
from txnscan.kafka.protocol.describe_configs import topic_cleaning, transaction_max_timeout_ms
from txnscan.kafka.protocol.describe_producers import by_topic, describe_all_producers
from txnscan.kafka.protocol.describe_transactions import describe_transactions
from txnscan.kafka.protocol.fetch import fetch, fetch_undecoded
from txnscan.kafka.protocol.list_groups import list_groups
from txnscan.kafka.protocol.list_offsets import Offset, list_offsets, newest, offset_at
from txnscan.kafka.protocol.list_transactions import ListingFilter, list_transactions, listing
from txnscan.kafka.protocol.metadata import read_metadata
from txnscan.kafka.protocol.offset_fetch import offset_fetch
from txnscan.kafka.protocol.record_batch import Batch
from txnscan.kafka.protocol.write_txn_markers import MarkerToWrite
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key
from txnscan.txnlog.decode import transactional_id

PART = "states"
# A passing state is not recorded. The brokers are asked again, with a pause in between. After this many times they
# count as not steady.
_LOOKS_MAX = 200
_POLL_S = 0.1
_FETCH_BYTES = 1 << 20
_NOWHERE, _NOBODY = "nowhere", "nobody"


@dataclass(frozen=True)
class Scope:
    """The subject of the requests. up: the brokers that run. log: the ids' log, and the script's first offset there.

    last: whether it is the script's last step, after which everything is asked.
    """

    up: tuple[int, ...]
    keys: tuple[Key, ...]
    ids: tuple[str, ...]
    log: tuple[Key, int]
    last: bool

    def as_facts(self) -> dict[str, Any]:
        """As plain data."""
        return {"up": self.up, "keys": self.keys, "ids": self.ids, "log": self.log, "last": self.last}

    @staticmethod
    def of(facts: Mapping[str, Any]) -> Scope:
        """The scope that was stored as plain data."""
        keys = tuple((topic, index) for topic, index in facts["keys"])
        (topic, index), start = facts["log"]
        return Scope(tuple(facts["up"]), keys, tuple(facts["ids"]), ((topic, index), start), facts["last"])


def look(send: Send, scope: Scope, number: Numbers) -> tuple[Observed, dict[str, Any]]:
    """Asks the brokers: gives the observation that the simulator is compared with, and all other values."""
    seen = observed(send, scope.up, scope.keys, scope.ids, number, scope.log)
    others: dict[str, Any] = {}
    for broker_id in scope.up:
        for what, found in (
            *_of_state(send, broker_id, scope),
            *(_of_broker(send, broker_id, scope) if scope.last else ()),
        ):
            others[f"broker {broker_id}: {what}"] = found
    return seen, others


def _of_state(send: Send, broker_id: int, scope: Scope) -> Iterator[tuple[str, Any]]:
    """Requests whose answers change from step to step."""
    view = read_metadata(send, broker_id, {topic for topic, _ in scope.keys})
    led = [p for p in view.partitions if p.leader == broker_id]
    yield "Metadata", [(p.key, p.leader, p.leader_epoch) for p in view.partitions]
    yield "DescribeProducers", describe_all_producers(send, broker_id, by_topic(scope.keys))
    listed = list_offsets(send, broker_id, led, Offset.LOG_START)
    starts = [listed[p.key].offset for p in led]
    yield "log starts", listed
    yield "newest", newest(send, broker_id, led)
    for p, start in zip(led, starts, strict=True):
        yield f"first record of {p.topic}", offset_at(send, p, 0)
        yield f"records of {p.topic}", fetch(send, p, start, _FETCH_BYTES, records=True)
    described = describe_transactions(send, broker_id, scope.ids)
    yield "DescribeTransactions", described
    ids = sorted({one.producer_id for one in described.values() if one.error is None})
    yield "listed by producer id", _or_failure(lambda: list_transactions(send, broker_id, producer_ids=ids))
    yield "listed by state", _or_failure(lambda: sorted(list_transactions(send, broker_id, states=["Ongoing"])))


def leader_epochs(
    send: Send, up: Sequence[int], keys: Sequence[Key], ids: Sequence[str], log: tuple[Key, int]
) -> Observed:
    """The leader epochs of each partition's leader and of its batches, as numbers in their order; see `observed`.

    Some brokers count more elections, and the log of the ids may have had leaders before the script. A real leader
    answers with one segment of a topic: it is left out if its log has several.
    """
    seen: Observed = {}
    for broker_id in up:
        view = read_metadata(send, broker_id, {topic for topic, _ in keys})
        led = [p for p in view.partitions if p.leader == broker_id]
        starts = list_offsets(send, broker_id, led, Offset.LOG_START)
        for p in led:
            start = starts[p.key].offset
            fetched = fetch(send, p, start, _FETCH_BYTES, records=True)
            if fetched.next_offset(start) >= fetched.high_watermark:
                epochs = [batch.leader_epoch for batch in fetched.batches]
                seen[f"broker {broker_id}: epochs of {p.topic}"] = _in_order(p.leader_epoch, epochs)
        for p in read_metadata(send, broker_id, [log[0][0]]).partitions:
            if (p.key, p.leader) == (log[0], broker_id):
                epochs = [batch.leader_epoch for batch in steps.log_batches(send, p, log[1]) if _is_of(batch, ids)]
                seen[f"broker {broker_id}: epochs of the log"] = _in_order(p.leader_epoch, epochs)
    return seen


def _in_order(leader_epoch: int, epochs: Sequence[int]) -> list[int]:
    order = sorted({leader_epoch, *epochs})
    return [order.index(epoch) for epoch in (leader_epoch, *epochs)]


def _is_of(batch: Batch, ids: Sequence[str]) -> bool:
    return any(key is not None and transactional_id(key) in ids for _, key, _ in batch.records or ())


def _of_broker(send: Send, broker_id: int, scope: Scope) -> Iterator[tuple[str, Any]]:
    """Requests whose answers are the same in most states."""
    yield "ApiVersions", api_versions(send, broker_id).apis
    yield "DescribeAcls", sorted(map(str, transactional_id_rules(send, broker_id)))
    yield "DescribeCluster", sorted(cluster_operations(send, broker_id))
    yield "DescribeConfigs of the broker", transaction_max_timeout_ms(send, broker_id)
    topics = [*(topic for topic, _ in scope.keys), TRANSACTION_STATE_TOPIC, _NOWHERE]
    yield "DescribeConfigs of topics", topic_cleaning(send, broker_id, topics)
    yield "ListGroups", _or_failure(lambda: list_groups(send, broker_id))
    groups = {_NOBODY: scope.keys, "": None}
    yield "OffsetFetch", _or_failure(lambda: offset_fetch(send, broker_id, groups, require_stable=True))
    coordinators = FindCoordinatorRequest(key_type=1, coordinator_keys=[*scope.ids, _NOBODY])
    yield "FindCoordinator", [(c.key, c.node_id, c.error_code) for c in send(broker_id, coordinators).coordinators]
    for name, wanted in (
        ("unknown state", ListingFilter(states=("Odd",))),
        ("ids by pattern", ListingFilter(pattern=f"{scope.ids[0]}.*")),
        ("long transactions", ListingFilter(longer_than_ms=10**9)),
    ):
        yield name, _or_failure(lambda wanted=wanted: list(listing(send, broker_id, wanted)))
    for p in read_metadata(send, broker_id, [TRANSACTION_STATE_TOPIC]).partitions:
        if (p.key, p.leader) == (scope.log[0], broker_id):
            data, high_watermark = fetch_undecoded(send, p, scope.log[1], _FETCH_BYTES)
            yield "transaction log", (high_watermark, len(data.bounds) - 1)
    # The partition does not exist, so brokers write no marker.
    marker = MarkerToWrite(_NOWHERE, 0, 1, 0, 0, commit=False)
    yield "WriteTxnMarkers", error_name(marker.answered(send(broker_id, marker.request())))


def _or_failure(ask: Any) -> Any:
    try:
        return ask()
    except RequestFailed as failed:
        return str(failed.failure)


def as_text(found: Mapping[str, Any]) -> dict[str, str]:
    """Values in the form in which they are stored."""
    return {what: repr(value) for what, value in found.items()}


# --- recording --------------------------------------------------------------------------------------------------------


class Recorder:
    """Records the states of one run of a script."""

    def __init__(self, script: Script, setting: Setting, sockets: Sockets) -> None:
        self._script = script
        self._setting = setting
        self._sockets = sockets
        self.states: list[State] = []

    def after(self, stage: Stage, step: int, numbers: tuple[Numbers, Numbers]) -> list[str]:
        """Records the state after a step on which both sides agree. Returns why that failed, if it did."""
        world = stage.world
        up = tuple(broker_id for broker_id in world.brokers if world.up(broker_id))
        keys, ids = tuple(stage.keys.values()), tuple(stage.ids.values())
        last = step == len(self._script.steps)
        scope = Scope(up, keys, ids, (stage.log_key("a"), stage.log_start), last)
        simulated = observed(lambda b, r: answer(world, b, r), up, keys, ids, numbers[1], (stage.log_key("a"), 0))
        failure = ""
        for _ in range(_LOOKS_MAX):
            sender = Sender(self._sockets)
            try:
                seen, others = look(sender, scope, numbers[0])
                offered = self._sockets.offered(up[0])
                again = look(Sender(Replay(offered, sender.asked)), scope, numbers[0])
                if seen == simulated and (as_text(again[0]), as_text(again[1])) == (as_text(seen), as_text(others)):
                    break
                failure = "the brokers did not stay in one state"
            except RequestFailed as failed:
                failure = str(failed)
            time.sleep(_POLL_S)
        else:
            return [f"not recorded: {failure}"]
        facts = {
            "script": self._script.name,
            "client": self._setting.client,
            "step": step,
            "prefix": _prefix(keys),
            **scope.as_facts(),
            "clients": {who: (p.known.producer_id, p.known.producer_epoch) for who, p in stage.producers.items()},
            "observed": as_text(seen),
            "others": as_text(others),
        }
        label = f"{self._script.name}, clients v{self._setting.client}, step {step}"
        self.states.append(State(label, _distinct(sender.asked), facts))
        return []


def _prefix(keys: Sequence[Key]) -> str:
    return keys[0][0].rpartition("-")[0]


def _distinct(asked: Sequence[Asked]) -> list[Asked]:
    """Each request once, with its last answer."""
    return list({one.question: one for one in asked}.values())


@dataclass(frozen=True)
class Run:
    """One script under one setting, on brokers that offer these versions."""

    result: Result
    states: list[State]
    offered: Offered


def record_scripts(kafka: str, scripts: Sequence[Script], directory: Path) -> Iterator[Run]:
    """Plays scripts on new brokers of that version, under all settings of each."""
    with cluster_of(kafka, directory) as (cluster, wire), Sockets(cluster.brokers) as sockets:
        for script in scripts:
            for setting in settings_of(script.on):
                if setting.kafka == kafka:
                    recorder = Recorder(script, setting, sockets)
                    result = conform(cluster, wire, script, setting, recorder.after)
                    yield Run(result, recorder.states, sockets.offered(1))


# --- replaying --------------------------------------------------------------------------------------------------------


def replayed(offered: Offered, state: State, number: Numbers) -> tuple[Observed, dict[str, Any]]:
    """A state's recorded answers as the decoders read them."""
    return look(Sender(Replay(offered, state.asked)), Scope.of(state.facts), number)


def replayed_epochs(offered: Offered, state: State) -> Observed:
    """See `leader_epochs`."""
    scope = Scope.of(state.facts)
    return leader_epochs(Sender(Replay(offered, state.asked)), scope.up, scope.keys, scope.ids, scope.log)


class Simulated:
    """A script on the simulator alone. `play` plays the next step; `observed` asks its brokers then."""

    def __init__(self, script: Script, setting: Setting, prefix: str) -> None:
        scenario, ids, keys = scenario_of(
            setting, script.name, prefix, script.topics, script.coordinator, script.min_isr, script.verified
        )
        self.stage = Stage(mock.MagicMock(), mock.MagicMock(), setting, simulated(scenario, setting), ids, keys, 0)
        self._script = script
        self._number = Numbers()

    def play(self, step: int) -> None:
        """Plays the step with this number, from 1 on: its simulated half."""
        playing = self._script.steps[step - 1]
        with ExitStack() as stack:
            for name, double in _real_half(playing).items():
                stack.enter_context(mock.patch.object(steps, name, double))
            playing.play(self.stage)

    def leader_epochs(self) -> Observed:
        """See `leader_epochs`."""
        world = self.stage.world
        up = [broker_id for broker_id in world.brokers if world.up(broker_id)]
        keys, ids = tuple(self.stage.keys.values()), tuple(self.stage.ids.values())
        return leader_epochs(lambda b, r: answer(world, b, r), up, keys, ids, (self.stage.log_key("a"), 0))

    def observed(self) -> tuple[dict[str, tuple[int, int]], Observed]:
        """The producer ids and epochs of the clients, and the observation; ids are numbered."""
        world, number = self.stage.world, self._number
        clients = {}
        for who in self.stage.producers:
            producer = world.producers[self.stage.ids[who]]
            clients[who] = (number(producer.producer_id), producer.producer_epoch)
        up = [broker_id for broker_id in world.brokers if world.up(broker_id)]
        keys, ids = tuple(self.stage.keys.values()), tuple(self.stage.ids.values())
        log = (self.stage.log_key("a"), 0)
        return clients, observed(lambda b, r: answer(world, b, r), up, keys, ids, number, log)


class _Nobody:
    """A stand-in for a real producer, which sends no request."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.identity = ProducerIdAndEpoch(0, 0)

    @property
    def known(self) -> ProducerIdAndEpoch:
        return self.identity

    def init_producer_id(self) -> None:
        """Does not ask."""

    def write(self, *_: Any, **__: Any) -> None:
        """Does not write."""

    produce = add_partitions = end = write


# The functions of other modules that act on real brokers, or on their files.
_ACTIONS = (
    *("lead", "elect", "reassign", "alter_topic", "delete_records", "directories_of", "move_to_other_disk"),
    *("lose_snapshots", "lose_end", "write_transaction_log"),
)


def _real_half(step: Any) -> dict[str, Any]:
    """Stand-ins for the parts of `tests/prove/steps.py` that act on real brokers."""
    refused = None if getattr(step, "taken", True) else "refused"
    return {
        "Producer": _Nobody,
        "wait_until": lambda *_, **__: True,
        "compacting_log": lambda _: nullcontext(),
        "forgetting_producers": lambda *_: nullcontext(),
        **dict.fromkeys(_ACTIONS, lambda *_, **__: None),
        "_taken": lambda _: refused,
        "_offset_of": lambda *_: 0,
        "_end_once": lambda *_: error_name(ErrorCode.COORDINATOR_NOT_AVAILABLE),
    }
