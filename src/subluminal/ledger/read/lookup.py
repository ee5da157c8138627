"""From what a person types to the run or call that is meant: an id, or a beginning or end of one (`short_ids`)."""

from __future__ import annotations

import sqlite3

from subluminal.contracts.errors import LedgerError
from subluminal.contracts.short_ids import MIN_PIECE

LISTED = 8
ONE_LINE = 120  # more than this is a list that nobody reads in a sentence


def runs_named(connection: sqlite3.Connection, piece: str) -> list[str]:
    """The run of exactly this id, or those whose id begins with it, or else ends with it; at most LISTED + 1."""
    for condition, values in _ways("run_id", piece):
        sql = f"SELECT run_id FROM runs WHERE {condition} ORDER BY run_id LIMIT {LISTED + 1}"
        found = [str(row[0]) for row in connection.execute(sql, values)]
        if found:
            return [piece] if piece in found else found
    return []


def calls_named(
    connection: sqlite3.Connection, piece: str, run_id: str | None = None, shim_id: str | None = None
) -> list[tuple[str, str, str]]:
    """(call_id, run_id, shim_id), likewise. One id may be used by several runs, and by several shims of one."""
    for condition, values in _ways("c.call_id", piece):
        sql = (
            "SELECT c.call_id, c.run_id, coalesce(p.shim_id, '') FROM tool_calls c INDEXED BY tool_calls_call"
            f" LEFT JOIN producers p USING (producer_no) WHERE {condition}"
        )
        for column, value in (("c.run_id", run_id), ("p.shim_id", shim_id)):
            if value is not None:
                sql += f" AND {column} = ?"
                values.append(value)
        rows = connection.execute(f"{sql} ORDER BY c.call_id, c.run_id LIMIT {LISTED + 1}", values)
        found = [(str(row[0]), str(row[1]), str(row[2])) for row in rows]
        if found:
            return [names for names in found if names[0] == piece] or found
    return []


def _ways(column: str, piece: str) -> list[tuple[str, list[str | int]]]:
    """Beginnings are a range of an index; ends need a look at every id, so they come last."""
    ways: list[tuple[str, list[str | int]]] = [(f"{column} >= ? AND {column} < ?", [piece, piece + "\U0010ffff"])]
    if len(piece) >= MIN_PIECE:
        ways.append((f"substr({column}, ?) = ?", [-len(piece), piece]))
    return ways


def ambiguous(what: str, name: str, candidates: list[str]) -> LedgerError:
    listed = [*candidates[:LISTED], *(["…"] if len(candidates) > LISTED else [])]
    whole = f" {', '.join(listed)}."
    if len(whole) > ONE_LINE:
        whole = "".join(f"\n    {each}" for each in listed)
    ways = "begins with" if any(each.startswith(name) for each in candidates) else "ends with"
    return LedgerError(f"More than one {what} {ways} {name!r}:{whole}", hint="Give more of its id.")
