"""The partition of non-ASCII ids, as Kafka's classes compute it: surrogate pairs, lone surrogates, and other text.

`tests/golden/coordinators.py` recorded their answers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from tests.cases import Cases
from tests.golden.coordinators import COUNTS, IDS, computed, recorded, text_of, units
from tests.process import ROOT
from txnscan.cli.app import app
from txnscan.config import ConfigError, utf8_text
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition, java_hash_code

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

INT_MIN = -(2**31)
LONE = [one for one in IDS if one.encode(errors="replace") != one.encode(errors="surrogatepass")]


def test_hashes_and_partitions_equal_those_of_kafkas_classes() -> None:
    found = recorded()
    assert [one.utf_16 for one in found] == [units(text) for text in IDS]
    with Cases() as cases:
        for text, one in zip(IDS, found, strict=True):
            with cases.case(one.utf_16):
                assert java_hash_code(text) == one.hash_code
                ours = {str(count): coordinator_partition(text, count) for count in COUNTS}
                assert ours == one.partitions
    # The hash with a negative Math.abs, also without any ASCII letter in the id.
    assert [(one.abs, set(one.partitions.values())) for one in found if one.hash_code == INT_MIN] == [(0, {0})] * 4


def test_a_surrogate_pair_equals_its_character() -> None:
    assert java_hash_code("\ud83d\ude00") == java_hash_code("😀")


def test_the_command_prints_the_partition_of_the_broker() -> None:
    asked = {text: one for text, one in zip(IDS, recorded(), strict=True) if text and text not in LONE}
    for kind in ("transactional-id", "group"):
        options = [option for text in asked for option in (f"--{kind}", text)]
        done = CliRunner().invoke(app, ["coordinator", "--partitions", "50", "--format", "json", *options])
        assert done.exit_code == 0, done.output
        found = {one["name"]: one["partition"] for one in json.loads(done.stdout)["coordinators"]}
        assert found == {text: one.partitions["50"] for text, one in asked.items()}
    assert len(asked) > 30


def test_a_lone_surrogate_is_refused_by_the_command(wording: SnapshotAssertion) -> None:
    """Java's client sends a question mark instead, which has another hash."""
    at_broker = {text: text_of(one.at_broker_utf_16) for text, one in zip(IDS, recorded(), strict=True)}
    assert {text for text, at in at_broker.items() if text != at} == {*LONE} and len(LONE) == 9
    for text in LONE:
        done = CliRunner().invoke(app, ["coordinator", "--partitions", "50", "--transactional-id", text])
        assert (done.exit_code, done.stdout) == (2, "")
    with pytest.raises(ConfigError) as refused:
        utf8_text("--group", "x\ud800")
    assert str(refused.value) == wording


@pytest.mark.parametrize(("given", "status", "partition"), [("tx-é".encode(), 0, 4), (b"tx-\xe9", 2, None)])
def test_an_argument_is_utf_8_in_any_locale(given: bytes, status: int, partition: int | None) -> None:
    """Under an ASCII locale Python decodes its bytes as lone surrogates."""
    command = [sys.executable, "-m", "txnscan", "coordinator", "--partitions", "50", "--format", "json"]
    ascii_locale = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for environment in (ascii_locale, {**os.environ, "PYTHONUTF8": "1"}):
        ran = subprocess.run(
            [*command, "--transactional-id", given], capture_output=True, cwd=ROOT, env=environment, check=False
        )
        assert ran.returncode == status, ran.stderr
        if partition is not None:
            (one,) = json.loads(ran.stdout)["coordinators"]
            assert (one["name"], one["partition"]) == (given.decode(), partition)


def test_kafkas_classes_reproduce_the_recording() -> None:
    assert computed() == recorded()
