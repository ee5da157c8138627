"""A call of a stream between the event that announces it and the one that says it is done."""

from __future__ import annotations

from subluminal.model.responses.events import ADDED, ARGUMENTS_DELTA, ARGUMENTS_DONE, DONE, Told, rendered
from subluminal.model.responses.items import Call, Item, acted_on, read_call, read_item
from subluminal.model.responses.judged import Judged
from subluminal.model.responses.told import announced, json_text
from subluminal.model.words import Emitted, Later, Piece


class Sized(Later):
    """What it keeps until it is asked for."""

    size: int = 0


class Held:
    """`ready`: what takes its place in the stream, once it is judged or given up.

    Items are known by their `output_index`: some providers give one item another id in each event.
    """

    __slots__ = (
        "_added", "_arguments", "_done", "_pieces", "_raws", "_said",
        "call", "fault", "index", "judged", "ready", "size",
    )  # fmt: skip

    def __init__(self, index: bytes = b"") -> None:
        self.index = index
        self.call: Call | None = None  # as it was announced
        self.fault: str | None = None
        self.judged: Judged | None = None  # it was given up: whatever follows of it shares its fate
        self.ready: Piece | None = None
        self.size = 0
        self._raws: list[bytes] = []
        self._added: Told | None = None
        self._arguments: list[Told] = []  # the first and the last event that told of them
        self._done: Told | None = None
        self._pieces: list[str] = []  # of the arguments, as deltas told them
        self._said: list[str] = []  # the arguments, as events told them in full

    def hold(self, raw: bytes, told: Told) -> None:
        self._raws.append(raw)
        self.size += len(raw)
        if told.type == ADDED:
            self._announce(told)
        elif told.type == DONE:
            self._done = told
        elif told.of_a_call:
            self._tell(told)

    def _announce(self, told: Told) -> None:
        if self._added is not None:
            self.fault = "it was announced twice"
            return
        self._added = told
        self.call = read_call(read_item(told.raw("item")))
        text = acted_on(self.call.item)
        if text:
            self._said.append(text)

    def _tell(self, told: Told) -> None:
        self._arguments[1:] = [told]
        piece, whole = told.said("delta"), told.said("arguments")
        if whole is None:
            whole = told.said("input")
        if piece is not None:
            self._pieces.append(piece)
        elif whole is not None:
            self._said.append(whole)
        else:
            self.fault = "an event of its arguments has none"

    def done_as(self, item: Item) -> Call:
        """The call that it is in the end. What was told before may not say otherwise."""
        if not item.is_call:
            self.fault = "it was announced as a call, and is none in the end"
            return self.call or read_call(item)
        call = read_call(item)
        first = self.call
        if first and (first.kind, first.name, first.namespace, first.id) != (
            call.kind, call.name, call.namespace, call.id
        ):  # fmt: skip
            self.fault = "it was announced as another call"
        said = self._said + (["".join(self._pieces)] if self._pieces else [])
        text = acted_on(item)
        if any(earlier != text for earlier in said):
            self.fault = "its arguments were told in two ways"
        return call

    # -- what passes ----------------------------------------------------------------------------------------------

    def allowed(self) -> bytes:
        raws = b"".join(self._raws)
        self._raws.clear()
        return raws

    def refused(self, item: bytes) -> bytes:
        """The events of the renamed call: as many as a client needs that builds it from pieces."""
        self._raws.clear()
        events = []
        place = self._done or self._added
        if self._added is not None and self.call is not None:
            events.append(_event(ADDED, self._added, b'"item":' + announced(self.call)))
            arguments = read_item(item).raw("arguments")
            first = self._arguments[0] if self._arguments else self._added
            last = self._arguments[-1] if self._arguments else place
            events.append(_event(ARGUMENTS_DELTA, first, b'"delta":' + arguments, self.call))
            events.append(_event(ARGUMENTS_DONE, last, b'"arguments":' + arguments, self.call))
        events.append(_event(DONE, place, b'"item":' + item))
        return b"".join(events)

    def give_up(self, judged: Judged, emitted: Emitted) -> None:
        self.judged = judged
        self.ready = emitted
        self.size = 0
        self._pieces.clear()
        self._said.clear()

    def rest(self, raw: bytes) -> Sized:
        """An event of a call that was given up."""
        judged = self.judged
        assert judged is not None
        return Sized(lambda: raw if judged.told is None else b"", len(raw))


def _event(kind: str, place: Told | None, rest: bytes, call: Call | None = None) -> bytes:
    parts = [b'"type":' + json_text(kind)]
    for key in ("sequence_number", "output_index"):
        value = place.raw(key) if place is not None else b""
        if value.isdigit():
            parts.append(b'"%b":%b' % (key.encode(), value))
    if call is not None and call.item.raw("id"):
        parts.append(b'"item_id":' + call.item.raw("id"))
    parts.append(rest)
    return rendered(kind, b"{%b}" % b",".join(parts))


def unnamed() -> Call:
    """A call of which only pieces of its arguments were told."""
    return read_call(read_item(b'{"type":"function_call"}'))
