"""Numbers that a peer or a file has as text: read as Java writes them, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka.protocol.admin import DescribeConfigsResponse

from tests.cases import Cases
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.describe_configs import transaction_max_timeout_ms
from txnscan.kafka.units import LONG_MAX, whole_number
from txnscan.offline.contents import Found
from txnscan.offline.disk import find
from txnscan.tables.delta import READABLE_PROPERTY, VERSION_PROPERTY
from txnscan.tables.versions import version_of

NUMBERS: dict[str, int | None] = {
    "0": 0,
    "-1": -1,
    "900000": 900_000,
    str(LONG_MAX): LONG_MAX,
    str(LONG_MAX + 1): None,
    str(-LONG_MAX - 1): -LONG_MAX - 1,
    "": None,
    " 1": None,
    "+1": None,
    "1_0": None,
    "1.0": None,
    "--1": None,
    "²": None,
    "٣": None,
    "9" * 5_000: None,
}


def test_whole_numbers_are_read_in_one_way() -> None:
    with Cases() as cases:
        for text, number in NUMBERS.items():
            with cases.case(text[:30]):
                assert whole_number(text) == number
        assert whole_number(None) is None


def test_no_number_of_a_peer_or_a_file_is_a_traceback(tmp_path: Path) -> None:
    """Python raises a ValueError for superscripts that are digits, and for thousands of digits."""
    result, entry = (
        DescribeConfigsResponse.DescribeConfigsResult,
        (DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult),
    )
    with Cases() as cases:
        for text in ("²", "--1", "9" * 5_000, str(LONG_MAX)):
            with cases.case(f"a broker, {text[:30]}"):
                named = entry(name="transaction.max.timeout.ms", value=text)
                answer = DescribeConfigsResponse(results=[result(error_code=0, configs=[named])])
                with pytest.raises(RequestFailed):
                    transaction_max_timeout_ms(lambda *_, answer=answer: answer, 1)
            with cases.case(f"a disk, {text[:30]}"):
                (tmp_path / "meta.properties").write_text(f"version=1\nnode.id={text}\n", "utf-8")
                found: Found = find([str(tmp_path)])
                assert found.log_directories[0].broker_id in (None, LONG_MAX)
            with cases.case(f"a table, {text[:30]}"):
                assert version_of({VERSION_PROPERTY: text, READABLE_PROPERTY: text}) in (0, LONG_MAX)
