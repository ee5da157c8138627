"""Ports of 127.0.0.1 that stay what a test needs them to be, whatever other tests open at the same time."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager

# Below those that systems give to whoever asks for any: left for a moment, one of these is not taken by a connection.
OF_OUR_CHOICE = range(20_000, 32_000)
_dice = random.SystemRandom()  # two processes of one test run must not draw alike


def listening(port: int = 0, backlog: int = 128) -> socket.socket:
    """A listening socket. On port 0, its port is one that can be left and had again."""
    for each in [port] if port else _dice.sample(OF_OUR_CHOICE, 100):
        try:
            return socket.create_server(("127.0.0.1", each), backlog=backlog)
        except OSError:
            if port:
                raise
    raise AssertionError("none of a hundred ports is free")


def free_port() -> int:
    """One that a program under test can be told to listen on."""
    with listening() as found:
        return int(found.getsockname()[1])


@contextmanager
def nobody_listens() -> Iterator[int]:
    """A port that refuses connections: it is held all the while, and not listened on."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])
