"""Parts of a long run. The result of a part is stored with its commit, and the part does not run again at that commit.

So an interrupted run goes on where it stopped, and parts of one commit add up. With changes that are not committed,
every part runs, and nothing is stored.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# Beside the environment: `make clean` removes both.
KEPT = Path(sys.prefix) / "prove"
_CHANGED = "-changed"


def git(*arguments: str, root: Path = ROOT) -> str:
    """The output of a git command in the project."""
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def commit(root: Path = ROOT) -> str:
    """The commit of the project, with "-changed" if files differ from it."""
    return git("rev-parse", "HEAD", root=root) + (_CHANGED if git("status", "--porcelain", root=root) else "")


def changed_since(ref: str, root: Path = ROOT) -> frozenset[str]:
    """The files that differ from this commit or branch, committed or not, without those that git does not know."""
    return frozenset(git("diff", "--name-only", ref, root=root).splitlines())


class Parts:
    """The stored results of one program at a commit, by part."""

    def __init__(self, program: str, at: str, directory: Path = KEPT) -> None:
        self._file, self._at = directory / f"{program}.json", at

    def result(self, part: str) -> Any:
        """The stored result of this part at this commit, or None."""
        return self._stored().get(part)

    def keep(self, part: str, result: Any) -> None:
        """Stores the result of a part. Results of another commit are dropped."""
        if self._at.endswith(_CHANGED):
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        kept = {"commit": self._at, "parts": {**self._stored(), part: result}}
        unfinished = self._file.with_suffix(".new")
        unfinished.write_text(json.dumps(kept), "utf-8")
        unfinished.replace(self._file)

    def _stored(self) -> dict[str, Any]:
        if self._at.endswith(_CHANGED) or not self._file.exists():
            return {}
        kept = json.loads(self._file.read_text("utf-8"))
        return dict(kept["parts"]) if kept["commit"] == self._at else {}
