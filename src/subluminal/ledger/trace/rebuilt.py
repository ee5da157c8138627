"""A run's rows made again from its events, and held against those of the ledger. Every row of every table that speaks
of the run is compared; `database.NOT_COVERED` says what no event tells."""

from __future__ import annotations

import sqlite3
from typing import Any

from subluminal.ledger.fold.call import CALL_COLUMNS
from subluminal.ledger.fold.run import RUN_COLUMNS
from subluminal.ledger.store.encoding import unpack_text
from subluminal.ledger.store.lines import N_BITS, TIE_BITS
from subluminal.ledger.store.policies import is_snapshot
from subluminal.ledger.store.tool_versions import COLUMNS as VERSION_COLUMNS
from subluminal.ledger.store.writer import Store
from subluminal.ledger.trace.report import OWNERS, ROWS, Fault

# The id of a call is its millisecond, but one that is full gives way to the next, and it fills up otherwise where other
# runs are not there: a burst of a million calls in one millisecond moves an id by no more than this.
_ID_TOLERANCE_MS = 5_000
MAX_CONFLICTS = 100


# Without the others, rows are written in half the time: these are what the store and the comparison go by.
_INDEXES = ("tool_calls_call", "tool_calls_run", "tool_calls_use", "spans_producer")


class Rebuilt:
    """In a temporary database that SQLite removes by itself. `keeping`: a line that comes again is held against the
    first; without it, such a line is passed over, and the run's spans tell that it is there."""

    def __init__(self, *, keeping: bool = False) -> None:
        self._store = Store("", keeping=keeping)
        connection = self._store.connection
        connection.execute("PRAGMA journal_mode = MEMORY")
        indexes = "SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"
        for (name,) in connection.execute(indexes).fetchall():
            if name not in _INDEXES:
                connection.execute(f"DROP INDEX {name}")
        self._tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]

    def __enter__(self) -> Rebuilt:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.connection.close()

    def clear(self) -> None:
        """For the next run: a database for each would take longer than most runs do."""
        for table in self._tables:
            self._store.connection.execute(f"DELETE FROM {table}")
        self._store.forget()

    def replay(self, lines: list[bytes]) -> None:
        def work() -> None:
            for _, error in self._store.take(lines):
                raise error

        self._store.write(work)
        lines.clear()

    def differences(self, connection: sqlite3.Connection, run_id: str) -> list[Fault]:
        """The first row that differs from what the events say; none if all agree."""
        for query, name in _QUERIES if self._are_equal(connection, run_id) else (*_QUERIES, *_OF_CALLS):
            fault = self._compare(connection, run_id, query, name)
            if fault is not None:
                return [fault]
        return self._catalogued(connection)

    def _are_equal(self, connection: sqlite3.Connection, run_id: str) -> bool:
        """Whether all that is told of its calls is the same, to the byte: a walk along an index on either side. Where
        it is not, `_OF_CALLS` find the call, or that the difference is none (`_agree`)."""
        stored, expected = connection.execute(_CALLS, (run_id,)), self._store.connection.execute(_CALLS, (run_id,))
        stored.row_factory = None
        while True:
            found = stored.fetchmany(_FETCHED)
            if found != expected.fetchmany(_FETCHED):
                return False
            if not found:
                return True

    def conflicts(self, run_id: str) -> list[Fault]:
        """Producers of the run that spoke of each other's calls."""
        return conflicts(self._store.connection, run_id)

    def policies(self) -> list[tuple[Any, ...]]:
        return self._store.connection.execute(_POLICIES).fetchall()

    def tools(self) -> list[tuple[Any, ...]]:
        return self._store.connection.execute("SELECT server_name, tool_name FROM server_tools").fetchall()

    def _catalogued(self, connection: sqlite3.Connection) -> list[Fault]:
        """Tools and policies that the run's events name must be there; a policy's text must have the hash they name."""
        for tool in self.tools():
            sql = "SELECT 1 FROM server_tools WHERE server_name = ? AND tool_name = ?"
            if connection.execute(sql, tool).fetchone() is None:
                return [Fault(f"the tool {tool[1]} of {tool[0]} is missing in server_tools", part=ROWS)]
        for policy_id, version, policy_hash, _, _ in self.policies():
            sql = "SELECT rules_json FROM policy_versions WHERE policy_id = ? AND version = ? AND rules_hash = ?"
            row = connection.execute(sql, (policy_id, version, policy_hash)).fetchone()
            if row is None:
                return [Fault(f"policy {policy_id} {version} is missing in policy_versions", part=ROWS)]
            if row[0] is not None and not is_snapshot(str(row[0]).encode(), policy_hash):
                what = f"the text of policy {policy_hash[:16]}… is not the one that was in force"
                return [Fault(what, part=ROWS)]
        return []

    def _compare(self, connection: sqlite3.Connection, run_id: str, query: str, name: str) -> Fault | None:
        stored = connection.execute(query, (run_id,))
        stored.row_factory = None
        columns = [column[0] for column in stored.description]
        expected = self._store.connection.execute(query, (run_id,))
        while True:
            found, wanted = stored.fetchone(), expected.fetchone()
            if found == wanted:
                if found is None:
                    return None
                continue
            # Both come in the order of their first column, so the smaller key is the one without a partner.
            if found is None or (wanted is not None and wanted[0] < found[0]):
                return Fault(f"{name} is missing", call_id=str(wanted[0]), part=ROWS)
            if wanted is None or found[0] < wanted[0]:
                return Fault(f"{name} is there, but no event speaks of it", call_id=str(found[0]), part=ROWS)
            pairs = zip(columns, found, wanted, strict=True)
            wrong = [column for column, one, other in pairs if not _agree(column, one, other)]
            if wrong:
                what = f"{name} disagrees with the events in {', '.join(wrong)}"
                return Fault(what, call_id=str(wanted[0]), part=ROWS)


