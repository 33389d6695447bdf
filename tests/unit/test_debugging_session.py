"""A published debugging session (kafka-dump-log.sh, klog, grep), repeated with txnscan: the figures are equal.

The files are rebuilt from the printed dumps and have the printed checksums, so they are equal byte by byte. The
hanging transaction is rebuilt from the offsets and producers that the session names.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka.record import MemoryRecordsBuilder
from typer.testing import CliRunner

from tests.offline import data, end, partition_directory, plain, snapshot_of
from tests.sim.wire.batches import marker
from txnscan.cli.app import app
from txnscan.kafka.answers import State
from txnscan.kafka.protocol.record_batch import CRC_AT, CRC_FROM
from txnscan.offline.producer_snapshots import ProducerState
from txnscan.report.plain import iso_utc
from txnscan.txnlog.decode import transactional_id_key

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

ID = "my-unique-static-tid"
SENTENCE = "but All be that's my transactions down 0 cents. me, ask should rounded just if you"
STARTED_MS = 1664531387242
WRITTEN_MS = (1664531387234, 1664531387238, *[1664531387239] * 14)
OUTPUT, OFFSETS = ("wc-output", 0), ("__consumer_offsets", 12)
# State, its partitions (None: null), its update and start times, its write time, and the checksum in the dump.
STEPS: tuple[tuple[State, list[tuple[str, int]] | None, int, int, int, int], ...] = (
    (State.EMPTY, None, 1664531116242, -1, 1664531116250, 1190815950),
    (State.ONGOING, [OUTPUT], STARTED_MS, STARTED_MS, 1664531387243, 3789373876),
    (State.ONGOING, [OFFSETS, OUTPUT], 1664531387246, STARTED_MS, 1664531387247, 1696269573),
    (State.PREPARE_COMMIT, [OFFSETS, OUTPUT], 1664531387371, STARTED_MS, 1664531387371, 574508280),
    (State.COMPLETE_COMMIT, [], 1664531387373, STARTED_MS, 1664531387388, 3610071080),
)


def at(offset: int, batch: bytes, crc: int) -> bytes:
    """The batch at this offset, which no checksum covers. crc: the checksum in the dump."""
    assert int.from_bytes(batch[CRC_AT:CRC_FROM]) == crc
    return offset.to_bytes(8) + batch[8:]


def written(records: list[tuple[int, bytes, bytes]], **producer: Any) -> bytes:
    builder = MemoryRecordsBuilder(2, 0, 1 << 20, **producer)
    for timestamp_ms, key, value in records:
        builder.append(timestamp=timestamp_ms, key=key, value=value)
    builder.close()
    return bytes(builder.buffer())


def value(state: State, partitions: list[tuple[str, int]] | None, updated_ms: int, started_ms: int) -> bytes:
    """`TransactionLogValue.json`, version 0, as written by Kafka 3.2."""
    head = struct.pack(">hqhib", 0, 0, 0, 60_000, list(State).index(state))
    count = struct.pack(">i", -1 if partitions is None else len(partitions))
    listed = b"".join(
        struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">ii", 1, index)
        for topic, index in partitions or ()
    )
    return head + count + listed + struct.pack(">qq", updated_ms, started_ms)


@pytest.fixture
def kafka_logs(tmp_path: Path) -> Path:
    """/tmp/kafka-logs of the session, after the word count."""
    root = tmp_path / "kafka-logs"
    counted = [(ms, word.encode(), b"1") for ms, word in zip(WRITTEN_MS, SENTENCE.split(), strict=True)]
    output = written(counted, transactional=True, producer_id=0, producer_epoch=0, base_sequence=0)
    output = at(0, output, 2340232627) + at(16, marker(16, 0, 0, 0, True, 1664531387382), 3122996963)
    partition_directory(root, "wc-output-0", {0: output})
    log = [
        at(offset, written([(written_ms, transactional_id_key(ID), value(*step[:4]))]), crc)
        for offset, step in enumerate(STEPS)
        for written_ms, crc in [step[4:]]
    ]
    partition_directory(root, "__transaction_state-33", {0: b"".join(log)})
    return root


def ran(*arguments: str) -> Any:
    done = CliRunner().invoke(app, [*arguments, "--format", "json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_coordinator_replaces_find_cp() -> None:
    told = ran("coordinator", "--partitions", "50", "--group", "my-group", "--transactional-id", ID)["coordinators"]
    assert {(one["topic"], one["partition"]) for one in told} == {
        ("__consumer_offsets", 12),
        ("__transaction_state", 33),
    }


def test_segments_replaces_the_dump_of_the_word_count(kafka_logs: Path) -> None:
    """A batch of 16 records and its COMMIT marker, of producer id 0 at epoch 0."""
    (partition,) = ran("segments", str(kafka_logs / "wc-output-0"))["partitions"]
    figures = partition["figures"]
    assert (figures["batches"], figures["records"], figures["size_bytes"]) == (2, 17, 256 + 78)
    assert (figures["committed"], figures["aborted"], figures["open"], figures["empty"]) == (1, 0, 0, 0)
    (producer,) = partition["producers"]
    assert (producer["producer_id"], producer["producer_epoch"], producer["coordinator_epoch"]) == (0, 0, 0)
    assert (producer["last_sequence"], producer["last_offset"], partition["log_end_offset"]) == (15, 15, 17)
    assert figures["durations_ms"]["total"] == 1664531387382 - 1664531387239


def test_transaction_log_replaces_the_dump_of_the_transaction_log(kafka_logs: Path) -> None:
    told = ran("transaction-log", str(kafka_logs), "--transactional-id", ID)
    assert [(step["offset"], step["state"], step["written_at"], step["partitions"]) for step in told["steps"]] == [
        (offset, str(state), iso_utc(updated_ms), sorted(f"{topic}-{index}" for topic, index in partitions or ()))
        for offset, (state, partitions, updated_ms, *_) in enumerate(STEPS)
    ]
    assert {(step["log_partition"], step["producer_id"], step["timeout_ms"]) for step in told["steps"]} == {
        (33, 0, 60_000)
    }
    assert told["impossible"] == []


# --- the hanging transaction ---

STUCK, LSO, LEO = "__consumer_offsets-27", 913095344, 913097449


@pytest.fixture
def stuck(tmp_path: Path) -> Path:
    """A partition of the group's offsets that is stuck, as in the session."""
    root = tmp_path / "kafka-0"
    log = b"".join(
        [
            end(912375285, pid=171100, epoch=1, coordinator_epoch=34),
            plain(912375286, 7),
            data(LSO, pid=171100, epoch=1),
            data(LSO + 1, pid=173101, epoch=14),
            end(LSO + 2, pid=173101, epoch=14, coordinator_epoch=34),
            plain(LSO + 3, LEO - LSO - 3),
        ]
    )
    states = [
        ProducerState(171100, 1, 34, 0, LSO, 0, 1_700_000_000_000, LSO),
        ProducerState(173101, 14, 34, 0, LSO + 1, 0, 1_700_000_000_000, -1),
    ]
    partition_directory(root, STUCK, {912375285: log})
    (root / STUCK / f"{LEO:020d}.snapshot").write_bytes(snapshot_of(states))
    (root / "cleaner-offset-checkpoint").write_text("0\n1\n__consumer_offsets 27 913090100\n")
    return root


