"""What may be done on the page: stop a run, accept what a server says. Each leaves an event."""

from __future__ import annotations

import os
from typing import Any

from subluminal.cli.tools.pins import accept, moved_pins, write_pins
from subluminal.cli.ui.tools import one_row
from subluminal.contracts.errors import LedgerError, ToolsError
from subluminal.runs.kill import kill_runs

OPERATOR = "operator"


def kill(run_id: str, reason: str) -> dict[str, Any]:
    done = kill_runs([run_id], reason)
    if done.not_found:
        hint = "A run that has ended long ago has none; `sub state` lists those that have."
        raise LedgerError(f"No run {run_id!r} has state on this machine: there is nothing to stop.", hint=hint)
    return {"killed": bool(done.killed), "ended_before": bool(done.ended), "processes_left": len(done.left)}


def approve(directory: str, server_name: str, key: str, fingerprint: str) -> dict[str, Any]:
    """Only what was looked at: a server that says something else by now is looked at again."""
    row = one_row(directory, server_name, key)
    if row.now.fingerprint != fingerprint:
        raise ToolsError(f"{server_name}/{key} has changed again meanwhile.", hint="Look at it again.")
    files = moved_pins([row], directory)
    accept(row)
    write_pins(files)
    _note_down(f"approved {row.name}", {"order": "approve", "server_name": server_name, "fingerprint": fingerprint})
    return {"approved": row.name, "files": sorted(files)}


def _note_down(words: str, told: dict[str, str]) -> None:
    """What concerns no run in particular is a run of the operator's own: one that had ended must not go on for it."""
    from subluminal.agents.recorder import Recorder
    from subluminal.contracts.agent_event import AgentEvent, AgentEventKind
    from subluminal.host.identity import discover, make_source, new_id

    named = {"SUB_RUN_ID": new_id("run-"), "SUB_AGENT_ID": OPERATOR, "SUB_CLIENT": "custom"}
    recorder = Recorder(discover({**os.environ, **named}, "", directory=None), make_source())
    recorder.record(AgentEvent(OPERATOR, AgentEventKind.Status, OPERATOR, None, words, dict(told)))
    recorder.leave("SUCCEEDED")
