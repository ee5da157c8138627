"""One run at one server: its calls, its sessions, and the turn that carries out what a message leads to."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any, Protocol

from subluminal.adapters.http.gathering import Gathering
from subluminal.adapters.listening.in_turn import InTurn
from subluminal.contracts.digest import blake2b
from subluminal.host.run.tool_notes import RunToolNotes
from subluminal.mcp.calls import Calls
from subluminal.mcp.exchange import Exchange
from subluminal.mcp.faults import fault
from subluminal.mcp.tools import ToolNotes
from subluminal.producer.later import Later
from subluminal.producer.surfaces import SurfaceOnDemand
from subluminal.producer.turn import Turn

if TYPE_CHECKING:
    from subluminal.host.config import Config, ServerConfig
    from subluminal.mcp.legs import Open
    from subluminal.producer.producer import Producer

TRANSPORT = "mcp_http"
MAX_SESSIONS = 1024
MAX_NAME_BYTES = 128
SESSION_FORGOTTEN = "its session was not used for long, and others came"
CLIENT_LEFT = "the client closed the connection"
# A reply may be fetched on another stream after its own was cut, and a call be repeated or continued: so long is it
# waited for. Without a bound a client that was killed in the middle of a call would keep its run open for ever.
LEFT_NS = 600_000_000_000
MAX_LEFT = 4096


class Party(Protocol):
    """Whose message is being carried out."""

    def forward(self, messages: list[Any]) -> None: ...
    def answer(self, messages: list[bytes]) -> None: ...


class Desk(InTurn):
    """`sessions`: open requests by session; a request without a session has an exchange of its own, in `loose`.
    `timed`: those with calls that may have to end by their time.

    `unjudged` counts the requests that have begun to come: their run must not end before they are judged and recorded.
    A run that has ended may come back: then `take_up` gives this desk its new producer, and sessions go on.
    """

    __slots__ = (
        "_left", "_party", "_surface", "_tools", "_turn", "calls", "config", "gathering", "later", "loose",
        "server", "sessions", "timed", "unjudged", "used_ns",
    )  # fmt: skip

    calls: Calls
    _turn: Turn
    later: Later

    def __init__(self, producer: Producer, server: ServerConfig, config: Config, words: Sequence[str] = ()) -> None:
        super().__init__()
        self.server = server
        self.config = config
        self.sessions: OrderedDict[bytes, Exchange] = OrderedDict()
        self.loose: set[Exchange] = set()
        self.timed: set[Exchange] = set()
        self.unjudged = 0
        self.gathering = Gathering(self)
        self._tools = ToolNotes(RunToolNotes(producer.gate.identity.run_id, server.name))
        self._surface = SurfaceOnDemand(producer, server.name, words, self._tools)
        self._party: Party | None = None
        self._left: deque[tuple[int, Exchange, Open, Callable[[Exchange], bool]]] = deque()
        self.used_ns = monotonic_ns()
        self.take_up(producer)

    def take_up(self, producer: Producer) -> None:
        """Whatever is recorded from now on is recorded there. Nothing is open: else the run would not have ended."""
        self.producer = producer
        self._surface.take_up(producer)
        self.calls = Calls(
            producer.gate,
            self.server.name,
            TRANSPORT,
            self._tools,
            refusal_style=self.server.refusal_style,
            timeout_ms=self.server.timeout_ms or None,
        )
        before = self.server.audit == "before"
        self.later = Later(producer)
        self._turn = Turn(producer, self.calls, self._forward, self._answer, audit_before=before, later=self.later)
        for exchange in (*self.sessions.values(), *self.loose):
            exchange.calls = self.calls

    @property
    def held_bytes(self) -> int:
        """How large a message may be that is held; larger where it may be a list from which tools are left out."""
        if not self._tools.edits:
            return self.config.max_inspect_bytes
        from subluminal.mcp.lists import MAX_EDITED_BYTES

        return max(self.config.max_inspect_bytes, MAX_EDITED_BYTES)

    # -- requests -------------------------------------------------------------------------------------------------

    def client_left(self, exchange: Exchange, ids: list[bytes], listened_to: Callable[[Exchange], bool]) -> None:
        """Replies to these may still be fetched on another stream; not for ever, unless it is `listened_to`."""
        until_ns = monotonic_ns() + LEFT_NS
        for id_raw in ids:
            entry = exchange.waiting(id_raw)
            if entry is not None and entry.record is not None:
                self._left.append((until_ns, exchange, entry, listened_to))
        if len(self._left) > MAX_LEFT:
            first = self._left.popleft()
            self.do(self._expire, 0, [], [(*first[:3], _nobody)], False, needs_state=first[1].is_watched)

    # -- sessions -------------------------------------------------------------------------------------------------

    def exchange(self, session: bytes | None) -> Exchange:
        """The open requests of a session. Ids are in flight within it, and nowhere else."""
        if session is None:
            return Exchange(self.calls)
        if len(session) > MAX_NAME_BYTES:
            session = short(session)
        known = self.sessions.get(session)
        if known is not None:
            self.sessions.move_to_end(session)
            return known
        return self.adopt(session, Exchange(self.calls))

    def adopt(self, session: bytes, exchange: Exchange) -> Exchange:
        """The session that a request has opened: what it asked is still in flight."""
        while len(self.sessions) >= MAX_SESSIONS:
            self.end_session(next(iter(self.sessions)), SESSION_FORGOTTEN)
        self.sessions[short(session)] = exchange
        return exchange

    def knows(self, session: bytes) -> bool:
        return short(session) in self.sessions

    def end_session(self, session: bytes, why: str) -> None:
        exchange = self.sessions.pop(short(session), None)
        if exchange is not None:
            self.gathering.judge()  # what came before this
            self.do(self.abandon, exchange, "CANCELLED", "unknown", why, needs_state=exchange.is_watched)

    def abandon(self, exchange: Exchange, status: str, error_class: str, why: str) -> None:
        """Calls of other sessions, and those that wait for another leg of theirs, go on."""
        exchange.abandon(status, error_class, why, with_legs=False)
        self.carry_out(None, monotonic_ns())

    # -- the turn -------------------------------------------------------------------------------------------------

    def carry_out(self, party: Party | None, read_ns: int) -> None:
        """What has been put out leaves, in the order that is the promise of the record."""
        self._party = party
        try:
            self._turn.carry_out(time_ns() // 1_000_000, read_ns)
        finally:
            self._party = None

    def _forward(self, messages: list[Any]) -> None:
        if self._party is not None:
            self._party.forward(messages)

    def _answer(self, messages: list[Any]) -> None:
        if self._party is not None:
            self._party.answer(messages)

    # -- now and then, and at the end -----------------------------------------------------------------------------

    @property
    def calls_open(self) -> int:
        return sum(exchange.calls_under_way for exchange in self._exchanges()) + len(self.calls.legs)

    @property
    def is_busy(self) -> bool:
        return bool(self.unjudged or self.waits or self.calls_open)

    def _exchanges(self) -> list[Exchange]:
        return [*self.sessions.values(), *self.loose]

    def tick(self, now_ns: int) -> None:
        """Calls that have had their time end in the record."""
        exchanges = list(self.timed)
        left = []
        while self._left and self._left[0][0] < now_ns:
            left.append(self._left.popleft())
        legs = len(self.calls.legs) > 0 and now_ns - self.used_ns > LEFT_NS
        if exchanges or left or legs:
            watched = legs or any(each.is_watched for each in (*exchanges, *(exchange for _, exchange, *_ in left)))
            self.do(self._expire, now_ns, exchanges, left, legs, needs_state=watched)

    def _expire(self, now_ns: int, exchanges: list[Exchange], left: list[Any], legs: bool) -> None:
        for exchange in exchanges:
            exchange.expire(now_ns)
            if not exchange.calls_under_way:
                self.timed.discard(exchange)
        for _, exchange, entry, listened_to in left:
            if exchange.waiting(entry.id_raw) is not entry:
                continue
            if listened_to(exchange):
                self._left.append((now_ns + LEFT_NS, exchange, entry, listened_to))
            else:
                exchange.unanswerable(entry.id_raw, "CANCELLED", fault("unknown", CLIENT_LEFT))
        if legs:
            self.calls.legs.abandon()
        self.carry_out(None, now_ns)

    def close(self, why: str) -> None:
        """Before the producer's `run_end`: every call that is open ends."""
        self.gathering.judge()
        self.do_all()
        for exchange in self._exchanges():
            self.abandon(exchange, "CANCELLED", "unknown", why)
        self.sessions.clear()
        self.loose.clear()
        self.timed.clear()
        self.calls.legs.abandon()
        self.carry_out(None, monotonic_ns())


def _nobody(exchange: Exchange) -> bool:
    return False


def short(session: bytes) -> bytes:
    """A session's name as it is kept: whoever chooses names of 32 KB must not have thousands of them kept."""
    return session if len(session) <= MAX_NAME_BYTES else blake2b(session, digest_size=32).digest()