def _agree(column: str, one: Any, other: Any) -> bool:
    if column == "id_ms" and one is not None and other is not None:
        return bool(abs(one - other) <= _ID_TOLERANCE_MS)
    return one == other or _plain(one) == _plain(other)


def _plain(value: object) -> object:
    """A deflated preview by its content: zlib may give other bytes on another machine."""
    if isinstance(value, bytes) and value[:1] == b"\x78":
        try:
            return unpack_text(value)
        except Exception:  # a damaged one is compared as it is, and differs
            return value
    return value


def conflicts(connection: sqlite3.Connection, run_id: str | None = None) -> list[Fault]:
    """Claims on calls of another producer, and ids that several producers gave to calls of their own."""
    # Of all runs: only ids that come twice are looked at, which the index alone tells.
    twice = "call_id IN (SELECT call_id FROM tool_calls GROUP BY call_id HAVING count(*) > 1)"
    only, values = ("run_id = ?", (run_id,)) if run_id is not None else (twice, ())
    claims = "SELECT run_id, call_id, shim_id, claimed_by, event FROM conflicts"
    claims += f"{' WHERE run_id = ?' if run_id is not None else ''} LIMIT {MAX_CONFLICTS}"
    shared = (
        "SELECT c.run_id, c.call_id, group_concat(p.shim_id, char(10))"
        f" FROM (SELECT run_id, call_id FROM tool_calls WHERE {only} GROUP BY call_id, run_id HAVING count(*) > 1) c"
        " JOIN tool_calls t ON t.call_id = c.call_id AND t.run_id = c.run_id"
        f" JOIN producers p USING (producer_no) GROUP BY c.call_id, c.run_id LIMIT {MAX_CONFLICTS}"
    )
    faults = []
    for run, call_id, owner, claimed_by, event in connection.execute(claims, values):
        what = f"{_of(run, run_id)}shim {claimed_by} speaks of a call of shim {owner}"
        faults.append(Fault(what, event, call_id, OWNERS, [owner, claimed_by]))
    for run, call_id, names in connection.execute(shared, values):
        shim_ids = sorted(names.split("\n"))
        what = f"{_of(run, run_id)}shims {' and '.join(shim_ids)} both have a call of this id"
        faults.append(Fault(what, None, call_id, OWNERS, shim_ids))
    return faults


