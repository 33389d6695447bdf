"""The process from which Spark forks its Python workers on this machine (`spark.python.daemon.module`). It has already
imported the modules that each worker needs. In a worker that import takes longer than reading a small cluster.

Spark's own daemon imports nothing, because no thread may run in it that does not handle forks. These imports start two
threads, of OpenBLAS and of Arrow's allocator, and both handle forks. `engine/spark/session.py` sets this module if this
package is installed beside Spark.
"""

import pandas  # noqa: F401  which pyarrow imports when it first makes a table
from pyspark.daemon import manager

import txnscan.engine.spark.executors
import txnscan.reads.tasks  # noqa: F401

if __name__ == "__main__":
    manager()
