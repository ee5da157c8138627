"""`tool_versions`: what servers have said of their tools, one row for each thing that a `tools_seen` event tells: every
version that was ever new or had changed, when, and in which run. The newest definition is in `host.tools.known`; the
history is here."""

from __future__ import annotations

import sqlite3

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subluminal.contracts.events import ToolsSeen

SCHEMA = """
CREATE TABLE tool_versions (
  run_id TEXT NOT NULL,
  event INTEGER NOT NULL,
  position INTEGER NOT NULL,
  at TEXT NOT NULL,
  client TEXT NOT NULL,
  server_name TEXT NOT NULL,
  launch TEXT NOT NULL,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  state TEXT NOT NULL,
  classes TEXT NOT NULL,
  was TEXT,
  definition TEXT,
  PRIMARY KEY (run_id, event, position)
) WITHOUT ROWID;
CREATE INDEX tool_versions_name ON tool_versions (server_name, name, at);
"""
COLUMNS = (
    "run_id", "event", "position", "at", "client", "server_name", "launch", "kind", "name", "fingerprint", "state",
    "classes", "was", "definition",
)  # fmt: skip
_INSERT = f"INSERT INTO tool_versions ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"


class ToolVersionTable:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._rows: list[tuple[Any, ...]] = []

    def add(self, event: ToolsSeen, n: int) -> None:
        from msgspec import UNSET  # readers need none of it

        from subluminal.contracts.moments import normal_ts

        tools = event.tools
        for position, item in enumerate(tools.items):
            self._rows.append(
                (
                    event.run_id,
                    n,
                    position,
                    normal_ts(event.ts),
                    event.client,
                    tools.server_name,
                    tools.launch,
                    item.kind,
                    item.name,
                    item.fingerprint,
                    item.state,
                    " ".join(item.classes),
                    None if item.was is UNSET else item.was,
                    None if item.definition is UNSET else item.definition,
                )
            )

    def flush(self) -> None:
        if self._rows:
            self._connection.executemany(_INSERT, self._rows)
            self._rows.clear()


def history(connection: sqlite3.Connection, server_name: str, name: str, limit: int) -> list[dict[str, Any]]:
    """What was told of one thing, the newest first."""
    sql = f"SELECT {', '.join(COLUMNS)} FROM tool_versions WHERE server_name = ? AND name = ? ORDER BY at DESC LIMIT ?"
    return [dict(zip(COLUMNS, tuple(row), strict=True)) for row in connection.execute(sql, (server_name, name, limit))]


def counts(connection: sqlite3.Connection) -> dict[tuple[str, str], tuple[int, int]]:
    """Calls and refusals of every tool."""
    sql = "SELECT server_name, tool_name, count(*), sum(decision <> 'ALLOW') FROM tool_calls GROUP BY 1, 2"
    return {(row[0], row[1]): (row[2], row[3] or 0) for row in connection.execute(sql)}
