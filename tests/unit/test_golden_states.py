"""The recorded answers of real brokers, in every state of the conformance scripts.

The decoders must return the values stored beside the bytes, and the simulator must answer the same.
`tests/golden/states.py` describes the recording. `tests/brokers/test_conformance.py` repeats parts of it.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import txnscan.kafka
from tests.cases import Cases
from tests.golden import shape, states, store
from tests.golden.compare import scripts_differ, shapes_differ
from tests.golden.mask import CLASSES, Level, Masks
from tests.golden.raw import Asked
from tests.golden.record import VERSIONS, decoded
from tests.golden.store import Recording, State
from tests.prove.conformance import Numbers, Observed
from tests.prove.scripts import SCRIPTS, Script
from tests.prove.stage import Setting, settings_of
from txnscan.demo.jars import KAFKA_VERSION, OLD_KAFKA_VERSION

BY_NAME = {script.name: script for script in SCRIPTS}
RECORDED_BYTES_MAX = 2_000_000
# The bodies to decode separately of each message in each version. `make test-all` decodes all of them.
BODIES_TAKEN_APART = 25
Clients = dict[str, tuple[int, int]]


@cache
def recorded(kafka: str, part: str = states.PART) -> Recording:
    return store.read(kafka, part)


@cache
def runs(kafka: str) -> dict[tuple[str, Setting], list[State]]:
    """The states of each script under each setting."""
    found: dict[tuple[str, Setting], list[State]] = {}
    for state in recorded(kafka).states:
        found.setdefault((state.facts["script"], Setting(kafka, state.facts["client"])), []).append(state)
    return found


def settings(kafka: str) -> list[tuple[Script, Setting]]:
    return [(script, setting) for script in SCRIPTS for setting in settings_of(script.on) if setting.kafka == kafka]


@pytest.mark.parametrize("kafka", VERSIONS)
def test_decoders_and_simulator_agree_with_the_recorded_answers(kafka: str) -> None:
    with Cases() as cases:
        for script, setting in settings(kafka):
            with cases.case(f"{script.name}, {setting}"):
                assert disagreements(script, setting) == []


def disagreements(script: Script, setting: Setting) -> list[str]:
    """The differences between a run's recorded answers, the values stored beside them and the simulator."""
    run = runs(setting.kafka)[script.name, setting]
    number, found = Numbers(), []
    played = simulated(script.name, setting.new, setting.client, run[0].facts["prefix"])
    for state, (clients, expected, epochs) in zip(run, played, strict=True):
        known = {who: (number(producer_id), epoch) for who, (producer_id, epoch) in state.facts["clients"].items()}
        seen, others = states.replayed(recorded(setting.kafka).offered, state, number)
        real_epochs = states.replayed_epochs(recorded(setting.kafka).offered, state)
        for what, one, other in (
            ("clients of the simulator", known, clients),
            ("the simulator", seen, expected),
            ("the simulator", real_epochs, {what: epochs.get(what) for what in real_epochs}),
            ("the stored observation", states.as_text(seen), state.facts["observed"]),
            ("the other stored values", states.as_text(others), state.facts["others"]),
        ):
            found += [
                f"{state.label}: {key}: recorded {one.get(key)}, {what} {other.get(key)}"
                for key in one | other
                if one.get(key) != other.get(key)
            ]
    return found


@cache
def simulated(name: str, new: bool, client: int, prefix: str) -> list[tuple[Clients, Observed, Observed]]:
    """The simulator after each step: the ids of the clients, its observation, and the leader epochs of its batches.
    The same for all versions of Kafka 4.
    """
    script = BY_NAME[name]
    played = states.Simulated(script, Setting(KAFKA_VERSION if new else OLD_KAFKA_VERSION, client), prefix)
    found = []
    for step in range(1, len(script.steps) + 1):
        played.play(step)
        found.append((*played.observed(), played.leader_epochs()))
    return found


@pytest.mark.parametrize("kafka", VERSIONS)
def test_every_step_of_every_script_is_recorded(kafka: str) -> None:
    found = {run: [state.facts["step"] for state in of_run] for run, of_run in runs(kafka).items()}
    wanted = {(script.name, setting): [*range(1, len(script.steps) + 1)] for script, setting in settings(kafka)}
    assert found == wanted


def test_decoding_twice_gives_the_same_recording() -> None:
    some = [state for state in recorded(KAFKA_VERSION).states if state.facts["script"] in ("fence", "expired")]
    few = Recording(KAFKA_VERSION, states.PART, recorded(KAFKA_VERSION).offered, {}, some)
    assert decoded(few) == few


