"""The user's settings: validated, frozen and picklable. Every error names the option and the remedy."""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from txnscan.errors import ExitStatus, TxnscanError
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.topology import PORT_MAX, Broker
from txnscan.kafka.units import INT_MAX
from txnscan.patterns import PatternError, check_pattern, matching
from txnscan.shell import options_of

# `LATE_TRANSACTION_BUFFER_MS` of the brokers' PartitionsWithLateTransactionsCount metric (KIP-664).
LATE_BUFFER_MS = 300_000
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# Such a number of milliseconds is exact in JSON.
_DURATION_MS_MAX = 2**53
_DURATION = re.compile(r"(\d{1,99})(ms|s|m|h|d)", re.ASCII)
# A hundred years. Before now they are a date, and the longest time that Python's threads wait is longer.
_DAYS_MAX = 36_500
_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:/.*")
# A URL with its user and its query. A password may have slashes.
_PARTS = re.compile(
    r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*:/+)(?P<user>[^\s?#'\"@]*:[^\s?#'\"@]*@|[^\s/?#'\"@]*@)?"
    r"(?P<path>[^\s?#'\"]*)(?P<query>[?#][^\s'\"]*)?"
)
# In their URLs the container stands before the @.
_AZURE = ("abfs:", "abfss:", "wasb:", "wasbs:")
# The limit of checkpoints of one cluster.
_CHECKPOINTS_MAX = 1_000
# An identifier of Spark SQL: plain, or any text in backquotes.
_SQL_NAME = r"(?:[A-Za-z_]\w*|`(?:[^`]|``)+`)"
_CATALOG_SCHEMA = re.compile(rf"{_SQL_NAME}\.{_SQL_NAME}", re.ASCII)


class EngineName(StrEnum):
    """The engine that a user may ask for."""

    AUTO = "auto"
    SPARK = "spark"
    THREADS = "threads"


class ConfigError(TxnscanError, ValueError):
    """An option that cannot be used. `str()` is one sentence that starts with its name. named, why: its two parts."""

    exit_status = ExitStatus.USAGE

    def __init__(self, option: str, why: str) -> None:
        super().__init__(f"{option}: {why}")
        self.named, self.why = option, why


@dataclass(frozen=True, slots=True)
class ScanConfig:
    """The settings of a sweep, with the names and meanings of the command line options.

    bootstrap_servers: host:port, several separated by commas. command_config: the path of a Kafka client.properties.
    tables: the location of the Delta tables: a path (with a slash) or catalog.schema; with None the sweep is not
    stored. topic: regular expressions; a topic is in scope if any of them matches its whole name; empty means every
    topic. late_after_ms: the age from which a transaction is late; None means the brokers' longest
    `transaction.max.timeout.ms` plus five minutes. blocking_after_ms: the age from which a live transaction gets a row,
    even if no group is seen to wait for it; None means a quarter of late_after_ms. engine: "spark" reads on executors,
    "threads" in this process, and "auto" on the executors of a given session if they can connect to the brokers, else
    in this process. batch_size: partitions in one request. in_flight_max: requests in flight to one broker. broker_ids,
    topic_names, partitions: limit the scope further, like the options of Kafka's own tool. store_all: whether healthy
    transactions get rows in the tables; otherwise they are only counted. owner_pattern: NAME=REGEX; a transactional id
    that REGEX matches as a whole belongs to NAME. The first match counts, before the known frameworks. timeout_ms: how
    long the sweep may send requests to brokers; data that it has not read by then counts as not observed. None means
    five minutes, or ten times the predicted time of a large cluster (`deadline.sweep_limit_ms`).
    complete_up_to: names of topics. The sweep reads all their partitions, whatever its scope, and computes the time up
    to which each topic is complete. spark_checkpoint: the paths of checkpoints of streaming queries, which may wait for
    transactions. new_history: the user says that earlier histories of the cluster are over: facts that were stored
    before this sweep forbid no ABORT any more.

    brokers, owners, location: what bootstrap_servers, owner_pattern and tables say, for the code.

    Raises ConfigError.
    """

    bootstrap_servers: str
    command_config: str | None = None
    tables: str | None = None
    topic: tuple[str, ...] = ()
    late_after_ms: int | None = None
    engine: str = EngineName.AUTO
    batch_size: int = 2_048
    in_flight_max: int = 2
    broker_ids: tuple[int, ...] = ()
    topic_names: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    store_all: bool = False
    owner_pattern: tuple[str, ...] = ()
    timeout_ms: int | None = None
    complete_up_to: tuple[str, ...] = ()
    blocking_after_ms: int | None = None
    spark_checkpoint: tuple[str, ...] = ()
    new_history: bool = False
    brokers: tuple[Broker, ...] = field(init=False, repr=False, compare=False)
    owners: tuple[tuple[str, str], ...] = field(init=False, repr=False, compare=False)
    location: Location | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "brokers", parse_bootstrap_servers(self.bootstrap_servers))
        if self.command_config is not None and not self.command_config.strip():
            raise ConfigError("--command-config", "is empty; give a client.properties, or leave the option out")
        object.__setattr__(self, "topic", (self.topic,) if isinstance(self.topic, str) else tuple(self.topic))
        for text in self.topic:
            check_topic_pattern(text)
        own = (self.owner_pattern,) if isinstance(self.owner_pattern, str) else tuple(self.owner_pattern)
        object.__setattr__(self, "owner_pattern", own)
        object.__setattr__(self, "owners", tuple(map(parse_owner_pattern, own)))
        for option, value_ms in (
            ("--late-after", self.late_after_ms),
            ("--blocking-after", self.blocking_after_ms),
            ("--timeout", self.timeout_ms),
        ):
            if value_ms is not None and not 0 < value_ms < _DURATION_MS_MAX:
                raise ConfigError(option, f"{value_ms} ms is out of range; use 1 ms or more")
        if self.engine not in [*EngineName]:
            raise ConfigError("--engine", f"'{self.engine}' is unknown; use one of {', '.join(EngineName)}")
        object.__setattr__(self, "location", None if self.tables is None else Location.of(self.tables))
        if self.new_history and self.location is None:
            raise ConfigError("--new-history", "needs --tables: it is about what earlier sweeps stored there")
        for option, value, most in (
            ("--batch-size", self.batch_size, 10_000),
            ("--in-flight", self.in_flight_max, 64),
        ):
            check_number(option, value, most, least=1)
        named = (self.complete_up_to,) if isinstance(self.complete_up_to, str) else tuple(self.complete_up_to)
        object.__setattr__(self, "complete_up_to", named)
        paths = (self.spark_checkpoint,) if isinstance(self.spark_checkpoint, str) else self.spark_checkpoint
        if len(paths) > _CHECKPOINTS_MAX:
            raise ConfigError("--spark-checkpoint", f"{len(paths):,} are too many; give at most {_CHECKPOINTS_MAX:,}")
        object.__setattr__(self, "spark_checkpoint", tuple(map(parse_checkpoint, paths)))
        for name in self.topic_names:
            check_topic_name("--topic", name)
        for name in self.complete_up_to:
            check_topic_name("--complete-up-to", name)
        for broker_id in self.broker_ids:
            check_number("--broker-id", broker_id, INT_MAX)
        for index in self.partitions:
            check_number("--partition", index, INT_MAX)
        if self.partitions and not self.topic_names:
            raise ConfigError("--partition", "needs --topic to say of which topic")

    def wanted_topics(self, names: Iterable[str]) -> frozenset[str]:
        """Those of the topics that are in scope. Raises ConfigError if a pattern takes too long."""
        named = frozenset(names)
        return topics_matching(self.topic, named & frozenset(self.topic_names) if self.topic_names else named)

    @property
    def scope(self) -> str:
        """The scope as text, for the stored sweep."""
        limits = [
            f"{name}={','.join(map(str, values))}"
            for name, values in (
                ("topic", (*self.topic, *self.topic_names)),
                ("partition", self.partitions),
                ("broker", self.broker_ids),
            )
            if values
        ]
        return " ".join(limits) or "all"

    @property
    def settings(self) -> str:
        """The options as JSON, for the stored sweep, without secrets: credentials are in the file of `command_config`,
        and may be in the URL of a checkpoint, which is shortened.
        """
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.init}
        return json.dumps({**values, "spark_checkpoint": [*map(shown_location, self.spark_checkpoint)]})

    def connection_options(self) -> str:
        """The options that reach this cluster, quoted for a shell, for the next commands."""
        return options_of(bootstrap_server=self.bootstrap_servers, command_config=self.command_config)

    def warnings(self) -> list[str]:
        """A sentence for each valid setting that is probably a mistake. Raises ConfigError."""
        if self.command_config is None:
            return []
        # Import it only here: the import takes a tenth of a command's own time, and most commands have no such file.
        from txnscan.kafka.client.properties import PropertiesError, properties_warnings

        try:
            return [f"--command-config: {warning}" for warning in properties_warnings(Path(self.command_config))]
        except PropertiesError as error:
            raise ConfigError("--command-config", str(error)) from None

    def exposed_files(self) -> list[str]:
        """A sentence for each file with secrets that other users can read. Raises ConfigError."""
        if self.command_config is None:
            return []
        from txnscan.kafka.client.properties import PropertiesError, exposed_files

        try:
            return exposed_files(Path(self.command_config))
        except PropertiesError as error:
            raise ConfigError("--command-config", str(error)) from None

    def connection(self) -> ConnectionSettings:
        """The settings of --command-config. Raises ConfigError."""
        if self.command_config is None:
            return ConnectionSettings()
        from txnscan.kafka.client.properties import PropertiesError, read_properties

        try:
            return read_properties(Path(self.command_config))
        except PropertiesError as error:
            raise ConfigError("--command-config", str(error)) from None


