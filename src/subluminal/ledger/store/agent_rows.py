"""`agent_events`: what an agent said and did by its own account, one row per event, beside what its shims recorded.

A row's id is that of its event ((run_no << 32) + n), so rows and chain cannot drift apart. The recorder keeps every
bound of `contracts.agent_event`; a line from elsewhere need not, so they are enforced again here. The line itself is
in the chain as it came.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from msgspec.structs import replace

from subluminal.contracts.agent_event import MAX_TEXT_BYTES, AgentEvent, bound_event, truncate_utf8
from subluminal.contracts.events import AgentEventRecorded
from subluminal.contracts.moments import normal_ts
from subluminal.contracts.tool_use import MAX_ID_CHARS
from subluminal.ledger.fold.run import json_text
from subluminal.ledger.store.lines import N_BITS

_INSERT = (
    "INSERT INTO agent_events (id, run_id, at, agent_kind, kind, channel, text, message, data_json, tool_id)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class AgentTable:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._rows: list[tuple[Any, ...]] = []

    def add(self, event: AgentEventRecorded, n: int, run_no: int) -> None:
        text = event.agent.text
        # Without its text, for a long one would become several events, and this is one row.
        agent = bound_event(replace(event.agent, text=None))[0]
        self._rows.append(
            (
                (run_no << N_BITS) + n,
                event.run_id,
                normal_ts(event.ts),
                agent.agent_kind,
                str(agent.kind),
                agent.channel,
                None if text is None else truncate_utf8(text, MAX_TEXT_BYTES),
                agent.message,
                json_text(agent.data),
                _tool_id(agent),
            )
        )

    def flush(self) -> None:
        if self._rows:
            self._connection.executemany(_INSERT, self._rows)
            self._rows.clear()


def _tool_id(agent: AgentEvent) -> str | None:
    """The agent's own id of the tool call it speaks of: shims record the same in `call_context`."""
    found = agent.data.get("id") if isinstance(agent.data, dict) else None
    return found if isinstance(found, str) and len(found) <= MAX_ID_CHARS else None
