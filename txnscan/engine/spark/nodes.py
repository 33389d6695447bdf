"""The requirements on the machines of executors: Python with pyspark, pandas and pyarrow, of the driver's minor
version. All other imports of a task are sent to them: this package and kafka-python, which is pure Python, without the
folders in `NOT_SENT`.

They are sent with the session, in the same way on every cluster manager: `SparkContext.addPyFile`, or `addArtifacts` on
Spark Connect. On an executor they take precedence over packages of the same name. If executors are processes on this
machine with this very Python (`local[*]`), no files are sent.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import re
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from txnscan.engine.spark.scratch import own_directory
from txnscan.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# local, local[4], local[*, 2]. local-cluster has its own executors.
_IN_ONE_JVM = re.compile(r"local(\[|$)")
# Folders that no task imports.
NOT_SENT = {
    "txnscan": {"cli", "demo", "report", "resolve", "watch"},
    "kafka": {"benchmarks", "cli"},
}
# The earliest time in a zip file. With the same time for all files, equal files make equal archives.
_TIME = (1980, 1, 1, 0, 0, 0)

_PYTHON_MIN = (3, 11)
_OTHER_PYTHON = re.compile(r"Python in worker has different version: ([\d.]+) than that in driver")
# The path of the Python library, in the trace of a Python that is too old to compare versions.
_LIBRARY = re.compile(r'File "[^"]*/python(3\.\d+)/')
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]*)"')
_NO_MODULE = re.compile(
    r"(?:No module named '?|\[PACKAGE_NOT_INSTALLED\] )(kafka|txnscan|pyspark|py4j|pandas|pyarrow|numpy)\b", re.I
)
_OLD_PACKAGE = re.compile(r"\[UNSUPPORTED_PACKAGE_VERSION\] (\w+) >= ([\d.]+) must be installed")
_NAME_ONE = "with pyspark, pandas and pyarrow, in PYSPARK_PYTHON"


def in_one_jvm(master: str) -> bool:
    """Whether, with this master, the driver's JVM is also the executor."""
    return _IN_ONE_JVM.match(master) is not None


def send_packages(spark: SparkSession) -> None:
    """Sends the imports of tasks to the session's executors, once. Tasks that are defined later can use them."""
    from pyspark.errors import PySparkException

    try:
        context = spark.sparkContext
    except PySparkException:  # Spark Connect: the session has no context, and the server's executors are anywhere
        _send_by_connect(spark)
        return
    if in_one_jvm(context.master or ""):
        return
    sent = archive()
    if sent is None or any(Path(file).name == sent.name for file in context.listFiles):
        return
    context.addPyFile(str(sent))
    # PySpark also adds the archive to the driver's path, where all packages are installed already.
    sys.path[:] = [entry for entry in sys.path if Path(entry).name != sent.name]


def _send_by_connect(spark: SparkSession) -> None:
    sent = archive()
    if sent is None:
        return
    # A server that accepts no files may have the packages installed. If not, the first task reports a missing package.
    with suppress(Exception):
        spark.addArtifacts(str(sent), pyfile=True)


@cache
def archive() -> Path | None:
    """A zip file of the imports of tasks, named after its contents. It exists until the process ends. None if this
    package itself was imported from a zip file: then the executors already have that file.
    """
    files = list(_files())
    if not files:
        return None
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as target:
        for name, file in files:
            info = zipfile.ZipInfo(name, _TIME)
            target.writestr(info, file.read_bytes(), zipfile.ZIP_DEFLATED, compresslevel=1)
    # A session may outlive this version of the package, and an executor refuses a different file under the same name.
    digest = hashlib.sha256(packed.getvalue()).hexdigest()[:12]
    kept = own_directory() / f"txnscan-{__version__}-{digest}.zip"
    # Sweeps in several threads may run this at once.
    written = kept.with_suffix(f".{threading.get_ident()}")
    written.write_bytes(packed.getvalue())
    return written.replace(kept)


def _files() -> Iterator[tuple[str, Path]]:
    """The files that tasks import, by name in the archive."""
    for package, left_out in NOT_SENT.items():
        spec = importlib.util.find_spec(package)
        for location in (spec.submodule_search_locations or ()) if spec else ():
            root = Path(location)
            if not root.is_dir():
                return
            for file in sorted(root.rglob("*")):
                parts = file.relative_to(root).parts
                if file.is_file() and parts[0] not in left_out and "__pycache__" not in parts:
                    yield "/".join((package, *parts)), file


def remedy(said: str) -> str | None:
    """The problem with the executors' Python, and the remedy, in one sentence. None if the error has another cause.
    said: the text of Spark's error.
    """
    there = _python_there(said)
    if there is not None:
        here = ".".join(map(str, sys.version_info[:2]))
        too_old = _version(there) < _PYTHON_MIN
        need = "txnscan needs 3.11 or newer on both" if too_old else "PySpark needs the same minor version on both"
        return f"Python is {there} on the executors and {here} here, and {need}: name a {here} of theirs, {_NAME_ONE}"
    if missing := _NO_PROGRAM.search(said):
        return f"the executors cannot run {missing[1]}: name a Python of theirs, {_NAME_ONE}"
    if old := _OLD_PACKAGE.search(said):
        return f"{old[1]} is too old on the executors: install {old[2]} or newer in their Python"
    absent = _NO_MODULE.search(said)
    if absent is None:
        return None
    name = absent[1].lower()
    if name in NOT_SENT:
        return (
            f"Python on the executors has no {name}, and this cluster takes no files of a session: install txnscan in "
            "their Python, or read from the driver with --engine threads"
        )
    return f"Python on the executors has no {name}: install it there, or name a Python of theirs, {_NAME_ONE}"


def _python_there(said: str) -> str | None:
    """The version of the executors' Python, if that version is the problem."""
    if other := _OTHER_PYTHON.search(said):
        return other[1]
    return min((found for found in _LIBRARY.findall(said) if _version(found) < _PYTHON_MIN), key=_version, default=None)


def _version(written: str) -> tuple[int, ...]:
    return tuple(map(int, written.split(".")))
