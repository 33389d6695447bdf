"""What the files of a Delta table may make a process run or touch. They are examined before the table is opened."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cases import Cases
from tests.fakes.delta import CHECKPOINT, SAFE, ZERO, field, metadata, struct, written
from txnscan.config import ConfigError
from txnscan.tables.delta_log import Examination
from txnscan.tables.metadata import TableRefused, why_metadata_refused, why_protocol_refused
from txnscan.tables.schema import SWEEPS

LOAD = "reflect('java.lang.System', 'load', '/tmp/x.so')"
OURS = dict(SWEEPS.checks)
UDT = {"type": "udt", "class": None, "pyClass": "a.B", "serializedClass": "gAR9lC4=", "sqlType": "string"}


def array(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": True}


def mapped(key: Any, value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


def generated(**keys: Any) -> dict[str, Any]:
    return field(**{"delta.generationExpression": LOAD}, **keys)


REFUSED = {
    "a generated column": metadata(generated()),
    "a generated column in a struct": metadata(field("s", struct(generated()))),
    "a generated column in an array": metadata(field("s", array(struct(generated())))),
    "a generated column in the value of a map": metadata(field("s", mapped("string", array(struct(generated()))))),
    "a generated column in the key of a map": metadata(field("s", mapped(struct(generated()), "string"))),
    "a generated column of another spelling": metadata(field(**{"Delta.GenerationExpression": LOAD})),
    "a generated column of Spark": metadata(field(GENERATION_EXPRESSION=LOAD)),
    "an invariant": metadata(field(**{"delta.invariants": json.dumps({"expression": {"expression": LOAD}})})),
    "a default": metadata(field(CURRENT_DEFAULT=LOAD)),
    "a default of rows that exist": metadata(field(EXISTS_DEFAULT=LOAD)),
    "an identity": metadata(field(**{"delta.identity.start": 1, "delta.identity.step": 1})),
    "a key of Delta's that is unknown": metadata(field(**{"delta.something": "x"})),
    "an expression inside a value": metadata(field(mine={"a": [{"delta.generationExpression": LOAD}]})),
    "an expression in lists of a value": metadata(field(mine=[[{"delta.generationExpression": LOAD}]])),
    "a constraint": metadata(configuration={"delta.constraints.mine": LOAD}),
    "a constraint with the name of txnscan's": metadata(
        configuration={"delta.constraints.finished_after_start": f"{OURS['finished_after_start']} AND {LOAD} IS NULL"}
    ),
    "a constraint of another spelling": metadata(configuration={"Delta.Constraints.mine": LOAD}),
    "a constraint in a checkpoint": metadata(configuration=[("delta.constraints.mine", LOAD)]),
    "a constraint before txnscan's of the same name": metadata(
        configuration=[("delta.constraints.mine", LOAD), ("delta.constraints.mine", next(iter(OURS.values())))]
    ),
    "a commit coordinator": metadata(configuration={"delta.coordinatedCommits.commitCoordinator-preview": "x"}),
    "another table in place of this one": metadata(configuration={"delta.redirectReaderWriter-preview": "{}"}),
    "another table for writes": metadata(configuration={"delta.RedirectWriterOnly-preview": "{}"}),
    "a conversion": metadata(configuration={"delta.universalFormat.enabledFormats": "iceberg"}),
    "a feature among the properties": metadata(configuration={"delta.feature.catalogManaged": "supported"}),
    "another format": metadata(format={"provider": "orc", "options": {}}),
    "options of the format": metadata(format={"provider": "parquet", "options": {"parquet.crypto.factory.class": "x"}}),
    "a pickled type": metadata(field("s", UDT)),
    "a pickled type in an array": metadata(field("s", array(UDT))),
    "a pickled type in place of the rows": metadata(schemaString=json.dumps(UDT)),
    "a type of unknown text": metadata(field("s", "udt; x")),
    "a column that must not be null": metadata(field(nullable=False)),
    "a column that is padded": metadata(field(__CHAR_VARCHAR_TYPE_STRING="char(256)")),
    "a column that is padded, in an array": metadata(
        field("s", array("string"), __CHAR_VARCHAR_TYPE_STRING="array<CHARACTER ( 300000000 )>")
    ),
    "a column that is padded by its type": metadata(field("c", "char(300000000)")),
    "a column that is padded in a struct": metadata(field("s", struct(field("c", "char(300000000)")))),
    "txnscan's column with a limited length": metadata(field("settings", __CHAR_VARCHAR_TYPE_STRING="varchar(1)")),
    "txnscan's column with a limited length, of another spelling": metadata(
        field("SETTINGS", __char_varchar_type_string="char(2)")
    ),
    "txnscan's column of another type": metadata(field("settings", "char(1)")),
    "no schema": metadata(schemaString="x"),
    "a schema that is no struct": metadata(schemaString='"string"'),
    "a schema that is too deep": metadata(schemaString="[" * 100_000),
    "a schema given twice": metadata() | {"SchemaString": "x"},
    "a key given twice": metadata(schemaString='{"type":"struct","fields":[],"fields":[]}'),
    "no metadata": {},
}

ALLOWED = {
    "txnscan's own constraints": metadata(configuration={f"delta.constraints.{name}": c for name, c in OURS.items()}),
    "columns of a user": metadata(field(), field("b", array(struct(field("c", "decimal(10,2)")))), field("v", "date")),
    "a comment that looks like an expression": metadata(field(comment="delta.generationExpression = reflect()")),
    "columns of a limited length": metadata(
        field(__CHAR_VARCHAR_TYPE_STRING="struct<a:varchar(70000),b:char(255)>"), field("c", "varchar(300000)")
    ),
    "a column named like an expression": metadata(field("CURRENT_DEFAULT")),
    "column mapping": metadata(
        field(**{"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1",
                 "delta.columnMapping.nested.ids": {"default.element": 2}}),
        configuration={"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"},
    ),
    "a type that became wider": metadata(field(**{"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]})),
    "other types": metadata(field("a", "timestamp_ntz"), field("b", "interval day to second"), field("c", "char(3)")),
    "keys of other products": metadata(field(__CHAR_VARCHAR_TYPE_STRING="varchar(3)", ml_attr={"vals": ["x"]})),
    "properties of a user": metadata(configuration={"owner": "me", "txnscan.schemaVersion": "17", "a.b": LOAD}),
    "properties of Databricks": metadata(configuration={
        "delta.enableDeletionVectors": "true", "delta.rowTracking.materializedRowIdColumnName": "_row-id-col-1",
        "delta.autoOptimize.autoCompact": "true", "delta.parquet.compression.codec": "zstd",
        "delta.feature.deletionVectors": "supported", "delta.checkpointPolicy": "v2",
    }),
    "an extra column of an old writer": metadata() | {"name": None, "description": "x", "createdTime": 1},
}  # fmt: skip


def test_metadata_that_would_be_evaluated_is_refused() -> None:
    with Cases() as cases:
        for name, one in REFUSED.items():
            with cases.case(name):
                assert why_metadata_refused(SWEEPS, one) is not None


def test_metadata_that_evaluates_nothing_is_allowed() -> None:
    with Cases() as cases:
        for name, one in ALLOWED.items():
            with cases.case(name):
                assert why_metadata_refused(SWEEPS, one) is None


PROTOCOLS: dict[str, tuple[dict[str, Any], bool]] = {
    "old": ({"minReaderVersion": 1, "minWriterVersion": 4}, True),
    "null": ({"readerFeatures": None, "writerFeatures": None}, True),
    "an upgrade lists features that nothing uses": (
        {"writerFeatures": ["checkConstraints", "generatedColumns", "identityColumns", "allowColumnDefaults"]},
        True,
    ),
    "the defaults of Databricks": (
        {"readerFeatures": ["deletionVectors", "columnMapping", "v2Checkpoint", "timestampNtz"],
         "writerFeatures": ["appendOnly", "clustering", "deletionVectors", "domainMetadata", "rowTracking",
                            "inCommitTimestamp", "changeDataFeed", "typeWidening-preview"]},
        True,
    ),
    "managed by a catalog": ({"readerFeatures": ["catalogManaged"]}, False),
    "a commit coordinator": ({"writerFeatures": ["coordinatedCommits-preview"]}, False),
    "an unknown feature": ({"writerFeatures": ["appendOnly", "futureThing"]}, False),
    "another spelling": ({"WriterFeatures": ["futureThing"]}, False),
    "no list": ({"writerFeatures": 7}, False),
}  # fmt: skip


def test_features_that_are_known_to_run_nothing_are_allowed() -> None:
    with Cases() as cases:
        for name, (protocol, allowed) in PROTOCOLS.items():
            with cases.case(name):
                assert (why_protocol_refused(protocol) is None) is allowed


# --- files ------------------------------------------------------------------------------------------------------------

EVIL = json.dumps({"metaData": metadata(generated())})
# JSON may spell a letter in two ways.
ESCAPED = EVIL.replace("metaData", "metaD\\u0061ta", 1)
TWICE = SAFE[:-1] + ","
PLAIN, OF_CLASS = json.dumps(struct(field())), json.dumps(struct(field("s", UDT)))
NO_UTF_8 = json.dumps({"txnId": "~", "metadata": metadata(generated())}).encode().replace(b"~", b"\xff")


def parquet(**columns: list[Any]) -> Any:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


def checkpoint(**action: Any) -> Any:
    return parquet(**{name: [None, value] for name, value in action.items()})


def assert_examined(
    folder: Path, files: dict[str, str | bytes], allowed: bool, refusal: type[ConfigError] = ConfigError
) -> None:
    """The examination of a table with these files passes, or refuses the table."""
    check = Examination(SWEEPS, written(folder, files)).check
    if allowed:
        check()
    else:
        with pytest.raises(refusal):
            check()


def checkpoint_twice(*actions: Any) -> Any:
    """A checkpoint with a column for each, all of the same name."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays([pa.array([one]) for one in actions], ["metaData"] * len(actions)), sink)
    return sink.getvalue().to_pybytes()


