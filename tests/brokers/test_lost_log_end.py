"""A commit whose records the only replica of `__transaction_state` lost is never called "not committed".

A transaction commits while the only replica of one of its partitions is down, so that this partition lacks its marker
(`plant.committed_but_hanging`). The machine of its coordinator crashes, and the unflushed end of the log is gone. The
coordinator continues from before the transaction. The application restarts, and gets the next epoch.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.prove.disks import lose_end
from txnscan import ScanConfig, find_hanging, sweep
from txnscan.demo import plant
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.producer import Producer
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC
from txnscan.verdict import outcome
from txnscan.verdict.evidence import Judged, Outcome, Unproven, Verdict

_PARTITIONS = 10
_SETTINGS = {
    "transaction.state.log.num.partitions": str(_PARTITIONS),
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


def test_a_commit_that_the_log_lost_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with KafkaCluster(tmp_path, properties=_SETTINGS) as cluster, cluster.wire() as wire:
        hanging = plant.committed_but_hanging(cluster).hanging
        name, coordinator = hanging.transactional_id or "", cluster.broker_ids[0]
        k = coordinator_partition(name, _PARTITIONS)
        before = _found(cluster, hanging.topic)
        assert (before.outcome, before.known_outcome and before.known_outcome.unproven) == ("committed", None)
        cluster.kill_broker(coordinator)
        cluster.wait_for_leader(TRANSACTION_STATE_TOPIC, k, -1)
        # The first batch begins the only id of this partition.
        lose_end(cluster, coordinator, (TRANSACTION_STATE_TOPIC, k), 1)
        cluster.start_broker(coordinator)
        cluster.wait_for_leader(TRANSACTION_STATE_TOPIC, k, coordinator)
        Producer(wire, name).init_producer_id()

        after = _found(cluster, hanging.topic)
        assert (after.judgement.verdict, after.outcome) == (Verdict.HANGING, Outcome.UNKNOWN)
        assert after.known_outcome is not None and after.known_outcome.unproven is Unproven.ELECTION
        monkeypatch.setattr(outcome, "election_of", lambda logged, o: None)
        assert _found(cluster, hanging.topic).outcome == Outcome.NOT_COMMITTED, "the rule is what shows it"

        # From its second sweep on, an incident's producer is looked for on all partitions: another one has its marker.
        config = ScanConfig(cluster.bootstrap_servers, tables=str(tmp_path / "tables"), engine="threads")
        outcomes = [_swept(config, hanging.topic) for _ in range(2)]
        assert outcomes == [Outcome.NOT_COMMITTED, Outcome.MAYBE_COMMITTED]
        monkeypatch.undo()
        assert _swept(config, hanging.topic) == Outcome.MAYBE_COMMITTED


def _swept(config: ScanConfig, topic: str) -> str | None:
    (judged,) = [one for one in sweep(None, config).scan.transactions if one.observation.topic == topic]
    return judged.outcome


def _found(cluster: KafkaCluster, topic: str) -> Judged:
    scan = find_hanging(ScanConfig(cluster.bootstrap_servers, topic_names=(topic,)))
    (judged,) = scan.transactions
    return judged
