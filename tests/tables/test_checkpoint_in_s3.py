"""A checkpoint of a streaming query in S3, read through obstore from a server that speaks S3."""

from __future__ import annotations

import pytest
from obstore.store import S3Store

from tests.golden.spark_checkpoints import recorded
from tests.s3 import BUCKET, s3_server
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.sweeps.checkpoints import FILE_BYTES_MAX, read_position
from txnscan.waiting.checkpoint import QueryPosition

CLICKS = ("clicks", 0)


def test_a_checkpoint_in_s3_has_the_position_of_its_query(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        store = S3Store(BUCKET, client_options={"allow_http": True})
        for name, content in recorded()["mixed"].items():
            store.put(f"queries/mixed/{name}", content.encode("latin-1"))
        store.put("queries/large/metadata", b'{"id":"x"}')
        store.put("queries/large/offsets/0", bytes(FILE_BYTES_MAX + 1))
        found = {
            path: read_position(f"{scheme}://{BUCKET}/queries/{path}", {CLICKS})
            for scheme, path in (("s3", "mixed"), ("s3a", "mixed/"), ("s3n", "large"), ("s3", "missing"))
        }
    for path in ("mixed", "mixed/"):
        query = found[path]
        assert isinstance(query, QueryPosition), query
        assert (query.batch_id, query.committed, query.batch.offsets) == (1, True, {CLICKS: (6,)})
    codes = [one.code for one in found.values() if isinstance(one, Failure)]
    assert codes == [FailureCode.FILE_UNUSABLE, FailureCode.FILE_UNREADABLE]
