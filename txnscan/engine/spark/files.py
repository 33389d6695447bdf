"""Files that Spark's Hadoop reads, such as of HDFS and DBFS, through a session's JVM, and files of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from txnscan.engine.spark.nodes import in_one_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class HadoopFiles:
    """Files below a path. Each method may raise the errors of Java and of py4j."""

    def __init__(self, jvm: Any, configuration: Any, path: str, bytes_max: int) -> None:
        self._path = jvm.org.apache.hadoop.fs.Path
        self._root = self._path(path)
        self._system = self._root.getFileSystem(configuration)
        self._bytes_max = bytes_max

    def names(self, directory: str) -> Iterator[str]:
        """The names of the files in a directory, read as they are taken."""
        entries = self._system.listStatusIterator(self._path(self._root, directory))
        while entries.hasNext():
            yield entries.next().getPath().getName()

    def read(self, name: str) -> bytes:
        """The first bytes of a file: the limit, and one byte more."""
        opened = self._system.open(self._path(self._root, name))
        try:
            return bytes(opened.readNBytes(self._bytes_max + 1))
        finally:
            opened.close()

    def has(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return bool(self._system.exists(self._path(self._root, name)))


def hadoop_files(spark: SparkSession, bytes_max: int) -> Callable[[str], HadoopFiles] | None:
    """Opens files by their path. None for a session of Spark Connect, which has no JVM here."""
    context = getattr(spark, "_sc", None)
    jvm = getattr(context, "_jvm", None)
    if context is None or jvm is None:
        return None
    configuration = context._jsc.hadoopConfiguration()
    return lambda path: HadoopFiles(jvm, configuration, path, bytes_max)


def local_file(spark: SparkSession, path: str) -> str | None:
    """The absolute path of a file on this machine's disk that a session without executors opens under this path.

    None if the session has executors in other processes, or if its Hadoop finds the path elsewhere, as
    `fs.defaultFS` may say.
    """
    try:
        context: Any = spark.sparkContext
        if not in_one_jvm(context.master):
            return None
        at = context._jvm.org.apache.hadoop.fs.Path(path)
        system = at.getFileSystem(context._jsc.hadoopConfiguration())
        found = system.makeQualified(at).toUri()
        return str(found.getPath()) if found.getScheme() == "file" else None
    except Exception:
        # Spark Connect has no context, and clusters that users share refuse it. They fail in different ways.
        return None
