"""A POST: its body is read, judged as one message, and what was judged goes on byte for byte.

data*, end     the body, whole or held in a file
judge          the exchange decides; a refusal is answered at once, anything else is asked of the server
Answering      passes on what the server answers
"""

from __future__ import annotations

from collections.abc import Callable
from time import time_ns
from typing import TYPE_CHECKING, Any, Protocol

from subluminal.adapters.http.answers import json_answer, one_body
from subluminal.adapters.http.era import mismatch
from subluminal.adapters.listening import incoming
from subluminal.adapters.listening.held import Held
from subluminal.mcp.message.exact import read_scan
from subluminal.mcp.message.reading import AMBIGUOUS, BATCH, CALL, REQUEST, Reading
from subluminal.mcp.message.wire import read_message

if TYPE_CHECKING:
    from subluminal.adapters.http.desk import Desk
    from subluminal.host.oversize import Oversize
    from subluminal.http.inbound import Visit
    from subluminal.mcp.exchange import Exchange

_JUDGED = (CALL, AMBIGUOUS, BATCH)
NOT_TAKEN = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Refused by policy, or not understood."}}'


class Replying(incoming.Replying, Protocol):
    """What passes on a server's answer to one request."""

    def recorded(self) -> None:
        """The message is on its way, and its decision in the gate: `later.before_answer` puts it on record."""


class Behind(Protocol):
    """A server, as far as a judged message knows it."""

    def begin(self, posting: Posting, message: bytes | Held) -> Replying: ...


class Posting(incoming.Incoming["Desk"]):
    """Listener of its visit, and the party for whom its message is carried out."""

    __slots__ = ("_body", "_held", "_replying", "_server", "exchange", "read_ns", "reading")

    gathers = True  # may be judged with others

    def __init__(self, server: Behind, visit: Visit, desk: Desk, exchange: Exchange, session: bytes | None) -> None:
        incoming.Incoming.__init__(self, visit, desk)  # `super()` costs as much as the call
        self._server = server
        self.exchange = exchange
        self._held: Held | None = None
        self._replying: Replying | None = None
        self.reading: Reading | None = None
        self._body = b""
        self.read_ns = 0
        if session is None:
            desk.loose.add(exchange)

    # -- the visit ------------------------------------------------------------------------------------------------

    def end(self) -> None:
        desk, big = self.desk, self.big
        self.read_ns = desk.used_ns = self.complete()
        if big is not None:
            big.scan.finish()
            reading = read_scan(big.scan)
        else:
            self._body = self.whole()
            reading = read_message(self._body)
        wrong = mismatch(self.visit.head, reading)
        if wrong is not None:
            for each in (reading, *(reading.elements if reading.kind == BATCH else ())):
                _doubt(each, wrong)
        self.reading = reading
        if big is not None:
            desk.gathering.judge()
            self.do(self._judge_big, big, needs_state=True)
            return
        judged = reading.kind in _JUDGED or wrong is not None
        if self.gathers and ((judged and self.visit.is_of_many) or not desk.gathering.is_empty):
            desk.gathering.add(self)
        else:
            self.do(self._judge_now, needs_state=judged)

    def do(self, work: Callable[..., None], *args: Any, needs_state: bool) -> None:
        """It is there as a whole, and may be judged."""
        self.desk.do(work, *args, needs_state=needs_state)

    def over(self) -> None:
        incoming.Incoming.over(self)
        desk = self.desk
        if desk.loose and self.exchange in desk.loose:
            desk.loose.discard(self.exchange)
            desk.timed.discard(self.exchange)
        if self._held is not None:
            held, self._held = self._held, None
            held.close()

    # -- the judgement --------------------------------------------------------------------------------------------

    def judge(self, wall_ms: int) -> None:
        """What follows from it is put out; nothing, if its client has left."""
        reading = self.reading
        if reading is not None and not self.visit.over:
            body, self._body = self._body, b""
            if reading.kind == CALL:
                self.exchange.client_call(reading, body, len(body), wall_ms, self.read_ns)
            else:
                self.exchange.client_message(reading, body, wall_ms, self.read_ns)

    def _judge_now(self) -> None:
        if not self.visit.over:
            self.judge(time_ns() // 1_000_000)
            self._carry_out()

    def _judge_big(self, big: Oversize) -> None:
        reading = self.reading
        if reading is None or self.visit.over:
            return
        if big.fault is None:
            self._held = Held(*big.release())
        wall_ms = time_ns() // 1_000_000
        self.exchange.client_other(reading, self._held, big.size, wall_ms, self.read_ns, big.stream_hash(), big.fault)
        self.big = None
        self._carry_out()

    def _carry_out(self) -> None:
        self.desk.carry_out(self, self.read_ns)
        self.carried_out()

    def carried_out(self) -> None:
        """What it has led to is on its way."""
        if not self._is_judged:
            self.judged()
        if self._replying is not None:
            self._replying.recorded()
        elif not self.visit.begun:  # refused, and without an id that could be answered
            self.desk.later.before_answer()
            json_answer(self.visit, 400, NOT_TAKEN)

    def forward(self, messages: list[Any]) -> None:
        """Once for a message: a batch is one."""
        (message,) = messages
        self.send_on(message)

    def send_on(self, message: Any) -> None:
        """To the server, as it was judged."""
        if self.exchange.timeout_ms:
            self.desk.timed.add(self.exchange)
        self._replies = self._replying = self._server.begin(self, message)

    def answer(self, messages: list[bytes]) -> None:
        """A refusal: there is nothing else to answer before the server has."""
        json_answer(self.visit, 200, one_body(messages))

    @property
    def ids(self) -> list[bytes]:
        """Of the requests in it: whoever waits for an answer."""
        reading = self.reading
        if reading is None:
            return []
        readings = reading.elements if reading.kind == BATCH else [reading]
        return [each.id_raw for each in readings if each.id_raw is not None and each.kind in (CALL, REQUEST, AMBIGUOUS)]

    @property
    def waits(self) -> bool:
        """Whether any of them has no answer yet."""
        reading, exchange = self.reading, self.exchange
        if not exchange.is_waiting:
            return False
        if reading is not None and reading.kind == CALL:
            return reading.id_raw is not None and exchange.waits_for(reading.id_raw)
        return any(map(exchange.waits_for, self.ids))

    # -- a message that waited in a file --------------------------------------------------------------------------

    def more(self) -> None:
        """The server takes more of it."""
        if self._held is not None:
            self._held.more()


def _doubt(reading: Reading, why: str) -> None:
    """Its headers give this message another reading."""
    if reading.ambiguous is None:
        reading.ambiguous = why
    if reading.kind == REQUEST:
        reading.kind = AMBIGUOUS