def with_schema(*texts: str | bytes) -> Any:
    """A checkpoint with these schemas of Spark's in its footer."""
    sink = pa.BufferOutputStream()
    pairs = pa.KeyValueMetadata([("org.apache.spark.sql.parquet.row.metadata", text) for text in texts])
    schema = pa.schema([("txn", pa.int64())], pairs)
    pq.write_table(schema.empty_table(), sink)
    return sink.getvalue().to_pybytes()


def in_arrow(one: dict[str, Any]) -> dict[str, Any]:
    """Metadata as a checkpoint has it, without empty structs and maps."""
    return {"schemaString": one["schemaString"], "partitionColumns": [], "format": {"provider": "parquet"}}


HOSTILE: dict[str, dict[str, str | bytes]] = {
    "in the first commit": {ZERO: EVIL},
    "in a later commit": {ZERO: SAFE, f"{1:020}.json": f'{{"commitInfo":{{}}}}\n{EVIL}'},
    "twice in a line, last": {ZERO: TWICE + EVIL[1:]},
    "twice in a line, escaped": {ZERO: TWICE + ESCAPED[1:]},
    "escaped": {ZERO: ESCAPED},
    "with the spelling of another reader": {ZERO: EVIL.replace("metaData", "MetaData", 1)},
    "before the last checkpoint": {ZERO: EVIL, CHECKPOINT: checkpoint(metaData=in_arrow(metadata()))},
    "in a compacted commit": {ZERO: SAFE, f"{0:020}.{1:020}.compacted.json": EVIL},
    "in a checkpoint": {ZERO: SAFE, CHECKPOINT: checkpoint(metaData=in_arrow(metadata(generated())))},
    "in a part of a checkpoint": {
        ZERO: SAFE,
        f"{1:020}.checkpoint.{2:010}.{2:010}.parquet": checkpoint(metaData=in_arrow(metadata(generated()))),
    },
    "in a checkpoint, by another spelling": {
        ZERO: SAFE, CHECKPOINT: checkpoint(METADATA=in_arrow(metadata(generated()))),
    },
    "in the first of two columns of a checkpoint": {
        ZERO: SAFE, CHECKPOINT: checkpoint_twice(in_arrow(metadata(generated())), in_arrow(metadata())),
    },
    "in a checkpoint of version 2": {ZERO: SAFE, f"{1:020}.checkpoint.0e7f.json": EVIL},
    "in a sidecar": {ZERO: SAFE, "_sidecars/a.parquet": checkpoint(metaData=in_arrow(metadata(generated())))},
    "in a staged commit": {ZERO: SAFE, "_staged_commits/00000000000000000001.x.json": EVIL},
    "in a checksum": {ZERO: SAFE, f"{0:020}.crc": json.dumps({"metadata": metadata(generated())})},
    "in a checksum, before other text": {
        ZERO: SAFE, f"{0:020}.crc": json.dumps({"metadata": metadata(generated())}) + "x",
    },
    "in a checksum that is no UTF-8": {ZERO: SAFE, f"{0:020}.crc": NO_UTF_8},
    "in a checksum before bytes that are no UTF-8": {
        ZERO: SAFE, f"{0:020}.crc": json.dumps({"metadata": metadata(generated())}).encode() + b"\xff",
    },
    "in a checksum with a long number": {
        ZERO: SAFE, f"{0:020}.crc": f'{{"numFiles":{"9" * 5_000},"metadata":{json.dumps(metadata(generated()))}}}',
    },
    "in a checksum, given twice": {ZERO: SAFE, f"{0:020}.crc": '{"metadata":{},"metadata":{}}'},
    "a protocol in a checksum": {ZERO: SAFE, f"{0:020}.crc": '{"protocol":{"writerFeatures":["futureThing"]}}'},
    "a class in the hint": {ZERO: SAFE, "_last_checkpoint": json.dumps({"checkpointSchema": struct(field("s", UDT))})},
    "a class in a hint that is no UTF-8": {
        ZERO: SAFE,
        "_last_checkpoint": json.dumps({"a": "~", "checkpointSchema": UDT}).encode().replace(b"~", b"\xed\xa0\x80"),
    },
    "a class in a checkpoint": {ZERO: SAFE, CHECKPOINT: with_schema(OF_CLASS)},
    "a class in a checkpoint, escaped": {ZERO: SAFE, CHECKPOINT: with_schema(OF_CLASS.replace("udt", "ud\\u0074"))},
    "a class in the second schema of a checkpoint": {ZERO: SAFE, CHECKPOINT: with_schema(PLAIN, OF_CLASS)},
    "a class in a checkpoint that gives a key twice": {
        ZERO: SAFE, CHECKPOINT: with_schema('{"type":"struct","type":"struct","fields":[]}'),
    },
    "a class in a sidecar, escaped": {
        ZERO: SAFE, "_sidecars/a.parquet": with_schema(OF_CLASS.replace("udt", "\\u0075dt")),
    },
    "a schema of a checkpoint that is no UTF-8": {ZERO: SAFE, CHECKPOINT: with_schema(PLAIN.encode() + b"\xff")},
    "a commit that only Jackson reads": {ZERO: EVIL.replace('"metaData"', "'metaData'")},
    "a commit in UTF-16": {ZERO: EVIL.encode("utf-16")},
    "text after a commit": {ZERO: f"{SAFE} {EVIL}"},
    "a number": {ZERO: f"{SAFE}\n7\n"},
    "a number without end": {ZERO: '{"add":{"path":"a","size":' + "9" * 100_000 + "}}\n7"},
    "no commit": {ZERO: ""},
    "half a commit": {ZERO: SAFE, f"{1:020}.json": '{"add":{"pa'},
    "a long line": {ZERO: '{"txn":"' + "x" * (3 << 20) + '"}'},
    "no checkpoint": {ZERO: SAFE, CHECKPOINT: b"PAR1"},
}  # fmt: skip

