"""The least that a sweep with tables could do: opens the session that `txnscan sweep` opens, and appends one row.

    python tests/bench/bare.py DIRECTORY

appends it to the Delta table in DIRECTORY, which is made where it does not exist.
"""

import sys

from txnscan.engine.spark.session import spark_session

spark_session().range(1).write.format("delta").mode("append").save(sys.argv[1])
