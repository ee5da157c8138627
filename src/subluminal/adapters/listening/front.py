"""Who may come in, and how: our own Host and Origin, one type of body, this user only.

A web page can make a browser send requests to a loopback address, and another user of the machine can connect to it:
neither may spend credentials that are kept here. What two servers could read differently is not passed on.
"""

from __future__ import annotations

import hmac
import os
from typing import TYPE_CHECKING

from subluminal.http.heads import HttpFault, RequestHead, values
from subluminal.producer.visitor import IDENTITY_HEADERS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from subluminal.host.peers import Peer

TOKEN_HEADER = b"subluminal-token"
OURS = frozenset((TOKEN_HEADER, *IDENTITY_HEADERS))
# Where readers differ in which of two they take, a second one is a fault.
_ONCE = frozenset(
    (
        b"host",
        b"origin",
        b"content-type",
        b"content-encoding",
        b"authorization",
        b"connection",
        *OURS,
    )
)
_USUAL = (b"keep-alive", b"close")
_JSON_TYPES = (b"application/json", b"application/json;charset=utf-8", b'application/json;charset="utf-8"')


class Front:
    """`hosts`: what may stand in Host; `origins`: in Origin. With a `token`, whoever comes must show it.

    `of_message`: headers that a message is judged by, so that none may stand twice; `prefix`: those that begin so.
    """

    def __init__(
        self,
        hosts: Iterable[str],
        origins: Iterable[str] = (),
        token: str | None = None,
        of_message: Iterable[bytes] = (),
        prefix: bytes = b"\0",
    ) -> None:
        self._once = _ONCE.union(of_message)
        self._prefix = prefix
        self._hosts = frozenset(host.lower().encode() for host in hosts)
        self._origins = frozenset(origin.lower().encode() for origin in origins)
        self._token = token.encode() if token else None

    def admit(self, head: RequestHead) -> None:
        """Raises HttpFault. What it says has nothing of what was sent."""
        target = head.target
        if target[:1] != b"/" or target.translate(None, _VISIBLE):
            raise HttpFault(400, "the request target is not a plain path")
        host = head.said(b"host")
        for name in head.repeated:
            if self._is_of_message(name):
                head.said(name)  # raises
        dropped = head.said(b"connection")
        if dropped is not None and dropped.lower() not in _USUAL:
            self._check_dropped(dropped)
        if host is None or host.lower() not in self._hosts:
            raise HttpFault(403, "the Host header names another host; see --public-url")
        origin = head.said(b"origin")
        if origin is not None and origin.lower() not in self._origins:
            raise HttpFault(403, "web pages of this origin may not come in here")
        if self._token is not None:
            shown = head.said(TOKEN_HEADER) or b""
            if not hmac.compare_digest(shown, self._token):
                raise HttpFault(403, "the Subluminal-Token header is missing or wrong")

    def _is_of_message(self, name: bytes) -> bool:
        return name in self._once or name.startswith(self._prefix)

    def _check_dropped(self, connection: bytes) -> None:
        """What `Connection` names goes no further; what a message is judged by must."""
        for word in connection.lower().split(b","):
            if self._is_of_message(word.strip(b" \t")):
                raise HttpFault(400, "the Connection header names a header that belongs to the message")

    def knows(self, peer: Peer) -> bool:
        """A loopback listener serves this user only; where the system does not tell, a token stands in for it."""
        return self._token is not None or peer.uid == os.getuid()


def check_body(head: RequestHead) -> None:
    """A body is one JSON text in UTF-8, as it is: nothing that must be undone before it can be read."""
    coding = head.said(b"content-encoding")
    if coding is not None and coding.strip(b" \t").lower() != b"identity":
        raise HttpFault(415, "encoded bodies are not taken; send it as it is")
    kind = head.said(b"content-type")
    if kind is None or kind.replace(b" ", b"").lower() not in _JSON_TYPES:
        raise HttpFault(415, "the Content-Type must be application/json")


def accepts(head: RequestHead, kind: bytes) -> bool:
    """Whether the client takes answers of this type."""
    wanted = b",".join(values(head.headers, b"accept")).lower()
    return kind in wanted or b"*/*" in wanted or kind.partition(b"/")[0] + b"/*" in wanted


_VISIBLE = bytes(range(0x21, 0x7F))
