"""Checkpoints of streaming queries: recorded ones of Spark, damaged ones, hostile ones, and object stores."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

from tests.cases import Cases
from tests.golden.spark_checkpoints import lay_out, recorded
from txnscan.config import ConfigError, ScanConfig, shown_location
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.sweeps import checkpoints as under_test
from txnscan.sweeps.checkpoints import ObjectFiles, read_position, read_positions
from txnscan.waiting.checkpoint import CheckpointFailed, MicroBatch, QueryPosition, parse_batch, parse_stream_id

CLICKS, OTHER = ("clicks", 0), ("other", 1)
WANTED = {CLICKS, OTHER}
META = '{"batchWatermarkMs":0,"batchTimestampMs":1795670992102,"conf":{}}'
AT_MS = 1795670992102

# By recorded query of Spark 4.2.0: the last batch, and the next offsets on the partitions of WANTED.
RECORDED: dict[str, tuple[int, dict[tuple[str, int], tuple[int, ...]]]] = {
    "committed": (0, {CLICKS: (6,), OTHER: (0,)}),
    "uncommitted": (0, {CLICKS: (9,)}),
    "two": (0, {CLICKS: (6,), OTHER: (0,)}),
    "mixed": (1, {CLICKS: (6,)}),
    "v2": (0, {CLICKS: (6,)}),
    "named": (0, {CLICKS: (6,)}),
}

# Lines of a file of `offsets/`, and the offsets in it.
VALID: dict[str, tuple[list[str], dict[tuple[str, int], tuple[int, ...]]]] = {
    "a partition": (["v1", META, '{"clicks":{"0":6}}'], {CLICKS: (6,)}),
    "two sources of a topic": (["v1", META, '{"clicks":{"0":6}}', '{"clicks":{"0":4}}'], {CLICKS: (4, 6)}),
    "a source without an offset": (["v1", META, "-", '{"clicks":{"0":6}}'], {CLICKS: (6,)}),
    "a named source without an offset": (["v2", META, "b:-", 'a:{"clicks":{"0":6}}'], {CLICKS: (6,)}),
    "a colon in the offset alone": (["v2", META, 'a:{"clicks":{"0":6},"x:y":{"1":2}}'], {CLICKS: (6,)}),
    "a source of another kind": (["v1", META, '{"logOffset":3}', '{"clicks":{"0":6}}'], {CLICKS: (6,)}),
    "shards with texts": (["v1", META, '{"s":{"0":"495"}}', '{"clicks":{"0":6}}'], {CLICKS: (6,)}),
    "no wanted partition": (["v1", META, '{"clicks":{"7":6}}'], {}),
    "no partition": (["v1", META, "{}"], {}),
    "lines of Windows": (["v1\r", f"{META}\r", '{"clicks":{"0":6}}\r'], {CLICKS: (6,)}),
    "the greatest offset": (["v1", META, f'{{"clicks":{{"0":{2**63 - 1}}}}}'], {CLICKS: (2**63 - 1,)}),
}

INVALID: dict[str, list[str]] = {
    "empty": [],
    "no version": [META, '{"clicks":{"0":6}}'],
    "a later version": ["v3", META, '{"clicks":{"0":6}}'],
    "version zero": ["v0", META, '{"clicks":{"0":6}}'],
    "a huge version": ["v" + "9" * 5_000, META],
    "only a version": ["v1"],
    "no source": ["v1", META],
    "only sources of other kinds": ["v1", META, "5", '"text"', "[1]", "null", "1e999"],
    "only sources without an offset": ["v1", META, "-"],
    "cut off": ["v1", META, '{"clicks":{"0":6'],
    "damaged metadata": ["v1", '{"batchTime', '{"clicks":{"0":6}}'],
    "an empty line": ["v1", META, '{"clicks":{"0":6}}', ""],
    "no name": ["v2", META, '{"clicks":{"0":6}}'],
    "an empty name": ["v2", META, ':{"clicks":{"0":6}}'],
    "a negative offset": ["v1", META, '{"clicks":{"0":-2}}'],
    "an offset above 64 bits": ["v1", META, f'{{"clicks":{{"0":{2**63}}}}}'],
    "an offset of many digits": ["v1", META, '{"clicks":{"0":' + "9" * 10_000 + "}}"],
    "a fraction": ["v1", META, '{"clicks":{"0":6.0}}'],
    "true": ["v1", META, '{"clicks":{"0":true}}'],
    "a partition that is no number": ["v1", META, '{"clicks":{"٣":6}}'],
    "deep nesting": ["v1", META, "[" * 200_000],
    "deep objects": ["v1", META, '{"clicks":' * 100_000],
}

# The first line of `metadata`, and the id.
METADATA: dict[str, str | None] = {
    '{"id":"d8b5acbe-f9b7-4356-a0f4-dc672f8e96ab"}': "d8b5acbe-f9b7-4356-a0f4-dc672f8e96ab",
    '{"id":"x","later":{"field":1}}': "x",
    '{"id":""}': None,
    '{"id":7}': None,
    '{"id":"' + "x" * 201 + '"}': None,
    '{"id":"\\u001b[31m"}': None,
    "{}": None,
    "[]": None,
    "": None,
}


def position(path: str | Path, wanted: Iterable[tuple[str, int]] = WANTED) -> QueryPosition | Failure:
    return read_position(str(path), frozenset(wanted))


def code_of(found: QueryPosition | Failure) -> str | None:
    return found.code if isinstance(found, Failure) else None


def checkpoint(directory: Path, **files: str) -> Path:
    """A recorded checkpoint with some of its files replaced. Underscores stand for slashes."""
    changed = {name.replace("_", "/"): content for name, content in files.items()}
    return lay_out({**recorded()["committed"], **changed}, directory)


def test_recorded_checkpoints_have_the_position_of_their_query(tmp_path: Path) -> None:
    assert recorded().keys() == RECORDED.keys()
    with Cases() as cases:
        for name, (batch_id, offsets) in RECORDED.items():
            with cases.case(name):
                path = lay_out(recorded()[name], tmp_path / name)
                found = position(path)
                assert isinstance(found, QueryPosition)
                assert (found.path, found.batch_id, found.committed) == (str(path), batch_id, True)
                assert {"id": found.stream_id} == json.loads(recorded()[name]["metadata"])
                metadata = recorded()[name][f"offsets/{batch_id}"].split("\n")[1]
                assert found.batch == MicroBatch(json.loads(metadata)["batchTimestampMs"], offsets)


def test_recorded_checkpoints_have_no_isolation_level() -> None:
    assert not [name for name, files in recorded().items() if "isolation" in "".join(files.values()).lower()]


def test_valid_offsets_are_read() -> None:
    with Cases() as cases:
        for name, (lines, offsets) in VALID.items():
            with cases.case(name):
                assert parse_batch("\n".join(lines), "offsets/0", WANTED) == MicroBatch(AT_MS, offsets)


def test_a_batch_without_a_usable_time_has_none() -> None:
    with Cases() as cases:
        for metadata in ("", " ", "{}", "[]", '{"batchTimestampMs":0}', f'{{"batchTimestampMs":{2**62}}}'):
            with cases.case(metadata):
                assert parse_batch(f'v1\n{metadata}\n{{"clicks":{{"0":6}}}}', "0", WANTED) == MicroBatch(
                    None, {CLICKS: (6,)}
                )


def test_invalid_offsets_are_refused() -> None:
    with Cases() as cases:
        for name, lines in INVALID.items():
            with cases.case(name), pytest.raises(CheckpointFailed) as failed:
                parse_batch("\n".join(lines), "offsets/0", WANTED)
            with cases.case(f"{name}, code"):
                assert failed.value.failure.code == FailureCode.FILE_UNUSABLE


def test_metadata_has_the_id_of_the_query() -> None:
    with Cases() as cases:
        for text, stream_id in METADATA.items():
            with cases.case(text[:40]):
                if stream_id is not None:
                    assert parse_stream_id(text) == stream_id
                    continue
                with pytest.raises(CheckpointFailed):
                    parse_stream_id(text)


def test_the_latest_batch_counts_and_may_be_planned_only(tmp_path: Path) -> None:
    """By number, not by text, and without checksums and temporary files."""
    later = {"offsets_9": f'v1\n{META}\n{{"clicks":{{"0":9}}}}', "offsets_10": f'v1\n{META}\n{{"clicks":{{"0":10}}}}'}
    others = {"offsets_.11.crc": "crc", "offsets_.12.5f0c.tmp": "v1", "offsets_13.compact": "v1", "commits_9": "v1\n{}"}
    found = position(checkpoint(tmp_path, **later, **others))
    assert isinstance(found, QueryPosition)
    assert (found.batch_id, found.committed, found.batch.offsets) == (10, False, {CLICKS: (10,)})


def test_unusable_checkpoints_are_failures_with_their_path(tmp_path: Path) -> None:
    """No read waits, such as for a writer of the pipe."""
    made = {
        "missing": (tmp_path / "missing", FailureCode.FILE_UNREADABLE),
        "a file": (tmp_path / "file", FailureCode.FILE_UNREADABLE),
        "no batch": (tmp_path / "new", FailureCode.FILE_UNUSABLE),
        "damaged": (checkpoint(tmp_path / "damaged", offsets_0="v1\n{"), FailureCode.FILE_UNUSABLE),
        "no text": (checkpoint(tmp_path / "binary", offsets_0="\xff\xfe"), FailureCode.FILE_UNUSABLE),
        "large": (
            checkpoint(tmp_path / "large", offsets_0="x" * (under_test.FILE_BYTES_MAX + 1)),
            FailureCode.FILE_UNREADABLE,
        ),
        "a pipe": (checkpoint(tmp_path / "pipe"), FailureCode.FILE_UNREADABLE),
        "a directory": (checkpoint(tmp_path / "directory"), FailureCode.FILE_UNREADABLE),
        "no metadata": (checkpoint(tmp_path / "nameless"), FailureCode.FILE_UNREADABLE),
    }
    (tmp_path / "file").write_text("x")
    lay_out({"metadata": '{"id":"x"}', "offsets/.0.crc": ""}, tmp_path / "new")
    for name in ("pipe", "directory"):
        (tmp_path / name / "offsets" / "0").unlink()
    os.mkfifo(tmp_path / "pipe" / "offsets" / "0")
    (tmp_path / "directory" / "offsets" / "0").mkdir()
    (tmp_path / "nameless" / "metadata").unlink()
    with Cases() as cases:
        for name, (path, code) in made.items():
            with cases.case(name):
                found = position(path)
                assert isinstance(found, Failure)
                assert (found.code, found.error.startswith(f"{path}: ")) == (code, True)


def test_a_directory_of_many_files_is_not_listed_to_its_end() -> None:
    files = Endless()
    found = read_position("/x", WANTED, lambda _: files)
    assert (code_of(found), files.listed) == (FailureCode.FILE_UNUSABLE, under_test.FILES_MAX + 1)


@dataclass
class Endless:
    """A checkpoint whose directories have no end."""

    listed: int = 0

    def names(self, directory: str) -> Iterable[str]:
        while True:
            self.listed += 1
            yield str(self.listed)

    def read(self, name: str) -> bytes:
        return b'{"id":"x"}'

    def has(self, name: str) -> bool:
        return True


@dataclass
class Hanging(Endless):
    """A checkpoint on a mount that does not answer until the test ends."""

    ends: threading.Event = field(default_factory=threading.Event)

    def read(self, name: str) -> bytes:
        self.ends.wait()
        return b""


def test_a_read_that_hangs_is_left_behind(tmp_path: Path) -> None:
    """The other checkpoints are read, in their order, each with its result."""
    hanging, good = Hanging(), [str(checkpoint(tmp_path / str(number))) for number in range(3)]

    def opened(path: str) -> under_test.Files:
        return hanging if path == "/mnt/dead" else under_test.open_files(path)

    try:
        found = read_positions([good[0], "/mnt/dead", *good[1:]], WANTED, open_files=opened, left_s=2)
    finally:
        hanging.ends.set()
    assert [query.path for query in found.queries] == good
    assert [failure.code for failure in found.failures] == [FailureCode.TIME_IS_UP]


def test_no_time_left_reads_nothing(tmp_path: Path) -> None:
    path = str(checkpoint(tmp_path))
    hanging = Hanging()
    found = read_positions([path, path], WANTED, open_files=lambda _: hanging, left_s=-1)
    hanging.ends.set()
    assert [failure.code for failure in found.failures] == 2 * [FailureCode.TIME_IS_UP]


def test_a_checkpoint_in_an_object_store_has_the_same_position() -> None:
    store = MemoryStore()
    for name, content in recorded()["mixed"].items():
        store.put(name, content.encode("latin-1"))
    found = read_position("s3a://bucket/query", WANTED, lambda _: ObjectFiles(store))
    assert isinstance(found, QueryPosition)
    assert (found.batch_id, found.committed, found.batch.offsets) == (1, True, {CLICKS: (6,)})
    store.delete("commits/1")
    found = read_position("s3a://bucket/query", WANTED, lambda _: ObjectFiles(store))
    assert isinstance(found, QueryPosition) and not found.committed


def test_hostile_objects_are_failures() -> None:
    with Cases() as cases:
        for name, content in {"large": b"x" * (under_test.FILE_BYTES_MAX + 1), "empty": b""}.items():
            store = MemoryStore()
            store.put("metadata", b'{"id":"x"}')
            store.put("offsets/0", content)
            with cases.case(name):
                assert code_of(read_position("s3://b/q", WANTED, lambda _, s=store: ObjectFiles(s))) == (  # type: ignore[misc]
                    FailureCode.FILE_UNUSABLE
                )


def test_without_the_library_object_stores_are_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "find_spec", lambda name: None)
    assert code_of(position("s3://bucket/query")) == FailureCode.FILE_UNREADABLE


# A location, and the form in which it is shown.
SHOWN = {
    "/data/check?point#1": "/data/check?point#1",
    "s3://bucket/query": "s3://bucket/query",
    "s3a://KEY:SEC/RET@bucket/query": "s3a://***@bucket/query",
    "https://token@host/query?sig=SECRET&x=1": "https://***@host/query?***",
    "abfss://container@account.dfs.core.windows.net/query?sv=SECRET": (
        "abfss://container@account.dfs.core.windows.net/query?***"
    ),
    "abfss://container:SECRET@account/query": "abfss://***@account/query",
    "dbfs:/Users/me/query": "dbfs:/Users/me/query",
    "gs://bucket/query#SECRET": "gs://bucket/query#***",
    "s3://bucket/\x1b[31m": "s3://bucket/\\x1b[31m",
}


def test_shown_locations_have_no_secrets(tmp_path: Path) -> None:
    with Cases() as cases:
        for location, shown in SHOWN.items():
            with cases.case(location):
                assert shown_location(location) == shown
                config = ScanConfig("localhost:9092", spark_checkpoint=(location,))
                assert "SECRET" not in config.settings and "SEC/RET" not in config.settings


def test_failures_of_stores_have_no_secrets() -> None:
    class Leaking(Endless):
        def read(self, name: str) -> bytes:
            raise RuntimeError("GET https://KEY:SECRET@host/metadata?sig=SECRET failed\nSECRET2?x=SECRET")

    found = read_position("https://host/query?sig=SECRET", WANTED, lambda _: Leaking())
    assert isinstance(found, Failure) and found.code == FailureCode.FILE_UNREADABLE
    assert "sig=SECRET" not in found.error and "KEY:SECRET" not in found.error and "\n" not in found.error


def test_checkpoints_are_limited_and_local_paths_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = ScanConfig("localhost:9092", spark_checkpoint=("query", "s3://b/q"))
    assert config.spark_checkpoint == (str(tmp_path / "query"), "s3://b/q")
    values: list[Any] = [("",), (" ",), ("x",) * 1_001]
    with Cases() as cases:
        for value in values:
            with cases.case(len(value)), pytest.raises(ConfigError):
                ScanConfig("localhost:9092", spark_checkpoint=value)
