"""Text measured in terminal cells: wide characters take two, combining ones none. Nothing here is coloured yet."""

from __future__ import annotations

import os
from collections.abc import Sequence

ELLIPSIS = "…"
# Where the output is no terminal there is no width to keep to; a line still ends somewhere.
PIPE_CELLS = 240
# A column that was cut to less than this would say nothing.
_NARROWEST = 8


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
    rows: Sequence[Sequence[str]],
    header: Sequence[str],
    *,
    numbers: Sequence[int] = (),
    drop: Sequence[int] = (),
    total: int | None = None,
) -> list[list[str]]:
    """Header and rows as padded cells; `numbers` are the columns to align right.

    A line may take `total` cells. Where it would take more, the columns of `drop` are left out one after another, and
    if that is not enough, the widest is cut."""
    every = [list(header), *map(list, rows)]
    widths = {i: max(width(row[i]) for row in every) for i in range(len(header))}
    if total is not None:
        for column in drop:
            if _needed(widths) > total:
                del widths[column]
        while (over := _needed(widths) - total) > 0:
            widest = max(widths, key=lambda column: widths[column])
            if widths[widest] <= _NARROWEST:
                break
            widths[widest] = max(_NARROWEST, widths[widest] - over)
    return [[pad(cut(row[i], w), w, right=i in numbers) for i, w in widths.items()] for row in every]


def _needed(widths: dict[int, int]) -> int:
    return sum(widths.values()) + 2 * (len(widths) - 1)
