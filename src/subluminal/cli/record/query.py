"""`sub query`: search recorded tool calls. Read-only, no daemon, and the whole command within 100 ms."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from subluminal.cli.filters import conditions, filter_options
from subluminal.cli.options import Command, Option, Values
from subluminal.cli.render.columns import aligned, terminal_columns
from subluminal.cli.render.moments import date_and_clock, duration, short_time
from subluminal.cli.render.output import DECISION_COLOURS, colour_wanted, note, paint
from subluminal.cli.render.rows import print_rows
from subluminal.contracts.errors import UsageError
from subluminal.contracts.filters import CALL_FILTERS, Filters
from subluminal.ledger.daemon.sync import sync
from subluminal.ledger.read.ledger import GROUPS, Ledger, Row, open_ledger
from subluminal.reports.printable import printable

DEFAULT_LIMIT = 50
_PAGE = 1000
# The words of the options, beside the names of the columns.
_GROUP_WORDS = {found.word: found.column for found in CALL_FILTERS if found.column in GROUPS}

HELP = """Search recorded tool calls, newest first.

All conditions must hold; an option given twice means either. Names may be globs.

\b
Examples:
  sub query --decision BLOCK --since 2h
  sub query --run last --tool 'git_*' --json
  sub query --status ERROR --status TIMEOUT --group-by server,tool
  sub query --text 'DROP TABLE' --since 2026-01-31
  sub query --run last --limit 0 --csv > calls.csv
