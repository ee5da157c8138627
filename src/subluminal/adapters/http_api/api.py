"""The API behind the door: how requests go on to it, and what of its answers leads elsewhere than back to us."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from subluminal.adapters.listening.onward import onward
from subluminal.contracts.errors import SubluminalError
from subluminal.http.heads import request_lines, without
from subluminal.http.pool import Pool
from subluminal.http.urls import read_url

if TYPE_CHECKING:
    from subluminal.adapters.upstream.shown import Shown
    from subluminal.http.heads import Headers, RequestHead, ResponseHead
    from subluminal.http.urls import ServerUrl

# The length is stated anew; an alternative service would be a way past us.
_NOT_RETURNED = frozenset((b"content-length", b"alt-svc"))
_LINKED = re.compile(rb"<([^<>]*)>")


class Api:
    """`public_url` is where clients find it; paths begin behind the paths of both addresses."""

    def __init__(self, name: str, url: ServerUrl, shown: Shown, public_url: str) -> None:
        self.name = name
        self.pool = Pool(url.origin)
        self._origin = url.origin
        self._base = url.path.rstrip("/").encode()
        self._shown = shown
        self._public = public_url.rstrip("/").encode()
        self._prefix = urlsplit(public_url).path.rstrip("/").encode()

    # -- requests -------------------------------------------------------------------------------------------------

    def inner_target(self, target: bytes) -> bytes:
        """The request's target as the mapping has it: whoever stands before us may have left the path of the public
        URL in it."""
        if self._prefix and target.startswith(self._prefix + b"/"):
            return target[len(self._prefix) :]
        return target

    def request_lines(self, head: RequestHead) -> bytes:
        """The head of a request as the server gets it, but for its length."""
        injected = self._shown.headers()
        headers = onward(head, self._origin.authority, injected, unread=True)
        return request_lines(head.method, self._base + self.inner_target(head.target), headers)

    # -- answers --------------------------------------------------------------------------------------------------

    def answer_headers(self, head: ResponseHead) -> Headers:
        """Without those that repeat what only the server was shown; addresses of the server as ours."""
        headers: Headers = []
        for name, value in self._shown.without(without(head.headers, _NOT_RETURNED)):
            key = name.lower()
            if key == b"link":
                value = _LINKED.sub(lambda found: b"<%b>" % (self._ours(found.group(1)) or found.group(1)), value)
            elif key in (b"location", b"content-location"):
                ours = self._ours(value)
                if ours is None:
                    continue
                value = ours
            headers.append((name, value))
        return headers

    def _ours(self, address: bytes) -> bytes | None:
        """An address of the server as ours, so that a client that follows it does not go past us; others as they are.

        None: it is of the server, but outside of what is served here.
        """
        path = self._own_path(address.decode("latin-1"))
        if path is None:
            return address
        if path == self._base or path.startswith((self._base + b"/", self._base + b"?")):
            rest = path[len(self._base) :]
            return (self._prefix if address[:1] == b"/" and address[:2] != b"//" else self._public) + rest
        return None

    def _own_path(self, address: str) -> bytes | None:
        """What follows the server's origin in an address; None: it is no address of the server from its root on."""
        if address.startswith("/") and not address.startswith("//"):
            return address.encode("latin-1")
        full = f"{self._origin.scheme}:{address}" if address.startswith("//") else address
        where, hash_sign, fragment = full.partition("#")
        try:
            scheme, colon, rest = where.partition(":")
            url = read_url(scheme.lower() + colon + rest)
        except SubluminalError:
            return None
        if url.origin != self._origin:
            return None
        return (url.target + hash_sign + fragment).encode("latin-1")

    async def close(self) -> None:
        await self.pool.close()
