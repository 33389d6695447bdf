"""Brokers with an authorizer."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from kafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

from tests.brokers.principals import OFFSETS, PASSWORD, Acl
from tests.brokers.shared import PLAIN
from txnscan import ScanConfig, find_hanging
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.jars import java
from txnscan.demo.node import java_command
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.kafka.clock import wall_clock_ms
from txnscan.sweeps.preflight import Checked, check
from txnscan.sweeps.result import Scan


@dataclass(frozen=True)
class Locked:
    """Brokers with an authorizer, and a listener for principals. Connections without security have full access.

    topics: the swept topics, which are the planted ones and the offsets.
    """

    cluster: KafkaCluster
    wire: Wire
    directory: Path
    topics: tuple[str, ...] = ("acl-.*", OFFSETS)

    def add(self, user: str, *acls: Acl) -> tuple[Acl, ...]:
        """Creates these rules, waits until the broker has them, and returns them with their principal."""
        rules = tuple(acl if acl.principal else replace(acl, principal=f"User:{user}") for acl in acls)
        creations = [CreateAclsRequest.AclCreation(**rule.fields) for rule in rules]
        results = self.wire.send(1, CreateAclsRequest(creations=creations)).results
        assert [result.error_code for result in results] == [0] * len(rules)
        wait_until(lambda: all(map(self.stands, rules)), "the rules stood")
        return rules

    def remove(self, *rules: Acl) -> None:
        """Removes these rules, and waits until they are gone."""
        filters = [DeleteAclsRequest.DeleteAclsFilter(**rule.filter) for rule in rules]
        results = self.wire.send(1, DeleteAclsRequest(filters=filters)).filter_results
        assert [result.error_code for result in results] == [0] * len(rules)
        wait_until(lambda: all(map(self.stands_nowhere, rules)), "the rules were gone")

    def stands(self, rule: Acl) -> bool:
        """Whether every broker has the rule."""
        return all(self._has(broker_id, rule) for broker_id in self.cluster.broker_ids)

    def stands_nowhere(self, rule: Acl) -> bool:
        """Whether no broker has the rule."""
        return not any(self._has(broker_id, rule) for broker_id in self.cluster.broker_ids)

    def _has(self, broker_id: int, rule: Acl) -> bool:
        return bool(self.wire.send(broker_id, DescribeAclsRequest(**rule.filter)).resources)

    def swept(self, user: str, progress: Callable[[str, int, int], None] = lambda *_: None) -> Scan:
        return find_hanging(self.config(user), progress=progress)

    def checked(self, user: str, *, applies: bool = False) -> Checked:
        return check(
            self.config(user),
            now_ms=wall_clock_ms,
            sweep_id="check",
            check_tables=lambda _: pytest.fail("no tables"),
            applies=applies,
        )

    def config(self, user: str) -> ScanConfig:
        config = self.directory / f"{user}.properties"
        login = f'{PLAIN} required username="{user}" password="{PASSWORD}";'
        config.write_text(
            "security.protocol=SASL_SSL\nssl.truststore.type=PEM\n"
            f"ssl.truststore.location={self.directory}/ca.pem\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n"
        )
        servers = self.cluster.bootstrap_servers_of("ACLS")
        return ScanConfig(servers, command_config=str(config), topic=self.topics)

    def run(self, command: str) -> None:
        """Runs Kafka's own tool, as an administrator who answers yes."""
        arguments = ["--bootstrap-server", self.cluster.bootstrap_servers, "--force", *shlex.split(command)]
        tool = "org.apache.kafka.tools.AclCommand"
        line = java_command(java(), self.cluster.jars, self.directory, tool, arguments, log_level="WARN")
        ran = subprocess.run(line, capture_output=True, text=True, timeout=600, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
