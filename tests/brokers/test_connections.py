"""Sweeps over TLS and SASL, with Kafka's client.properties, on a real broker, without leaking secrets."""

from __future__ import annotations

import base64
import json
import logging
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest
from typer.testing import CliRunner

from tests.brokers.shared import OAUTH, PASSWORD, PLAIN, SCRAM, Shared
from tests.cases import Cases
from tests.process import ROOT, run, run_to_end
from txnscan import ScanConfig, find_hanging, sweep
from txnscan.cli.app import app
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.node import CLIENT_LISTENER
from txnscan.demo.plant import orphan
from txnscan.engine.spark.java import find_java

if TYPE_CHECKING:
    import trustme
    from pyspark.sql import SparkSession
    from syrupy.assertion import SnapshotAssertion


@dataclass(frozen=True)
class Secured:
    """The shared brokers, and a client.properties for each way to connect."""

    cluster: KafkaCluster
    directory: Path
    authority: trustme.CA

    def properties(self, name: str) -> str:
        return str(self.directory / f"{name}.properties")


TOPIC = "connections-clicks"


@pytest.fixture(scope="module")
def secured(shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> Secured:
    directory = tmp_path_factory.mktemp("secured")
    _write_client_properties(directory, shared.authority, shared.authority.cert_pem.bytes().decode())
    orphan(shared.wire, TOPIC)
    return Secured(shared.cluster, directory, shared.authority)


def _write_client_properties(directory: Path, authority: trustme.CA, authority_pem: str) -> None:
    client = authority.issue_cert("alice@example.org")
    (directory / "ca.pem").write_text(authority_pem)
    chain = b"".join(blob.bytes() for blob in client.cert_chain_pems).decode()
    inline = (chain + client.private_key_pem.bytes().decode()).split("-----BEGIN")
    assert len(inline) > 2

    def continued(pem: str) -> str:
        return pem.strip().replace("\n", "\\n")

    trust = f"ssl.truststore.type=PEM\nssl.truststore.location={directory}/ca.pem\n"
    login = f'required username="alice" password="{PASSWORD}";'
    (directory / "ssl.properties").write_text(
        f"security.protocol=SSL\n{trust}ssl.keystore.type=PEM\n"
        f"ssl.keystore.certificate.chain={continued(chain)}\n"
        f"ssl.keystore.key={continued(client.private_key_pem.bytes().decode())}\n"
    )
    (directory / "plain.properties").write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN} {login}\n"
    )
    for bits in (256, 512):
        (directory / f"scram-{bits}.properties").write_text(
            f"security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-{bits}\n{trust}sasl.jaas.config={SCRAM} {login}\n"
        )
    wrong = (directory / "scram-512.properties").read_text().replace(PASSWORD, PASSWORD + "-wrong")
    (directory / "wrong-password.properties").write_text(wrong)
    (directory / "scram-for-plain.properties").write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={SCRAM} {login}\n"
    )
    (directory / "no-certificate.properties").write_text(f"security.protocol=SSL\n{trust}")
    (directory / "no-trust.properties").write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={SCRAM} {login}\n"
    )
    for path in directory.glob("*.properties"):
        path.chmod(0o600)


# The client.properties, the listener, and the setting named in the error: every mismatching pair.
MISMATCHES: list[tuple[str | None, str, tuple[str, ...]]] = [
    (None, "SSL", ("security.protocol=SSL",)),
    (None, "SASL_PLAINTEXT", ("security.protocol=SASL_PLAINTEXT", "PLAIN")),
    (None, "SASL_SSL", ("security.protocol=SASL_SSL", "SCRAM-SHA-256", "SCRAM-SHA-512")),
    ("ssl", CLIENT_LISTENER, ("security.protocol=PLAINTEXT",)),
    ("ssl", "SASL_PLAINTEXT", ("security.protocol=SASL_PLAINTEXT", "PLAIN")),
    ("ssl", "SASL_SSL", ("security.protocol=SASL_SSL", "SCRAM-SHA-256", "SCRAM-SHA-512")),
    ("plain", CLIENT_LISTENER, ("security.protocol=PLAINTEXT",)),
    ("plain", "SSL", ("security.protocol=SSL",)),
    ("plain", "SASL_SSL", ("security.protocol=SASL_SSL", "SCRAM-SHA-256", "SCRAM-SHA-512")),
    ("scram-512", CLIENT_LISTENER, ("security.protocol=PLAINTEXT",)),
    ("scram-512", "SSL", ("security.protocol=SSL",)),
    ("scram-512", "SASL_PLAINTEXT", ("security.protocol=SASL_PLAINTEXT", "PLAIN")),
    ("scram-for-plain", "SASL_PLAINTEXT", ("sasl.mechanism=SCRAM-SHA-512", "PLAIN")),
    ("no-certificate", "SSL", ("ssl.keystore.type=PEM", "ssl.keystore.location")),
    ("no-trust", "SASL_SSL", ("ssl.truststore.type=PEM", "ssl.truststore.location")),
]


