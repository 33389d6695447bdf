"""Sends notifications. Each target has a bounded queue and a thread, so neither sweeps nor other targets wait for it.

Messages about a target contain no secrets (the path, query and credentials of its URL, its routing key).
"""

from __future__ import annotations

import base64
import queue
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit, urlunsplit

import stamina

from txnscan.config import ConfigError, printable
from txnscan.kafka.security.timed_http import opened
from txnscan.report.metrics import Notified
from txnscan.report.notifications import Shape, bodies
from txnscan.sweeps.news import EventNews

QUEUE_MAX = 1_000
# For the whole exchange.
TIMEOUT_S = 10.0
# For how long a notification is retried. The later notifications wait behind it and are delivered in order.
TRIES, TRY_FOR_S, WAIT_S_MAX = 50, 900.0, 60.0
# The 4xx statuses after which a retry may succeed.
_PASSING = (408, 425, 429)


@dataclass(frozen=True, slots=True)
class Target:
    """The URL and the message format of a target. Its `repr` omits the secrets. apprise: the URL is for Apprise."""

    url: str = field(repr=False)
    shape: Shape = field(repr=False)
    routing_key: str | None = field(default=None, repr=False)
    apprise: bool = False

    @property
    def shown(self) -> str:
        """The target without secrets: scheme, host and port. Of a URL of Apprise only the scheme."""
        if self.apprise:
            return f"apprise {self.url.partition(':')[0]}"
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port is not None else ""
        return printable(f"{parts.scheme}://{parts.hostname}{port}")


class NotSent(Exception):
    """A failed try, described without secrets. passing: whether another try may succeed."""

    def __init__(self, why: str, passing: bool) -> None:
        super().__init__(why)
        self.passing = passing


# Sends a body to a target. Raises NotSent.
Post = Callable[[Target, bytes], None]


