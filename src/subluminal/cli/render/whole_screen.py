"""The whole terminal for a while: what stood there comes back afterwards, the scroll-back is never touched."""

from __future__ import annotations

import os
from collections.abc import Callable

_ENTER, _LEAVE, _CLEAR = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l", "\x1b[H\x1b[J"


class WholeScreen:
    def __init__(self, write: Callable[[str], object], size: Callable[[], os.terminal_size]) -> None:
        self._write, self._size = write, size
        self._drawn: tuple[os.terminal_size, list[str]] | None = None
        write(_ENTER)

    @property
    def columns(self) -> int:
        return self._size().columns

    @property
    def rows(self) -> int:
        return self._size().lines

    def draw(self, lines: list[str]) -> None:
        """Lines that fit; nothing is written where the same stands there already."""
        wanted = (self._size(), lines[: self.rows])
        if wanted != self._drawn:
            self._drawn = wanted
            self._write(_CLEAR + "\n".join(wanted[1]))

    def forget(self) -> None:
        """Somebody else has written on the terminal."""
        self._drawn = None
        self._write(_ENTER)

    def close(self) -> None:
        self._write(_LEAVE)
