"""`python -m tests.prove.conformance`: the same scripted histories on the simulator and on real brokers.

Each script (`scripts.py`) is played step by step on a real cluster of three brokers and on its simulated double
(`stage.py`), under Kafka 4.3.1 and 4.4.0 with clients of transactions v2 and v1, and under 3.5.2, which does not verify
transactions. After every step, the answers of the brokers must be equal: `observed` asks all of them through the
product's own modules. The real brokers get time to reach the state of the simulated ones; a remaining difference is an
error.

Producer ids are numbered in the order of their first appearance. Coordinator epochs begin where the real cluster's
history ended, so only their presence is compared. Exit status 1 on any difference.

Only clusters at rest are compared. Transient states (a coordinator that loads, a follower that lags) are not, and no
broker is cut off.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka.protocol.admin import DescribeProducersRequest

from tests.builders import said
from tests.prove.disks import TWO_DISKS, log_dirs
from tests.prove.placing import heal
from tests.prove.scripts import SCRIPTS, Script
from tests.prove.stage import (
    ALL_SETTINGS,
    BROKER_PROPERTIES,
    PROPERTIES,
    NotPossible,
    Setting,
    Stage,
    opened_stage,
    settings_of,
)
from tests.prove.steps import read_log
from tests.sim.answers import answer
from txnscan.demo.admin import unverified
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.errors import DemoError
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed, error_name
from txnscan.kafka.protocol.describe_producers import by_topic, describe_producers
from txnscan.kafka.protocol.describe_transactions import describe_transactions
from txnscan.kafka.protocol.list_offsets import Offset, list_offsets
from txnscan.kafka.protocol.list_transactions import list_transactions
from txnscan.kafka.protocol.metadata import read_metadata
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key, Partition
from txnscan.txnlog.decode import decode
from txnscan.txnlog.facts import LoggedTransaction

# Each question with its answer as plain data.
Observed = dict[str, Any]
_AGREED_S_MAX = 25.0
# Real brokers may pass through a state. A state counts if it was seen this often in a row.
_SEEN_IN_A_ROW = 3
_V2 = 2


@dataclass(frozen=True)
class Result:
    """One script under one setting: the number of compared steps, and the differences as sentences."""

    script: Script
    setting: Setting
    compared: int
    differences: tuple[str, ...]


# --- what is observed -------------------------------------------------------------------------------------------------


class Numbers:
    """Producer ids as numbers, in the order of their first appearance."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}

    def __call__(self, producer_id: int) -> int:
        """The number of a producer id; negative values stay unchanged."""
        return self._seen.setdefault(producer_id, len(self._seen)) if producer_id >= 0 else producer_id


def observed(
    send: Send,
    broker_ids: Iterable[int],
    keys: Sequence[Key],
    ids: Sequence[str],
    number: Callable[[int], int],
    log: tuple[Key, int] | None = None,
) -> Observed:
    """All answers of these brokers about these partitions and transactional ids.

    log: the ids' partition of the transaction log, with the first offset to read.
    """
    seen: Observed = {}
    for broker_id in broker_ids:
        who = f"broker {broker_id}"
        partitions = read_metadata(send, broker_id, {topic for topic, _ in keys}).partitions
        seen[f"{who}: leaders"] = {p.key: p.leader for p in partitions}
        seen[f"{who}: ListTransactions"] = _listed(send, broker_id, ids, number)
        for name, found in describe_transactions(send, broker_id, ids).items():
            seen[f"{who}: DescribeTransactions {name}"] = found.error or (
                found.state,
                number(found.producer_id),
                found.producer_epoch,
                found.partitions,
            )
        open_ones = describe_producers(send, broker_id, by_topic(p.key for p in partitions))
        known = _known_producers(send, broker_id, partitions, number)
        for key in keys:
            shown = open_ones[key]
            seen[f"{who}: open on {key[0]}"] = said(shown.failure) or [
                (number(p.producer_id), p.producer_epoch, p.start_offset, p.last_sequence, p.coordinator_epoch >= 0)
                for p in shown.open_producers
            ]
            seen[f"{who}: producers of {key[0]}"] = known[key]
        led = [p for p in partitions if p.leader == broker_id]
        for which in (Offset.HIGH_WATERMARK, Offset.LAST_STABLE):
            for key, listed in list_offsets(send, broker_id, led, which).items():
                seen[f"{who}: {which.name.lower()} of {key[0]}"] = said(listed.failure) or listed.offset
        if log is not None:
            for p in read_metadata(send, broker_id, {TRANSACTION_STATE_TOPIC}).partitions:
                if (p.key, p.leader) == (log[0], broker_id):
                    seen[f"{who}: the log of the ids"] = _logged(send, p, log[1], ids, number)
    return seen


