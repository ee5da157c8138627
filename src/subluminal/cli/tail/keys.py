"""What a person types at `sub tail`, as words: a letter is itself, a key that sends several bytes has a name."""

from __future__ import annotations

import re

UP, DOWN, LEFT, RIGHT, HOME, END, PAGE_UP, PAGE_DOWN = (
    "up",
    "down",
    "left",
    "right",
    "home",
    "end",
    "page up",
    "page down",
)
ENTER, ESCAPE, BACKSPACE = "enter", "escape", "backspace"

# Both forms of each: which one a terminal sends depends on a mode that a program before us may have left on.
_SEQUENCES = {
    "[A": UP, "OA": UP, "[B": DOWN, "OB": DOWN, "[C": RIGHT, "OC": RIGHT, "[D": LEFT, "OD": LEFT,
    "[H": HOME, "OH": HOME, "[1~": HOME, "[F": END, "OF": END, "[4~": END, "[5~": PAGE_UP, "[6~": PAGE_DOWN,
}  # fmt: skip
_SINGLE = {"\r": ENTER, "\n": ENTER, "\x7f": BACKSPACE, "\b": BACKSPACE, "\x1b": ESCAPE}
_TYPED = re.compile(r"\x1b(\[[0-9;]*[A-Za-z~]|O[A-Za-z])|.", re.DOTALL)


def typed(data: bytes) -> list[str]:
    """The keys in what was read. A sequence that means nothing here is passed over as a whole."""
    found = []
    for match in _TYPED.finditer(data.decode("utf-8", "replace")):
        key = _SEQUENCES.get(match[1], "") if match[1] else _SINGLE.get(match[0], match[0])
        if key in _SEQUENCES.values() or key in _SINGLE.values() or (len(key) == 1 and key.isprintable()):
            found.append(key)
    return found
