"""An exchange between two sides without I/O: the same rooms and the same order as in a shim, on a clock of the test."""

from __future__ import annotations

import json
from typing import Any

from harness.engine import compiled, rule, tools
from subluminal.adapters.stdio.framing import read_line
from subluminal.contracts.events import decode_event
from subluminal.contracts.identity import Identity, Source
from subluminal.core.engine.stack import Engine, Stack
from subluminal.core.engine.state import LocalState
from subluminal.core.gate.gate import Gate
from subluminal.core.redact.redactor import Redactor
from subluminal.host.oversize import Oversize
from subluminal.mcp.calls import Calls
from subluminal.mcp.exchange import Exchange
from subluminal.mcp.message.exact import read_scan
from subluminal.mcp.message.reading import Reading
from subluminal.mcp.tools import ToolNotes
from subluminal.producer.turn import Turn

WALL = 1_700_000_000_000


class Talk:
    """Each input returns what came out: ("server" | "client", message)."""

    def __init__(
        self,
        *rules: dict[str, Any],
        mode: str = "guardrails",
        refusal_style: str = "error",
        timeout_ms: int = 0,
        **members: Any,
    ) -> None:
        identity = Identity("run")
        rules = rules or (rule("no", "deny", tools("bad*")),)
        self.gate = Gate(
            identity,
            Source("h", "p", "s"),
            Stack([Engine(compiled(*rules, mode=mode, **members), identity)]),
            LocalState(),
            Redactor([], []),
        )
        self.calls = Calls(
            self.gate, "srv", "mcp_stdio", ToolNotes(), refusal_style=refusal_style, timeout_ms=timeout_ms or None
        )
        self.exchange = Exchange(self.calls)
        self.turn = Turn(self, self.calls, self._forward, self._answer, clock=lambda: self.at_ns)  # type: ignore[arg-type]
        self.at_ns = 1_000_000_000
        self.events: list[dict[str, Any]] = []
        self.out: list[tuple[str, Any]] = []

    def client(self, *messages: bytes) -> list[tuple[str, Any]]:
        for message in messages:
            self.exchange.client_message(read_line(message), message, WALL, self.at_ns)
        return self._out()

    def server(self, *messages: bytes) -> list[tuple[str, Any]]:
        for message in messages:
            self.exchange.server_message(message, self.at_ns)
        return self._out()

    def client_large(self, message: bytes) -> list[tuple[str, Any]]:
        """As if it were too large to hold."""
        self.exchange.client_other(scanned(message), message, len(message), WALL, self.at_ns)
        return self._out()

    def server_large(self, message: bytes) -> None:
        big = Oversize(False, 0, strict=False)
        for start in range(0, len(message), 61):
            big.feed(message[start : start + 61])
        big.scan.finish()
        self.exchange.server_scanned(big.scan, big.size, big.stream_hash())
        self._out()

    def wait(self, ms: int) -> None:
        self.at_ns += ms * 1_000_000

    def tick(self) -> list[tuple[str, Any]]:
        self.exchange.expire(self.at_ns)
        return self._out()

    def abandon(self) -> None:
        self.exchange.abandon("CANCELLED", "unknown", "the end")
        self._out()

    def _out(self) -> list[tuple[str, Any]]:
        self.turn.carry_out(WALL, self.at_ns)
        out, self.out = self.out, []
        return out

    def _forward(self, messages: list[bytes]) -> None:
        self.out += [("server", message) for message in messages]

    def _answer(self, messages: list[bytes]) -> None:
        self.out += [("client", message) for message in messages]

    def hand_over(self) -> None:
        for line in self.gate.take().splitlines(keepends=True):
            decode_event(line)
            self.events.append(json.loads(line))

    def ends(self) -> list[tuple[str, str]]:
        return [(e["call"]["tool_name"], e["status"]) for e in self.events if e["type"] == "tool_call_end"]

    def actions(self) -> list[str]:
        return [e["decision"]["action"] for e in self.events if e["type"] == "tool_call_decision"]

    def count(self, kind: str) -> int:
        return sum(e["type"] == kind for e in self.events)


def scanned(line: bytes, step: int = 61) -> Reading:
    """A line as it is read when it is too large to hold."""
    big = Oversize(False, 0)
    for start in range(0, len(line), step):
        big.feed(line[start : start + step])
    big.scan.finish()
    return read_scan(big.scan)
