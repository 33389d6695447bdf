"""A small run of `python -m tests.prove.watching`, without violations."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.process import ROOT
from tests.prove.watching import Used


def test_many_sweeps_under_faults_do_not_grow_memory_threads_or_sockets() -> None:
    """In a process of its own: pytest keeps log records and the objects in them."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.prove.watching", "--sweeps", "100"],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    figures = json.loads(ran.stdout)
    assert figures["violations"] == []
    assert figures["sweeps"]["done"] >= 75 and sum(figures["faults"].values()) >= 1


@pytest.mark.parametrize("name", ["memory_mb", "threads", "files"])
def test_growth_is_found(name: str) -> None:
    used = Used(*([50.0] * 100 for _ in range(3)))
    assert used.grown() == []
    getattr(used, name)[:] = [float(sample) for sample in range(100)]
    assert len(used.grown()) == 1


@pytest.mark.parametrize("name", ["threads", "files"])
def test_a_sweep_in_progress_at_each_sample_is_no_growth(name: str) -> None:
    used = Used(*([50.0] * 100 for _ in range(3)))
    getattr(used, name)[76:] = [60.0] * 24
    assert used.grown() == []
