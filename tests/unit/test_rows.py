"""Rows survive the transfer between driver and executors."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from enum import StrEnum
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import judged, view
from txnscan.engine.rows import arrow_schema, from_arrow, plain, spark_schema, to_arrow
from txnscan.kafka.answers import CoordinatorView, OpenProducer
from txnscan.kafka.failure import Failure
from txnscan.reads.observation import Observation
from txnscan.reads.rows import LogBatch, ProvenRow, ReadBatch, WideAnswer, WideRow
from txnscan.txnlog.rows import LogRow
from txnscan.verdict.evidence import Evidence, Judged, Judgement, Reason, Verdict

TRAVELLERS = (
    ReadBatch,
    WideAnswer,
    WideRow,
    ProvenRow,
    LogBatch,
    LogRow,
    Observation,
    CoordinatorView,
    Evidence,
    Judged,
)
# Spark's BIGINT and Arrow's int64. Text is UTF-8, without lone surrogates.
SCALARS = {
    int: st.integers(-(2**63), 2**63 - 1),
    str: st.text(max_size=20),
    bool: st.booleans(),
    bytes: st.binary(max_size=20),
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of an annotation, with short tuples: nested rows grow quickly."""
    if isinstance(hint, types.UnionType):
        (inner,) = (choice for choice in typing.get_args(hint) if choice is not types.NoneType)
        return st.none() | values_of(inner)
    if typing.get_origin(hint) is tuple:
        return st.lists(values_of(typing.get_args(hint)[0]), max_size=2).map(tuple)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return st.builds(hint, **{field.name: values_of(hints[field.name]) for field in dataclasses.fields(hint)})
    if issubclass(hint, StrEnum):
        return st.sampled_from(hint)
    return SCALARS[hint]


@pytest.mark.parametrize("row_type", TRAVELLERS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_rows_survive_arrow_whole_and_in_batches(row_type: type, data: st.DataObject) -> None:
    rows: list[Any] = data.draw(st.lists(values_of(row_type), max_size=2))
    table = to_arrow(rows, row_type)
    assert from_arrow(table, row_type) == rows
    pieces = table.to_batches(max_chunksize=1)
    assert list(chain.from_iterable(from_arrow(piece, row_type) for piece in pieces)) == rows


def test_a_judgement_survives_with_evidence_and_enums() -> None:
    sent = judged(view("Empty", 9))
    (there,) = from_arrow(to_arrow([sent], Judged), Judged)
    assert there == sent and there.candidate
    assert there.judgement.verdict is Verdict.HANGING and there.judgement.reason is Reason.STALE_EPOCH
    assert there.judgement.late is True


@pytest.mark.parametrize("row_type", TRAVELLERS)
def test_no_rows_are_an_empty_table_with_the_same_columns(row_type: type) -> None:
    table = to_arrow([], row_type)
    assert (table.num_rows, table.schema) == (0, arrow_schema(row_type))
    assert table.schema.names == [field.name for field in dataclasses.fields(row_type)]
    assert from_arrow(table, row_type) == []


def test_null_and_empty_text_are_distinct() -> None:
    rows = [WideRow(1, "", 0), *(WideRow(1, "t", 0, failure=Failure("", "", text)) for text in ("", None))]
    assert from_arrow(to_arrow(rows, WideRow), WideRow) == rows


def test_a_null_array_after_a_join_is_empty() -> None:
    row = plain(WideRow(1, "t", 0)) | {"open_producers": None}
    table = pa.Table.from_pylist([row], schema=arrow_schema(WideRow))
    assert from_arrow(table, WideRow) == [WideRow(1, "t", 0)]


def test_a_verdict_is_plain_text_and_an_unknown_one_is_an_error() -> None:
    row = plain(judged().judgement)
    assert type(row["verdict"]) is str
    table = pa.Table.from_pylist([row | {"verdict": "innocent"}], schema=arrow_schema(Judgement))
    with pytest.raises(ValueError, match="innocent"):
        from_arrow(table, Judgement)


def test_the_spark_schema_is_ddl_with_nested_rows() -> None:
    producer = (
        "producer_id{0} BIGINT, producer_epoch{0} BIGINT, coordinator_epoch{0} BIGINT, start_offset{0} BIGINT, "
        "last_timestamp_ms{0} BIGINT, last_sequence{0} BIGINT"
    )
    assert spark_schema(OpenProducer) == producer.format("")
    wide_row = (
        "leader BIGINT, topic STRING, partition BIGINT, "
        f"open_producers ARRAY<STRUCT<{producer.format(':')}>>, closed_producers "
        f"ARRAY<STRUCT<{producer.format(':')}>>, failure "
        "STRUCT<error: STRING, code: STRING, lacks_api: STRING, "
        "needs: STRUCT<operation: STRING, resource_type: STRING, name: STRING, prefixed: BOOLEAN>>, "
        "ended BIGINT, newest_ended_ms BIGINT"
    )
    assert spark_schema(WideRow) == wide_row
    assert "late BOOLEAN" in spark_schema(Judgement) and "verdict STRING" in spark_schema(Judgement)


@pytest.mark.parametrize("row_type", TRAVELLERS)
def test_spark_and_arrow_have_the_same_columns_in_the_same_order(row_type: type) -> None:
    outermost = spark_schema(row_type)
    while "<" in outermost:
        outermost = re.sub(r"<[^<>]*>", "", outermost)
    assert [column.split(" ")[0] for column in outermost.split(", ")] == arrow_schema(row_type).names
