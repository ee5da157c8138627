"""One renderer for each kind of output: JSON for machines, aligned text and sparing colour for people."""

from __future__ import annotations

import os
import sys
from typing import Any

import click
import msgspec

DECISION_COLOURS = {
    "ALLOW": "green",
    "BLOCK": "red",
    "THROTTLE": "yellow",
    "REJECT_WITH_HINT": "magenta",
    "TERMINATE_RUN": "bright_red",
}


def print_json(value: Any) -> None:
    """One line of JSON on stdout."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def colour_wanted(stream: Any = None) -> bool:
    """Colour only on a terminal, and never against NO_COLOR."""
    stream = sys.stdout if stream is None else stream
    return "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb" and bool(stream.isatty())


def paint(text: str, colour: str | None, *, bold: bool = False, stream: Any = None) -> str:
    if not colour_wanted(stream):
        return text
    return click.style(text, fg=colour, bold=bold)


def note(message: str) -> None:
    """A message for a person: stderr, so that stdout stays data."""
    print(message, file=sys.stderr)


def printable(text: str) -> str:
    """Text from agents and servers may hold terminal control sequences: show them, never obey them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def table(rows: list[list[str]], header: list[str]) -> str:
    """Columns aligned by width; no frame, so that it pastes well."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in [header, *rows]]
    return "\n".join(lines)
