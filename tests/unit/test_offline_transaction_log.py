"""`__transaction_state` from its files: the last state of each id, impossible steps, and unknown outcomes.

Also the command on generated files.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.cases import Cases
from tests.fakes.batches import of_equal_records
from tests.offline import MS, changed, data, end, partition_directory, shut_down
from tests.sim.encode import transaction_log_value
from tests.sim.records import TransactionMetadata
from tests.sim.wire.batches import batch
from txnscan.cli.app import app
from txnscan.kafka.answers import State
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.protocol.record_batch import MAGIC_AT
from txnscan.offline.copies import Copies
from txnscan.offline.paths import read_paths
from txnscan.offline.state_log import StateLog, read_state_log
from txnscan.txnlog.decode import transactional_id_key
from txnscan.txnlog.facts import RawRecord

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

Record = tuple[bytes | None, bytes | None]
T0 = frozenset({("t", 0)})


def record(
    name: str, state: str, epoch: int = 0, pid: int = 7, partitions: frozenset[Any] = T0, client: int = 2
) -> Record:
    value = transaction_log_value(TransactionMetadata(pid, epoch, state, partitions, client), MS)
    return transactional_id_key(name), value


def log_of(*records: Record, offset: int = 0) -> list[bytes]:
    return [batch(at, [one], timestamp_ms=MS) for at, one in enumerate(records, offset)]


STEPS = [
    record("X", "Empty"),
    record("X", "Ongoing"),
    record("X", "PrepareCommit", 1),
    record("X", "CompleteCommit", 1),
]


def read(*records: Record, **more: Any) -> StateLog:
    return read_state_log(0, log_of(*records), **more)


def test_the_last_record_is_the_state_of_an_id_and_an_expired_id_has_none() -> None:
    log = read(*STEPS, record("Y", "Ongoing", pid=8), record("Z", "Empty", pid=9), (transactional_id_key("Z"), None))
    assert {name: (last.state, last.producer_epoch) for name, last in log.ids.items()} == {
        "X": (State.COMPLETE_COMMIT, 1),
        "Y": (State.ONGOING, 0),
    }
    assert log.error is None and log.impossible == [] and log.records == 7


def test_the_timeline_of_an_id_has_all_its_records() -> None:
    log = read(*STEPS, record("Y", "Empty", pid=8), names=["X"])
    assert [step.record.state.value for step in log.steps] == ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"]


def test_an_impossible_step_is_reported_unless_records_are_missing_before_it() -> None:
    wrong = record("X", "CompleteAbort", 1)
    log = read(*STEPS[:3], wrong)
    (step,) = log.impossible
    assert step.impossible_after is not None and (step.impossible_after.offset, step.record.offset) == (2, 3)
    holed = read_state_log(0, [*log_of(*STEPS[:3]), *log_of(wrong, offset=5)])
    assert holed.impossible == []


def test_a_step_after_a_decision_that_did_not_count_is_possible() -> None:
    """The append of the commit timed out: its record stands in the log, and the coordinator aborted."""
    aborts = [record("X", "PrepareAbort", 1), record("X", "CompleteAbort", 1)]
    log = read(*STEPS[:3], *aborts, names=["X"])
    assert log.impossible == []
    assert [str(step.note).split(":")[0] for step in log.steps if step.note] == ["follows from an earlier record"]


def test_unknown_kinds_and_versions_are_counted_and_leave_a_doubt() -> None:
    key, value = STEPS[0]
    assert value is not None
    log = read(*STEPS, (b"\0\1abc", b"x"), (key, b"\0\2" + value[2:]))
    assert log.unknown == {"a key of another kind": 1, "a value of version 2": 1}
    assert log.error is None and "not known to this version" in str(log.doubt)
    assert log.ids["X"].state is State.COMPLETE_COMMIT


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ((None, b"x"), "has no key"),
        ((b"\0", b"x"), "cut short"),
        ((transactional_id_key("X"), b"\0\0\0"), "cut short"),
        ((transactional_id_key("X"), struct.pack(">hqhib", 0, 7, 0, 1, 9)), "status of 9"),
        (record("X", "Ongoing", pid=-2), "has producer id -2"),
        (record("X", "Ongoing", partitions=frozenset()), "Ongoing without partitions"),
    ],
)
def test_an_invalid_record_ends_the_known_log(bad: Record, why: str) -> None:
    log = read(*STEPS, bad, record("Y", "Ongoing", pid=8))
    assert why in str(log.error) and "Y" not in log.ids


def test_the_records_of_a_log_grow_with_the_bytes_of_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of 2 GiB could have expanded to more records than can be read in a year."""
    monkeypatch.setattr("txnscan.kafka.protocol.records.NUMBERS_MAX", 100_000)
    one = of_equal_records(10_000, b"\0\1")
    log = read_state_log(0, [one] * 5)
    assert log.error is not None and "for its size" in log.error
    assert 7 * log.records <= 100_000 + 5 * len(one)
    # A log whose records are as long as a coordinator writes them is read to its end.
    monkeypatch.setattr("txnscan.kafka.protocol.records.NUMBERS_MAX", 100)
    assert read_state_log(0, [of_equal_records(1, b"\0\1")] * 1_000).records == 1_000


