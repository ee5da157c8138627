"""From what a person types to the run or call that is meant: an id, or the beginning of one if it is unambiguous."""

from __future__ import annotations

import sqlite3

from subluminal.contracts.errors import LedgerError

LISTED = 8
ONE_LINE = 120  # more than this is a list that nobody reads in a sentence


def runs_beginning(connection: sqlite3.Connection, prefix: str) -> list[str]:
    """The run of exactly this id, or those whose id begins with it; at most LISTED + 1."""
    sql = f"SELECT run_id FROM runs WHERE run_id >= ? AND run_id < ? ORDER BY run_id LIMIT {LISTED + 1}"
    found = [str(row[0]) for row in connection.execute(sql, prefix_range(prefix))]
    return [prefix] if prefix in found else found


def calls_beginning(
    connection: sqlite3.Connection, prefix: str, run_id: str | None = None, shim_id: str | None = None
) -> list[tuple[str, str, str]]:
    """(call_id, run_id, shim_id), likewise. One id may be used by several runs, and by several shims of one."""
    sql = (
        "SELECT c.call_id, c.run_id, coalesce(p.shim_id, '') FROM tool_calls c INDEXED BY tool_calls_call"
        " LEFT JOIN producers p USING (producer_no) WHERE c.call_id >= ? AND c.call_id < ?"
    )
    values = prefix_range(prefix)
    for column, value in (("c.run_id", run_id), ("p.shim_id", shim_id)):
        if value is not None:
            sql += f" AND {column} = ?"
            values.append(value)
    rows = connection.execute(f"{sql} ORDER BY c.call_id, c.run_id LIMIT {LISTED + 1}", values)
    found = [(str(row[0]), str(row[1]), str(row[2])) for row in rows]
    return [names for names in found if names[0] == prefix] or found


def ambiguous(what: str, name: str, candidates: list[str]) -> LedgerError:
    listed = [*candidates[:LISTED], *(["…"] if len(candidates) > LISTED else [])]
    whole = f" {', '.join(listed)}."
    if len(whole) > ONE_LINE:
        whole = "".join(f"\n    {each}" for each in listed)
    return LedgerError(f"More than one {what} begins with {name!r}:{whole}", hint="Give more of its id.")


def prefix_range(prefix: str) -> list[str]:
    return [prefix, prefix + "\U0010ffff"]
