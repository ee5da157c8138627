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


def ledger_health() -> dict[str, Any]:
    """What is known; a fact that is not known is None.

    `problems` holds sentences, each with what to do; an empty list means that all is well.
    """
    health: dict[str, Any] = {"path": home.ledger_db(), "problems": []}
    health.update(_database(health["problems"]))
    health.update(_spool(health["offsets"], health["problems"]))
    del health["offsets"]
    health.update(_daemon(health["problems"]))
    health.update(_rights(health["problems"]))
    return health


def _database(problems: list[str]) -> dict[str, Any]:
    path = home.ledger_db()
    facts: dict[str, Any] = {"exists": os.path.exists(path), "size_bytes": None, "runs": None, "calls": None}
    facts |= {"events": None, "rejected_lines": None, "schema_version": None, "offsets": {}}
    if not facts["exists"]:
        return facts
    facts["size_bytes"] = sum(_size(path + suffix) for suffix in ("", "-wal"))
    try:
        connection = open_reader(path)
    except SubluminalError as error:
        problems.append(f"{error} {error.hint or ''}".strip())
        return facts
    try:
        facts["runs"], facts["events"], facts["calls"] = connection.execute(
            "SELECT count(*), coalesce(sum(event_count), 0), coalesce(sum(calls_total), 0) FROM runs"
        ).fetchone()
        facts["rejected_lines"] = connection.execute("SELECT count(*) FROM rejected").fetchone()[0]
        facts["schema_version"] = connection.execute("PRAGMA user_version").fetchone()[0]
        facts["offsets"] = {row[0]: row[1] for row in connection.execute("SELECT name, offset FROM journals")}
    except sqlite3.Error as error:
        problems.append(f"The ledger {path} cannot be read: {error}. Restore it from a copy, or move it away.")
    finally:
        connection.close()
    if facts["rejected_lines"]:
        problems.append(f"Lines that are no events were set aside in {home.rejected_dir()}: {facts['rejected_lines']}.")
    return facts


def _spool(offsets: dict[str, int], problems: list[str]) -> dict[str, Any]:
    spool = home.spool_dir()
    try:
        names = list_journals(spool)
    except OSError as error:
        problems.append(f"The spool {spool} cannot be read: {error.strerror}.")
        names = []
    lag = sum(max(0, _size(os.path.join(spool, name)) - offsets.get(name, 0)) for name in names)
    return {"journals": len(names), "lag_bytes": lag}


def _daemon(problems: list[str]) -> dict[str, Any]:
    try:
        answer = ask({"control": "status"}, timeout=2.0)
    except SubluminalError as error:
        problems.append(str(error))
        answer = None
    state = (answer or {}).get("status") or {}
    if state.get("last_error"):
        problems.append(f"ledgerd cannot store events at the moment: {state['last_error']}. The journals keep them.")
    return {"daemon_pid": state.get("pid"), "last_error": state.get("last_error"), "daemon": state or None}


def _rights(problems: list[str]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for name, path, wanted in (
        ("home_mode", home.sub_home(), 0o700),
        ("socket_mode", home.ledger_socket(), 0o600),
        ("database_mode", home.ledger_db(), 0o600),
    ):
        try:
            mode = stat.S_IMODE(os.lstat(path).st_mode)
        except OSError:
            facts[name] = None
            continue
        facts[name] = f"{mode:04o}"
        if mode & 0o077:
            problems.append(f"{path} is open to others ({mode:04o}). Close it: chmod {wanted:o} {path}")
    return facts


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
