"""Remove whole runs that ended long ago. What stays behind of each is a tombstone with its chain head.

A run is removed in one transaction of its own, and only by the process that owns the store.
"""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import Any, NamedTuple

from subluminal.host.clock import utc_now
from subluminal.ledger.store.writer import Store

_VACUUM_PAGES = 4096


class Shipped(NamedTuple):
    """Of a machine that sends its record to a collector: the last segment that was acknowledged, and runs that may go
    although they were not, for their decisions are kept elsewhere."""

    place: int
    released: frozenset[str] = frozenset()


def prunable(connection: sqlite3.Connection, before: str, shipped: Shipped | None = None) -> list[dict[str, Any]]:
    """Runs that ended before a timestamp. A run that still goes on is never one of them, nor one that is still to be
    sent somewhere."""
    names = ("run_no", "run_id", "ended_at", "calls_total", "event_count")
    sql = f"SELECT {', '.join(names)} FROM runs WHERE status <> 'RUNNING' AND ended_at < ? ORDER BY ended_at"
    runs = [dict(zip(names, tuple(row), strict=True)) for row in connection.execute(sql, (before,))]
    if shipped is None:
        return runs
    waiting = "SELECT DISTINCT run_no FROM segments WHERE id > ?"
    unsent = {row[0] for row in connection.execute(waiting, (shipped.place,))}
    return [run for run in runs if run["run_no"] not in unsent or run["run_id"] in shipped.released]


def prune(store: Store, before: str, shipped: Shipped | None = None) -> list[dict[str, Any]]:
    """Remove them; returns what was removed."""
    runs = prunable(store.connection, before, shipped)
    for run in runs:
        store.remove_run(run["run_id"], partial(_remove, store.connection, run))
    if runs:
        # As a script: `execute` takes one step of a pragma without columns, which gives one page back.
        store.connection.executescript(f"PRAGMA incremental_vacuum({_VACUUM_PAGES * len(runs)})")
        # What was removed stands in the WAL as well; a reader that is in the way only leaves that for later.
        store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return runs


def _remove(connection: sqlite3.Connection, run: dict[str, Any]) -> None:
    run_no, run_id = run["run_no"], run["run_id"]
    connection.execute(
        "INSERT OR REPLACE INTO tombstones (run_id, event_count, chain_head, ended_at, pruned_at)"
        " SELECT run_id, event_count, chain_head, ended_at, ? FROM runs WHERE run_no = ?",
        (utc_now(), run_no),
    )
    for table in ("previews", "hints"):
        connection.execute(f"DELETE FROM {table} WHERE id IN (SELECT id FROM tool_calls WHERE run_id = ?)", (run_id,))
    for table in ("joined", "tool_calls", "producers", "agent_events", "conflicts", "tool_versions", "runs"):
        connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))
    for table in ("spans", "segments"):
        connection.execute(f"DELETE FROM {table} WHERE run_no = ?", (run_no,))
