"""An answer as one JSON text: gathered, read exactly, and given in pieces around each call."""

from __future__ import annotations

from functools import partial

from subluminal.contracts.members import elements_at, members
from subluminal.model.anthropic.blocks import (
    Block,
    CallIds,
    call_words,
    read_block,
    refused_input,
    renamed,
)
from subluminal.model.anthropic.usage import finished
from subluminal.model.anthropic.watched import Watched
from subluminal.model.arguments import read_exactly
from subluminal.model.refused import fault_of_name
from subluminal.model.words import Emitted, ModelFault, Piece

# A long answer has some hundred kilobytes; results of the provider's own tools (documents) have some megabytes.
MAX_BODY_BYTES = 32 << 20
# As objects these are parts of a stream; as text, `message` is what gateways call their errors.
_ELSEWHERE = ("message", "content_block")
_READ = frozenset(("type", "content", "usage", *_ELSEWHERE))


class WholeAnswer:
    def __init__(self, max_call_bytes: int, max_body: int = MAX_BODY_BYTES) -> None:
        self._max_call_bytes = max_call_bytes
        self._max_body = max_body
        self._body = bytearray()

    @property
    def kept(self) -> int:
        return len(self._body)

    def feed(self, data: bytes) -> list[Piece]:
        if len(self._body) + len(data) > self._max_body:
            self._body.clear()
            self._max_body = -1  # nothing more of it passes
        if self._max_body < 0:
            raise ModelFault("the answer is larger than is held")
        self._body += data
        return []

    def end(self) -> list[Piece]:
        if self._max_body < 0:
            raise ModelFault("the answer is larger than is held")
        body = bytes(self._body)
        self._body.clear()
        if not body.strip():
            return [body] if body else []
        top = members(body, _READ)
        if any(key in top and top[key].of(body)[:1] == b"{" for key in _ELSEWHERE):
            raise ModelFault("a member that does not belong into an answer")
        told: list[Piece] = []
        calls: list[tuple[int, int, Emitted]] = []
        if "content" in top and top["content"].of(body)[:1] not in (b'"', b"n"):  # text, or null: no blocks
            watched = Watched(self._max_call_bytes)
            ids = CallIds()
            for index, span in enumerate(elements_at(body, top["content"])):
                block = read_block(span.of(body))
                if block.is_call:
                    calls.append((span.start, span.end, self._emitted(block, ids)))
                told += _looked_on(watched, index, block)
            told += watched.left()
        if "usage" in top:
            told.append(finished(body))
        return told + _around(body, calls)

    def _emitted(self, block: Block, ids: CallIds) -> Emitted:
        call_id, name = call_words(block)
        arguments = block.raw("input")
        call = Emitted(call_id, block.kind, name, arguments or b"{}", partial(_decided, block))
        if len(arguments) > self._max_call_bytes:
            call.too_large = f"larger than {self._max_call_bytes} bytes"
        else:
            call.fault = read_exactly(arguments)[0] if arguments else "a tool call without input"
        call.fault = ids.fault_of(call_id) or fault_of_name(name) or call.fault
        return call


def _decided(block: Block, refusal: str | None) -> bytes:
    if refusal is None:
        return block.text
    return renamed(block, refused_input(block, block.raw("input"), refusal))


def _looked_on(watched: Watched, index: int, block: Block) -> list[Piece]:
    if block.is_provider_run:
        watched.begin(index, block)
    elif block.is_result:
        observed = watched.result(block)
        return [] if observed is None else [observed]
    return []


def _around(body: bytes, calls: list[tuple[int, int, Emitted]]) -> list[Piece]:
    pieces: list[Piece] = []
    at = 0
    for start, end, call in calls:
        pieces += (body[at:start], call)
        at = end
    pieces.append(body[at:])
    return pieces
