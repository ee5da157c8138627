"""One renderer for each kind of output: JSON for machines, aligned text and sparing colour for people.

Imports nothing heavy: `sub query` loads this within its 100 ms.
"""

from __future__ import annotations

import os
import sys
from typing import Any

DECISION_COLOURS = {
    "ALLOW": "green",
    "BLOCK": "red",
    "THROTTLE": "yellow",
    "REJECT_WITH_HINT": "magenta",
    "TERMINATE_RUN": "bright_red",
}
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_SGR = {name: 30 + i for i, name in enumerate(_COLOURS)} | {"bright_" + name: 90 + i for i, name in enumerate(_COLOURS)}


def print_json(value: Any) -> None:
    """One line of JSON on stdout."""
    import msgspec

    from subluminal.contracts.jsontext import escaped

    sys.stdout.write(escaped(msgspec.json.encode(value).decode()) + "\n")


def colour_wanted(stream: Any = None) -> bool:
    """Colour only on a terminal, and never against NO_COLOR; FORCE_COLOR asks for it elsewhere too."""
    stream = sys.stdout if stream is None else stream
    if "NO_COLOR" in os.environ:
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return os.environ.get("TERM") != "dumb" and bool(stream.isatty())


def paint(text: str, colour: str | None, *, bold: bool = False, stream: Any = None) -> str:
    if not colour_wanted(stream):
        return text
    codes = ([str(_SGR[colour])] if colour is not None else []) + (["1"] if bold else [])
    return "".join(f"\x1b[{code}m" for code in codes) + text + "\x1b[0m" if codes else text


def note(message: str) -> None:
    """A message for a person: stderr, so that stdout stays data."""
    print(message, file=sys.stderr)


def table(rows: list[list[str]], header: list[str]) -> str:
    """Columns aligned by width; no frame, so that it pastes well."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in [header, *rows]]
    return "\n".join(lines)
