"""Schema 2 to 3: the rows of calls of which several producers spoke, or one whose call it was not.

Under schema 2 a call was known by its id alone, so that any producer could change it. Its row is made again from the
events, by the rule of `fold.ownership`. Only such calls are touched: a row that was edited by hand before stays as it
is, and `sub verify` still finds it. A run whose record cannot be read is left alone for the same reason.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import msgspec
from msgspec import Struct

from subluminal.contracts.counts import COUNTERS, is_error
from subluminal.ledger.fold.call import CALL_COLUMNS
from subluminal.ledger.fold.ownership import is_foreign
from subluminal.ledger.store.encoding import unpack_lines

_LATER = ("observed",)  # columns that schema 3 does not have yet, of what no event told then
_COPIED = {
    "tool_calls": ("id", *(name for name in CALL_COLUMNS if name not in _LATER)),
    "previews": ("id", "call_id", "args_preview", "result_preview", "redaction_flags"),
    "hints": ("id", "call_id", "hint_text", "suggested_args_json", "created_at", "hint_kind", "retry_advice"),
}
_COUNT = (
    "UPDATE runs SET calls_total = calls_total + ?, calls_allowed = calls_allowed + ?,"
    " calls_blocked = calls_blocked + ?, calls_throttled = calls_throttled + ?, errors_total = errors_total + ?"
    " WHERE run_id = ?"
)


class _Source(Struct):
    shim_id: str


class _Call(Struct):
    call_id: str


class _Glance(Struct):
    """What tells whose call an event speaks of."""

    source: _Source
    call: _Call


_glance = msgspec.json.Decoder(_Glance).decode


def reown(connection: sqlite3.Connection) -> None:
    for run_no, run_id in connection.execute("SELECT run_no, run_id FROM runs").fetchall():
        connection.execute("SAVEPOINT reown")
        try:
            shared = _shared(connection, run_no)
            if shared:
                _make_again(connection, run_no, run_id, shared)
        except Exception:  # zlib.error, BadEvent: the record is damaged
            connection.execute("ROLLBACK TO reown")
        connection.execute("RELEASE reown")


def _lines(connection: sqlite3.Connection, run_no: int) -> Iterator[bytes]:
    for (stored,) in connection.execute("SELECT lines FROM segments WHERE run_no = ? ORDER BY first_n", (run_no,)):
        yield from unpack_lines(stored)


def _shared(connection: sqlite3.Connection, run_no: int) -> list[str]:
    """Calls of which more than one producer, or another than theirs, has spoken."""
    speakers: dict[str, str] = {}
    shared: dict[str, None] = {}
    for line in _lines(connection, run_no):
        try:
            event = _glance(line)
        except msgspec.ValidationError:
            continue  # of no call
        call_id, shim_id = event.call.call_id, event.source.shim_id
        if speakers.setdefault(call_id, shim_id) != shim_id or is_foreign(call_id, shim_id):
            shared[call_id] = None
    return list(shared)


def _make_again(connection: sqlite3.Connection, run_no: int, run_id: str, shared: list[str]) -> None:
    from subluminal.ledger.store.writer import Store  # which opens the schema, as we are doing

    store = Store("")
    with closing(store.connection) as again:
        store.write(lambda: [store.add(line) for line in _lines(connection, run_no)])
        change = [0, 0, 0, 0, 0]
        for call_id in shared:
            _count(change, connection, run_id, call_id, -1)
            _replace(connection, again, run_id, call_id)
            _count(change, connection, run_id, call_id, 1)
        connection.execute(_COUNT, (*change, run_id))
        connection.executemany("INSERT INTO conflicts VALUES (?, ?, ?, ?, ?)", again.execute("SELECT * FROM conflicts"))


def _count(change: list[int], connection: sqlite3.Connection, run_id: str, call_id: str, sign: int) -> None:
    sql = "SELECT decision, status FROM tool_calls WHERE call_id = ? AND run_id = ?"
    for decision, status in connection.execute(sql, (call_id, run_id)):
        change[0] += sign
        if decision in COUNTERS:
            change[("allowed", "blocked", "throttled").index(COUNTERS[decision]) + 1] += sign
        change[4] += sign * is_error(decision, status)


def _replace(connection: sqlite3.Connection, again: sqlite3.Connection, run_id: str, call_id: str) -> None:
    ids = "SELECT id, producer_no FROM tool_calls WHERE call_id = ? AND run_id = ?"
    for number, _ in connection.execute(ids, (call_id, run_id)).fetchall():
        for table in _COPIED:
            connection.execute(f"DELETE FROM {table} WHERE id = ?", (number,))
    for number, producer_no in again.execute(ids, (call_id, run_id)).fetchall():
        (shim_id,) = again.execute("SELECT shim_id FROM producers WHERE producer_no = ?", (producer_no,)).fetchone()
        ours = "SELECT producer_no FROM producers WHERE shim_id = ? AND run_id = ?"
        replaced = {"id": _free_id(connection, number)}
        replaced["producer_no"] = connection.execute(ours, (shim_id, run_id)).fetchone()[0]
        for table, columns in _COPIED.items():
            names, places = ", ".join(columns), ", ".join("?" * len(columns))
            for row in again.execute(f"SELECT {names} FROM {table} WHERE id = ?", (number,)).fetchall():
                values = [replaced.get(name, value) for name, value in zip(columns, row, strict=True)]
                connection.execute(f"INSERT INTO {table} ({names}) VALUES ({places})", values)


def _free_id(connection: sqlite3.Connection, number: int) -> int:
    while connection.execute("SELECT 1 FROM tool_calls WHERE id = ?", (number,)).fetchone() is not None:
        number += 1
    return number
