"""A request whose answer a process owes: how it is answered when the words come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from subluminal.adapters.http.answers import EVENT_STREAM, json_answer, one_body
from subluminal.adapters.listening.front import accepts
from subluminal.contracts.event_stream import event_bytes
from subluminal.mcp.headers import SESSION_ID
from subluminal.mcp.message.reading import BATCH, PASS, RESPONSE, UNREADABLE, raw_elements, read_value
from subluminal.mcp.refusal import server_gone

if TYPE_CHECKING:
    from subluminal.adapters.http.command_session import CommandSession
    from subluminal.adapters.http.posting import Posting
    from subluminal.adapters.http.server_rules import Unfit
    from subluminal.adapters.listening.held import Held

_PIECE = 64 * 1024


class Awaiting:
    """A POST whose answer the server owes: one JSON message, or an event stream if more is said on the way.

    One that is `unfit` does not go to the server: what was judged is recorded as sent, and then it is refused.
    """

    __slots__ = (
        "_expected", "_held", "_replies", "_session", "_streams", "_unfit", "_visit", "ids", "method", "refused",
        "takes_events", "token",
    )  # fmt: skip

    def __init__(self, session: CommandSession, posting: Posting, unfit: Unfit | None = None) -> None:
        reading = posting.reading
        self._session = session
        self._visit = posting.visit
        self._unfit = unfit
        self.method = "" if reading is None else reading.method
        self.ids = [i for i in dict.fromkeys(posting.ids) if session.exchange.waits_for(i)]
        self.refused = list(posting.ids)
        for id_raw in self.ids:
            self.refused.remove(id_raw)
        if reading is None or reading.kind != BATCH or not self.ids:
            self.refused = []  # answered by now
        if reading is not None and reading.kind in (PASS, RESPONSE):
            self.ids = []
        self._expected = len(self.ids) + len(self.refused)
        self._replies: list[bytes] = []
        self._held: Held | None = None
        self._streams = False
        is_batch = reading is not None and reading.kind == BATCH
        self.takes_events = accepts(posting.visit.head, b"text/event-stream") and not is_batch
        self.token = None
        if reading is not None and b"progressToken" in reading.raw:
            value = read_value(reading.raw)
            params = value.get("params") if isinstance(value, dict) else None
            meta = params.get("_meta") if isinstance(params, dict) else None
            self.token = meta.get("progressToken") if isinstance(meta, dict) else None

    def _headers(self) -> list[tuple[bytes, bytes]]:
        return [] if self._session.is_stateless else [(SESSION_ID, self._session.session)]

    def recorded(self) -> None:
        self._session.desk.later.before_answer()
        if self._unfit is not None:
            self._session.refuse(self, self._unfit)
        elif self._session.replies_on_stream or not self.ids:
            self._visit.answer(202, self._headers())

    def event(self, message: bytes) -> None:
        if not self._streams:
            self._streams = True
            self._visit.begin(200, [*EVENT_STREAM, *self._headers()])
        self._visit.send(event_bytes(message))

    def reply(self, message: bytes, count: int = 1) -> None:
        """`count`: how many of its requests it answers."""
        self._expected -= count
        if self._streams:
            self._visit.send(event_bytes(message))
            if self._expected <= 0:
                self._visit.end()
            return
        self._replies.append(message)
        if self._expected <= 0:
            replies = self._replies
            if len(replies) > 1:
                replies = [each for reply in replies for each in (elements(reply) if reply[:1] == b"[" else [reply])]
            json_answer(self._visit, self._session.status_of(replies), one_body(replies), self._headers())

    def reply_held(self, held: Held) -> None:
        self._held = held
        if not self._streams:
            self._visit.begin(200, [(b"content-type", b"application/json"), *self._headers()], held.size)
        else:
            self._visit.send(b"event: message\ndata: ")
        while piece := held.read(_PIECE):
            self._visit.send(piece)
        held.close()
        if self._streams:
            self._visit.send(b"\n\n")
        self._visit.end()

    def refuse(self, unfit: Unfit) -> None:
        if not self._visit.over:
            asked = (*self.ids, *self.refused) or (b"null",)
            json_answer(self._visit, 400, one_body([unfit.reply(id_raw) for id_raw in asked]))

    def fail(self, message: str) -> None:
        replies = [server_gone(id_raw, message) for id_raw in self.ids]
        if self._streams:
            for reply in replies:
                self._visit.send(event_bytes(reply))
            self._visit.end()
        elif replies:
            json_answer(self._visit, 502, one_body(replies))

    # -- told by the posting --------------------------------------------------------------------------------------

    def give_up(self) -> None:
        self._session.left(self)

    def pause(self) -> None:
        self._session.pause(self)

    def resume(self) -> None:
        self._session.resume(self)


def elements(message: bytes) -> list[bytes]:
    try:
        return [bytes(raw) for raw in raw_elements(message)]
    except UNREADABLE:
        return []
