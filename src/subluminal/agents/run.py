"""A running agent: its events, its completion, and its end. The only module here that starts processes.

    started ──> exited ──> drained ──> completed          the agent ended by itself
       │           │          │
       └───────────┴──────────┴── cancel, or the timeout (before the exit): the whole family is taken down

The completion resolves once, after the process has exited and its output is read to the end. Cancel wins any tie that
is still open. The child gets the null device as stdin; its stderr is read and counted, never kept.
"""

from __future__ import annotations

import asyncio
import os
from types import TracebackType
from typing import Any

from subluminal.agents.base import Backend, EventBuilder, RunRequest
from subluminal.agents.family import Family
from subluminal.agents.process import AgentProcess
from subluminal.agents.stream import EventStream
from subluminal.contracts.agent_event import AgentCompletion, AgentEvent, CompletionStatus, bound_completion

READ_BYTES = 65_536
# Between TERM and KILL: clients end their servers in well under half a second.
TERM_GRACE_S = 0.8
SERVERS_GRACE_S = 0.4
# A background process that outlives the agent keeps its output open. After this much silence we stop listening.
DRAIN_QUIET_S = 1.0
# After KILL nobody can write any more; this only bounds reading what is left in the pipe.
KILLED_DRAIN_S = 0.5
POLL_S = 0.02


class AgentRun:
    """The handle of one run. Use `async with` to be sure that nothing is left behind."""

    def __init__(self, backend: Backend, request: RunRequest) -> None:
        self.kind = backend.kind
        self.events = EventStream()
        self._build = EventBuilder(backend.kind)
        self._command = backend.command(request)
        self._request = request
        self._mapper = backend.mapper()
        self._cancelled = asyncio.Event()
        self._timed_out = False
        self._fault: str | None = None
        self._read_bytes = 0
        self._stderr_bytes = 0
        loop = asyncio.get_running_loop()
        self._completion: asyncio.Future[AgentCompletion] = loop.create_future()
        self._task = loop.create_task(self._supervise())

    async def completion(self) -> AgentCompletion:
        """How the run ended. May be awaited any number of times, with or without reading the events."""
        self.events.completion_awaited()
        return await asyncio.shield(self._completion)

    def cancel(self) -> None:
        """End the stream now and the process soon. Idempotent; without effect once completed."""
        if not self._completion.done():
            self._cancelled.set()
            self.events.cut_off()

    async def __aenter__(self) -> AgentRun:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()
        await self.completion()

    async def _supervise(self) -> None:
        try:
            process = await AgentProcess.start(self._command, self._request)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
            message = f"cannot start {os.path.basename(self._command[0])}: {reason}"
            await self.events.put(self._build.error(message, {"reason": "spawn"})[0])
            self._complete(None, message)
            return
        family = Family(process.pid)
        pump = asyncio.create_task(self._pump(process))
        try:
            await self._follow(process, family, pump)
        except asyncio.CancelledError:
            self._cancelled.set()
            raise
        finally:
            # Also reached when the event loop itself is being closed: nothing may outlive the run then either.
            if process.exit_code is None:
                family.kill()
            pump.cancel()
            process.close()
            self._stderr_bytes = process.stderr_bytes
            self._complete(process.exit_code)

    async def _follow(self, process: AgentProcess, family: Family, pump: asyncio.Task[None]) -> None:
        cancelled = asyncio.create_task(self._cancelled.wait())
        try:
            ends: set[asyncio.Future[Any]] = {process.exited, cancelled}
            timeout = self._request.timeout_s or None
            await asyncio.wait(ends, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if not process.exited.done() and not cancelled.done():
                self._timed_out = True
                await self._take_down(family, process.exited)
            await self._drain(pump, cancelled)
            if not pump.done() and not cancelled.done():
                await self._stop_listening(pump)
            if cancelled.done():
                await self._take_down(family, process.exited)
                await asyncio.wait({pump}, timeout=KILLED_DRAIN_S)
            elif self._timed_out:
                message = f"timed out after {self._request.timeout_s:g} s"
                await self.events.put(self._build.error(message, {"reason": "timeout"})[0])
        finally:
            cancelled.cancel()

    async def _take_down(self, family: Family, exited: asyncio.Future[int]) -> None:
        family.terminate()
        await asyncio.wait({exited}, timeout=TERM_GRACE_S)
        loop = asyncio.get_running_loop()
        # The leader may go at once and leave servers that are still ending in good order.
        deadline = loop.time() + (SERVERS_GRACE_S if exited.done() else 0)
        while family.members() and loop.time() < deadline:
            await asyncio.sleep(POLL_S)
        family.kill()
        await asyncio.wait({exited})

    async def _drain(self, pump: asyncio.Task[None], cancelled: asyncio.Task[bool]) -> None:
        """Until the output ends, or stays silent because someone who outlives the agent holds it open."""
        while not pump.done() and not cancelled.done():
            before = self._read_bytes
            await asyncio.wait({pump, cancelled}, timeout=DRAIN_QUIET_S, return_when=asyncio.FIRST_COMPLETED)
            if self._read_bytes == before and not self.events.blocked:
                return

    async def _stop_listening(self, pump: asyncio.Task[None]) -> None:
        """The output stays open but silent: what has come is all there is, a last half line included."""
        pump.cancel()
        await asyncio.wait({pump})
        for event in self._map(None):
            await self.events.put(event)

    async def _pump(self, process: AgentProcess) -> None:
        while data := await process.stdout.read(READ_BYTES):
            self._read_bytes += len(data)
            for event in self._map(data):
                await self.events.put(event)
        for event in self._map(None):
            await self.events.put(event)

    def _map(self, data: bytes | None) -> list[AgentEvent]:
        """A fault in a mapper must not stop the reading, or the agent would hang on a full pipe."""
        if self._fault is not None:
            return []
        try:
            return self._mapper.finish() if data is None else self._mapper.feed(data)
        except Exception as fault:
            self._fault = f"fault in the {self.kind} mapper: {type(fault).__name__}"
            return self._build.error(self._fault, {"reason": "mapper"})

    def _complete(self, exit_code: int | None, message: str | None = None) -> None:
        if self._completion.done():
            return
        status, reason = self._outcome(exit_code)
        data = {
            "stdout_bytes": self._read_bytes,
            "stderr_bytes": None if self._request.show_stderr else self._stderr_bytes,
            "events_dropped": self.events.dropped or None,
        }
        known = {name: value for name, value in data.items() if value is not None}
        text = self._mapper.final_text
        completion = AgentCompletion(self.kind, status, exit_code, text, message or reason, known)
        self._completion.set_result(bound_completion(completion))
        self.events.close()

    def _outcome(self, exit_code: int | None) -> tuple[CompletionStatus, str | None]:
        if self._cancelled.is_set():
            return "CANCELLED", "cancelled"
        if self._timed_out:
            return "TIMEOUT", f"timed out after {self._request.timeout_s:g} s"
        if exit_code is None:
            return "FAILED", "ended with the program that ran it"
        if exit_code < 0:
            return "FAILED", f"ended by signal {-exit_code}"
        if exit_code > 0:
            return "FAILED", f"exited with {exit_code}"
        if self._fault is not None:
            return "FAILED", self._fault
        if self._mapper.failure is not None:
            return "FAILED", f"the agent reported failure: {self._mapper.failure}"
        return "SUCCEEDED", None