def test_settings_that_do_not_fit_a_listener_are_reported_with_those_that_do(
    secured: Secured, wording: SnapshotAssertion
) -> None:
    sentences = {}
    cases = Cases()
    for name, listener, named in MISMATCHES:
        servers, *_ = secured.cluster.bootstrap_servers_of(listener).split(",")
        options = ["--command-config", secured.properties(name)] if name is not None else []
        ran = CliRunner().invoke(app, ["find-hanging", "--bootstrap-server", servers, *options])
        with cases.case(f"{name} at {listener}"):
            assert (ran.exit_code, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)
            assert all(setting in ran.stderr for setting in named)
            assert PASSWORD not in ran.stderr
        sentences[f"{name} at {listener}"] = ran.stderr.replace(servers, "<servers>")
    cases.check()
    assert sentences == wording


@pytest.mark.parametrize(
    ("name", "listener"),
    [("ssl", "SSL"), ("plain", "SASL_PLAINTEXT"), ("scram-256", "SASL_SSL"), ("scram-512", "SASL_SSL")],
)
def test_find_hanging_connects_with_client_properties(secured: Secured, name: str, listener: str) -> None:
    servers = secured.cluster.bootstrap_servers_of(listener)
    options = ("--command-config", secured.properties(name), "--topic", TOPIC, "--format", "json")
    ran = run("find-hanging", "--bootstrap-server", servers, *options)
    assert (ran.returncode, ran.stderr) == (0, "")
    found = json.loads(ran.stdout)
    assert found["sweep"]["partitions"]["failed"] == 0
    assert [(t["topic"], t["verdict"], t["reason"]) for t in found["transactions"]] == [(TOPIC, "hanging", "orphan")]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("wrong-password", "credentials"),
        ("no-trust", "not trusted"),
        ("missing", "--command-config"),
    ],
)
def test_a_refused_connection_is_one_line_without_the_secret(secured: Secured, name: str, says: str) -> None:
    servers = secured.cluster.bootstrap_servers_of("SASL_SSL")
    ran = run("find-hanging", "--bootstrap-server", servers, "--command-config", secured.properties(name))
    assert ran.returncode in (1, 2) and ran.stdout == ""
    assert says in ran.stderr and ran.stderr.count("\n") == 1
    assert PASSWORD not in ran.stderr


