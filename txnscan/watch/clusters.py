"""The configuration file of `watch` and `sweep` (TOML): the clusters and the notification targets. It is checked as a
whole, and all errors are reported together, before anything starts.

    [clusters.orders]
    bootstrap-server = "kafka1:9092,kafka2:9092"
    command-config = "orders.properties"
    late-after = "20m"

    [[notify]]
    url-file = "/run/secrets/slack"
    as = "slack"

The keys are the names of command line options. Paths are relative to the file.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from txnscan.config import ConfigError, ScanConfig, parse_bootstrap_servers, printable
from txnscan.config.settings import BOOTSTRAP_SERVER, SETTINGS, TABLES, Setting
from txnscan.errors import ExitStatus, TxnscanError
from txnscan.report.files import read_text
from txnscan.report.notifications import APPRISE, SHAPES, Shape, template

if TYPE_CHECKING:
    from txnscan.watch.notifier import Target

# The environment variable with the path of the file of named clusters.
CONFIG_VARIABLE = "TXNSCAN_CONFIG"
# The environment variable with the key of the PagerDuty integration, if no file has it.
ROUTING_KEY_VARIABLE = "TXNSCAN_PAGERDUTY_ROUTING_KEY"
_NAME_MAX = 100
# For a key of many parts, `tomllib` takes memory by their square: 400 KB became more than there is.
_DEEP_KEY = re.compile(r"""(?:\.[ \t]*[\w"'-]{1,1000}[ \t]*){100}""")

_SECRET_FILES = ("url-file", "routing-key-file")
_NOTIFY_KEYS = ("url", "url-file", "as", "template", "routing-key-file")


class ClustersError(TxnscanError):
    """The file has errors. complaints has a sentence for each; `str()` joins them."""

    exit_status = ExitStatus.USAGE

    def __init__(self, path: Path, complaints: list[str]) -> None:
        shown = printable(str(path))
        self.complaints = [f"--config: {shown}: {complaint}" for complaint in complaints]
        super().__init__("; ".join(self.complaints))


@dataclass(frozen=True, slots=True)
class ToWatch:
    """The clusters by name, and the targets of notifications. secrets: the files with URLs or keys."""

    clusters: Mapping[str, ScanConfig]
    targets: tuple[Target, ...] = ()
    secrets: tuple[Path, ...] = ()


def read_clusters(path: Path, environment: Mapping[str, str], *, notifies: bool = True, named: bool = False) -> ToWatch:
    """Reads the file. notifies: if False, ignores the targets. named: the file is for the option --cluster.

    Raises ConfigError if the file cannot be read, and ClustersError with all errors in it.
    """
    text = read_text(path, "--config")
    if _DEEP_KEY.search(text):
        raise ClustersError(path, ["it has a key of too many parts"])
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ClustersError(path, [f"it is not TOML: {printable(str(error))}"]) from None
    except RecursionError:
        raise ClustersError(path, ["it is nested too deeply"]) from None
    except ValueError:
        # `tomllib` lets the errors of the types of Python through.
        raise ClustersError(path, ["it is not TOML: it has a number of too many digits"]) from None
    complaints: list[str] = list(_unknown(found, ("clusters", "notify"), ""))
    tables = found.get("clusters", {})
    clusters: dict[str, ScanConfig] = {}
    if not isinstance(tables, dict) or not tables:
        complaints.append('there is no cluster; write [clusters.NAME] and bootstrap-server = "host:port"')
        tables = {}
    for name, table in tables.items():
        made = _cluster(name, table, path.parent, complaints, named=named)
        if made is not None:
            clusters[name] = made
    complaints += _twice(tables)
    notify = found.get("notify", []) if notifies else []
    targets = []
    if not isinstance(notify, list) or not all(isinstance(table, dict) for table in notify):
        complaints.append("notify is not a list of tables; write [[notify]]")
        notify = []
    for number, table in enumerate(notify, 1):
        target = _target(f"notify {number}: ", table, path.parent, environment, complaints)
        if target is not None:
            targets.append(target)
    if complaints:
        raise ClustersError(path, complaints)
    return ToWatch(MappingProxyType(clusters), tuple(targets), tuple(_secrets(path, notify)))


def config_path(environment: Mapping[str, str]) -> Path:
    """The file of named clusters: TXNSCAN_CONFIG, or `txnscan/config.toml` below XDG_CONFIG_HOME or `~/.config`."""
    given = environment.get(CONFIG_VARIABLE)
    if given:
        return Path(given).expanduser()
    folder = environment.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(folder).expanduser() / "txnscan" / "config.toml"


def named_cluster(name: str, path: Path | None = None) -> ScanConfig:
    """The settings of a cluster in the file of named clusters, after all of the file was checked. path: the file;
    None for `config_path` of the environment. Raises ConfigError.
    """
    where = config_path(os.environ) if path is None else path
    clusters = named_clusters(where)
    if name not in clusters:
        known = ", ".join(map(printable, clusters))
        raise ConfigError("--cluster", f"'{printable(name)}' is not in {printable(str(where))}, which has {known}")
    return clusters[name]


def named_clusters(path: Path) -> Mapping[str, ScanConfig]:
    """The clusters of the file of named clusters. Raises ConfigError."""
    shown = printable(str(path))
    if not path.exists():
        absent = f"{shown} is not there; write [clusters.NAME] into it"
        if os.environ.get(CONFIG_VARIABLE):
            raise ConfigError(CONFIG_VARIABLE, f"{absent}, or name another file")
        raise ConfigError("--cluster", f"{absent}, or set {CONFIG_VARIABLE}")
    try:
        return read_clusters(path, {}, notifies=False, named=True).clusters
    except ClustersError as error:
        said = "; ".join(one.removeprefix(f"--config: {shown}: ") for one in error.complaints)
        raise ConfigError(shown, said) from None


def _secrets(path: Path, notify: list[dict[str, Any]]) -> Iterator[Path]:
    """The files with the URL or the key of a target."""
    if any("url" in table for table in notify):
        yield path
    for table in notify:
        yield from (path.parent / Path(table[key]).expanduser() for key in _SECRET_FILES if key in table)


def make_target(
    url: str, shape: str, template_file: Path | None, routing_key: str | None, *, option: str = "--notify"
) -> Target:
    """The target that these options describe. url: a URL, or @FILE for a file with the URL. Raises ConfigError."""
    from txnscan.watch.notifier import Target

    where = read_text(Path(url[1:]).expanduser(), option).strip() if url.startswith("@") else url
    used = template(read_text(template_file, "--notify-template")) if template_file is not None else _shape(shape)
    if template_file is None and shape == "pagerduty" and not routing_key:
        raise ConfigError(f"{option}-as", f"pagerduty needs a routing key; set {ROUTING_KEY_VARIABLE}")
    through_apprise = shape == APPRISE
    if through_apprise and template_file is not None:
        raise ConfigError("--notify-template", "gives JSON to post; leave it out with apprise, which takes a text")
    return Target(_parser(shape)(where, option), used, routing_key, through_apprise)


def _parser(shape: str) -> Callable[[str, str], str]:
    """Checks the URL of a target of this shape. It raises ConfigError, without the URL."""
    if shape == APPRISE:
        from txnscan.watch.through_apprise import parse_apprise_url

        return parse_apprise_url
    from txnscan.watch.notifier import parse_url

    return parse_url


def _shape(name: str) -> Shape:
    if name not in SHAPES:
        raise ConfigError("--notify-as", f"'{printable(name)}' is unknown; use one of {', '.join(SHAPES)}")
    return SHAPES[name]


def _cluster(name: str, table: Any, folder: Path, complaints: list[str], *, named: bool) -> ScanConfig | None:
    at = f"clusters.{printable(name)}: "
    before = len(complaints)
    if not isinstance(table, dict):
        complaints.append(f"{at}must be a table; write [clusters.{printable(name)}]")
        return None
    if not name or len(name) > _NAME_MAX or not name.isprintable():
        complaints.append(f"{at}a name has 1 to {_NAME_MAX} characters that can be printed")
    complaints += _unknown(table, tuple(SETTINGS), at)
    if TABLES.key in table and not named:
        # Sweeps of all clusters of a file go to the same tables.
        complaints.append(f"{at}{TABLES.key} is for --cluster alone; give {TABLES.option}")
    if BOOTSTRAP_SERVER.key not in table:
        complaints.append(f'{at}bootstrap-server is missing; write bootstrap-server = "host:port"')
    values: dict[str, Any] = {"engine": "auto" if named else "threads"}
    for key, setting in SETTINGS.items():
        if key in table:
            # Each key is checked alone, so that all complaints are reported.
            values[setting.field] = _heard(partial(_of_key, setting, table[key], folder), at, complaints)
    if len(complaints) > before:
        return None
    made = _heard(lambda: ScanConfig(**values), at, complaints)
    return made if made is not None and _heard(made.connection, at, complaints) is not None else None


def _of_key(setting: Setting, value: Any, folder: Path) -> Any:
    """The value of a key, for ScanConfig. Raises ConfigError."""
    parsed = setting.of_toml(value, folder)
    ScanConfig(**{BOOTSTRAP_SERVER.field: "unknown:1", setting.field: parsed})
    return parsed


def _target(
    at: str, table: dict[str, Any], folder: Path, environment: Mapping[str, str], complaints: list[str]
) -> Target | None:
    before = len(complaints)
    complaints += _unknown(table, _NOTIFY_KEYS, at)
    not_text = [key for key in _NOTIFY_KEYS if key in table and not isinstance(table[key], str)]
    complaints += [f"{at}{key} must be a text in quotes" for key in not_text]
    if ("url" in table) == ("url-file" in table):
        complaints.append(f"{at}give either url or url-file")
    if len(complaints) > before:
        return None

    def path(key: str) -> Path | None:
        return folder / Path(table[key]).expanduser() if key in table else None

    def made() -> Target:
        key_file, url_file = path("routing-key-file"), path("url-file")
        key = read_text(key_file, "routing-key-file").strip() if key_file else environment.get(ROUTING_KEY_VARIABLE)
        shape = table.get("as", "json")
        parse = _parser(shape)
        url = parse(read_text(url_file, "url-file").strip(), "url-file") if url_file else parse(table["url"], "url")
        return make_target(url, shape, path("template"), key, option="notify")

    target: Target | None = _heard(made, at, complaints)
    return target


def _heard(make: Callable[[], Any], at: str, complaints: list[str]) -> Any:
    try:
        return make()
    except ConfigError as error:
        complaints.append(f"{at}{error.named.removeprefix('--').removeprefix('notify-')}: {error.why}")
        return None


def _unknown(table: Mapping[str, Any], known: tuple[str, ...], at: str) -> Iterator[str]:
    for key in table:
        if key not in known:
            like = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {like[0]}?" if like else f"known are {', '.join(known)}"
            yield f"{at}{printable(key)} is unknown; {hint}"


def _twice(tables: Mapping[str, Any]) -> Iterator[str]:
    """A complaint for each cluster that has two names, if a shared address shows it. Sweeps detect the others."""
    owners: dict[str, str] = {}
    for name, table in tables.items():
        try:
            brokers = parse_bootstrap_servers(table["bootstrap-server"])
        except (ConfigError, KeyError, TypeError, AttributeError):
            # Other checks report that.
            continue
        for broker in brokers:
            owner = owners.setdefault(broker.address, name)
            if owner != name:
                yield f"clusters.{printable(name)}: {broker.address} is a bootstrap server of '{printable(owner)}' too"
                break
