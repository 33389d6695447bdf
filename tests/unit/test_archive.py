"""Class data archives are used only if they match the JVM and are complete."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from txnscan.engine.spark.archive import Archive
from txnscan.engine.spark.java import JavaError

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    java, jar = tmp_path / "jdk" / "bin" / "java", tmp_path / "one.jar"
    java.parent.mkdir(parents=True)
    java.touch()
    (tmp_path / "jdk" / "release").write_text("17.0.1")
    jar.write_bytes(b"jar")
    return Archive("brokers", java, (jar,))


def archived(options: Sequence[str]) -> Path:
    """The file that a JVM with these options would write."""
    (found,) = [option.partition("=")[2] for option in options if option.startswith("-XX:ArchiveClassesAtExit=")]
    return Path(found)


def train(options: Sequence[str]) -> bool:
    archived(options).write_bytes(b"classes")
    return True


def test_without_an_archive_the_jvm_gets_no_options(archive: Archive) -> None:
    assert archive.file is None and archive.options == ()


def test_a_finished_archive_is_used_without_warnings(archive: Archive) -> None:
    made = archive.make(train)
    assert archive.options == (f"-XX:SharedArchiveFile={made}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
    assert made.read_bytes() == b"classes"
    assert list(made.parent.iterdir()) == [made]


def test_a_truncated_archive_is_not_used(archive: Archive) -> None:
    made = archive.make(train)
    made.write_bytes(b"class")
    assert archive.options == ()


@pytest.mark.parametrize("changed", ["one.jar", "jdk/release"])
def test_an_archive_of_other_jars_or_another_java_is_replaced(archive: Archive, tmp_path: Path, changed: str) -> None:
    former = archive.make(train)
    (tmp_path / changed).write_bytes(b"updated")
    assert archive.options == ()
    made = archive.make(train)
    assert archive.file == made != former and list(made.parent.iterdir()) == [made]


def test_a_rewritten_jar_invalidates_the_archive(archive: Archive, tmp_path: Path) -> None:
    archive.make(train)
    os.utime(tmp_path / "one.jar", (1, 1))
    assert archive.file is None


def test_archives_of_other_tools_are_kept(archive: Archive) -> None:
    other = Archive("tools", archive.java, archive.jars)
    kept = other.make(train)
    archive.make(train)
    assert other.file == kept


def in_words(error: JavaError, tmp_path: Path) -> str:
    return str(error).replace(str(tmp_path), "<tmp>")


@pytest.mark.parametrize(
    "fails", [lambda options: True, lambda options: train(options) and False], ids=["nothing is written", "it fails"]
)
def test_a_failed_archive_leaves_no_file_and_is_reported(
    archive: Archive, tmp_path: Path, fails: object, wording: SnapshotAssertion
) -> None:
    with pytest.raises(JavaError) as error:
        archive.make(fails)  # type: ignore[arg-type]
    assert in_words(error.value, tmp_path) == wording
    assert list((tmp_path / "cache" / "txnscan").iterdir()) == []


def test_an_unwritable_archive_cache_is_named(archive: Archive, tmp_path: Path, wording: SnapshotAssertion) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(JavaError) as error:
        archive.make(train)
    assert in_words(error.value, tmp_path) == wording
