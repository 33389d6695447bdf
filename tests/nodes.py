"""The Python of machines that run executors: it has the packages of nodes, and no other."""

from __future__ import annotations

import venv
from importlib.util import find_spec
from pathlib import Path

# The requirements of nodes in README: pyspark, pandas and pyarrow, with their dependencies.
OF_NODES = ("pyspark", "py4j", "pandas", "pyarrow", "numpy", "numpy.libs", "dateutil", "pytz", "tzdata", "six.py")


def python_of_nodes(directory: Path) -> Path:
    """An environment with links to the packages of nodes, and to no other."""
    venv.create(directory, with_pip=False)
    (packages,) = directory.glob("lib/python*/site-packages")
    installed = Path(str(find_spec("pyspark").origin)).parents[1]  # type: ignore[union-attr]
    for name in OF_NODES:
        if (installed / name).exists():
            (packages / name).symlink_to(installed / name)
    return directory / "bin" / "python3"
