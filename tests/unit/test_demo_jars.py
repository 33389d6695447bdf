"""Errors of the demo without Java or Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from txnscan.demo.errors import DemoError
from txnscan.demo.jars import java, kafka_jars

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion


def java_that_says(directory: Path, version: str) -> Path:
    executable = directory / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    executable.chmod(0o755)
    return executable


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.2", "25-ea"])
def test_java_17_or_newer_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    executable = java_that_says(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java() == executable


@pytest.mark.parametrize(("version", "major"), [("11.0.2", 11), ("1.8.0_402", 8)])
def test_an_older_java_is_refused_with_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, major: int, wording: SnapshotAssertion
) -> None:
    java_that_says(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(DemoError) as error:
        java()
    assert f"is Java {major};" in str(error.value)
    assert str(error.value).replace(str(tmp_path), "<tmp>") == wording


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(DemoError, match=f"JAVA_HOME is {tmp_path}, which has no bin/java"):
        java()


def test_a_missing_java_is_reported_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DemoError) as error:
        java()
    assert str(error.value) == wording


def test_a_failed_download_is_reported_and_leaves_only_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1")
    with pytest.raises(DemoError) as raised:
        kafka_jars("4.3.1")
    assert str(raised.value).replace(str(tmp_path), "<tmp>") == wording
    (log,) = (tmp_path / "txnscan").iterdir()
    assert str(raised.value).endswith(str(log))
    assert "\n" not in str(raised.value)
    assert log.stat().st_size > 0


def test_jars_in_the_cache_are_used_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = kafka_jars("4.3.1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    kept = tmp_path / "txnscan" / "kafka-4.3.1"
    kept.parent.mkdir()
    kept.symlink_to(fetched)
    assert kafka_jars("4.3.1") == kept


def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    (tmp_path / "txnscan").write_text("not a directory")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(DemoError) as error:
        kafka_jars("4.3.1")
    assert str(error.value).replace(str(tmp_path), "<tmp>") == wording
