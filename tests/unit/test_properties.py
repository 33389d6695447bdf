"""Kafka's client.properties: interpreted as by Java clients, or refused by key, without secrets in errors."""

from __future__ import annotations

import hashlib
import importlib.util
import pickle
import re
import ssl
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import ModuleSpec
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import javaproperties
import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st
from kafka.net.sasl import get_sasl_mechanism

from tests.cases import Cases
from tests.process import run_to_end
from txnscan.config import ConfigError, ScanConfig
from txnscan.demo.jars import kafka_jars
from txnscan.engine.spark.java import find_java
from txnscan.kafka.client.client_configs import ADMIN, KNOWN, PRODUCER_AND_CONSUMER, nearest
from txnscan.kafka.client.configuration import configuration
from txnscan.kafka.client.connection import ConnectionSettings, TlsSettings
from txnscan.kafka.client.properties import PropertiesError, connection_settings, properties_warnings, read_properties
from txnscan.kafka.security import jks, providers
from txnscan.kafka.security.oauth import TokenFailed

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

SECRET = "s3cr3t-Ä-marker"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
JAAS = f'{PLAIN_MODULE} required username="alice" password="{SECRET}";'
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": JAAS}
CA = trustme.CA()
LEAF = CA.issue_cert("client.test")
OTHER = CA.issue_cert("other.test")
CA_PEM = CA.cert_pem.bytes().decode()
CHAIN_PEM = "".join(blob.bytes().decode() for blob in LEAF.cert_chain_pems)
KEY_PEM = LEAF.private_key_pem.bytes().decode()
OTHER_KEY_PEM = OTHER.private_key_pem.bytes().decode()


def encrypted(key_pem: str, password: str) -> str:
    key = serialization.load_pem_private_key(key_pem.encode(), None)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password.encode()),
    ).decode()


LOCKED_KEY_PEM = encrypted(KEY_PEM, SECRET)
TRUST = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.certificates": CA_PEM}
MUTUAL = {
    **TRUST,
    "ssl.keystore.type": "PEM",
    "ssl.keystore.certificate.chain": CHAIN_PEM,
    "ssl.keystore.key": KEY_PEM,
}


def refused(properties: dict[str, str]) -> str:
    with pytest.raises(PropertiesError) as error:
        connection_settings(properties)
    return str(error.value)


def test_without_a_security_protocol_the_connection_is_plaintext() -> None:
    assert connection_settings({"bootstrap.servers": "x:1", "acks": "all"}) == ConnectionSettings()


def test_client_id_and_timeouts_are_used() -> None:
    found = connection_settings(
        {"client.id": "me", "request.timeout.ms": "7000", "socket.connection.setup.timeout.ms": "300"}
    )
    assert (found.client_id, found.request_timeout_ms, found.connection_setup_timeout_ms) == ("me", 7000, 300)


def test_a_timeout_is_a_positive_number_of_milliseconds(wording: SnapshotAssertion) -> None:
    sentences = {}
    with Cases() as cases:
        for key in ("request.timeout.ms", "socket.connection.setup.timeout.ms"):
            for text in ("0", "-1", "1.5", "ten", "", "2147483648", "1e3"):
                with cases.case(f"{key}={text}") as name:
                    sentence = refused({key: text})
                    assert sentence.startswith(f"{key} ")
                    sentences[name] = sentence
    assert sentences == wording


# --- TLS --------------------------------------------------------------------------------------------------------------


def test_ssl_without_a_trust_store_uses_the_system_authorities_and_checks_the_host_name() -> None:
    tls = connection_settings({"security.protocol": "ssl"}).tls
    assert tls == TlsSettings()
    assert tls.context().verify_mode is ssl.CERT_REQUIRED and tls.context().check_hostname


def test_pem_by_file_and_pem_inline_give_the_same_settings(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(CA_PEM)
    (tmp_path / "client.pem").write_text(KEY_PEM + CHAIN_PEM)
    by_file = connection_settings(
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(tmp_path / "ca.pem"),
            "ssl.keystore.type": "pem",
            "ssl.keystore.location": str(tmp_path / "client.pem"),
        }
    ).tls
    inline = connection_settings(MUTUAL).tls
    assert by_file is not None and inline is not None
    assert by_file.ca_pem == inline.ca_pem == CA_PEM
    for tls in (by_file, inline):
        assert [ca["subject"] for ca in tls.context().get_ca_certs()], "only the given authority is trusted"
        assert tls.context().cert_store_stats()["x509_ca"] == 1


def test_an_encrypted_key_opens_with_its_password() -> None:
    tls = connection_settings({**MUTUAL, "ssl.keystore.key": LOCKED_KEY_PEM, "ssl.key.password": SECRET}).tls
    assert tls is not None and tls.context()


