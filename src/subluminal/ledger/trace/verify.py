"""Prove that a run's record was not changed: the chain, its witness, and the rows that are folded from it.

An edit, a removal, a reordering or a cut shows as a fault that names the first event it touches. Then every row of the
run is built again from the events and compared, so an edited row counts as an edit although the chain is whole.

Trap: the witness file is read before the snapshot of the database is taken. The other way round, a daemon at work
could put more into the witness than the snapshot holds, and a sound ledger would look cut. Only a run that the snapshot
has not at all is looked up again afterwards, for `sub prune` announces in the witness what it is about to remove.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

from msgspec import Struct

from subluminal.contracts.errors import LedgerError
from subluminal.host.home import heads_path
from subluminal.ledger.fold.call import CALL_COLUMNS
from subluminal.ledger.fold.reading import BadEvent
from subluminal.ledger.fold.run import RUN_COLUMNS
from subluminal.ledger.store.chain import GENESIS, Head, link, read_heads
from subluminal.ledger.store.encoding import unpack_lines, unpack_text
from subluminal.ledger.store.lines import N_BITS
from subluminal.ledger.store.policies import is_snapshot
from subluminal.ledger.store.schema import open_reader
from subluminal.ledger.store.writer import Store

_REPLAY_LINES = 2048


class Fault(Struct, omit_defaults=True):
    """What is wrong. `event` is the first event concerned, counted from 1 in its run."""

    what: str
    event: int | None = None
    call_id: str | None = None


class Report(Struct):
    run_id: str
    events: int
    head: str
    faults: list[Fault]
    witnessed: int | None = None  # events that the witness vouches for; none is known of a bundle

    @property
    def ok(self) -> bool:
        return not self.faults


def verify_run(path: str, run_id: str) -> Report:
    heads = read_heads(heads_path(path))
    with closing(open_reader(path)) as connection:
        connection.execute("BEGIN")
        if connection.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone() is None:
            return _missing(run_id, read_heads(heads_path(path)).get(run_id))
        return _verify(connection, run_id, heads.get(run_id))


def verify_all(path: str) -> list[Report]:
    """Every run of the ledger, and every run that its witness knows and the ledger does not."""
    heads = read_heads(heads_path(path))
    with closing(open_reader(path)) as connection:
        connection.execute("BEGIN")
        known = [row[0] for row in connection.execute("SELECT run_id FROM runs ORDER BY run_no")]
        reports = [_verify(connection, run_id, heads.get(run_id)) for run_id in known]
        latest = read_heads(heads_path(path))
        for run_id in sorted(heads.keys() - set(known)):
            if not latest.get(run_id, heads[run_id]).pruned:
                reports.append(_missing(run_id, heads[run_id]))
        return reports


def _missing(run_id: str, head: Head | None) -> Report:
    """A tombstone alone excuses nothing: whoever can delete the rows of a run can also write one."""
    if head is None or head.pruned:
        raise LedgerError(f"There is no run {run_id} in the ledger.", hint="`sub runs` lists the runs.")
    what = f"the whole run is missing; its witness knows {head.count} events"
    return Report(run_id, 0, "", [Fault(what, event=1)])


def _verify(connection: sqlite3.Connection, run_id: str, head: Head | None) -> Report:
    run = connection.execute("SELECT run_no, event_count, chain_head FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    faults: list[Fault] = []
    place = Head(0, GENESIS)  # how far along the chain we are
    try:
        with Rebuilt() as rebuilt:
            lines: list[bytes] = []
            for line in _chain(connection, run, head, place, faults):
                lines.append(line)
                if len(lines) >= _REPLAY_LINES:
                    rebuilt.replay(lines)
            rebuilt.replay(lines)
            if not faults:
                faults += rebuilt.differences(connection, run_id)
    except BadEvent as error:
        faults.append(Fault(f"an event cannot be read: {error}", event=place.count))
    witnessed = head.count if head is not None and not head.pruned else 0
    return Report(run_id, place.count, place.hash.hex(), faults, witnessed)


def _chain(
    connection: sqlite3.Connection, run: sqlite3.Row, head: Head | None, place: Head, faults: list[Fault]
) -> Iterator[bytes]:
    """The line of every event in turn, up to the first fault."""
    run_no, event_count, chain_head = run
    lines = _lines(connection, run_no)
    witness = head if head is not None and not head.pruned else Head(0, GENESIS)
    first = run_no << N_BITS
    sql = "SELECT id - ?, hash FROM events WHERE id >= ? AND id < ? ORDER BY id"
    rows = connection.execute(sql, (first, first, first + (1 << N_BITS)))
    for n, stored in rows:
        if n != place.count + 1:
            faults.append(Fault(f"events are missing before event {n}", event=place.count + 1))
            return
        at, line = next(lines, (n, None))
        if line is None or at != n:
            faults.append(Fault("its line is missing", event=n))
            return
        place.count, place.hash = n, link(place.hash, line)
        if place.hash != stored:
            faults.append(Fault("this event was changed, moved or put in", event=n))
            return
        if n == witness.count and place.hash != witness.hash:
            faults.append(Fault("the chain was written anew: it differs from its witness here or before", event=n))
            return
        yield line
    count = place.count
    if next(lines, None) is not None:
        faults.append(Fault("the row of this event is missing", event=count + 1))
    elif witness.count > count:
        faults.append(Fault(f"the end is missing: the witness knows {witness.count} events", event=count + 1))
    elif event_count != count:
        faults.append(Fault(f"the run's row counts {event_count} events, there are {count}", event=count + 1))
    elif chain_head != place.hash:
        faults.append(Fault("the run's row has another chain head", event=count))


def _lines(connection: sqlite3.Connection, run_no: int) -> Iterator[tuple[int, bytes | None]]:
    rows = connection.execute("SELECT first_n, lines FROM segments WHERE run_no = ? ORDER BY first_n", (run_no,))
    for first_n, stored in rows:
        try:
            lines = unpack_lines(stored)
        except Exception:  # zlib.error and ValueError alike: the segment was damaged
            yield first_n, None
            return
        yield from enumerate(lines, first_n)


class Rebuilt:
    """The run's rows made again, in a temporary database that SQLite removes by itself."""

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
        for query, name in (
            (_RUN, "the run's row"),
            (_PRODUCERS, "a producer's row"),
            (_CALLS, "the call's row"),
            (_PREVIEWS, "the call's preview"),
            (_HINTS, "the call's hint"),
            (_AGENT_EVENTS, "an agent event's row"),
        ):
            fault = self._compare(connection, run_id, query, name)
            if fault is not None:
                return [fault]
        return self._policies(connection)

    def _policies(self, connection: sqlite3.Connection) -> list[Fault]:
        """The text of a policy that the run's events name must have the hash they name."""
        for (policy_hash,) in self._store.connection.execute("SELECT DISTINCT rules_hash FROM policy_versions"):
            sql = "SELECT rules_json FROM policy_versions WHERE rules_hash = ? AND rules_json IS NOT NULL"
            for (text,) in connection.execute(sql, (policy_hash,)):
                if not is_snapshot(str(text).encode(), policy_hash):
                    return [Fault(f"the text of policy {policy_hash[:16]}… is not the one that was in force")]
        return []

    def _compare(self, connection: sqlite3.Connection, run_id: str, query: str, name: str) -> Fault | None:
        stored = connection.execute(query, (run_id,))
        columns = [column[0] for column in stored.description]
        expected = self._store.connection.execute(query, (run_id,))
        while True:
            found, wanted = stored.fetchone(), expected.fetchone()
            if found is None and wanted is None:
                return None
            # Both come in the order of their first column, so the smaller key is the one without a partner.
            if found is None or (wanted is not None and wanted[0] < found[0]):
                return Fault(f"{name} is missing", call_id=str(wanted[0]))
            if wanted is None or found[0] < wanted[0]:
                return Fault(f"{name} is there, but no event speaks of it", call_id=str(found[0]))
            pairs = zip(columns, tuple(found), tuple(wanted), strict=True)
            wrong = [column for column, one, other in pairs if _plain(one) != _plain(other)]
            if wrong:
                return Fault(f"{name} disagrees with the events in {', '.join(wrong)}", call_id=str(wanted[0]))