HARMLESS: dict[str, dict[str, str | bytes]] = {
    "an empty folder": {},
    "a table": {ZERO: f'{{"commitInfo":{{}}}}\n{SAFE}\n{{"protocol":{{"minReaderVersion":1,"minWriterVersion":4}}}}\n'},
    "words of other alphabets": {ZERO: SAFE + '\n{"txn":{"appId":"a\u2028b"}}\n'},
    "temporary files": {ZERO: SAFE, ".x.crc": "x", ".1.json.u.tmp": "{", "_commit_1.json.tmp": "{", "a.txt": "x"},
    "half a checksum, which Spark ignores": {ZERO: SAFE, f"{0:020}.crc": '{"metadata":{"id'},
    "half a checksum, in a letter": {ZERO: SAFE, f"{0:020}.crc": b'{"txnId":"\xc3'},
    "half a hint, which Spark ignores": {ZERO: SAFE, "_last_checkpoint": '{"version":'},
    "a checkpoint": {ZERO: SAFE, CHECKPOINT: checkpoint(metaData=in_arrow(metadata()))},
    "a checkpoint of Spark's": {ZERO: SAFE, CHECKPOINT: with_schema(PLAIN)},
}  # fmt: skip


def test_every_file_that_a_reader_may_take_the_metadata_from_is_examined(tmp_path: Path) -> None:
    with Cases() as cases:
        for name, files in HOSTILE.items():
            with cases.case(name), pytest.raises(ConfigError):
                Examination(SWEEPS, written(tmp_path / name, files)).check()


