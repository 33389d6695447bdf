"""Kafka's jars, fetched once through the Ivy that PySpark ships, and kept in the user's cache directory.

A directory in the cache is complete or not there at all: jars are retrieved into a temporary directory beside it,
which is then renamed. Two processes at once fetch twice and keep one; an interrupted fetch leaves nothing that is used.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from txnscan.demo.errors import DemoError
from txnscan.demo.java import java

KAFKA_VERSION = "4.3.1"
# An Ivy settings file of the user's own, for machines that reach only a mirror.
IVY_SETTINGS_VARIABLE = "TXNSCAN_IVY_SETTINGS"

# kafka-tools alone, without what it depends on: that is Kafka Connect and a web server, which the
# transactions command does not need. The log4j binding fits slf4j 1.7, which Kafka uses; PySpark's is for 2.0.
_IVY_MODULE = """\
<ivy-module version="2.0">
  <info organisation="txnscan" module="demo"/>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{version}" conf="*->default"/>
    <dependency org="org.apache.kafka" name="kafka-tools" rev="{version}" conf="*->default" transitive="false"/>
    <dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="2.25.4" conf="*->default"/>
  </dependencies>
</ivy-module>
"""
_FETCH_S_MAX = 900


def kafka_jars(
    version: str = KAFKA_VERSION,
    *,
    ivy_cache: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Path:
    """A directory with the jars of a Kafka broker and its tools, fetched when it is not in the cache yet.

    ivy_cache: an Ivy cache to read and fill, instead of one that is thrown away.
    say: told in one sentence before a fetch, which takes about a minute. Raises DemoError.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "txnscan"
    kept = cache / f"kafka-{version}"
    if kept.is_dir():
        return kept
    executable = java()
    ivy = _ivy_jar()
    say(f"Downloading Apache Kafka {version} (45 MB, once)")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".kafka-{version}-", dir=cache))
    except OSError as error:
        raise DemoError(
            f"{cache} cannot be written ({error.strerror}); set XDG_CACHE_HOME to a directory that can"
        ) from None
    try:
        _retrieve(executable, ivy, version, work, ivy_cache or work / "ivy", cache / f"kafka-{version}-download.log")
        _keep(work / "jars", kept)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return kept


def _ivy_jar() -> Path:
    # Found without importing PySpark, which takes a second.
    spec = importlib.util.find_spec("pyspark")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        for jar in sorted(Path(location, "jars").glob("ivy-*.jar")):
            return jar
    raise DemoError(
        "the demo downloads Kafka with the Ivy inside PySpark, which is not installed; install txnscan[spark]"
    )


def _retrieve(executable: Path, ivy: Path, version: str, work: Path, ivy_cache: Path, log: Path) -> None:
    """Retrieves all jars into `work`/jars. What Ivy says goes to `log`, which is removed when all went well."""
    module = work / "ivy.xml"
    module.write_text(_IVY_MODULE.format(version=version), "utf-8")
    # Ivy's own directory under the home directory has no locks, so that two processes could spoil it: not used.
    command = [str(executable), f"-Divy.default.ivy.user.dir={work / 'user'}", "-jar", str(ivy)]
    if settings := os.environ.get(IVY_SETTINGS_VARIABLE):
        command += ["-settings", settings]
    command += ["-cache", str(ivy_cache), "-ivy", str(module), "-confs", "default"]
    command += ["-retrieve", f"{work / 'jars'}/[artifact]-[revision](-[classifier]).[ext]"]
    partial = work / "ivy.log"
    with partial.open("wb") as output:
        try:
            ran = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, timeout=_FETCH_S_MAX, check=False)
            done = ran.returncode == 0 and _complete(work / "jars", version)
        except subprocess.TimeoutExpired:
            done = False
    if not done:
        partial.replace(log)
        raise DemoError(
            f"Apache Kafka {version} could not be downloaded: check the network and the proxy settings of Java "
            f"(JAVA_TOOL_OPTIONS), or name an Ivy settings file with your mirror in {IVY_SETTINGS_VARIABLE}; "
            f"what Ivy said is in {log}"
        )
    log.unlink(missing_ok=True)


def _complete(jars: Path, version: str) -> bool:
    wanted = (
        f"kafka_2.13-{version}",
        f"kafka-tools-{version}",
        f"kafka-clients-{version}",
        "log4j-slf4j-impl-2.25.4",
    )
    return all((jars / f"{name}.jar").is_file() for name in wanted)


def _keep(jars: Path, kept: Path) -> None:
    try:
        jars.rename(kept)
    except OSError:
        # Another process was first; its jars are as good.
        if not kept.is_dir():
            raise
