"""What the daemon takes in: journals and lines from sockets into one store, and the order kept there.

A batch that fails (full disk, locked database) is tried again: journals keep what is not committed, and what came over
a socket stays queued and is not acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from subluminal.host.home import ledger_db, run_dir, spool_dir
from subluminal.host.run.files import remove_stale
from subluminal.ledger.daemon.connections import Connection
from subluminal.ledger.daemon.controls import reference
from subluminal.ledger.fold.reading import BadEvent
from subluminal.ledger.ingest.journals import Spool
from subluminal.ledger.store.writer import Store

WITNESS_EVERY_S = 1.0
# The state of runs that nobody has used for long is removed at the start and then this often.
HOUSEKEEPING_S = 3600.0
# A writer that is locked out gives up soon, so that sockets are served meanwhile; the batch is tried again.
BUSY_TIMEOUT_MS = 250
OTHER_VOICE = "shim {} speaks through another connection, which is still open"
# Beyond this many shims that have spoken over sockets, those whose connection has closed are forgotten.
VOICES_KEPT = 4096


class Intake:
    def __init__(self, home: str) -> None:
        self.store = Store(ledger_db(home), busy_timeout_ms=BUSY_TIMEOUT_MS)
        self.spool = Spool(spool_dir(home), self.store)
        self.store.journals = self.spool.journals
        self._voices: dict[str, Connection] = {}  # through which connection a shim speaks
        self.journal_bytes = 0
        self._run_dir = run_dir(home)
        self._witnessed_at = 0.0
        self._housekeeping_at = 0.0

    def commit(self, connections: Iterable[Connection]) -> bool:
        """One batch of whatever the journals and the sockets hold. True: there was something."""
        grown = self.spool.scan()
        speaking = [connection for connection in connections if connection.queued]
        if not grown and not speaking:
            return False
        taken = self.spool.pump() if grown else 0
        self.journal_bytes += taken
        for connection in speaking:
            self._store_queued(connection)
        return bool(taken or speaking)

    def _store_queued(self, connection: Connection) -> None:
        lines = list(connection.queued)
        answers = self.store.write(lambda: [self._store_line(connection, line) for line in lines])
        connection.take_queued()
        for answer in answers:
            connection.send(answer)

    def _store_line(self, connection: Connection, line: bytes) -> dict[str, Any]:
        told = reference(line)
        voice = self._voices.get(told.get("shim_id", ""))
        is_other = voice is not None and voice is not connection and voice.is_open
        try:
            is_new = self.store.add(line, barred=OTHER_VOICE.format(told["shim_id"]) if is_other else None)
        except BadEvent as error:
            return {"nack": {**told, "error": str(error)}}
        if is_new and voice is not connection:
            self._listen(told["shim_id"], connection)
        return {"ack": told} if is_new else {"ack": told, "duplicate": True}

    def _listen(self, shim_id: str, connection: Connection) -> None:
        """As long as this connection is open, no other can say what the shim says next."""
        self._voices[shim_id] = connection
        if len(self._voices) > VOICES_KEPT:
            self._voices = {shim: voice for shim, voice in self._voices.items() if voice.is_open}

    def keep_house(self, now: float, *, busy: bool) -> None:
        if now >= self._housekeeping_at:
            self._housekeeping_at = now + HOUSEKEEPING_S
            remove_stale(directory=self._run_dir)
        if self.store.unwitnessed and (now - self._witnessed_at > WITNESS_EVERY_S or not busy):
            self._witnessed_at = now
            self.store.witness()

    def close(self) -> None:
        self.spool.close()
        self.store.close()