def _plain(value: object) -> object:
    """A deflated preview by its content: zlib may give other bytes on another machine."""
    if isinstance(value, bytes) and value[:1] == b"\x78":
        try:
            return unpack_text(value)
        except Exception:  # a damaged one is compared as it is, and differs
            return value
    return value


# The chain columns are checked with the chain itself.
_RUN = f"SELECT {', '.join(RUN_COLUMNS[1:-2])} FROM runs WHERE run_id = ?"
_PRODUCERS = (
    "SELECT shim_id, host_id, proc_id, last_seq, started_at, ended_at, status FROM producers"
    " WHERE run_id = ? ORDER BY shim_id"
)
_CALLS = (
    f"SELECT {', '.join('c.' + column for column in CALL_COLUMNS if column != 'producer_no')}, p.shim_id"
    " FROM tool_calls c LEFT JOIN producers p USING (producer_no) WHERE c.run_id = ? ORDER BY c.call_id"
)
_PREVIEWS = (
    "SELECT c.call_id, p.call_id, p.args_preview, p.result_preview, p.redaction_flags"
    " FROM tool_calls c LEFT JOIN previews p USING (id) WHERE c.run_id = ? ORDER BY c.call_id"
)
_HINTS = (
    "SELECT c.call_id, h.call_id, h.hint_text, h.suggested_args_json, h.created_at, h.hint_kind, h.retry_advice"
    " FROM tool_calls c LEFT JOIN hints h USING (id) WHERE c.run_id = ? ORDER BY c.call_id"
)
# Their number in the chain, which is the lower half of their id, is theirs alone.
_AGENT_EVENTS = (
    f"SELECT id & {(1 << N_BITS) - 1}, at, agent_kind, kind, channel, text, message, data_json, tool_id"
    " FROM agent_events WHERE run_id = ? ORDER BY id"
)
