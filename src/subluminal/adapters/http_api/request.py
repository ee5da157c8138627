"""One request: its body is read, the call is judged, and what was judged goes on byte for byte.

data*, end     the body, whole or held in a file
judge          the gate decides; a refusal is answered at once, anything else is asked of the server
Answering      passes on what the server answers
"""

from __future__ import annotations

from time import time_ns
from typing import TYPE_CHECKING

from subluminal.adapters.http_api.answering import Answering
from subluminal.adapters.http_api.desk import TRANSPORT, Telling
from subluminal.adapters.http_api.reading import doubtful_body, read_body, unread_hash
from subluminal.adapters.http_api.refusals import FORBIDDEN, own_answer, refusal
from subluminal.adapters.listening.held import Held
from subluminal.adapters.listening.incoming import Incoming
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
    from subluminal.http.inbound import Visit

NOT_MAPPED = "The mapping has no operation for this request, so it was not passed on."


class Request(Incoming["Desk"]):
    """Listener of its visit, and the party for whom its call is carried out."""

    __slots__ = ("_api", "_body", "_entry", "_own", "_reading")

    def __init__(self, api: Api, visit: Visit, desk: Desk, reading: Reading) -> None:
        super().__init__(visit, desk)
        self._api = api
        self._reading = reading
        self._body: bytes | Held = b""
        self._own: OwnAnswer | None = None
        self._entry: Open | None = None

    # -- the visit ------------------------------------------------------------------------------------------------

    def end(self) -> None:
        read_ns = self.complete()
        self.desk.do(self._judge, self._call(), read_ns, needs_state=True)

    def over(self) -> None:
        super().over()
        if isinstance(self._body, Held):
            self._body.close()

    # -- the judgement --------------------------------------------------------------------------------------------

    def _call(self) -> ToolCall:
        head, reading, big = self.visit.head, self._reading, self.big
        call = ToolCall(
            self.desk.server.name,
            reading.tool,
            None,
            len(head.target) + self.size,
            TRANSPORT,
            risk_classes=reading.risk_class,
            timeout_ms=self.desk.server.timeout_ms or None,
        )
        if big is not None:
            reading.doubt = reading.doubt or doubtful_body(reading, head, big.size)
            call.args_stream_hash = big.stream_hash()
            call.args_raw_hash = unread_hash(reading, call.args_stream_hash)
            call.too_large = big.fault
            if big.fault is None:
                self._body = Held(*big.release())
            self.big = None
        else:
            self._body = self.whole()
            call.args_raw = read_body(reading, head, self._body)
        call.ambiguous = reading.doubt
        return call

    def _judge(self, call: ToolCall, read_ns: int) -> None:
        if self.visit.over:
            return
        desk, gate = self.desk, self.desk.producer.gate
        record = gate.judge(call, time_ns() // 1_000_000, read_ns // 1_000_000)
        if record.decision.action != ALLOW:
            self._refuse(record)
        else:
            self._entry = Open(b"", record, read_ns, read_ns)
            desk.opened(self._entry)
            desk.outputs.append(Forward(self._body if self._reading.passes else None, self._entry))
        desk.carry_out(self, read_ns)
        self.judged()
        if self._entry is not None and not self._reading.passes:
            self._leave_unmapped(self._entry)

    def _refuse(self, record: CallRecord) -> None:
        own = self._own = refusal(record.decision, *self.desk.producer.gate.refusal(record), record.call.ambiguous)
        self.desk.outputs += [Refused(record, len(own.body)), Answer(own.body)]

    def _leave_unmapped(self, entry: Open) -> None:
        """Policy had nothing against it, but nobody has said what it does: it ends here."""
        own = own_answer(FORBIDDEN, NOT_MAPPED)
        ended = Ended(entry, "ERROR", len(own.body), error=fault("unknown", NOT_MAPPED))
        self.desk.ended(ended, Telling(self.visit, own))

    def forward(self) -> None:
        assert self._entry is not None
        answering = self._replies = Answering(self._api, self.visit, self.desk, self._entry, self._body)
        answering.ask()

    def answer(self) -> None:
        if self._own is not None:
            self._own.give(self.visit)
