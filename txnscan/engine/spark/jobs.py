"""The description of a sweep's Spark jobs in the user's application: `txnscan CLUSTER: STAGE`, in the user's job group.

Spark has a description, a job group and a scheduler pool for each thread. A sweep describes the jobs of the thread that
called it, and of the threads that it starts. It restores the user's own description at its end. Spark Connect has no
descriptions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from txnscan.config import printable

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

Given = ParamSpec("Given")
Answer = TypeVar("Answer")
Progress = Callable[[str, int, int], None]

_DESCRIPTION = "spark.job.description"


@contextmanager
def described(spark: SparkSession | None, name: str, progress: Progress) -> Iterator[Progress]:
    """Returns a progress callback that puts the current stage into the description of jobs, and passes each call on.

    name: of the cluster. Restores the description of the calling thread at the end. Without a session, the callback is
    `progress` itself.
    """
    context = context_of(spark)
    if context is None:
        yield progress
        return
    caller = threading.get_ident()
    last = ""

    def describe(stage: str) -> None:
        nonlocal last
        # Other threads report progress, too.
        if stage != last and threading.get_ident() == caller:
            last = stage
            _set(context, f"txnscan {printable(name)}: {stage}")

    def named(stage: str, done: int, total: int) -> None:
        describe(stage)
        progress(stage, done, total)

    former = context.getLocalProperty(_DESCRIPTION)
    describe("start Python")
    try:
        yield named
    finally:
        _set(context, former)


def inheriting(spark: SparkSession | None, call: Callable[Given, Answer]) -> Callable[Given, Answer]:
    """The call for another thread. Its jobs have the group, the description, the pool and the tags of this thread."""
    if spark is None:
        return call
    from pyspark import inheritable_thread_target

    try:
        return cast("Callable[Given, Answer]", inheritable_thread_target(spark)(call))
    except Exception:
        # In some sessions a guest may not inherit them. The sweep works without them.
        return call


def context_of(spark: SparkSession | None) -> SparkContext | None:
    """The context of a session, if it has a context and lets this thread describe its jobs."""
    if spark is None:
        return None
    try:
        context = spark.sparkContext
        context.getLocalProperty(_DESCRIPTION)
    except Exception:
        # Spark Connect, and clusters that users share, refuse it in different ways.
        return None
    return context


def _set(context: SparkContext, description: str | None) -> None:
    # The session may have been stopped.
    with suppress(Exception):
        context.setLocalProperty(_DESCRIPTION, cast(str, description))
