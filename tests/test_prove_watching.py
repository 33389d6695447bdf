"""A week of `txnscan watch` in small, in smaller: what `python -m tests.prove.watching` says must hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.prove.watching import Used, run


def test_many_sweeps_of_real_brokers_under_fault_leave_memory_threads_and_sockets_as_they_were(tmp_path: Path) -> None:
    figures, wrong = run(200, seed=1, directory=tmp_path / "brokers")
    assert wrong == [], figures
    assert figures["sweeps"]["done"] >= 150 and sum(figures["faults"].values()) >= 2


@pytest.mark.parametrize("name", ["memory_mb", "threads", "files"])
def test_what_grows_is_found(name: str) -> None:
    used = Used(*([50.0] * 100 for _ in range(3)))
    assert used.grown() == []
    getattr(used, name)[:] = [float(sample) for sample in range(100)]
    assert len(used.grown()) == 1
