"""One request: its body is read, the call is judged, and what was judged goes on byte for byte.

data*, end     the body, whole or held in a file
judge          the gate decides; a refusal is answered at once, anything else is asked of the server
Answering      passes on what the server answers
"""

from __future__ import annotations

from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING

from subluminal.adapters.http_api.answering import Answering
from subluminal.adapters.http_api.desk import TRANSPORT, Telling
from subluminal.adapters.http_api.reading import doubtful_body, read_body, unread_hash
from subluminal.adapters.http_api.refusals import FORBIDDEN, own_answer, refusal
from subluminal.adapters.listening.held import Held
from subluminal.contracts.toolcall import ToolCall
from subluminal.contracts.vocabulary import ALLOW
from subluminal.mcp.calls import Answer, Ended, Forward, Refused
from subluminal.mcp.faults import fault
from subluminal.mcp.legs import Open

if TYPE_CHECKING:
    from subluminal.adapters.http_api.api import Api
    from subluminal.adapters.http_api.desk import Desk
    from subluminal.adapters.http_api.reading import Reading
    from subluminal.adapters.http_api.refusals import OwnAnswer
    from subluminal.core.gate.record import CallRecord
    from subluminal.host.oversize import Oversize
    from subluminal.http.inbound import Visit

NOT_MAPPED = "The mapping has no operation for this request, so it was not passed on."


class Request:
    """Listener of its visit, and the party for whom its call is carried out."""

    __slots__ = (
        "_answering", "_api", "_big", "_body", "_desk", "_entry", "_is_judged", "_own", "_pieces", "_reading", "_size",
        "_visit",
    )  # fmt: skip

    def __init__(self, api: Api, visit: Visit, desk: Desk, reading: Reading) -> None:
        self._api = api
        self._visit = visit
        self._desk = desk
        self._reading = reading
        self._pieces: list[bytes] = []
        self._size = 0
        self._big: Oversize | None = None
        self._body: bytes | Held = b""
        self._own: OwnAnswer | None = None
        self._entry: Open | None = None
        self._answering: Answering | None = None
        self._is_judged = False
        desk.unjudged += 1
        visit.when_over(self._over)

    # -- the visit ------------------------------------------------------------------------------------------------

    def data(self, data: bytes) -> None:
        self._size += len(data)
        if self._big is not None:
            self._big.feed(data)
            return
        self._pieces.append(data)
        if self._size > self._desk.config.max_inspect_bytes:
            from subluminal.host.oversize import Oversize  # few have such a body

            self._big = Oversize(True, self._desk.config.max_message_bytes)
            for piece in self._pieces:
                self._big.feed(piece)
            self._pieces = []

    def end(self) -> None:
        read_ns = monotonic_ns()
        producer = self._desk.producer
        if read_ns >= producer.check_at_ns:
            producer.check_policies(read_ns, time_ns() // 1_000_000)
        self._desk.do(self._judge, self._call(), read_ns, needs_state=True)

    def gone(self) -> None:
        """The client has left: so does the server see it."""
        if self._answering is not None:
            self._answering.give_up()

    def full(self) -> None:
        if self._answering is not None:
            self._answering.pause()

    def room(self) -> None:
        if self._answering is not None:
            self._answering.resume()

    def _over(self) -> None:
        """However it ended: nothing is kept of it."""
        self._judged()
        self._pieces = []
        if self._big is not None:
            self._big.drop()
        if isinstance(self._body, Held):
            self._body.close()

    def _judged(self) -> None:
        if not self._is_judged:
            self._is_judged = True
            self._desk.unjudged -= 1

    # -- the judgement --------------------------------------------------------------------------------------------

    def _call(self) -> ToolCall:
        head, reading, big = self._visit.head, self._reading, self._big
        call = ToolCall(
            self._desk.server.name,
            reading.tool,
            None,
            len(head.target) + self._size,
            TRANSPORT,
            risk_classes=reading.risk_class,
            timeout_ms=self._desk.server.timeout_ms or None,
        )
        if big is not None:
            reading.doubt = reading.doubt or doubtful_body(reading, head, big.size)
            call.args_stream_hash = big.stream_hash()
            call.args_raw_hash = unread_hash(reading, call.args_stream_hash)
            call.too_large = big.fault
            if big.fault is None:
                self._body = Held(*big.release())
            self._big = None
        else:
            self._body = b"".join(self._pieces)
            self._pieces = []
            call.args_raw = read_body(reading, head, self._body)
        call.ambiguous = reading.doubt
        return call

    def _judge(self, call: ToolCall, read_ns: int) -> None:
        if self._visit.over:
            return
        desk, gate = self._desk, self._desk.producer.gate
        record = gate.judge(call, time_ns() // 1_000_000, read_ns // 1_000_000)
        if record.decision.action != ALLOW:
            self._refuse(record)
        else:
            self._entry = Open(b"", record, read_ns)
            desk.opened(self._entry)
            desk.outputs.append(Forward(self._body if self._reading.passes else None, self._entry))
        desk.carry_out(self, read_ns)
        self._judged()
        if self._entry is not None and not self._reading.passes:
            self._leave_unmapped(self._entry)

    def _refuse(self, record: CallRecord) -> None:
        own = self._own = refusal(record.decision, *self._desk.producer.gate.refusal(record), record.call.ambiguous)
        self._desk.outputs += [Refused(record, len(own.body)), Answer(own.body)]

    def _leave_unmapped(self, entry: Open) -> None:
        """Policy had nothing against it, but nobody has said what it does: it ends here."""
        own = own_answer(FORBIDDEN, NOT_MAPPED)
        ended = Ended(entry, "ERROR", len(own.body), error=fault("unknown", NOT_MAPPED))
        self._desk.ended(ended, Telling(self._visit, own))

    def forward(self) -> None:
        assert self._entry is not None
        self._answering = Answering(self._api, self._visit, self._desk, self._entry, self._body)
        self._answering.ask()

    def answer(self) -> None:
        if self._own is not None:
            self._own.give(self._visit)