# Hardly anything in its answer comes again: times, and an offset that rises twice a second. So real brokers are asked
# instead (`tests/brokers/test_silent_broker.py`).
_NOT_RECORDED = "DescribeQuorumRequest"


def requests_of_txnscan() -> dict[str, int]:
    """The requests that modules of `txnscan/kafka` import from kafka-python: their names and API keys."""
    by_name = {request.__name__: key for key, (request, _) in CLASSES.items()}
    found: dict[str, int] = {}
    for module in sorted((Path(txnscan.kafka.__path__[0]) / "protocol").glob("*.py")):
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kafka.protocol"):
                names = [alias.name for alias in node.names if alias.name.endswith("Request")]
                names = [name for name in names if name != _NOT_RECORDED]
                unknown = [name for name in names if name not in by_name]
                assert not unknown, f"{module.name} sends {unknown}: add it to tests/golden, and record it"
                found |= {name: by_name[name] for name in names}
    return found


@pytest.mark.parametrize("kafka", VERSIONS)
def test_every_request_that_txnscan_sends_is_recorded(kafka: str) -> None:
    offered = recorded(kafka).offered
    counted = recorded(kafka).counted() + recorded(kafka, shape.PART).counted()
    wanted = {name: key for name, key in requests_of_txnscan().items() if key in offered}
    assert len(wanted) >= 13
    assert {name for name, key in wanted.items() if not counted[key]} == set()


@pytest.mark.parametrize("kafka", VERSIONS)
def test_recorded_bodies_are_parsed_to_the_last_byte(kafka: str) -> None:
    """The comparison of two recordings therefore covers every byte."""
    masks = Masks(Level.ANY, kafka)
    last = [of_run[-1] for of_run in runs(kafka).values()]
    bodies: dict[tuple[int, int, bool], set[bytes]] = {}
    for asked in (one for state in (*recorded(kafka, shape.PART).states, *last) for one in state.asked):
        for is_request, body in ((True, asked.request), (False, asked.answer)):
            kept = bodies.setdefault((asked.api, asked.version, is_request), set())
            if len(kept) < BODIES_TAKEN_APART:
                kept.add(body)
    for (api, version, is_request), some in bodies.items():
        for body in some:
            masks.bytes_of(api, version, body, is_request=is_request)


def test_recordings_are_small() -> None:
    files = [path for path in store.RECORDED.rglob("*") if path.is_file()]
    assert sorted(files) == sorted(
        store.file_of(kafka, part) for kafka in VERSIONS for part in (shape.PART, states.PART)
    )
    assert sum(path.stat().st_size for path in files) < RECORDED_BYTES_MAX


# --- comparing recordings ---


def changed(recording: Recording, label: str, api: int, at: int) -> Recording:
    """The same recording with a flipped bit in the answer to the last request of an API in a state."""

    def other(asked: list[Asked]) -> list[Asked]:
        place = max(n for n, one in enumerate(asked) if one.api == api)
        one, body = asked[place], bytearray(asked[place].answer)
        body[at] ^= 1
        return [*asked[:place], Asked(*one.question, bytes(body)), *asked[place + 1 :]]

    made = [
        State(one.label, other(list(one.asked)) if one.label == label else one.asked, one.facts)
        for one in recording.states
    ]
    return Recording(recording.kafka, recording.part, recording.offered, recording.facts, made)


def only(recording: Recording, *labels: str) -> Recording:
    states_of = [state for state in recording.states if state.label in labels]
    return Recording(recording.kafka, recording.part, recording.offered, recording.facts, states_of)


def test_a_recording_equals_itself() -> None:
    shapes, scripts = only(recorded(KAFKA_VERSION, shape.PART), "Metadata", "listed ids"), recorded(KAFKA_VERSION)
    assert shapes_differ(shapes, shapes) == []
    some = [state for state in scripts.states if state.facts["script"] in ("fence", "expired")]
    assert scripts_differ(scripts, some) == []


def test_an_unmasked_bit_is_a_difference() -> None:
    shapes = only(recorded(KAFKA_VERSION, shape.PART), "cluster")
    # The error code of the cluster's description, and the throttle time.
    (difference,) = shapes_differ(shapes, changed(shapes, "cluster", 60, 5))
    assert difference.startswith("cluster: ") and "DescribeCluster v2 at broker 1:" in difference
    assert shapes_differ(shapes, changed(shapes, "cluster", 60, 3)) == []