def test_files_before_the_last_checkpoint_count_as_well(tmp_path: Path) -> None:
    """A reader may find that checkpoint damaged, and take an earlier one."""
    later = {f"{9:020}.checkpoint.parquet": checkpoint(metaData=in_arrow(metadata()))}
    with Cases() as cases:
        for name, files in HOSTILE.items():
            # An old commit without metadata and paths may be damaged: nobody reads it.
            if name not in ("a number", "a number without end", "no commit", "half a commit", "a long line"):
                with cases.case(name), pytest.raises(ConfigError):
                    Examination(SWEEPS, written(tmp_path / name, {**files, **later})).check()
        for number, (path, allowed) in enumerate(PATHS.items()):
            for kind in ("add", "remove", "cdc"):
                with cases.case(f"{kind} {path}"):
                    files = {ZERO: json.dumps({kind: {"path": path}}, separators=(",", ":"))}
                    assert_examined(tmp_path / f"{number}-{kind}", {**files, **later}, allowed)
        with cases.case("damaged, without metadata and paths"):
            Examination(SWEEPS, written(tmp_path / "old", {ZERO: "x", **later})).check()


def test_a_log_as_spark_and_delta_rs_write_it_passes(tmp_path: Path) -> None:
    with Cases() as cases:
        for name, files in HARMLESS.items():
            with cases.case(name):
                Examination(SWEEPS, written(tmp_path / name, files)).check()
    Examination(SWEEPS, tmp_path / "nowhere").check()


