"""What has arrived since somebody began to count: decisions by action, errors by class, how long MCP calls took.

Counted from the events as they arrive, never from the rows: rows go when old runs are pruned, and whoever scrapes takes
a count that falls for a restart. A count begins at nothing with its process, as is usual. A call that is decided twice
(a leg, a promote) counts twice here, once in `sub query`.
"""

from __future__ import annotations

import sqlite3

import msgspec

from subluminal.contracts.figures import DURATION, Histogram
from subluminal.contracts.vocabulary import ACTIONS, ERROR_CLASSES
from subluminal.ledger.store.lines import arrivals, newest_arrival

# Events read at once; a whole look goes on until there are no more.
_PIECE = 10_000
_SHIMS_KEPT = 4096
_TRANSPORT = "SELECT transport FROM tool_calls WHERE call_id = ? AND run_id = ? AND transport IS NOT NULL LIMIT 1"


class _Kind(msgspec.Struct):
    type: str


class _Source(msgspec.Struct):
    shim_id: str


class _Call(msgspec.Struct):
    call_id: str
    transport: str = ""


class _Started(msgspec.Struct):
    source: _Source
    call: _Call


class _Action(msgspec.Struct):
    action: str


class _Decided(msgspec.Struct):
    decision: _Action


class _Error(msgspec.Struct):
    class_: str = msgspec.field(name="class")


class _Ended(msgspec.Struct):
    run_id: str
    source: _Source
    call: _Call
    latency_ms: int
    error: _Error | None = None


_kind = msgspec.json.Decoder(_Kind).decode
_started = msgspec.json.Decoder(_Started).decode
_decided = msgspec.json.Decoder(_Decided).decode
_ended = msgspec.json.Decoder(_Ended).decode


class Tally:
    """`advance` counts what has arrived since the last time. `durations` is by error class; "" went well."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._after = newest_arrival(connection)
        self._is_mcp: dict[str, bool] = {}  # a shim is one door: all its calls have one transport
        self.decisions = dict.fromkeys(ACTIONS, 0)
        self.errors = dict.fromkeys(ERROR_CLASSES, 0)
        self.durations: dict[str, Histogram] = {}

    def advance(self, connection: sqlite3.Connection) -> None:
        while found := arrivals(connection, self._after, _PIECE):
            for _, line in found:
                self._count(connection, line)
            self._after = found[-1][0]

    def _count(self, connection: sqlite3.Connection, line: bytes) -> None:
        kind = _kind(line).type
        if kind == "tool_call_start":
            started = _started(line)
            self._learn(started.source.shim_id, started.call.transport)
        elif kind == "tool_call_decision":
            self.decisions[_decided(line).decision.action] += 1
        elif kind == "tool_call_end":
            self._end(connection, _ended(line))

    def _end(self, connection: sqlite3.Connection, ended: _Ended) -> None:
        error = ended.error.class_ if ended.error is not None else ""
        if error:
            self.errors[error] += 1
        if error != "policy_block" and self._was_mcp(connection, ended):
            self.durations.setdefault(error, Histogram(DURATION.bounds)).add(ended.latency_ms / 1000)

    def _was_mcp(self, connection: sqlite3.Connection, ended: _Ended) -> bool:
        known = self._is_mcp.get(ended.source.shim_id)
        if known is None:
            row = connection.execute(_TRANSPORT, (ended.call.call_id, ended.run_id)).fetchone()
            known = self._learn(ended.source.shim_id, row[0] if row is not None else "")
        return known

    def _learn(self, shim_id: str, transport: str) -> bool:
        if len(self._is_mcp) > _SHIMS_KEPT:
            self._is_mcp.clear()
        is_mcp = self._is_mcp[shim_id] = transport.startswith("mcp_")
        return is_mcp
