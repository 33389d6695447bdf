"""A Spark session for the command line: the running session, or else a local session with the settings of `conf/`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import javaproperties

from txnscan.config import ConfigError, printable
from txnscan.engine.spark.archive import Archive
from txnscan.engine.spark.errors import SparkUnavailable, require_pyspark, spark_reason
from txnscan.engine.spark.java import JavaError, delta_jars, find_java, jar_directory, named_java, pyspark_jars
from txnscan.engine.spark.jvm import JvmFailed, address_of, is_master, same_interrupts, start_jvm, unreachable
from txnscan.engine.spark.nodes import in_one_jvm
from txnscan.engine.spark.scratch import own_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Of a Spark Connect server.
_CONNECT = "sc://"
_WAREHOUSE = "spark.sql.warehouse.dir"
DRIVER_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# PySpark reads the options of its JVM from this variable.
_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"

# A sweep's JVM lives for seconds, so optimising its code takes longer than running it. Measured with five sweeps on two
# busy cores: the first sweep takes 19 s instead of 41 s, later sweeps 5-7 s instead of 7-15 s. A sweep also loads
# 27,000 classes at once. Without a garbage collection during that, a cold sweep takes 13 % less time.
_FOR_SECONDS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:MetaspaceSize=300m"

# Java searches the jars for a class one after another, by name, and PySpark has 276 jars. Most classes of a sweep come
# from these jars. If they are searched first, a process that only opens a session and appends a row takes a tenth less.
_SEARCHED_FIRST = (
    "spark-catalyst_",
    "spark-core_",
    "scala-library-",
    "scala-reflect-",
    "spark-sql-api_",
    "spark-sql_",
    "jackson-databind-",
    "log4j-core-",
    "hadoop-client-api-",
    "parquet-column-",
    "parquet-jackson-",
    "janino-",
    "arrow-vector-",
    "hadoop-client-runtime-",
)


def conf_directory() -> Path:
    """`conf/` of the installed package, or of a checkout."""
    here = Path(__file__).parents[2]
    return here / "conf" if (here / "conf").is_dir() else here.parent / "conf"


def spark_defaults() -> dict[str, str]:
    """The settings of conf/spark-defaults.conf."""
    return dict(javaproperties.loads((conf_directory() / "spark-defaults.conf").read_text("utf-8")))


def local_settings(master: str, say: Callable[[str], None] = lambda _: None) -> dict[str, str]:
    """The settings of a session without a cluster: the settings of conf/, Delta's jars and a quiet log.

    Raises JavaError if the jars cannot be downloaded.
    """
    delta = sorted(jar_directory(delta_jars(), say=say).glob("*.jar"))
    return {
        **spark_defaults(),
        **(_in_one_jvm(delta) if in_one_jvm(master) else {"spark.jars": ",".join(map(str, delta))}),
        **_warehouse(),
        DRIVER_JAVA_OPTIONS: driver_options(spark_archive(delta).options if in_one_jvm(master) else ()),
    }


def driver_options(more: Sequence[str] = ()) -> str:
    """The options of the driver's JVM."""
    log = conf_directory() / "log4j2.properties"
    return " ".join((_FOR_SECONDS, f"-Dlog4j2.configurationFile={log}", *more))


def spark_archive(delta: Sequence[Path]) -> Archive:
    """The class data archive of local sessions."""
    return Archive("spark", Path(named_java() or "java"), (*_jars_of_spark(), *delta))


def _jars_of_spark() -> list[Path]:
    """The jars of PySpark. Empty if another Spark is used, because its jars must not be mixed with these."""
    return [] if "SPARK_HOME" in os.environ else pyspark_jars()


def _in_one_jvm(delta: Sequence[Path]) -> dict[str, str]:
    """The settings if the driver's JVM is the executor. No jar is sent to it, and it uses this Python."""
    jars = _jars_of_spark()
    first = [jar for name in _SEARCHED_FIRST for jar in jars if jar.name.startswith(name)]
    return {
        "spark.driver.extraClassPath": os.pathsep.join(map(str, (*first, *delta))),
        "spark.python.daemon.module": "txnscan.engine.spark.daemon",
    }


def _warehouse() -> dict[str, str]:
    """A temporary directory for Spark's default database. Spark always makes such a directory, even without tables:
    `spark-warehouse` in the working directory. If the site's own settings name a directory, it is kept.
    """
    home = os.environ.get("SPARK_CONF_DIR") or Path(os.environ.get("SPARK_HOME", "/nonexistent"), "conf")
    with suppress(OSError):
        if _WAREHOUSE in javaproperties.loads(Path(home, "spark-defaults.conf").read_text("utf-8")):
            return {}
    return {_WAREHOUSE: (own_directory() / "warehouse").as_uri()}


