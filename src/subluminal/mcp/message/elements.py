"""The objects of an array, scanned one by one as their bytes pass: a part of `scan`."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from subluminal.mcp.message.scan import MessageScan

_NEXT = re.compile(rb"[^,\x00-\x20]")


class Elements:
    """`keep` is told of each element; `make` scans the next. Ended in one of these ways:

    CLOSED   the array's bracket, or the end of what is looked at
    FULL     more elements than `bound`, or one that is no object: what follows is not looked at
    LOST     an element whose end cannot be found
    """

    __slots__ = ("_element", "_keep", "_left", "_make", "ended")
    CLOSED, FULL, LOST = "closed", "full", "lost"

    def __init__(self, bound: int, make: Callable[[], MessageScan], keep: Callable[[MessageScan], None]) -> None:
        self.ended = ""
        self._left = bound
        self._make = make
        self._keep = keep
        self._element: MessageScan | None = None

    def run(self, buf: bytes, clean: bytes, pos: int) -> int:
        """On from `pos` to where they have ended, or to the end of the piece."""
        while pos < len(buf) and not self.ended:
            if self._element is not None:
                pos = self._element.run(buf, clean, pos)
                if self._element.has_ended:
                    self.finish()
                continue
            found = _NEXT.search(buf, pos)
            if found is None:
                return len(buf)
            pos = found.start()
            if buf[pos] == 0x5D:
                self.ended = self.CLOSED
                pos += 1
            elif buf[pos] != 0x7B or not self._left:
                self.ended = self.FULL
            else:
                self._left -= 1
                self._element = self._make()
        return pos

    def finish(self) -> None:
        """An element has ended, or nothing more will come."""
        element, self._element = self._element, None
        if element is not None:
            self._keep(element)
            if not element.is_whole:
                self.ended = self.LOST
