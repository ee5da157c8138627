"""Heads that come again on a connection: most clients and servers send the same bytes each time, but for the length.

A head that was read by all rules, and comes again with other digits in its Content-Length, reads the same: it is known
again by comparing bytes, and what its owner has found out about it (`head.kept`) holds again. Nothing is known again
that was not read strictly before, on the same connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from subluminal.http.bodies import MAX_LENGTH_DIGITS, Body, Sized
from subluminal.http.heads import Kept

if TYPE_CHECKING:
    from subluminal.http.heads import RequestHead, ResponseHead

# Kept for as long as the connection: heads of this size are rare, and then there may be many.
MAX_KEPT_BYTES = 4096


class Recurring:
    """One head. It is the same object each time, with its length changed: a connection has one request at a time."""

    __slots__ = ("_after", "_at", "_before", "_digits", "_length", "_name", "_size", "head")

    def __init__(self, head: Any, raw: bytes, at: int, digits_at: int, digits_end: int) -> None:
        self.head = head
        self._at = at  # of the length, among the headers
        self._name: bytes = head.headers[at][0]
        self._before = raw[:digits_at]
        self._after = raw[digits_end:]
        self._size = digits_at
        self._digits = raw[digits_at:digits_end]  # of the one that came last
        self._length = int(self._digits)

    def again(self, buffer: bytes, end: int) -> int:
        """The length of its body, if the head that ends at `end` is this one; `head` has it then. Else -1."""
        if not buffer.startswith(self._before):
            return -1
        digits = buffer[self._size : end].removesuffix(self._after)
        if digits == self._digits:
            return self._length
        if not digits.isdigit() or len(digits) > MAX_LENGTH_DIGITS:
            return -1
        head = self.head
        head.headers[self._at] = (self._name, digits)
        if head.index is not None:
            head.index[b"content-length"] = digits
        self._digits = digits
        self._length = int(digits)
        return self._length


def recurring(head: RequestHead | ResponseHead, raw: bytes, body: Body) -> Recurring | None:
    """What knows `head` again, whose bytes are `raw`. None for one that does not recur so: without a length of its own,
    or such that its connection ends with it."""
    if type(body) is not Sized or len(raw) > MAX_KEPT_BYTES or not head.keep_alive or head.http_1_0:
        return None
    for at, (name, value) in enumerate(head.headers):
        if len(name) == 14 and name.lower() == b"content-length":
            line = raw.find(b"\r\n" + name + b":") + len(name) + 3
            digits_at = raw.find(value, line)
            head.kept = Kept()
            return Recurring(head, raw, at, digits_at, digits_at + len(value))
    return None
