"""uvloop where it is installed, else asyncio's own loop: whoever runs sees no difference."""

from __future__ import annotations

import asyncio
import sys
from asyncio import sslproto

import pytest

from subluminal.http.limits import READ_BYTES, TLS_READ_BYTES
from subluminal.http.loop import run, tune


async def loop_of() -> str:
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    transport, _ = await asyncio.get_running_loop().create_connection(
        asyncio.Protocol, *server.sockets[0].getsockname()
    )
    tune(transport)
    assert getattr(transport, "max_size", READ_BYTES) == READ_BYTES
    transport.close()
    server.close()
    return type(asyncio.get_running_loop()).__module__


def test_uvloop_is_used_where_it_is_installed() -> None:
    assert run(loop_of()) == "uvloop"


def test_without_it_asyncio_does_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sslproto.SSLProtocol, "max_size", sslproto.SSLProtocol.max_size)
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert run(loop_of()).startswith("asyncio.")
    assert sslproto.SSLProtocol.max_size == TLS_READ_BYTES, "a connection over TLS costs no more than it needs"