@pytest.mark.parametrize(("algorithm", "checked"), [("", False), ("https", True), ("HTTPS", True)])
def test_the_host_name_is_checked_unless_the_algorithm_is_empty(algorithm: str, checked: bool) -> None:
    tls = connection_settings({**TRUST, "ssl.endpoint.identification.algorithm": algorithm}).tls
    assert tls is not None and tls.context().check_hostname is checked
    assert tls.context().verify_mode is ssl.CERT_REQUIRED, "the certificate is checked all the same"


def test_a_client_certificate_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    TlsSettings(CA_PEM, CHAIN_PEM, KEY_PEM).context()
    with pytest.raises(ssl.SSLError):
        TlsSettings(CA_PEM, CHAIN_PEM, OTHER_KEY_PEM).context()
    assert list(tmp_path.iterdir()) == []


def folded(pem: str) -> str:
    """PEM as Java clients read it from lines that end in a blank and a backslash: with blanks for newlines."""
    return " ".join(pem.split("\n")).strip()


def test_inline_pem_on_continuation_lines_is_read_as_in_java() -> None:
    connection_settings({**TRUST, "ssl.truststore.certificates": folded(CA_PEM)})


def test_a_trust_store_with_non_ascii_comments_is_read() -> None:
    connection_settings({**TRUST, "ssl.truststore.certificates": f"# Főtanúsítvány\n{CA_PEM}"})


def test_a_private_key_without_a_certificate_is_refused() -> None:
    assert "ssl.keystore" in refused({**TRUST, "ssl.keystore.type": "PEM", "ssl.keystore.key": KEY_PEM})


# --- SASL -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mechanism", "jaas", "password", "why"),
    [
        ("PLAIN", JAAS, SECRET, "as the documentation has it"),
        ("plain", JAAS, SECRET, "in any case"),
        ("SCRAM-SHA-256", f'{SCRAM_MODULE} required username="alice" password="p";', "p", "SCRAM"),
        ("SCRAM-SHA-512", f'{SCRAM_MODULE} required password="p" username="alice";', "p", "in any order"),
        ("PLAIN", f"{PLAIN_MODULE} required username='alice' password='p';", "p", "single quotes"),
        ("PLAIN", f"{PLAIN_MODULE} required username=alice password=p;", "p", "no quotes"),
        ("PLAIN", f'  {PLAIN_MODULE}\n required\n username="alice"\n password="p" ; ', "p", "on many lines"),
        ("PLAIN", f'{PLAIN_MODULE} required username="alice" password="a;b=c \'d\'";', "a;b=c 'd'", "a hard one"),
        ("PLAIN", f'{PLAIN_MODULE} required username="alice" password="a\\"b\\\\c";', 'a"b\\c', "escapes"),
        ("PLAIN", f'{PLAIN_MODULE} required username="alice" password="";', "", "an empty one"),
        (
            "PLAIN",
            f'{PLAIN_MODULE} REQUIRED username="alice"password="p";',
            "p",
            "touching quotes",
        ),
        ("PLAIN", f"{PLAIN_MODULE} required username=alice password='it\\'s';", "it's", "an escaped single quote"),
        ("PLAIN", f'{PLAIN_MODULE} required /* who */ username="alice" // no\n password="a//b";', "a//b", "comments"),
        ("SCRAM-SHA-256", f'{SCRAM_MODULE} required username="alice" password="p" tokenauth="false";', "p", "no token"),
        ("PLAIN", f'{PLAIN_MODULE} sufficient username="alice" password="p";', "p", "another control flag"),
        ("PLAIN", f'{PLAIN_MODULE} required username="alice" password="a\\tb\\n";', "a\tb\n", "escaped letters"),
        (
            "PLAIN",
            f'{PLAIN_MODULE} required username="alice" password="\\101";',
            "A",
            "octal, as Java's tokenizer has it",
        ),
    ],
)
def test_user_and_password_are_read_from_the_jaas_configuration(
    mechanism: str, jaas: str, password: str, why: str
) -> None:
    found = connection_settings({**SASL, "sasl.mechanism": mechanism, "sasl.jaas.config": jaas})
    assert (found.sasl_username, found.sasl_password) == ("alice", password), why
    assert configuration(found)["sasl_plain_password"] == password


