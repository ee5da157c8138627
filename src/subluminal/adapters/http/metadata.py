"""Metadata of logins (`/.well-known/...`), asked of the server behind and passed on; the resource is our address.

Nothing of this is a call, so it belongs to no run. Credentials that are kept for the server are not shown here: this is
what anybody may ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from subluminal.adapters.http.answers import json_answer
from subluminal.adapters.http.oauth import AUTHORIZATION, PROTECTED, old_server_metadata, rewritten_metadata
from subluminal.contracts.errors import SubluminalError
from subluminal.http.heads import Headers, ResponseHead, media_type
from subluminal.http.urls import read_url

if TYPE_CHECKING:
    from subluminal.http.inbound import Visit
    from subluminal.http.pool import Pool
    from subluminal.http.urls import ServerUrl

MAX_BYTES = 1024 * 1024
_NOT_FOUND = b'{"error":"not_found"}'


def is_protected(path: bytes) -> bool:
    """Metadata of the resource, not of an authorization server."""
    return path.startswith(PROTECTED.encode())


class Metadata:
    """Where the metadata of one server is found, and where it is asked for."""

    def __init__(self, pool: Pool, server: ServerUrl, public_url: str, public_path: str) -> None:
        self.pool = pool
        self.server = server
        self.public_url = public_url
        self._named: bytes | None = None
        self.challenges = False  # the server wants a login
        upstream = "" if server.path == "/" else server.path.rstrip("/")
        self._targets: dict[bytes, list[bytes]] = {}
        for kind in (PROTECTED, *AUTHORIZATION):
            # The form with the server's path first, then that of the whole host, as clients do.
            targets = list(dict.fromkeys((f"{kind}{upstream}".encode(), kind.encode())))
            self._targets[f"{kind}{public_path}".encode()] = targets
            self._targets[kind.encode()] = targets

    def challenged(self, address: str | None) -> None:
        """The server wants a login. Where it says that its metadata is, is asked first, if that is its own origin."""
        self.challenges = True
        try:
            url = read_url(address) if address is not None else None
        except SubluminalError:
            return
        if url is not None and url.origin == self.server.origin:
            self._named = url.target.encode()

    def serves(self, path: bytes, alone: bool) -> bool:
        """The form for the whole host is one server's only if it is `alone`."""
        return path in self._targets and (alone or path.decode() not in (PROTECTED, *AUTHORIZATION))

    def arrived(self, visit: Visit) -> None:
        if visit.head.method not in (b"GET", b"HEAD", b"OPTIONS"):
            visit.answer(405, [(b"allow", b"GET")])
            return
        targets = self._targets[visit.head.target]
        if self._named is not None and is_protected(visit.head.target):
            targets = [self._named, *targets]
        visit.listen(_Asking(self, visit, targets))


class _Asking:
    """Listener of the client's request; asks one address after the other until one has an answer."""

    def __init__(self, metadata: Metadata, visit: Visit, targets: list[bytes]) -> None:
        self._metadata = metadata
        self._pool = metadata.pool
        self._visit = visit
        self._targets = list(targets)
        self._asked: Any = None

    def data(self, data: bytes) -> None: ...

    def end(self) -> None:
        headers: Headers = [
            (b"host", self._pool.origin.authority),
            (b"accept", b"application/json"),
            (b"accept-encoding", b"identity"),
        ]
        for name in (b"mcp-protocol-version",):
            value = self._visit.head.said(name)
            if value is not None:
                headers.append((name, value))
        self._asked = self._pool.ask(b"GET", self._targets.pop(0), headers, b"", _Document(self))

    def came(self, status: int, body: bytes) -> None:
        if status == 404 and self._targets:
            self.end()
            return
        if status == 404 and self._metadata.challenges and is_protected(self._visit.head.target):
            json_answer(self._visit, 200, old_server_metadata(self._metadata.server, self._metadata.public_url))
            return
        if status == 200 and is_protected(self._visit.head.target):
            rewritten = rewritten_metadata(body, self._metadata.server, self._metadata.public_url)
            status, body = (502, _NOT_FOUND) if rewritten is None else (200, rewritten)
        elif status not in (200, 404):
            status, body = (404, _NOT_FOUND) if status < 500 else (502, _NOT_FOUND)
        json_answer(self._visit, status, body)

    def too_large(self) -> None:
        """It may have no end: nothing more is read of it."""
        self._pool.give_up(self._asked)
        self.came(502, b"")

    def gone(self) -> None:
        self._pool.give_up(self._asked)

    def full(self) -> None: ...
    def room(self) -> None: ...


class _Document:
    """Asker of one document."""

    def __init__(self, asking: _Asking) -> None:
        self._asking = asking
        self._status = 0
        self._pieces: list[bytes] = []
        self._size = 0

    def head(self, head: ResponseHead) -> None:
        is_json = media_type(head.said(b"content-type")) == b"application/json"
        self._status = head.status if head.status != 200 or is_json else 404

    def data(self, data: bytes) -> None:
        self._size += len(data)
        self._pieces.append(data)
        if self._size > MAX_BYTES:
            self._asking.too_large()

    def end(self) -> None:
        self._asking.came(self._status, b"".join(self._pieces))

    def failed(self, why: str) -> None:
        self._asking.came(502, b"")

    def full(self) -> None: ...
    def room(self) -> None: ...
