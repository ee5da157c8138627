"""`joined`: the rows of calls for which that of another door stands. Whoever lists or counts calls passes over them.

It is worked out from the rows when they are written, so that nobody has to when they are read (`fold.joined`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from subluminal.ledger.fold.joined import MAX_ALIKE, Alike, weight

# In the order in which they were heard of, which does not depend on the numbers that a ledger gives.
_ALIKE = (
    "SELECT id, server_name, tool_name, args_hash, transport, decision, status"
    " FROM tool_calls INDEXED BY tool_calls_use WHERE run_id = ? AND tool_use_id = ? AND tool_use_id IS NOT NULL"
    f" ORDER BY created_at, coalesce(start_event, decision_event, end_event) LIMIT {MAX_ALIKE + 1}"
)
_FORGET = (
    "DELETE FROM joined WHERE id IN (SELECT id FROM tool_calls INDEXED BY tool_calls_use"
    " WHERE run_id = ? AND tool_use_id = ? AND tool_use_id IS NOT NULL)"
)
_SHARED = (
    "SELECT run_id, tool_use_id FROM tool_calls INDEXED BY tool_calls_use WHERE tool_use_id IS NOT NULL"
    " GROUP BY run_id, tool_use_id HAVING count(*) > 1"
)


def join_rows(connection: sqlite3.Connection, touched: Iterable[tuple[str, str]]) -> None:
    """After rows with these (run_id, tool_use_id) were written."""
    for names in touched:
        rows = connection.execute(_ALIKE, names).fetchall()
        if len(rows) < 2:
            continue
        connection.execute(_FORGET, names)
        others = _left_out(rows) if len(rows) <= MAX_ALIKE else []
        connection.executemany("INSERT INTO joined (id, run_id) VALUES (?, ?)", [(each, names[0]) for each in others])


def join_all(connection: sqlite3.Connection) -> None:
    join_rows(connection, connection.execute(_SHARED).fetchall())


def _left_out(rows: list[tuple[int, str, str, str, str | None, str | None, str | None]]) -> list[int]:
    alike = Alike()
    calls: dict[tuple[object, ...], list[tuple[tuple[int, bool], int]]] = {}
    for number, server, tool, args_hash, transport, decision, status in rows:
        whole = alike.call((server, tool, args_hash), transport)
        calls.setdefault(whole, []).append((weight(decision, status), number))
    found = []
    for doors in calls.values():
        standing = max(doors, key=lambda door: door[0])
        found += [number for _, number in doors if number != standing[1]]
    return found
