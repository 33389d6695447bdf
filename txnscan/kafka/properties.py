"""Kafka's own `client.properties`, read as the Java clients read it.

What is not supported and touches security is refused by its name: a setting that is silently ignored here could mean
a connection that is less safe than its author believes. So could one that is mistyped: what is like a setting of
Kafka's clients and is none is refused, with the one that was probably meant. Other settings of Kafka's clients (buffer
sizes and the like) mean nothing to a scanner and are passed over; what is none of theirs is a warning.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from pathlib import Path

import javaproperties

from txnscan.kafka.client_configs import KNOWN, nearest
from txnscan.kafka.connection import ConnectionSettings, TlsSettings

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
# Java login modules by mechanism, as `sasl.jaas.config` names them.
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_SUPPORTED = {
    "security.protocol",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "sasl.mechanism",
    "sasl.jaas.config",
}
_SECRETS = ("ssl.keystore.key", "ssl.key.password", "sasl.jaas.config")
_SECURITY_PREFIXES = ("security.", "ssl.", "sasl.")
# It would have values replaced by what stands elsewhere, passwords above all.
_PROVIDERS = "config.providers"
# What can be a setting's name. A line of a key or a password that lost its place is none, and is never told.
_NAME = re.compile(r"[A-Za-z]\w*(?:[.-]\w+)+")
_JAAS = re.compile(
    r"\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)\s*(?P<options>.*?)\s*;\s*", re.S
)
_JAAS_OPTION = re.compile(
    r"""(?P<name>\w+)\s*=\s*(?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>[^']*)'|(?P<bare>[^\s"']+))(?:\s+|$)"""
)


class PropertiesError(ValueError):
    """A client.properties that cannot be used: one sentence that names the file and the key, never a value."""


def read_properties(path: Path) -> ConnectionSettings:
    """The connection settings in a client.properties file. Raises PropertiesError."""
    properties = {key: value for key, value, _ in _entries(path)}
    if not properties:
        raise PropertiesError(f"{path} holds no settings; leave the option out to connect without any")
    try:
        return connection_settings(properties)
    except PropertiesError as error:
        raise PropertiesError(f"{path}: {error}") from None


def properties_warnings(path: Path) -> list[str]:
    """What of this file is probably not as its author means it, though it can be used: a sentence each, without any
    value. Raises PropertiesError where the file cannot be read.
    """
    entries = _entries(path)
    warnings = []
    if path.stat().st_mode & stat.S_IROTH and any(key in _SECRETS for key, _, _ in entries):
        warnings.append(f"{path} holds secrets and every user can read it; take that right away (chmod o-r)")
    for key, value, line in entries:
        if key in KNOWN or key.startswith(_PROVIDERS):
            continue
        if value and _NAME.fullmatch(key):
            warnings.append(f"{path}: {key} is no setting of Kafka's clients and has no effect")
        else:
            why = "a value that goes on in the next line needs a backslash at the end of its line"
            warnings.append(f"{path}: line {line} is no setting and has no effect ({why})")
    return warnings


def _entries(path: Path) -> list[tuple[str, str, int]]:
    """Key, value and number of line of each setting. A byte-order mark, which editors of Windows write, is left out:
    it would be part of the first key.
    """
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        raise PropertiesError(f"{path} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise PropertiesError(f"{path} cannot be read: {why}") from None
    entries, line = [], 1
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                entries.append((element.key, element.value, line))
            line += len(element.source.splitlines())
    except ValueError:
        raise PropertiesError(f"{path} is not a Java properties file") from None
    return entries


def connection_settings(properties: Mapping[str, str]) -> ConnectionSettings:
    """The connection settings that Java clients would take from these properties. Raises PropertiesError."""
    for key in sorted(properties):
        _refuse_unsupported(key)
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in SECURITY_PROTOCOLS:
        raise PropertiesError(f"security.protocol must be one of {', '.join(SECURITY_PROTOCOLS)}")
    tls = _tls(properties) if protocol.endswith("SSL") else None
    mechanism, username, password = _sasl(properties) if protocol.startswith("SASL") else (None, None, None)
    _refuse_unused(properties, protocol)
    defaults = ConnectionSettings()
    return ConnectionSettings(
        security_protocol=protocol,
        tls=tls,
        sasl_mechanism=mechanism,
        sasl_username=username,
        sasl_password=password,
        client_id=properties.get("client.id") or defaults.client_id,
        request_timeout_ms=_positive_int(properties, "request.timeout.ms", defaults.request_timeout_ms),
        connection_setup_timeout_ms=_positive_int(
            properties, "socket.connection.setup.timeout.ms", defaults.connection_setup_timeout_ms
        ),
    )


def _refuse_unsupported(key: str) -> None:
    meant = None if key in KNOWN else nearest(key)
    if meant is not None:
        raise PropertiesError(f"{ascii(key)[1:-1]} is no setting of Kafka's clients; did you mean {meant}?")
    if key.startswith(_PROVIDERS):
        raise PropertiesError(f"{_PROVIDERS} is not supported; write the values themselves into the file")
    if key.startswith(_SECURITY_PREFIXES) and key not in _SUPPORTED:
        raise PropertiesError(f"{ascii(key)[1:-1]} is not supported; remove it or connect another way")


def _refuse_unused(properties: Mapping[str, str], protocol: str) -> None:
    """Credentials that the protocol would not use are a mistake that must not pass in silence."""
    for prefix, used in (("ssl.", protocol.endswith("SSL")), ("sasl.", protocol.startswith("SASL"))):
        for key in sorted(properties):
            if key.startswith(prefix) and not used:
                raise PropertiesError(f"{key} has no effect with security.protocol={protocol}; set security.protocol")


def _tls(properties: Mapping[str, str]) -> TlsSettings:
    ca_pem = _pem(properties, "ssl.truststore", "ssl.truststore.certificates")
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if algorithm not in ("https", ""):
        raise PropertiesError("ssl.endpoint.identification.algorithm must be https or empty")
    chain = _pem(properties, "ssl.keystore", "ssl.keystore.certificate.chain")
    key = properties.get("ssl.keystore.key")
    if key is not None and chain is None:
        raise PropertiesError("ssl.keystore.key is set without ssl.keystore.certificate.chain; set both")
    tls = TlsSettings(
        ca_pem=ca_pem,
        certificate_pem=chain,
        key_pem=_pem_blocks(key) if key is not None else None,
        key_password=properties.get("ssl.key.password"),
        check_hostname=algorithm == "https",
    )
    try:
        tls.context()
    except (OSError, ValueError):
        which = "ssl.keystore.*" if chain else "ssl.truststore.*"
        raise PropertiesError(
            f"{which} cannot be used: not PEM, a wrong password, or a key of another certificate"
        ) from None
    return tls


def _pem(properties: Mapping[str, str], store: str, inline: str) -> str | None:
    """PEM text given inline or by location. Java's default type is JKS, so PEM must be said."""
    location = properties.get(f"{store}.location")
    given = properties.get(inline)
    if location is None and given is None:
        return None
    if location is not None and given is not None:
        raise PropertiesError(f"{store}.location and {inline} are both set; set one")
    if properties.get(f"{store}.type", "JKS").strip().upper() != "PEM":
        raise PropertiesError(f"{store}.type must be PEM; other key stores are not supported")
    if given is not None:
        return _pem_blocks(given)
    try:
        return _pem_blocks(Path(str(location)).read_text("utf-8"))
    except (OSError, UnicodeDecodeError):
        raise PropertiesError(f"{store}.location names a file that cannot be read") from None


def _pem_blocks(text: str) -> str:
    """The PEM blocks of a text, each on lines of its own. As in Java (`DefaultSslEngineFactory.PemStore`), any white
    space may stand for a newline, which is how a properties file continues a line, and text between blocks is left out.
    """
    blocks = re.findall(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", text, re.DOTALL)
    return "".join(f"-----BEGIN {kind}-----\n{_pem_lines(body)}\n-----END {kind}-----\n" for kind, body in blocks)


def _pem_lines(body: str) -> str:
    # An encrypted key of the old form has headers, which are lines that must stay as they are.
    return body.strip() if ":" in body else "\n".join(body.split())


def _sasl(properties: Mapping[str, str]) -> tuple[str, str, str]:
    mechanism = properties.get("sasl.mechanism", "GSSAPI").strip().upper()
    if mechanism not in _LOGIN_MODULES:
        raise PropertiesError(f"sasl.mechanism must be one of {', '.join(_LOGIN_MODULES)}")
    jaas = _JAAS.fullmatch(properties.get("sasl.jaas.config", ""))
    if jaas is None:
        raise PropertiesError('sasl.jaas.config must read: <login module> required username="..." password="...";')
    if jaas["module"] != _LOGIN_MODULES[mechanism]:
        raise PropertiesError(f"sasl.jaas.config must name {_LOGIN_MODULES[mechanism]} with sasl.mechanism={mechanism}")
    options = _jaas_options(jaas["options"])
    if set(options) != {"username", "password"}:
        raise PropertiesError("sasl.jaas.config must give username and password and nothing else")
    return mechanism, options["username"], options["password"]


def _jaas_options(text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _JAAS_OPTION.match(text, position)
        if match is None:
            raise PropertiesError("sasl.jaas.config cannot be parsed after its login module")
        quoted = match["double"]
        value = _unescaped(quoted) if quoted is not None else match["single"] or match["bare"] or ""
        options[match["name"]] = value
        position = match.end()
    return options


def _unescaped(text: str) -> str:
    """A quoted string as Java's StreamTokenizer reads it."""
    named = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}

    def character(match: re.Match[str]) -> str:
        return chr(int(match[1], 8)) if match[1][0] in "01234567" else named.get(match[1], match[1])

    return re.sub(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|\D|[89])", character, text)


def _positive_int(properties: Mapping[str, str], key: str, default: int) -> int:
    text = properties.get(key)
    if text is None:
        return default
    if not text.strip().isdecimal() or not 0 < int(text) < 2**31:
        raise PropertiesError(f"{key} must be a whole number of milliseconds above 0")
    return int(text)
