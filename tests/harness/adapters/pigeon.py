"""An adapter of a protocol that does not exist: each message is "SERVER|TOOL|ARGUMENTS".

It shows what the core needs of an adapter, and that it needs nothing else: no protocol, no process, no file, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.adapters.interface import ENVIRONMENT, TOOL_FAILURES, Adapter, Outcome, Session, Setting
from harness.shim import write_policy
from harness.sink import EventFile
from subluminal.contracts.identity import Identity, Source
from subluminal.contracts.toolcall import ToolCall
from subluminal.core.engine.stack import Engine, Stack
from subluminal.core.engine.state import LocalState
from subluminal.core.gate.gate import Gate
from subluminal.core.redact.redactor import Redactor
from subluminal.policy.compile.bundle import compile_bundle

WALL_MS = 1_700_000_000_000


class PigeonSession(Session):
    def __init__(self, gate: Gate, server_name: str, events: EventFile) -> None:
        self._gate = gate
        self._server_name = server_name
        self.events = events
        self._executed: list[str] = []
        self._mono_ms = 10

    @property
    def executed(self) -> list[str]:
        return self._executed

    def call_text(self, tool: str, arguments: str) -> Outcome:
        return self._deliver(f"{self._server_name}|{tool}|{arguments}".encode())

    def _deliver(self, message: bytes) -> Outcome:
        server, tool, arguments = message.split(b"|", 2)
        self._mono_ms += 5
        call = ToolCall(server.decode(), tool.decode(), arguments, len(message), "unknown")
        record = self._gate.judge(call, WALL_MS, self._mono_ms)
        self._gate.announce(record, WALL_MS)
        if record.decision.action != "ALLOW":
            code, words, data = self._gate.refusal(record)
            self._gate.settle_refused(record, WALL_MS, self._mono_ms, len(words))
            self.write()
            return Outcome(code, words, data["subluminal"])
        self._executed.append(tool.decode())
        self._gate.settle(record, "OK", WALL_MS, self._mono_ms, latency_ms=0, bytes_out=2, result_raw=b"ok")
        self.write()
        return Outcome()

    def close(self) -> None:
        self._gate.close("SUCCEEDED", WALL_MS, self._mono_ms)
        self.write()

    def write(self) -> None:
        with open(self.events.path, "ab") as file:
            file.write(self._gate.take())


class CarrierPigeon(Adapter):
    name = "carrier pigeon"
    transport = "unknown"
    lacks = {  # noqa: RUF012
        ENVIRONMENT: "a pigeon is given its identity by hand",
        TOOL_FAILURES: "a letter that arrives has arrived",
    }

    @contextmanager
    def start(self, setting: Setting) -> Iterator[Session]:
        path = write_policy(setting.place, setting.policy)
        identity = Identity("run-pigeon", "sender", "custom", "dev")
        stack = Stack([Engine(compile_bundle(path.read_bytes(), path.name), identity)])
        gate = Gate(identity, Source("host", "process", "pigeon-1"), stack, LocalState(), Redactor())
        session = PigeonSession(gate, setting.server_name, EventFile(setting.place / "events.jsonl"))
        gate.open(WALL_MS, 0)
        yield session
        session.close()
