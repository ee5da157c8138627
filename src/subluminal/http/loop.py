"""The event loop: uvloop's where it is installed, else asyncio's. Both are used through the same few calls."""

from __future__ import annotations

import asyncio
import os
from asyncio import sslproto
from collections.abc import Coroutine
from typing import Any, TypeVar

from subluminal.http.limits import HIGH_WATER, READ_BYTES, TLS_READ_BYTES

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Like `asyncio.run`."""
    try:
        import uvloop
    except ImportError:
        sslproto.SSLProtocol.max_size = TLS_READ_BYTES
        return asyncio.run(main)
    result: T = uvloop.run(main)
    return result


class PipeEnd:
    """A descriptor for `connect_read_pipe` and `connect_write_pipe`: closed once, by whoever closes it.

    uvloop closes the descriptor itself, and some time later the file that it was given. By then the number may be
    another's: a connection, a journal, the pipe of another server.
    """

    __slots__ = ("_closes", "_fd")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._closes = isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop)

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        if self._closes and self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


def tune(transport: Any) -> None:
    """What every connection of ours is given when it is made."""
    transport.set_write_buffer_limits(high=HIGH_WATER)
    if hasattr(transport, "max_size"):  # asyncio's; uvloop reads into one buffer for all
        transport.max_size = READ_BYTES
