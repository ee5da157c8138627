"""What each predicate of a rule saw, under the line of the rule: `+` it matched, `-` it did not, `?` it cannot tell."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from subluminal.cli.render.columns import PIPE_CELLS, cut, terminal_columns, width
from subluminal.cli.render.output import paint
from subluminal.reports.printable import printable

_MARKS = {True: ("+", "green"), False: ("-", None), None: ("?", "yellow")}
_INDENT = 10
# A value that is cut to less says nothing; rather the line goes on below.
_LEAST_VALUE = 24
_MOST_VALUE = 60
_MOST_LINES = 3


def predicate_lines(predicates: list[dict[str, Any]], columns: int | None = None) -> Iterator[str]:
    room = (columns or terminal_columns() or PIPE_CELLS) - _INDENT - 2
    for each in predicates:
        mark, colour = _MARKS[each["matched"]]
        place = printable(each["place"])
        value = "not there" if each["value"] is None else cut(printable(each["value"]), _MOST_VALUE)
        words = "" if each["read_as"] is None else printable(each["read_as"])
        first, *others = _fitted(f"{place}  ", value, words, room)
        yield f"{' ' * _INDENT}{paint(mark, colour)} {first}"
        for line in others:
            yield f"{' ' * (_INDENT + 4)}{line}"


def _fitted(place: str, value: str, words: str, room: int) -> list[str]:
    """On one line if it fits, else what the value was read as below it, and the value below a long place."""
    whole = f"{place}{value}" + (f"  ({words})" if words else "")
    if width(whole) <= room:
        return [whole]
    left = room - width(place)
    lines = (
        [place + cut(value, left)]
        if left >= min(_LEAST_VALUE, width(value))
        else [cut(place, room), cut(value, room - 2)]
    )
    return [*lines, *(cut(line, room - 2) for line in wrap(words, room - 2)[:_MOST_LINES])]