def test_a_file_is_read_again_only_if_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examination = Examination(SWEEPS, written(tmp_path, {ZERO: SAFE}))
    examination.check()
    with monkeypatch.context() as patched:
        patched.setattr("txnscan.tables.delta_log.parsed", None)
        examination.check()
    written(tmp_path, {f"{1:020}.json": EVIL})
    with pytest.raises(TableRefused):
        examination.check()
    written(tmp_path, {f"{1:020}.json": SAFE, ZERO: EVIL})
    with pytest.raises(TableRefused):
        examination.check()


# --- files elsewhere --------------------------------------------------------------------------------------------------

DV: dict[str, Any] = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40}
PATHS = {
    "part-0.parquet": True,
    "cluster_id=a%253Ab/part-0.parquet": True,
    "cluster_id=a:b/is_open=true/part-0.parquet": True,
    "/etc/x.parquet": False,
    "file:///etc/x.parquet": False,
    "file:x.parquet": False,
    "s3a://b/x.parquet": False,
    "../x.parquet": False,
    "a/../../x.parquet": False,
    "%2E%2E/x.parquet": False,
    "a/%2e%2e/x.parquet": False,
    "%2Fetc/x.parquet": False,
    "file%3A///etc/x.parquet": False,
    "..\\x.parquet": False,
    # Parsers of URLs drop these characters.
    ".\t./x.parquet": False,
    "..\n/x.parquet": False,
    " /etc/x.parquet": False,
    "\t/etc/x.parquet": False,
    "f\rile:///etc/x.parquet": False,
    "\x01file:/etc/x.parquet": False,
    "x.bin?.parquet": False,
    "x.bin#.parquet": False,
    "a/%252E%252e/x.parquet": False,
    "%252Fetc/x.parquet": False,
    "": False,
}


