"""What the keeper of a run records itself: that it began, by which policies, and how it ended."""

from __future__ import annotations

import os
import time

from subluminal.core.gate.gate import Gate
from subluminal.core.redact.redactor import Redactor
from subluminal.host.record.doorbell import Notifier
from subluminal.host.record.sinks import JournalSink, open_sink
from subluminal.producer.policies import PolicyWatch
from subluminal.runs.run import Run


class Record:
    __slots__ = ("_gate", "_notifier", "_sink", "policy_error")

    def __init__(self, run: Run) -> None:
        policy = PolicyWatch(run.environ, os.getcwd(), None, run.identity)
        self.policy_error = policy.error
        self._gate = Gate(run.identity, run.source, policy.stack, run.membership.state, Redactor(()))
        self._sink = open_sink(run.environ.get("SUB_EVENTS") or "ledger", run.source.shim_id)
        self._notifier = Notifier(isinstance(self._sink, JournalSink) and self._sink.spooled)

    def open(self, command: str) -> None:
        self._gate.open(*_now(), {"command": os.path.basename(command)})
        self._sink.write(self._gate.take())

    def close(self, status: str) -> None:
        self._gate.close(status, *_now())
        self._sink.write(self._gate.take())
        self._sink.close()
        self._notifier.ring(0, last=True)


def _now() -> tuple[int, int]:
    return time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000