def _logged(send: Send, log: Partition, start: int, ids: Sequence[str], number: Callable[[int], int]) -> list[Any]:
    """The leader's records of the ids: offset, id, and content; None for a tombstone."""
    return [
        (offset, name, None if value is None else _said(decode(offset, offset, name, value), number))
        for offset, name, value in read_log(send, log, start, ids)
    ]


def _said(logged: LoggedTransaction, number: Callable[[int], int]) -> Any:
    # The client's transactions version matters only if a transaction ends.
    ends = logged.state.startswith(("Prepare", "Complete"))
    return (
        *(str(logged.state), number(logged.producer_id), logged.producer_epoch, sorted(logged.partitions)),
        logged.client_version >= _V2 if ends else None,
    )


def _known_producers(
    send: Send, broker_id: int, partitions: Iterable[Partition], number: Callable[[int], int]
) -> dict[Key, Any]:
    """Every producer that a replica knows, with its epoch. The product itself asks only for open ones."""
    topic_type = DescribeProducersRequest.TopicRequest
    asked = [topic_type(name=p.topic, partition_indexes=[p.partition]) for p in partitions]
    return {
        (topic.name, p.partition_index): sorted((number(a.producer_id), a.producer_epoch) for a in p.active_producers)
        if p.error_code == 0
        else error_name(p.error_code)
        for topic in send(broker_id, DescribeProducersRequest(topics=asked)).topics
        for p in topic.partitions
    }


def _listed(send: Send, broker_id: int, ids: Sequence[str], number: Callable[[int], int]) -> Any:
    try:
        listed = list_transactions(send, broker_id)
        return {name: (number(one.producer_id), one.state) for name, one in listed.items() if name in ids}
    except RequestFailed as failed:
        return failed.error


# --- comparing --------------------------------------------------------------------------------------------------------


def compare(stage: Stage, numbers: tuple[Numbers, Numbers]) -> list[str]:
    """The differences after the real brokers had time to agree with the simulated ones. One sentence each."""
    keys, ids, world = tuple(stage.keys.values()), tuple(stage.ids.values()), stage.world
    up = [broker_id for broker_id in world.brokers if world.up(broker_id)]
    real_number, simulated_number = numbers
    log = stage.log_key("a")
    simulated = observed(lambda b, r: answer(world, b, r), up, keys, ids, simulated_number, (log, 0))
    in_a_row = 0
    differences: list[str] = []

    def agreed() -> bool:
        """Whether both were equal several times in a row."""
        nonlocal in_a_row, differences
        differences = _differences(simulated, _real(stage, up, keys, ids, real_number, (log, stage.log_start)))
        in_a_row = 0 if differences else in_a_row + 1
        return in_a_row == _SEEN_IN_A_ROW

    try:
        wait_until(agreed, "both agreed", _AGREED_S_MAX)
    except DemoError as late:
        return differences or [str(late)]
    return []


def _real(
    stage: Stage, up: list[int], keys: Sequence[Key], ids: Sequence[str], number: Numbers, log: tuple[Key, int]
) -> Observed:
    try:
        return observed(stage.wire.send, up, keys, ids, number, log)
    except RequestFailed as failed:
        return {"the real brokers": failed.error}


def _differences(simulated: Observed, real: Observed) -> list[str]:
    return [
        f"{what}: simulated {simulated.get(what)}, real {real.get(what)}"
        for what in (simulated | real)
        if simulated.get(what) != real.get(what)
    ]


def known_by_clients(stage: Stage, numbers: tuple[Numbers, Numbers]) -> list[str]:
    """The differences in the producer ids and epochs that clients received."""
    simulated, real = {}, {}
    for who, producer in stage.producers.items():
        there, here = producer.known, stage.world.producers[stage.ids[who]]
        real[f"client {who}"] = (numbers[0](there.producer_id), there.producer_epoch)
        simulated[f"client {who}"] = (numbers[1](here.producer_id), here.producer_epoch)
    return _differences(simulated, real)


# Called after each step on which both sides agree, with the step's number. Returns further differences.
After = Callable[[Stage, int, tuple["Numbers", "Numbers"]], list[str]]


