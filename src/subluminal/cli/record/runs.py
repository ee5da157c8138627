"""`sub runs`: the runs of the ledger, latest first."""

from __future__ import annotations

from subluminal.cli.filters import conditions, filter_options
from subluminal.cli.options import Command, Values
from subluminal.cli.record.query import PAGE_OPTIONS, begin_page, print_table
from subluminal.cli.render.moments import between_ms, date_and_clock, duration
from subluminal.cli.render.output import note
from subluminal.cli.render.rows import print_rows
from subluminal.contracts.filters import RUN_FILTERS, RunFilters
from subluminal.ledger.read.ledger import MAX_LIMIT, Row, known, open_ledger
from subluminal.reports.printable import printable

HELP = """List runs, latest first.

\b
Examples:
  sub runs
  sub runs --agent repo-fixer --status FAILED
  sub runs --limit 0 --json
"""

OPTIONS = [*filter_options(RUN_FILTERS), *PAGE_OPTIONS]

_HEADER = [
    "RUN", "AGENT", "CLIENT", "ENV", "STATUS", "STARTED", "DURATION", "CALLS", "BLOCKED", "THROTTLED", "ERRORS"
]  # fmt: skip
# On a narrow terminal: ENV, CLIENT, THROTTLED, AGENT, DURATION, ERRORS, STARTED, BLOCKED go, in this order.
_DROP = (3, 2, 9, 1, 6, 10, 5, 8)
_STATUS_COLOURS = {"RUNNING": "cyan", "FAILED": "red", "TERMINATED": "bright_red", "CANCELLED": "yellow"}


def runs(values: Values) -> int:
    limit = begin_page(values)
    with open_ledger() as ledger:
        filters = RunFilters(**conditions(RUN_FILTERS, values, ledger))
        page = ledger.runs(filters, limit=limit or MAX_LIMIT, cursor=values["cursor"])
    rows = [{**row, "duration_ms": between_ms(row["started_at"], row["ended_at"])} for row in page.rows]
    if not print_rows(rows, values):
        _print_table(rows)
    if page.next_cursor is not None:
        note(f"More: --cursor {page.next_cursor}, a higher --limit, or --limit 0 for all.")
    return 0


def _print_table(rows: list[Row]) -> None:
    if rows:
        colours = [_STATUS_COLOURS.get(row["status"]) for row in rows]
        print_table([_cells(row) for row in rows], _HEADER, numbers=(6, 7, 8, 9, 10), drop=_DROP, colours=colours)
    else:
        note("No run matches, or none has been recorded yet.")


def _cells(row: Row) -> list[str]:
    return [
        printable(row["run_id"]),
        printable(known(row["agent_id"])),
        printable(row["client"]),
        printable(row["env"]),
        row["status"],
        date_and_clock(row["started_at"]),
        duration(row["duration_ms"]),
        *(str(row[name]) for name in ("calls_total", "calls_blocked", "calls_throttled", "errors_total")),
    ]


RUNS = Command("runs", runs, HELP, OPTIONS)
