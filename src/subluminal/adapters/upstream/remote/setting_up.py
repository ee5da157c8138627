"""A bridge, put together: the pool, what proves who we are, and the two pipes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from subluminal import __version__
from subluminal.adapters.upstream.remote.asking import Asking
from subluminal.adapters.upstream.remote.bridge import Bridge
from subluminal.adapters.upstream.remote.credentials import Credentials
from subluminal.adapters.upstream.remote.limits import MAX_REQUESTS, MORE_CONNECTIONS
from subluminal.adapters.upstream.remote.pipes import LineReader, LineWriter
from subluminal.http.heads import HOP_BY_HOP, Headers
from subluminal.http.pool import Pool
from subluminal.http.urls import ServerUrl

# What we say ourselves; nobody else may say it a second time, or otherwise.
_OURS = HOP_BY_HOP | {
    b"host", b"content-length", b"content-type", b"content-encoding", b"accept", b"accept-encoding", b"expect",
    b"last-event-id",
}  # fmt: skip
_OUR_PREFIX = b"mcp-"


def make_bridge(
    name: str,
    url: ServerUrl,
    headers: Mapping[str, str],
    login: Any,
    reader: LineReader,
    writer: LineWriter,
    say: Callable[[str], None],
    unexpected: Callable[[BaseException], None],
    *,
    transport: str,
    max_inspect: int,
    max_message: int,
    heard: Callable[[list[str]], None] | None = None,
) -> Bridge:
    pool = Pool(url.origin, limit=MAX_REQUESTS + MORE_CONNECTIONS)
    asking = Asking(
        url,
        Credentials(name, str(url), own_headers(headers), login, heard),
        pool,
        b"subluminal/" + __version__.encode("ascii"),
    )
    return Bridge(
        name,
        asking,
        reader,
        writer,
        say,
        unexpected,
        transport=transport,
        max_inspect=max_inspect,
        max_message=max_message,
    )


def own_headers(headers: Mapping[str, str]) -> Headers:
    """Those of the entry that may be sent; their names and values were checked where they were resolved."""
    found = [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]
    return [
        (name, value) for name, value in found if name.lower() not in _OURS and not name.lower().startswith(_OUR_PREFIX)
    ]
