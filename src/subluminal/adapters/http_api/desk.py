"""One run: its calls from their judgement to their end, and the turn that carries out what follows."""

from __future__ import annotations

from itertools import takewhile
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any, Protocol

from subluminal.adapters.listening.in_turn import InTurn
from subluminal.mcp.calls import Answer, Ended
from subluminal.mcp.faults import fault
from subluminal.producer.later import Later
from subluminal.producer.turn import Turn

if TYPE_CHECKING:
    from subluminal.adapters.http_api.refusals import OwnAnswer
    from subluminal.host.config import Config, ServerConfig
    from subluminal.http.inbound import Visit
    from subluminal.mcp.legs import Open
    from subluminal.producer.producer import Producer

TRANSPORT = "http"


class Party(Protocol):
    """Whose request is being carried out."""

    def forward(self) -> None: ...
    def answer(self) -> None: ...


class Telling:
    """The party of an end that the server has not told: the answer is ours."""

    __slots__ = ("_visit", "own")

    def __init__(self, visit: Visit, own: OwnAnswer) -> None:
        self._visit = visit
        self.own = own

    def forward(self) -> None: ...

    def answer(self) -> None:
        self.own.give(self._visit)


class Desk(InTurn):
    """`outputs` is what the turn carries out. `unjudged` counts requests that have begun to come: their run must not
    end before they are judged and recorded."""

    __slots__ = ("_open", "_party", "_turn", "config", "later", "outputs", "server", "unjudged")

    _turn: Turn
    later: Later

    def __init__(self, producer: Producer, server: ServerConfig, config: Config) -> None:
        super().__init__()
        self.server = server
        self.config = config
        self.outputs: list[Any] = []
        self.unjudged = 0
        self._open: dict[Open, None] = {}  # in the order in which they were sent
        self._party: Party | None = None
        self.take_up(producer)

    def take_up(self, producer: Producer) -> None:
        """A run that has ended goes on. Nothing of it is open: else it would not have ended."""
        self.producer = producer
        before = self.server.audit == "before"
        self.later = Later(producer)
        self._turn = Turn(producer, self, self._forward, self._answer, audit_before=before, later=self.later)

    # -- calls ----------------------------------------------------------------------------------------------------

    def carry_out(self, party: Party | None, read_ns: int) -> None:
        """What has been put out leaves, in the order that is the promise of the record."""
        self._party = party
        try:
            self._turn.carry_out(time_ns() // 1_000_000, read_ns)
        finally:
            self._party = None

    def _forward(self, messages: list[Any]) -> None:
        if self._party is not None:
            self._party.forward()

    def _answer(self, messages: list[Any]) -> None:
        if self._party is not None:
            self._party.answer()

    def opened(self, entry: Open) -> None:
        self._open[entry] = None

    def ended(self, ended: Ended, telling: Telling | None = None) -> None:
        """The outcome of a call is known; `telling` says it to whoever waits, where the server has not."""
        read_ns = monotonic_ns()
        record = ended.entry.record
        assert record is not None  # every entry here is a call
        needs_state = self.producer.gate.settling_needs_state(record, ended.status != "OK")
        self.do(self._end, ended, telling, read_ns, needs_state=needs_state)

    def _end(self, ended: Ended, telling: Telling | None, read_ns: int) -> None:
        if telling is not None:
            self.outputs.append(Answer(telling.own.body))
        if ended.entry in self._open:
            del self._open[ended.entry]
            self.outputs.append(ended)
        self.carry_out(telling, read_ns)

    # -- now and then, and at the end -----------------------------------------------------------------------------

    @property
    def calls_open(self) -> int:
        return len(self._open)

    @property
    def is_busy(self) -> bool:
        return bool(self.unjudged or self.waits or self._open)

    def tick(self, now_ns: int) -> None:
        """Calls that have had their time are recorded so. A late answer still passes."""
        timeout_ms = self.server.timeout_ms
        if timeout_ms:
            limit = now_ns - timeout_ms * 1_000_000
            for entry in list(takewhile(lambda entry: entry.sent_ns < limit, self._open)):
                why = fault("timeout", f"no reply within {timeout_ms} ms")
                self.ended(Ended(entry, "TIMEOUT", error=why))

    def close(self, why: str) -> None:
        """Before the producer's `run_end`: every call that is open ends."""
        self.do_all()
        for entry in list(self._open):
            self.ended(Ended(entry, "CANCELLED", error=fault("unknown", why)))
        self.do_all()
