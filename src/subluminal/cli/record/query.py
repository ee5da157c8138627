"""`sub query`: search recorded tool calls. Read-only, no daemon, and the whole command within 100 ms."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from subluminal.cli.filters import conditions, filter_options
from subluminal.cli.options import Command, Option, Values
from subluminal.cli.record.columns import COLUMN_OPTIONS, Column, chosen, id_column, picked, print_columns, print_table
from subluminal.cli.record.nothing_yet import say_nothing_found
from subluminal.cli.record.source import FLEET_OPTION, open_source
from subluminal.cli.render.call_lines import latency, readable, state_word
from subluminal.cli.render.columns import cut, terminal_columns
from subluminal.cli.render.moments import date_and_clock, duration, short_time
from subluminal.cli.render.output import note
from subluminal.cli.render.rows import print_rows
from subluminal.contracts.errors import UsageError
from subluminal.contracts.filters import CALL_FILTERS, Filters
from subluminal.ledger.daemon.sync import sync
from subluminal.ledger.read.ledger import CALL_COLUMNS, GROUPS, Row
from subluminal.reports.printable import printable

if TYPE_CHECKING:
    from subluminal.cli.record.source import Source

DEFAULT_LIMIT = 50
_PAGE = 1000
# The words of the options, beside the names of the columns.
GROUP_WORDS = {found.word: found.column for found in CALL_FILTERS if found.column in GROUPS}

HELP = """Search recorded tool calls, newest first.

All conditions must hold; an option given twice means either. Names may be globs; words may be cut short (`--decision
rej`). A terminal too narrow for all columns leaves some out and cuts texts: --wide, --columns and `sub show` tell more.

\b
Examples:
  sub query --decision BLOCK --since 2h
  sub query --run last --tool 'git_*' --json
  sub query --run last~1 --columns time,tool,args --wide
  sub query --would block --since today          what a policy that only observes would stop
  sub query --status ERROR --status TIMEOUT --group-by server,tool
  sub query --text 'DROP TABLE' --since 2026-01-31
  sub query --since 2d --plot
  sub query --fleet https://collector.example --decision BLOCK --since today
  sub query --run last --limit 0 --csv > calls.csv
