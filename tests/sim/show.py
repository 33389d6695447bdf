"""A history, step by step, as lines of text: the events, the state of partitions and coordinators after each, the
requests of the sweep, its verdicts, and the truth. This module does not print them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from tests.sim.check import History, Schedule, Sweeps, in_turns, wrong_verdicts
from tests.sim.history import Simulation
from tests.sim.obligations import DROPPED, EVERYTHING, Protocol
from tests.sim.records import Data, Entry, Gone, Held, Idle, Marker, producer_state
from tests.sim.scenarios import WIDE, rest
from tests.sim.stories import STORIES
from tests.sim.table import Event
from tests.sim.transitions import TABLES, TRANSITIONS, can_happen, happen
from tests.sim.truth import hanging
from tests.sim.wander import wander, wander_again
from tests.sim.world import Scenario, World
from txnscan.config import ConfigError, printable
from txnscan.coordinators.cluster import ClusterUnreachable
from txnscan.kafka.protocol.frames import api_name
from txnscan.kafka.topology import Key

Thing = TypeVar("Thing")
_INDENT = " " * 5
# With these faults, the transaction logs matter, so they are shown.
_LOG_FAULTS = frozenset({"compaction", "tombstones dropped", "append timeout", "partial load"})


def table_lines() -> Iterator[str]:
    """Every transition of the simulator by table, with the behaviour of Kafka that it models."""
    for title, table in TABLES.items():
        yield f"What {title} do" if title.endswith("s") else f"What {title} does"
        for transition in table:
            kind = f" (fault: {transition.fault})" if transition.fault else ""
            yield f"  {transition.name}{kind}"
            yield f"{_INDENT}{transition.models}"
        yield ""


def lines_of(history: History, protocol: Protocol = EVERYTHING) -> Iterator[str]:
    """The lines of a history."""
    yield from _world_lines(history.scenario)
    world, sweeps = World(history.scenario), Sweeps(protocol)
    teller = _Teller(world)
    first, opening = True, history.opening
    for which, visit in enumerate(history.earlier, 1):
        yield from teller.before(f"Before sweep {which}", world, opening if first else (), visit.before)
        narrator = _Narrator(visit.during, teller)
        with suppress(ClusterUnreachable):
            sweeps.sweep(Simulation(world, narrator), visit.known, visit.now_ms)
        yield ""
        yield f"Sweep {which}"
        yield from narrator.finished()
        first = False
    yield from teller.before("Before the sweep", world, opening if first else (), history.before)
    yield ""
    yield "The sweep" if protocol is EVERYTHING else f"The sweep, without this: {protocol.lacks}"
    narrator = _Narrator(history.during, teller)
    simulation = Simulation(world.copy(), narrator, in_turns(history.turns))
    told = sweeps.next(history.known, history.now_ms)
    try:
        found = told.sweep(simulation)
    except ClusterUnreachable as unreachable:
        yield from narrator.finished()
        yield f"{_INDENT}failed: {unreachable}"
        return
    yield from narrator.finished()
    yield ""
    yield "The verdicts"
    for judged in found.transactions:
        o, judgement = judged.observation, judged.judgement
        yield f"  {o.topic_partition}, producer id {o.producer_id}, open from offset {o.start_offset}: " + (
            f"{judgement.verdict} ({judgement.reason})"
        )
        yield f"{_INDENT}{judgement.explanation}"
    if not found.transactions:
        yield "  nothing is open"
    yield ""
    yield "The truth, when every broker is back and no client acts any more"
    for key, _ in history.scenario.topics:
        yield f"  {_name(key)}: {_fate(simulation.world, key)}"
    wrong = wrong_verdicts(found, simulation.world, world, history, told)
    for one in wrong:
        yield f"  The verdict on producer id {one.producer_id} is WRONG: {one.why}."
    if not wrong:
        yield "  No verdict contradicts it."


# --- names ------------------------------------------------------------------------------------------------------------


def listed() -> Iterator[str]:
    """The names of stories, worlds and obligations, with descriptions."""
    yield "Stories (--story), each wrong without the obligation of its name (--without)"
    for story in STORIES.values():
        yield f"  {story.without}"
        yield f"{_INDENT}{DROPPED[story.without].lacks}. {story.tells}"
    yield ""
    yield "Worlds (--world), whose histories are made up at random (--seed)"
    for scenario in WIDE.values():
        yield f"  {scenario.name}"
        yield f"{_INDENT}{'; '.join(_places(scenario))}; transactions v{' and v'.join(map(str, scenario.versions))}"


def named_history(story: str | None, world: str | None, seed: int, *, several: bool = False) -> History:
    """The history of a story, or a random history of a world. several: with several sweeps, up to the first wrong one.
    Raises ConfigError.
    """
    if story is not None and world is not None:
        raise ConfigError("--story", "and --world exclude each other")
    if several:
        figures, histories = wander_again(_one_of(WIDE, "--world", world or next(iter(WIDE))), seed)
        return next((history for history, _ in figures.wrong), histories[-1])
    if world is not None:
        return wander(_one_of(WIDE, "--world", world), seed)[1]
    return _one_of(STORIES, "--story", story or next(iter(STORIES))).history


def named_protocol(without: str | None) -> Protocol:
    """The protocol of a sweep, complete or without an obligation. Raises ConfigError."""
    return EVERYTHING if without is None else _one_of(DROPPED, "--without", without)


def _one_of(known: Mapping[str, Thing], option: str, name: str) -> Thing:
    if name not in known:
        raise ConfigError(option, f"'{printable(name)}' is unknown; use one of {', '.join(known)}")
    return known[name]


# --- worlds, steps and states -----------------------------------------------------------------------------------------


def _world_lines(scenario: Scenario) -> Iterator[str]:
    yield f"The world: {scenario.name}"
    yield from (f"  {place}" for place in _places(scenario))


def _places(scenario: Scenario) -> Iterator[str]:
    for key, replicas in scenario.partitions:
        yield f"{_name(key)} on broker{'s' if len(replicas) > 1 else ''} {', '.join(map(str, replicas))}"


def _name(key: Key) -> str:
    return f"{key[0]}-{key[1]}"


def _fate(world: World, key: Key) -> str:
    hung = sorted((pid, offset) for where, pid, offset in hanging(world) if where == key)
    if not hung:
        return "everything on it ends"
    return "; ".join(f"producer id {pid} hangs from offset {offset}" for pid, offset in hung)


def event_text(world: World, event: Event) -> str:
    """An event that is about to happen, as one line."""
    name, subject = event
    if name in ("append data", "lose a request"):
        produce = world.in_flight[subject[0]]
        subject = (f"{_name(produce.partition)}, producer {produce.data.producer_id}/{produce.data.producer_epoch}",)
    return f"{name}: {TRANSITIONS[name].of.format(*map(_part, subject))}"


def _part(part: Any) -> str:
    if isinstance(part, bool):
        return "commit" if part else "abort"
    return _name(part) if isinstance(part, tuple) else str(part)


def _changes(before: dict[str, str], world: World) -> Iterator[str]:
    """The parts of the state that changed."""
    now = _state(world)
    for what, text in now.items():
        if before.get(what) != text:
            yield f"{_INDENT}{what}: {text}"
    for what in before.keys() - now.keys():
        yield f"{_INDENT}{what}: nothing any more"


def _state(world: World) -> dict[str, str]:
    """The state of a world: a sentence for each part."""
    state = {}
    for key, replicas in world.scenario.topics:
        for b in replicas:
            leads = world.leads(b, key)
            role = f"leads at epoch {leads.epoch}" if leads is not None else "follows"
            state[f"{_name(key)} on broker {b}"] = f"{role}, {_log(world, key, b)}"
    if world.scenario.faults & _LOG_FAULTS:
        for key, replicas in world.scenario.partitions[len(world.scenario.topics) :]:
            for b in replicas:
                state[f"{_name(key)}, the log on broker {b}"] = _log(world, key, b)
    for (b, k), coordinator in sorted(world.coordinators.items()):
        loading = ", loading" if coordinator.loading else "" if coordinator.whole else ", of a part of its log"
        state[f"__transaction_state-{k} on broker {b}"] = f"coordinates at epoch {coordinator.epoch}{loading}"
    for (b, name), held in sorted(world.held.items(), key=lambda item: item[0]):
        state[f"transactional id '{name}' on broker {b}"] = _held(held)
    for b, broker in world.brokers.items():
        if broker.run != "up" or not broker.linked:
            state[f"broker {b}"] = broker.run if broker.run != "up" else "cut off from the controller"
    return state


def _log(world: World, key: Key, broker_id: int) -> str:
    log = world.logs[key, broker_id]
    if not log:
        return "empty"
    open_from = sorted(s.start_offset for s in producer_state(log).values() if s.start_offset >= 0)
    opened_at = f", open from {', '.join(map(str, open_from))}" if open_from else ""
    start = world.log_starts[key, broker_id]
    begins = f" (deleted below offset {start})" if start else ""
    return f"{' '.join(map(_entry, log))}{begins}, high watermark {world.high_watermarks[key, broker_id]}{opened_at}"


def _entry(entry: Entry) -> str:
    record = entry[1]
    if isinstance(record, Idle):
        return f"({_entry((entry[0], record.record))})"
    if isinstance(record, Data):
        return f"[data {record.producer_id}/{record.producer_epoch}]"
    if isinstance(record, Marker):
        outcome = "COMMIT" if record.committed else "ABORT"
        return f"[{outcome} {record.producer_id}/{record.producer_epoch}]"
    if record is None:
        return "[cleaned]"
    if isinstance(record, Gone):
        return "[deleted]"
    if record.metadata is None:
        return f"[tombstone of '{record.transactional_id}']"
    metadata = record.metadata
    return f"['{record.transactional_id}' {metadata.state} {metadata.producer_id}/{metadata.producer_epoch}]"


def _held(held: Held) -> str:
    metadata = held.metadata
    listed = ", ".join(_name(key) for key in sorted(metadata.partitions)) or "no partition"
    pending = f"; {held.pending.state} is being written" if held.pending is not None else ""
    return f"{metadata.state} {metadata.producer_id}/{metadata.producer_epoch}, {listed}{pending}"


class _Teller:
    """Makes events happen, and tells each with its number and its changes."""

    def __init__(self, world: World) -> None:
        self._number, self._shown = 0, _state(world)

    def before(self, title: str, world: World, opening: Iterable[Event], events: Iterable[Event]) -> Iterator[str]:
        """The events before a sweep. In a shortened history, some are not possible."""
        yield ""
        yield title
        for event in opening:
            yield from self.happens(world, event, rests=True)
        for event in events:
            if can_happen(world, event):
                yield from self.happens(world, event)

    def happens(self, world: World, event: Event, *, rests: bool = False) -> Iterator[str]:
        """One event. rests: whether what follows by itself happens, too."""
        self._number += 1
        yield f"{self._number:4d} {event_text(world, event)}"
        happen(world, event)
        if rests:
            rest(world)
        yield from _changes(self._shown, world)
        self._shown = _state(world)


class _Narrator:
    """Makes the events of a schedule happen during a sweep, and records the requests between them."""

    def __init__(self, schedule: Schedule, teller: _Teller) -> None:
        self.due, self._teller = list(schedule), teller
        self.said: list[str] = []
        self.asked: list[tuple[int, list[str]]] = []

    def __call__(self, simulation: Simulation, point: int, broker_id: int, request: Any) -> None:
        while self.due and self.due[0][0] <= point:
            _, event = self.due.pop(0)
            self._flush()
            world = simulation.world
            if can_happen(world, event):
                self.said += self._teller.happens(world, event)
        if not self.asked or self.asked[-1][0] != broker_id:
            self.asked.append((broker_id, []))
        self.asked[-1][1].append(api_name(request))

    def finished(self) -> list[str]:
        """All lines, once the sweep is over."""
        self._flush()
        return self.said

    def _flush(self) -> None:
        self.said += [f"{_INDENT}asks broker {broker_id}: {', '.join(names)}" for broker_id, names in self.asked]
        self.asked = []
