"""Text measured in terminal cells: wide characters take two, combining ones none. Nothing here is coloured yet."""

from __future__ import annotations

import os
from collections.abc import Sequence

ELLIPSIS = "…"
# Where the output is no terminal there is no width to keep to; a line still ends somewhere.
PIPE_CELLS = 240


def width(text: str) -> int:
    """How many cells a printable text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def _cells(character: str) -> int:
    from unicodedata import combining, east_asian_width

    if combining(character):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def cut(text: str, cells: int) -> str:
    """At most that many cells; an ellipsis shows that something is missing."""
    if len(text) * 2 <= cells or width(text) <= cells:
        return text
    if cells < 1:
        return ""
    room, kept = cells - 1, []
    for character in text:
        room -= _cells(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept) + ELLIPSIS


def pad(text: str, cells: int, *, right: bool = False) -> str:
    missing = " " * (cells - width(text))
    return missing + text if right else text + missing


def terminal_columns(descriptor: int = 1) -> int | None:
    """The width of the terminal, or None where the output is no terminal."""
    if not os.isatty(descriptor):
        return None
    try:
        columns = os.get_terminal_size(descriptor).columns
    except OSError:
        return 80
    return columns or 80


def aligned(
    rows: Sequence[Sequence[str]], header: Sequence[str], *, numbers: Sequence[int] = (), total: int | None = None
) -> list[list[str]]:
    """Header and rows as padded cells. `numbers` are the columns to align right; `total`, the cells a line may take,
    is kept to by cutting the last column, then the widest of the others."""
    every = [list(header), *map(list, rows)]
    widths = [max(width(row[i]) for row in every) for i in range(len(header))]
    if total is not None:
        _narrow(widths, total - 2 * (len(widths) - 1))
    return [[pad(cut(cell, widths[i]), widths[i], right=i in numbers) for i, cell in enumerate(row)] for row in every]


def _narrow(widths: list[int], room: int) -> None:
    while sum(widths) > room and max(widths) > 8:
        widest = widths.index(max(widths))
        second = max([w for i, w in enumerate(widths) if i != widest], default=8)
        widths[widest] = max(8, min(second, widths[widest] - 1), widths[widest] - (sum(widths) - room))
