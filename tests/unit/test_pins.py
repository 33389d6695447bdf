"""Only jars with the pinned SHA-256 are loaded, after a download and at every use."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cases import Cases
from tests.pins import JAR_SETS, pin
from txnscan.engine.spark import java
from txnscan.engine.spark.java import Jar, JarSet, JavaError, delta_jars, is_fetched, jar_directory
from txnscan.engine.spark.pins import PINS, Difference, Mismatch, differences, pins
from txnscan.sweeps.machine import Part, lacking

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

CONTENTS = {"first-1.0.jar": b"the bytes of one jar", "second-2.0.jar": b"the bytes of another"}
TRIO = JarSet("trio-1.0", "Trio 1.0 (3 MB, once)", (Jar("org.example", "first", "1.0"),))


def sha256(contents: Mapping[str, bytes]) -> dict[str, str]:
    return {file: hashlib.sha256(content).hexdigest() for file, content in contents.items()}


def written(directory: Path, contents: Mapping[str, bytes]) -> Path:
    directory.mkdir(parents=True)
    for file, content in contents.items():
        (directory / file).write_bytes(content)
    return directory


def with_one_bit_changed(content: bytes) -> bytes:
    return bytes([content[0] ^ 1, *content[1:]])


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache directory. `TRIO` is pinned, and a download brings its jars."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(java, "pins", lambda: {TRIO.name: sha256(CONTENTS)})
    serve(monkeypatch, CONTENTS)
    return tmp_path / "txnscan"


def serve(monkeypatch: pytest.MonkeyPatch, contents: Mapping[str, bytes]) -> None:
    monkeypatch.setattr(java, "retrieve", lambda _java, _ivy, _set, work, *_: written(work / "jars", contents))


def test_exactly_the_fetched_jars_are_pinned() -> None:
    assert pins().keys() == {one.name for one in JAR_SETS}
    with Cases() as cases:
        for one in JAR_SETS:
            with cases.case(one.name):
                assert "".join(f"{line}\n" for line in pin(one.name, jar_directory(one))) in PINS.read_text("utf-8")
                assert {path.name for path in jar_directory(one).iterdir()} == pins()[one.name].keys()


def test_the_pin_file_has_the_format_of_sha256sum() -> None:
    lines = PINS.read_text("utf-8").splitlines()
    assert len(lines) == sum(map(len, pins().values())) > 100
    assert [line for line in lines if not re.fullmatch(r"[0-9a-f]{64}  [\w.-]+/[\w.-]+\.jar", line)] == []


def test_a_changed_missing_unknown_or_unreadable_jar_differs_from_its_pin(tmp_path: Path) -> None:
    table: tuple[tuple[str, Mapping[str, bytes], list[tuple[str, Mismatch]]], ...] = (
        ("same", CONTENTS, []),
        ("notes", {**CONTENTS, "notes.txt": b""}, []),
        ("cut", {**CONTENTS, "first-1.0.jar": b""}, [("first-1.0.jar", Mismatch.CHANGED)]),
        ("less", {"first-1.0.jar": CONTENTS["first-1.0.jar"]}, [("second-2.0.jar", Mismatch.MISSING)]),
        ("more", {**CONTENTS, "evil.JAR": b""}, [("evil.JAR", Mismatch.UNKNOWN)]),
        ("none", {}, [("first-1.0.jar", Mismatch.MISSING), ("second-2.0.jar", Mismatch.MISSING)]),
    )
    with Cases() as cases:
        for name, contents, expected in table:
            with cases.case(name):
                found = differences(written(tmp_path / name, contents), sha256(CONTENTS))
                assert found == [Difference(*one) for one in expected]
        with cases.case("a directory with the name of a jar"):
            odd = written(tmp_path / "odd", {"second-2.0.jar": CONTENTS["second-2.0.jar"]})
            (odd / "first-1.0.jar").mkdir()
            assert differences(odd, sha256(CONTENTS)) == [Difference("first-1.0.jar", Mismatch.UNREADABLE)]


def test_every_single_changed_byte_is_found(tmp_path: Path) -> None:
    content = CONTENTS["first-1.0.jar"]
    jars = written(tmp_path / "jars", CONTENTS)
    for at in range(len(content)):
        (jars / "first-1.0.jar").write_bytes(content[:at] + with_one_bit_changed(content[at:]))
        assert differences(jars, sha256(CONTENTS)) == [Difference("first-1.0.jar", Mismatch.CHANGED)]


def test_downloaded_jars_with_pinned_hashes_are_kept(cache: Path) -> None:
    assert not is_fetched(TRIO)
    kept = jar_directory(TRIO)
    assert kept == cache / TRIO.name and {path.name for path in kept.iterdir()} == CONTENTS.keys()
    assert is_fetched(TRIO)


def test_a_download_with_a_changed_byte_is_refused_and_not_kept(
    cache: Path, monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    changed = with_one_bit_changed(CONTENTS["second-2.0.jar"])
    serve(monkeypatch, {**CONTENTS, "second-2.0.jar": changed})
    with pytest.raises(JavaError) as error:
        jar_directory(TRIO)
    assert str(error.value) == wording
    assert list(cache.iterdir()) == []


def test_a_set_without_pins_is_refused(cache: Path) -> None:
    with pytest.raises(JavaError):
        jar_directory(JarSet("other-1.0", "Other 1.0", TRIO.jars))
    assert list(cache.iterdir()) == []


def test_a_kept_jar_with_a_changed_byte_is_refused_until_it_is_restored(
    cache: Path, wording: SnapshotAssertion
) -> None:
    changed = {file: with_one_bit_changed(content) for file, content in CONTENTS.items()}
    kept = written(cache / TRIO.name, changed)
    for use in (jar_directory, is_fetched):
        with pytest.raises(JavaError) as error:
            use(TRIO)
        assert str(error.value).replace(str(cache), "<cache>") == wording
    for file, content in CONTENTS.items():
        (kept / file).write_bytes(content)
    assert jar_directory(TRIO) == kept


def test_a_kept_directory_with_an_extra_jar_is_refused(cache: Path, wording: SnapshotAssertion) -> None:
    """Java loads every jar of a directory."""
    written(cache / TRIO.name, {**CONTENTS, "added.jar": b""})
    with pytest.raises(JavaError) as error:
        jar_directory(TRIO)
    assert str(error.value).replace(str(cache), "<cache>") == wording


def test_jars_are_hashed_once_in_a_process(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Path] = []

    def counted(directory: Path, pinned: Mapping[str, str]) -> list[Difference]:
        hashed.append(directory)
        return differences(directory, pinned)

    written(cache / TRIO.name, CONTENTS)
    monkeypatch.setattr(java, "differences", counted)
    for _ in range(3):
        jar_directory(TRIO)
    assert hashed == [cache / TRIO.name]


def test_check_reports_a_changed_jar_of_delta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    name = delta_jars().name
    written(tmp_path / "txnscan" / name, dict.fromkeys(pins()[name], b"changed"))
    (refused,) = [one for one in lacking(frozenset({Part.JVM})) if isinstance(one, JavaError)]
    assert str(tmp_path) in str(refused)
