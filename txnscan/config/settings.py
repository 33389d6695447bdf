"""The settings of one cluster. Each is declared once, for all the ways to give it.

| way | name of `late-after` | of `bootstrap-server` |
|---|---|---|
| option of a command | `--late-after` | `--bootstrap-server` |
| variable of the environment | `TXNSCAN_LATE_AFTER` | `TXNSCAN_BOOTSTRAP_SERVERS` |
| key in a file of clusters, and in the Helm chart | `late-after` | `bootstrap-server` |
| option of the SQL source | `lateAfter` | `bootstrapServers` |
| field of `ScanConfig` | `late_after_ms` | `bootstrap_servers` |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from types import MappingProxyType
from typing import Any

from txnscan.config import ConfigError, ScanConfig, parse_duration_ms, printable, scheme_of

_DEFAULTS = ScanConfig("unused:1")


class Kind(Enum):
    """What the values of a setting are."""

    TEXT = auto()
    WHOLE_NUMBER = auto()
    DURATION = auto()
    PATH = auto()
    LOCATION = auto()
    TEXTS = auto()
    PATHS = auto()


_DIGITS_MAX = 18
_SEVERAL = (Kind.TEXTS, Kind.PATHS)


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of one cluster.

    key: the option without its dashes. field: of ScanConfig. metavar, help: of the option. plural: the name in
    variables and in SQL, if it is not the key. in_sql: whether the SQL source takes it. is_required: whether a command
    needs it. default: as a command line has it, if it is not that of ScanConfig.
    """

    key: str
    field: str
    kind: Kind
    metavar: str
    help: str
    plural: str = ""
    in_sql: bool = True
    is_required: bool = False
    default: str | None = None

    @property
    def option(self) -> str:
        """Of commands."""
        return f"--{self.key}"

    @property
    def variable(self) -> str:
        """Of the environment."""
        return f"TXNSCAN_{(self.plural or self.key).replace('-', '_').upper()}"

    @property
    def sql_option(self) -> str:
        """Of the SQL source."""
        first, *others = (self.plural or self.key).split("-")
        return first + "".join(map(str.capitalize, others))

    @property
    def is_several(self) -> bool:
        """Whether it may be given several times."""
        return self.kind in _SEVERAL

    def parsed(self, value: Any, option: str) -> Any:
        """The value for ScanConfig of one on a command line. option: its name, for errors. Raises ConfigError."""
        if self.kind is Kind.DURATION:
            return parse_duration_ms(value, option)
        return tuple(value) if self.is_several else value

    def of_text(self, text: str, option: str) -> Any:
        """The value for ScanConfig of one text. option: its name, for errors. Raises ConfigError."""
        if self.kind is Kind.WHOLE_NUMBER:
            # More digits are a number that is out of every range, and Python refuses thousands of them.
            if not text.isdecimal() or not text.isascii() or len(text) > _DIGITS_MAX:
                raise ConfigError(option, f"'{printable(text)}' is no whole number")
            return int(text)
        return self.parsed([text] if self.is_several else text, option)

    def of_toml(self, value: Any, folder: Path) -> Any:
        """The value for ScanConfig of one in TOML. folder: of the file, in which paths begin. Raises ConfigError."""
        if self.is_several and isinstance(value, str):
            value = [value]
        self._check_type(value)
        if self.kind is Kind.PATH or (self.kind is Kind.LOCATION and "/" in value):
            value = _below(folder, value)
        elif self.kind is Kind.PATHS:
            value = [_below(folder, one) for one in value]
        return self.parsed(value, self.option)

    def _check_type(self, value: Any) -> None:
        if self.is_several:
            right = isinstance(value, list) and all(isinstance(one, str) for one in value)
            needed = "a text in quotes, or a list of these"
        elif self.kind is Kind.WHOLE_NUMBER:
            right, needed = isinstance(value, int) and not isinstance(value, bool), "a whole number"
        else:
            right, needed = isinstance(value, str), "a text in quotes"
        if not right:
            raise ConfigError(self.option, f"must be {needed}")

    def written(self, config: ScanConfig) -> Any:
        """The value in a config as a command line has it. None: it is the default."""
        value = getattr(config, self.field)
        if value == getattr(_DEFAULTS, self.field):
            return None
        if self.kind is Kind.DURATION:
            return f"{value}ms"
        return list(value) if self.is_several else value