def test_segments_replaces_grep_of_the_cleaner_checkpoint(stuck: Path, wording: SnapshotAssertion) -> None:
    (partition,) = ran("segments", str(stuck))["partitions"]
    assert (partition["cleaned_until"], partition["compaction_stuck"]) == (913090100, True)
    assert (partition["last_stable_offset"], partition["log_end_offset"]) == (LSO, LEO)
    said = CliRunner().invoke(app, ["segments", str(stuck)]).stdout
    assert "913090100" in said and "913095344" in said
    *_, of_the_partition = said.replace(str(stuck), "<stuck>").partition("\n__consumer_offsets-27  <stuck>")
    assert of_the_partition == wording


def test_segments_replaces_klog_txn_stat_and_open_txn(stuck: Path) -> None:
    """Also for a single file, as klog reads it."""
    for path in (stuck, stuck / STUCK / f"{912375285:020d}.log"):
        told = ran("segments", str(path))
        (one,) = told["transactions"]
        assert (one["producer_id"], one["producer_epoch"], one["start_offset"]) == (171100, 1, LSO)
        assert told["partitions"][0]["figures"]["open"] == 1


def test_segments_replaces_the_dump_of_a_snapshot(stuck: Path) -> None:
    (partition,) = ran("segments", str(stuck / STUCK / f"{LEO:020d}.snapshot"))["partitions"]
    assert [(p["producer_id"], p["producer_epoch"], p["coordinator_epoch"]) for p in partition["producers"]] == [
        (171100, 1, 34),
        (173101, 14, 34),
    ]


def test_one_replica_proves_no_abort_command(stuck: Path) -> None:
    """The output has every field of the command.

    `txnscan abort` finds the transaction by its offset, and proves it first.
    """
    (one,) = ran("segments", str(stuck))["transactions"]
    assert (one["verdict"], one["commands"]) == ("indeterminate", [])
    assert (one["producer_id"], one["producer_epoch"], one["coordinator_epoch"]) == (171100, 1, 34)
    assert one["start_offset"] == 913095344
