"""Find a Java for Spark and Kafka, and download jars from the Maven repositories that Ivy knows.

Jars are downloaded once, with the Ivy that PySpark ships, into the user's cache directory. A directory of jars is
complete or absent: jars are downloaded into a temporary directory beside it, which is then renamed. Two processes at
once download twice and keep one copy. An interrupted download leaves no directory that is used later.

Each jar has a pinned SHA-256 (`engine/spark/pins.py`). It is checked after the download, and once in each process that
uses the jar.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from txnscan.engine.spark.pins import Mismatch, differences, pins
from txnscan.errors import TxnscanError, system_reason

JAVA_VERSION_MIN = 17
# The user's own Ivy settings file, for machines that reach only a mirror.
IVY_SETTINGS_VARIABLE = "TXNSCAN_IVY_SETTINGS"
_VERSION = re.compile(r'version "(?:1\.)?(?P<major>\d+)')
_SPARK_CORE = re.compile(r"spark-core_[\d.]+-(?P<version>.+)\.jar")
_ANSWER_S = 30
_FETCH_S_MAX = 900


class JavaError(TxnscanError):
    """There is no usable Java, or jars cannot be downloaded. The message gives users the reason and the remedy."""


def find_java() -> Path:
    """The `java` of JAVA_HOME, or else of PATH. Raises JavaError if it is missing or too old."""
    found = named_java()
    if found is None:
        home = os.environ.get("JAVA_HOME")
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java on PATH"
        raise JavaError(f"Java {JAVA_VERSION_MIN} or newer is needed, but {where}; install one or set JAVA_HOME")
    version = major_version(found)
    if version is None:
        raise JavaError(f"{found} does not say its version; set JAVA_HOME to a Java {JAVA_VERSION_MIN} or newer")
    if version < JAVA_VERSION_MIN:
        raise JavaError(
            f"Java {JAVA_VERSION_MIN} or newer is needed, but {found} is Java {version}; "
            "install a newer one or set JAVA_HOME"
        )
    return Path(found)


def named_java() -> str | None:
    """The `java` that the environment names, of any version."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")


def major_version(executable: str) -> int | None:
    """Java's version, such as 17, if it reports one."""
    try:
        ran = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=_ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(ran.stderr + ran.stdout)
    return int(found["major"]) if found else None


@dataclass(frozen=True, slots=True)
class Jar:
    """A module by its Maven coordinates. alone: without its dependencies."""

    organisation: str
    name: str
    version: str
    alone: bool = False

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}.jar"


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that belong together. name: of their directory in the cache. title: their name for users."""

    name: str
    title: str
    jars: Sequence[Jar]


_DELTA_VERSION = "4.4.0"
# This Delta has jars for these versions of Spark, oldest first.
SPARK_VERSIONS = ("4.0", "4.1", "4.2")


def delta_set(spark: str) -> JarSet:
    """Delta's jars for one of SPARK_VERSIONS. That Spark has all other dependencies of them."""
    modules = (
        f"delta-spark_{spark}_2.13",
        *("delta-storage", "delta-kernel-api", "delta-kernel-defaults", "delta-kernel-unitycatalog"),
    )
    return JarSet(
        f"delta-{_DELTA_VERSION}-spark-{spark}",
        f"Delta Lake {_DELTA_VERSION} for Spark {spark} (13 MB, once)",
        tuple(Jar("io.delta", module, _DELTA_VERSION, alone=True) for module in modules),
    )


def delta_jars() -> JarSet:
    """Delta's jars for the Spark of this machine. Raises JavaError if Delta has none for its version."""
    version = spark_version()
    if version is None:
        # The download reports that Spark is missing.
        return delta_set(SPARK_VERSIONS[-1])
    minor = ".".join(version.split(".")[:2])
    if minor not in SPARK_VERSIONS:
        raise JavaError(
            f"Delta Lake {_DELTA_VERSION} has no jars for Spark {version}: install PySpark {SPARK_VERSIONS[0]} to "
            f"{SPARK_VERSIONS[-1]} (txnscan[spark])"
        )
    return delta_set(minor)


def spark_version() -> str | None:
    """The version of the Spark of SPARK_HOME, else inside PySpark, such as "4.2.0". None if there is neither."""
    for jar in _home_jars() + pyspark_jars():
        if found := _SPARK_CORE.fullmatch(jar.name):
            return found["version"]
    return None


def jar_directory(
    wanted: JarSet, *, ivy_cache: Path | None = None, say: Callable[[str], None] = lambda _: None
) -> Path:
    """A directory with the jars of the set. They are downloaded if they are not in the cache yet.

    ivy_cache: an Ivy cache to read and fill, instead of a temporary cache. say: called with a sentence before a
    download. Raises JavaError, also if a jar differs from its pin.
    """
    cache = cache_directory()
    kept = cache / wanted.name
    if kept.is_dir():
        _check_kept(kept, wanted.title)
        return kept
    executable = find_java()
    ivy = ivy_jar()
    say(f"Downloading {wanted.title}")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{wanted.name}-", dir=cache))
    except OSError as error:
        why = f"{cache} cannot be written ({system_reason(error)})"
        raise JavaError(f"{why}; set XDG_CACHE_HOME to a directory that can") from None
    try:
        retrieve(executable, ivy, wanted, work, ivy_cache or work / "ivy", cache / f"{wanted.name}-download.log")
        _check_downloaded(work / "jars", wanted)
        _keep(work / "jars", kept)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    _check_kept(kept, wanted.title)
    return kept


