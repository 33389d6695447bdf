"""Two recordings of the same requests: how they differ, apart from what `mask.py` lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from tests.golden.mask import Level, Masks
from tests.golden.store import Recording, State
from tests.sim.wire.answers import Api

Compared = tuple[int, int, int, bytes, bytes]


def shapes_differ(stored: Recording, again: Recording) -> list[str]:
    """How two recordings of the shape differ, in one sentence each."""
    level, kafka = Level.AGAIN, stored.kafka
    return [*_offers(stored, again), *_states(stored.states, again.states, Masks(level, kafka), Masks(level, kafka))]


def scripts_differ(stored: Recording, again: Sequence[State]) -> list[str]:
    """How new states of some scripts differ from the stored ones, in one sentence each."""
    kept: dict[tuple[str, int], list[State]] = {}
    for state in stored.states:
        kept.setdefault(_run(state), []).append(state)
    found: list[str] = []
    for run, states in groupby(again, _run):
        of_run = list(states)
        ours, theirs = (
            Masks(Level.STATES, stored.kafka, each[0].facts["ids"] if each else ())
            for each in (kept.get(run, []), of_run)
        )
        found += _states(kept.get(run, []), of_run, ours, theirs)
    return found


def _run(state: State) -> tuple[str, int]:
    return state.facts["script"], state.facts["client"]


def _offers(stored: Recording, again: Recording) -> Iterator[str]:
    for api in sorted(stored.offered.keys() | again.offered.keys()):
        versions = stored.offered.get(api), again.offered.get(api)
        if versions[0] != versions[1]:
            yield f"versions of API {api}: {versions[0]} recorded, {versions[1]} now"


def _states(stored: Sequence[State], again: Sequence[State], ours: Masks, theirs: Masks) -> Iterator[str]:
    labels = [state.label for state in stored], [state.label for state in again]
    if labels[0] != labels[1]:
        yield f"the states are {labels[1]}, and were {labels[0]}"
        return
    for before, now in zip(stored, again, strict=True):
        masked = [ours.asked(one) for one in before.asked], [theirs.asked(one) for one in now.asked]
        if len(masked[0]) != len(masked[1]):
            yield f"{before.label}: {len(masked[1])} requests, and there were {len(masked[0])}"
        for one, other in zip(*masked, strict=False):
            if one != other:
                yield f"{before.label}: {_difference(one, other)}"


def _difference(before: Compared, now: Compared) -> str:
    broker_id, api, version, *_ = now
    name = Api(api).name if api in set(Api) else f"API {api}"
    which = "another request" if before[:4] != now[:4] else "another answer"
    bodies = "\n".join(f"{when} {b[3].hex()}\n  -> {b[4].hex()}" for when, b in (("was", before), ("now", now)))
    return f"{which} of {name} v{version} at broker {broker_id}:\n{bodies}"
