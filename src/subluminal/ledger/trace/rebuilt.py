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


class Rebuilt:
    """In a temporary database that SQLite removes by itself."""

    def __init__(self) -> None:
        self._store = Store("")

    def __enter__(self) -> Rebuilt:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.connection.close()

    def replay(self, lines: list[bytes]) -> None:
        def work() -> None:
            for line in lines:
                self._store.add(line)

        self._store.write(work)
        lines.clear()

    def differences(self, connection: sqlite3.Connection, run_id: str) -> list[Fault]:
        """The first row that differs from what the events say; none if all agree."""
        for query, name in _QUERIES:
            fault = self._compare(connection, run_id, query, name)
            if fault is not None:
                return [fault]
        return self._catalogued(connection)

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
    only, values = ("WHERE run_id = ?", (run_id,)) if run_id is not None else ("", ())
    claims = f"SELECT run_id, call_id, shim_id, claimed_by, event FROM conflicts {only} LIMIT {MAX_CONFLICTS}"
    shared = (
        "SELECT c.run_id, c.call_id, group_concat(p.shim_id, char(10))"
        f" FROM (SELECT run_id, call_id FROM tool_calls {only} GROUP BY call_id, run_id HAVING count(*) > 1) c"
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


_NUMBER = (1 << N_BITS) - 1
_BY_CALL = "WHERE c.run_id = ? ORDER BY c.call_id, s.shim_id"
_QUERIES = (
    # The chain columns are checked with the chain itself.
    (f"SELECT {', '.join(RUN_COLUMNS[1:-2])} FROM runs WHERE run_id = ?", "the run's row"),
    (
        "SELECT shim_id, host_id, proc_id, last_seq, started_at, ended_at, status FROM producers"
        " WHERE run_id = ? ORDER BY shim_id",
        "a producer's row",
    ),
    (
        f"SELECT c.call_id, {', '.join('c.' + column for column in CALL_COLUMNS[1:] if column != 'producer_no')},"
        f" s.shim_id, c.id >> {TIE_BITS} AS id_ms"
        f" FROM tool_calls c LEFT JOIN producers s USING (producer_no) {_BY_CALL}",
        "the call's row",
    ),
    (
        "SELECT c.call_id, p.call_id, p.args_preview, p.result_preview, p.redaction_flags"
        f" FROM tool_calls c LEFT JOIN previews p USING (id) LEFT JOIN producers s USING (producer_no) {_BY_CALL}",
        "the call's preview",
    ),
    (
        "SELECT c.call_id, h.call_id, h.hint_text, h.suggested_args_json, h.created_at, h.hint_kind, h.retry_advice"
        f" FROM tool_calls c LEFT JOIN hints h USING (id) LEFT JOIN producers s USING (producer_no) {_BY_CALL}",
        "the call's hint",
    ),
    (
        "SELECT c.call_id, s.shim_id, j.run_id FROM tool_calls c JOIN joined j USING (id)"
        f" LEFT JOIN producers s USING (producer_no) {_BY_CALL}",
        "the call's row in joined",
    ),
    # Their number in the chain, which is the lower half of their id, is theirs alone.
    (
        f"SELECT a.id - (r.run_no << {N_BITS}), a.at, a.agent_kind, a.kind, a.channel, a.text, a.message, a.data_json,"
        " a.tool_id FROM agent_events a JOIN runs r USING (run_id) WHERE a.run_id = ? ORDER BY a.id",
        "an agent event's row",
    ),
    (
        f"SELECT e.id & {_NUMBER}, e.seq, p.shim_id, p.run_id FROM runs r JOIN events e"
        f" ON e.id > r.run_no << {N_BITS} AND e.id < (r.run_no + 1) << {N_BITS}"
        " LEFT JOIN producers p USING (producer_no) WHERE r.run_id = ? ORDER BY e.id",
        "an event's row",
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
_POLICIES = "SELECT policy_id, version, rules_hash, mode, created_at FROM policy_versions"
