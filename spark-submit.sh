#!/usr/bin/env bash
# Runs jobs/<job>.py on any Spark master, with the settings of conf/:
#   ./spark-submit.sh sweep --bootstrap-server localhost:9092 --tables /data/txnscan
# MASTER names the master (default local[*]); SPARK_SUBMIT_OPTS_TXNSCAN holds further options of spark-submit.
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

python=${PYSPARK_PYTHON:-$here/.venv/bin/python}
if [ ! -x "$python" ] && ! python=$(command -v "$python"); then
  echo "spark-submit.sh: there is no Python environment; run 'make setup' first, or set PYSPARK_PYTHON" >&2
  exit 1
fi
export PYSPARK_PYTHON=$python PYTHONPATH=$here${PYTHONPATH:+:$PYTHONPATH}

# The environment's own Spark, or SPARK_HOME's.
submit=${SPARK_HOME:+$SPARK_HOME/bin/spark-submit}
submit=${submit:-$(dirname "$python")/spark-submit}
master=${MASTER:-local[*]}
case $master in local*) export SPARK_LOCAL_IP=${SPARK_LOCAL_IP:-127.0.0.1} ;; esac

# Delta's jars, from the cache or fetched once; Python on the executors gets this package.
jars=$("$python" -m txnscan.java)
package=$(mktemp -d)
trap 'rm -rf "$package"' EXIT
"$python" - "$here" "$package/txnscan.zip" <<'PYTHON'
import sys, zipfile
from pathlib import Path
root, target = Path(sys.argv[1]), sys.argv[2]
with zipfile.ZipFile(target, "w") as archive:
    for path in sorted(root.glob("txnscan/**/*.py")):
        archive.write(path, path.relative_to(root))
PYTHON

# shellcheck disable=SC2086 # options are words
"$submit" --master "$master" --name "txnscan-$job" \
  --properties-file "$here/conf/spark-defaults.conf" \
  --driver-java-options "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:MetaspaceSize=300m -Dlog4j2.configurationFile=$here/conf/log4j2.properties" \
  --jars "$jars" --py-files "$package/txnscan.zip" \
  ${SPARK_SUBMIT_OPTS_TXNSCAN:-} "$here/jobs/$job.py" "$@"
