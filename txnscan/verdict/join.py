"""The join of open transactions with the coordinators' answers by producer id, and the verdict of each, as one function
for an engine: on executors the coordinators' views are broadcast with the function.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from txnscan.kafka.answers import CoordinatorView
from txnscan.reads.observation import Observation
from txnscan.verdict.evidence import Context, Judged
from txnscan.verdict.rules import judge_observation

_TOGETHER = 500


@dataclass(frozen=True, slots=True)
class JudgeBatch:
    """Observations to judge together. `lane` is the number of the batch's queue."""

    lane: int
    observations: tuple[Observation, ...]

    @property
    def size(self) -> int:
        return len(self.observations)


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges the observations of a batch. views: of each producer id."""

    views: Mapping[int, tuple[CoordinatorView, ...]]
    context: Context

    def __call__(self, batch: JudgeBatch) -> Iterator[Judged]:
        for one in batch.observations:
            yield judge_observation(one, self.views.get(one.producer_id, ()), self.context)


def batches_of(observations: Sequence[Observation]) -> list[JudgeBatch]:
    """The observations in batches, each a lane of its own."""
    starts = range(0, len(observations), _TOGETHER)
    return [JudgeBatch(lane, tuple(observations[start : start + _TOGETHER])) for lane, start in enumerate(starts)]


def by_producer_id(views: Iterable[CoordinatorView]) -> dict[int, tuple[CoordinatorView, ...]]:
    """The coordinators' views of each producer id, in order."""
    found: dict[int, list[CoordinatorView]] = defaultdict(list)
    for view in views:
        found[view.producer_id].append(view)
    return {producer_id: tuple(of_one) for producer_id, of_one in found.items()}
