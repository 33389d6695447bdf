"""`python -m tests.picture` draws docs/pipeline.svg: the steps of a sweep, their questions and their folders.

A test compares the steps with the calls in `scan`, and the folders with the package.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

from txnscan.sweeps import pipeline

FILE = Path(__file__).parents[1] / "docs" / "pipeline.svg"
# Width and height of a box, and the space between two.
_WIDTH, _HEIGHT, _GAP = 300, 44, 16
_MARGIN = 20


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a sweep, or a step after it. call: the function or method, if `scan` or `prove` calls it."""

    call: str | None
    title: str
    asks: str
    folders: tuple[str, ...]


STEPS = (
    Step("plan", "plan", "every broker: how new is your metadata?", ("coordinators",)),
    Step("read_all", "read every partition", "the leaders: what is open?", ("reads", "engine")),
    Step("ask_claims", "claims", "every broker: which transactions are yours?", ("coordinators",)),
    Step("proven_once", "first read", "the leaders of what nobody claims", ("reads",)),
    Step("ask_coordinators", "coordinator listing", "every coordinator: which ids do you know?", ("coordinators",)),
    Step("second", "second read", "the same leaders again", ("reads",)),
    Step("metadata_after", "confirmation", "every broker: how new is your metadata?", ("coordinators",)),
    Step("judge_all", "judge", "nobody: rules over evidence", ("verdict",)),
    Step("enrich", "outcome and impact", "the transaction log, and who waits", ("txnlog", "waiting")),
    Step("result", "result", "nobody", ("sweeps",)),
    Step(None, "store", "", ("tables",)),
    Step(None, "report", "", ("report",)),
    Step(None, "resolve, if you ask for it", "everything again, then one marker", ("resolve",)),
)
# The folders above and below all steps.
AROUND = (("cli", "explain", "watch", "mcp", "sql", "demo", "offline"), ("kafka", "config"))


def called() -> list[str]:
    """The steps that `scan` calls, itself or in `prove`, in order."""
    return list(_calls(pipeline.scan))


def _calls(function: Callable[..., object]) -> Iterator[str]:
    known = {step.call for step in STEPS}
    tree = ast.parse(inspect.getsource(function))
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = [(one.lineno, one.id) for one in calls if isinstance(one, ast.Name)]
    names += [(one.lineno, one.attr) for one in calls if isinstance(one, ast.Attribute)]
    for _, name in sorted(names):
        if name == pipeline.prove.__name__:
            yield from _calls(pipeline.prove)
        elif name in known:
            yield name


def drawn() -> str:
    """The picture: an arrow from each step to the next."""
    width = 2 * _MARGIN + 2 * _WIDTH + _GAP
    boxes = [_band(0, f"{', '.join(f'{folder}/' for folder in AROUND[0])} start or repeat it")]
    for number, step in enumerate(STEPS, start=1):
        boxes.append(_box(number, step, after=number > 1))
    boxes.append(
        _band(len(STEPS) + 1, f"{AROUND[1][0]}/ : connections and one module for each API; {AROUND[1][1]}/ : settings")
    )
    height = 2 * _MARGIN + (len(STEPS) + 2) * (_HEIGHT + _GAP) - _GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'role="img" font-family="sans-serif" font-size="14">'
    )
    title = "<title>The steps of a sweep, whom each asks, and its folder</title>"
    background = f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head, title, background, *boxes, "</svg>", ""])


def _top(number: int) -> int:
    return _MARGIN + number * (_HEIGHT + _GAP)


def _box(number: int, step: Step, after: bool) -> str:
    top, middle = _top(number), _MARGIN + _WIDTH // 2
    folders = ", ".join(f"{folder}/" for folder in step.folders)
    parts = [
        f'<rect x="{_MARGIN}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="#eef3fb" stroke="#4a6fa5"/>',
        f'<text x="{middle}" y="{top + 18}" text-anchor="middle" font-weight="bold">{escape(step.title)}</text>',
        f'<text x="{middle}" y="{top + 36}" text-anchor="middle" fill="#555555">{escape(folders)}</text>',
        f'<text x="{_MARGIN + _WIDTH + _GAP}" y="{top + 27}">{escape(step.asks)}</text>',
    ]
    if after:
        parts.append(f'<path d="M {middle} {top - _GAP} V {top}" stroke="#4a6fa5" stroke-width="2"/>')
    return "\n".join(parts)


def _band(number: int, text: str) -> str:
    top, width = _top(number), 2 * _WIDTH + _GAP
    return (
        f'<rect x="{_MARGIN}" y="{top}" width="{width}" height="{_HEIGHT}" rx="6" fill="#f4f4f4" stroke="#999999"/>\n'
        f'<text x="{_MARGIN + width // 2}" y="{top + 27}" text-anchor="middle">{escape(text)}</text>'
    )


if __name__ == "__main__":
    FILE.write_text(drawn(), "utf-8")