@dataclass(frozen=True, slots=True)
class Location:
    """Where the Delta tables are. text: an absolute path, a URL as it was given, or `catalog.schema`, each part plain
    or in backquotes. in_catalog: whether it is the last.
    """

    text: str
    in_catalog: bool = False

    @classmethod
    def of(cls, text: str | Location) -> Location:
        """The location that a user named. A path must contain a slash, so that a mistyped catalog does not become a
        directory. Raises ConfigError.
        """
        if isinstance(text, Location):
            return text
        if _CATALOG_SCHEMA.fullmatch(text):
            return cls(text, in_catalog=True)
        if _URL.fullmatch(text):
            return cls(text)
        if text.strip() and ("/" in text or text in (".", "..", "~")):
            return cls(str(Path(text).expanduser().absolute()))
        raise ConfigError("--tables", _why_no_location(text))

    @property
    def scheme(self) -> str:
        """The scheme of a URL. Empty for a path, and for a schema of a catalog."""
        return "" if self.in_catalog else scheme_of(self.text)

    @property
    def path(self) -> Path | None:
        """The folder, if the location is one of this machine, with or without `file:` before it."""
        return local_path(self.text) if is_local(self.scheme) and not self.in_catalog else None

    def of_table(self, name: str) -> str:
        """The location of a table's files, or its name in the catalog."""
        return f"{self.text}.{name}" if self.in_catalog else f"{self.text.rstrip('/')}/{name}"

    def sql_name(self, name: str) -> str:
        """The name of a table in Spark SQL."""
        if self.in_catalog:
            return self.of_table(name)
        path = self.of_table(name).replace("`", "``")
        return f"delta.`{path}`"

    def __str__(self) -> str:
        return self.text


