"""`make prove`: all parts of the proof, or those that are named. Unchanged inputs run nothing again (`parts.py`).

    python -m tests.prove [PART ...]

Prints the commit, and the results of each part. Exits with 1 if a part failed. A part that failed runs again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence

from tests.prove.histories import PARTS as HISTORIES
from tests.prove.parts import Parts, commit, imported_by

# The arguments of `python -m` for each part.
PARTS: Mapping[str, Sequence[str]] = {
    **{f"histories-{part}": ("tests.prove.histories", "--only", part) for part in HISTORIES},
    **{part: (f"tests.prove.{part}",) for part in ("conformance", "faults", "watching")},
}
# What real brokers did, which a part compares with.
_RECORDED = "tests/golden"


def inputs(part: str) -> frozenset[str]:
    """What a part depends on: its program, what that imports, and what was recorded of real brokers."""
    module, *_ = PARTS[part]
    path = module.replace(".", "/")
    return imported_by([f"{path}.py", f"{path}/__main__.py"]) | {_RECORDED}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the parts, and returns the exit status."""
    parser = argparse.ArgumentParser(prog="make prove", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="PART", help=f"of {', '.join(PARTS)}")
    chosen = parser.parse_args(arguments).parts or list(PARTS)
    at = commit()
    kept, failed = Parts("prove", at), []
    print(f"commit {at}", flush=True)  # noqa: T201
    for part in chosen:
        found = kept.result(part, inputs(part))
        if found is None:
            ran = subprocess.run([sys.executable, "-m", *PARTS[part]], stdout=subprocess.PIPE, text=True, check=False)
            found = ran.stdout
            if ran.returncode:
                failed.append(part)
            else:
                kept.keep(part, found)
        print(f"{part}:\n{found.rstrip()}", flush=True)  # noqa: T201
    if failed:
        print(f"failed: {', '.join(failed)}", flush=True)  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
