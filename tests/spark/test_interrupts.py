"""An interrupted sweep raises KeyboardInterrupt, and leaves no Spark job."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.sim.wire import ClusterShape, WireCluster
from txnscan import ScanConfig, sweep
from txnscan.api import NotStored
from txnscan.demo.wait import wait_until
from txnscan.engine.spark.interrupts import interruptible, is_interrupt
from txnscan.errors import TxnscanError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP, DESCRIPTION = "spark.jobGroup.id", "spark.job.description"
# Each answer takes so long that the read of all partitions outlasts the test.
SLOW = ClusterShape(brokers=2, partitions=4_000, latency_ms=2_000)
SAID = "[SPARK_JOB_CANCELLED] Job 7 cancelled"


@pytest.mark.parametrize("how", ["cancelJobGroup", "cancelJobsWithTag", "interruptAll"])
def test_sparks_own_means_interrupt_a_sweep(spark: SparkSession, how: str) -> None:
    context = spark.sparkContext
    interrupt: Callable[[], object] = {
        "cancelJobGroup": lambda: context.cancelJobGroup("of-the-user"),
        "cancelJobsWithTag": lambda: context.cancelJobsWithTag("of-the-user"),
        "interruptAll": spark.interruptAll,
    }[how]

    def reading() -> list[int]:
        return [job for job in active(spark) if "read every partition" in _description(spark, job)]

    def interrupt_the_read() -> None:
        wait_until(reading, "the read of all partitions began")
        interrupt()

    context.setJobGroup("of-the-user", "the user's own job")
    context.addJobTag("of-the-user")
    try:
        with WireCluster(SLOW) as cluster:
            interrupting = threading.Thread(target=interrupt_the_read)
            interrupting.start()
            with pytest.raises(KeyboardInterrupt):
                sweep(spark, ScanConfig(cluster.bootstrap_servers, engine="spark"))
            interrupting.join()
            wait_until(lambda: not reading(), "the read has ended")
        assert set(context.getJobTags()) == {"of-the-user"}
    finally:
        context.removeJobTag("of-the-user")
        for name in (GROUP, DESCRIPTION):
            context.setLocalProperty(name, cast(str, None))


def active(spark: SparkSession) -> list[int]:
    """The ids of the jobs that run."""
    return list(spark.sparkContext.statusTracker().getActiveJobsIds())


def _description(spark: SparkSession, job: int) -> str:
    found = spark.sparkContext._jsc.sc().statusStore().job(job).description()
    return str(found.get()) if found.isDefined() else ""


class Session:
    """As of Spark Connect: the session alone has tags."""

    def __init__(self) -> None:
        self.tags: list[str] = []
        self.interrupted: list[str] = []

    def addTag(self, tag: str) -> None:
        self.tags.append(tag)

    def removeTag(self, tag: str) -> None:
        self.tags.remove(tag)

    def interruptTag(self, tag: str) -> None:
        self.interrupted.append(tag)

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


@contextmanager
def tagged() -> Iterator[Session]:
    session = Session()
    with interruptible(cast("SparkSession", session), NotStored):
        yield session


def after(error: BaseException, cause: BaseException) -> BaseException:
    error.__context__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt),
        # PySpark raises Spark's error after Ctrl-C.
        (after(RuntimeError("the answer ended"), KeyboardInterrupt()), KeyboardInterrupt),
        (RuntimeError(SAID), KeyboardInterrupt),
        (RuntimeError("[OPERATION_CANCELED] Operation has been canceled"), KeyboardInterrupt),
        (after(TxnscanError("the tables cannot be read"), RuntimeError(SAID)), KeyboardInterrupt),
    ],
)
def test_an_interrupt_is_raised_as_such_and_ends_the_jobs_of_all_threads(
    error: BaseException, raised: type[BaseException]
) -> None:
    with pytest.raises(raised), tagged() as session:
        (tag,) = session.tags
        raise error
    assert session.interrupted == [tag]
    assert session.tags == []


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Job 7 cancelled because SparkContext was shut down"),
        after(NotStored("", cast(Any, None)), RuntimeError(SAID)),
    ],
)
def test_another_error_is_raised_unchanged(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, tagged() as session:
        raise error
    assert raised.value is error
    assert (session.interrupted, session.tags) == ([], [])
    assert is_interrupt(error) == isinstance(error, NotStored)


def test_without_a_session_an_error_is_raised_unchanged() -> None:
    with pytest.raises(RuntimeError), interruptible(None):
        raise RuntimeError(SAID)
