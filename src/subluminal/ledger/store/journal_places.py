"""How far each journal has been read, and what of it was set aside. Written in the batch of the events themselves."""

from __future__ import annotations

import sqlite3

from subluminal.host.clock import utc_now


class JournalPlaces:
    """`journals` and `rejected`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def names(self) -> list[str]:
        return [row[0] for row in self._connection.execute("SELECT name FROM journals")]

    def get(self, name: str) -> tuple[int, int, int, int] | None:
        sql = "SELECT inode, offset, lines, rejected_bytes FROM journals WHERE name = ?"
        found: tuple[int, int, int, int] | None = self._connection.execute(sql, (name,)).fetchone()
        return found

    def set(self, name: str, inode: int, offset: int, lines: int, rejected_bytes: int) -> None:
        self._connection.execute(
            "INSERT INTO journals VALUES (?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET"
            " inode = excluded.inode, offset = excluded.offset, lines = excluded.lines,"
            " rejected_bytes = excluded.rejected_bytes",
            (name, inode, offset, lines, rejected_bytes),
        )

    def forget(self, name: str) -> None:
        """Its place only: that its shim was heard through a journal stays known, or others could go on in its name."""
        self._connection.execute("DELETE FROM journals WHERE name = ?", (name,))

    def reject(self, name: str, line_no: int, reason: str, size: int) -> None:
        sql = "INSERT INTO rejected (source, line_no, reason, bytes, at) VALUES (?, ?, ?, ?, ?)"
        self._connection.execute(sql, (name, line_no, reason, size, utc_now()))
