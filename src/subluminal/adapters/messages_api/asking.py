"""A request: its body is gathered, read and restored, what it tells is taken in, and it goes on to the provider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from subluminal.adapters.messages_api.answering import Answering
from subluminal.adapters.messages_api.provider import refuse
from subluminal.adapters.messages_api.targets import asks_for_stream
from subluminal.model.words import ModelFault

if TYPE_CHECKING:
    from subluminal.adapters.messages_api.desk import Desk
    from subluminal.adapters.messages_api.provider import Provider
    from subluminal.adapters.messages_api.targets import Operation
    from subluminal.http.inbound import Visit
    from subluminal.model.words import Request

# A history with pictures in it; the providers take half of that.
MAX_REQUEST_BYTES = 64 * 1024 * 1024


class Asking:
    """Listener of its visit."""

    __slots__ = ("_answering", "_desk", "_held", "_limit", "_operation", "_pieces", "_provider", "_size", "_visit")

    def __init__(self, provider: Provider, visit: Visit, desk: Desk, operation: Operation) -> None:
        self._provider = provider
        self._visit = visit
        self._desk = desk
        self._operation = operation
        self._limit = min(desk.config.max_message_bytes, MAX_REQUEST_BYTES)
        self._pieces: list[bytes] = []
        self._size = 0
        self._held = 0
        self._answering: Answering | None = None
        desk.under_way += 1
        visit.when_over(self._over)

    def data(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._limit:
            self._refuse(413, f"the body is larger than {self._limit:,} bytes")
        elif not self._provider.hold(len(data)):
            self._refuse(503, "too much is sent here at once; try again later")
        else:
            self._held += len(data)
            self._pieces.append(data)

    def end(self) -> None:
        body = b"".join(self._pieces)
        self._pieces = []
        if not self._operation.reads_request:
            self._send(body, asks_for_stream(self._visit.head.target))
            return
        try:
            request = self._operation.api.read_request(body)
        except ModelFault as fault:
            if self._desk.may_refuse:
                self._refuse(400, f"the request is not understood: {fault.why}")
            else:
                self._send(body, None)
            return
        if self._desk.needs_state(request):
            self._desk.do(self._take_in, request, needs_state=True)
        else:  # it need not stand behind others of its run
            self._take_in(request)

    def _take_in(self, request: Request) -> None:
        if self._visit.over:
            return
        body = self._desk.take_in(request)
        if not self.refuse_ended():
            self._send(body, request.streamed)

    def refuse_ended(self) -> bool:
        """Whether the run is over. Then nothing goes to the provider any more."""
        told = self._desk.ended_run()
        if told is not None:
            self._refuse(403, *told)
        return told is not None

    def _send(self, body: bytes, streamed: bool | None) -> None:
        self._answering = Answering(self._provider, self._visit, self._desk, self._operation, streamed)
        self._answering.ask(body)
        self._let_go()

    def _refuse(self, status: int, message: str, data: dict[str, Any] | None = None) -> None:
        refuse(self._visit, self._operation.api, status, message, data)

    def gone(self) -> None:
        if self._answering is not None:
            self._answering.give_up()

    def _over(self) -> None:
        """However it ended: nothing is kept of it."""
        self._desk.under_way -= 1
        self._pieces = []
        self._let_go()

    def _let_go(self) -> None:
        self._provider.let_go(self._held)
        self._held = 0

    def full(self) -> None:
        if self._answering is not None:
            self._answering.client_is_full(True)

    def room(self) -> None:
        if self._answering is not None:
            self._answering.client_is_full(False)
