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
from collections.abc import Callable
from contextlib import closing
from time import process_time

from subluminal.contracts.errors import LedgerError
from subluminal.host.home import heads_path
from subluminal.ledger.fold.reading import BadEvent
from subluminal.ledger.store.chain import Head, read_heads
from subluminal.ledger.store.schema import open_reader
from subluminal.ledger.trace.chain import Chain
from subluminal.ledger.trace.database import Catalogue, check_database, unreadable
from subluminal.ledger.trace.rebuilt import Rebuilt
from subluminal.ledger.trace.report import DatabaseReport, Fault, Pace, Report

_REPLAY_LINES = 4096


def verify_run(path: str, run_id: str) -> Report:
    heads = read_heads(heads_path(path))
    with closing(open_reader(path)) as connection:
        connection.execute("BEGIN")
        if connection.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone() is None:
            return _missing(run_id, read_heads(heads_path(path)).get(run_id))
        with Rebuilt() as rebuilt:
            return _verify(connection, run_id, heads.get(run_id), rebuilt)


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
    with Rebuilt() as rebuilt:
        for run_id in known:
            reports.append(_verify(connection, run_id, heads.get(run_id), rebuilt, catalogue))
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
    connection: sqlite3.Connection, run_id: str, head: Head | None, rebuilt: Rebuilt, catalogue: Catalogue | None = None
) -> Report:
    run = connection.execute("SELECT run_no, event_count, chain_head FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    chain = Chain(connection, run, head)
    faults = chain.faults
    pace = Pace()
    rows_checked = False
    clock = _Clock(pace)
    try:
        rebuilt.clear()
        lines: list[bytes] = []
        clock.reset()
        for segment in chain.segments():
            lines += segment
            if len(lines) >= _REPLAY_LINES:
                clock.chain_done()
                rebuilt.replay(lines)
                clock.rows_done()
        clock.chain_done()
        rebuilt.replay(lines)
        if not faults:
            rows_checked = True
            faults += rebuilt.differences(connection, run_id)
            if catalogue is not None:
                catalogue.add(rebuilt)
        faults += rebuilt.conflicts(run_id)
    except BadEvent as error:
        faults.append(Fault(f"an event cannot be read: {error}", event=chain.place.count))
    except sqlite3.DatabaseError as error:
        faults.append(unreadable(error))
    clock.rows_done()
    pace.events = chain.place.count
    witnessed = head.count if head is not None and not head.pruned else 0
    return Report(run_id, chain.place.count, chain.place.hash.hex(), faults, witnessed, rows_checked, pace)


class _Clock:
    """The two parts take turns, so that nothing has to be read twice or held in memory."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self.reset()

    def reset(self) -> None:
        self._began = process_time()

    def chain_done(self) -> None:
        now = process_time()
        self._pace.chain_s += now - self._began
        self._began = now

    def rows_done(self) -> None:
        now = process_time()
        self._pace.rows_s += now - self._began
        self._began = now