@given(st.data())
@settings(max_examples=300)
def test_random_damage_is_reported_without_an_exception(draw: st.DataObject) -> None:
    whole = log_of(*STEPS, record("Y", "Ongoing", pid=8))
    which = draw.draw(st.integers(0, len(whole) - 1))
    one = bytearray(whole[which])
    # The checksum does not cover the bytes before the magic byte, which the file walk checks.
    at = draw.draw(st.integers(16, len(one) - 1))
    one[at] ^= draw.draw(st.integers(1, 255))
    log = read_state_log(0, [*whole[:which], bytes(one), *whole[which + 1 :]])
    assert log.error is not None


def test_a_record_is_acknowledged_below_the_high_watermark_of_its_own_leader_epoch() -> None:
    log = StateLog(0, leader_epoch=3, high_watermark=5)
    with Cases() as cases:
        for offset, leader_epoch, known in ((4, 3, True), (5, 3, False), (4, 2, False), (4, -1, False)):
            with cases.case(f"offset {offset}, epoch {leader_epoch}"):
                assert log.is_acknowledged(RawRecord(offset, 0, "X", None, leader_epoch)) == known
    assert not StateLog(0).is_acknowledged(RawRecord(0, 0, "X", None, -1))


# --- the command ---


def directory(tmp_path: Path, count: int = 1, logged: list[Record] | None = None, hanging: bool = True) -> Path:
    """A log directory with one data partition and a transaction log, after a clean shutdown. The old broker has no
    metadata log.
    """
    root = tmp_path / "data"
    root.mkdir()
    (root / "meta.properties").write_text("cluster.id=abc\nbroker.id=1\n")
    log = data(0) + (data(1, sequence=1) if hanging else end(1))
    partition_directory(root, "t-0", {0: log})
    for k in range(count):
        mine = [one for one in logged or STEPS if one[0] and coordinator_partition(one[0][4:].decode(), count) == k]
        partition_directory(root, f"__transaction_state-{k}", {0: b"".join(log_of(*mine))})
    return shut_down(root)


def stopped(count: int = 1) -> list[str]:
    """The options that replace a metadata log."""
    return ["--stopped", "--transaction-log-partitions", str(count)]


def ran(*arguments: str, status: int = 0) -> Any:
    done = CliRunner().invoke(app, [*arguments, "--format", "json"])
    assert done.exit_code == status, done.output
    return json.loads(done.stdout)


OTHER = [record("X", "Empty", 0, pid=99), record("X", "Ongoing", 0, pid=99, partitions=frozenset({("u", 0)}))]


