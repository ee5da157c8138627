"""Lines on a terminal that can still change while they are on the screen; the scroll-back is never touched.

The cursor always stands at the start of the line below the last one. A change moves it up to the block concerned,
clears from there down and prints that block and the ones below anew, so a block may also gain lines.

Traps:
- Every line must fit one row of the terminal, or the count of rows would be wrong: whoever makes lines cuts them.
- After a change of width the terminal may have wrapped what was printed: everything so far is then left as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable


class Block:
    """Lines that belong together. `rows` is how many of them stand on the screen; `due`: not as they are now."""

    __slots__ = ("due", "lines", "rows")

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.rows = 0
        self.due = True


class Screen:
    def __init__(self, write: Callable[[str], object], size: Callable[[], os.terminal_size]) -> None:
        self._write = write
        self._size = size
        self._blocks: list[Block] = []
        self._first_changed: int | None = None
        self._columns = size().columns

    @property
    def columns(self) -> int:
        return self._columns

    def resized(self) -> None:
        """Call when the terminal may have changed."""
        if self._size().columns != self._columns:
            self._columns = self._size().columns
            self.forget()

    def forget(self) -> None:
        """What stands there may have moved: it is not touched any more. What is due is printed below it."""
        self._blocks = [block for block in self._blocks if block.due]
        for block in self._blocks:
            block.rows = 0
        self._first_changed = 0 if self._blocks else None

    def append(self, lines: list[str]) -> Block:
        block = Block(lines)
        self._blocks.append(block)
        self._changed(len(self._blocks) - 1)
        return block

    def change(self, block: Block, lines: list[str]) -> bool:
        """False: the block is not on the screen any more."""
        try:
            place = self._blocks.index(block)
        except ValueError:
            return False
        if sum(each.rows for each in self._blocks[place:]) > self._room():
            return False
        if block.lines != lines:
            block.lines = lines
            block.due = True
            self._changed(place)
        return True

    def flush(self) -> None:
        if self._first_changed is None:
            return
        below = self._blocks[self._first_changed :]
        up = sum(block.rows for block in below)
        pieces = [f"\x1b[{up}A\r\x1b[J"] if up else []
        for block in below:
            pieces += [line + "\n" for line in block.lines]
            block.rows = len(block.lines)
            block.due = False
        self._first_changed = None
        self._write("".join(pieces))
        self._let_go()

    def _changed(self, place: int) -> None:
        if self._first_changed is None or place < self._first_changed:
            self._first_changed = place

    def _room(self) -> int:
        return self._size().lines - 1

    def _let_go(self) -> None:
        """Forget the blocks that have scrolled out."""
        rows, room = 0, self._room()
        for place in range(len(self._blocks) - 1, -1, -1):
            rows += self._blocks[place].rows
            if rows > room:
                del self._blocks[: place + 1]
                return