def parse_url(text: str, option: str) -> str:
    """The URL of a target. Raises ConfigError, without the URL in its message."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or not text.isprintable() or " " in text:
        raise ConfigError(option, "is no URL that can be posted to; write https://host/path")
    return text


class Notifier:
    """Sends news to targets. Close it.

    say: called with a sentence for each notification that was given up. wait_s: the wait before the first retry.
    """

    def __init__(
        self, targets: Sequence[Target], say: Callable[[str], None], post: Post | None = None, wait_s: float = 1.0
    ) -> None:
        self._lanes = [_Lane(target, name, say, post or _send, wait_s) for name, target in _named(targets)]

    def tell(self, news: Sequence[EventNews]) -> None:
        """Adds a batch to the queues, and returns at once."""
        for lane in self._lanes:
            lane.put(tuple(news))

    def notified(self) -> list[Notified]:
        """The results of the notifications of each target, counted in POSTs."""
        return [lane.notified for lane in self._lanes]

    def close(self, wait_s: float) -> None:
        """Tries each remaining notification at most once more, within `wait_s`, and reports how many were not sent."""
        for lane in self._lanes:
            lane.end()
        for lane in self._lanes:
            lane.join(wait_s / len(self._lanes))


class _Lane:
    """One target, with its queue and its thread."""

    def __init__(self, target: Target, name: str, say: Callable[[str], None], post: Post, wait_s: float) -> None:
        self._target = target
        self._name = name
        self._say = say
        self._post = post
        self._wait_s = wait_s
        self._queue: queue.Queue[bytes | None] = queue.Queue(QUEUE_MAX)
        self._ended: Counter[str] = Counter(sent=0, failed=0, dropped=0)
        self._under_way = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"txnscan-notify-{name}", daemon=True)
        self._thread.start()

    @property
    def notified(self) -> Notified:
        return Notified(self._name, dict(self._ended), self._queue.qsize() + self._under_way)

    def put(self, news: tuple[EventNews, ...]) -> None:
        try:
            made = bodies(self._target.shape, news, self._target.routing_key)
        except Exception as error:
            # A template that worked with the examples may still fail with a cluster's data.
            self._ended["failed"] += 1
            self._say(f"--notify: a notification to {self._name} cannot be made: {type(error).__name__}")
            return
        dropped = 0
        for body in made:
            try:
                self._queue.put_nowait(body)
            except queue.Full:
                dropped += 1
        if dropped:
            self._ended["dropped"] += dropped
            self._say(f"--notify: {dropped} notifications to {self._name} are dropped; {QUEUE_MAX} wait already")

    def end(self) -> None:
        self._ending.set()
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            # The thread ends with the process.
            return

    def join(self, wait_s: float) -> None:
        self._thread.join(wait_s)
        left = self.notified.waiting - (1 if self._thread.is_alive() and self._queue.qsize() else 0)
        if self._thread.is_alive() and left > 0:
            self._say(f"--notify: {left} notifications to {self._name} were not sent")

    def _work(self) -> None:
        while (body := self._queue.get()) is not None:
            self._under_way = 1
            try:
                self._send(body)
            except NotSent as error:
                self._ended["failed"] += 1
                self._say(f"--notify: a notification to {self._name} was given up: {error}")
            except Exception as error:
                # An unforeseen error ends this notification, but not the later ones.
                self._ended["failed"] += 1
                self._say(f"--notify: a notification to {self._name} was given up: {type(error).__name__}")
            else:
                self._ended["sent"] += 1
            finally:
                self._under_way = 0

    def _send(self, body: bytes) -> None:
        tries = stamina.retry_context(
            on=self._may_succeed,
            attempts=TRIES,
            timeout=TRY_FOR_S,
            wait_initial=self._wait_s,
            wait_max=WAIT_S_MAX,
            wait_jitter=self._wait_s,
        )
        for attempt in tries:
            with attempt:
                self._post(self._target, body)

    def _may_succeed(self, error: Exception) -> bool:
        return isinstance(error, NotSent) and error.passing and not self._ending.is_set()


def _send(target: Target, body: bytes) -> None:
    """Sends a body. Raises NotSent."""
    if target.apprise:
        from txnscan.watch.through_apprise import send_through_apprise

        send_through_apprise(target, body)
    else:
        post_json(target, body)


def post_json(target: Target, body: bytes) -> None:
    """Posts a body. Raises NotSent."""
    parts = urlsplit(target.url)
    headers = {"Content-Type": "application/json", "User-Agent": "txnscan"}
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    address = f"{host}:{parts.port}" if parts.port is not None else str(host)
    url = urlunsplit((parts.scheme, address, parts.path or "/", parts.query, ""))
    # Its scheme is http or https (`parse_url`).
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")  # noqa: S310
    try:
        with opened(request, TIMEOUT_S) as answer:
            answer.read(1)
    except urllib.error.HTTPError as error:
        with error:
            raise NotSent(f"it answered HTTP {error.code}", error.code >= 500 or error.code in _PASSING) from None
    except (OSError, ValueError, urllib.error.URLError) as error:
        raise NotSent(_why(error), passing=not isinstance(error, ValueError)) from None
    except Exception as error:
        # `http.client` raises its own errors for answers that are not HTTP; their texts may contain the request.
        raise NotSent(f"its answer is not HTTP ({type(error).__name__})", passing=True) from None


def _why(error: Exception) -> str:
    """The reason in the words of the operating system, which does not know the URL."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, TimeoutError):
        return f"no answer within {TIMEOUT_S:.0f} s"
    if isinstance(reason, OSError):
        return printable(reason.strerror or type(reason).__name__)
    return type(reason).__name__


def _named(targets: Sequence[Target]) -> list[tuple[str, Target]]:
    """Each target with its display name: its host, with a number if several targets have the same host."""
    shown = [target.shown for target in targets]
    seen: Counter[str] = Counter()
    named = []
    for name, target in zip(shown, targets, strict=True):
        seen[name] += 1
        named.append((f"{name} {seen[name]}" if shown.count(name) > 1 else name, target))
    return named
