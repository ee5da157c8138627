"""The database around the runs: is the file sound, is its schema the one we made, does every row belong to a run?

The proof of a run reads tables by their row ids and by the run. Whoever queries goes by indexes, over all runs; so an
index that was built anew without a row, a view or a trigger in the way, and rows of no run are looked for here.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from functools import cache
from typing import Any

from subluminal.ledger.store.chain import Head
from subluminal.ledger.store.policies import is_snapshot
from subluminal.ledger.store.schema import open_writer
from subluminal.ledger.trace.rebuilt import Rebuilt
from subluminal.ledger.trace.report import DATABASE, DatabaseReport, Fault

FULL, QUICK = "full", "quick"
# Above this, one run is proved without reading all of the database: the full check takes a second for some 100 MiB.
FULL_BELOW_BYTES = 64 << 20
MAX_FAULTS = 20
# What no event tells: an edit here is not found.
NOT_COVERED = (
    "journals, rejected, meta: how far journals were read, and what was set aside",
    "producers.journal, producers.producer_no, runs.run_no: numbers and ways that are the ledger's own",
    "segments.id: the order of arrival between runs",
    "tombstones.ended_at, tombstones.pruned_at",
    "policy_versions.rules_json: whether it is there; a text that is there is checked",
    "tool_calls.id: by a few seconds, and its tie-break",
)


def check_database(connection: sqlite3.Connection, path: str, *, full: bool | None = None) -> DatabaseReport:
    """`full` None: as far as the size allows at once. What all runs' events say is added by `Catalogue.check`."""
    if full is None:
        full = _size(path) <= FULL_BELOW_BYTES
    faults = _integrity(connection, full) + _schema(connection)
    if full and not faults:
        faults = _orphans(connection)
    return DatabaseReport(path, FULL if full else QUICK, False, faults[:MAX_FAULTS], NOT_COVERED)


def _size(path: str) -> int:
    return sum(os.stat(path + end).st_size for end in ("", "-wal") if os.path.exists(path + end))


def _fault(what: str) -> Fault:
    return Fault(what, part=DATABASE)


def unreadable(error: sqlite3.DatabaseError) -> Fault:
    return _fault(f"the database cannot be read: {error}")


def _integrity(connection: sqlite3.Connection, full: bool) -> list[Fault]:
    pragma = "integrity_check" if full else "quick_check"
    try:
        said = [str(row[0]) for row in connection.execute(f"PRAGMA {pragma}({MAX_FAULTS})")]
    except sqlite3.DatabaseError as error:
        said = [str(error)]
    return [] if said == ["ok"] else [_fault(f"SQLite finds damage: {text}") for text in said]


# -- the schema ---------------------------------------------------------------------------------------------------


def _objects(connection: sqlite3.Connection) -> dict[str, tuple[Any, ...]]:
    """By name. What ANALYZE leaves behind changes no answer."""
    sql = "SELECT name, type, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_stat%'"
    return {row[0]: tuple(row[1:]) for row in connection.execute(sql)}


@cache
def _expected() -> dict[str, tuple[Any, ...]]:
    with closing(open_writer("")) as made:
        return _objects(made)


def _schema(connection: sqlite3.Connection) -> list[Fault]:
    try:
        found = _objects(connection)
    except sqlite3.DatabaseError as error:
        return [_fault(f"the schema cannot be read: {error}")]
    faults = []
    for name, (kind, table, sql) in _expected().items():
        if name not in found:
            faults.append(_fault(f"the {kind} {name} is missing"))
        elif found[name] != (kind, table, sql):
            faults.append(_fault(f"the {kind} {name} is not as Subluminal makes it"))
    return faults + [_fault(f"the {found[name][0]} {name} is not Subluminal's") for name in found.keys() - _expected()]


# -- rows of no run -------------------------------------------------------------------------------------------------

