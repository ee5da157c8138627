"""The tool-lock adapter over a policy: a stage in somebody else's chain of middleware."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.adapters.in_process import as_its_own_process
from harness.adapters.interface import Adapter, Outcome, Session, Setting
from harness.shim import write_policy
from harness.sink import EventFile
from subluminal.adapters.tool_lock import MiddlewareRequest, ToolAdmissionDeniedError, create_tool_lock_adapter
from subluminal.admission import PolicyRegistry, bind_call, registry_from_policy


class ToolLockSession(Session):
    def __init__(self, registry: PolicyRegistry, setting: Setting, events: EventFile) -> None:
        self._registry = registry
        self._stage = create_tool_lock_adapter(registry)
        self._setting = setting
        self.events = events
        self._executed: list[str] = []

    @property
    def executed(self) -> list[str]:
        return self._executed

    def call_text(self, tool: str, arguments: str) -> Outcome:
        async def rest() -> str:
            self._executed.append(tool)
            if tool in self._setting.failing:
                raise LookupError(self._setting.failing[tool])
            return "ok"

        async def run() -> Any:
            state = bind_call(server_name=self._setting.server_name, args=arguments.encode())
            return await self._stage(MiddlewareRequest("ada", tool, None, state), self._registry.watched(rest))

        try:
            asyncio.run(run())
        except LookupError:
            return Outcome(failed=True)
        except ToolAdmissionDeniedError as error:
            reason: Any = error.reason
            return Outcome(reason.code, reason.message, json.loads(reason.data)["subluminal"])
        return Outcome()


class ToolLock(Adapter):
    name = "tool-lock"
    transport = "in_process"

    @contextmanager
    def start(self, setting: Setting) -> Iterator[Session]:
        events = EventFile(setting.place / "events.jsonl")
        with as_its_own_process(setting.place, {**setting.env, "SUB_EVENTS": events.argument}):
            registry = registry_from_policy(write_policy(setting.place, setting.policy))
            yield ToolLockSession(registry, setting, events)
            registry.close()
