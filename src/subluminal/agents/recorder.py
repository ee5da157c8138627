"""Agent events into the ledger, the way a shim writes its own: a journal in the spool, ingested exactly once.

Lines are `{"type":"agent_event", <envelope>, "agent":{<AgentEvent>}}`, and at the end a `run_end` with the status of
the agent. Text is masked like any preview (a secret that the agent spreads over two events is beyond that), and a run
may leave only so much: past the bound only its end is recorded, and how many events were not.
"""

from __future__ import annotations

import time

import msgspec
from msgspec.structs import replace

from subluminal.contracts.agent_event import AgentCompletion, AgentEvent, AgentEventKind, bound_event
from subluminal.contracts.counts import Counts
from subluminal.contracts.identity import Identity, Source
from subluminal.core.engine.stack import Stack
from subluminal.core.engine.state import LocalState
from subluminal.core.redact.redactor import Redactor
from subluminal.host.record.sinks import open_sink
from subluminal.producer.producer import Producer

MAX_RECORDED_EVENTS = 20_000
MAX_RECORDED_BYTES = 16 * 1024 * 1024
RING_EVERY_NS = 50_000_000
# The completion speaks of the agent's process; the ledger of the run.
RUN_STATUS = {"SUCCEEDED": "SUCCEEDED", "FAILED": "FAILED", "TIMEOUT": "FAILED", "CANCELLED": "CANCELLED"}

_encode = msgspec.json.Encoder().encode


class Recorder:
    """Records one run. Never raises for trouble with the disk: the agent goes on."""

    def __init__(self, identity: Identity, source: Source, *, wake_ledger: bool = True) -> None:
        self.unrecorded = 0
        self._redactor = Redactor()
        # It makes no tool calls of its own and judges none: the shims have policies and count theirs.
        self._producer = Producer(
            identity, source, open_sink("ledger", source.shim_id), LocalState(), Stack([]), self._redactor
        )
        self._producer.doorbell.enabled = wake_ledger
        self._producer.gate.begin(time.monotonic_ns() // 1_000_000)
        self._rung_ns = 0
        self._count = 0
        self._bytes = 0

    def open(self, agent_kind: str) -> None:
        """The run begins now and not with the agent's first words, which may take seconds."""
        self.record(AgentEvent(agent_kind, AgentEventKind.Status, "status", None, "started"))

    def record(self, event: AgentEvent) -> None:
        for masked in self._masked(event):
            agent = _encode(masked)
            if self._count >= MAX_RECORDED_EVENTS or self._bytes + len(agent) > MAX_RECORDED_BYTES:
                self.unrecorded += 1
                continue
            self._count += 1
            self._bytes += len(agent)
            self._write(agent)
        self._ring()

    def close(self, completion: AgentCompletion, *, terminated: bool = False, of_run: Counts | None = None) -> None:
        """The end of the run: the last agent event, the `run_end`, and a call to the ledger.

        `terminated`: the agent was ended by an order to the whole run. `of_run`: the calls that its shims made.
        """
        words = [f"completion {completion.status}", *([completion.message] if completion.message else [])]
        data = {"status": completion.status, "exit_code": completion.exit_code}
        if self.unrecorded:
            data["unrecorded"] = self.unrecorded
        last = AgentEvent(completion.agent_kind, AgentEventKind.Status, "status", None, ": ".join(words), data)
        for masked in self._masked(last):
            self._write(_encode(masked))
        self._producer.close("TERMINATED" if terminated else RUN_STATUS[completion.status], of_run)

    def leave(self, status: str) -> None:
        """The end of what we had to say, where there was no agent of ours."""
        self._producer.close(status)

    def _write(self, agent: bytes) -> None:
        self._producer.gate.agent_note(agent.decode(), time.time_ns() // 1_000_000)
        self._producer.hand_over()

    def _masked(self, event: AgentEvent) -> list[AgentEvent]:
        mask = self._redactor.mask_text
        text = None if event.text is None else mask(event.text)
        message = None if event.message is None else mask(event.message)
        # A mask may be longer than what it hides.
        return bound_event(replace(event, text=text, message=message))

    def _ring(self) -> None:
        now = time.monotonic_ns()
        if now - self._rung_ns >= RING_EVERY_NS:
            self._rung_ns = now
            self._producer.doorbell.ring()
