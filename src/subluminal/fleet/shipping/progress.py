"""How far this machine's ledger was acknowledged: `fleet/shipped.db`.

`place` is the last segment of the ledger whose events a collector has committed, or whose refusal is written down
beside it. It moves in the transaction that records why. A place belongs to one file of a ledger: in another one the
same numbers mean something else. One that was put back from an earlier copy has not come to the place yet
(`ledger.store.lines.has_reached`), and counts as another.

What cannot be written (a disk that is full) is a `NotKept`, and nothing has changed.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple

from subluminal.contracts.errors import FleetError
from subluminal.host.home import ensure_private_dir, fleet_dir, ledger_db, shipped_db

_SCHEMA = """
CREATE TABLE IF NOT EXISTS cursor (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  ledger TEXT NOT NULL,
  place INTEGER NOT NULL,
  events INTEGER NOT NULL,
  acked_at TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS acks (
  place INTEGER NOT NULL,
  run_id TEXT NOT NULL,
  shim_id TEXT NOT NULL,
  first_seq INTEGER NOT NULL,
  last_seq INTEGER NOT NULL,
  acked_at TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS refused (
  run_id TEXT NOT NULL,
  shim_id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  first_place INTEGER NOT NULL,
  last_place INTEGER NOT NULL,
  why TEXT NOT NULL,
  refused_at TEXT NOT NULL,
  PRIMARY KEY (run_id, shim_id, seq)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS held (
  run_id TEXT NOT NULL,
  shim_id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  n INTEGER NOT NULL,
  line BLOB NOT NULL,
  PRIMARY KEY (run_id, shim_id, seq)
) WITHOUT ROWID;
"""
# The place of a refused event that lies in `held`: its run is gone from the ledger.
NO_PLACE = 0
_TO_BE_SENT = (
    "FROM held h WHERE NOT EXISTS (SELECT 1 FROM refused r WHERE r.run_id = h.run_id AND r.shim_id = h.shim_id"
    f" AND r.seq = h.seq AND r.first_place = {NO_PLACE})"
)
_FIRST_REFUSED = f"SELECT min(first_place) FROM refused WHERE first_place > {NO_PLACE}"
# Acknowledgements that are kept to be looked at; the cursor is what counts.
_ACKS_KEPT = 1000


class Ack(NamedTuple):
    run_id: str
    shim_id: str
    first_seq: int
    last_seq: int


class Refused(NamedTuple):
    run_id: str
    shim_id: str
    seq: int
    first_place: int
    last_place: int
    why: str


class Standing(NamedTuple):
    """`unacked_bytes`: of segments of the ledger, as they lie there; `unacked_since`: when their first event was.
    `refused`: events that no collector took; `held`: those of pruned runs (`holding`) that are still to be sent."""

    place: int
    events: int
    unacked_bytes: int
    unacked_events: int
    refused: int
    held: int
    acked_at: str | None
    unacked_since: str | None


class NotKept(FleetError):
    """What was acknowledged cannot be written down now."""


class Progress:
    def __init__(self, home: str | None = None) -> None:
        self._home, self._path = home, shipped_db(home)
        with self._told():
            ensure_private_dir(fleet_dir(home), home)
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            self._connection = sqlite3.connect(self._path, isolation_level=None, timeout=5.0, check_same_thread=False)
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                # An acknowledgement that a power cut took back is only sent again.
                self._connection.execute("PRAGMA synchronous = NORMAL")
                self._connection.executescript(_SCHEMA)
            except BaseException:
                self._connection.close()
                raise

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.OperationalError, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            hint = "It goes on by itself when this can be written."
            raise NotKept(f"How far was shipped cannot be written down: {self._path}: {why}.", hint=hint) from None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        with self._told():
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:  # of some errors SQLite itself has rolled back
                    connection.execute("ROLLBACK")

    def close(self) -> None:
        self._connection.close()

    def place(self) -> int | None:
        """None: nothing of this ledger was shipped yet."""
        row = self._connection.execute("SELECT ledger, place FROM cursor").fetchone()
        return None if row is None or row[0] != ledger_name(self._home) else int(row[1])

    def record(self, place: int, acks: list[Ack], refused: list[Refused], now: str) -> None:
        """What was acknowledged, what was refused, and where that leads, at once."""
        events = sum(ack.last_seq - ack.first_seq + 1 for ack in acks)
        with self._transaction() as connection:
            connection.executemany("INSERT INTO acks VALUES (?, ?, ?, ?, ?, ?)", [(place, *ack, now) for ack in acks])
            connection.executemany(
                "INSERT OR REPLACE INTO refused VALUES (?, ?, ?, ?, ?, ?, ?)", [(*each, now) for each in refused]
            )
            connection.execute(
                "INSERT INTO cursor VALUES (1, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET ledger = excluded.ledger,"
                " place = excluded.place, events = events + excluded.events, acked_at = excluded.acked_at",
                (ledger_name(self._home), place, events, now),
            )
            connection.execute("DELETE FROM acks WHERE rowid <= (SELECT max(rowid) FROM acks) - ?", (_ACKS_KEPT,))

    def refused(self) -> list[Refused]:
        names = ", ".join(Refused._fields)
        return [Refused(*row) for row in self._connection.execute(f"SELECT {names} FROM refused ORDER BY first_place")]

    def taken(self, run_id: str, shim_id: str, seq: int) -> None:
        """One that was refused before: it was acknowledged, or is gone from the ledger."""
        sql = "DELETE FROM refused WHERE run_id = ? AND shim_id = ? AND seq = ?"
        with self._transaction() as connection:
            connection.execute(sql, (run_id, shim_id, seq))

    def hold(self, lines: list[tuple[str, str, int, int, bytes]]) -> None:
        """Decisions of a run that is about to be pruned (`holding`): on the disk before it goes."""
        self._connection.execute("PRAGMA synchronous = FULL")
        with self._transaction() as connection:
            connection.executemany("INSERT OR IGNORE INTO held VALUES (?, ?, ?, ?, ?)", lines)

    def held(self, limit: int) -> list[tuple[str, str, int, int, bytes]]:
        """Those that were not refused."""
        sql = f"SELECT run_id, shim_id, seq, n, line {_TO_BE_SENT} ORDER BY run_id, shim_id, seq LIMIT ?"
        return [(row[0], row[1], row[2], row[3], row[4]) for row in self._connection.execute(sql, (limit,))]

    def held_line(self, run_id: str, shim_id: str, seq: int) -> tuple[int, bytes] | None:
        sql = "SELECT n, line FROM held WHERE run_id = ? AND shim_id = ? AND seq = ?"
        row = self._connection.execute(sql, (run_id, shim_id, seq)).fetchone()
        return None if row is None else (int(row[0]), bytes(row[1]))

    def refuse(self, refused: list[Refused], now: str) -> None:
        """Of what was held."""
        with self._transaction() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO refused VALUES (?, ?, ?, ?, ?, ?, ?)", [(*each, now) for each in refused]
            )

    def let_go(self, keys: list[tuple[str, str, int]]) -> None:
        """Of what was held: it was acknowledged."""
        with self._transaction() as connection:
            connection.executemany("DELETE FROM held WHERE run_id = ? AND shim_id = ? AND seq = ?", keys)

    def forget(self) -> None:
        """Begin again from the start of the ledger; what a collector has is asked for and left out."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM cursor")


def ledger_name(home: str | None = None) -> str:
    """The file itself: one that was removed or put back from a copy is another."""
    try:
        status = os.stat(ledger_db(home))
    except FileNotFoundError:
        return ""
    return f"{status.st_dev}:{status.st_ino}"


def shipped_place(home: str | None = None) -> int | None:
    """For whoever prunes: segments of the ledger after this one must stay. None: this machine ships nothing."""
    path = shipped_db(home)
    if not os.path.exists(path):
        return None
    with closing(
        sqlite3.connect(f"file:{path.replace('?', '%3f').replace('#', '%23')}?mode=ro", uri=True)
    ) as connection:
        try:
            row = connection.execute("SELECT ledger, place FROM cursor").fetchone()
            first_refused = connection.execute(_FIRST_REFUSED).fetchone()[0]
        except sqlite3.OperationalError:
            return 0
    if row is None or row[0] != ledger_name(home):
        return 0
    return int(row[1]) if first_refused is None else min(int(row[1]), first_refused - 1)


def standing(home: str | None = None) -> Standing | None:
    """None: this machine ships nothing, or has recorded nothing."""
    from subluminal.ledger.store.lines import has_reached
    from subluminal.ledger.store.schema import NoLedger, open_reader

    if not os.path.exists(shipped_db(home)):
        return None
    progress = Progress(home)
    try:
        place = progress.place() or 0
        row = progress._connection.execute("SELECT events, acked_at FROM cursor").fetchone()
        refused = progress._connection.execute("SELECT count(*) FROM refused").fetchone()[0]
        waiting = progress._connection.execute(f"SELECT count(*) {_TO_BE_SENT}").fetchone()[0]
    finally:
        progress.close()
    try:
        ledger = open_reader(ledger_db(home))
    except NoLedger:
        return None
    with closing(ledger):
        place = place if has_reached(ledger, place) else 0
        sql = "SELECT coalesce(sum(length(lines)), 0), coalesce(sum(length(marks)), 0) / 4 FROM segments WHERE id > ?"
        unacked_bytes, unacked_events = ledger.execute(sql, (place,)).fetchone()
        since = _first_after(ledger, place)
    events, acked_at = row or (0, None)
    return Standing(place, events, unacked_bytes, unacked_events, refused, waiting, acked_at, since)


def _first_after(ledger: sqlite3.Connection, place: int) -> str | None:
    row = ledger.execute("SELECT lines FROM segments WHERE id > ? ORDER BY id LIMIT 1", (place,)).fetchone()
    if row is None:
        return None
    from subluminal.ledger.store.encoding import unpack_lines

    return str(json.loads(unpack_lines(row[0])[0])["ts"])
