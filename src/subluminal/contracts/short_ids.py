"""Ids as people read and type them: an id of ours is long, sorts by time, and is told apart by its random end.

A run is `last`, `last~1` (the one before) and so on, or goes by its id; a call by its id. Of an id its beginning or its
end will do, as long as only one has it. What is shown short (`short`) is such an end.
"""

from __future__ import annotations

LAST = "last"
# Fewer characters would mean many at once, and are more likely a slip.
MIN_PIECE = 4
_SHOWN = 6
_MAX_BACK = 1_000_000
_HEX = frozenset("0123456789abcdef")
_MADE_BY_US = 24


def runs_back(name: str) -> int | None:
    """How many runs before the latest; None: it is no such name."""
    if name == LAST:
        return 0
    word, tilde, number = name.partition("~")
    if word != LAST or not tilde or not (number.isascii() and number.isdigit()):
        return None
    return min(int(number), _MAX_BACK) if len(number) < 10 else _MAX_BACK


def named(piece: str, ids: list[str]) -> list[str]:
    """The one of exactly this id, else those that begin with it, else those that end with it."""
    if piece in ids:
        return [piece]
    if len(piece) < MIN_PIECE:
        return []
    return [one for one in ids if one.startswith(piece)] or [one for one in ids if one.endswith(piece)]


def short(name: str) -> str:
    """The end of an id that we made, long enough to be told apart; any other whole."""
    head, dash, number = name.rpartition("-")
    if dash and number.isdigit() and _is_ours(head):
        return f"{head[-MIN_PIECE:]}-{number}"
    return name[-_SHOWN:] if _is_ours(name) else name


def _is_ours(name: str) -> bool:
    return len(name) > _MADE_BY_US and _HEX.issuperset(name[-_MADE_BY_US:])