def scheme_of(location: str) -> str:
    """The scheme of a location such as `s3a://bucket/path` or `file:/path`, "" without a scheme."""
    scheme, colon, _ = location.partition(":")
    return scheme.lower() if colon and "/" not in scheme else ""


def is_local(scheme: str) -> bool:
    """Whether a location of this scheme is a path of the machine."""
    return scheme in ("", "file")


def shown_location(location: str) -> str:
    """A location for people and tables: printable, without the secrets that a URL may have."""
    return printable(without_secrets(location) if scheme_of(location) else location)


def without_secrets(text: str) -> str:
    """The text, with the users, passwords and queries of its URLs replaced."""
    return _PARTS.sub(_hidden, text)


def _hidden(url: re.Match[str]) -> str:
    user, query = url["user"] or "", url["query"] or ""
    is_container = url["scheme"].lower().startswith(_AZURE) and ":" not in user
    shown = user if is_container or not user else "***@"
    return f"{url['scheme']}{shown}{url['path']}{query[:1]}{'***' if query else ''}"


def local_path(location: str) -> Path:
    """The path of a local location, with or without `file:`. Hadoop does not percent-encode it."""
    return Path(re.sub(r"^file:/+", "/", location))


def _why_no_location(text: str) -> str:
    """What is wrong with a text that names no location, and the remedy, in a clause."""
    if not text.strip():
        return "is empty; give a path or catalog.schema"
    shown = printable(text)
    parts = text.split(".")
    quoted = ".".join(part if re.fullmatch(r"[A-Za-z_]\w*", part, re.ASCII) else f"`{part}`" for part in parts)
    name = f"{printable(quoted)} for a schema of a catalog" if len(parts) == 2 and all(parts) else "catalog.schema"
    return f"'{shown}' is neither a path nor catalog.schema; write ./{shown} for a directory, or {name}"


def parse_checkpoint(text: str) -> str:
    """The location of a checkpoint: with a scheme unchanged, a path as an absolute path. Raises ConfigError."""
    if not text.strip():
        raise ConfigError("--spark-checkpoint", "is empty; give the checkpointLocation of a streaming query")
    return text if scheme_of(text) else str(Path(text).expanduser().absolute())


def check_topic_pattern(text: str) -> None:
    """Raises ConfigError if the text is not a regular expression."""
    try:
        check_pattern(text)
    except PatternError as error:
        raise ConfigError("--topic", str(error)) from None


