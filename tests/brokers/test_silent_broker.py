"""A broker that does not answer takes the proof from nothing that it does not lead: the controllers are asked."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import pytest

from txnscan import ScanConfig, find_hanging
from txnscan.coordinators import quorum
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.producer import PRODUCE_V1, Producer
from txnscan.kafka.protocol.describe_quorum import describe_quorum
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC
from txnscan.verdict.evidence import Verdict

_SETTINGS = MappingProxyType(
    {
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.partition.verification.enable": "false",
        # It is not fenced while the test runs.
        "broker.session.timeout.ms": "600000",
    }
)


def test_what_hangs_is_proven_although_a_broker_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with KafkaCluster(tmp_path, properties=_SETTINGS) as cluster, cluster.wire() as wire:
        Producer(wire, "somebody").init_producer_id()
        coordinator = wire.partition(TRANSACTION_STATE_TOPIC, 0).leader
        active = describe_quorum(wire.send, coordinator).leader
        # The active controller answers, so that no other is elected.
        silent = next(b for b in cluster.broker_ids if b not in (coordinator, active))
        create_topic(wire, "there", [[silent]])
        create_topic(wire, "hangs", [[coordinator]])
        late = Producer(wire, v2=False)
        late.init_producer_id()
        late.produce("hangs", 0, [b"late"], version=PRODUCE_V1)
        cluster.pause_broker(silent)
        settings = tmp_path / "client.properties"
        settings.write_text("request.timeout.ms=2000\n")
        config = ScanConfig(cluster.bootstrap_servers, command_config=str(settings))
        found = find_hanging(config)
        (judged,) = found.transactions
        assert (judged.observation.topic, judged.observation.producer_id) == ("hangs", late.known.producer_id)
        assert judged.judgement.verdict is Verdict.HANGING
        assert not found.complete
        assert silent in {error.broker for error in found.errors}
        monkeypatch.setattr(quorum, "led_still", lambda first, second: False)
        (unproven,) = find_hanging(config).transactions
        assert unproven.judgement.verdict is Verdict.INDETERMINATE, "the quorum is what shows it"
