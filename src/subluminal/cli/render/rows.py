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
    """Compact, for stdout. On a terminal all but ASCII is escaped (a C1 control character would be obeyed), and so it
    is where a lone surrogate cannot be written."""
    text = json_text(value)
    if text.isascii() or (not sys.stdout.isatty() and _writable(text)):
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


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, dict)):
        return json_line(value)
    if isinstance(value, str):
        if sys.stdout.isatty():
            return printable(value)
        return value if _writable(value) else value.encode("utf-8", "backslashreplace").decode()
    return value
