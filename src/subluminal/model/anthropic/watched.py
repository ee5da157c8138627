"""Calls that the provider carries out while we look on: known when they begin, told when their result is there."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from subluminal.model.anthropic.blocks import MAX_WORD_CHARS, Block
from subluminal.model.words import Observed

# A message has a handful; whoever sends more is told of fewer.
MAX_WATCHED = 1024
_value = msgspec.json.Decoder(Any).decode


class _Running(Struct, eq=False):
    observed: Observed
    pieces: list[str]


class Watched:
    """At most `max_bytes` of arguments are kept; those of a call that does not fit are not told (`b""`)."""

    def __init__(self, max_bytes: int) -> None:
        self._left = self._max_bytes = max_bytes
        self._by_id: dict[str, Observed] = {}
        self._by_index: dict[int, _Running] = {}

    @property
    def kept(self) -> int:
        """At most: what was told already counts as well."""
        return self._max_bytes - max(self._left, 0)

    def begin(self, index: int, block: Block) -> None:
        observed = Observed(block.text_under("id") or "", block.kind, block.text_under("name") or "")
        observed.server = block.text_under("server_name") or ""
        if max(len(observed.id), len(observed.name), len(observed.server)) > MAX_WORD_CHARS:
            return
        if len(self._by_id) < MAX_WATCHED and observed.id not in self._by_id:
            observed.arguments = self._kept(block.raw("input") or b"{}")
            self._by_id[observed.id] = observed
            self._by_index[index] = _Running(observed, [])

    def add(self, index: int, piece: str) -> None:
        running = self._by_index.get(index)
        if running is None:
            return
        self._left -= len(piece)
        if self._left >= 0:
            running.pieces.append(piece)
        else:
            running.pieces.clear()
            running.observed.arguments = b""

    def stop(self, index: int) -> None:
        """Its arguments are whole."""
        running = self._by_index.pop(index, None)
        if running is not None and running.pieces:
            running.observed.arguments = "".join(running.pieces).encode()

    def result(self, block: Block) -> Observed | None:
        """The call that this is the result of."""
        observed = self._by_id.pop(block.text_under("tool_use_id") or "", None)
        if observed is not None:
            observed.result = block.raw("content")
            observed.failed = _failure(block)
        return observed

    def left(self) -> list[Observed]:
        """Calls without a result: the message ended before."""
        for index in list(self._by_index):
            self.stop(index)
        left = list(self._by_id.values())
        self._by_id.clear()
        return left

    def _kept(self, arguments: bytes) -> bytes:
        self._left -= len(arguments)
        return arguments if self._left >= 0 else b""


def _failure(block: Block) -> str | None:
    try:
        content = _value(block.raw("content"))
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, dict) and isinstance(content.get("error_code"), str):
        return str(content["error_code"])
    return shown_text(content) if block.raw("is_error") == b"true" else None


def shown_text(content: object) -> str:
    """The text of a result's content: a string, or blocks of which some are text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = [block.get("text") for block in content if isinstance(block, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))
