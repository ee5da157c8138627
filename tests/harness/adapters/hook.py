"""A client's hooks, with the tools of a server that no shim stands before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from harness.adapters.in_process import as_its_own_process
from harness.adapters.interface import Adapter, Outcome, Session, Setting
from harness.hooks import HookClient
from harness.shim import write_policy
from harness.sink import EventFile
from subluminal.contracts.vocabulary import ERROR_CODES
from subluminal.host.run.tool_notes import RunToolNotes

_SOMETIMES = ("backoff_ms", "hint", "terminate")


class HookSession(Session):
    def __init__(self, client: HookClient, setting: Setting) -> None:
        self._client = client
        self._setting = setting
        self.events: EventFile = client.events
        self._executed: list[str] = []

    @property
    def executed(self) -> list[str]:
        return self._executed

    def call_text(self, tool: str, arguments: str) -> Outcome:
        name = f"mcp__{self._setting.server_name}__{tool}"
        text = self._client.payload("PreToolUse", tool_name=name)[:-1] + f',"tool_input":{arguments}}}'.encode()
        reason = self._client.raw("PreToolUse", text).reason
        if reason:
            return told_in_the_record(self.events, reason)
        self._executed.append(tool)
        failure = self._setting.failing.get(tool)
        if failure is None:
            self._client.hook("PostToolUse", tool_name=name, tool_input=json.loads(arguments), tool_response="ok")
        else:
            self._client.hook("PostToolUseFailure", tool_name=name, tool_input={}, error=failure)
        return Outcome(failed=failure is not None)


def told_in_the_record(events: EventFile, reason: str) -> Outcome:
    """Of a call that was refused in one sentence. What programs are told stands in the record, which is complete by
    then."""
    start = events.events_of("tool_call_start")[-1]["call"]
    decided = events.events_of("tool_call_decision")[-1]
    assert decided["call"]["call_id"] == start["call_id"]
    decision = decided["decision"]
    data = {name: decision[name] for name in ("action", "rule_id", "policy", *_SOMETIMES) if name in decision}
    data |= {**decision["explain"], "v": decided["v"], "run_id": decided["run_id"]}
    data |= {name: start[name] for name in ("call_id", "server_name", "tool_name", "args_hash")}
    return Outcome(ERROR_CODES[decision["action"]], reason, data)


class Hook(Adapter):
    name = "hook"
    transport = "hook"

    @contextmanager
    def start(self, setting: Setting) -> Iterator[Session]:
        policy = write_policy(setting.place, setting.policy)
        env = {"SUB_RUN_ID": "run-1", **setting.env}
        with as_its_own_process(setting.place, env):
            # As a shim of the same run has heard it: without one, nothing is known of a server's tools.
            RunToolNotes(env["SUB_RUN_ID"], setting.server_name).add(dict.fromkeys(setting.all_tools, frozenset()))
        with HookClient(setting.place, policy=policy, env=env) as client:
            yield HookSession(client, setting)
        client.events.wait_type("run_end")
