"""Real brokers still answer as recorded: the shape of `tests/golden/shape.py` is created and queried again.

`tests/unit/test_golden_wire.py` compares the wire-level cluster with the recording, without brokers. If this test
fails, the recording is out of date: renew it with `make record`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import shape, store
from tests.golden.compare import shapes_differ
from tests.golden.record import VERSIONS


@pytest.mark.parametrize("kafka", VERSIONS)
def test_real_brokers_answer_with_the_recorded_bytes(kafka: str, tmp_path: Path) -> None:
    """The same requests, and the same bytes except for the list in `tests/golden/mask.py`."""
    assert shapes_differ(store.read(kafka, shape.PART), shape.recorded(kafka, tmp_path)) == []