def test_a_delegation_token_is_refused_by_its_name() -> None:
    jaas = f'{SCRAM_MODULE} required username="id" password="{SECRET}" tokenauth="true";'
    assert "tokenauth" in refused({**SASL, "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas})


def test_a_password_with_an_unterminated_quote_is_refused() -> None:
    assert "sasl.jaas.config" in refused({**SASL, "sasl.jaas.config": JAAS[:-2] + ";"})


def test_sasl_over_tls_uses_both_settings() -> None:
    found = connection_settings({**MUTUAL, **SASL, "security.protocol": "SASL_SSL"})
    assert found.tls is not None and (found.sasl_mechanism, found.sasl_password) == ("PLAIN", SECRET)


# --- refusals ---------------------------------------------------------------------------------------------------------

# Every security setting of Kafka 4.3's clients (SslConfigs, SaslConfigs, SecurityConfig) that is not supported here.
UNSUPPORTED = """security.providers ssl.protocol ssl.provider ssl.cipher.suites ssl.enabled.protocols
ssl.keymanager.algorithm ssl.trustmanager.algorithm
ssl.secure.random.implementation ssl.engine.factory.class
sasl.login.refresh.window.factor sasl.login.refresh.window.jitter sasl.login.refresh.min.period.seconds
sasl.login.refresh.buffer.seconds sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
sasl.login.retry.backoff.ms sasl.login.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.url
sasl.oauthbearer.scope.claim.name ssl.something.new"""


def test_an_unsupported_security_setting_is_refused_by_name(wording: SnapshotAssertion) -> None:
    sentences = {}
    with Cases() as cases:
        for key in UNSUPPORTED.split():
            with cases.case(key) as name:
                sentence = refused({**SASL, key: SECRET})
                assert sentence.startswith(f"{key} ") and SECRET not in sentence
                sentences[name] = sentence
    assert sentences == wording


STORE = {"security.protocol": "SSL", "ssl.truststore.type": "PEM"}
REFUSED: dict[str, tuple[str, dict[str, str]]] = {
    "an unknown protocol": ("security.protocol", {"security.protocol": SECRET}),
    "a JKS store, said": ("ssl.keystore.certificate.chain", {**MUTUAL, "ssl.keystore.type": "JKS"}),
    "a JKS store, by default": (
        "ssl.truststore.location",
        {"security.protocol": "SSL", "ssl.truststore.location": SECRET},
    ),
    "a missing store": ("ssl.truststore.location", {**STORE, "ssl.truststore.location": f"/no/{SECRET}"}),
    "file and text": ("ssl.truststore.location", {**TRUST, "ssl.truststore.location": SECRET}),
    "trust in no PEM": ("ssl.truststore.*", {**TRUST, "ssl.truststore.certificates": "not PEM"}),
    "trust in nothing": ("ssl.truststore.*", {**TRUST, "ssl.truststore.certificates": ""}),
    "the key of another": ("ssl.keystore.*", {**MUTUAL, "ssl.keystore.key": OTHER_KEY_PEM}),
    "a wrong key password": (
        "ssl.keystore.*",
        {**MUTUAL, "ssl.keystore.key": LOCKED_KEY_PEM, "ssl.key.password": f"not {SECRET}"},
    ),
    "no key password": ("ssl.keystore.*", {**MUTUAL, "ssl.keystore.key": LOCKED_KEY_PEM}),
    "no key": ("ssl.keystore.*", {k: v for k, v in MUTUAL.items() if k != "ssl.keystore.key"}),
    "a key that is no PEM": ("ssl.keystore.*", {**MUTUAL, "ssl.keystore.key": SECRET}),
    "another algorithm": (
        "ssl.endpoint.identification.algorithm",
        {**TRUST, "ssl.endpoint.identification.algorithm": SECRET},
    ),
    "an unused key password": ("ssl.key.password", {"ssl.key.password": SECRET}),
    "an unused login": ("sasl.jaas.config", {**TRUST, "sasl.jaas.config": JAAS}),
    "TLS settings unused": ("ssl.key.password", {**SASL, "ssl.key.password": SECRET}),
    "an unknown mechanism": ("sasl.mechanism", {**SASL, "sasl.mechanism": SECRET}),
    "no mechanism": ("sasl.mechanism", {k: v for k, v in SASL.items() if k != "sasl.mechanism"}),
    "no login": ("sasl.jaas.config", {k: v for k, v in SASL.items() if k != "sasl.jaas.config"}),
    "a login that does not end": ("sasl.jaas.config", {**SASL, "sasl.jaas.config": JAAS[:-1]}),
    "a login of another mechanism": ("sasl.jaas.config", {**SASL, "sasl.mechanism": "SCRAM-SHA-256"}),
    "no user": ("sasl.jaas.config", {**SASL, "sasl.jaas.config": f'{PLAIN_MODULE} required password="{SECRET}";'}),
    "more than a login": ("sasl.jaas.config", {**SASL, "sasl.jaas.config": f'{JAAS[:-1]} x="{SECRET}";'}),
    "an option without a value": ("sasl.jaas.config", {**SASL, "sasl.jaas.config": f'{JAAS[:-1]} "{SECRET}";'}),
}


def test_unusable_properties_are_refused_by_key_without_secrets(tmp_path: Path, wording: SnapshotAssertion) -> None:
    path = tmp_path / "client.properties"
    complaints = {}
    with Cases() as cases:
        for why, (key, properties) in REFUSED.items():
            with cases.case(why) as name:
                path.write_text(javaproperties.dumps(properties))
                with pytest.raises(ConfigError) as failed:
                    ScanConfig("x:1", command_config=str(path)).connection()
                complaint = str(failed.value).removeprefix(f"--command-config: {path}: ")
                assert complaint.startswith(key)
                told = [str(failed.value), repr(failed.value), *traceback.format_exception(failed.value)]
                told.append(repr(pickle.loads(pickle.dumps(PropertiesError(refused(properties))))))
                for text in told:
                    assert SECRET not in text and ascii(SECRET)[1:-1] not in text and "PRIVATE KEY" not in text
                complaints[name] = complaint
    assert complaints == wording


@pytest.mark.parametrize(
    ("content", "expected", "why"),
    [
        (None, "does not exist", "a missing file"),
        (b"", "holds no settings", "an empty file"),
        (b"# only this\n\n", "holds no settings", "nothing but a comment"),
        (f"x=\\u12zz {SECRET}".encode(), "is not a Java properties file", "a malformed escape"),
        (SECRET.encode("latin-1"), "is not UTF-8 text", "another encoding"),
    ],
)
def test_an_unreadable_file_is_named(tmp_path: Path, content: bytes | None, expected: str, why: str) -> None:
    path = tmp_path / "client.properties"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PropertiesError) as error:
        read_properties(path)
    assert str(path) in str(error.value) and expected in str(error.value), why
    assert SECRET not in "".join(traceback.format_exception(error.value))


def test_a_directory_instead_of_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PropertiesError, match="Is a directory"):
        read_properties(tmp_path)


