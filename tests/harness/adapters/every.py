"""All adapters there are, and a whole run through any of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.adapters.hook import Hook
from harness.adapters.http import HttpProcess, HttpUrl
from harness.adapters.http_api import HttpApi
from harness.adapters.in_process import (
    InProcess,
    fastmcp_server,
    low_level_server,
    mcp_server,
    protected,
    with_middleware,
)
from harness.adapters.interface import Adapter, Outcome, Policy, Session, Setting, compact
from harness.adapters.messages_api import MessagesApi
from harness.adapters.own_process import COMPAT_PYTHON, OwnProcess
from harness.adapters.pigeon import CarrierPigeon
from harness.adapters.stdio import Stdio
from harness.adapters.stdio_url import StdioUrl
from harness.adapters.tool_lock import ToolLock

ADAPTERS: tuple[Adapter, ...] = (
    Stdio(),
    StdioUrl(),
    HttpProcess(),
    HttpUrl(),
    HttpApi(),
    InProcess("mcp MCPServer", mcp_server, protected),
    InProcess("mcp Server", low_level_server, protected),
    InProcess("fastmcp", fastmcp_server, protected),
    InProcess("fastmcp middleware", fastmcp_server, with_middleware),
    ToolLock(),
    Hook(),
    MessagesApi("messages", stream=True),
    MessagesApi("messages, whole", stream=False),
    CarrierPigeon(),
    # Made by `python -m pytest -m slow tests/unit/adapters/in_process`.
    *([OwnProcess("mcp 1.x", "mcp 1.x", str(COMPAT_PYTHON))] if COMPAT_PYTHON.exists() else []),
)

NONE: Mapping[str, str] = {}


class Played:
    """A whole run: the calls one after another, and then its end."""

    def __init__(
        self,
        adapter: Adapter,
        place: Path,
        policy: Policy,
        *calls: tuple[str, Any],
        failing: Mapping[str, str] = NONE,
        **more: Any,
    ) -> None:
        self.adapter = adapter
        place.mkdir(exist_ok=True)
        texts = [(tool, given if isinstance(given, str) else compact(given)) for tool, given in calls]
        names = {name for _, text in texts for name in json.loads(text)}
        tools = [tool for tool in dict.fromkeys(tool for tool, _ in calls) if tool not in failing]
        setting = Setting(place, policy, tools=tools, failing=failing, arguments=names, **more)
        with adapter.start(setting) as session:
            self.outcomes: list[Outcome] = [session.call_text(tool, text) for tool, text in texts]
        self.session: Session = session
        self.events = session.events
        self.executed = session.executed
        self.decisions: list[dict[str, Any]] = [
            event["decision"] for event in session.events.events_of("tool_call_decision")
        ]

    @property
    def actions(self) -> list[str]:
        """The recorded actions, which must be those the client felt and the tools saw."""
        recorded = [decision["action"] for decision in self.decisions]
        assert recorded == [outcome.action for outcome in self.outcomes]
        assert len(self.executed) == recorded.count("ALLOW")
        return recorded

    @property
    def run_end(self) -> dict[str, Any]:
        (event,) = self.events.events_of("run_end")
        run: dict[str, Any] = event["run"]
        return run
