"""Read the ledger: pages of calls, counts, groups, runs, one call, a run's timeline, and what has just arrived.

    with open_ledger() as ledger:
        page = ledger.calls(Filters(tool_name=["git*"], decision=["BLOCK"]), limit=50)
        page.rows                       dicts, newest first; page.next_cursor goes into the next call
        ledger.count(filters)           ledger.group(filters, by=["server_name", "tool_name"])
        ledger.runs(limit=20)           ledger.resolve_run("last")     ledger.run(run_id)
        ledger.call(call_id)            with previews, hint and the exact events
        ledger.timeline(run_id)         every event of a run, in chain order
        ledger.arrivals(after)          events in order of arrival, for tail; begin with ledger.newest_arrival()

Everything is read-only and needs no daemon. Imports little on purpose: `sub query` answers within 100 ms including the
start of Python. A fact that is not known is None; `known` turns it into the word "unknown" for people.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from time import monotonic
from typing import Any

from subluminal.contracts.errors import LedgerError, UsageError
from subluminal.contracts.filters import CALL_FILTERS, LISTS, RUN, Filters, RunFilters
from subluminal.contracts.short_ids import runs_back
from subluminal.host import home
from subluminal.ledger.read.groups import COUNTED, FEW_CALLS, MEASURED, STATS, add_up
from subluminal.ledger.read.lookup import ambiguous, calls_named, runs_named
from subluminal.ledger.read.plan import HIGHEST_ID, LOWEST_ID, Plan, add_functions, plan, run_conditions, with_calls
from subluminal.ledger.read.standing import counted_once
from subluminal.ledger.store.encoding import unpack_text
from subluminal.ledger.store.lines import LineReader, arrivals, newest_arrival
from subluminal.ledger.store.schema import NoLedger, open_reader

Row = dict[str, Any]

# What is told of a call and of a run, in the order in which it is told.
CALL_COLUMNS = (
    "call_id", "run_id", "server_name", "tool_name", "args_hash", "decision", "rule_id", "status", "latency_ms",
    "bytes_in", "bytes_out", "preview_truncated", "created_at", "seq", "transport", "severity", "reason_code",
    "summary", "backoff_ms", "would_action", "would_rule_id", "would_reason_code", "error_class", "error_code",
    "error_message", "ended_at", "overhead_us", "waited_ms", "args_stream_hash", "result_stream_hash", "ambiguous",
    "continues", "observed", "tool_use_id", "tags_json",
)  # fmt: skip
RUN_COLUMNS = (
    "run_id", "agent_id", "client", "env", "principal", "started_at", "ended_at", "status", "mode", "policy_id",
    "policy_version", "policy_hash", "calls_total", "calls_allowed", "calls_blocked", "calls_throttled", "errors_total",
    "event_count", "metadata_json", "workload_json", "usage_json",
)  # fmt: skip
# What calls can be grouped by: name -> SQL.
GROUPS = {
    **{
        found.column: f"c.{found.column}"
        if found.known_from != RUN or found.name == "run_id"
        else f"(SELECT {found.column} FROM runs WHERE runs.run_id = c.run_id)"
        for found in CALL_FILTERS
        if found.kind in LISTS
    },
    "day": "substr(c.created_at, 1, 10)",
    "hour": "substr(c.created_at, 1, 13)",
    "minute": "substr(c.created_at, 1, 16)",
}
MAX_LIMIT = 100_000
# Calls looked at before the clock is; then twice as many, as long as that is quick.
FIRST_PIECE = 1_000

_CALL_LIST = ", ".join("c." + column for column in CALL_COLUMNS)
_RUN_LIST = ", ".join(RUN_COLUMNS)


class Page:
    """`cursors` go on after each row; `next_cursor` after the last, and is None on the last page."""

    __slots__ = ("cursors", "next_cursor", "rows")

    def __init__(self, rows: list[Row], cursors: list[str], *, more: bool) -> None:
        self.rows = rows
        self.cursors = cursors
        self.next_cursor = cursors[-1] if more else None


def open_ledger(path: str | None = None) -> Ledger:
    return Ledger(open_reader(path or home.ledger_db()))


def open_or_empty() -> Ledger:
    """That of this home; before anything has been recorded, one that holds nothing and lies nowhere."""
    try:
        return open_ledger()
    except NoLedger:
        pass
    from subluminal.ledger.store.schema import migrate

    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection, ":memory:")
    connection.row_factory = sqlite3.Row
    return Ledger(connection)


def known(value: Any) -> str:
    """For people: an absent principal or workload reads "unknown" (§1.3.1)."""
    return "unknown" if value is None or value == "" else str(value)


class Ledger:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        add_functions(connection)
        self._lines = LineReader(connection)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.connection.close()

    # -- calls ------------------------------------------------------------------------------------------------

    def calls(
        self,
        filters: Filters | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        previews: bool = False,
        patience_s: float | None = None,
    ) -> Page:
        """One page of calls, newest first: one row for each, however many doors have seen it.

        `previews`: with `args_preview`. `patience_s`: where every call must be looked at, stop after about so long; the
        page then has what was found, perhaps nothing, and goes on from where it stopped."""
        _check_limit(limit)
        below = _cursor_id(cursor)
        chosen = plan(self.connection, filters or Filters())
        stopped = None
        if patience_s is not None and chosen.is_scan:
            found, stopped = self._scan(chosen, below, limit, patience_s)
        else:
            found = self._numbers(chosen, LOWEST_ID, below, limit)
        more = len(found) > limit
        rows = [self._call_row(number) for number in found[:limit]]
        if previews:
            for number, row in zip(found, rows, strict=False):
                row["args_preview"] = self._args_preview(number)
        page = Page(rows, [str(number) for number in found[:limit]], more=more)
        if stopped is not None and not more:
            page.next_cursor = str(stopped)
        return page

    def _numbers(self, chosen: Plan, lowest: int, below: int, limit: int) -> list[int]:
        """The newest of a range, one more than asked for if there are more."""
        found: list[int] = []
        for branch in chosen.branches:
            index, where, values = chosen.where(branch, lowest, below)
            order = "c.id DESC"
            if branch.index == "tool_calls_run":
                order = "c.created_at DESC, c.id DESC"  # the order of that index; the same as by id
            sql = f"SELECT c.id FROM tool_calls c {index} WHERE {where} ORDER BY {order} LIMIT ?"
            found += [row[0] for row in self.connection.execute(sql, [*values, limit + 1])]
        return sorted(found, reverse=True)

    def _scan(self, chosen: Plan, below: int, limit: int, patience_s: float) -> tuple[list[int], int | None]:
        """Piece by piece; with what was found, where it stopped: None, at the end."""
        until, piece = monotonic() + patience_s, FIRST_PIECE
        found: list[int] = []
        below = min(below, chosen.below)
        while True:
            began = monotonic()
            sql = "SELECT id FROM tool_calls NOT INDEXED WHERE id < ? ORDER BY id DESC LIMIT 1 OFFSET ?"
            row = self.connection.execute(sql, (below, piece)).fetchone()
            lowest = LOWEST_ID if row is None else row[0]
            found += self._numbers(chosen, lowest, below, limit - len(found))
            if lowest <= chosen.lowest or len(found) > limit:
                return found, None
            if monotonic() > until:
                return found, lowest
            if monotonic() - began < patience_s / 8:
                piece *= 2
            below = lowest

    def _args_preview(self, number: int) -> str | None:
        stored = self.connection.execute("SELECT args_preview FROM previews WHERE id = ?", (number,)).fetchone()
        return unpack_text(stored[0]) if stored else None

    def _call_row(self, number: int) -> Row:
        sql = f"SELECT {_CALL_LIST}, p.shim_id FROM tool_calls c LEFT JOIN producers p USING (producer_no)"
        return _call(self.connection.execute(sql + " WHERE c.id = ?", (number,)).fetchone())

    def numbered(self, number: int) -> Row | None:
        """One call by its number, with its cursor; None: it is not there any more."""
        if self.connection.execute("SELECT 1 FROM tool_calls WHERE id = ?", (number,)).fetchone() is None:
            return None
        return {**self._call_row(number), "cursor": str(number)}

    def count(self, filters: Filters | None = None) -> int:
        return int(sum(self.each_branch(filters, "count(*)", "", lambda row: row[0])))

    def group(self, filters: Filters | None = None, *, by: list[str], limit: int = 1000) -> list[Row]:
        """Calls per group, most first: calls, allowed, blocked, throttled, errors, and latencies (see `groups`)."""
        _check_limit(limit)
        unknown = [name for name in by if name not in GROUPS]
        if unknown or not by:
            raise UsageError(f"Cannot group by {', '.join(unknown) or 'nothing'}.", hint=f"Known: {', '.join(GROUPS)}.")
        exact = set(by) <= set(STATS) or self.few(filters)
        fine = list(STATS) if set(by) <= set(STATS) else list(dict.fromkeys((*by, *(STATS[2:] if exact else ()))))
        columns = ", ".join([*(f"{GROUPS[name]} AS {name}" for name in fine), COUNTED if exact else MEASURED])
        places = range(1, len(fine) + 1 + exact)
        grouping = " GROUP BY " + ", ".join(map(str, places))
        rows = self.each_branch(filters, columns, grouping, lambda row: row, covering=exact)
        return add_up(rows, fine, by, exact)[:limit]

    def few(self, filters: Filters | None) -> bool:
        """Whether the calls are few enough to be sorted at once; looks at no more than that."""
        left = FEW_CALLS + 1
        chosen = plan(self.connection, filters or Filters())
        for branch in chosen.branches:
            index, where, values = chosen.where(branch)
            sql = f"SELECT count(*) FROM (SELECT 1 FROM tool_calls c {index} WHERE {where} LIMIT {left})"
            left -= self.connection.execute(sql, values).fetchone()[0]
            if left <= 0:
                return False
        return True

    def each_branch(
        self, filters: Filters | None, columns: str, grouping: str, of_row: Any, *, covering: bool = True
    ) -> Iterator[Any]:
        """The branches of a plan are disjoint, so that counts and groups of them add up.

        Where no index leads, SQLite may pick one that covers the columns (`covering`), or else reads the table."""
        chosen = plan(self.connection, filters or Filters())
        for branch in chosen.branches:
            index, where, values = chosen.where(branch)
            hint = index if branch.index or not covering else ""
            sql = f"SELECT {columns} FROM tool_calls c {hint} WHERE {where}{grouping}"
            for row in self.connection.execute(sql, values):
                yield of_row(row)

    def call(self, call_id: str, run_id: str | None = None, shim_id: str | None = None) -> Row:
        """One call with its previews, its hint and its events. An unambiguous beginning of its id will do."""
        row = self._find_call(call_id, run_id, shim_id)
        call = _call(row)
        number = row["id"]
        sql = "SELECT args_preview, result_preview, redaction_flags FROM previews WHERE id = ?"
        preview = self.connection.execute(sql, (number,)).fetchone()
        call["args_preview"] = unpack_text(preview[0]) if preview else None
        call["result_preview"] = unpack_text(preview[1]) if preview else None
        call["redaction_flags"] = _json(preview[2]) if preview and preview[2] else []
        sql = "SELECT hint_text, hint_kind, retry_advice, suggested_args_json FROM hints WHERE id = ?"
        hint = self.connection.execute(sql, (number,)).fetchone()
        call["hint"] = None
        if hint is not None:
            call["hint"] = {**dict(hint), "suggested_args": _json(hint["suggested_args_json"])}
            del call["hint"]["suggested_args_json"]
        call["events"] = self._events(call["run_id"], [row[name] for name in _EVENT_COLUMNS])
        return call

    def _find_call(self, call_id: str, run_id: str | None, shim_id: str | None) -> sqlite3.Row:
        select = (
            f"SELECT {_CALL_LIST}, p.shim_id, c.id, {', '.join('c.' + name for name in _EVENT_COLUMNS)}"
            " FROM tool_calls c LEFT JOIN producers p USING (producer_no)"
        )
        found = calls_named(self.connection, call_id, run_id, shim_id)
        if len(found) == 1:
            sql = f"{select} WHERE c.call_id = ? AND c.run_id = ? AND coalesce(p.shim_id, '') = ?"
            row: sqlite3.Row = self.connection.execute(sql, found[0]).fetchone()
            return row
        if found:
            raise ambiguous("call", call_id, [f"{call} of {run} by {shim}" for call, run, shim in found])
        raise LedgerError(f"There is no call {call_id!r} in the ledger.", hint="`sub query` lists calls and their ids.")

    def _events(self, run_id: str, numbers: list[int | None]) -> list[Row]:
        run_no = self.connection.execute("SELECT run_no FROM runs WHERE run_id = ?", (run_id,)).fetchone()[0]
        return [_json(self._lines.line(run_no, n)) for n in numbers if n is not None]

    # -- runs -------------------------------------------------------------------------------------------------

    def runs(
        self,
        filters: RunFilters | None = None,
        *,
        calls: Filters | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """One page of runs, latest start first; `calls`: those with a call that matches."""
        _check_limit(limit)
        condition = run_conditions(filters or RunFilters())
        where, values = [condition.sql or "1"], condition.values
        if calls is not None and calls.asked:
            having = with_calls(self.connection, calls)
            where.append(having.sql)
            values += having.values
        if cursor is not None:
            started_at, _, run_no = cursor.rpartition("~")
            where.append("(started_at, run_no) < (?, ?)")
            values += [started_at, str(_cursor_id(run_no))]
        sql = f"SELECT {_RUN_LIST}, run_no FROM runs WHERE {' AND '.join(where)}"
        sql += " ORDER BY started_at DESC, run_no DESC LIMIT ?"
        rows = self.connection.execute(sql, [*values, limit + 1]).fetchall()
        told = [counted_once(self.connection, _run(row)) for row in rows[:limit]]
        cursors = [f"{row['started_at']}~{row['run_no']}" for row in rows[:limit]]
        return Page(told, cursors, more=len(rows) > limit)

    def run(self, run_id: str) -> Row:
        row = self.connection.execute(f"SELECT {_RUN_LIST} FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        if row is None:
            raise LedgerError(f"There is no run {run_id!r} in the ledger.", hint="`sub runs` lists the runs.")
        run = counted_once(self.connection, _run(row))
        columns = "shim_id, host_id, proc_id, started_at, ended_at, status"
        sql = f"SELECT {columns} FROM producers WHERE run_id = ? ORDER BY producer_no"
        run["producers"] = [dict(producer) for producer in self.connection.execute(sql, (run_id,))]
        return run

    def resolve_run(self, name: str) -> str:
        """A run id from what a person types (`lookup`)."""
        back = runs_back(name)
        if back is not None:
            sql = "SELECT run_id FROM runs ORDER BY started_at DESC, run_no DESC LIMIT 1 OFFSET ?"
            row = self.connection.execute(sql, (back,)).fetchone()
            if row is not None:
                return str(row[0])
            runs = self.connection.execute("SELECT count(*) FROM runs").fetchone()[0]
            if not runs:
                raise LedgerError("The ledger holds no run yet.", hint="Run an agent; see `sub help quickstart`.")
            raise LedgerError(f"The ledger holds only {runs} runs: there is no {name}.", hint="`sub runs` lists them.")
        found = runs_named(self.connection, name)
        if len(found) == 1:
            return found[0]
        if found:
            raise ambiguous("run", name, found)
        raise LedgerError(f"There is no run {name!r} in the ledger.", hint="`sub runs` lists the runs.")

    def timeline(self, run_id: str, *, after_n: int = 0, limit: int | None = None) -> Iterator[Row]:
        """Every event of a run, in chain order."""
        for line in self.lines(run_id, after_n=after_n, limit=limit):
            yield _json(line)

    def lines(self, run_id: str, *, after_n: int = 0, limit: int | None = None) -> Iterator[bytes]:
        """The same as exact bytes."""
        row = self.connection.execute("SELECT run_no, event_count FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        if row is None:
            raise LedgerError(f"There is no run {run_id!r} in the ledger.", hint="`sub runs` lists the runs.")
        last = row[1] if limit is None else min(row[1], after_n + limit)
        for n in range(after_n + 1, last + 1):
            yield self._lines.line(row[0], n)

    # -- what arrives -----------------------------------------------------------------------------------------

    def newest_arrival(self) -> int:
        """The place after everything that is stored now."""
        return newest_arrival(self.connection)

    def arrivals(self, after: int, *, limit: int = 500) -> list[tuple[int, Row]]:
        """(place, event) in order of arrival. Ask again with the last place: none is skipped, however late it comes."""
        return [(place, _json(line)) for place, line in arrivals(self.connection, after, limit)]

    def changes(self) -> int:
        """A number that changes when another process has committed: cheap to poll."""
        return int(self.connection.execute("PRAGMA data_version").fetchone()[0])


_EVENT_COLUMNS = ("start_event", "decision_event", "end_event")


def _call(row: sqlite3.Row) -> Row:
    call = {name: row[name] for name in CALL_COLUMNS}
    call["shim_id"] = row["shim_id"]
    call["preview_truncated"] = bool(call["preview_truncated"])
    call["observed"] = bool(call["observed"])
    call["tags"] = _json(call.pop("tags_json")) or []
    return call


def _run(row: sqlite3.Row) -> Row:
    run = {name: row[name] for name in RUN_COLUMNS}
    run["meta"] = _json(run.pop("metadata_json"))
    run["workload"] = _json(run.pop("workload_json"))
    run["usage"] = _json(run.pop("usage_json"))
    return run


def _json(text: str | bytes | None) -> Any:
    if text is None:
        return None
    import json

    return json.loads(text)


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= MAX_LIMIT:
        raise UsageError(f"A limit must be between 1 and {MAX_LIMIT}, not {limit}.")


def _cursor_id(cursor: str | None) -> int:
    if cursor is None:
        return HIGHEST_ID
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise UsageError(f"{cursor[:40]!r} is no cursor.", hint="Use the next_cursor of the page before.")
    return int(cursor)
