"""An answer as an event stream: every tool call is held from its start to its stop, all else flows.

    message_start, (content_block_start, content_block_delta*, content_block_stop)*, message_delta, message_stop

`ping` and `error` stand anywhere. Where something could be a call and breaks these rules, the stream ends:

- The name of an event and the `type` of its data agree: some clients go by the one, some by the other.
- Blocks are numbered by their arrival. Clients keep them by index or append them, and both must find the same block: a
  call behind a number out of order has a fault.
- One call is open at a time. Other events wait behind it, so that blocks arrive in their order.
- Pieces of arguments belong to a block that is open and takes them. A call that has been judged cannot change, and
  cannot be stopped twice: clients carry it out at its stop.
"""

from __future__ import annotations

from collections.abc import Callable

from subluminal.contracts.event_stream import Event, EventStream, Part
from subluminal.contracts.members import Span, members, text_of
from subluminal.model.anthropic import shapes
from subluminal.model.anthropic.blocks import Block, CallIds, read_block
from subluminal.model.anthropic.event import (
    AT_ONCE,
    MAX_INDEX_DIGITS,
    OTHER,
    index_of,
    read_event,
    value_of,
)
from subluminal.model.anthropic.held import HeldCall
from subluminal.model.anthropic.usage import started, take_delta
from subluminal.model.anthropic.watched import Watched
from subluminal.model.words import ModelFault, Piece, Usage

# Results of the provider's own tools come in one event: documents, images, search results.
MAX_EVENT_BYTES = 16 << 20
# What may wait behind a call: real providers send nothing but pings there.
MAX_BEHIND_BYTES = 1 << 20
MAX_OPEN_BLOCKS = 1024

_READ_OF_DELTA = frozenset(("type", "partial_json"))
_NOT_IN_AN_END = frozenset(("content", "content_block", "partial_json"))
_READ_OF_MESSAGE = frozenset(("content", "type"))


