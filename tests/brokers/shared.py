"""A real cluster of three brokers, shared by every test that does not change brokers.

It has a listener for each way to connect, an authorizer, and the demo's transactions. The topics, ids and groups of a
test have a prefix of its own, and it sweeps its own topics. Tests that stop or change brokers start their own.

| listener | protocol | who connects |
|---|---|---|
| PLAINTEXT | PLAINTEXT | anyone, with full access |
| SSL | SSL | `alice`, with a client certificate and full access |
| SASL_PLAINTEXT | SASL_PLAINTEXT | `alice`, PLAIN |
| SASL_SSL | SASL_SSL | `alice`, SCRAM-SHA-256 and -512 |
| OAUTH | SASL_PLAINTEXT | `me`, with a token and full access |
| ACLS | SASL_SSL | the principals of `principals.py`, PLAIN |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kafka.protocol.admin import IncrementalAlterConfigsRequest

from tests.brokers.principals import PASSWORD as PRINCIPALS_PASSWORD
from tests.brokers.principals import USERS
from txnscan import ScanConfig
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.plant import TornCommit, torn_commits
from txnscan.demo.requests import Wire
from txnscan.demo.story import Scene, plant_beside

if TYPE_CHECKING:
    import trustme

PASSWORD = "al1ce-S3cret"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
LISTENERS = {
    "SSL": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "OAUTH": "SASL_PLAINTEXT",
    "ACLS": "SASL_SSL",
}
# The topics with the demo's open transactions.
SCENE_TOPICS = ("payments-solo", "clicks", "sensors", "shipments", "invoices", "backfill")
# Torn commits for the tests of resolving. A broker stops for them, so all are planted at once.
KEPT, LOST = "kept", "lost"


@dataclass(frozen=True)
class Shared:
    """The cluster, the demo's scene on it, and two further torn commits.

    wire: connections with full access. directory: its certificates. authority: their signer.
    """

    cluster: KafkaCluster
    wire: Wire
    scene: Scene
    kept: TornCommit
    lost: TornCommit
    directory: Path
    authority: trustme.CA

    @property
    def bootstrap_servers(self) -> str:
        """For clients without security settings."""
        return self.cluster.bootstrap_servers

    def of_scene(self, **changes: object) -> ScanConfig:
        """Settings of a sweep of the demo's transactions only."""
        return ScanConfig(self.bootstrap_servers, topic_names=SCENE_TOPICS, **changes)  # type: ignore[arg-type]


@contextmanager
def shared_cluster(directory: Path) -> Iterator[Shared]:
    """Starts it and plants the shared transactions. The last broker is restarted meanwhile."""
    import trustme

    authority = trustme.CA()
    cluster = started_by(directory, authority)
    with cluster, cluster.wire() as wire:
        torn, kept, lost = torn_commits(cluster, "payments", KEPT, LOST)
        yield Shared(cluster, wire, plant_beside(wire, torn), kept, lost, directory, authority)


def started_by(
    directory: Path, authority: trustme.CA, *, brokers: int = 3, properties: Mapping[str, str] | None = None
) -> KafkaCluster:
    """Brokers with all listeners, with certificates signed by this authority. The caller starts it."""
    server = authority.issue_cert("127.0.0.1")
    (directory / "ca.pem").write_bytes(authority.cert_pem.bytes())
    tls = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": b"".join(blob.bytes() for blob in server.cert_chain_pems).decode(),
        "ssl.keystore.key": pkcs8(server.private_key_pem.bytes()),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.cert_pem.bytes().decode(),
    }
    return KafkaCluster(
        directory / "cluster",
        brokers=brokers,
        properties={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:alice;User:me",
            **{
                f"listener.name.{listener}.{key}": value
                for listener in ("ssl", "sasl_ssl", "acls")
                for key, value in tls.items()
            },
            "listener.name.ssl.ssl.client.auth": "required",
            # Every certificate of the authority belongs to alice.
            "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^.*$/alice/",
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": _logins({"alice": PASSWORD}),
            "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.oauth.oauthbearer.sasl.jaas.config": (
                f'{OAUTH} required unsecuredLoginStringClaim_sub="broker";'
            ),
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
            "listener.name.acls.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.acls.plain.sasl.jaas.config": _logins(dict.fromkeys(USERS, PRINCIPALS_PASSWORD)),
            **(properties or {}),
        },
        listeners=LISTENERS,
        add_scram=[f"SCRAM-SHA-{bits}=[name=alice,password={PASSWORD}]" for bits in (256, 512)],
    )


def _logins(passwords: Mapping[str, str]) -> str:
    users: Iterable[str] = (f'user_{user}="{password}"' for user, password in passwords.items())
    return f"{PLAIN} required {' '.join(users)};"


def pkcs8(key_pem: bytes) -> str:
    """The private key in the only format that Kafka reads."""
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(key_pem, password=None)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return key.private_bytes(*form).decode()


def set_topic(wire: Wire, topic: str, name: str, value: str) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(name=name, config_operation=0, value=value)
    request = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=2, resource_name=topic, configs=[config])]
    )
    assert wire.send(wire.any_broker(), request).responses[0].error_code == 0


def at_stage(stage: str, act: Callable[[], object]) -> Callable[[str, int, int], None]:
    """A progress callback that acts once, when this stage begins."""
    waiting = [act]

    def progress(now: str, done: int, total: int) -> None:
        if now == stage and waiting:
            waiting.pop()()

    return progress


# The demo's transactions, in order: verdict, reason, late.
EXPECTED = {
    "payments-solo-0": ("hanging", "missed_commit", True),
    "clicks-0": ("hanging", "orphan", True),
    "sensors-0": ("hanging", "orphan", False),
    "shipments-0": ("hanging", "stale_epoch", True),
    "invoices-1": ("hanging", "live_epoch", True),
    "backfill-0": ("ongoing", "owned", False),
    # The live epoch's owner has added its other partition.
    "invoices-0": ("ongoing", "owned", False),
}


AT_SCENE = tuple(word for topic in SCENE_TOPICS for word in ("--topic", topic))
