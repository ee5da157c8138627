"""`sub runs`: the runs of the ledger, latest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from subluminal.cli.filters import conditions, filter_options
from subluminal.cli.options import Command, Values
from subluminal.cli.record.columns import COLUMN_OPTIONS, Column, chosen, id_column, picked, print_columns, share
from subluminal.cli.record.nothing_yet import say_nothing_found
from subluminal.cli.record.query import PAGE_OPTIONS, begin_page
from subluminal.cli.record.source import open_source
from subluminal.cli.render.moments import between_ms, date_and_clock, duration, short_time
from subluminal.cli.render.output import note
from subluminal.cli.render.rows import print_rows
from subluminal.contracts.filters import OF_THEIR_CALLS, RUN_FILTERS, Filters, RunFilters
from subluminal.ledger.read.ledger import MAX_LIMIT, RUN_COLUMNS, Ledger, Row, known
from subluminal.reports.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from subluminal.cli.record.source import Source
    from subluminal.ledger.read.refused import Messages

HELP = """List runs, latest first.

The filters are those of `sub query`; one that is about calls (--tool, --decision ...) finds the runs with such a call.

RECOVERY (with --wide, by --columns, in --json and --csv) is how many of its refusals the agent corrected, of those that
count: what `sub hints --run` says of the run. It is - (null) where nothing was refused, where nothing counts yet, and
of runs of more than 50,000 calls. Over a fleet, times alone tell what came after a refusal: transcripts are on the
machines.

\b
Examples:
  sub runs
  sub runs --agent repo-fixer --status FAILED
  sub runs --since today --decision BLOCK
  sub runs --columns run,agent,blocked,recovery
  sub runs --limit 0 --json
  sub runs --fleet https://collector.example --since today
"""

OPTIONS = [*filter_options((*RUN_FILTERS, *OF_THEIR_CALLS)), *COLUMN_OPTIONS, *PAGE_OPTIONS]

COLUMNS = (
    id_column("run", "run_id"),
    Column("agent", "agent_id", lambda row, wide: printable(known(row["agent_id"]))),
    Column("client", "client"),
    Column("env", "env"),
    Column("status", "status"),
    Column("started", "started_at", lambda row, wide: (date_and_clock if wide else short_time)(row["started_at"])),
    Column("duration", "duration_ms", lambda row, wide: duration(row["duration_ms"]), is_number=True),
    Column("calls", "calls_total", is_number=True),
    Column("activity", "activity"),
    Column("blocked", "calls_blocked", is_number=True),
    Column("throttled", "calls_throttled", is_number=True),
    Column("recovery", "recovery_rate", lambda row, wide: share(row["recovery_rate"]), is_number=True),
    Column("errors", "errors_total", is_number=True),
)
_JSON_KEYS = {"metadata_json": "meta", "workload_json": "workload", "usage_json": "usage"}
_KEYS = (*(_JSON_KEYS.get(name, name) for name in RUN_COLUMNS), "duration_ms", "recovery_rate", "cursor")
# Following what came after each refusal, in transcripts too, takes a while: it is done where it is asked for.
_USUAL = [column.word for column in COLUMNS if column.word != "recovery"]
# Calls of runs that a collector is asked about in one question: following them takes as long as there are many.
_FOLLOWED_AT_ONCE = 20_000
# What a narrow terminal goes without first.
_DROPPED = ("env", "throttled", "activity", "client", "agent", "duration")
_STATUS_COLOURS = {"RUNNING": "cyan", "FAILED": "red", "TERMINATED": "bright_red", "CANCELLED": "yellow"}


def runs(values: Values) -> int:
    limit = begin_page(values)
    columns = chosen(values, COLUMNS, [column.word for column in COLUMNS] if values["wide"] else _USUAL, _KEYS)
    of_all = values["columns"] is None and (values["as_json"] or values["as_csv"])
    with open_source(values) as ledger:
        filters = RunFilters(**conditions(RUN_FILTERS, values, ledger))
        calls = Filters(**conditions(OF_THEIR_CALLS, values, ledger))
        page = ledger.runs(filters, calls=calls, limit=limit or MAX_LIMIT, cursor=values["cursor"])
        if not page.rows:
            say_nothing_found(ledger, "No run matches.")
        if of_all or any(column.key == "recovery_rate" for column in columns):
            _follow(page.rows, ledger)
        if any(column.key == "activity" for column in columns) and not (values["as_json"] or values["as_csv"]):
            _draw(page.rows, ledger)
    rows = [
        {**row, "duration_ms": between_ms(row["started_at"], row["ended_at"]), "cursor": cursor}
        for row, cursor in zip(page.rows, page.cursors, strict=True)
    ]
    if not print_rows(picked(rows, values, columns), values) and rows:
        print_columns(rows, values, columns, _DROPPED, lambda row: _STATUS_COLOURS.get(row["status"]))
    if page.next_cursor is not None:
        note(f"More: --cursor {page.next_cursor}, a higher --limit, or --limit 0 for all.")
    return 0


def _follow(rows: list[Row], source: Source) -> None:
    """Its recovery for each."""
    refused = [row for row in rows if row["calls_blocked"] or row["calls_throttled"]]
    rates = {each["run_id"]: each["recovery_rate"] for each in _recoveries(refused, source)}
    for row in rows:
        row["recovery_rate"] = rates.get(row["run_id"])


def _recoveries(rows: list[Row], source: Source) -> Iterator[Row]:
    if isinstance(source, Ledger):
        if rows:
            from subluminal.ledger.read.recovery import recoveries

            yield from recoveries(source, [row["run_id"] for row in rows], _transcripts)
        return
    some: list[str] = []
    calls = 0
    for row in rows:
        if some and calls + row["calls_total"] > _FOLLOWED_AT_ONCE:
            yield from source.recoveries(some)
            some, calls = [], 0
        some.append(row["run_id"])
        calls += row["calls_total"]
    yield from source.recoveries(some)


def _transcripts(since_ms: int) -> Messages:
    from subluminal.control.hints.messages import transcript_messages

    return transcript_messages(since_ms)


def _draw(rows: list[Row], source: Source) -> None:
    """A spark line of its calls for each."""
    from subluminal.cli.record.plot import spark

    run_ids = [row["run_id"] for row in rows]
    if isinstance(source, Ledger):
        from subluminal.ledger.read.sparks import spark as calls_of

        parts = {run_id: calls_of(source, run_id) for run_id in run_ids}
    else:
        parts = {each["run_id"]: each["calls"] for each in source.sparks(run_ids)}
    for row in rows:
        row["activity"] = spark(parts.get(row["run_id"]))


RUNS = Command("runs", runs, HELP, OPTIONS)
