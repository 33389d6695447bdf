#!/usr/bin/env bash
# Runs jobs/<job>.py on any Spark master, with the settings of conf/:
#   ./spark-submit.sh sweep --bootstrap-server localhost:9092 --tables /data/txnscan
# MASTER names the master (default local[*]); SPARK_SUBMIT_OPTS_TXNSCAN holds further options of spark-submit;
# PYSPARK_PYTHON names the Python of executors on other machines (default: their own python3).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  echo "usage: ./spark-submit.sh <job> [options]; jobs: $(cd "$here/jobs" && ls ./*.py | sed 's#^\./##; s#\.py$##' | paste -sd' ' -)" >&2
  exit 2
}
[ $# -ge 1 ] || usage
job=$1
shift
[ -f "$here/jobs/$job.py" ] || usage

# The driver's Python: this environment's, or where there is none, the one that the user has named.
python=${PYSPARK_DRIVER_PYTHON:-$here/.venv/bin/python}
[ -n "${PYSPARK_DRIVER_PYTHON:-}" ] || [ -x "$python" ] || python=${PYSPARK_PYTHON:-$python}
if [ ! -x "$python" ] && ! python=$(command -v "$python"); then
  echo "spark-submit.sh: there is no Python environment; run 'make setup' first, or set PYSPARK_DRIVER_PYTHON" >&2
  exit 1
fi
export PYTHONPATH=$here${PYTHONPATH:+:$PYTHONPATH}
# Another Spark's Java is spoken to by its own Python.
for source in ${SPARK_HOME:+"$SPARK_HOME"/python/lib/*.zip}; do export PYTHONPATH=$PYTHONPATH:$source; done

case " ${SPARK_SUBMIT_OPTS_TXNSCAN:-} " in
  *deploy-mode[\ =]cluster* | *spark.submit.deployMode=cluster*)
    # The driver runs on the cluster, with the txnscan that is installed there.
    submit=${SPARK_HOME:+$SPARK_HOME/bin/spark-submit}
    # shellcheck disable=SC2086 # options are words
    exec "${submit:-$(dirname "$python")/spark-submit}" --master "${MASTER:-local[*]}" --name "txnscan-$job" \
      --properties-file "$here/conf/spark-defaults.conf" --jars "$("$python" -m txnscan.engine.spark.java)" \
      $SPARK_SUBMIT_OPTS_TXNSCAN "$here/jobs/$job.py" "$@"
    ;;
esac

# Python starts Java, and not the other way round: spark-submit would mix a program's stderr into its stdout. What
# executors need is sent to them by the session (txnscan/engine/spark/nodes.py). Without a master, txnscan itself would
# need no Spark.
[ -n "${SPARK_REMOTE:-}" ] || export MASTER="${MASTER:-local[*]}"
exec "$python" "$here/jobs/$job.py" "$@"
