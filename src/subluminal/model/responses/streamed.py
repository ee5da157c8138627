"""A streamed answer, event by event.

Text passes as it comes. From the event that announces a call on, its events are held until it is done, and everything
that comes meanwhile waits behind it, so that the order of the stream stays. Codex acts when an item is done, other
clients by the arguments' end or by the answer as a whole: none of these passes before the call is judged.

    announced ──> held ──> done: judged ──> passes as it came, or renamed
                    └──> too much to hold: judged by its name; whatever follows shares its fate
"""

from __future__ import annotations

from collections.abc import Callable

from subluminal.contracts.event_stream import Event, EventStream, Part
from subluminal.contracts.members import splice
from subluminal.model.responses.events import ADDED, DONE, FINAL, Told, read_event, rendered, text_events
from subluminal.model.responses.held import Held, Sized
from subluminal.model.responses.in_order import InOrder
from subluminal.model.responses.items import Item, read_item
from subluminal.model.responses.judged import Judgements, largest_whole
from subluminal.model.responses.response import Whole, first_seen
from subluminal.model.words import ModelFault, Piece, Usage

# Calls that are under way at a time: no provider has more than one.
_MAX_OPEN = 128


class StreamedAnswer:
    __slots__ = (
        "_closed", "_events", "_fault", "_final", "_judgements", "_kept_back", "_limit", "_open", "_order",
    )  # fmt: skip

    def __init__(self, max_call_bytes: int, judgements: Judgements) -> None:
        self._judgements = judgements
        self._limit = largest_whole(max_call_bytes)
        self._order = InOrder(max_call_bytes, judgements)
        self._events = EventStream(self._limit)
        self._open: dict[bytes, Held] = {}
        self._closed: set[bytes] = set()  # where calls stood that are done
        self._final = False
        self._kept_back = b""
        self._fault: str | None = None

    @property
    def kept(self) -> int:
        return self._order.kept + self._events.kept + self._judgements.kept

    def feed(self, data: bytes) -> list[Piece]:
        return self._given(self._read, data)

    def end(self) -> list[Piece]:
        return self._given(self._end, b"")

    def _given(self, read: Callable[[bytes], None], data: bytes) -> list[Piece]:
        """What came before a fault passes first: the fault is told with the next call."""
        if self._fault is None:
            try:
                read(data)
            except ModelFault as fault:
                self._fault = fault.why
        pieces = self._order.taken()
        if self._fault is not None and not pieces:
            raise ModelFault(self._fault)
        return pieces

    def _read(self, data: bytes) -> None:
        """Text at a glance, and all else an event at a time."""
        data, self._kept_back = self._kept_back + data, b""
        if data.endswith(b"\r"):  # half of a line's end, perhaps: its other half belongs to the same event
            data, self._kept_back = data[:-1], b"\r"
        at = 0
        while at < len(data):
            text = text_events(data, at) if self._events.between_events else None
            if text is not None:
                self._order.put(text[0])
                at = text.end()
                continue
            end = data.find(b"\n\n", at) + 2  # up to an empty line, behind which there may be text again
            part = data[at:end] if end > 1 else data[at:]
            at += len(part)
            self._feed(part)

    def _feed(self, part: bytes) -> None:
        for event in self._events.feed(part):
            if isinstance(event, Part):
                raise ModelFault("an event is larger than is held")
            self._take(event)

    def _end(self, _: bytes) -> None:
        """What has no end is not passed on: nobody can say what it would have been."""
        self._feed(self._kept_back)
        rest = self._events.rest()
        if rest:
            self._take_rest(rest)
        self._drop_open()
        if not self._final and self._judgements.response_id:
            self._order.put(Usage(self._judgements.response_id, self._judgements.model))

    def _take_rest(self, rest: bytes) -> None:
        """Some clients take an event that only lacks its empty line."""
        for event in EventStream(self._limit).feed(rest + b"\n\n")[:1]:
            if isinstance(event, Event) and event.data is not None:
                event.raw = rest
                try:
                    self._take(event)
                except ModelFault:
                    pass  # it is cut

    # -- events ---------------------------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        if event.is_read_by_some:
            raise ModelFault("a line that only some clients see")
        told = read_event(event)
        if told is None:
            if event.data is None and event.raw.startswith(b":"):
                self._order.put_at_once(event.raw)  # a comment keeps the connection alive, also while a call is held
            else:
                self._order.put(event.raw)
        elif told.raw("item"):
            if told.raw("response"):
                raise ModelFault("an event has both an item and an answer")
            self._item(event.raw, told)
        elif told.raw("response"):
            self._whole(event.raw, told)
        else:
            self._part(event.raw, told)

    def _part(self, raw: bytes, told: Told) -> None:
        """Of an item, perhaps of a call that is held."""
        held = self._held(told)
        if held is None and told.of_a_call and self._open and not told.raw("output_index"):
            held = next(reversed(self._open.values()))  # some providers give no index: it is of the call under way
        if held is not None:
            self._keep(held, raw, told)
        elif not told.of_a_call:
            self._order.put(raw)
        elif told.raw("output_index") not in self._closed:  # else it comes late, and adds nothing to what was judged
            self._keep(self._hold(told), raw, told)

    def _item(self, raw: bytes, told: Told) -> None:
        item = read_item(told.raw("item"))
        held = self._held(told, item)
        if told.type == DONE:
            self._done(raw, told, item, held)
        elif told.type == ADDED and (item.is_call or held is not None):
            self._keep(held or self._hold(told, item), raw, told)
        elif item.is_call:
            self._emit(held or _single(told), raw, told, item, "an event of an unknown type has it")
        elif held is not None:
            self._keep(held, raw, told)
        else:
            self._order.put(raw)

    def _done(self, raw: bytes, told: Told, item: Item, held: Held | None) -> None:
        if held is not None and held.judged is not None:
            self._close(held)
            self._done_large(raw, item, held)
        elif held is not None or item.is_call:
            self._emit(held or _single(told), raw, told, item)
        else:
            self._order.put(raw)
            for piece in first_seen(item, self._judgements):
                self._order.put(piece)

    def _emit(self, held: Held, raw: bytes, told: Told, item: Item, fault: str | None = None) -> None:
        if held.judged is not None:
            raise ModelFault("a call is told in two ways")
        new = not self._close(held)
        size = held.size
        held.hold(raw, told)
        call = held.done_as(item)
        _, held.ready = self._judgements.new(call, held.allowed, held.refused, fault or held.fault)
        if new:
            self._order.put(held)
        else:
            self._order.grown(held.size - size)

    def _done_large(self, raw: bytes, item: Item, held: Held) -> None:
        call = held.done_as(item)
        if held.fault is not None:
            raise ModelFault("a call is told in two ways")
        assert held.judged is not None
        held.judged.digest = call.digest
        self._order.put(held.rest(raw))

    def _whole(self, raw: bytes, told: Told) -> None:
        final = told.type in FINAL
        if final:
            self._drop_open()
        whole = Whole(told.data, told.at["response"], self._judgements, final)
        for piece in whole.pieces:
            self._order.put(piece)

        def render() -> bytes:
            edits = whole.edits()
            return rendered(told.type, splice(told.data, edits)) if edits else raw

        self._order.put(Sized(render, len(raw)) if whole.has_calls else raw)
        if final and not self._final:
            self._final = True
            self._order.put(whole.usage())

    # -- what is held ---------------------------------------------------------------------------------------------

    def _held(self, told: Told, item: Item | None = None) -> Held | None:
        index = told.raw("output_index")
        for key in _keys(told, item):
            held = self._open.get(key)
            if held is not None and not (held.index and index and held.index != index):
                return held
        return None

    def _hold(self, told: Told, item: Item | None = None) -> Held:
        if len(self._open) >= 3 * _MAX_OPEN:
            raise ModelFault("more calls are under way than are held")
        held = _single(told)
        keys = _keys(told, item)
        if not keys:
            raise ModelFault("a call begins of which no end can be known")
        for key in keys:
            self._open[key] = held
        self._order.put(held)
        return held

    def _keep(self, held: Held, raw: bytes, told: Told) -> None:
        if held.judged is not None:
            self._order.put(held.rest(raw))
            return
        held.hold(raw, told)
        self._order.grown(len(raw))

    def _close(self, held: Held) -> bool:
        """It is done. Whether it was open."""
        if held.index:
            self._closed.add(held.index)
        keys = [key for key, other in self._open.items() if other is held]
        for key in keys:
            del self._open[key]
        return bool(keys)

    def _drop_open(self) -> None:
        """Calls that have no end are not passed on, in no piece."""
        dropped = {id(held) for held in self._open.values() if held.judged is None}
        self._open.clear()
        self._order.drop(dropped)


def _single(told: Told) -> Held:
    """A call that one event tells."""
    return Held(told.raw("output_index"))


def _keys(told: Told, item: Item | None) -> list[bytes]:
    """Under which an item is known, the best first."""
    ids = item.raw("id") if item is not None else told.raw("item_id")
    keys = (b"#" + told.raw("output_index"), b"i" + ids, b"c" + (item.raw("call_id") if item is not None else b""))
    return [key for key in keys if len(key) > 1]
