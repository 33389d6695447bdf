"""Kafka's own `client.properties`, read in the way of the Java clients.

Unsupported security settings are refused by name: if they were silently ignored, the connection could be less safe than
its author believes. A mistyped setting could have the same effect. So if a name is unknown but similar to a setting of
Kafka's clients, it is refused, and the error suggests that setting. Other settings of Kafka's clients (buffer sizes and
the like) have no meaning for a scanner and are ignored. Other unknown names are warnings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import javaproperties

from txnscan.errors import system_reason
from txnscan.kafka.client.client_configs import KNOWN, nearest
from txnscan.kafka.client.connection import ConnectionSettings, OAuthSettings, TlsSettings
from txnscan.kafka.security.providers import has_unknown_variable, resolved
from txnscan.kafka.security.safe_files import exposed, read_limited
from txnscan.kafka.security.stores import PemStore, read_store
from txnscan.kafka.units import whole_number

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
# The Java login modules by mechanism, as `sasl.jaas.config` names them.
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
    "AWS_MSK_IAM": "software.amazon.msk.auth.iam.IAMLoginModule",
    "GSSAPI": "com.sun.security.auth.module.Krb5LoginModule",
}
# Callback classes that a mechanism needs in Java, and that do only what this package does itself.
_HANDLERS = {
    "sasl.login.callback.handler.class": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
        "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
    ),
    "sasl.client.callback.handler.class": ("software.amazon.msk.auth.iam.IAMClientCallbackHandler",),
}
_OAUTH = "sasl.oauthbearer."
_TOKEN_URL = f"{_OAUTH}token.endpoint.url"
_OF_OAUTH = {
    _TOKEN_URL,
    f"{_OAUTH}client.credentials.client.id",
    f"{_OAUTH}client.credentials.client.secret",
    f"{_OAUTH}scope",
    f"{_OAUTH}header.urlencode",
}
_KERBEROS = "sasl.kerberos."
_SERVICE_NAME = f"{_KERBEROS}service.name"
_OF_KERBEROS = {
    _SERVICE_NAME,
    # How Java's client renews its ticket. Here kinit renews it.
    f"{_KERBEROS}kinit.cmd",
    f"{_KERBEROS}min.time.before.relogin",
    f"{_KERBEROS}ticket.renew.jitter",
    f"{_KERBEROS}ticket.renew.window.factor",
}
# The options of Krb5LoginModule about the ticket in the user's cache.
_OF_TICKET_CACHE = {"useTicketCache", "renewTGT", "doNotPrompt", "refreshKrb5Config", "isInitiator", "debug"}
_SUPPORTED = {
    "security.protocol",
    "ssl.truststore.type",
    "ssl.truststore.password",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "sasl.mechanism",
    "sasl.jaas.config",
    *_HANDLERS,
    *_OF_OAUTH,
    *_OF_KERBEROS,
}
_SECRETS = (
    *("ssl.keystore.key", "ssl.key.password", "ssl.keystore.password", "ssl.truststore.password", "sasl.jaas.config"),
    f"{_OAUTH}client.credentials.client.secret",
)
_KEY_STORE = "ssl.keystore.location"
_SECURITY_PREFIXES = ("security.", "ssl.", "sasl.")
# Config providers replace values, mainly passwords, by values that are stored elsewhere.
_PROVIDERS = "config.providers"
# Kafka's clients have less than 200. Each name that is unknown is compared with all of them.
_SETTINGS_MAX = 1_000
# The possible names of settings. A misplaced line of a key or a password does not match, and is never shown.
_NAME = re.compile(r"[A-Za-z]\w*(?:[.-]\w+)+")
# As Kafka parses it (`JaasConfig`), with Java's StreamTokenizer: comments as in Java, the flag in any case, and names
# of options with dots, dashes and dollar signs. A quoted value may touch the next name.
_JAAS = re.compile(r"(?P<module>[\w.$-]+)\s+(?i:required|requisite|sufficient|optional)(?P<options>\s.*)?", re.S)
# A longer text could make these patterns take minutes.
_JAAS_LENGTH_MAX = 16_384
_JAAS_COMMENT = re.compile(r"""(?P<kept>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|//[^\n]*|/\*.*?\*/""", re.S)
_JAAS_OPTION = re.compile(
    r"""(?P<name>[\w.$-]+)\s*=\s*(?:"(?P<double>(?:[^"\\]|\\.)*)"\s*|'(?P<single>(?:[^'\\]|\\.)*)'\s*|(?P<bare>[^\s"']+)(?:\s+|$))""",
    re.S,
)
# Delegation tokens (KIP-48) log in with SCRAM, and an extension that says so.
_DELEGATION = "tokenauth"


class PropertiesError(ValueError):
    """A client.properties that cannot be used. The message is one sentence with the file and the key, never a value."""


def read_properties(path: Path) -> ConnectionSettings:
    """The connection settings in a client.properties file. Raises PropertiesError."""
    properties = {key: value for key, value, _ in _entries(path)}
    if not properties:
        raise PropertiesError(f"{path} holds no settings; leave the option out to connect without any")
    try:
        return connection_settings(resolved(properties))
    except ValueError as error:
        raise PropertiesError(f"{path}: {error}") from None


def properties_warnings(path: Path) -> list[str]:
    """Probable mistakes in a usable file: one sentence each, without any value. Raises PropertiesError if the file
    cannot be read.
    """
    entries = _entries(path)
    warnings = _exposed(path, entries)
    properties = {key: value for key, value, _ in entries}
    for key in properties:
        provider = has_unknown_variable(properties, key)
        if provider is not None:
            taken = f"its variable is taken as it is written, because {_PROVIDERS} names no {provider}"
            warnings.append(f"{path}: {key}: {taken}")
    for key, value, line in entries:
        if key in KNOWN or key.startswith(_PROVIDERS):
            continue
        if value and _NAME.fullmatch(key):
            warnings.append(f"{path}: {key} is no setting of Kafka's clients and has no effect")
        else:
            why = "a value that goes on in the next line needs a backslash at the end of its line"
            warnings.append(f"{path}: line {line} is no setting and has no effect ({why})")
    return warnings


def exposed_files(path: Path) -> list[str]:
    """A warning for this file and for its key store, if other users can read the secrets in it. Raises PropertiesError
    if the file cannot be read.
    """
    return _exposed(path, _entries(path))


def _exposed(path: Path, entries: Iterable[tuple[str, str, int]]) -> list[str]:
    own = [path] if any(key in _SECRETS for key, _, _ in entries) else []
    named = [Path(value) for key, value, _ in entries if key == _KEY_STORE]
    return [said for said in map(exposed, dict.fromkeys((*own, *named))) if said is not None]


def _entries(path: Path) -> list[tuple[str, str, int]]:
    """Key, value and line number of each setting. A byte-order mark, which editors on Windows write, is left out,
    because it would be part of the first key.
    """
    try:
        text = read_limited(path).decode("utf-8-sig")
    except FileNotFoundError:
        raise PropertiesError(f"{path} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        why = system_reason(error) if isinstance(error, OSError) else "it is not UTF-8 text"
        raise PropertiesError(f"{path} cannot be read: {why}") from None
    entries, line = [], 1
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                entries.append((element.key, element.value, line))
            if len(entries) > _SETTINGS_MAX:
                raise PropertiesError(f"{path} has more than {_SETTINGS_MAX:,} settings, which no such file has")
            line += len(element.source.splitlines())
    except PropertiesError:
        raise
    except ValueError:
        raise PropertiesError(f"{path} is not a Java properties file") from None
    return entries


def connection_settings(properties: Mapping[str, str]) -> ConnectionSettings:
    """The connection settings that Java clients would use with these properties. Raises PropertiesError."""
    for key in sorted(properties):
        _refuse_unsupported(key)
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in SECURITY_PROTOCOLS:
        raise PropertiesError(f"security.protocol must be one of {', '.join(SECURITY_PROTOCOLS)}")
    tls = _tls(properties) if protocol.endswith("SSL") else None
    sasl = _sasl(properties, protocol) if protocol.startswith("SASL") else {}
    _refuse_unused(properties, protocol)
    defaults = ConnectionSettings()
    return ConnectionSettings(
        security_protocol=protocol,
        tls=tls,
        **sasl,
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
    if key.startswith(_SECURITY_PREFIXES) and key not in _SUPPORTED:
        raise PropertiesError(f"{ascii(key)[1:-1]} is not supported; remove it or connect another way")


def _refuse_unused(properties: Mapping[str, str], protocol: str) -> None:
    """Refuses credentials that the protocol would not use, because they must be a mistake."""
    for prefix, used in (("ssl.", protocol.endswith("SSL")), ("sasl.", protocol.startswith("SASL"))):
        for key in sorted(properties):
            if key.startswith(prefix) and not used:
                raise PropertiesError(f"{key} has no effect with security.protocol={protocol}; set security.protocol")


def _tls(properties: Mapping[str, str]) -> TlsSettings:
    trusted = _pem(properties, "ssl.truststore", "ssl.truststore.certificates")
    ca_pem = trusted.certificates if trusted is not None else None
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if algorithm not in ("https", ""):
        raise PropertiesError("ssl.endpoint.identification.algorithm must be https or empty")
    own = _pem(properties, "ssl.keystore", "ssl.keystore.certificate.chain")
    chain = own.certificates if own is not None else None
    key = properties.get("ssl.keystore.key") or (own.key if own is not None else None)
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
    except FileNotFoundError:
        raise PropertiesError(
            "ssl.keystore.* needs a directory for temporary files; set TMPDIR to one that this user can write"
        ) from None
    except (OSError, ValueError):
        which = "ssl.keystore.*" if chain else "ssl.truststore.*"
        raise PropertiesError(
            f"{which} cannot be used: not PEM, a wrong password, or a key of another certificate"
        ) from None
    return tls


def _pem(properties: Mapping[str, str], store: str, inline: str) -> PemStore | None:
    """PEM text given inline or by location, or a Java store. Java's default type is JKS, so PEM must be explicit."""
    location = properties.get(f"{store}.location")
    given = properties.get(inline)
    if location is None and given is None:
        return None
    if location is not None and given is not None:
        raise PropertiesError(f"{store}.location and {inline} are both set; set one")
    kind = properties.get(f"{store}.type", "JKS").strip().upper()
    if kind not in ("PEM", "PKCS12", "JKS"):
        raise PropertiesError(f"{store}.type must be PEM, PKCS12 or JKS")
    if kind != "PEM":
        if given is not None:
            raise PropertiesError(f"{inline} is PEM text; set {store}.type=PEM")
        try:
            return read_store(
                store, str(location), properties.get(f"{store}.password"), properties.get("ssl.key.password")
            )
        except ValueError as error:
            raise PropertiesError(str(error)) from None
    if properties.get(f"{store}.password") is not None:
        raise PropertiesError(f"{store}.password is not for PEM; the password of a key is ssl.key.password")
    if given is not None:
        return PemStore(_pem_blocks(given), None)
    try:
        return PemStore(_pem_blocks(read_limited(str(location)).decode("utf-8")), None)
    except (OSError, UnicodeDecodeError):
        raise PropertiesError(f"{store}.location names a file that cannot be read") from None


def _pem_blocks(text: str) -> str:
    """The PEM blocks of a text, each on its own lines. As in Java (`DefaultSslEngineFactory.PemStore`), any white space
    may stand for a newline, which is how a properties file continues a line. Text between blocks is left out.
    """
    # Without the look for the next beginning, many beginnings without an end take minutes.
    blocks = re.findall(r"-----BEGIN ([A-Z0-9 ]+)-----((?:(?!-----BEGIN).)*?)-----END \1-----", text, re.DOTALL)
    return "".join(f"-----BEGIN {kind}-----\n{_pem_lines(body)}\n-----END {kind}-----\n" for kind, body in blocks)


def _pem_lines(body: str) -> str:
    # An encrypted key of the old form has header lines, which must not change.
    return body.strip() if ":" in body else "\n".join(body.split())


def _sasl(properties: Mapping[str, str], protocol: str) -> dict[str, Any]:
    """The fields of ConnectionSettings."""
    mechanism = properties.get("sasl.mechanism", "GSSAPI").strip().upper()
    kerberos = _SERVICE_NAME in properties or _LOGIN_MODULES["GSSAPI"] in properties.get("sasl.jaas.config", "")
    if mechanism not in _LOGIN_MODULES or ("sasl.mechanism" not in properties and not kerberos):
        raise PropertiesError(f"sasl.mechanism must be one of {', '.join(_LOGIN_MODULES)}")
    if mechanism == "GSSAPI" and "sasl.jaas.config" not in properties:
        _refuse_of_other_mechanisms(properties, mechanism)
        return _kerberos(properties, {})
    text = properties.get("sasl.jaas.config", "")
    if len(text) > _JAAS_LENGTH_MAX:
        raise PropertiesError(f"sasl.jaas.config has more than {_JAAS_LENGTH_MAX:,} characters, which is no login")
    line = _JAAS_COMMENT.sub(lambda found: found["kept"] or " ", text).strip()
    jaas = _JAAS.fullmatch(line[:-1].rstrip()) if line.endswith(";") else None
    if jaas is None:
        raise PropertiesError('sasl.jaas.config must read: <login module> required username="..." password="...";')
    if jaas["module"] != _LOGIN_MODULES[mechanism]:
        raise PropertiesError(f"sasl.jaas.config must name {_LOGIN_MODULES[mechanism]} with sasl.mechanism={mechanism}")
    options = _jaas_options((jaas["options"] or "").strip())
    _refuse_of_other_mechanisms(properties, mechanism)
    if mechanism == "OAUTHBEARER":
        return {"sasl_mechanism": mechanism, "oauth": _oauth(properties, options)}
    if mechanism == "GSSAPI":
        return _kerberos(properties, options)
    if mechanism == "AWS_MSK_IAM":
        return {"sasl_mechanism": _msk(options, protocol)}
    if options.pop(_DELEGATION, "false").strip().lower() == "true":
        why = "delegation tokens are not supported; use a password"
        raise PropertiesError(f"sasl.jaas.config has {_DELEGATION}: {why}")
    if set(options) != {"username", "password"}:
        raise PropertiesError("sasl.jaas.config must give username and password and nothing else")
    return {"sasl_mechanism": mechanism, "sasl_username": options["username"], "sasl_password": options["password"]}


def _refuse_of_other_mechanisms(properties: Mapping[str, str], mechanism: str) -> None:
    """Refuses settings of a mechanism that is not in use, and callback classes that are not known here."""
    for key, classes in _HANDLERS.items():
        if key in properties and properties[key].strip() not in classes:
            raise PropertiesError(f"{key} must be {' or '.join(classes)}; other classes cannot be loaded here")
    for key in sorted(_OF_OAUTH):
        if key in properties and mechanism != "OAUTHBEARER":
            raise PropertiesError(f"{key} has no effect with sasl.mechanism={mechanism}")
    for key in sorted(_OF_KERBEROS):
        if key in properties and mechanism != "GSSAPI":
            raise PropertiesError(f"{key} has no effect with sasl.mechanism={mechanism}")


def _oauth(properties: Mapping[str, str], options: Mapping[str, str]) -> OAuthSettings:
    """Client credentials from their own settings (since Kafka 4.1), which take precedence, or from the JAAS line."""
    url = properties.get(_TOKEN_URL, "").strip()
    if not url.startswith(("https://", "http://")):
        raise PropertiesError(f"{_TOKEN_URL} must be a URL of http or https; a token from elsewhere is not supported")
    said = {
        "client_id": properties.get(f"{_OAUTH}client.credentials.client.id", options.get("clientId")),
        "client_secret": properties.get(f"{_OAUTH}client.credentials.client.secret", options.get("clientSecret")),
    }
    for name, value in said.items():
        if not value:
            setting = f"{_OAUTH}client.credentials.{name.replace('_', '.')}"
            raise PropertiesError(f"{setting} is needed for OAUTHBEARER, or the same in sasl.jaas.config")
    extensions = {name.removeprefix("extension_"): v for name, v in options.items() if name.startswith("extension_")}
    unknown = set(options) - {"clientId", "clientSecret", "scope"} - {f"extension_{name}" for name in extensions}
    if unknown:
        raise PropertiesError(f"sasl.jaas.config has {sorted(unknown)[0]}, which is not supported with OAUTHBEARER")
    return OAuthSettings(
        token_url=url,
        client_id=str(said["client_id"]),
        client_secret=str(said["client_secret"]),
        scope=properties.get(f"{_OAUTH}scope", options.get("scope")),
        urlencoded=properties.get(f"{_OAUTH}header.urlencode", "false").strip().lower() == "true",
        extensions=tuple(sorted(extensions.items())),
    )


def _msk(options: Mapping[str, str], protocol: str) -> str:
    if options:
        raise PropertiesError(
            f"sasl.jaas.config has {sorted(options)[0]}, which is not supported; credentials are taken as AWS's own "
            "tools take them, from the environment or the profile that AWS_PROFILE names"
        )
    if protocol != "SASL_SSL":
        raise PropertiesError("sasl.mechanism=AWS_MSK_IAM needs security.protocol=SASL_SSL")
    if find_spec("botocore") is None:
        raise PropertiesError("sasl.mechanism=AWS_MSK_IAM needs the library botocore; install txnscan[msk]")
    return "AWS_MSK_IAM"


def _kerberos(properties: Mapping[str, str], options: Mapping[str, str]) -> dict[str, Any]:
    """Kerberos with the ticket in the user's cache (`KRB5CCNAME`). The library accepts no other ticket. For keytabs,
    use kinit.
    """
    for name, value in sorted(options.items()):
        if name not in (*_OF_TICKET_CACHE, "serviceName") and value.lower() != "false":
            raise PropertiesError(
                f"sasl.jaas.config has {name}, which is not supported; get a ticket first (kinit, or kinit -kt KEYTAB "
                "PRINCIPAL), and say useTicketCache=true alone"
            )
    said = {properties.get(_SERVICE_NAME, "").strip(), options.get("serviceName", "")} - {""}
    if not said:
        raise PropertiesError(f"{_SERVICE_NAME} is needed for GSSAPI, which is the mechanism where none is set")
    if len(said) > 1:
        raise PropertiesError(f"{_SERVICE_NAME} and serviceName in sasl.jaas.config differ; set one")
    if find_spec("gssapi") is None:
        raise PropertiesError("sasl.mechanism=GSSAPI needs the library gssapi; install txnscan[kerberos]")
    return {"sasl_mechanism": "GSSAPI", "kerberos_service": said.pop()}


def _jaas_options(text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _JAAS_OPTION.match(text, position)
        if match is None:
            raise PropertiesError("sasl.jaas.config cannot be parsed after its login module")
        quoted = match["double"] if match["double"] is not None else match["single"]
        value = _unescaped(quoted) if quoted is not None else match["bare"]
        options[match["name"]] = value
        position = match.end()
    return options


def _unescaped(text: str) -> str:
    """A quoted string, decoded as Java's StreamTokenizer decodes it."""
    named = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}

    def character(match: re.Match[str]) -> str:
        return chr(int(match[1], 8)) if match[1][0] in "01234567" else named.get(match[1], match[1])

    return re.sub(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|\D|[89])", character, text)


def _positive_int(properties: Mapping[str, str], key: str, default: int) -> int:
    text = properties.get(key)
    if text is None:
        return default
    number = whole_number(text.strip())
    if number is None or not 0 < number < 2**31:
        raise PropertiesError(f"{key} must be a whole number of milliseconds above 0")
    return number