def _of(run: str, asked: str | None) -> str:
    return "" if asked is not None else f"run {run}: "


_FETCHED = 500
_CALL = ", ".join("c." + column for column in CALL_COLUMNS[1:] if column != "producer_no")
_PREVIEW = "p.call_id, p.args_preview, p.result_preview, p.redaction_flags"
_HINT = "h.call_id, h.hint_text, h.suggested_args_json, h.created_at, h.hint_kind, h.retry_advice"
_CALLS = (
    f"SELECT c.call_id, {_CALL}, s.shim_id, c.id >> {TIE_BITS}, {_PREVIEW}, {_HINT}, j.run_id"
    " FROM tool_calls c INDEXED BY tool_calls_run LEFT JOIN producers s USING (producer_no)"
    " LEFT JOIN previews p ON p.id = c.id LEFT JOIN hints h ON h.id = c.id LEFT JOIN joined j ON j.id = c.id"
    " WHERE c.run_id = ? ORDER BY c.created_at, c.call_id, s.shim_id"
)
_BY_CALL = "WHERE c.run_id = ? ORDER BY c.call_id, s.shim_id"
_QUERIES = (
    # The chain columns are checked with the chain itself.
    (f"SELECT {', '.join(RUN_COLUMNS[1:-2])} FROM runs WHERE run_id = ?", "the run's row"),
    (
        "SELECT shim_id, host_id, proc_id, last_seq, started_at, ended_at, status FROM producers"
        " WHERE run_id = ? ORDER BY shim_id",
        "a producer's row",
    ),
    # Their number in the chain, which is the lower half of their id, is theirs alone.
    (
        f"SELECT a.id - (r.run_no << {N_BITS}), a.at, a.agent_kind, a.kind, a.channel, a.text, a.message, a.data_json,"
        " a.tool_id FROM agent_events a JOIN runs r USING (run_id) WHERE a.run_id = ? ORDER BY a.id",
        "an agent event's row",
    ),
    (
        "SELECT e.first_n, e.count, e.first_seq, p.shim_id, p.run_id FROM runs r JOIN spans e USING (run_no)"
        " LEFT JOIN producers p USING (producer_no) WHERE r.run_id = ? ORDER BY e.first_n",
        "a span's row",
    ),
    (
        f"SELECT event, {', '.join(column for column in VERSION_COLUMNS if column not in ('run_id', 'event'))}"
        " FROM tool_versions WHERE run_id = ? ORDER BY event, position",
        "a tool version's row",
    ),
    (
        "SELECT call_id, shim_id, claimed_by, event FROM conflicts WHERE run_id = ? ORDER BY call_id, claimed_by",
        "a conflict's row",
    ),
)
_OF_CALLS = (
    (
        f"SELECT c.call_id, {_CALL}, s.shim_id, c.id >> {TIE_BITS} AS id_ms"
        f" FROM tool_calls c LEFT JOIN producers s USING (producer_no) {_BY_CALL}",
        "the call's row",
    ),
    (
        f"SELECT c.call_id, {_PREVIEW}"
        f" FROM tool_calls c LEFT JOIN previews p USING (id) LEFT JOIN producers s USING (producer_no) {_BY_CALL}",
        "the call's preview",
    ),
    (
        f"SELECT c.call_id, {_HINT}"
        f" FROM tool_calls c LEFT JOIN hints h USING (id) LEFT JOIN producers s USING (producer_no) {_BY_CALL}",
        "the call's hint",
    ),
    (
        "SELECT c.call_id, s.shim_id, j.run_id FROM tool_calls c JOIN joined j USING (id)"
        f" LEFT JOIN producers s USING (producer_no) {_BY_CALL}",
        "the call's row in joined",
    ),
)
_POLICIES = "SELECT policy_id, version, rules_hash, mode, created_at FROM policy_versions"
