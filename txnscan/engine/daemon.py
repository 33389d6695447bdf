"""Where Python's workers on this machine come from: Spark forks them from this process, `spark.python.daemon.module`,
which has imported already what each of them would import. That takes a worker longer than reading a small cluster.

Spark's own imports nothing, since no thread may run that does not know of forks. These start two: OpenBLAS's and the
allocator's of Arrow, which have handlers for it. Set where this package is installed beside Spark (`session.py`).
"""

import pandas  # noqa: F401  which pyarrow imports when it first makes a table
from pyspark.daemon import manager

import txnscan.engine.spark
import txnscan.evidence.tasks  # noqa: F401

if __name__ == "__main__":
    manager()
