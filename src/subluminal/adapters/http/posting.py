"""A POST: its body is read, judged as one message, and what was judged goes on byte for byte.

data*, end     the body, whole or held in a file
judge          the exchange decides; a refusal is answered at once, anything else is asked of the server
Answering      passes on what the server answers
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any, Protocol

from subluminal.adapters.http.answers import json_answer, one_body
from subluminal.adapters.http.era import mismatch
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


class Replying(Protocol):
    """What passes on a server's answer to one request."""

    def recorded(self) -> None:
        """The decision is on record: from here on the client may hear of it."""

    def give_up(self) -> None:
        """The client has left."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Behind(Protocol):
    """A server, as far as a judged message knows it."""

    def begin(self, posting: Posting, message: bytes | Held) -> Replying: ...


class Posting:
    """Listener of its visit, and the party for whom its message is carried out."""

    __slots__ = (
        "_big", "_held", "_is_judged", "_pieces", "_replying", "_server", "_size", "desk", "exchange",
        "reading", "visit",
    )  # fmt: skip

    def __init__(self, server: Behind, visit: Visit, desk: Desk, exchange: Exchange, session: bytes | None) -> None:
        self._server = server
        self.visit = visit
        self.desk = desk
        self.exchange = exchange
        self._pieces: list[bytes] = []
        self._size = 0
        self._big: Oversize | None = None
        self._held: Held | None = None
        self._replying: Replying | None = None
        self.reading: Reading | None = None
        self._is_judged = False
        desk.came(exchange, session)
        visit.when_over(self._over)

    # -- the visit ------------------------------------------------------------------------------------------------

    def data(self, data: bytes) -> None:
        self._size += len(data)
        if self._big is not None:
            self._big.feed(data)
            return
        self._pieces.append(data)
        if self._size > self.desk.config.max_inspect_bytes:
            from subluminal.host.oversize import Oversize  # few have such a message

            self._big = Oversize(True, self.desk.config.max_message_bytes)
            for piece in self._pieces:
                self._big.feed(piece)
            self._pieces = []

    def end(self) -> None:
        read_ns = monotonic_ns()
        producer = self.desk.producer
        if read_ns >= producer.check_at_ns:
            producer.check_policies(read_ns, time_ns() // 1_000_000)
        big = self._big
        if big is not None:
            big.scan.finish()
            reading = read_scan(big.scan)
        else:
            body = b"".join(self._pieces)
            self._pieces = []
            reading = read_message(body)
        wrong = mismatch(self.visit.head, reading)
        if wrong is not None:
            for each in (reading, *(reading.elements if reading.kind == BATCH else ())):
                _doubt(each, wrong)
        self.reading = reading
        judged = reading.kind in _JUDGED or big is not None or wrong is not None
        if big is not None:
            self.do(self._judge_big, big, reading, read_ns, needs_state=True)
        else:
            self.do(self._judge, reading, body, read_ns, needs_state=judged)

    def do(self, work: Callable[..., None], *args: Any, needs_state: bool) -> None:
        """It is there as a whole, and may be judged."""
        self.desk.do(work, *args, needs_state=needs_state)

    def gone(self) -> None:
        """The client has left: so does the server see it. Whether this cancels is a matter of the revision."""
        if self._replying is not None:
            self._replying.give_up()

    def _over(self) -> None:
        """However it ended: nothing is kept of it."""
        self._judged()
        self.desk.over(self.exchange)
        self._pieces = []
        if self._big is not None:
            self._big.drop()
        self._drop_held()

    def _judged(self) -> None:
        if not self._is_judged:
            self._is_judged = True
            self.desk.judged()

    def full(self) -> None:
        if self._replying is not None:
            self._replying.pause()

    def room(self) -> None:
        if self._replying is not None:
            self._replying.resume()

    # -- the judgement --------------------------------------------------------------------------------------------

    def _judge(self, reading: Reading, body: bytes, read_ns: int) -> None:
        if self.visit.over:
            return
        wall_ms = time_ns() // 1_000_000
        self.exchange.client_message(reading, body, wall_ms, read_ns)
        self._carry_out(read_ns)

    def _judge_big(self, big: Oversize, reading: Reading, read_ns: int) -> None:
        if self.visit.over:
            return
        if big.fault is None:
            self._held = Held(*big.release())
        wall_ms = time_ns() // 1_000_000
        self.exchange.client_other(reading, self._held, big.size, wall_ms, read_ns, big.stream_hash(), big.fault)
        self._big = None
        self._carry_out(read_ns)

    def _carry_out(self, read_ns: int) -> None:
        self.desk.carry_out(self, read_ns)
        self._judged()
        if self._replying is not None:
            self._replying.recorded()
        elif not self.visit.begun:
            json_answer(self.visit, 400, NOT_TAKEN)  # refused, and without an id that could be answered

    def forward(self, messages: list[Any]) -> None:
        """Once for a message: a batch is one."""
        (message,) = messages
        self._replying = self._server.begin(self, message)

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

    # -- a message that waited in a file --------------------------------------------------------------------------

    def more(self) -> None:
        """The server takes more of it."""
        if self._held is not None:
            self._held.more()

    def _drop_held(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.close()


def _doubt(reading: Reading, why: str) -> None:
    """Its headers give this message another reading."""
    if reading.ambiguous is None:
        reading.ambiguous = why
    if reading.kind == REQUEST:
        reading.kind = AMBIGUOUS
