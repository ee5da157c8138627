"""The call that waits for its end, and then for its judgement."""

from __future__ import annotations

from functools import partial

from subluminal.contracts.jsontext import to_json
from subluminal.model.anthropic.blocks import Block, call_words, refused_input, renamed
from subluminal.model.arguments import read_exactly
from subluminal.model.refused import fault_of_name
from subluminal.model.words import Emitted

# Providers send arguments a few characters at a time, in events of some 130 bytes: so many bytes of events are kept
# for each that the arguments may have.
EVENT_BYTES_FOR_ONE = 16
_LEAST_EVENT_BYTES = 1 << 20
# Of arguments that were too large, so much is left for the model to recognise its call by.
LEFT_BYTES = 1024
_EMPTY_INPUTS = (b"", b"{}", b'""')
_CUT = "the call has no end"


class HeldCall:
    """From its `content_block_start` on. `events` are the bytes that pass if it is allowed."""

    def __init__(self, index: int, start: bytes, block: Block, max_bytes: int, fault: str | None) -> None:
        self.index = index
        self.id, self._name = call_words(block)
        self._block = block
        self._events = bytearray(start)
        self._pieces: list[str] = []
        self._size = 0
        self._max_bytes = max_bytes
        self._fault = fault or fault_of_name(self._name)
        self._too_large: str | None = None

    @property
    def kept(self) -> int:
        return len(self._events) + self._size

    def doubt(self, fault: str | None) -> None:
        """The first reason stands."""
        self._fault = self._fault or fault

    def add(self, event: bytes, piece: str | None) -> None:
        """`piece`: of the arguments; None: something that does not belong into a call."""
        if piece is None:
            self.doubt("a delta of another type inside a tool call")
            piece = ""
        if self._too_large is not None:
            return
        self._events += event
        if piece:
            self._pieces.append(piece)
            self._size += len(piece) if piece.isascii() else len(piece.encode())
        most_events = _LEAST_EVENT_BYTES + EVENT_BYTES_FOR_ONE * self._max_bytes
        if self._size > self._max_bytes or len(self._events) > most_events:
            self._drop()

    def emitted(self, stop: bytes | None) -> Emitted:
        """Its end has come: `stop` is that event, None where the message ended before."""
        if stop is None:
            self.doubt(_CUT)
        elif self._too_large is None:
            self._events += stop
        arguments = self._arguments()
        if len(arguments) > self._max_bytes:  # they stood in the start
            self._drop()
        if self._too_large is not None:
            arguments = arguments[:LEFT_BYTES]
        fault = self._fault or (read_exactly(arguments)[0] if self._too_large is None else None)
        call = Emitted(self.id, self._block.kind, self._name, arguments, partial(self._decided, arguments), fault=fault)
        call.too_large = self._too_large
        return call

    def _arguments(self) -> bytes:
        joined = "".join(self._pieces)
        own = self._block.raw("input")
        if own not in _EMPTY_INPUTS:
            # Some clients take it, some start from nothing, and some put the pieces behind it.
            self.doubt("input in the start of a tool call")
            return own + joined.encode()
        return joined.encode() or b"{}"

    def _decided(self, arguments: bytes, refusal: str | None) -> bytes:
        if refusal is None and self._too_large is None:
            return bytes(self._events)
        reason = refusal if refusal is not None else f"The call is {self._too_large}."
        return _refused(self.index, self._block, arguments, reason)

    def _drop(self) -> None:
        self._too_large = f"larger than {self._max_bytes} bytes"
        left = "".join(self._pieces)[:LEFT_BYTES]
        self._pieces = [left]
        self._events.clear()


def _refused(index: int, block: Block, arguments: bytes, reason: str) -> bytes:
    start = renamed(block, b"{}").replace(b"\r", b" ").replace(b"\n", b" ")  # white space between members
    arguments = to_json(refused_input(block, arguments, reason).decode("utf-8", "replace")).encode()
    return (
        b"event: content_block_start\n"
        b'data: {"type":"content_block_start","index":%d,"content_block":%b}\n\n'
        b"event: content_block_delta\n"
        b'data: {"type":"content_block_delta","index":%d,'
        b'"delta":{"type":"input_json_delta","partial_json":%b}}\n\n'
        b"event: content_block_stop\n"
        b'data: {"type":"content_block_stop","index":%d}\n\n'
    ) % (index, start, index, arguments, index)