def topics_matching(patterns: Sequence[str], names: Collection[str]) -> frozenset[str]:
    """Those of the topics whose whole name any of the patterns matches; all topics without a pattern. Raises
    ConfigError if a pattern takes too long.
    """
    if not patterns:
        return frozenset(names)
    try:
        return frozenset().union(*matching(patterns, sorted(names)).values())
    except PatternError as error:
        raise ConfigError("--topic", str(error)) from None


def parse_owner_pattern(text: str) -> tuple[str, str]:
    """The name in NAME=REGEX, and the regular expression for its transactional ids. Raises ConfigError."""
    name, equals, pattern = text.partition("=")
    if not name.strip() or not equals or not pattern:
        raise ConfigError("--owner-pattern", f"'{printable(text)}' is not NAME=REGEX, such as 'billing=billing-.*'")
    try:
        check_pattern(pattern)
    except PatternError as error:
        raise ConfigError("--owner-pattern", str(error)) from None
    return name.strip(), pattern


def check_topic_name(option: str, name: str) -> None:
    """Raises ConfigError if no topic can have this name."""
    if not _LEGAL_TOPIC.fullmatch(name) or name in (".", ".."):
        raise ConfigError(option, f"'{printable(name)}' is not a legal topic name")


def check_number(option: str, value: float, most: int, *, least: int = 0) -> None:
    """Raises ConfigError if the number is not in this range."""
    if not least <= value <= most:
        raise ConfigError(option, f"{value} is out of range; use {least} to {most}")


def parse_duration_ms(text: str, option: str) -> int:
    """The milliseconds of "90s", "20m" or "2h". A number without a unit is refused, because it is ambiguous."""
    match = _DURATION.fullmatch(text)
    value_ms = int(match[1]) * _UNITS_MS[match[2]] if match else 0
    if value_ms == 0:
        raise ConfigError(
            option, f"'{printable(text)}' is not a duration; write a number above 0 with a unit, such as 20m"
        )
    if value_ms > _DAYS_MAX * _UNITS_MS["d"]:
        raise ConfigError(option, f"'{text}' is too long; use {_DAYS_MAX}d at most")
    return value_ms


def parse_optional_duration_ms(text: str | None, option: str) -> int | None:
    """The milliseconds of an option that may be left out. Raises ConfigError."""
    return None if text is None else parse_duration_ms(text, option)


def parse_time_ms(text: str, option: str) -> int:
    """The epoch milliseconds of a time in ISO 8601 with its offset from UTC. Raises ConfigError."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise ConfigError(
            option, f"'{printable(text)}' is not a time with its offset from UTC; write it as 2026-01-31T06:00:00Z"
        )
    try:
        # The first and the last day of the calendar may be in no year in UTC.
        return int(at.astimezone(UTC).timestamp() * 1_000)
    except OverflowError:
        raise ConfigError(option, f"'{printable(text)}' is out of range; use a time in the years 1 to 9999") from None


def parse_bootstrap_servers(text: str) -> tuple[Broker, ...]:
    """The bootstrap servers as brokers -1, -2, ..., numbered as in the Java client. Raises ConfigError."""
    option = "--bootstrap-server"
    if not text.strip():
        raise ConfigError(option, "is empty; give host:port")
    return tuple(
        # Spaces around an address are ignored, as in Kafka (`ConfigDef.parseType`).
        Broker(-position, *_address(address.strip(), option))
        for position, address in enumerate(text.split(","), 1)
    )


def _address(text: str, option: str) -> tuple[str, int]:
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^\s:\[\]/]+)):(\d{1,9})", text, re.ASCII)
    if match is None:
        raise ConfigError(option, f"'{printable(text)}' is not host:port (an IPv6 address stands in brackets)")
    if match[1] is not None and not _is_ipv6(match[1]):
        raise ConfigError(option, f"'{match[1]}' is not an IPv6 address")
    port = int(match[3])
    if not 1 <= port <= PORT_MAX:
        raise ConfigError(option, f"port {port} is not between 1 and {PORT_MAX}")
    return match[1] or match[2], port


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def utf8_text(option: str, text: str) -> str:
    """A transactional id or group from the command line, as the UTF-8 text that Kafka stores. Raises ConfigError if it
    is not UTF-8.

    Python decodes arguments by the locale, and represents undecodable bytes as lone surrogates. Under an ASCII locale
    these are the bytes of UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        try:
            return os.fsencode(text).decode()
        except UnicodeError:
            said = f"'{printable(text)}' is not UTF-8, in which Kafka writes it; check the encoding of the terminal"
            raise ConfigError(option, said) from None
    return text


def printable(text: str) -> str:
    """External text, safe on a terminal and on one line: characters that are not printable are escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in text)