# --- secrets and executors --------------------------------------------------------------------------------------------

FULL = {
    **MUTUAL,
    **SASL,
    "security.protocol": "SASL_SSL",
    "ssl.keystore.key": LOCKED_KEY_PEM,
    "ssl.key.password": SECRET,
}


def test_settings_survive_pickling_and_hide_secrets() -> None:
    settings = connection_settings(FULL)
    there = pickle.loads(pickle.dumps(settings))
    assert there == settings and (there.sasl_password, there.tls.key_password) == (SECRET, SECRET)
    for text in (repr(there), str(there), repr(there.tls), f"{there!s}"):
        assert SECRET not in text and "PRIVATE KEY" not in text and "alice" in repr(there)


@pytest.mark.parametrize(
    ("mode", "content", "expected"),
    [(0o644, SASL, True), (0o640, SASL, True), (0o600, SASL, False), (0o644, {"client.id": "x"}, False)],
)
def test_a_readable_file_with_secrets_is_reported(
    tmp_path: Path, mode: int, content: dict[str, str], expected: bool
) -> None:
    path = tmp_path / "client.properties"
    path.write_text(javaproperties.dumps(content))
    path.chmod(mode)
    assert any("can read it" in warning for warning in properties_warnings(path)) is expected


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "known"),
    [
        ("admin.AdminClientConfig", ADMIN),
        ("producer.ProducerConfig", ADMIN | PRODUCER_AND_CONSUMER),
        ("consumer.ConsumerConfig", ADMIN | PRODUCER_AND_CONSUMER),
    ],
)
def test_every_setting_of_kafkas_clients_is_known(config: str, known: frozenset[str]) -> None:
    """Kafka's own classes print their documentation, with every setting."""
    jars = ":".join(map(str, sorted(kafka_jars().glob("*.jar"))))
    command = [str(find_java()), "-cp", jars, f"org.apache.kafka.clients.{config}"]
    ran = run_to_end(command)
    names = set(re.findall(r'<a id="([^"_]+)"', ran.stdout))
    assert len(names) > 50 and names <= known


FOREIGN = (
    *("application.id", "schema.registry.url", "schema.registry.ssl.truststore.location", "basic.auth.user.info"),
    *("metadata.broker.list", "log_level", "statistics.interval.ms", "queue.buffering.max.ms", "socket.timeout.ms"),
    *(
        "inter.broker.protocol.version",
        "zookeeper.connect",
        "num.stream.threads",
        "processing.guarantee",
        "key.converter",
    ),
)


def test_settings_of_other_programs_are_not_reported_as_mistyped() -> None:
    with Cases() as cases:
        for key in FOREIGN:
            with cases.case(key):
                assert nearest(key) is None
                assert connection_settings({key: "x"}) == ConnectionSettings()


