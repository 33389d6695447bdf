"""Each command of kafka-transactions.sh as a whole process, beside Kafka's tool, on three real brokers.

In pairs: the tool and txnscan in turn, on the same brokers with the demo's planted transactions. `abort` and
`forceTerminateTransaction` end what they are given, and are left out. Last, `list` of very many ids on the cluster on
the wire, with the memory of its process: rows are written as they come.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.bench.harness import Finding, Options, Ratio, Side, Work, say, timed_in_turn
from tests.sim.wire import ClusterShape, WireCluster
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.kafka_tool import kafka_transactions
from txnscan.demo.story import plant_all

# The largest share of the tool's time that a command may take.
TARGET = 0.6
IDS = 1_000_000
# The most memory of a process that lists these ids.
LIST_MB_MAX = 200
_MEASURED = """
import resource, sys
from txnscan.cli import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    assert not ended.code, ended.code
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""
# The commands and their options, which both tools understand.
ASKED: dict[str, tuple[str, ...]] = {
    "list": (),
    "describe": ("--transactional-id", "payments-service-0"),
    "describe-producers": ("--topic", "clicks", "--partition", "0"),
    "find-hanging": ("--topic", "clicks", "--partition", "0"),
}


def run(options: Options) -> Finding:
    """Each command and the tool's, in turn; then the long list."""
    with (
        tempfile.TemporaryDirectory(prefix="txnscan-bench-commands-") as scratch,
        KafkaCluster(Path(scratch) / "brokers", say=say) as cluster,
        cluster.wire() as wire,
    ):
        scene = plant_all(cluster, wire, say)
        named = {**ASKED, "describe": ("--transactional-id", str(scene.torn.hanging.transactional_id))}
        sides = [side for name, words in named.items() for side in _pair(cluster, name, words)]
        timed, work = timed_in_turn(sides, options.runs)
    setting = {"brokers": len(cluster.broker_ids), "Kafka": cluster.version, "planted": len(scene.planted)}
    ratios = tuple(Ratio(_ours(name), _tools(name), TARGET) for name in ASKED)
    return Finding("commands", "each command as a whole process", setting, timed, ratios, {**work, **_long_list()})


def _ours(name: str) -> str:
    return f"txnscan {name}"


def _tools(name: str) -> str:
    return f"Kafka's tool, {name}"


def _pair(cluster: KafkaCluster, name: str, words: tuple[str, ...]) -> tuple[Side, Side]:
    def by_tool() -> Work:
        answer = kafka_transactions(cluster, name, *words)
        if answer.exit_status:
            raise RuntimeError(f"Kafka's tool failed: {answer.errors}")
        return {}

    def by_txnscan() -> Work:
        _ran(
            str(Path(sys.executable).with_name("txnscan")),
            name,
            *words,
            "--bootstrap-server",
            cluster.bootstrap_servers,
        )
        return {}

    sides: tuple[Callable[[], Work], Callable[[], Work]] = (by_tool, by_txnscan)
    return Side(_tools(name), sides[0]), Side(_ours(name), sides[1])


def _long_list() -> Work:
    """How many ids a `list` printed, and its most memory, in megabytes."""
    say(f"  list of {IDS:,} ids")
    shape = ClusterShape.busy(10, 1_000, transactional_ids=IDS)
    with WireCluster(shape) as cluster:
        ran = _ran(sys.executable, "-c", _MEASURED, "list", "--bootstrap-server", cluster.bootstrap_servers)
    lines, kilobytes = ran.stdout.count("\n") - 1, int(ran.stderr.split()[-1])
    if kilobytes > LIST_MB_MAX * 1_000:
        say(f"  more than {LIST_MB_MAX} MB")
    return {"ids listed": lines, "MB of the process that listed them": round(kilobytes / 1_000)}


def _ran(*command: str) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {ran.stderr.strip()}")
    return ran
