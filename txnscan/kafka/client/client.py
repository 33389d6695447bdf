"""Connections to brokers: one blocking `send(broker_id, request)` over kafka-python's connection manager.

Each broker has its own connection manager, all on one I/O thread, for two reasons:
- kafka-python limits every connection of a manager to the versions of the first broker that it met. In a mixed cluster
  that would hide APIs of newer brokers.
- An unreachable broker must cost one connection timeout, not one for each request. Here it is marked, and later
  requests to it fail at once with the same error. A broker that has answered before gets a second try after a request
  timeout.

`Patience` limits the time for which a broker keeps a client waiting, and `FirstTries` the time for all brokers that
never answered. All requests and waits end at the deadline of the client's sweep (`Deadline`).

One request at a time is in flight per broker and client. A client waits for a broker's throttle time before the next
request. Sizes and times that a peer controls have limits (`receiving.py`, `THROTTLE_MS_MAX`, `fetch.Reading`).
"""

from __future__ import annotations

import errno
import logging
import math
import re
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

from kafka import errors as kafka_errors
from kafka.net.inet import KafkaNetSocket
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from txnscan.kafka.client.configuration import configuration
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.client.deadline import Deadline, FirstTries, Patience
from txnscan.kafka.client.listener import LOOK_S_MAX, NOTHING_LISTENS, Listener, look, mismatch
from txnscan.kafka.client.names import Address, addresses
from txnscan.kafka.client.receiving import received
from txnscan.kafka.client.selector import QuietSelector
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.kafka.protocol.frames import api_name
from txnscan.kafka.protocol.metadata import MetadataRound
from txnscan.kafka.security.oauth import TokenFailed, Tokens
from txnscan.kafka.topology import Broker
from txnscan.kafka.units import duration

_LOG = logging.getLogger(__name__)
# The manager's name for the only server that it gets.
_NODE = "bootstrap-0"
# The words of an error, with a broker's reason and the names of its mechanisms.
_WORDS_LENGTH_MAX = 500
# If the connection is paused, the manager refuses a request without sending it. The request can wait this long.
_PAUSE_S = 0.01
# Kafka's quotas ask for pauses of a few seconds, a window of `quota.window.size.seconds` for each sample.
THROTTLE_MS_MAX = 60_000
_UNREACHED = (
    kafka_errors.KafkaConnectionError,
    kafka_errors.NodeNotReadyError,
    # The client uses SASL, and the listener has no SASL; or the listener has other mechanisms.
    kafka_errors.IllegalSaslStateError,
    kafka_errors.UnsupportedSaslMechanismError,
)
_UNTRUSTED = re.compile(r"certificate verify failed: (?P<why>.*?)\.?(?: \(_ssl\.c:\d+\))?$", re.I)
_FRAME_LOGGERS = ("kafka.net.connection", "kafka.net.sasl")
_PARSER_LOGGER = "kafka.protocol.parser"


class Send(Protocol):
    """Sends one request to one broker and returns its answer, or raises RequestFailed."""

    def __call__(self, broker_id: int, request: Any) -> Any: ...


_REFUSED = errno.errorcode[errno.ECONNREFUSED]


class _Route(str):
    """A URL for `_Sockets`, with the addresses of the broker."""

    addresses: list[Address]

    def __new__(cls, addresses: list[Address]) -> _Route:
        route = super().__new__(cls, "txnscan://no-proxy")
        route.addresses = addresses
        return route


class _Sockets(KafkaNetSocket):  # type: ignore[misc]  # kafka-python has no types
    """Connects as kafka-python does, but closes a socket that fails to connect. kafka-python leaves it to the garbage
    collector, and so leaves another socket open at each request to a broker that is down.

    kafka-python chooses how to connect by the scheme of the proxy's URL, so this class has its own URL. The URL brings
    the addresses, because kafka-python would look up names on the I/O thread (`names.py`).
    """

    SCHEMES = ("txnscan",)

    def __init__(self, url: _Route) -> None:
        super().__init__(url)
        self._addresses = url.addresses

    def dns_lookup(self, host: str, port: int, raise_error: bool = False) -> list[Address]:
        return self._addresses

    async def sock_connect(self, net: Any, sock: Any, sockaddr: Any, timeout_at: float | None = None) -> Any:
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise


