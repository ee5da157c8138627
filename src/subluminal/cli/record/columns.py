"""Columns of `sub query` and `sub runs`: the table that people read, `--columns` and `--wide`.

A column has a word (`tool`), under which its cells are written for people, and stands for one key of the JSON rows
(`tool_name`). Any other key may be named as well.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from subluminal.cli.options import Option, Values
from subluminal.cli.render.columns import aligned, terminal_columns
from subluminal.cli.render.output import colour_wanted, paint
from subluminal.contracts.errors import UsageError
from subluminal.contracts.short_ids import short
from subluminal.reports.printable import printable

Row = dict[str, Any]

COLUMN_OPTIONS = [
    Option("--columns", "columns", "These columns, by their titles or JSON keys: time,tool,args.", metavar="NAMES"),
    Option("--wide", "wide", "Whole ids and texts, however wide the terminal.", is_flag=True),
]


class Column:
    """`cell` gets the row and whether there is room (`wide`)."""

    __slots__ = ("cell", "is_number", "key", "title", "word")

    def __init__(
        self, word: str, key: str, cell: Callable[[Row, bool], str] | None = None, *, is_number: bool = False
    ) -> None:
        self.word = word
        self.key = key
        self.title = word.upper().replace("_", " ")
        self.cell = cell or (lambda row, wide: _plain(row[key]))
        self.is_number = is_number


def _plain(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, (dict, list)):
        from subluminal.cli.render.rows import json_text

        return printable(json_text(value))
    return printable(str(value))


def share(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.0%}"


def id_column(word: str, key: str) -> Column:
    return Column(word, key, lambda row, wide: printable(row[key] if wide else short(row[key])))


def chosen(values: Values, known: Sequence[Column], usual: Iterable[str], keys: Iterable[str]) -> list[Column]:
    """What `--columns` asks for, or the usual ones."""
    by_word = {column.word: column for column in known}
    by_key = {column.key: column for column in known} | {key: Column(key, key) for key in keys}
    if values["columns"] is None:
        return [by_word[word] for word in usual]
    words = [word.strip().lower() for word in values["columns"].split(",") if word.strip()]
    wrong = [word for word in words if word not in by_word and word not in by_key]
    if wrong or not words:
        hint = f"Known: {', '.join([*by_word, *(key for key in by_key if key not in by_word)])}, joined by commas."
        raise UsageError(f"There is no column {', '.join(map(repr, wrong)) or 'in --columns'}.", hint=hint)
    return [by_word.get(word) or by_key[word] for word in words]


def picked(rows: Iterable[Row], values: Values, columns: Sequence[Column]) -> Iterator[Row]:
    """Rows for programs: all keys, or those of the columns that were asked for."""
    for row in rows:
        yield row if values["columns"] is None else {column.key: row.get(column.key) for column in columns}


def print_columns(
    rows: Sequence[Row], values: Values, columns: Sequence[Column], drop: Sequence[str], colour: Callable[[Row], Any]
) -> None:
    """Nothing that was asked for by name is left out; it may be cut."""
    narrow = terminal_columns() is not None and not values["wide"]
    words = [column.word for column in columns]
    leave_out = [words.index(word) for word in drop if word in words] if values["columns"] is None else []
    print_table(
        [[column.cell(row, not narrow) for column in columns] for row in rows],
        [column.title for column in columns],
        numbers=[place for place, column in enumerate(columns) if column.is_number],
        drop=leave_out,
        colours=[colour(row) for row in rows],
        total=terminal_columns() if narrow else None,
    )


def print_table(
    rows: list[list[str]],
    header: list[str],
    *,
    numbers: Sequence[int] = (),
    drop: Sequence[int] = (),
    colours: list[str | None] | None = None,
    total: int | None = None,
) -> None:
    """Aligned, each line in its colour and no wider than `total`."""
    lines = aligned(rows, header, numbers=numbers, drop=drop, total=total)
    painted = colour_wanted() and colours is not None
    out = [paint("  ".join(lines[0]).rstrip(), None, bold=True)]
    for i, line in enumerate(lines[1:]):
        text = "  ".join(line).rstrip()
        out.append(paint(text, colours[i]) if painted and colours is not None else text)
    sys.stdout.write("\n".join(out) + "\n")
