"""An agent back end as one run: identified, recorded, followed event by event, ended by an order to the run."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import NamedTuple

from subluminal.agents.base import Backend, RunRequest
from subluminal.agents.recorder import Recorder
from subluminal.agents.run import AgentRun
from subluminal.contracts.agent_event import AgentCompletion, AgentEvent
from subluminal.runs.command import SHIMS_END_S
from subluminal.runs.launch import EXIT_TERMINATED, EXIT_TIMEOUT
from subluminal.runs.options import RunOptions
from subluminal.runs.run import Run, run_environment

# As a shell tells a death by signal; the codes for a timeout and a terminated run are those of `sub run`.
EXIT_SIGNAL = 128
EXIT_NOT_STARTED = 2
WATCH_EVERY_S = 0.1


class AgentOutcome(NamedTuple):
    """`terminated` is the (code, message) of an order that ended the run."""

    completion: AgentCompletion
    code: int
    terminated: tuple[str, str] | None


class FollowedAgent:
    """One run of one agent. `request.env` gets what carries the run's identity to the agent."""

    def __init__(
        self, backend: Backend, request: RunRequest, *, agent_id: str | None = None, record: bool = True
    ) -> None:
        chosen_id = agent_id or os.environ.get("SUB_AGENT_ID") or backend.kind
        options = RunOptions(agent_id=chosen_id, client=backend.client)
        environ = run_environment(os.environ, options, backend.client)
        request.env.update({name: value for name, value in environ.items() if os.environ.get(name) != value})
        backend.check(request)
        self._backend = backend
        self._request = request
        self._signum: int | None = None
        self._terminated: tuple[str, str] | None = None
        self._agent: AgentRun | None = None
        self._run = Run(environ, options)
        self._recorder = Recorder(self._run.identity, self._run.source) if record else None

    @property
    def run_id(self) -> str:
        return self._run.run_id

    async def follow(self, tell: Callable[[AgentEvent], None]) -> AgentOutcome:
        """To its end. `tell` hears each event once it is recorded."""
        membership = self._run.membership
        membership.register(self._run.environ, self._request.cwd or os.getcwd())
        if self._recorder is not None:
            self._recorder.open(self._backend.kind)
        async with self._backend.run(self._request) as agent:
            self._agent = agent
            watch = asyncio.create_task(self._watch(agent))
            try:
                async for event in agent.events:
                    if self._recorder is not None:
                        self._recorder.record(event)
                    tell(event)
            except BaseException:
                agent.cancel()  # a listener that has gone away ends the run too
                raise
            finally:
                completion = await agent.completion()
                watch.cancel()
                if completion.status in ("CANCELLED", "TIMEOUT"):
                    membership.sweep()
                counts = await asyncio.to_thread(membership.counts, SHIMS_END_S)
                membership.leave()
                if self._recorder is not None:
                    self._recorder.close(completion, terminated=self._terminated is not None, of_run=counts)
        return AgentOutcome(completion, self._exit_code(completion), self._terminated)

    def stop(self, signum: int) -> None:
        """Somebody has sent us this signal."""
        self._signum = self._signum or signum
        if self._agent is not None:
            self._agent.cancel()

    async def _watch(self, agent: AgentRun) -> None:
        """`sub kill`, or a policy that ends the run, ends the agent as well."""
        while (terminated := self._run.membership.terminated) is None:
            await asyncio.sleep(WATCH_EVERY_S)
        self._terminated = terminated
        agent.cancel()

    def _exit_code(self, completion: AgentCompletion) -> int:
        if completion.status == "SUCCEEDED":
            return 0
        if completion.status == "TIMEOUT":
            return EXIT_TIMEOUT
        if completion.status == "CANCELLED":
            return EXIT_TERMINATED if self._terminated is not None else EXIT_SIGNAL + (self._signum or signal.SIGINT)
        return EXIT_NOT_STARTED if completion.exit_code is None else 1