class _Manager(KafkaConnectionManager):  # type: ignore[misc]
    """Makes connections as kafka-python does, and reads from them with `receiving.py`."""

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        transport = await super()._build_transport(node, timeout_at)
        transport._sock_recv = partial(received, transport, secrets=self._secrets)
        return transport

    def _secrets(self) -> list[str]:
        tokens: Tokens | None = self.config["sasl_oauth_token_provider"]
        return [one for one in (self.config["sasl_plain_password"], tokens and tokens.last) if one]

    def close_idle_connections(self) -> None:
        """Does nothing: brokers close idle connections. kafka-python would leave a timer of nine minutes for each
        manager, also after its end, and searches the list of timers after each request: of thousands of brokers, for
        minutes.
        """


class _NoAddress(kafka_errors.KafkaConnectionError):  # type: ignore[misc]
    """The name of a broker did not resolve. The message is a clause with the remedy."""


class _OtherCluster(kafka_errors.KafkaError):  # type: ignore[misc]
    """The address of a broker leads to one of another cluster. The message is the id of that cluster."""


class Client:
    """Sends requests to the brokers that it knows (`learn`). Each new connection to a broker that Metadata named begins
    with the question of which cluster it is: an old address may lead to another one.

    resends: whether a request is sent again if a kept connection was lost; only for requests that change no data.
    deadline: requests and waits end at it, and later requests fail. Safe to use from many threads. Close it, or use it
    as a context manager.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        brokers: Iterable[Broker] = (),
        *,
        resends: bool = True,
        deadline: Deadline | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.resends = resends
        self.deadline = deadline if deadline is not None else Deadline()
        for name in _FRAME_LOGGERS:
            # At DEBUG they log all sent bytes, and SASL sends passwords.
            logging.getLogger(name).setLevel(logging.INFO)
        # At ERROR it logs all bytes of an answer that cannot be decoded. The failure of the request is enough.
        logging.getLogger(_PARSER_LOGGER).setLevel(logging.CRITICAL)
        self.settings = settings
        self._monotonic_s = monotonic_s
        self._sleep = sleep
        self._configs = configuration(settings)
        # Without topics: the answer has the brokers and the id of the cluster.
        self.greeting = MetadataRound([])
        self.first_tries = FirstTries(self.deadline.timeout_s)
        self.tokens: Tokens | None = self._configs.get("sasl_oauth_token_provider")
        self._net = NetworkSelector(client_id=settings.client_id, slow_task_threshold_secs=0, selector=QuietSelector)
        self._net.start()
        self._lock = threading.Lock()
        self._connections: dict[int, _BrokerConnection] = {}
        self._learned: tuple[Broker, ...] | None = None
        self.learn(brokers)

    def learn(self, brokers: Iterable[Broker]) -> None:
        """Gives the client the addresses of brokers. A broker with a new address gets a new connection."""
        # The tasks of a sweep bring the same tuple, and there may be thousands of both.
        if brokers is self._learned:
            return
        with self._lock:
            self._learned = brokers if isinstance(brokers, tuple) else None
            for broker in brokers:
                known = self._connections.get(broker.broker_id)
                if known is None or known.broker != broker:
                    if known is not None:
                        known.close()
                    self._connections[broker.broker_id] = _BrokerConnection(self, broker)

    def send(self, broker_id: int, request: Any) -> Any:
        """The broker's answer to `request`. If this client resends, the request must change no data.

        Raises RequestFailed if the broker is unknown, cannot be reached, does not answer within the request timeout,
        does not support this API, or sends an answer that cannot be decoded.
        """
        with self._lock:
            connection = self._connections.get(broker_id)
        if connection is None:
            unknown = f"broker {broker_id} is not in the cluster's metadata"
            raise RequestFailed(unknown, FailureCode.NOT_ASKED, sent=False)
        return connection.send(request)

    def close(self) -> None:
        """Closes all connections and ends the I/O thread."""
        with self._lock:
            for connection in self._connections.values():
                connection.close()
        self._net.stop(timeout_ms=5_000)
        self._net.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class _BrokerConnection:
    """The connection to one broker, for one request at a time."""

    def __init__(self, client: Client, broker: Broker) -> None:
        self.broker = broker
        self._client = client
        self._manager: Any = None
        # The manager whose connection is known to lead to a broker of the cluster.
        self._known: Any = None
        self._addresses: list[Address] = []
        self._turn = threading.Lock()
        self._dead: Failure | None = None
        # Whether the broker has ever answered a request.
        self._answered = False
        self._answer_bytes: int | None = None
        self._not_before_s = 0.0
        self._patience = Patience(client.settings.request_timeout_ms, client.deadline.timeout_s)

    def send(self, request: Any) -> Any:
        with self._turn:
            client = self._client
            client.deadline.check()
            if self._dead is not None:
                raise RequestFailed(self._dead, sent=False)
            self._wait_out_pause()
            began_s = client._monotonic_s()
            ready_s = began_s + min(client.settings.request_timeout_ms / 1000, client.deadline.request_s_max)
            try:
                if client.tokens is not None:
                    # Not on the I/O thread, because all brokers share that thread.
                    client.tokens.token(client.deadline.request_s_max)
                response = self._send_when_ready(request, ready_s)
                self._answered = True
            except kafka_errors.KafkaError as error:
                failed = self._failed(request, error)
                _LOG.debug("%s: %s", api_name(request), failed.error)
                raise failed from None
            except Exception as error:
                # A broken frame may cause any exception in the decoder. It only means that the answer is unusable.
                what = type(error).__name__
                raise RequestFailed(f"{self._where} gave an answer that cannot be decoded ({what})") from error
            finally:
                self._waited(client._monotonic_s() - began_s)
            self._patience.answered()
            took_ms = round((client._monotonic_s() - began_s) * 1_000)
            _LOG.debug("%s answered %s: %s bytes in %d ms", self._where, api_name(request), self._answer_bytes, took_ms)
            self._hold_back(getattr(response, "throttle_time_ms", 0) or 0)
            return response

    def _wait_out_pause(self) -> None:
        """Waits until the broker's throttle time is over. Raises RequestFailed if the sweep's time is up."""
        client = self._client
        wait_s = min(self._not_before_s - client._monotonic_s(), client.deadline.left_s)
        if wait_s > 0:
            client._sleep(wait_s)
            self._patience.paused(wait_s * 1_000)
            client.deadline.check()

    def _waited(self, took_s: float) -> None:
        """Counts the time of a finished request. After too much time in all, the broker is not asked again."""
        if not self._answered:
            self._client.first_tries.failed(took_s)
        self._patience.took(took_s * 1_000)
        why = self._patience.why_over
        if why is not None and self._dead is None:
            self._dead = Failure(f"{self._where} {why}", FailureCode.TIME_IS_UP)

    def _hold_back(self, throttle_ms: int) -> None:
        """Notes the broker's throttle time. If it is too long, the broker is not asked again."""
        if throttle_ms > THROTTLE_MS_MAX:
            asks = f"asks for a pause of {duration(throttle_ms)}, and {duration(THROTTLE_MS_MAX)} is the longest"
            error = f"{self._where} {asks}; check the quotas of this principal"
            self._dead = Failure(error, FailureCode.NO_ANSWER)
        self._not_before_s = self._client._monotonic_s() + max(throttle_ms, 0) / 1000

    def _send_when_ready(self, request: Any, ready_s: float) -> Any:
        """Sends the request. Waits while the connection is paused, and connects again, once, if it was lost.

        After a lost connection, a manager waits longer before each new try, even if the broker is back. So a new
        connection gets a new manager.
        """
        fresh = self._manager is None
        while True:
            # Another thread may close this connection meanwhile, because the broker has a new address.
            manager = self._manager or self._connecting()
            self._manager = manager
            try:
                return self._client._net.run(self._exchange, manager, request)
            except kafka_errors.NodeNotReadyError:
                paused = manager._conns.get(_NODE) is not None
                if paused and self._client._monotonic_s() < ready_s:
                    self._client._sleep(_PAUSE_S)
                    continue
                if fresh:
                    raise
            except kafka_errors.KafkaConnectionError:
                # The broker may have closed an idle connection. A request that changes no data may be repeated.
                if fresh or not self._client.resends:
                    raise
            self.close()
            fresh = True

    def _connecting(self) -> _Manager:
        """A manager of a new connection. Raises _NoAddress."""
        host, seconds = self.broker.host, self._setup_s_max
        try:
            self._addresses = addresses(host, self.broker.port, seconds)
        except TimeoutError:
            took = duration(round(seconds * 1_000))
            raise _NoAddress(f"the name {host} did not resolve within {took}; check the DNS of this machine") from None
        except OSError:
            raise _NoAddress(f"the name {host} does not resolve; check it, and the DNS of this machine") from None
        configs = {**self._client._configs, "proxy_url": _Route(self._addresses)}
        return _Manager(self._client._net, bootstrap_servers=[self.broker.address], **configs)

    @property
    def _setup_s_max(self) -> float:
        """The maximum time for a new connection."""
        client = self._client
        return min(client.settings.connection_setup_timeout_ms / 1_000, client.deadline.request_s_max, self._try_s_max)

    @property
    def _try_s_max(self) -> float:
        """The maximum time of a request, by the patience with brokers that never answered."""
        return math.inf if self._answered else self._client.first_tries.s_max

    async def _exchange(self, manager: _Manager, request: Any) -> Any:
        """Runs on the I/O thread. The whole exchange has a time limit: kafka-python's TLS handshake has none."""
        settings = self._client.settings
        timeouts_ms = settings.connection_setup_timeout_ms + settings.request_timeout_ms
        bound_ms = min(timeouts_ms, self._client.deadline.request_s_max * 1_000, self._try_s_max * 1_000)
        # Without this option, a lost connection would make the manager ask for metadata in the background.
        connection = manager.get_connection(_NODE, refresh_metadata_on_err=False)
        if self.broker.cluster_id and self._known is not manager:
            greeting = self._client.greeting
            body = await manager.wait_for(connection.send_request(greeting.request), bound_ms)
            if (other := greeting.shown(body).cluster_id) != self.broker.cluster_id:
                raise _OtherCluster(other)
            self._known = manager
        answer = await manager.wait_for(connection.send_request(request), bound_ms)
        self._answer_bytes = getattr(connection.parser, "answer_bytes", None)
        return answer

    @property
    def _where(self) -> str:
        who = f"broker {self.broker.broker_id}" if self.broker.broker_id >= 0 else "the bootstrap server"
        return f"{who} ({self.broker.address})"

    def _failed(self, request: Any, error: kafka_errors.KafkaError) -> RequestFailed:
        name = api_name(request)
        where = self._where
        if self._client.deadline.is_up:
            # The connection may still bring an answer, which would be too late.
            self.close()
            return self._client.deadline.miss(sent=True)
        if isinstance(error, kafka_errors.UnsupportedVersionError):
            return RequestFailed.unsupported(where, name)
        if isinstance(error, kafka_errors.RequestTimedOutError | kafka_errors.KafkaTimeoutError):
            failure = Failure(f"{where} {self._mute(name)}", FailureCode.NO_ANSWER)
            if not self._patience.unanswered(answered_before=self._answered and self._client.resends):
                # The answer may still arrive, so the next request gets a new connection.
                self.close()
                return RequestFailed(failure)
        elif isinstance(error, _OtherCluster):
            led = f"leads to cluster {_sentence(error) or 'without an id'}, and {self.broker.cluster_id} named it"
            failure = Failure(f"{where} {led}; check DNS and advertised.listeners", FailureCode.BROKERS_DISAGREE)
        elif isinstance(error, TokenFailed):
            wanting = f"{where} was not asked, for want of a {error.of_what}: {_sentence(error)}"
            failure = Failure(wanting, FailureCode.NOT_AUTHENTICATED)
        elif isinstance(error, kafka_errors.SaslAuthenticationFailedError):
            refused = f"{where} refused the credentials: {_sentence(error)}"
            failure = Failure(refused, FailureCode.NOT_AUTHENTICATED)
        elif isinstance(error, _UNREACHED) or (
            # The listener speaks another protocol than Kafka's.
            isinstance(error, kafka_errors.InvalidReceiveError) and not self._answered
        ):
            failure = Failure(f"{where} {self._unreached(error)}", FailureCode.UNREACHABLE)
        else:
            return RequestFailed(f"{where} answered {name} with {_sentence(error)}")
        # Else a peer could go on with the exchange on the I/O thread.
        self.close()
        self._dead = failure
        return RequestFailed(failure)

    def _mute(self, name: str) -> str:
        settings, part_ms = self._client.settings, self._client.deadline.part_s * 1_000
        if self._answered:
            return f"did not answer {name} within {duration(round(min(settings.request_timeout_ms, part_ms)))}"
        waited = duration(round(min(settings.connection_setup_timeout_ms, part_ms, self._try_s_max * 1_000)))
        return (
            f"takes connections and does not answer within {waited}; check "
            "that the port is a Kafka broker's, and that the broker is not stuck"
        )

    def _unreached(self, error: kafka_errors.KafkaError) -> str:
        """Why there is no connection, with the remedy. A broker gives no reason to a client that speaks the wrong
        protocol, so its port is probed (`listener.py`).
        """
        settings, said = self._client.settings, _sentence(error)
        untrusted = _UNTRUSTED.search(said)
        if untrusted is not None:
            return f"has a certificate that {_distrusted(untrusted['why'])}"
        too_late = self._client.deadline.left_s < LOOK_S_MAX or self._client.first_tries.are_short
        if isinstance(error, _NoAddress) or too_late:
            return f"cannot be reached: {NOTHING_LISTENS if _REFUSED in said else said}"
        seen = look([str(one[4][0]) for one in self._addresses], self.broker.port)
        # If the broker has answered before, it accepts these settings.
        differs = mismatch(Listener(seen.trouble) if self._answered else seen, settings)
        if differs is not None:
            return differs
        if settings.sasl_mechanism is not None and not self._answered:
            # A broker closes the connection right after its refusal, so kafka-python may not get to read the refusal.
            return "closed the connection while authenticating; check the credentials in sasl.jaas.config"
        return f"cannot be reached: {said}"

    def close(self) -> None:
        if self._manager is not None:
            self._manager.call_soon(self._manager.close)
            self._manager = None


def _distrusted(why: str) -> str:
    if "mismatch" in why:
        return f"is for another host ({why}); use a name that it holds, or have the broker advertise one"
    return (
        f"is not trusted ({why}); set ssl.truststore.type=PEM and ssl.truststore.location to the certificate of the "
        "authority that signed it"
    )


def _sentence(error: kafka_errors.KafkaError) -> str:
    """The library's own words, on one line, without the name of its exception class. They may have words of a peer."""
    text = " ".join(str(argument) for argument in error.args) or type(error).__name__
    return " ".join(text[:_WORDS_LENGTH_MAX].split())
