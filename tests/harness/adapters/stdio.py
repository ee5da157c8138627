"""`sub shim` in front of a server on real pipes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.adapters.interface import Adapter, Outcome, Session, Setting
from harness.driver import Agent, Message
from harness.fake_server import fake_server
from harness.shim import Shim
from harness.sink import EventFile
from subluminal.contracts.vocabulary import ERROR_CODES


class AgentSession(Session):
    """Over any process that speaks MCP on its pipes."""

    def __init__(self, agent: Agent, events: EventFile, executed: Path) -> None:
        self.agent = agent
        self.events = events
        self._executed = executed
        self._calls = 0

    @property
    def executed(self) -> list[str]:
        return [json.loads(line)["tool"] for line in self._executed.read_text().splitlines()]

    def call_text(self, tool: str, arguments: str) -> Outcome:
        self._calls += 1
        request_id = f"call-{self._calls}"
        params = f'{{"name":{json.dumps(tool, ensure_ascii=False)},"arguments":{arguments}}}'
        line = f'{{"jsonrpc":"2.0","id":"{request_id}","method":"tools/call","params":{params}}}\n'
        self.agent.send_raw(line.encode())
        return outcome_of(self.agent.reply(request_id))


def executed_file(setting: Setting) -> Path:
    path = setting.place / "executed"
    path.touch()
    return path


@contextmanager
def agent_session(agent: Agent, events: EventFile, executed: Path) -> Iterator[Session]:
    with agent:
        agent.initialize()
        agent.request("tools/list")  # as every client does before it calls one
        yield AgentSession(agent, events, executed)
        agent.finish()
    events.wait_type("run_end")


def outcome_of(reply: Message) -> Outcome:
    """A reply of JSON-RPC: exactly a result or an error, never both."""
    assert len({"result", "error"} & set(reply)) == 1 and reply["jsonrpc"] == "2.0", reply
    if "result" in reply:
        return Outcome(failed=bool(reply["result"].get("isError")))
    error = reply["error"]
    if error["code"] not in ERROR_CODES.values():
        return Outcome(failed=True)
    return Outcome(error["code"], error["message"], error["data"]["subluminal"])


class Stdio(Adapter):
    name = "stdio"
    transport = "mcp_stdio"

    @contextmanager
    def start(self, setting: Setting) -> Iterator[Session]:
        executed = executed_file(setting)
        behaviours = {tool: {} if why is None else {"is_error": why} for tool, why in setting.all_tools.items()}
        server = fake_server(tools=behaviours, executed=str(executed))
        events = EventFile(setting.place / "events.jsonl")
        shim = Shim(
            setting.place, setting.server_name, server, policy=setting.policy, events=events, env=dict(setting.env)
        )
        with agent_session(shim.start(), events, executed) as session:
            yield session
