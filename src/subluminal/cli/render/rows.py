"""Rows of the ledger for machines: JSON lines and CSV, streamed."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from subluminal.reports.printable import printable


def json_text(value: Any) -> str:
    """Compact; letters as letters. For people: pass it through `printable`."""
    import json

    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def json_line(value: Any) -> str:
    """Compact, for stdout: nothing in it is obeyed, and what stdout cannot say is escaped."""
    from subluminal.contracts.jsontext import escaped

    text = escaped(json_text(value))
    if _writable(text):
        return text
    import json

    return json.dumps(value, separators=(",", ":"))


def _writable(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def print_rows(rows: Iterable[dict[str, Any]], values: dict[str, Any]) -> bool:
    """As --json or --csv ask for. False: neither does."""
    if values["as_json"]:
        print_json_rows(rows)
    elif values["as_csv"]:
        print_csv(rows)
    return bool(values["as_json"] or values["as_csv"])


def print_json_rows(rows: Iterable[Any]) -> None:
    write = sys.stdout.write
    for row in rows:
        write(json_line(row) + "\n")


def print_csv(rows: Iterable[dict[str, Any]]) -> None:
    """RFC 4180 with a header; lists and objects as JSON, nothing for what is not known."""
    import csv

    writer = None
    for row in rows:
        if writer is None:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(row)
        writer.writerow([_csv_cell(value) for value in row.values()])


# In the names and messages of agents and servers, these make a spreadsheet compute a cell, call a program or fetch an
# address. Full-width forms are read as the narrow ones.
_FORMULA = tuple("=+-@\t\n＝＋－＠")
# What a cell can hold as it is. Not CR: the writer does not quote for it, and a spreadsheet begins a row there.
_CELL_SPACES = "\t\n\xa0\u3000"


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, dict)):
        return json_line(value)
    if not isinstance(value, str):
        return value
    text = printable(value, keep="" if sys.stdout.isatty() else _CELL_SPACES)
    # An apostrophe makes it text. Added to those that stand there, so that taking one away gives the value back.
    if text.lstrip(" '\xa0\u3000").startswith(_FORMULA) and not _is_number(text):
        text = "'" + text
    return text if _writable(text) else text.encode("ascii", "backslashreplace").decode()


def _is_number(text: str) -> bool:
    digits = text[1:].replace(".", "", 1)
    return digits.isascii() and digits.isdigit() and text[0] in "+-"
