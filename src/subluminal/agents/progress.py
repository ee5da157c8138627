"""Which part of a text is new: agents repeat a text they have already streamed, and it must be told only once.

Keeps a length and a digest per streamed text, never the text itself, and only for the most recent messages. All of it
is bounded, since ids and numbers are whatever the agent says they are.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

# Sub-agents stream side by side; far more than any client runs at once.
MAX_OPEN_MESSAGES = 256
# A message closes each part before it begins the next. Comparing a text costs one digest per part that is still open.
MAX_OPEN_PARTS = 16
MAX_ID_CHARS = 128


def short_id(value: str) -> str:
    """An id to remember: as it is, or a digest of one that is too long to be kept."""
    if len(value) <= MAX_ID_CHARS:
        return value
    return hashlib.blake2b(value.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class _Told:
    __slots__ = ("digest", "length")

    def __init__(self) -> None:
        self.length = 0
        self.digest = hashlib.blake2b(digest_size=16)

    def add(self, piece: str) -> None:
        self.length += len(piece)
        self.digest.update(piece.encode("utf-8", "surrogatepass"))

    def begins(self, text: str) -> bool:
        if len(text) < self.length:
            return False
        head = text[: self.length].encode("utf-8", "surrogatepass")
        return hashlib.blake2b(head, digest_size=16).digest() == self.digest.digest()


class TextProgress:
    """What has been told of each message, part by part (a part is one content block)."""

    __slots__ = ("_messages",)

    def __init__(self) -> None:
        self._messages: OrderedDict[str | None, dict[int, _Told]] = OrderedDict()

    def add(self, message_id: str | None, part: int, piece: str) -> None:
        """A piece of this part has been told."""
        key = _key(message_id)
        parts = self._messages.get(key)
        if parts is None:
            parts = self._messages[key] = {}
            if len(self._messages) > MAX_OPEN_MESSAGES:
                self._messages.popitem(last=False)
        if part not in parts:
            parts[part] = _Told()
            if len(parts) > MAX_OPEN_PARTS:
                del parts[next(iter(parts))]
        parts[part].add(piece)

    def restart(self, message_id: str | None, text: str) -> None:
        """All of `text`, and nothing else, has been told of this message."""
        self._messages.pop(_key(message_id), None)
        self.add(message_id, 0, text)

    def rest(self, message_id: str | None, text: str) -> str:
        """What is still to tell of a complete text, which closes the part that it completes."""
        parts = self._messages.get(_key(message_id))
        if parts is None:
            return text
        for part, told in parts.items():
            if told.begins(text):
                del parts[part]
                return text[told.length :]
        return text


def _key(message_id: str | None) -> str | None:
    return None if message_id is None else short_id(message_id)
