"""`watch`: the command that goes on for ever."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Annotated

import typer

from txnscan.cli.app import app, clusters_of, config_of_one, need_watch, opened_tables, progress_bar, warn_of_file
from txnscan.cli.command import OneCommand, cluster_name
from txnscan.cli.errors import complain, errors_in_one_line, note
from txnscan.cli.given import Given, takes
from txnscan.cli.logs import stderr_lines
from txnscan.cli.options import ONE_SERVER, SparkMaster
from txnscan.config import ConfigError, Location, parse_duration_ms
from txnscan.config.settings import (
    BLOCKING_AFTER,
    COMMAND_CONFIG,
    COMPLETE_UP_TO,
    LATE_AFTER,
    OWNER_PATTERN,
    SPARK_CHECKPOINT,
    TABLES,
    TIMEOUT,
    TOPIC,
)
from txnscan.errors import ExitStatus
from txnscan.report.help import examples

if TYPE_CHECKING:
    from txnscan.watch.clusters import ToWatch
    from txnscan.watch.endpoint import Access
    from txnscan.watch.notifier import Target
    from txnscan.watch.sweeping import Store

USERS_VARIABLE = "TXNSCAN_BASIC_AUTH"


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """The endpoint that serves metrics: its address, and who may read from it."""

    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Address of /metrics, /healthz and /readyz. :9464 listens on all addresses.",
        ),
    ] = "127.0.0.1:9464"
    certificate: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="PEM certificate chain of the endpoint.")
    ] = None
    key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key, PEM.")] = None
    client_ca: Annotated[
        Path | None,
        typer.Option("--tls-client-ca", metavar="FILE", help="Clients must have a certificate signed by this one."),
    ] = None
    users_file: Annotated[
        Path | None,
        typer.Option(
            "--basic-auth-file",
            metavar="FILE",
            help=f"Lines of name:password for /metrics. {USERS_VARIABLE} in the environment is the same.",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class NotifyOptions:
    """Where notifications of incidents go, and their shape."""

    urls: Annotated[
        list[str] | None,
        typer.Option(
            "--notify",
            metavar="URL|@FILE",
            help="Notify of incidents that open and close, by POST to this URL, or the one in FILE. With "
            "--notify-as apprise: a URL of Apprise. May be repeated.",
        ),
    ] = None
    shape: Annotated[
        str,
        typer.Option("--notify-as", metavar="json|slack|pagerduty|alertmanager|apprise", help="Shape of what is sent."),
    ] = "json"
    template_file: Annotated[
        Path | None,
        typer.Option("--notify-template", metavar="FILE", help="A Jinja2 template that gives the JSON to send."),
    ] = None


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan watch --bootstrap-server localhost:9092",
        "txnscan watch --config clusters.toml --interval 60s --listen :9464",
        "txnscan watch --config clusters.toml --notify @/run/secrets/slack --notify-as slack",
    ),
)
@takes(
    ONE_SERVER,
    COMMAND_CONFIG,
    replace(
        TABLES,
        help="Also keep each sweep in Delta tables: a path (with a slash), or catalog.schema, which starts Spark.",
    ),
    TOPIC,
    LATE_AFTER,
    BLOCKING_AFTER,
    TIMEOUT,
    OWNER_PATTERN,
    COMPLETE_UP_TO,
    SPARK_CHECKPOINT,
)
def watch(
    given: Given,
    *,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="TOML: [clusters.NAME] with bootstrap-server, and [[notify]]."),
    ] = None,
    interval: Annotated[
        str, typer.Option("--interval", metavar="DURATION", help="From one sweep of a cluster to the next.")
    ] = "60s",
    endpoint: EndpointOptions,
    master: SparkMaster = None,
    notify: NotifyOptions,
) -> None:
    """Sweep clusters for ever, serve the results as Prometheus metrics, notify of incidents. Only reads the cluster.

    Ends with 0 within 10 seconds of SIGTERM, and with 130 on Ctrl-C.
    """
    with errors_in_one_line(), _told_to_end() as ending:
        need_watch("watch")
        interval_ms = parse_duration_ms(interval, "--interval")
        to_watch = _to_watch(config, given)
        targets = (*to_watch.targets, *_targets(notify))
        access = _access(endpoint)
        tables = given.location()
        from txnscan.api import find_hanging
        from txnscan.watch.process import Watch

        started = Watch(
            to_watch.clusters,
            access=access,
            interval_s=interval_ms / 1_000,
            sweep=lambda scan_config, history: find_hanging(scan_config, history=history, reads_stops=True),
            say=_log,
            targets=targets,
            store=_store(tables, master) if tables is not None else None,
        )
        started.start()
        _log(f"metrics are at {started.endpoint.url}/metrics")
        ending.get()
        _log("ending")
        done = started.stop()
        if not done:
            # Requests under way end with this process.
            _log("a sweep under way is left")
        sys.stderr.flush()
        if not done or tables is not None:
            os._exit(ExitStatus.DONE)


def _to_watch(file: Path | None, given: Given) -> ToWatch:
    from txnscan.watch.clusters import ToWatch

    if file is not None:
        return clusters_of(file, given)
    one = config_of_one(given, tables=None, engine="threads")
    one.connection()
    name = cluster_name(one)
    for warning in one.warnings():
        complain(f"warning: {name}: {warning}")
    return ToWatch({name: one})


def _targets(notify: NotifyOptions) -> tuple[Target, ...]:
    from txnscan.watch.clusters import ROUTING_KEY_VARIABLE, make_target

    urls = notify.urls or []
    if not urls and (notify.template_file is not None or notify.shape != "json"):
        raise ConfigError("--notify", "is missing; it says where to send what --notify-as and --notify-template shape")
    key = os.environ.get(ROUTING_KEY_VARIABLE)
    targets = tuple(make_target(url, notify.shape, notify.template_file, key) for url in urls)
    for url in urls:
        if url.startswith("@"):
            warn_of_file("--notify", Path(url[1:]).expanduser())
    return targets


def _access(endpoint: EndpointOptions) -> Access:
    from txnscan.report.files import read_text
    from txnscan.watch.endpoint import Access, Tls, parse_listen, parse_users

    certificate, key, client_ca = endpoint.certificate, endpoint.key, endpoint.client_ca
    if (certificate is None) != (key is None):
        alone, lacks = ("--tls-cert", "--tls-key") if key is None else ("--tls-key", "--tls-cert")
        raise ConfigError(alone, f"needs {lacks}; give both or neither")
    if client_ca is not None and certificate is None:
        raise ConfigError("--tls-client-ca", "needs --tls-cert and --tls-key")
    if key is not None:
        warn_of_file("--tls-key", key)
    users: dict[str, str] = {}
    if endpoint.users_file is not None:
        users = parse_users(read_text(endpoint.users_file, "--basic-auth-file"), "--basic-auth-file")
        warn_of_file("--basic-auth-file", endpoint.users_file)
    elif os.environ.get(USERS_VARIABLE):
        users = parse_users(os.environ[USERS_VARIABLE], USERS_VARIABLE)
    if users and certificate is None and not endpoint.listen.startswith(("127.", "localhost:", "[::1]:")):
        complain("warning: --listen: passwords travel in clear; --tls-cert and --tls-key encrypt them")
    host, port = parse_listen(endpoint.listen)
    tls = Tls(certificate, key, client_ca) if certificate is not None and key is not None else None
    return Access(host, port, tls, users)


def _store(location: Location, master: str | None) -> Store:
    """The Delta tables."""
    from txnscan.watch.sweeping import Store

    with progress_bar() as progress:
        opened = opened_tables(location, master, progress)
        progress("open tables", 0, 1)
        opened.create(note)
    return Store(opened, opened.write)


@contextmanager
def _told_to_end() -> Iterator[SimpleQueue[None]]:
    """A queue that gets an entry at SIGTERM, from here on."""
    # Unlike an event, it may be filled by a handler that interrupts the wait for it.
    ending: SimpleQueue[None] = SimpleQueue()
    if threading.current_thread() is not threading.main_thread():
        yield ending
        return
    former = signal.signal(signal.SIGTERM, lambda *_: ending.put(None))
    try:
        yield ending
    finally:
        signal.signal(signal.SIGTERM, former)


def _log(sentence: str) -> None:
    """A line on stderr with the time."""
    with suppress(OSError):
        typer.echo(stderr_lines.timed(sentence), err=True)
