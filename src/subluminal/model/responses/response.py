"""The answer as a whole: all items of its `output`, and what it cost.

It repeats what a stream has told, or is all there is. Each call in it is one that was judged, or is judged now.
"""

from __future__ import annotations

from typing import Any

import msgspec

from subluminal.contracts.members import Edit, Span, elements_at, members_at, text_of
from subluminal.model.responses.items import Call, Item, observed, read_call, read_item
from subluminal.model.responses.judged import Judged, Judgements
from subluminal.model.words import ModelFault, Observed, Piece, Usage

_READ = frozenset(("output", "usage", "id", "model", "status", "incomplete_details"))
# More than any answer has, and few enough to go through.
_MAX_ITEMS = 10_000
_decode = msgspec.json.Decoder().decode


class Whole:
    """A response object inside `text`. `pieces`: what must be judged or recorded before it passes."""

    __slots__ = ("_at", "_calls", "_text", "pieces")

    def __init__(self, text: bytes, span: Span, judgements: Judgements, final: bool) -> None:
        self._text = text
        self._at = members_at(text, span, _READ)
        self._calls: list[tuple[Span, Judged]] = []
        self.pieces: list[Piece] = []
        judgements.response_id = self._said("id") or judgements.response_id
        judgements.model = self._said("model") or judgements.model
        output = self._at.get("output")
        if output is not None and output.of(text) != b"null":
            self._read(elements_at(text, output), judgements, final)

    def _said(self, key: str) -> str | None:
        span = self._at.get(key)
        return text_of(span.of(self._text)) if span else None

    def _read(self, spans: list[Span], judgements: Judgements, final: bool) -> None:
        if len(spans) > _MAX_ITEMS:
            raise ModelFault("an answer has more items than are held")
        for span in spans:
            raw = span.of(self._text)
            if raw[:1] != b"{":
                continue  # nobody's item
            item = read_item(raw)
            if item.is_call:
                self._calls.append((span, self._judgement(read_call(item), judgements)))
            elif final:
                self.pieces += first_seen(item, judgements)

    def _judgement(self, call: Call, judgements: Judgements) -> Judged:
        # What stands twice in one answer may be done twice: one judgement is for one of them.
        judged = judgements.repeated(call, [judged for _, judged in self._calls])
        if judged is None:
            judged, emitted = judgements.new(call, lambda: b"", lambda _: b"")  # its bytes pass with the whole
            self.pieces.append(emitted)
        return judged

    @property
    def has_calls(self) -> bool:
        return bool(self._calls)

    def edits(self) -> list[Edit]:
        """Refused calls as the client is told of them. Asked for when all are judged."""
        return [Edit(span.start, span.end, judged.told) for span, judged in self._calls if judged.told is not None]

    def usage(self) -> Usage:
        usage = self._value("usage")
        inputs, outputs = _dict(usage.get("input_tokens_details")), _dict(usage.get("output_tokens_details"))
        return Usage(
            message_id=self._said("id"),
            model=self._said("model"),
            stop_reason=_str(self._value("incomplete_details").get("reason")) or self._said("status"),
            input_tokens=_count(usage.get("input_tokens")),
            output_tokens=_count(usage.get("output_tokens")),
            cache_creation_input_tokens=_count(inputs.get("cache_write_tokens")),
            cache_read_input_tokens=_count(inputs.get("cached_tokens")),
            reasoning_tokens=_count(outputs.get("reasoning_tokens")),
            cached_in_input=True if usage else None,
        )

    def _value(self, key: str) -> dict[str, Any]:
        span = self._at.get(key)
        try:
            return _dict(_decode(span.of(self._text))) if span else {}
        except (ValueError, RecursionError):
            return {}


def first_seen(item: Item, judgements: Judgements) -> list[Observed]:
    """A call of the provider's own, the first time that it is told as done."""
    found = observed(item)
    return [found] if found is not None and judgements.sees(found.id or item.text) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _str(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None