def test_a_security_setting_with_a_missing_letter_is_refused() -> None:
    with Cases() as cases:
        for known in sorted(name for name in ADMIN if name.startswith(("security.", "ssl.", "sasl."))):
            with cases.case(known):
                for place in range(len(known)):
                    mistyped = known[:place] + known[place + 1 :]
                    if mistyped not in KNOWN:
                        assert refused({mistyped: "x"}).startswith(f"{mistyped} is no setting")


# --- config providers -------------------------------------------------------------------------------------------------

HOME = "org.apache.kafka.common.config.provider."
PROVIDERS = (
    "config.providers=env,file,dir\n"
    f"config.providers.env.class={HOME}EnvVarConfigProvider\n"
    f"config.providers.file.class={HOME}FileConfigProvider\n"
    f"config.providers.dir.class={HOME}DirectoryConfigProvider\n"
)
LOGIN = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"


def with_login(path: Path, variable: str, more: str = PROVIDERS) -> Path:
    jaas = f'{PLAIN_MODULE} required username="alice" password="{variable}";'
    (path / "client.properties").write_text(f"{more}{LOGIN}sasl.jaas.config={jaas}\n")
    (path / "client.properties").chmod(0o600)
    return path / "client.properties"


VARIABLES = ["${env:TXNSCAN_PASSWORD}", "${file:%s/secrets.properties:pass.word}", "${dir:%s:password}"]


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_variable_is_replaced_by_its_config_provider(
    tmp_path: Path, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TXNSCAN_PASSWORD", SECRET)
    (tmp_path / "secrets.properties").write_text(f"pass.word={SECRET}\n")
    (tmp_path / "password").write_text(SECRET)
    file = with_login(tmp_path, variable.replace("%s", str(tmp_path)))
    assert read_properties(file).sasl_password == SECRET
    assert properties_warnings(file) == []


# A text, and what it becomes if "${file:PATH:KEY}" becomes "<PATH,KEY>".
WRITTEN = [
    ("a${file:/x:k}b${file:/y:l}c", "a</x,k>b</y,l>c"),
    ("${file:k}", "<,k>"),
    ("${file:/x:k:l}", "</x,k:l>"),
    ("${file}:${file:k}", "${file}:<,k>"),
    ("${${file:k}", "${${file:k}"),
    ("}${file:k}}{", "}<,k>}{"),
    ("${other:k}${file::}", "${other:k}<,>"),
    ("${file:k", "${file:k"),
]


def test_variables_are_found_as_kafka_finds_them() -> None:
    """By Kafka's own pattern (`ConfigTransformer.DEFAULT_PATTERN`)."""
    pattern = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")
    with Cases() as cases:
        for text, expected in WRITTEN:
            with cases.case(text):
                of_pattern = [(one[1], one[3] or "", one[4]) for one in pattern.finditer(text)]
                found, rest = providers._variables(text)
                assert [(one.provider, one.path, one.key) for one in found] == of_pattern
                values = [f"<{one.path},{one.key}>" if one.provider == "file" else one.written for one in found]
                assert "".join(one.before + value for one, value in zip(found, values, strict=True)) + rest == expected


UNRESOLVED = [
    ("${env:TXNSCAN_NOT_SET}", "", "sasl.jaas.config: the environment has no TXNSCAN_NOT_SET"),
    ("${file:/nowhere.properties:x}", "", "sasl.jaas.config: /nowhere.properties cannot be read"),
    ("${dir:/nowhere:x}", "", "sasl.jaas.config: /nowhere has no file x"),
    ("${dir:/etc:hostname}", "config.providers.dir.param.allowed.paths=/tmp\n", "/etc has no file hostname"),
    ("${env:HOME}", "config.providers.env.param.allowlist.pattern=TXNSCAN_.*\n", "the environment has no HOME"),
    ("${dir:%s:loop}", "", "has no file loop that can be read"),
    ("${file:%s/loop:x}", "", "loop cannot be read as a properties file"),
    ("${file:/a\\u0000b:x}", "", "cannot be read as a properties file"),
    ("x", "config.providers=vault\nconfig.providers.vault.class=com.x\n", "config.providers.vault.class must be one"),
]


@pytest.mark.parametrize(("variable", "more", "says"), UNRESOLVED, ids=[f"{one[0]} {one[1]}" for one in UNRESOLVED])
def test_an_unresolvable_variable_is_refused_by_its_setting(
    tmp_path: Path, variable: str, more: str, says: str
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(PropertiesError) as error:
        read_properties(with_login(tmp_path, variable.replace("%s", str(tmp_path)), PROVIDERS + more))
    assert says in str(error.value)


_UP_TO_JAAS = f"{LOGIN}sasl.jaas.config="
_UP_TO_OPTIONS = f"{_UP_TO_JAAS}{PLAIN_MODULE} required "
# Each took minutes, or longer than anyone waits.
SLOW_TEXTS = {
    "spaces": _UP_TO_OPTIONS + " " * 16_000 + "x",
    "more spaces": _UP_TO_OPTIONS + " " * 300_000 + "x",
    "comments that do not end": _UP_TO_JAAS + "/*" * 200_000,
    "quotes": _UP_TO_OPTIONS + '"\\\\' * 5_000,
    "options without an end": _UP_TO_OPTIONS + "a=b " * 4_000,
    "variables without an end": "x" + _UP_TO_OPTIONS + "${" * 400_000,
    "variables of providers that do not end": "x" + _UP_TO_OPTIONS + "${a:b:" * 150_000,
    "settings": "".join(f"key{number}=x\n" for number in range(60_000)),
    "settings that are nearly Kafka's": "".join(f"sssl.keystor{number}=x\n" for number in range(60_000)),
    "variables": PROVIDERS + "client.id=" + "${file:/dev/null:x}" * 50_000,
    "certificates without an end": (
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.certificates=" + "-----BEGIN A-----" * 60_000
    ),
}


def test_no_text_takes_long(tmp_path: Path) -> None:
    with Cases() as cases:
        for name, text in SLOW_TEXTS.items():
            with cases.case(name):
                (file := tmp_path / "client.properties").write_text(f"{text}\n")
                began_s = time.process_time()
                with pytest.raises(PropertiesError):
                    properties_warnings(file)
                    read_properties(file)
                assert time.process_time() - began_s < 3


def on_databricks(monkeypatch: pytest.MonkeyPatch, get: Callable[..., str]) -> None:
    runtime = SimpleNamespace(dbutils=SimpleNamespace(secrets=SimpleNamespace(get=get)))
    monkeypatch.setitem(sys.modules, "databricks.sdk", SimpleNamespace(runtime=runtime))
    monkeypatch.setitem(sys.modules, "databricks.sdk.runtime", runtime)


def test_a_databricks_secret_is_read_by_scope_and_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_databricks(monkeypatch, lambda scope, key: f"${{env:{scope}-{key}}}")
    file = with_login(tmp_path, "{{secrets/kafka/bob's}}", "")
    assert read_properties(file).sasl_password == "${env:kafka-bob's}", "what a secret holds is no variable"


def test_an_unreadable_secret_is_reported_without_its_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    file = with_login(tmp_path, "{{secrets/kafka/bob}}", "")
    monkeypatch.setitem(sys.modules, "databricks.sdk", None)
    with pytest.raises(PropertiesError) as error:
        read_properties(file)
    assert str(error.value).replace(str(file), "<file>") == wording

    def refused(scope: str, key: str) -> str:
        raise RuntimeError("s3cret")

    on_databricks(monkeypatch, refused)
    with pytest.raises(PropertiesError) as complaint:
        read_properties(file)
    assert str(complaint.value).replace(str(file), "<file>") == wording
    assert "s3cret" not in str(complaint.value)


def test_a_variable_without_its_provider_is_literal_with_a_warning(
    tmp_path: Path,
    wording: SnapshotAssertion,
) -> None:
    file = with_login(tmp_path, "${env:HOME}", "")
    assert read_properties(file).sasl_password == "${env:HOME}"
    (warning,) = properties_warnings(file)
    assert warning.replace(str(file), "<file>") == wording


# --- Java key stores --------------------------------------------------------------------------------------------------


def pkcs12(path: Path, *, key: bool, password: str = SECRET) -> str:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import pkcs12 as form

    certificates = [x509.load_pem_x509_certificate(one.bytes()) for one in LEAF.cert_chain_pems]
    authority = x509.load_pem_x509_certificate(CA_PEM.encode())
    data = form.serialize_key_and_certificates(
        b"alias",
        serialization.load_pem_private_key(KEY_PEM.encode(), None) if key else None,  # type: ignore[arg-type]
        certificates[0] if key else None,
        [*certificates[1:], authority],
        serialization.BestAvailableEncryption(password.encode()),
    )
    path.write_bytes(data)
    return str(path)


@pytest.mark.parametrize("kind", ["PKCS12", "pkcs12", None])
def test_pkcs12_stores_equal_their_pem_text(tmp_path: Path, kind: str | None) -> None:
    """Java also accepts PKCS12 for its default type, JKS."""
    found = connection_settings(
        {
            "security.protocol": "SSL",
            **({"ssl.truststore.type": kind, "ssl.keystore.type": kind} if kind else {}),
            "ssl.truststore.location": pkcs12(tmp_path / "trust.p12", key=False),
            "ssl.truststore.password": SECRET,
            "ssl.keystore.location": pkcs12(tmp_path / "key.p12", key=True),
            "ssl.keystore.password": SECRET,
        }
    )
    assert found.tls is not None and found.tls.ca_pem is not None
    assert CA_PEM.strip() in found.tls.ca_pem
    assert found.tls.key_pem is not None and str(found.tls.certificate_pem).startswith(CHAIN_PEM.split("-----END")[0])
    found.tls.context()


def test_an_unreadable_store_is_reported_without_its_password(tmp_path: Path) -> None:
    (tmp_path / "trust.jks").write_bytes(b"\xce\xce\xce\xce" + bytes(100))
    trust = {"security.protocol": "SSL", "ssl.truststore.location": str(tmp_path / "trust.jks")}
    assert "keytool -importkeystore" in str(refusal_of({**trust, "ssl.truststore.password": SECRET}))
    pkcs12(tmp_path / "trust.jks", key=False, password="another")
    said = str(refusal_of({**trust, "ssl.truststore.password": SECRET}))
    assert "ssl.truststore.password is not its password" in said and SECRET not in said


def der(pem: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem)


def jks_store(*written: bytes, password: str = SECRET, version: int = 2) -> bytes:
    data = struct.pack(">4sII", b"\xfe\xed\xfe\xed", version, len(written)) + b"".join(written)
    return data + hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + data).digest()


def jks_certificate(one: bytes) -> bytes:
    return b"\0\5X.509" + len(one).to_bytes(4) + one


TRUSTED_ENTRY = b"\0\0\0\2" + b"\0\2ca" + bytes(8) + jks_certificate(der(CA_PEM))


def test_a_jks_trust_store_equals_its_pem_text(tmp_path: Path, wording: SnapshotAssertion) -> None:
    """As written by keytool, see tests/brokers. Without a password its integrity is not checked."""
    (tmp_path / "trust.jks").write_bytes(jks_store(TRUSTED_ENTRY))
    trust = {"security.protocol": "SSL", "ssl.truststore.location": str(tmp_path / "trust.jks")}
    for more in ({}, {"ssl.truststore.password": SECRET}, {"ssl.truststore.type": "jks"}):
        tls = connection_settings({**trust, **more}).tls
        assert tls is not None and der(str(tls.ca_pem)) == der(CA_PEM)
    said = str(refusal_of({**trust, "ssl.truststore.password": "another"}))
    assert said == wording
    said = str(refusal_of({"security.protocol": "SSL", "ssl.keystore.location": str(tmp_path / "trust.jks")}))
    assert said == wording


def test_a_truncated_jks_store_is_refused_at_every_length() -> None:
    # A single test, because the size of a certificate differs between processes, and with it the number of cases.
    whole = jks_store(TRUSTED_ENTRY)
    for size, password in product(range(0, len(whole), 7), (None, SECRET)):
        with pytest.raises((jks.BadStore, jks.WrongPassword)):
            jks.entries(whole[:size], password)


@given(st.data())
def test_a_damaged_jks_store_or_key_is_refused_or_decoded(draw: st.DataObject) -> None:
    store = bytearray(jks_store(TRUSTED_ENTRY))
    for _ in range(draw.draw(st.integers(1, 4))):
        store[draw.draw(st.integers(0, len(store) - 1))] = draw.draw(st.integers(0, 255))
    with suppress(jks.BadStore):
        jks.entries(bytes(store), None)
    with suppress(jks.BadStore, jks.WrongPassword):
        jks.private_key(draw.draw(st.binary(max_size=80)), SECRET)


# --- GSSAPI -----------------------------------------------------------------------------------------------------------

KRB5 = "com.sun.security.auth.module.Krb5LoginModule"
KERBEROS = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "kafka"}