def conform(
    cluster: KafkaCluster,
    wire: Wire,
    script: Script,
    setting: Setting,
    after: After = lambda _stage, _number, _numbers: [],
) -> Result:
    """Plays a script on both sides, and compares after each step, up to the first difference."""
    stage = opened_stage(
        cluster, wire, setting, script.name, script.topics, script.coordinator, script.min_isr, script.verified
    )
    numbers = (Numbers(), Numbers())
    with _verification(cluster, wire, script.verified):
        for number, step in enumerate(script.steps, 1):
            try:
                step.play(stage)
                differences = known_by_clients(stage, numbers) + compare(stage, numbers)
                differences = differences or after(stage, number, numbers)
            except (NotPossible, DemoError) as failed:
                differences = [str(failed)]
            if differences:
                return Result(script, setting, number, tuple(f"step {number}, {step}: {d}" for d in differences))
    return Result(script, setting, len(script.steps), ())


@contextmanager
def _verification(cluster: KafkaCluster, wire: Wire, verified: bool) -> Iterator[None]:
    if verified:
        yield
        return
    with unverified(wire):
        try:
            yield
        finally:
            # Turning verification on again needs every broker.
            heal(cluster, wire)


@contextmanager
def cluster_of(version: str, directory: Path) -> Iterator[tuple[KafkaCluster, Wire]]:
    """Three brokers of that version, configured for the scripts."""
    of_one = {**BROKER_PROPERTIES, TWO_DISKS: {"log.dirs": log_dirs(directory)}}
    with (
        KafkaCluster(directory, version=version, properties=PROPERTIES, broker_properties=of_one) as cluster,
        cluster.wire() as wire,
    ):
        yield cluster, wire


# --- the command ------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs scripts, and prints a table of compared steps and differences. Returns the exit status: 1 on a
    difference.
    """
    parser = argparse.ArgumentParser(prog="tests.prove.conformance", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--script", action="append", help="only this one; may be repeated")
    parser.add_argument("--kafka", action="append", help="only this version; may be repeated")
    options = parser.parse_args(arguments)
    chosen = [script for script in SCRIPTS if not options.script or script.name in options.script]
    versions = dict.fromkeys(s.kafka for s in ALL_SETTINGS if not options.kafka or s.kafka in options.kafka)
    started_s = time.monotonic()
    results = [result for version in versions for result in _on(version, chosen)]
    print(table(results))  # noqa: T201
    steps, wrong = sum(r.compared for r in results), sum(len(r.differences) for r in results)
    scripts = len({result.script.name for result in results})
    print(  # noqa: T201
        f"{len(results)} runs of {scripts} scripts, {steps} steps compared, {wrong} differences, "
        f"{time.monotonic() - started_s:.0f} s"
    )
    return 1 if wrong or not results else 0


def _on(version: str, scripts: Iterable[Script]) -> Iterator[Result]:
    """Runs every script on brokers of one version. Progress goes to stderr."""
    directory = Path(tempfile.mkdtemp(prefix="txnscan-conformance-"))
    try:
        with cluster_of(version, directory) as (cluster, wire):
            for script in scripts:
                for setting in (setting for setting in settings_of(script.on) if setting.kafka == version):
                    result = conform(cluster, wire, script, setting)
                    print(f"{script.name}, {setting}: {_cell(result)}", file=sys.stderr, flush=True)  # noqa: T201
                    yield result
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def table(results: Sequence[Result]) -> str:
    """The table of scripts by settings, with the number of compared steps. Below it, every difference."""
    cells = {(r.script.name, r.setting): _cell(r) for r in results}
    shown = [setting for setting in ALL_SETTINGS if any(of == setting for _, of in cells)]
    lines = [("", *map(str, shown))]
    lines += [(n, *(cells.get((n, s), "-") for s in shown)) for n in dict.fromkeys(n for n, _ in cells)]
    rows = ["  ".join(f"{cell:{30 if at == 0 else 24}}" for at, cell in enumerate(line)).rstrip() for line in lines]
    wrong = [f"{r.script.name}, {r.setting}: {difference}" for r in results for difference in r.differences]
    return "\n".join((*rows, *wrong, ""))


def _cell(result: Result) -> str:
    said = f"{result.compared} of {len(result.script.steps)} steps"
    return f"{said}, {len(result.differences)} differ" if result.differences else said


if __name__ == "__main__":
    sys.exit(main())