"""

PAGE_OPTIONS = [
    Option("--limit", "limit", "At most so many; 0: all.  [default: 50]", metavar="N", kind=int),
    Option("--cursor", "cursor", "Go on after a page; the page before names it.", metavar="CURSOR"),
    Option("--json", "as_json", "One JSON object per line.", is_flag=True),
    Option("--csv", "as_csv", "CSV with a header.", is_flag=True),
    Option("--no-sync", "no_sync", "Do not take in what still lies in the spool.", is_flag=True),
]
OPTIONS = [
    *filter_options(CALL_FILTERS),
    Option("--count", "count", "Print only how many there are.", is_flag=True),
    Option("--group-by", "group_by", "Count per group, e.g. tool,decision (also day, hour).", metavar="COLUMNS"),
    *PAGE_OPTIONS,
]


def query(values: Values) -> int:
    if values["count"] and values["group_by"]:
        raise UsageError("--count and --group-by exclude each other: groups are counts already.")
    limit = begin_page(values)
    with open_ledger() as ledger:
        filters = Filters(**conditions(CALL_FILTERS, values, ledger))
        if values["count"]:
            _print_count(ledger.count(filters), values)
        elif values["group_by"]:
            _print_groups(ledger, filters, values, limit)
        else:
            _print_calls(ledger, filters, values, limit)
    return 0


def begin_page(values: Values) -> int:
    """Check PAGE_OPTIONS and bring the ledger up to date; returns the limit."""
    if values["as_json"] and values["as_csv"]:
        raise UsageError("--json and --csv exclude each other.")
    limit: int = DEFAULT_LIMIT if values["limit"] is None else values["limit"]
    if limit < 0:
        raise UsageError(f"--limit must not be negative: {limit}.")
    bring_up_to_date(values["no_sync"])
    return limit


def bring_up_to_date(no_sync: bool) -> None:
    if not no_sync and not sync():
        note("Some events still lie in the spool; the ledger is taking them in. Ask again in a moment.")


def _print_count(count: int, values: Values) -> None:
    if not print_rows([{"count": count}], values):
        print(count)


# -- calls ----------------------------------------------------------------------------------------------------------


class Pages:
    """The calls of one or more pages; `next_cursor` is known after the last row."""

    def __init__(self, ledger: Ledger, filters: Filters, limit: int, cursor: str | None) -> None:
        self._ledger = ledger
        self._filters = filters
        self._left = limit or sys.maxsize
        self.next_cursor = cursor

    def __iter__(self) -> Iterator[Row]:
        while self._left > 0:
            size = min(self._left, _PAGE)
            page = self._ledger.calls(self._filters, limit=size, cursor=self.next_cursor)
            yield from page.rows
            self._left -= size
            self.next_cursor = page.next_cursor
            if page.next_cursor is None:
                return


def _print_calls(ledger: Ledger, filters: Filters, values: Values, limit: int) -> None:
    pages = Pages(ledger, filters, limit, values["cursor"])
    if not print_rows(pages, values) and not _print_table(pages):
        none_yet = "No tool call has been recorded yet. Run an agent; see `sub help`."
        note("No call matches." if _asked(values) else none_yet)
    if pages.next_cursor is not None:
        note(f"More: --cursor {pages.next_cursor}, a higher --limit, or --limit 0 for all.")


def _asked(values: Values) -> bool:
    return any(value for name, value in values.items() if name not in ("as_json", "as_csv", "no_sync", "limit"))


_HEADER = ["TIME", "DECISION", "STATUS", "LATENCY", "TOOL", "RULE", "REASON", "RUN", "CALL"]
# What a narrow terminal goes without first; `sub show CALL` tells the rest.
_DROPPED = (7, 6, 5, 8)


def _print_table(rows: Iterable[Row]) -> int:
    found = list(rows)
    if found:
        when = date_and_clock if terminal_columns() is None else short_time
        cells = [[when(row["created_at"]), *_cells(row)] for row in found]
        print_table(cells, _HEADER, numbers=(3,), drop=_DROPPED, colours=[_colour(row) for row in found])
    return len(found)


def _cells(row: Row) -> list[str]:
    reason = row["reason_code"] or "-"
    if row["would_action"]:
        reason += f" (would {row['would_action']})"
    return [
        row["decision"] or "-",
        row["status"] or "running",
        duration(row["latency_ms"]),
        printable(f"{row['server_name']}/{row['tool_name']}"),
        printable(row["rule_id"] or "-"),
        printable(reason),
        printable(row["run_id"]),
        printable(row["call_id"]),
    ]


def _colour(row: Row) -> str | None:
    decision = row["decision"]
    if decision == "ALLOW" and row["status"] not in ("OK", None):
        return "red"
    return DECISION_COLOURS.get(decision or "")


def print_table(
    rows: list[list[str]],
    header: list[str],
    *,
    numbers: tuple[int, ...] = (),
    drop: tuple[int, ...] = (),
    colours: list[str | None] | None = None,
) -> None:
    """Aligned; on a terminal each line in its colour and no wider than it."""
    lines = aligned(rows, header, numbers=numbers, drop=drop, total=terminal_columns())
    painted = colour_wanted() and colours is not None
    out = [paint("  ".join(lines[0]).rstrip(), None, bold=True)]
    for i, line in enumerate(lines[1:]):
        text = "  ".join(line).rstrip()
        out.append(paint(text, colours[i]) if painted and colours is not None else text)
    sys.stdout.write("\n".join(out) + "\n")


# What a narrow terminal goes without first.
_GROUP_DROP = ("AVG", "MAX", "THROTTLED", "P50", "ALLOWED", "P95", "ERRORS")

# -- groups ---------------------------------------------------------------------------------------------------------


def _print_groups(ledger: Ledger, filters: Filters, values: Values, limit: int) -> None:
    words = [word.strip() for word in values["group_by"].split(",") if word.strip()]
    by = list(dict.fromkeys(_GROUP_WORDS.get(word, word) for word in words))
    if not by or any(name not in GROUPS for name in by):
        wrong = ", ".join(word for word in words if _GROUP_WORDS.get(word, word) not in GROUPS) or "nothing"
        hint = f"Known: {', '.join([*_GROUP_WORDS, *GROUPS])}, joined by commas."
        raise UsageError(f"Cannot group by {wrong}.", hint=hint)
    rows = ledger.group(filters, by=by, limit=limit or 100_000)
    if print_rows(rows, values):
        return
    if rows:
        names = list(rows[0])
        cells = [[_group_cell(name, row[name]) for name in names] for row in rows]
        header = [_group_title(name) for name in names]
        drop = tuple(header.index(title) for title in _GROUP_DROP if title in header)
        print_table(cells, header, numbers=tuple(range(len(by), len(names))), drop=drop)
    else:
        note("No call matches.")


def _group_title(name: str) -> str:
    return name.removesuffix("_name").upper().replace("LATENCY_MS_", "").replace("_", " ")


def _group_cell(name: str, value: Any) -> str:
    if name.startswith("latency_ms"):
        return "-" if value is None else duration(round(value))
    return "-" if value is None else printable(str(value))


QUERY = Command("query", query, HELP, OPTIONS)
