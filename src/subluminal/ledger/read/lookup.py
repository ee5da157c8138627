"""From what a person types to the run or call that is meant: an id, or the beginning of one if it is unambiguous."""

from __future__ import annotations

import sqlite3

from subluminal.contracts.errors import LedgerError

LISTED = 8


def runs_beginning(connection: sqlite3.Connection, prefix: str) -> list[str]:
    """The run of exactly this id, or those whose id begins with it; at most LISTED + 1."""
    sql = f"SELECT run_id FROM runs WHERE run_id >= ? AND run_id < ? ORDER BY run_id LIMIT {LISTED + 1}"
    found = [str(row[0]) for row in connection.execute(sql, prefix_range(prefix))]
    return [prefix] if prefix in found else found


def calls_beginning(connection: sqlite3.Connection, prefix: str, run_id: str | None = None) -> list[tuple[str, str]]:
    """(call_id, run_id), likewise. One id may be used by several runs."""
    sql = "SELECT call_id, run_id FROM tool_calls WHERE call_id >= ? AND call_id < ?"
    values = prefix_range(prefix)
    if run_id is not None:
        sql += " AND run_id = ?"
        values.append(run_id)
    rows = connection.execute(f"{sql} ORDER BY call_id, run_id LIMIT {LISTED + 1}", values)
    found = [(str(row[0]), str(row[1])) for row in rows]
    return [pair for pair in found if pair[0] == prefix] or found


def ambiguous(what: str, name: str, candidates: list[str]) -> LedgerError:
    listed = ", ".join(candidates[:LISTED]) + (", …" if len(candidates) > LISTED else "")
    return LedgerError(f"More than one {what} begins with {name!r}: {listed}.", hint="Give more of its id.")


def prefix_range(prefix: str) -> list[str]:
    return [prefix, prefix + "\U0010ffff"]
