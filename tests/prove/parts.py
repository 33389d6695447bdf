"""Parts of a long run. The result of a part is stored with its commit, and holds where the inputs are the same.

So an interrupted run goes on where it stopped, parts of one commit add up, and a new sentence in a document runs no
part again. With changes that are not committed, every part runs, and nothing is stored.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# Beside the environment, which is made anew when its packages change. `make clean` removes both.
KEPT = Path(sys.prefix).resolve().parent / ".prove"
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


def imported_by(files: Iterable[str], root: Path = ROOT) -> frozenset[str]:
    """These files and the files of the project that they import, directly or not, also inside functions.

    A module does not depend on what the packages around it import for other modules. A name that is imported from a
    package does.
    """
    found: set[str] = set()
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        if file not in found and (root / file).is_file():
            found.add(file)
            waiting += _imports(ast.parse((root / file).read_text("utf-8")), root)
    return frozenset(found)


def _imports(source: ast.Module, root: Path) -> Iterator[str]:
    for node in ast.walk(source):
        if isinstance(node, ast.Import):
            yield from (found for one in node.names if (found := _file(one.name, root)) is not None)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for one in node.names:
                found = _file(f"{node.module}.{one.name}", root) or _file(node.module, root)
                if found is not None:
                    yield found


def _file(module: str, root: Path) -> str | None:
    """The file of a module or package of the project."""
    path = module.replace(".", "/")
    return next((one for one in (f"{path}.py", f"{path}/__init__.py") if (root / one).is_file()), None)


class Parts:
    """The stored results of one program, by part."""

    def __init__(self, program: str, at: str, directory: Path = KEPT, root: Path = ROOT) -> None:
        self._file, self._at, self._root = directory / f"{program}.json", at, root

    def result(self, part: str, inputs: Iterable[str]) -> Any:
        """The stored result of this part, or None. inputs: files and folders. If one differs from what it was when
        the part ran, the result does not hold any more.
        """
        kept = self._stored().get(part)
        return kept["result"] if kept is not None and self._same(kept["commit"], inputs) else None

    def keep(self, part: str, result: Any) -> None:
        """Stores the result of a part."""
        if self._at.endswith(_CHANGED):
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._file.with_suffix(".new")
        unfinished.write_text(json.dumps({**self._stored(), part: {"commit": self._at, "result": result}}), "utf-8")
        unfinished.replace(self._file)

    def _same(self, before: str, inputs: Iterable[str]) -> bool:
        if self._at.endswith(_CHANGED):
            return False
        if before == self._at:
            return True
        difference = ("git", "diff", "--quiet", before, self._at, "--", *sorted(inputs))
        # Also 128: the commit is not there any more.
        return subprocess.run(difference, cwd=self._root, capture_output=True, check=False).returncode == 0

    def _stored(self) -> dict[str, Any]:
        return dict(json.loads(self._file.read_text("utf-8"))) if self._file.exists() else {}
