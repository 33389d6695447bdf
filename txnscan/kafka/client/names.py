"""Look up the names of brokers within a time limit.

`getaddrinfo` has no time limit. kafka-python calls it on the I/O thread, which all brokers of a client share, and no
timer runs meanwhile. Brokers choose the names that they advertise, and so the name servers that are asked. So each name
is looked up before the connection, on a thread of its own, and whoever needs it waits for a limited time.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from contextlib import suppress
from typing import Any

# Look-ups under way in this process. A look-up that is given up goes on until the resolver's own timeouts end it.
LOOKUPS_MAX = 128
_FREE = threading.Semaphore(LOOKUPS_MAX)

# As `getaddrinfo` returns it: family, type, protocol, canonical name, socket address.
Address = tuple[Any, Any, int, str, Any]


def addresses(host: str, port: int, seconds: float) -> list[Address]:
    """The addresses of a host. Raises TimeoutError if they are not known within this time, or if too many look-ups are
    under way; socket.gaierror if there are none.
    """
    with suppress(socket.gaierror, UnicodeError):
        return _found(host, port, socket.AI_NUMERICHOST)
    ends_s = time.monotonic() + seconds
    if not _FREE.acquire(timeout=seconds):
        raise TimeoutError
    answer: queue.SimpleQueue[list[Address] | OSError] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            answer.put(_found(host, port))
        except OSError as error:
            answer.put(error)
        except UnicodeError:
            # The name has an empty or a long label.
            answer.put(socket.gaierror(socket.EAI_NONAME, "not a name"))
        finally:
            _FREE.release()

    # A daemon: the end of the process does not wait for the resolver.
    threading.Thread(target=look_up, name="txnscan-name", daemon=True).start()
    try:
        found = answer.get(timeout=max(0.0, ends_s - time.monotonic()))
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(found, OSError):
        raise found
    return found


def _found(host: str, port: int, flags: int = 0) -> list[Address]:
    return socket.getaddrinfo(host, port, socket.AF_UNSPEC, socket.SOCK_STREAM, flags=flags)