def test_executors_get_credentials_with_their_task_and_secrets_are_not_stored(
    secured: Secured, spark: SparkSession, location: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config_file = tmp_path / "client.properties"
    config_file.write_text(Path(secured.properties("scram-512")).read_text())
    config = ScanConfig(
        secured.cluster.bootstrap_servers_of("SASL_SSL"),
        command_config=str(config_file),
        tables=location,
        topic=(TOPIC,),
    )

    def gone(stage: str, done: int, total: int) -> None:
        # From now on no file has the credentials.
        if stage == "plan":
            config_file.unlink(missing_ok=True)

    with caplog.at_level(logging.DEBUG):
        result = sweep(spark, config, progress=gone)
    assert result.summary["partitions"]["failed"] == 0
    assert [row["topic"] for row in result.transactions.collect()] == [TOPIC]
    stored = b"".join(path.read_bytes() for path in Path(location).rglob("*") if path.is_file())
    assert PASSWORD.encode() not in stored
    assert PASSWORD not in caplog.text
    assert PASSWORD not in repr(config) and PASSWORD not in repr(config.__class__)
    settings = " ".join(f"{key}={value}" for key, value in spark.sparkContext.getConf().getAll())
    assert PASSWORD not in settings


def test_a_password_is_in_no_debug_log(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    servers = secured.cluster.bootstrap_servers_of("SASL_PLAINTEXT")
    with caplog.at_level(logging.DEBUG):
        find_hanging(ScanConfig(servers, command_config=secured.properties("plain")))
    assert "kafka" in caplog.text
    assert PASSWORD not in caplog.text


def test_a_world_readable_file_with_secrets_causes_a_warning(
    secured: Secured, tmp_path: Path, wording: SnapshotAssertion
) -> None:
    readable = tmp_path / "client.properties"
    readable.write_text(Path(secured.properties("plain")).read_text())
    readable.chmod(0o644)
    servers = secured.cluster.bootstrap_servers_of("SASL_PLAINTEXT")
    ran = run("find-hanging", "--bootstrap-server", servers, "--command-config", str(readable))
    assert ran.returncode == 0
    assert ran.stderr.startswith("warning: --command-config: ") and ran.stderr.count("\n") == 1
    assert ran.stderr.replace(str(readable), "<file>") == wording


def test_other_processes_cannot_see_the_secret(secured: Secured) -> None:
    """The command line and the environment of a process are visible to other users, and have no secret."""
    code = (
        "import sys, pathlib; from txnscan import ScanConfig, find_hanging\n"
        "find_hanging(ScanConfig(sys.argv[1], command_config=sys.argv[2]), progress=lambda *_: print(\n"
        "    pathlib.Path('/proc/self/environ').read_bytes() + pathlib.Path('/proc/self/cmdline').read_bytes()))"
    )
    servers = secured.cluster.bootstrap_servers_of("SASL_SSL")
    ran = subprocess.run(
        [sys.executable, "-c", code, servers, secured.properties("scram-512")],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ran.stdout and PASSWORD not in ran.stdout


# --- Java key stores, tokens ------------------------------------------------------------------------------------------


def keytool(*words: str) -> None:
    tool = find_java().with_name("keytool")
    assert run_to_end([str(tool), *words]).returncode == 0


@pytest.mark.parametrize(("kind", "key_password"), [("PKCS12", None), ("JKS", None), ("JKS", "of-the-key-alone")])
def test_key_stores_of_keytool_connect_with_a_client_certificate(
    secured: Secured, tmp_path: Path, kind: str, key_password: str | None
) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    client = secured.authority.issue_cert("bob@example.org")
    (tmp_path / "ca.pem").write_bytes(secured.authority.cert_pem.bytes())
    (tmp_path / "both.pem").write_bytes(
        client.private_key_pem.bytes() + b"".join(blob.bytes() for blob in client.cert_chain_pems)
    )
    store = ("-storetype", kind, "-storepass", PASSWORD, "-noprompt")
    keytool(
        "-importcert", "-alias", "ca", "-file", f"{tmp_path}/ca.pem", "-keystore", f"{tmp_path}/trust.store", *store
    )
    key = serialization.load_pem_private_key(client.private_key_pem.bytes(), None)
    chain = [x509.load_pem_x509_certificate(blob.bytes()) for blob in client.cert_chain_pems]
    data = pkcs12.serialize_key_and_certificates(
        b"bob",
        key,  # type: ignore[arg-type]
        chain[0],
        chain[1:],
        serialization.BestAvailableEncryption(PASSWORD.encode()),
    )
    (tmp_path / "openssl.p12").write_bytes(data)
    # As written by Java.
    source = ("-srckeystore", f"{tmp_path}/openssl.p12", "-srcstoretype", "PKCS12", "-srcstorepass", PASSWORD)
    to = ["-destkeystore", f"{tmp_path}/key.store", "-deststoretype", kind, "-deststorepass", PASSWORD]
    to += ["-srcalias", "bob", "-destkeypass", key_password] if key_password is not None else []
    keytool("-importkeystore", *source, *to, "-noprompt")
    (tmp_path / "key.store").chmod(0o600)
    settings = tmp_path / "client.properties"
    settings.write_text(
        f"security.protocol=SSL\nssl.truststore.location={tmp_path}/trust.store\nssl.truststore.password={PASSWORD}\n"
        f"ssl.keystore.location={tmp_path}/key.store\nssl.keystore.password={PASSWORD}\nssl.keystore.type={kind}\n"
        + (f"ssl.key.password={key_password}\n" if key_password is not None else "")
    )
    settings.chmod(0o600)
    servers = secured.cluster.bootstrap_servers_of("SSL")
    ran = run("describe-producers", "--topic", TOPIC, "--bootstrap-server", servers, "--command-config", str(settings))
    assert (ran.returncode, ran.stderr) == (0, "") and f"{TOPIC}-0" in ran.stdout


class TokenServer(BaseHTTPRequestHandler):
    """Issues an unsecured token for the password, and records the requests."""

    asked: ClassVar[list[tuple[str, str]]] = []

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        said = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        TokenServer.asked.append((form, said))
        if said != f"me:{PASSWORD}":
            self.send_response(401)
            self.end_headers()
            return
        now_s = int(time.time())
        claims = {"sub": "me", "iat": now_s, "exp": now_s + 3_600}
        parts = ({"alg": "none"}, claims)
        token = ".".join(base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=").decode() for p in parts) + "."
        body = json.dumps({"access_token": token, "expires_in": 3_600, "token_type": "Bearer"}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """No output on stderr."""


@pytest.mark.parametrize("secret", [PASSWORD, "wrong"])
def test_client_credentials_get_an_accepted_token(secured: Secured, tmp_path: Path, secret: str) -> None:
    TokenServer.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), TokenServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings = tmp_path / "client.properties"
    settings.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url=http://127.0.0.1:{server.server_port}/token\n"
        f'sasl.jaas.config={OAUTH} required clientId="me" clientSecret="{secret}" scope="kafka";\n'
    )
    settings.chmod(0o600)
    servers = secured.cluster.bootstrap_servers_of("OAUTH")
    try:
        ran = run(
            "describe-producers", "--topic", TOPIC, "--bootstrap-server", servers, "--command-config", str(settings)
        )
    finally:
        server.shutdown()
    assert TokenServer.asked[0] == ("grant_type=client_credentials&scope=kafka", f"me:{secret}")
    if secret == PASSWORD:
        # One token for all connections.
        assert (ran.returncode, len(TokenServer.asked), ran.stderr) == (0, 1, "") and f"{TOPIC}-0" in ran.stdout
    else:
        assert ran.returncode == 1 and ran.stderr.count("\n") == 1
        assert "HTTP status 401" in ran.stderr
        assert PASSWORD not in ran.stderr and "wrong" not in ran.stderr
