"""The state of the ledger for `sub doctor`: facts only, never raises, needs no daemon."""

from __future__ import annotations

import os
import sqlite3
import stat
from typing import Any

from subluminal.contracts.errors import SubluminalError
from subluminal.host import home
from subluminal.host.record.journal import list_journals
from subluminal.ledger.daemon.contact import ask
from subluminal.ledger.store.schema import open_reader

_DISPUTED = "SELECT source, line_no, reason FROM rejected WHERE reason GLOB ? OR reason GLOB ? ORDER BY id LIMIT 1000"


def ledger_health() -> dict[str, Any]:
    """What is known; a fact that is not known is None. `problem`: why the database cannot be read, and what to do."""
    health = {"path": home.ledger_db(), **_database()}
    return {**health, **_spool(health.pop("offsets")), **_daemon(), **_rights()}


def _database() -> dict[str, Any]:
    path = home.ledger_db()
    facts: dict[str, Any] = {"exists": os.path.exists(path), "size_bytes": None, "runs": None, "calls": None}
    facts |= {"events": None, "rejected_lines": None, "disputed_lines": None, "schema_version": None}
    facts |= {"offsets": {}, "problem": None}
    if not facts["exists"]:
        return facts
    from subluminal.ledger.store.writer import DISPUTES  # not where nothing was ever recorded

    facts["size_bytes"] = sum(_size(path + suffix) for suffix in ("", "-wal"))
    try:
        connection = open_reader(path)
    except SubluminalError as error:
        facts["problem"] = f"{error} {error.hint or ''}".strip()
        return facts
    try:
        sql = "SELECT count(*), coalesce(sum(event_count), 0), coalesce(sum(calls_total), 0) FROM runs"
        facts["runs"], facts["events"], facts["calls"] = connection.execute(sql).fetchone()
        facts["rejected_lines"] = connection.execute("SELECT count(*) FROM rejected").fetchone()[0]
        facts["disputed_lines"] = [dict(row) for row in connection.execute(_DISPUTED, DISPUTES)]
        facts["schema_version"] = connection.execute("PRAGMA user_version").fetchone()[0]
        facts["offsets"] = {row[0]: row[1] for row in connection.execute("SELECT name, offset FROM journals")}
    except sqlite3.Error as error:
        facts["problem"] = f"The ledger {path} cannot be read: {error}. Restore it from a copy, or move it away."
    finally:
        connection.close()
    return facts


def _spool(offsets: dict[str, int]) -> dict[str, Any]:
    spool = home.spool_dir()
    try:
        names = list_journals(spool)
    except OSError:
        names = []
    lag = sum(max(0, _size(os.path.join(spool, name)) - offsets.get(name, 0)) for name in names)
    return {"journals": len(names), "lag_bytes": lag}


def _daemon() -> dict[str, Any]:
    try:
        answer = ask({"control": "status"}, timeout=2.0)
    except SubluminalError:
        answer = None
    state = (answer or {}).get("status") or {}
    return {"daemon_pid": state.get("pid"), "last_error": state.get("last_error"), "daemon": state or None}


def _rights() -> dict[str, Any]:
    places = {"home_mode": home.sub_home(), "socket_mode": home.ledger_socket(), "database_mode": home.ledger_db()}
    return {name: _mode(path) for name, path in places.items()}


def _mode(path: str) -> str | None:
    try:
        return f"{stat.S_IMODE(os.lstat(path).st_mode):04o}"
    except OSError:
        return None


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