"""

PAGE_OPTIONS = [
    Option("--limit", "limit", "At most so many; 0: all.  [default: 50]", metavar="N", kind=int),
    Option("--cursor", "cursor", "Go on after a row: its cursor, in --json and --csv.", metavar="CURSOR"),
    Option("--json", "as_json", "One JSON object per line.", is_flag=True),
    Option("--csv", "as_csv", "CSV with a header.", is_flag=True),
    Option("--no-sync", "no_sync", "Do not take in what still lies in the spool.", is_flag=True),
    FLEET_OPTION,
]
OPTIONS = [
    *filter_options(CALL_FILTERS),
    Option("--count", "count", "Print only how many there are.", is_flag=True),
    *COLUMN_OPTIONS,
    Option("--plot", "plot", "Calls, refusals and latency over time, as bars.", is_flag=True),
    Option("--group-by", "group_by", "Count per group: tool,decision; day, hour, minute.", metavar="COLUMNS"),
    *PAGE_OPTIONS,
]


def query(values: Values) -> int:
    if values["count"] and values["group_by"]:
        raise UsageError("--count and --group-by exclude each other: groups are counts already.")
    if values["columns"] and (values["count"] or values["group_by"] or values["plot"]):
        raise UsageError("--columns is about calls: it goes with neither --count, --group-by nor --plot.")
    if values["plot"] and (values["count"] or values["group_by"]):
        raise UsageError("--plot goes with neither --count nor --group-by: it groups by time itself.")
    limit = begin_page(values)
    with open_source(values) as ledger:
        filters = Filters(**conditions(CALL_FILTERS, values, ledger))
        if values["count"]:
            _print_count(ledger.count(filters), values)
        elif values["plot"]:
            _print_plot(ledger, filters, values)
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
    bring_up_to_date(values["no_sync"] or values["fleet"] is not None)
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

    def __init__(
        self, ledger: Source, filters: Filters, limit: int, cursor: str | None, *, previews: bool = False
    ) -> None:
        self._ledger = ledger
        self._previews = previews
        self._filters = filters
        self._left = limit or sys.maxsize
        self.next_cursor = cursor
        self.found = 0

    def __iter__(self) -> Iterator[Row]:
        while self._left > 0:
            size = min(self._left, _PAGE)
            page = self._ledger.calls(self._filters, limit=size, cursor=self.next_cursor, previews=self._previews)
            self.found += len(page.rows)
            for row, cursor in zip(page.rows, page.cursors, strict=True):
                yield {**row, "cursor": cursor}
            self._left -= size
            self.next_cursor = page.next_cursor
            if page.next_cursor is None:
                return


def _print_calls(ledger: Source, filters: Filters, values: Values, limit: int) -> None:
    columns = chosen(values, COLUMNS, _USUAL, _KEYS)
    for_people = not (values["as_json"] or values["as_csv"])
    previews = any(column.key == "args_preview" for column in columns) and (for_people or bool(values["columns"]))
    pages = Pages(ledger, filters, limit, values["cursor"], previews=previews)
    if not print_rows(picked(pages, values, columns), values) and (rows := list(pages)):
        print_columns(rows, values, columns, _DROPPED, _colour)
    if not pages.found:
        say_nothing_found(ledger, "No call matches.")
    if pages.next_cursor is not None:
        note(f"More: --cursor {pages.next_cursor}, a higher --limit, or --limit 0 for all.")


def _time(row: Row, wide: bool) -> str:
    return date_and_clock(row["created_at"]) if wide else short_time(row["created_at"])


def _reason(row: Row, wide: bool) -> str:
    reason = row["reason_code"] or "-"
    return printable(f"{reason} (would {row['would_action']})" if row["would_action"] else reason)


def _arguments(row: Row, wide: bool) -> str:
    text = printable(readable(row["args_preview"] or ("[TRUNCATED]" if row["preview_truncated"] else "")))
    return text if wide and terminal_columns() is not None else cut(text, _ARGUMENT_CELLS)


_ARGUMENT_CELLS = 100
COLUMNS = (
    Column("time", "created_at", _time),
    Column("result", "decision", lambda row, wide: state_word(row)[0]),
    Column("latency", "latency_ms", lambda row, wide: latency(row), is_number=True),
    Column("tool", "tool_name", lambda row, wide: printable(f"{row['server_name']}/{row['tool_name']}")),
    Column("args", "args_preview", _arguments),
    Column("rule", "rule_id"),
    Column("reason", "reason_code", _reason),
    id_column("run", "run_id"),
    id_column("call", "call_id"),
)
_USUAL = [column.word for column in COLUMNS]
# What a narrow terminal goes without first; `sub show CALL` tells the rest.
_DROPPED = ("run", "latency", "reason")
_KEYS = (*(name for name in CALL_COLUMNS if name != "tags_json"), "shim_id", "tags", "args_preview", "cursor")


def _colour(row: Row) -> str | None:
    return None if row["decision"] is None else state_word(row)[1]


# What a narrow terminal goes without first.
_GROUP_DROP = ("AVG", "MAX", "THROTTLED", "P50", "ALLOWED", "P95", "ERRORS")


def _print_plot(ledger: Source, filters: Filters, values: Values) -> None:
    from subluminal.cli.record.plot import bars, over_time

    rows = over_time(ledger, filters)
    if not rows:
        say_nothing_found(ledger, "No call matches.")
    if not print_rows(rows, values) and rows:
        sys.stdout.write("\n".join(bars(rows)) + "\n")


# -- groups ---------------------------------------------------------------------------------------------------------


def _print_groups(ledger: Source, filters: Filters, values: Values, limit: int) -> None:
    words = [word.strip() for word in values["group_by"].split(",") if word.strip()]
    by = list(dict.fromkeys(GROUP_WORDS.get(word, word) for word in words))
    if not by or any(name not in GROUPS for name in by):
        wrong = ", ".join(word for word in words if GROUP_WORDS.get(word, word) not in GROUPS) or "nothing"
        hint = f"Known: {', '.join([*GROUP_WORDS, *GROUPS])}, joined by commas."
        raise UsageError(f"Cannot group by {wrong}.", hint=hint)
    rows = ledger.group(filters, by=by, limit=limit or 100_000)
    if not rows:
        say_nothing_found(ledger, "No call matches.")
    if not print_rows(rows, values) and rows:
        names = list(rows[0])
        cells = [[_group_cell(name, row[name]) for name in names] for row in rows]
        header = [_group_title(name) for name in names]
        drop = tuple(header.index(title) for title in _GROUP_DROP if title in header)
        total = None if values["wide"] else terminal_columns()
        print_table(cells, header, numbers=tuple(range(len(by), len(names))), drop=drop, total=total)


def _group_title(name: str) -> str:
    return name.removesuffix("_name").upper().replace("LATENCY_MS_", "").replace("_", " ")


def _group_cell(name: str, value: Any) -> str:
    if name.startswith("latency_ms"):
        return "-" if value is None else duration(round(value))
    return "-" if value is None else printable(str(value))


QUERY = Command("query", query, HELP, OPTIONS)
