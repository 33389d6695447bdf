"""The process from which Spark forks its Python workers on this machine (`spark.python.daemon.module`). It has imported
already what each of them would import, which takes a worker longer than reading a small cluster.

Spark's own daemon imports nothing, since no thread may run in it that does not handle forks. These imports start two
threads, of OpenBLAS and of Arrow's allocator, which do. The setting is made where this package is installed beside
Spark (`engine/spark/session.py`).
"""

import pandas  # noqa: F401  which pyarrow imports when it first makes a table
from pyspark.daemon import manager

import txnscan.engine.spark.executors
import txnscan.reads.tasks  # noqa: F401

if __name__ == "__main__":
    manager()