def test_a_broker_without_a_metadata_log_needs_the_stopped_option(tmp_path: Path, wording: SnapshotAssertion) -> None:
    root = str(directory(tmp_path, logged=OTHER))
    (open_one,) = ran("segments", root)["transactions"]
    assert (open_one["verdict"], open_one["reason"], open_one["open_as_of_offset"]) == ("indeterminate", "partition", 1)
    (vouched,) = ran("segments", root, *stopped())["transactions"]
    assert (vouched["verdict"], vouched["reason"], vouched["outcome"]) == ("hanging", "orphan", "unknown")
    # `txnscan abort` would refuse it without an option.
    assert vouched["commands"] == []


@pytest.fixture
def rising(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leader epochs rise at every restart, as by a metadata log with eligible leader replicas."""
    monkeypatch.setattr(Copies, "epochs_rise", True)


@pytest.mark.usefixtures("rising")
def test_kafkas_command_is_shown_for_an_uncommitted_hanging_transaction(
    tmp_path: Path, wording: SnapshotAssertion
) -> None:
    """Data of an epoch without a transaction, which has ended."""
    root = str(directory(tmp_path, logged=[record("X", "Empty", epoch) for epoch in (2, 3, 4, 5)]))
    (one,) = ran("segments", root, *stopped())["transactions"]
    assert (one["verdict"], one["reason"], one["outcome"]) == ("hanging", "stale_epoch", "not_committed")
    proven, kafkas = one["commands"]
    assert proven.startswith("txnscan abort ")
    options = ["--producer-id", "7", "--producer-epoch", "3", "--coordinator-epoch", "0"]
    assert kafkas.startswith("kafka-transactions.sh ") and kafkas.split()[-6:] == options
    said = CliRunner().invoke(app, ["segments", root, *stopped()]).stdout
    assert said.replace(str(tmp_path), "<tmp>") == wording


@pytest.mark.parametrize("command", ["segments", "transaction-log"])
def test_committed_or_unproven_transactions_have_no_abort_command(tmp_path: Path, command: str) -> None:
    """The partition and the transaction log were copied: without a metadata log, no transaction is proven to hang."""
    committed = [record("X", "Empty", 3), record("X", "Ongoing", 3), record("X", "PrepareCommit", 4)]
    root = str(directory(tmp_path, logged=[*committed, record("X", "CompleteCommit", 4, partitions=frozenset())]))
    for options, verdict in (([], "indeterminate"), (stopped(), "hanging")):
        (one,) = ran(command, root, *options)["transactions"]
        assert (one["verdict"], one["commands"]) == (verdict, [])
        assert "$BOOTSTRAP" not in CliRunner().invoke(app, [command, root, *options]).stdout


def test_a_marker_damaged_into_an_older_format_leaves_no_hanging_transaction(
    tmp_path: Path, wording: SnapshotAssertion
) -> None:
    """No checksum covers the byte with the format version of a batch."""
    root = directory(tmp_path, logged=OTHER, hanging=False)
    (log,) = (root / "t-0").glob("*.log")
    damaged = bytearray(log.read_bytes())
    damaged[len(data(0)) + MAGIC_AT] = 1
    log.write_bytes(bytes(damaged))
    (one,) = ran("segments", str(root), *stopped())["transactions"]
    assert one["verdict"] == "indeterminate"
    assert one["explanation"].replace(str(tmp_path), "<tmp>") == wording


@pytest.mark.parametrize("attributes", [b"\0\x31", b"\0\x33", b"\0\x34", b"\0\x20"])
def test_an_invalid_marker_leaves_no_hanging_transaction(tmp_path: Path, attributes: bytes) -> None:
    """Compressed or not transactional: a broker that loads it may accept it as the end."""
    root = directory(tmp_path, logged=OTHER, hanging=False)
    (log,) = (root / "t-0").glob("*.log")
    log.write_bytes(data(0) + changed(end(1), 21, attributes) + data(2, pid=8))
    shut_down(root)
    found = {one["producer_id"]: one for one in ran("segments", str(root), *stopped())["transactions"]}
    assert found[7]["verdict"] == "indeterminate" and "no broker writes" in found[7]["explanation"]
    # A later transaction is not affected.
    assert found[8]["verdict"] == "hanging"


def test_files_of_two_clusters_give_no_hanging_verdict(tmp_path: Path) -> None:
    root = directory(tmp_path, logged=OTHER)
    other = tmp_path / "other"
    other.mkdir()
    (other / "meta.properties").write_text("cluster.id=xyz\nbroker.id=1\n")
    partition_directory(other, "u-0", {0: data(0)})
    told = ran("segments", str(root), str(other), *stopped())
    assert {one["verdict"] for one in told["transactions"]} == {"indeterminate"}
    assert "files of 2 clusters" in told["transactions"][0]["explanation"]


def test_an_owner_is_found_without_proof(tmp_path: Path) -> None:
    root = str(directory(tmp_path, logged=[record("X", "Empty", 3), record("X", "Ongoing", 3)]))
    (held,) = ran("transaction-log", root)["transactions"]
    assert (held["verdict"], held["transactional_id"]) == ("ongoing", "X")


def test_a_pending_decision_is_never_hanging(tmp_path: Path) -> None:
    steps = [record("X", "Empty", 3), record("X", "Ongoing", 3), record("X", "PrepareCommit", 4)]
    root = str(directory(tmp_path, logged=steps))
    (owed,) = ran("segments", root, *stopped())["transactions"]
    assert owed["verdict"] == "pending_marker" and owed["commands"] == []


def test_a_missing_or_damaged_log_partition_leaves_an_orphan_indeterminate(
    tmp_path: Path, wording: SnapshotAssertion
) -> None:
    root = directory(tmp_path, count=3, logged=OTHER)
    damaged = next((root / "__transaction_state-1").glob("*.log"))
    damaged.write_bytes(b"\7" * 80)
    (one,) = ran("segments", str(root), *stopped(3))["transactions"]
    assert (one["verdict"], one["reason"]) == ("indeterminate", "coverage")
    for file in (root / "__transaction_state-1").iterdir():
        file.unlink()
    (root / "__transaction_state-1").rmdir()
    (one,) = ran("segments", str(root), *stopped(3))["transactions"]
    assert one["explanation"] == wording


def test_an_id_in_the_wrong_log_partition_reveals_another_partition_count(
    tmp_path: Path, wording: SnapshotAssertion
) -> None:
    root = directory(tmp_path, count=2, logged=OTHER)
    k = coordinator_partition("X", 2)
    (root / f"__transaction_state-{k}").rename(root / "moved")
    (root / f"__transaction_state-{1 - k}").rename(root / f"__transaction_state-{k}")
    (root / "moved").rename(root / f"__transaction_state-{1 - k}")
    shut_down(root)
    (one,) = ran("segments", str(root), *stopped(2))["transactions"]
    assert one["explanation"] == wording


def test_the_latest_states_and_the_timeline_are_reported(tmp_path: Path, wording: SnapshotAssertion) -> None:
    root = str(directory(tmp_path, logged=[*STEPS, record("X", "CompleteAbort", 1)]))
    told = ran("transaction-log", root, "--transactional-id", "X")
    assert [(one["transactional_id"], one["state"]) for one in told["transactional_ids"]] == [("X", "CompleteAbort")]
    assert [step["state"] for step in told["steps"]][-2:] == ["CompleteCommit", "CompleteAbort"]
    assert len(told["impossible"]) == 1
    said = CliRunner().invoke(app, ["transaction-log", root, "--transactional-id", "X"]).stdout
    assert said.replace(str(tmp_path), "<tmp>") == wording


def test_the_outcome_of_a_producer_id_and_epoch_comes_from_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(directory(tmp_path, logged=[*STEPS, record("X", "Ongoing", 1, partitions=frozenset({("u", 0)}))]))
    # Outside KRaft mode a leader may restart at the same leader epoch.
    for rise, absent in ((None, "unknown"), (True, "not_committed")):
        if rise is not None:
            monkeypatch.setattr(Copies, "epochs_rise", rise)
        told = ran("transaction-log", root, *stopped(), "--producer-id", "7", "--producer-epoch", "0")
        assert [(one["topic"], one["outcome"]) for one in told["outcomes"]] == [("t", "committed"), ("u", absent)]
    # These files alone do not show whether the log is complete.
    unknown = ran("transaction-log", root, "--producer-id", "7", "--producer-epoch", "0")
    assert {one["outcome"] for one in unknown["outcomes"]} <= {"unknown", "maybe_committed"}


@pytest.mark.usefixtures("rising")
def test_a_log_still_being_written_proves_no_outcome(tmp_path: Path) -> None:
    root = directory(tmp_path, logged=[*STEPS, record("X", "Ongoing", 1, partitions=frozenset({("u", 0)}))])

    def stops(stage: str, done: int, total: int) -> None:
        if stage == "judge":
            (root / ".kafka_cleanshutdown").unlink()

    for progress, expected in ((lambda *_: None, "not_committed"), (stops, "maybe_committed")):
        read = read_paths(
            [str(root)], late_after_ms=0, vouched=True, log_partitions=1, producer=(7, 0), progress=progress
        )
        assert read.changing == (expected == "maybe_committed")
        assert {key: known.outcome.value for key, known in read.outcomes}["u", 0] == expected


def test_ids_in_prepare_for_long_are_reported(tmp_path: Path, wording: SnapshotAssertion) -> None:
    root = str(directory(tmp_path, logged=STEPS[:3]))
    read = read_paths([root], late_after_ms=1)
    assert read.logs[0].ids["X"].state is State.PREPARE_COMMIT
    later = record("Y", "Empty", pid=8)
    value = bytearray(later[1] or b"")
    (tmp_path / "more").mkdir()
    root = str(
        directory(
            tmp_path / "more",
            logged=[
                *STEPS[:3],
                (later[0], bytes(value).replace(struct.pack(">q", MS), struct.pack(">q", MS + 3_600_000))),
            ],
        )
    )
    said = CliRunner().invoke(app, ["transaction-log", root]).stdout
    assert "for 1 h" in said
    assert said.replace(str(tmp_path), "<tmp>") == wording


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["transaction-log"], "give brokers to ask, or files to read as PATH"),
        (["segments"], "argument"),
        (["segments", "/absent/path"], "no such file"),
        (["transaction-log", "ROOT", "--transactional-id", "absent"], "no record of 'absent'"),
        (["transaction-log", "ROOT", "--producer-id", "5"], "no record with producer id 5"),
        (["transaction-log", "ROOT", "--producer-epoch", "5"], "is an epoch of --producer-id"),
        (["segments", "ROOT", "--late-after", "15"], "--late-after"),
    ],
)
def test_an_invalid_request_is_a_usage_error_in_one_line(tmp_path: Path, arguments: list[str], why: str) -> None:
    root = str(directory(tmp_path))
    done = CliRunner().invoke(app, [root if word == "ROOT" else word for word in arguments])
    assert done.exit_code == 2 and why in done.stderr and done.stderr.count("\n") == 1


# --- random damage ----------------------------------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=150)
def test_damage_never_creates_a_hanging_transaction(tmp_path_factory: Any, draw: st.DataObject) -> None:
    """One live and one finished transaction: no damage makes a transaction hanging."""
    tmp_path = tmp_path_factory.mktemp("damaged")
    owned = [record("X", "Empty", 3), record("X", "Ongoing", 3)]
    root = directory(tmp_path, logged=owned)
    partition_directory(root, "u-0", {0: data(0, 8) + end(1, 8)})
    shut_down(root)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    path = draw.draw(st.sampled_from(files))
    content = bytearray(path.read_bytes())
    if draw.draw(st.booleans()):
        del content[draw.draw(st.integers(0, len(content))) :]
    for _ in range(draw.draw(st.integers(0, 3)) if content else 0):
        content[draw.draw(st.integers(0, len(content) - 1))] = draw.draw(st.integers(0, 255))
    path.write_bytes(bytes(content))
    for one in read_paths([str(root)], late_after_ms=0).transactions:
        assert one.judged.judgement.verdict.value != "hanging"
    for one in read_paths([str(root)], late_after_ms=0, vouched=True, log_partitions=1).transactions:
        assert one.judged.judgement.verdict.value != "hanging", one
