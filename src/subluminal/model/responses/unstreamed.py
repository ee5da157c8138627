"""An answer that is one JSON object: a response with its `output`, or anything else that the API says."""

from __future__ import annotations

from subluminal.contracts.members import Span, splice
from subluminal.model.responses.judged import Judgements, largest_whole
from subluminal.model.responses.response import Whole
from subluminal.model.words import Later, ModelFault, Piece

_BLANK = b" \t\r\n"


class UnstreamedAnswer:
    """Nothing passes before its end: a client reads it as a whole, too."""

    __slots__ = ("_judgements", "_limit", "_parts", "_size")

    def __init__(self, max_call_bytes: int, judgements: Judgements) -> None:
        self._judgements = judgements
        self._limit = largest_whole(max_call_bytes)
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def kept(self) -> int:
        return self._size

    def feed(self, data: bytes) -> list[Piece]:
        self._size += len(data)
        if self._size > self._limit:
            self._parts.clear()
            raise ModelFault("the answer is larger than is held")
        self._parts.append(data)
        return []

    def end(self) -> list[Piece]:
        text = b"".join(self._parts)
        self._parts.clear()
        if not text.strip(_BLANK):
            return [text] if text else []
        start = len(text) - len(text.lstrip(_BLANK))
        whole = Whole(text, Span(start, len(text.rstrip(_BLANK)), start), self._judgements, final=True)
        body: Piece = Later(lambda: splice(text, whole.edits())) if whole.has_calls else text
        usage = whole.usage()
        return [*whole.pieces, body, *([usage] if usage.message_id else [])]