def spark_session(
    master: str | None = None,
    *,
    app_name: str = "txnscan",
    settings: Mapping[str, str] | None = None,
    say: Callable[[str], None] = lambda _: None,
    heard: Callable[[str], None] = lambda line: print(line, file=sys.stderr),  # noqa: T201
) -> SparkSession:
    """The running session (Databricks, a notebook), or else a new session. Under spark-submit the new session has the
    launcher's settings. Otherwise it runs on `master`, MASTER or SPARK_REMOTE of the environment, or `local[*]`;
    `settings` override those of conf/, and spark-submit's options in SPARK_SUBMIT_OPTS_TXNSCAN override both. With
    sc://HOST:PORT it is a session of that Spark Connect server, with the server's own settings.

    heard: called with each line that Spark's own process writes. Raises SparkUnavailable if PySpark or Java is missing
    or Spark does not start, and ConfigError for an invalid master.
    """
    require_pyspark()
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    builder = SparkSession.builder.appName(app_name)
    try:
        if "PYSPARK_GATEWAY_PORT" in os.environ:
            with same_interrupts():
                return builder.getOrCreate()
        chosen = _master(master)
        if chosen.startswith(_CONNECT):
            return builder.remote(chosen).getOrCreate()
        find_java()
        if chosen.startswith("local"):
            # No other machine connects to a local driver, so it listens only on the loopback address.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        _choose_python(chosen)
        return _started(builder, {**local_settings(chosen, say), **(settings or {}), "spark.master": chosen}, heard)
    except (ConfigError, SparkUnavailable):
        raise
    except JavaError as error:
        raise SparkUnavailable(str(error)) from None
    except JvmFailed as error:
        raise SparkUnavailable(f"Spark could not start: {error or 'its Java process ended'}") from None
    except Exception as error:
        raise SparkUnavailable(f"Spark could not start: {spark_reason(error)}") from None


def runs_session() -> bool:
    """Whether this process has a session. It has imported PySpark then."""
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.sql.SparkSession.getActiveSession() is not None


def starts_jvm(master: str | None) -> bool:
    """Whether `spark_session` starts a JVM on this machine: not with a running session, under spark-submit, or with
    Spark Connect.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return False
    return not runs_session() and not _named(master)[1].startswith(_CONNECT)


def _choose_python(master: str) -> None:
    """Sets the Python of workers that run on this machine. On other machines it is their own `python3`, or the Python
    that the user named.
    """
    if in_one_jvm(master):
        # Workers are forked from `engine/spark/daemon.py`. Another Python that the user names may lack this package.
        os.environ["PYSPARK_PYTHON"] = sys.executable
    elif master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _started(builder: SparkSession.Builder, settings: Mapping[str, str], heard: Callable[[str], None]) -> SparkSession:
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        # This process already has a session. Its JVM accepts no more options.
        for name, value in settings.items():
            builder = builder.config(name, value)
        with same_interrupts():
            return builder.getOrCreate()
    with _environment(_ARGUMENTS, launch_arguments(settings, os.environ)):
        start_jvm(heard)
    with same_interrupts():
        spark = builder.getOrCreate()
    # PySpark itself applies this setting only in programs that spark-submit starts.
    named = spark.sparkContext.getConf().get("spark.pyspark.python")
    if named is not None and not in_one_jvm(spark.sparkContext.master or ""):
        spark.sparkContext.pythonExec = named
    return spark


def launch_arguments(settings: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """The words after `spark-submit` that start a session's JVM. The user's options come after the settings, because
    the last option with the same name counts.
    """
    ours = shlex.join(word for name, value in settings.items() for word in ("--conf", f"{name}={value}"))
    theirs = environment.get("SPARK_SUBMIT_OPTS_TXNSCAN", "")
    return " ".join(filter(None, (ours, theirs, environment.get(_ARGUMENTS, "pyspark-shell"))))


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _named(master: str | None) -> tuple[str, str]:
    """The master that the user names, with the option or the variable."""
    named = (("--master", master), *((name, os.environ.get(name)) for name in ("MASTER", "SPARK_REMOTE")))
    return next(((name, value) for name, value in named if value), ("MASTER", "local[*]"))


def _master(master: str | None) -> str:
    """The master to start on. Raises ConfigError if it is invalid, and SparkUnavailable if it does not answer."""
    option, chosen = _named(master)
    if not is_master(chosen):
        masters = "local[*], local[N], spark://HOST:PORT, sc://HOST:PORT, yarn or k8s://HOST:PORT"
        raise ConfigError(option, f"'{printable(address_of(chosen))}' is no Spark master; use {masters}")
    why = unreachable(chosen)
    if why is not None:
        where = printable(address_of(chosen))
        raise SparkUnavailable(f"no Spark master answers at {where} ({why}); start it, or name another with --master")
    return chosen