class StreamedAnswer:
    """One stream. After a ModelFault nothing of it passes; it is raised when what came before it has been given."""

    def __init__(self, max_call_bytes: int) -> None:
        self._max_call_bytes = max_call_bytes
        self._events = EventStream(MAX_EVENT_BYTES)
        self._kept_back = b""
        self._out: list[Piece] = []
        self._fault: str | None = None
        self._usage = Usage(cached_in_input=False)
        self._stated = False  # there is something of usage to tell
        self._began = False  # the first event may hold a byte order mark, and is read in full
        self._messages = 0
        self._blocks = Blocks()
        self._ids = CallIds()
        self._held: HeldCall | None = None
        self._behind: list[Piece] = []
        self._behind_bytes = 0
        self._watched = Watched(max_call_bytes)

    @property
    def kept(self) -> int:
        held = 0 if self._held is None else self._held.kept
        return held + self._events.kept + self._behind_bytes + self._watched.kept

    def feed(self, data: bytes) -> list[Piece]:
        if self._fault is None:
            try:
                self._read(data)
            except ModelFault as fault:
                self._fault = fault.why
        return self._given()

    def end(self) -> list[Piece]:
        if self._fault is None:
            try:
                self._end()
            except ModelFault as fault:
                self._fault = fault.why
        return self._given()

    def _given(self) -> list[Piece]:
        out, self._out = self._out, []
        if self._fault is not None and not out:
            raise ModelFault(self._fault)
        return out

    # -- bytes to events ------------------------------------------------------------------------------------------

    def _read(self, data: bytes) -> None:
        """An event at a time where its end is plain to see, so that a quick look is possible at each."""
        if self._kept_back:
            data, self._kept_back = self._kept_back + data, b""
        if data.endswith(b"\r"):  # half of a line's end, perhaps: its other half belongs to the same event
            data, self._kept_back = data[:-1], b"\r"
        at = 0
        while at < len(data):
            if self._began and self._events.between_events:
                used = self._quick(data, at)
                if used > at:
                    at = used
                    continue
            found = shapes.end(data, at)
            end = found.end() if found else len(data)
            for event in self._events.feed(data[at:end]):
                self._event(event)
            at = end

    def _quick(self, data: bytes, at: int) -> int:
        """Up to where events were handled."""
        if self._held is None:
            run = shapes.shown(data, at)
            if run is None:
                return at
            self._out.append(data[at : run.end()])
            return run.end()
        found = shapes.piece(data, at)
        if found is None or len(found[1]) > MAX_INDEX_DIGITS or int(found[1]) != self._held.index:
            return at
        piece = text_of(found[2])
        if piece is None:
            return at
        self._held.add(found[0], piece)
        return found.end()

    def _end(self) -> None:
        for event in self._events.feed(self._kept_back):
            self._event(event)
        rest = self._events.rest()
        if b"{" in rest:
            rest = b""  # an event without its end is none; a client that takes it for one takes half of something
        if self._held is not None:  # a call without an end is none: the client gets no half of it
            self._held = None
            self._out += self._behind
        self._tell_rest()
        if rest:
            self._out.append(rest)

    # -- events ---------------------------------------------------------------------------------------------------

    def _event(self, event: Event | Part) -> None:
        if isinstance(event, Part):
            raise ModelFault(f"an event is larger than {MAX_EVENT_BYTES} bytes")
        if event.is_read_by_some:
            raise ModelFault("a line that only some clients see")
        if event.data is None:
            self._out.append(event.raw)
            return
        if self._began and self._quick(event.raw, 0):  # it came in parts
            return
        self._began = True
        kind, found = read_event(event.name, event.data)
        if kind == AT_ONCE:
            self._out.append(event.raw)
        elif kind == OTHER:
            self._pass(event.raw)
        else:
            _HANDLERS[kind](self, event.raw, event.data, found)

    def _message_start(self, raw: bytes, data: bytes, found: dict[str, Span]) -> None:
        self._messages += 1
        if self._messages > 1 or self._blocks.any:
            raise ModelFault("a message that starts after its content, or a second one")
        message = value_of(data, found, "message")
        inner = members(message, _READ_OF_MESSAGE)
        if "content" in inner and inner["content"].of(message)[1:-1].strip():
            raise ModelFault("a message that starts with content")
        self._stated = True
        self._usage = started(message)
        self._pass(raw)

    def _block_start(self, raw: bytes, data: bytes, found: dict[str, Span]) -> None:
        index = index_of(data, found)
        block = read_block(value_of(data, found, "content_block"))
        if self._held is not None and (block.is_call or index == self._held.index):
            raise ModelFault("content blocks that overlap with a tool call")
        self._blocks.start(index, block)
        if block.is_call:
            self._held = HeldCall(index, raw, block, self._max_call_bytes, self._blocks.fault)
            self._held.doubt(self._ids.fault_of(self._held.id))
            return
        if block.is_provider_run:
            self._watched.begin(index, block)
        elif block.is_result:
            observed = self._watched.result(block)
            if observed is not None:
                self._pass(observed)
        self._pass(raw)

    def _block_delta(self, raw: bytes, data: bytes, found: dict[str, Span]) -> None:
        index = index_of(data, found)
        delta = value_of(data, found, "delta")
        inner = members(delta, _READ_OF_DELTA)
        kind = text_of(inner["type"].of(delta)) if "type" in inner else None
        piece = text_of(inner["partial_json"].of(delta)) if "partial_json" in inner else None
        if kind != "input_json_delta":
            piece = None
        if self._held is not None and index == self._held.index:
            self._held.add(raw, piece)
            return
        if kind == "input_json_delta" or "partial_json" in inner:
            if piece is None or not self._blocks.takes_pieces(index):
                raise ModelFault("a piece of arguments that belongs to no open call")
            self._watched.add(index, piece)
        self._pass(raw)

    def _block_stop(self, raw: bytes, data: bytes, found: dict[str, Span]) -> None:
        index = index_of(data, found)
        self._blocks.stop(index)
        if self._held is not None and index == self._held.index:
            self._release(raw)
            return
        self._watched.stop(index)
        self._pass(raw)

    def _message_delta(self, raw: bytes, data: bytes, found: dict[str, Span]) -> None:
        delta = value_of(data, found, "delta")
        if not _NOT_IN_AN_END.isdisjoint(members(delta, _NOT_IN_AN_END)):
            raise ModelFault("content in the end of a message")
        self._stated = True
        take_delta(self._usage, data)
        self._pass(raw)

    def _message_stop(self, raw: bytes, data: bytes, found: dict[str, Span]) -> None:
        if self._held is not None:
            self._blocks.stop(self._held.index)
            self._release(None)
        self._tell_rest()
        self._pass(raw)

    # -- what passes ----------------------------------------------------------------------------------------------

    def _pass(self, piece: Piece) -> None:
        if self._held is None:
            self._out.append(piece)
            return
        self._behind.append(piece)
        self._behind_bytes += len(piece) if isinstance(piece, bytes) else 0
        if self._behind_bytes > MAX_BEHIND_BYTES:
            raise ModelFault(f"more than {MAX_BEHIND_BYTES} bytes behind a tool call that has no end")

    def _release(self, stop: bytes | None) -> None:
        assert self._held is not None
        self._out.append(self._held.emitted(stop))
        self._out += self._behind
        self._held = None
        self._behind = []
        self._behind_bytes = 0

    def _tell_rest(self) -> None:
        """What is known by the end of a message."""
        self._out += self._watched.left()
        if self._stated:
            self._out.append(self._usage)
            self._usage = Usage(cached_in_input=False)
            self._stated = False


class Blocks:
    """Which content blocks there have been, and which are open."""

    def __init__(self) -> None:
        self._count = 0
        self._open: dict[int, bool] = {}  # by index: whether pieces of arguments belong there
        self._in_order = True

    @property
    def fault(self) -> str | None:
        return None if self._in_order else "content blocks are not numbered by their arrival"

    @property
    def any(self) -> bool:
        return self._count > 0

    def start(self, index: int, block: Block) -> None:
        if index != self._count or index in self._open:
            self._in_order = False
        if len(self._open) >= MAX_OPEN_BLOCKS:
            raise ModelFault("too many open content blocks")
        self._count += 1
        self._open[index] = block.is_provider_run

    def takes_pieces(self, index: int) -> bool:
        return self._open.get(index, False)

    def stop(self, index: int) -> None:
        if self._open.pop(index, None) is None:
            raise ModelFault("the stop of a content block that is not open")


_HANDLERS: dict[str, Callable[[StreamedAnswer, bytes, bytes, dict[str, Span]], None]] = {
    "message_start": StreamedAnswer._message_start,
    "content_block_start": StreamedAnswer._block_start,
    "content_block_delta": StreamedAnswer._block_delta,
    "content_block_stop": StreamedAnswer._block_stop,
    "message_delta": StreamedAnswer._message_delta,
    "message_stop": StreamedAnswer._message_stop,
}
