"""`sub runs`: the runs of the ledger, latest first."""

from __future__ import annotations

from typing import Any

from subluminal.cli.filters import conditions, filter_options
from subluminal.cli.options import Command, Option, Values
from subluminal.cli.record.query import DEFAULT_LIMIT, bring_up_to_date, print_table
from subluminal.cli.render.moments import between_ms, date_and_clock, duration
from subluminal.cli.render.output import note
from subluminal.cli.render.rows import print_csv, print_json_rows
from subluminal.contracts.errors import UsageError
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

OPTIONS = [
    *filter_options(RUN_FILTERS),
    Option("--limit", "limit", "At most so many; 0: all.  [default: 50]", metavar="N", kind=int),
    Option("--cursor", "cursor", "Go on after a page; the page before names it.", metavar="CURSOR"),
    Option("--json", "as_json", "One JSON object per line.", is_flag=True),
    Option("--csv", "as_csv", "CSV with a header.", is_flag=True),
    Option("--no-sync", "no_sync", "Do not take in what still lies in the spool.", is_flag=True),
]

_HEADER = [
    "RUN", "AGENT", "CLIENT", "ENV", "STATUS", "STARTED", "DURATION", "CALLS", "BLOCKED", "THROTTLED", "ERRORS"
]  # fmt: skip
# On a narrow terminal: ENV, CLIENT, THROTTLED, AGENT, DURATION, ERRORS, STARTED, BLOCKED go, in this order.
_DROP = (3, 2, 9, 1, 6, 10, 5, 8)
_STATUS_COLOURS = {"RUNNING": "cyan", "FAILED": "red", "TERMINATED": "bright_red", "CANCELLED": "yellow"}


def runs(values: Values) -> int:
    if values["as_json"] and values["as_csv"]:
        raise UsageError("--json and --csv exclude each other.")
    limit = DEFAULT_LIMIT if values["limit"] is None else values["limit"]
    if limit < 0:
        raise UsageError(f"--limit must not be negative: {limit}.")
    bring_up_to_date(values["no_sync"])
    with open_ledger() as ledger:
        filters = RunFilters(**conditions(RUN_FILTERS, values, ledger))
        page = ledger.runs(filters, limit=limit or MAX_LIMIT, cursor=values["cursor"])
    rows = [{**row, "duration_ms": between_ms(row["started_at"], row["ended_at"])} for row in page.rows]
    if values["as_json"]:
        print_json_rows(rows)
    elif values["as_csv"]:
        print_csv(rows)
    elif rows:
        colours = [_STATUS_COLOURS.get(row["status"]) for row in rows]
        print_table([_cells(row) for row in rows], _HEADER, numbers=(6, 7, 8, 9, 10), drop=_DROP, colours=colours)
    else:
        note("No run matches, or none has been recorded yet.")
    if page.next_cursor is not None:
        note(f"More: --cursor {page.next_cursor}, a higher --limit, or --limit 0 for all.")
    return 0


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


def __getattr__(name: str) -> Any:
    if name == "runs_command":
        return RUNS.click_command()
    raise AttributeError(name)