def is_fetched(wanted: JarSet) -> bool:
    """Whether the jars are in the cache, so that no download is needed. Raises JavaError if a jar there differs from
    its pin.
    """
    try:
        kept = cache_directory() / wanted.name
        if not kept.is_dir():
            return False
    except (OSError, JavaError):
        return False
    _check_kept(kept, wanted.title)
    return True


def cache_directory() -> Path:
    """The directory of jars and archives. Raises JavaError for a user without a home directory."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "txnscan"
    except RuntimeError:
        raise JavaError("this user has no home directory for jars; set XDG_CACHE_HOME to a directory") from None


def pyspark_jars() -> list[Path]:
    """The jars inside PySpark, sorted by name. Empty if PySpark is not installed."""
    # Found without importing PySpark, because the import takes a second.
    spec = importlib.util.find_spec("pyspark")
    locations = (spec.submodule_search_locations or ()) if spec else ()
    return [jar for location in locations for jar in sorted(Path(location, "jars").glob("*.jar"))]


def _home_jars() -> list[Path]:
    """The jars of SPARK_HOME. PySpark may come from its zip file there, which has no jars."""
    home = os.environ.get("SPARK_HOME")
    return sorted(Path(home, "jars").glob("*.jar")) if home else []


def ivy_jar() -> Path:
    """The Ivy inside PySpark. Raises JavaError."""
    for jar in pyspark_jars() + _home_jars():
        if jar.name.startswith("ivy-"):
            return jar
    raise JavaError("jars are downloaded with the Ivy inside PySpark, which is not installed; install txnscan[spark]")


def _ivy_module(wanted: JarSet) -> str:
    lines = "\n".join(
        f'    <dependency org="{jar.organisation}" name="{jar.name}" rev="{jar.version}" conf="*->default"'
        f' transitive="{str(not jar.alone).lower()}"/>'
        for jar in wanted.jars
    )
    return (
        f'<ivy-module version="2.0">\n  <info organisation="txnscan" module="{wanted.name}"/>\n'
        f"  <dependencies>\n{lines}\n  </dependencies>\n</ivy-module>\n"
    )


def retrieve(executable: Path, ivy: Path, wanted: JarSet, work: Path, ivy_cache: Path, log: Path) -> None:
    """Downloads all jars into `work`/jars, without checks. The output of Ivy goes to `log`, which is removed after
    success. Raises JavaError.
    """
    module = work / "ivy.xml"
    module.write_text(_ivy_module(wanted), "utf-8")
    # Ivy's own directory in the home directory is not used: it has no locks, so two processes could damage it.
    command = [str(executable), f"-Divy.default.ivy.user.dir={work / 'user'}", "-jar", str(ivy)]
    if settings := os.environ.get(IVY_SETTINGS_VARIABLE):
        command += ["-settings", settings]
    command += ["-cache", str(ivy_cache), "-ivy", str(module), "-confs", "default"]
    command += ["-retrieve", f"{work / 'jars'}/[artifact]-[revision](-[classifier]).[ext]"]
    partial = work / "ivy.log"
    with partial.open("wb") as output:
        try:
            ran = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, timeout=_FETCH_S_MAX, check=False)
            done = ran.returncode == 0 and all((work / "jars" / jar.file).is_file() for jar in wanted.jars)
        except subprocess.TimeoutExpired:
            done = False
    if not done:
        partial.replace(log)
        raise JavaError(
            f"{wanted.title.split(' (')[0]} could not be downloaded: check the network and the proxy settings of Java "
            f"(JAVA_TOOL_OPTIONS), or name an Ivy settings file with your mirror in {IVY_SETTINGS_VARIABLE}; "
            f"what Ivy said is in {log}"
        )
    log.unlink(missing_ok=True)


_MISMATCHES = {
    Mismatch.CHANGED: "has another SHA-256 than the published jar",
    Mismatch.MISSING: "is missing",
    Mismatch.UNKNOWN: "does not belong to {title}",
    Mismatch.UNREADABLE: "cannot be read",
}


def _mismatch(directory: Path, name: str, title: str) -> str | None:
    """The first file of the directory that differs from its pin, and the reason, if there is such a file."""
    found = differences(directory, pins().get(name, {}))
    if not found:
        return None
    others = f" ({len(found)} jars differ)" if len(found) > 1 else ""
    return f"{found[0].file} {_MISMATCHES[found[0].mismatch].format(title=title.split(' (')[0])}{others}"


# Exceptions are not cached, so a repaired directory is checked again.
@functools.cache
def _check_kept(kept: Path, title: str) -> None:
    if (why := _mismatch(kept, kept.name, title)) is not None:
        raise JavaError(f"{kept}: {why}; delete this directory and run the command again, which downloads the jars")


def _check_downloaded(jars: Path, wanted: JarSet) -> None:
    if (why := _mismatch(jars, wanted.name, wanted.title)) is not None:
        raise JavaError(
            f"the download of {wanted.title.split(' (')[0]} was discarded: {why}; check the mirror or the proxy that "
            f"served it, or name another mirror in {IVY_SETTINGS_VARIABLE}"
        )


def _keep(jars: Path, kept: Path) -> None:
    try:
        jars.rename(kept)
    except OSError:
        # Another process was first. Its jars are just as good.
        if not kept.is_dir():
            raise


def main() -> None:
    """Prints Delta's jars in the format of spark-submit's --jars."""
    import sys

    try:
        directory = jar_directory(delta_jars(), say=lambda sentence: print(sentence, file=sys.stderr))  # noqa: T201
    except JavaError as error:
        sys.exit(f"txnscan: {error}")
    print(",".join(map(str, sorted(directory.glob("*.jar")))))  # noqa: T201


if __name__ == "__main__":
    main()
