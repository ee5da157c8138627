"""The tool-lock adapter over a policy: a stage in somebody else's chain of middleware."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.adapters.in_process import as_its_own_process
from harness.adapters.interface import Adapter, Outcome, Policy, Session
from harness.shim import write_policy
from harness.sink import EventFile
from subluminal.adapters.tool_lock import MiddlewareRequest, ToolAdmissionDeniedError, create_tool_lock_adapter
from subluminal.admission import PolicyRegistry, bind_call, registry_from_policy


class ToolLockSession(Session):
    def __init__(
        self, registry: PolicyRegistry, server_name: str, failing: Mapping[str, str], events: EventFile
    ) -> None:
        self._registry = registry
        self._stage = create_tool_lock_adapter(registry)
        self._server_name = server_name
        self._failing = failing
        self.events = events
        self._executed: list[str] = []

    @property
    def executed(self) -> list[str]:
        return self._executed

    def call_text(self, tool: str, arguments: str) -> Outcome:
        async def rest() -> str:
            self._executed.append(tool)
            if tool in self._failing:
                raise LookupError(self._failing[tool])
            return "ok"

        async def run() -> Any:
            state = bind_call(server_name=self._server_name, args=arguments.encode())
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
    def start(
        self,
        place: Path,
        policy: Policy,
        *,
        server_name: str = "linear",
        tools: Iterable[str] = (),
        failing: Mapping[str, str] | None = None,
        arguments: Iterable[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> Iterator[Session]:
        events = EventFile(place / "events.jsonl")
        with as_its_own_process(place, {**(env or {}), "SUB_EVENTS": events.argument}):
            registry = registry_from_policy(write_policy(place, policy))
            yield ToolLockSession(registry, server_name, failing or {}, events)
            registry.close()
