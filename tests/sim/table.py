"""The form of a transition: its name, when it is possible, its effect, and the behaviour of Kafka that it models."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tests.sim.world import World

# The subject of a transition: brokers, partitions, transactional ids, as its two functions take them.
Subject = tuple[Any, ...]
# A transition's name and its subject: one step of a history.
Event = tuple[str, Subject]


@dataclass(frozen=True)
class Transition:
    """One line of a table.

    when: each subject for which it is possible now. then: makes it happen. models: the behaviour, with its source. of:
    the text of its subject. fault: the scenario must have this kind of fault; None for normal operation.
    """

    name: str
    when: Callable[[World], Iterable[Subject]]
    then: Callable[..., None]
    models: str
    of: str
    fault: str | None = None