def _below(folder: Path, path: str) -> str:
    """A path as a file in this folder means it. Locations with a scheme stay as they are, and so does an empty text."""
    if scheme_of(path) or not path:
        return path
    return str(folder / Path(path).expanduser())


BOOTSTRAP_SERVER = Setting(
    "bootstrap-server",
    "bootstrap_servers",
    Kind.TEXT,
    "HOST:PORT[,...]",
    "Brokers to start from.",
    plural="bootstrap-servers",
)
COMMAND_CONFIG = Setting(
    "command-config", "command_config", Kind.PATH, "FILE", "Kafka's client.properties: security and timeouts."
)
TABLES = Setting(
    "tables",
    "tables",
    Kind.LOCATION,
    "LOCATION",
    "Location of the Delta tables: a path (with a slash), or catalog.schema.",
    in_sql=False,
)
TOPIC = Setting("topic", "topic", Kind.TEXTS, "REGEX", "Only topics whose whole name matches. May be repeated.")
LATE_AFTER = Setting(
    "late-after",
    "late_after_ms",
    Kind.DURATION,
    "DURATION",
    "Age from which a transaction is late, such as 20m. "
    "Default: the brokers' transaction.max.timeout.ms plus 5 minutes.",
)
BLOCKING_AFTER = Setting(
    "blocking-after",
    "blocking_after_ms",
    Kind.DURATION,
    "DURATION",
    "Age from which a live transaction is shown and stored if it holds readers back, even if no group is seen "
    "to wait for it. Default: a quarter of --late-after.",
)
TIMEOUT = Setting(
    "timeout",
    "timeout_ms",
    Kind.DURATION,
    "DURATION",
    "Time limit of a sweep, such as 4m. Partitions that it has not read by then are reported as not observed. "
    "Default: 5 minutes, or 10 times the predicted time of a large cluster.",
)
BATCH_SIZE = Setting(
    "batch-size",
    "batch_size",
    Kind.WHOLE_NUMBER,
    "NUMBER",
    f"Partitions in one request. Default: {_DEFAULTS.batch_size}.",
)
IN_FLIGHT = Setting(
    "in-flight",
    "in_flight_max",
    Kind.WHOLE_NUMBER,
    "NUMBER",
    f"Requests in flight at one broker. Default: {_DEFAULTS.in_flight_max}.",
)
OWNER_PATTERN = Setting(
    "owner-pattern",
    "owner_pattern",
    Kind.TEXTS,
    "NAME=REGEX",
    "NAME owns the transactional ids that REGEX matches as a whole. May be repeated; the first match counts.",
)
COMPLETE_UP_TO = Setting(
    "complete-up-to",
    "complete_up_to",
    Kind.TEXTS,
    "TOPIC",
    "Read all partitions of this topic, and report the time up to which read_committed consumers can read "
    "everything. May be repeated.",
    in_sql=False,
)
SPARK_CHECKPOINT = Setting(
    "spark-checkpoint",
    "spark_checkpoint",
    Kind.PATHS,
    "PATH",
    "checkpointLocation of a Spark streaming query, which commits no offsets: name the query if it waits "
    "for a transaction. May be repeated.",
)
# By their keys.
SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        one.key: one
        for one in (
            BOOTSTRAP_SERVER,
            COMMAND_CONFIG,
            TABLES,
            TOPIC,
            LATE_AFTER,
            BLOCKING_AFTER,
            TIMEOUT,
            BATCH_SIZE,
            IN_FLIGHT,
            OWNER_PATTERN,
            COMPLETE_UP_TO,
            SPARK_CHECKPOINT,
        )
    }
)
