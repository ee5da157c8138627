"""What the server answers to one request: passed on as it comes, whatever it is. Nothing of it is judged.

A preview of it is recorded where it is text as it stands; of what is too large to hold, its size and hash.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from subluminal.adapters.http_api.desk import Telling
from subluminal.adapters.http_api.refusals import own_answer
from subluminal.adapters.listening.held import Held
from subluminal.contracts.digest import sha256
from subluminal.http.heads import media_type, values
from subluminal.mcp.calls import Ended
from subluminal.mcp.faults import fault

if TYPE_CHECKING:
    from subluminal.adapters.http_api.api import Api
    from subluminal.adapters.http_api.desk import Desk
    from subluminal.http.heads import ResponseHead
    from subluminal.http.inbound import Visit
    from subluminal.mcp.legs import Open

CLIENT_LEFT = "the client closed the connection"
# Kept for a preview beyond its own bound: what is masked may stand across the edge.
_MARGIN = 4096
_MAX_LENGTH_DIGITS = 15


class Answering:
    """Asker of the request."""

    __slots__ = (
        "_api", "_asked", "_body", "_desk", "_entry", "_hash", "_kept", "_kept_bytes", "_sending", "_size",
        "_status", "_visit", "over",
    )  # fmt: skip

    def __init__(self, api: Api, visit: Visit, desk: Desk, entry: Open, body: bytes | Held) -> None:
        self._api = api
        self._visit = visit
        self._desk = desk
        self._entry = entry
        self._body = body
        self._asked: Any = None
        self._status = 0
        self._size = 0
        self._kept: list[bytes] | None = None
        self._kept_bytes = 0
        self._hash: Any = None
        self._sending = False
        self.over = False

    def ask(self) -> None:
        head, body = self._visit.head, self._body
        lines = self._api.request_lines(head)
        self._sending = True
        if isinstance(body, Held):
            self._asked = self._api.pool.ask(head.method, head.target, lines, b"", self, body.pump, body.size)
        else:
            self._asked = self._api.pool.ask(head.method, head.target, lines, body, self)
            self._body = b""
        self._sending = False

    # -- the client -----------------------------------------------------------------------------------------------

    def give_up(self) -> None:
        """The client has left. Whether the server has done it by now, nobody knows."""
        if not self.over:
            self._api.pool.give_up(self._asked)
            self._end("CANCELLED", fault("unknown", CLIENT_LEFT))

    def pause(self) -> None:
        self._api.pool.pause(self._asked)

    def resume(self) -> None:
        self._api.pool.resume(self._asked)

    # -- the server -----------------------------------------------------------------------------------------------

    def head(self, head: ResponseHead) -> None:
        if self.over:
            return
        self._desk.later.before_answer()
        self._status = head.status
        length = _length(head)
        limit = self._desk.config.max_inspect_bytes
        if length is None or length > limit:
            self._hash = sha256()
        if _is_text(head):
            self._kept = []
        self._visit.begin(head.status, self._api.answer_headers(head), length, head.reason)

    def data(self, data: bytes) -> None:
        if self.over:
            return
        self._visit.send(data)
        self._size += len(data)
        if self._hash is not None:
            self._hash.update(data)
        if self._kept is not None and self._kept_bytes < self._desk.config.max_preview_bytes + _MARGIN:
            self._kept.append(data)
            self._kept_bytes += len(data)

    def end(self) -> None:
        if self.over:
            return
        self._visit.end()
        if self._status < 400:
            self._end("OK")
        else:
            self._end("ERROR", fault("upstream_error", f"the server answered {self._status}", self._status))

    def failed(self, why: str) -> None:
        if self.over:
            return
        if self._sending:  # the turn that sends it is not over: its decision is not recorded yet
            asyncio.get_running_loop().call_soon(self.failed, why)
            return
        self._desk.later.before_answer()
        if self._visit.begun:
            self._visit.break_off()
            self._end("ERROR", fault("transport", f"the answer was cut: {why}"))
        else:
            message = f"The server {self._api.name} did not answer: {why}."
            self._end("ERROR", fault("transport", message), Telling(self._visit, own_answer(502, message)))

    def full(self) -> None:
        """The server takes no more for now: only a body from a file is sent in pieces."""

    def room(self) -> None:
        if isinstance(self._body, Held):
            self._body.more()

    # -- the end --------------------------------------------------------------------------------------------------

    def _end(self, status: str, error: dict[str, Any] | None = None, telling: Telling | None = None) -> None:
        self.over = True
        self._asked = None  # what refers to each other would be kept until it is looked for
        if isinstance(self._body, Held):
            self._body.close()
        result: bytes | None = b"".join(self._kept or ())
        stream_hash = None
        if self._size > self._desk.config.max_inspect_bytes:
            result = None
            stream_hash = None if self._hash is None else str(self._hash.hexdigest())
        size = self._size if telling is None else len(telling.own.body)
        self._desk.ended(Ended(self._entry, status, size, result, stream_hash, error), telling)


def _length(head: ResponseHead) -> int | None:
    """As far as it is stated; of an answer without content (to HEAD) nobody has looked at it."""
    stated = values(head.headers, b"content-length")
    if len(stated) != 1 or not stated[0].isdigit() or len(stated[0]) > _MAX_LENGTH_DIGITS:
        return None
    return int(stated[0])


def _is_text(head: ResponseHead) -> bool:
    coding = b",".join(values(head.headers, b"content-encoding")).strip().lower()
    kinds = values(head.headers, b"content-type")
    kind = media_type(kinds[0]) if kinds else b""
    return coding in (b"", b"identity") and (
        kind.startswith(b"text/") or kind == b"application/json" or kind.endswith(b"+json")
    )