@pytest.fixture
def gssapi(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in for the library. `said` is the result of a ticket request."""
    module = ModuleType("gssapi")
    module.__spec__ = ModuleSpec("gssapi", None)
    module.asked = []  # type: ignore[attr-defined]
    module.error = None  # type: ignore[attr-defined]

    class Name:
        def __init__(self, name: str, name_type: object) -> None:
            module.asked.append(name)

        def canonicalize(self, _: object) -> Name:
            return self

    class SecurityContext:
        complete = False

        def __init__(self, **_: object) -> None: ...

        def step(self, token: bytes | None) -> bytes:
            if module.error is not None:
                raise RuntimeError(module.error)
            return b"ticket"

    module.Name, module.SecurityContext = Name, SecurityContext  # type: ignore[attr-defined]
    module.NameType = SimpleNamespace(hostbased_service=1)  # type: ignore[attr-defined]
    module.MechType = SimpleNamespace(kerberos=1)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gssapi", module)
    return module


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"sasl.jaas.config": f"{KRB5} required useTicketCache=true renewTGT=true useKeyTab=false;"},
        {"sasl.jaas.config": f'{KRB5} required useTicketCache=true serviceName="kafka";'},
        {"sasl.kerberos.kinit.cmd": "/usr/bin/kinit", "sasl.kerberos.ticket.renew.jitter": "0.05"},
    ],
)
def test_gssapi_requests_a_ticket_of_the_brokers_service(
    gssapi: Any, more: dict[str, str], wording: SnapshotAssertion
) -> None:
    settings = connection_settings({**KERBEROS, **more})
    assert (settings.sasl_mechanism, settings.kerberos_service) == ("GSSAPI", "kafka")
    configs = configuration(settings)
    mechanism = get_sasl_mechanism("GSSAPI")(host="broker-1.test", **configs)
    assert gssapi.asked == ["kafka@broker-1.test"] and mechanism.auth_bytes() == b"ticket"
    gssapi.error = "No Kerberos credentials available"
    with pytest.raises(TokenFailed) as complaint:
        get_sasl_mechanism("GSSAPI")(host="broker-1.test", **configs)
    assert str(complaint.value) == wording
    with pytest.raises(TokenFailed) as complaint:
        mechanism.receive(b"")
    assert str(complaint.value) == wording


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"sasl.kerberos.service.name": ""}, "sasl.kerberos.service.name is needed for GSSAPI"),
        ({"sasl.jaas.config": f'{KRB5} required useKeyTab=true keyTab="/etc/{SECRET}";'}, "has keyTab, which is not"),
        ({"sasl.jaas.config": f'{KRB5} required serviceName="other";'}, "and serviceName in sasl.jaas.config differ"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "x required;"}, "must name"),
    ],
)
def test_unusable_kerberos_settings_are_refused(gssapi: Any, properties: dict[str, str], why: str) -> None:
    said = str(refusal_of({**KERBEROS, **properties}))
    assert why in said and SECRET not in said


def test_gssapi_without_its_library_is_reported_with_the_installation(
    monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    monkeypatch.setattr("txnscan.kafka.client.properties.find_spec", lambda _: None)
    assert str(refusal_of(KERBEROS)) == wording


def refusal_of(properties: dict[str, str]) -> ValueError:
    with pytest.raises(ValueError) as error:
        connection_settings(properties)
    return error.value


# --- OAUTHBEARER, AWS -------------------------------------------------------------------------------------------------

OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
OAUTH = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "sasl.oauthbearer.token.endpoint.url": "https://idp.test/token",
    "sasl.jaas.config": f'{OAUTH_MODULE} required clientId="me" clientSecret="{SECRET}" scope="kafka" '
    'extension_logicalCluster="lkc-1";',
}


def test_client_credentials_come_from_the_jaas_line_or_from_settings_with_precedence() -> None:
    found = connection_settings(OAUTH).oauth
    assert found is not None and SECRET not in repr(found)
    assert (found.client_id, found.client_secret, found.scope) == ("me", SECRET, "kafka")
    assert found.extensions == (("logicalCluster", "lkc-1"),)
    own = {f"sasl.oauthbearer.{name}": "own" for name in ("client.credentials.client.id", "scope")}
    found = connection_settings({**OAUTH, **own}).oauth
    assert found is not None and (found.client_id, found.scope) == ("own", "own")


OAUTH_REFUSED = [
    ({"sasl.oauthbearer.token.endpoint.url": "file:///token"}, "sasl.oauthbearer.token.endpoint.url must be a URL"),
    ({"sasl.jaas.config": f"{OAUTH_MODULE} required;"}, "client.credentials.client.id is needed for OAUTHBEARER"),
    ({"sasl.login.callback.handler.class": "com.x"}, "sasl.login.callback.handler.class must be"),
    ({"sasl.jaas.config": OAUTH["sasl.jaas.config"].replace("scope=", "other=")}, "sasl.jaas.config has other"),
    (
        {"sasl.jaas.config": OAUTH["sasl.jaas.config"].replace("scope=", "ssl.truststore.location=")},
        "sasl.jaas.config has ssl.truststore.location",
    ),
]


@pytest.mark.parametrize(("changes", "says"), OAUTH_REFUSED, ids=[says for _, says in OAUTH_REFUSED])
def test_settings_incompatible_with_oauthbearer_are_refused(changes: dict[str, str], says: str) -> None:
    said = str(refusal_of({**OAUTH, **changes}))
    assert says in said and SECRET not in said


def test_aws_needs_tls_and_its_library() -> None:
    aws = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
        "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    }
    assert "needs security.protocol=SASL_SSL" in str(refusal_of({**aws, "security.protocol": "SASL_PLAINTEXT"}))
    if importlib.util.find_spec("botocore") is None:
        assert "install txnscan[msk]" in str(refusal_of(aws))
    else:
        assert connection_settings(aws).sasl_mechanism == "AWS_MSK_IAM"
