"""What the provider answers: passed on as it comes, but for tool calls, which wait for their judgement.

    bytes       go out at once, unless something before them waits
    a call      is judged as soon as the run's state is to be had; what comes after it waits behind it
    a fault     nobody can say what the answer means: it ends here, and the client is told so

Answers of one run wait for their own calls only, each in its order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from subluminal.adapters.messages_api.provider import as_sentence, refuse
from subluminal.http.heads import Headers, HttpFault, ResponseHead, is_utf8, media_type, values, without
from subluminal.model.words import Emitted, Later, ModelFault, Observed, Usage

if TYPE_CHECKING:
    from subluminal.adapters.messages_api.desk import Desk
    from subluminal.adapters.messages_api.provider import Provider
    from subluminal.adapters.messages_api.targets import Operation
    from subluminal.http.inbound import Visit
    from subluminal.model.words import Answer, Piece

EVENT_STREAM = b"text/event-stream"
JSON = b"application/json"
# One answer as JSON: held until all of its calls are judged.
MAX_ANSWER_BYTES = 64 * 1024 * 1024
# One call's arguments.
MAX_CALL_BYTES = 64 * 1024 * 1024
NOT_MODIFIED = 304
_DROPPED = frozenset((b"content-length", b"content-encoding"))


class Answering:
    """Asker of the request. `streamed`: whether a stream was asked for; None: nobody can say."""

    __slots__ = (
        "_asked", "_client_full", "_deferred", "_desk", "_ended", "_head", "_held", "_is_stream", "_is_waiting",
        "_operation", "_out", "_over", "_provider", "_queue", "_reader", "_size", "_streamed", "_visit",
    )  # fmt: skip

    def __init__(
        self, provider: Provider, visit: Visit, desk: Desk, operation: Operation, streamed: bool | None
    ) -> None:
        self._provider = provider
        self._visit = visit
        self._desk = desk
        self._operation = operation
        self._streamed = streamed
        self._asked: Any = None
        self._head: ResponseHead | None = None
        self._reader: Answer | None = None  # None: what comes passes unread
        self._is_stream = False
        self._out: list[bytes] = []  # of an answer that is no stream
        self._queue: deque[Piece] = deque()
        self._size = 0
        self._held = 0  # bytes of it in memory
        self._is_waiting = False  # for a judgement
        self._deferred = False  # it comes later, from the run's queue
        self._client_full = False
        self._ended = False
        self._over = False

    def ask(self, body: bytes) -> None:
        head = self._visit.head
        lines = self._provider.request_lines(head)
        self._asked = self._provider.pool.ask(head.method, head.target, lines, body, self)

    def give_up(self) -> None:
        """The client has left. What was let through stays open: its result may come with another request."""
        self._finish()

    # -- the provider answers -------------------------------------------------------------------------------------

    def head(self, head: ResponseHead) -> None:
        self._head = head
        try:
            self._read_head(head)
        except HttpFault as fault:
            self._refuse(f"its answer is not understood: {fault.why}")

    def _read_head(self, head: ResponseHead) -> None:
        coding = b",".join(values(head.headers, b"content-encoding")).strip().lower()
        if coding not in (b"", b"identity"):
            self._refuse("its answer is encoded, though it was asked not to")
        elif 300 <= head.status < 400 and head.status != NOT_MODIFIED:
            self._refuse(f"it redirects elsewhere ({head.status}), which is not followed; give the address it means")
        else:
            kind = media_type(head.said(b"content-type"))
            if not self._operation.reads_answer or (head.status >= 300 and kind not in (JSON, EVENT_STREAM)):
                self._begin(head, passing=True)
            else:  # an error as well: there are clients that never look at the status
                self._read(head, kind)

    def _read(self, head: ResponseHead, kind: bytes) -> None:
        api = self._operation.api
        if not is_utf8(head.said(b"content-type")):
            self._refuse("its answer is in another charset than UTF-8, in which some clients would read other things")
        elif kind == JSON:
            self._reader = api.answer(False, MAX_CALL_BYTES)
        elif kind == EVENT_STREAM and self._streamed is not False:
            self._reader = api.answer(True, MAX_CALL_BYTES)
            self._is_stream = True
            self._begin(head)
        elif self._desk.may_refuse:
            self._refuse("its answer is of a type that was not asked for, in which tool calls cannot be read")
        else:
            self._begin(head, passing=True)

    def _begin(self, head: ResponseHead, passing: bool = False) -> None:
        length = head.said(b"content-length") if passing else None
        self._visit.begin(head.status, self._headers(head), int(length) if length else None, head.reason)

    def _headers(self, head: ResponseHead) -> Headers:
        return self._provider.unshown(without(head.headers, _DROPPED))

    def data(self, data: bytes) -> None:
        if self._over:
            return
        if self._reader is None:
            self._visit.send(data)
            return
        self._size += len(data)
        if not self._is_stream and self._size > MAX_ANSWER_BYTES:
            self._fault(f"its answer is larger than {MAX_ANSWER_BYTES:,} bytes")
            return
        try:
            pieces = self._reader.feed(data)
        except ModelFault as fault:
            self._fault(fault.why)
            return
        if pieces:
            self._queue.extend(pieces)
            self._drain()
        self._count_held()

    def end(self) -> None:
        if self._over or self._head is None:
            return
        if self._reader is None:
            self._ended = True
            self._visit.end()
            self._finish()
            return
        try:
            self._queue.extend(self._reader.end())
        except ModelFault as fault:
            self._fault(fault.why)
            return
        self._ended = True
        self._drain()

    def failed(self, why: str) -> None:
        if self._over:
            return
        if self._visit.begun:
            self._state_usage()
            self._finish()
            self._break_off()
        else:
            self._refuse(why)

    def full(self) -> None:
        """The whole request was written at once."""

    def room(self) -> None: ...

    def client_is_full(self, full: bool) -> None:
        self._client_full = full
        self._count_held()
        self._pace()

    def _count_held(self) -> None:
        """All answers together have one bound: calls that never end must not fill the memory."""
        if self._over or self._reader is None:
            return
        kept = self._reader.kept
        if self._is_waiting or self._client_full:  # what was given by the reader is still here
            kept = max(kept, self._held)
        if kept > self._held and not self._provider.hold(kept - self._held):
            self._fault("more is held here at once than there is room for")
            return
        self._provider.let_go(max(self._held - kept, 0))
        self._held = kept

    # -- pieces, in order -----------------------------------------------------------------------------------------

    def _drain(self) -> None:
        while self._queue and not self._is_waiting and not self._over:
            self._pass(self._queue.popleft())
        if self._is_waiting or self._over:
            self._pace()
        elif self._ended:
            self._whole()
        else:
            self._pace()

    def _pass(self, piece: Piece) -> None:
        if isinstance(piece, bytes):
            self._send(piece)
        elif isinstance(piece, Later):
            self._send(piece.render())
        elif isinstance(piece, Usage):
            self._desk.note(self._operation.api, piece)
        else:
            self._is_waiting = True
            self._deferred = False
            self._desk.do(self._decide, piece, needs_state=True)
            self._deferred = self._is_waiting

    def _decide(self, piece: Emitted | Observed) -> None:
        """With the run's state in hand. A client that has left meanwhile has not got the call."""
        try:
            if self._over:
                return
            if isinstance(piece, Emitted):
                self._send(self._desk.judge(self._operation.api, piece))
            else:
                self._desk.observe(self._operation.api, piece)
        except ModelFault as fault:
            self._fault(fault.why)
        except BaseException:
            self._finish()
            self._break_off()
            raise
        finally:
            self._is_waiting = False
        if self._deferred:
            self._drain()

    def _send(self, data: bytes) -> None:
        if self._is_stream:
            self._visit.send(data)
        else:
            self._out.append(data)

    def _whole(self) -> None:
        head = self._head
        assert head is not None
        if self._is_stream:
            self._visit.end()
        else:
            self._visit.answer(head.status, self._headers(head), b"".join(self._out))
        self._finish()

    def _pace(self) -> None:
        """No more is read than the client takes, and nothing while a judgement is waited for."""
        pool = self._provider.pool
        if self._over:
            return
        if self._client_full or self._is_waiting:
            pool.pause(self._asked)
        else:
            pool.resume(self._asked)

    # -- ends -----------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Nothing more passes. A connection whose answer is not at its end is of no use to anybody."""
        if self._over:
            return
        self._over = True
        self._queue.clear()
        self._out = []
        self._reader = None  # with what it keeps
        self._provider.let_go(self._held)
        self._held = 0
        if not self._ended:
            self._provider.pool.give_up(self._asked)
        self._asked = None

    def _refuse(self, why: str) -> None:
        """The provider has not answered, or not so that it could be passed on."""
        self._finish()
        refuse(
            self._visit,
            self._operation.api,
            502,
            f"the server of the model, {self._provider.name}, did not answer: {why}",
        )

    def _fault(self, why: str) -> None:
        """In the middle: what passed has passed, and nothing more does."""
        self._finish()
        self._desk.do(self._tell_fault, why, needs_state=True)

    def _tell_fault(self, why: str) -> None:
        self._desk.unreadable(why, self._size)
        message = f"the answer of the model cannot be judged: {why}"
        if not self._visit.begun:
            refuse(self._visit, self._operation.api, 502, message)
            return
        told = self._operation.api.error(502, as_sentence(message))
        self._visit.send(b"event: error\ndata: " + told + b"\n\n")
        self._break_off()

    def _break_off(self) -> None:
        """Once what was written has left."""
        asyncio.get_running_loop().call_soon(self._visit.break_off)

    def _state_usage(self) -> None:
        """What a stream stated before it was cut."""
        if self._reader is None or not self._is_stream or self._is_waiting:
            return
        try:
            pieces = self._reader.end()
        except ModelFault:
            return
        for piece in pieces:
            if isinstance(piece, Usage):
                self._desk.note(self._operation.api, piece)