_NO_RUN = "run_id NOT IN (SELECT run_id FROM runs)"
_NO_RUN_NO = "NOT IN (SELECT run_no FROM runs)"
_ORPHANS = {
    "tool_calls of no run": f"SELECT count(*) FROM tool_calls WHERE {_NO_RUN}",
    "producers of no run": f"SELECT count(*) FROM producers WHERE {_NO_RUN}",
    "agent_events of no run": f"SELECT count(*) FROM agent_events WHERE {_NO_RUN}",
    "tool_versions of no run": f"SELECT count(*) FROM tool_versions WHERE {_NO_RUN}",
    "joined of no call": "SELECT count(*) FROM joined WHERE id NOT IN (SELECT id FROM tool_calls)",
    "conflicts of no run": f"SELECT count(*) FROM conflicts WHERE {_NO_RUN}",
    "previews of no call": "SELECT count(*) FROM previews WHERE id NOT IN (SELECT id FROM tool_calls)",
    "hints of no call": "SELECT count(*) FROM hints WHERE id NOT IN (SELECT id FROM tool_calls)",
    "spans of no run": f"SELECT count(*) FROM spans WHERE run_no {_NO_RUN_NO}",
    "segments of no run": f"SELECT count(*) FROM segments WHERE run_no {_NO_RUN_NO}",
    "segments out of the order of their run": (
        "SELECT count(*) FROM (SELECT id, lag(id) OVER (PARTITION BY run_no ORDER BY first_n) AS before FROM segments)"
        " WHERE id < before"
    ),
}


def _orphans(connection: sqlite3.Connection) -> list[Fault]:
    counts = {name: connection.execute(sql).fetchone()[0] for name, sql in _ORPHANS.items()}
    return [_fault(f"{count} {name}") for name, count in counts.items() if count]


# -- tables that all runs fill --------------------------------------------------------------------------------------


# Of a run that was pruned and has come again, the witness speaks of what is there.
_TOMBSTONES = f"SELECT run_id, event_count, chain_head FROM tombstones WHERE {_NO_RUN}"


class Catalogue:
    """What the events of all runs name: for `policy_versions`, `server_tools` and `tombstones`, which are of no run."""

    def __init__(self) -> None:
        self._tools: set[tuple[Any, ...]] = set()
        self._modes: dict[tuple[Any, ...], set[Any]] = {}
        self._moments: dict[tuple[Any, ...], set[Any]] = {}

    def add(self, rebuilt: Rebuilt) -> None:
        self._tools.update(rebuilt.tools())
        for *key, mode, created_at in rebuilt.policies():
            self._modes.setdefault(tuple(key), set()).add(mode)
            self._moments.setdefault(tuple(key), set()).add(created_at)

    def check(self, connection: sqlite3.Connection, heads: dict[str, Head]) -> list[Fault]:
        """`heads`, read after the snapshot of the database was taken: a run is announced there, and then removed."""
        # What only runs that were pruned have named stays, and no event speaks for it.
        all_runs = not any(head.pruned for head in heads.values())
        return [*self._check_tools(connection, all_runs), *self._check_policies(connection, all_runs)] + [
            _fault(f"the tombstone of run {run_id} is not what ledger.heads announces")
            for run_id, count, head in connection.execute(_TOMBSTONES)
            if heads.get(run_id) != Head(count, head, pruned=True)
        ]

    def _check_tools(self, connection: sqlite3.Connection, all_runs: bool) -> list[Fault]:
        known = {tuple(row) for row in connection.execute("SELECT server_name, tool_name FROM server_tools")}
        return [
            _fault(f"server_tools has the tool {tool} of {server}, of which no event speaks")
            for server, tool in sorted(known - self._tools)
            if all_runs
        ]

    def _check_policies(self, connection: sqlite3.Connection, all_runs: bool) -> list[Fault]:
        faults = []
        sql = "SELECT policy_id, version, rules_hash, mode, created_at, rules_json FROM policy_versions"
        for *names, mode, created_at, text in connection.execute(sql):
            key, name = tuple(names), f"policy_versions: {names[0]} {names[1]}"
            modes, moments = self._modes.get(key, set()), self._moments.get(key, set())
            if text is not None and not is_snapshot(str(text).encode(), names[2]):
                faults.append(_fault(f"{name} has a text that has not its hash"))
            if all_runs and key not in self._modes:
                faults.append(_fault(f"{name} is there, but no event speaks of it"))
            elif all_runs and (mode not in modes or (mode is None and modes != {None})):
                faults.append(_fault(f"{name} has a mode of which no event speaks"))
            elif all_runs and created_at not in moments:
                faults.append(_fault(f"{name} was not first named at {created_at}"))
        return faults
