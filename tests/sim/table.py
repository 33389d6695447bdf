"""How a transition is written down: its name, when it can happen, what it does, and what Kafka does that it models."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tests.sim.world import World

# What a transition is about: brokers, partitions, transactional ids, as its two functions take them.
Subject = tuple[Any, ...]
# A transition's name, and what it is about: one step of a history.
Event = tuple[str, Subject]


@dataclass(frozen=True)
class Transition:
    """One line of a table.

    when: each subject for which it can happen now. then: makes it happen. models: the behaviour, with its source.
    of: how its subject reads. fault: the scenario must name this kind of fault for it to happen; None for the usual
    course of things.
    """

    name: str
    when: Callable[[World], Iterable[Subject]]
    then: Callable[..., None]
    models: str
    of: str
    fault: str | None = None
