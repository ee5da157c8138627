"""Prove that a run's record was not changed: the chain, its witness, and the rows that are folded from it.

An edit, a removal, a reordering or a cut shows as a fault that names the first event it touches. Then every row of the
run is built again from the events and compared (`rebuilt`), so an edited row counts as an edit although the chain is
whole. What no run answers for is looked at in `database`.

Trap: the witness file is read before the snapshot of the database is taken. The other way round, a daemon at work
could put more into the witness than the snapshot holds, and a sound ledger would look cut. Only a run that the snapshot
has not at all is looked up again afterwards, for `sub prune` announces in the witness what it is about to remove.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing

from subluminal.contracts.errors import LedgerError
from subluminal.host.home import heads_path
from subluminal.ledger.fold.reading import BadEvent
from subluminal.ledger.store.chain import GENESIS, Head, link, read_heads
from subluminal.ledger.store.encoding import unpack_lines
from subluminal.ledger.store.lines import N_BITS
from subluminal.ledger.store.schema import open_reader
from subluminal.ledger.trace.database import Catalogue, check_database, unreadable
from subluminal.ledger.trace.rebuilt import Rebuilt
from subluminal.ledger.trace.report import DatabaseReport, Fault, Report

_REPLAY_LINES = 2048


def verify_run(path: str, run_id: str) -> Report:
    heads = read_heads(heads_path(path))
    with closing(open_reader(path)) as connection:
        connection.execute("BEGIN")
        if connection.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone() is None:
            return _missing(run_id, read_heads(heads_path(path)).get(run_id))
        return _verify(connection, run_id, heads.get(run_id))


def verify_database(path: str) -> DatabaseReport:
    """What holds the runs, without their events."""
    with closing(open_reader(path)) as connection:
        connection.execute("BEGIN")
        return check_database(connection, path)


def verify_ledger(path: str, checked: Callable[[int], None] | None = None) -> tuple[DatabaseReport, list[Report]]:
    """Every run of the ledger, and every run that its witness knows and the ledger does not; and what holds them.

    `checked` hears of the events of each run that has been checked."""
    heads = read_heads(heads_path(path))
    with closing(open_reader(path)) as connection:
        connection.execute("BEGIN")
        database = check_database(connection, path, full=True)
        catalogue = Catalogue()
        reports: list[Report] = []
        try:
            # Of a database that was changed, what is wrong with its runs is named as well, as far as it can be read.
            reports = _verify_runs(path, connection, heads, catalogue, checked)
            if all(report.rows_checked for report in reports):
                database.covered = True
                database.faults += catalogue.check(connection, read_heads(heads_path(path)))
        except sqlite3.DatabaseError as error:
            database.faults.append(unreadable(error))
        return database, reports


def _verify_runs(
    path: str,
    connection: sqlite3.Connection,
    heads: dict[str, Head],
    catalogue: Catalogue,
    checked: Callable[[int], None] | None,
) -> list[Report]:
    known = [row[0] for row in connection.execute("SELECT run_id FROM runs ORDER BY run_no")]
    reports = []
    for run_id in known:
        reports.append(_verify(connection, run_id, heads.get(run_id), catalogue))
        if checked is not None:
            checked(reports[-1].events)
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


def _verify(
    connection: sqlite3.Connection, run_id: str, head: Head | None, catalogue: Catalogue | None = None
) -> Report:
    run = connection.execute("SELECT run_no, event_count, chain_head FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    faults: list[Fault] = []
    place = Head(0, GENESIS)  # how far along the chain we are
    rows_checked = False
    try:
        with Rebuilt() as rebuilt:
            lines: list[bytes] = []
            for line in _chain(connection, run, head, place, faults):
                lines.append(line)
                if len(lines) >= _REPLAY_LINES:
                    rebuilt.replay(lines)
            rebuilt.replay(lines)
            if not faults:
                rows_checked = True
                faults += rebuilt.differences(connection, run_id)
                if catalogue is not None:
                    catalogue.add(rebuilt)
            faults += rebuilt.conflicts(run_id)
    except BadEvent as error:
        faults.append(Fault(f"an event cannot be read: {error}", event=place.count))
    except sqlite3.DatabaseError as error:
        faults.append(unreadable(error))
    witnessed = head.count if head is not None and not head.pruned else 0
    return Report(run_id, place.count, place.hash.hex(), faults, witnessed, rows_checked)


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
