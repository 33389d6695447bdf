"""`make pictures` draws docs/find-hanging.svg and docs/explain.svg, the output of two commands.

It starts real brokers, makes transactions hang, and keeps the JSON of both commands in tests/screens.json. A test draws
the pictures from it again, so that they show the output of today's code.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests.brokers.offsets import commit_offset
from tests.process import run
from txnscan.demo import plant
from txnscan.demo.brokers import KafkaCluster
from txnscan.report.explain import explained_lines
from txnscan.report.findings import Findings
from txnscan.report.paragraphs import print_line, print_text
from txnscan.report.sweep import print_sweep

DOCS = Path(__file__).parents[1] / "docs"
RECORDED = Path(__file__).parent / "screens.json"
PORT, GROUP = 9092, "billing"
COMMANDS = {
    "find-hanging": ("find-hanging",),
    "explain": ("explain", "--group", GROUP),
}
_WIDTH = 100
# Of rich's format, without the fonts that it would load from elsewhere.
_FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def drawn(name: str, recorded: Mapping[str, Any]) -> str:
    """The picture of a command's output."""
    console = Console(file=io.StringIO(), record=True, width=_WIDTH, force_terminal=True, highlight=False)
    words = " ".join(("txnscan", *COMMANDS[name], "--bootstrap-server", f"localhost:{PORT}"))
    console.print(Text(f"$ {words}", style="bold"))
    if name == "explain":
        for line in explained_lines(recorded):
            print_text(console, Text(line.strip()), indent=len(line) - len(line.lstrip()))
    else:
        print_sweep(console, recorded)
        print_line(console, Findings.of_object(recorded).sentence() or "")
    return console.export_svg(title=f"txnscan {name}", theme=MONOKAI, code_format=_FORMAT, unique_id=name)


def recorded_anew() -> dict[str, Any]:
    """The JSON of both commands on real brokers."""
    with tempfile.TemporaryDirectory() as folder, KafkaCluster(Path(folder) / "kafka") as cluster:
        torn = plant.committed_but_hanging(cluster)
        with cluster.wire() as wire:
            plant.orphan(wire)
            plant.live_with_old_timestamps(wire)
        commit_offset(cluster, GROUP, torn.hanging.topic, 0)
        found = {}
        for name, words in COMMANDS.items():
            ran = run(*words, "--bootstrap-server", cluster.bootstrap_servers, "--format", "json")
            # Ports are free ones here, and Kafka's own in the picture.
            text = ran.stdout.replace(cluster.bootstrap_servers, f"localhost:{PORT}")
            found[name] = json.loads(text)
        return found


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(recorded_anew(), indent=1, sort_keys=True) + "\n", "utf-8")
    for name, recorded in json.loads(RECORDED.read_text("utf-8")).items():
        (DOCS / f"{name}.svg").write_text(drawn(name, recorded), "utf-8")
