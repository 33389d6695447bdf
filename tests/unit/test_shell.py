"""Commands for people: what a shell takes apart is what was put together."""

from __future__ import annotations

import shlex

from hypothesis import given
from hypothesis import strategies as st

from txnscan.shell import command, options_of


@given(st.text(max_size=30))
def test_a_shell_reads_every_value_as_one_word(value: str) -> None:
    words = shlex.split(command("txnscan describe", transactional_id=value))
    assert words == ["txnscan", "describe", "--transactional-id", value]


def test_options_are_in_order_and_left_out_without_a_value() -> None:
    found = command("kafka-acls.sh", "", add=True, remove=False, host=None, operation=("Read", "Describe"), topic="t")
    assert found.split() == ["kafka-acls.sh", "--add", "--operation", "Read", "--operation", "Describe", "--topic", "t"]
    assert options_of() == ""


def test_zero_is_a_value() -> None:
    assert options_of(partition=0).split() == ["--partition", "0"]