def test_actions_about_files_elsewhere_are_refused(tmp_path: Path) -> None:
    with Cases() as cases:
        for number, (path, allowed) in enumerate(PATHS.items()):
            for kind in ("add", "remove", "cdc", "sidecar"):
                one = {kind: {"path": path}}
                places: dict[str, dict[str, str | bytes]] = {
                    "commit": {ZERO: json.dumps(one)},
                    "checkpoint": {f"{0:020}.checkpoint.parquet": checkpoint(**one)},
                    "checksum": {f"{0:020}.crc": json.dumps({"allFiles": [one[kind]]})},
                    "hint": {
                        "_last_checkpoint": json.dumps(
                            {"v2Checkpoint": {"path": "x.json", "sidecarFiles": [one[kind]]}}
                        )
                    },
                }
                for name, files in places.items():
                    with cases.case(f"{kind} {path} in a {name}"):
                        assert_examined(tmp_path / f"{number}-{kind}-{name}", files, allowed)


SIDECARS = {
    "a.parquet": True,
    "a/b.parquet": True,
    "a%2Eparquet": True,
    "a": False,
    "a.bin": False,
    ".a.parquet": False,
    "a/.b.parquet": False,
    "a.crc": False,
    "a.parquet.tmp": False,
    "a.parquet%00": False,
}


def test_sidecars_that_the_examination_would_pass_over_are_refused(tmp_path: Path) -> None:
    with Cases() as cases:
        for number, (path, allowed) in enumerate(SIDECARS.items()):
            with cases.case(path):
                files = {f"{1:020}.checkpoint.0e7f.json": json.dumps({"sidecar": {"path": path}})}
                assert_examined(tmp_path / str(number), {ZERO: SAFE, **files}, allowed, TableRefused)


# The example of Delta's protocol: rows 3, 4, 7, 11, 18 and 29.
INLINE = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
VECTORS: dict[str, tuple[dict[str, Any], bool]] = {
    "relative": (DV, True),
    "inline": ({"storageType": "i", "pathOrInlineDv": INLINE, "sizeInBytes": 44}, True),
    "absolute": ({"storageType": "p", "pathOrInlineDv": "file:///etc/passwd"}, False),
    "a folder above": (DV | {"pathOrInlineDv": f"../../x/{DV['pathOrInlineDv'][2:]}"}, False),
    "unknown": (DV | {"storageType": "x"}, False),
    "no path": ({"storageType": "u"}, False),
}  # fmt: skip


def test_deletion_vectors_elsewhere_are_refused(tmp_path: Path) -> None:
    with Cases() as cases:
        for name, (vector, allowed) in VECTORS.items():
            for kind in ("add", "remove"):
                with cases.case(f"{kind} {name}"):
                    one = json.dumps({kind: {"path": "a.parquet", "deletionVector": vector}})
                    assert_examined(tmp_path / name / kind, {ZERO: one}, allowed)


def test_links_pipes_and_devices_in_the_folder_of_a_table_are_refused(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ZERO).write_text(SAFE)

    def link(folder: Path, name: str, to: Path = elsewhere) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(to)

    def pipe(folder: Path, name: str) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(folder / name)

    planted: dict[str, Callable[[Path], None]] = {
        "a folder of data": lambda t: link(t, "old"),
        "a folder of a partition": lambda t: link(t, "cluster_id=a/is_open=true"),
        "a file of data": lambda t: link(t, "part-0.parquet", elsewhere / ZERO),
        "a link to nowhere": lambda t: link(t, "part-0.parquet", tmp_path / "none"),
        "the log": lambda t: link(t, "_delta_log"),
        "a commit": lambda t: link(t, f"_delta_log/{ZERO}", elsewhere / ZERO),
        "the sidecars": lambda t: link(t, "_delta_log/_sidecars"),
        "a hidden file": lambda t: link(t, "_a.lock", elsewhere / ZERO),
        "a pipe": lambda t: pipe(t, "part-0.parquet"),
        "a pipe in the log": lambda t: pipe(t, f"_delta_log/{ZERO}"),
        "a device": lambda t: link(t, f"_delta_log/{ZERO}", Path("/dev/zero")),
    }
    with Cases() as cases:
        for name, plant in planted.items():
            with cases.case(name):
                table = tmp_path / name.replace(" ", "-")
                plant(table)
                began = time.monotonic()
                with pytest.raises(TableRefused):
                    Examination(SWEEPS, table).check()
                assert time.monotonic() - began < 2
        with cases.case("the table"):
            (tmp_path / "link").symlink_to(elsewhere)
            with pytest.raises(TableRefused):
                Examination(SWEEPS, tmp_path / "link").check()
