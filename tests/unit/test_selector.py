"""The selector of connections: as Python's own, without words about sockets that nobody reads."""

from __future__ import annotations

import selectors
import socket

import pytest

from txnscan.kafka.client.selector import QuietSelector


class Wordless(socket.socket):
    """A socket that must not be put into words."""

    def __repr__(self) -> str:
        raise AssertionError


def test_an_unknown_socket_is_not_put_into_words() -> None:
    with QuietSelector() as selector, Wordless() as one, pytest.raises(KeyError):
        selector.get_key(one)


def test_keys_are_those_of_pythons_selector() -> None:
    read, write = selectors.EVENT_READ, selectors.EVENT_WRITE
    ours, theirs = QuietSelector(), selectors.DefaultSelector()
    with ours, theirs, socket.socket() as one:
        for selector in (ours, theirs):
            selector.register(one, read, "first")
        assert ours.get_key(one) == theirs.get_key(one)
        for selector in (ours, theirs):
            selector.modify(one, read | write, "second")
        assert ours.get_key(one) == theirs.get_key(one)
        assert ours.unregister(one) == theirs.unregister(one)
        for selector in (ours, theirs):
            with pytest.raises(KeyError):
                selector.get_key(one)
            with pytest.raises(KeyError):
                selector.unregister(one)


def test_a_closed_socket_can_be_unregistered() -> None:
    with QuietSelector() as selector:
        one = socket.socket()
        selector.register(one, selectors.EVENT_READ)
        one.close()
        selector.unregister(one)
        with pytest.raises(KeyError):
            selector.get_key(one)
