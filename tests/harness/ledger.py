"""What the ledger's tests share: event lines as a shim writes them, producer processes, and a real daemon."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.waiting import GENEROUS_S, wait_for
from subluminal.host.record.journal import create_locked, journal_name
from subluminal.ledger.trace.report import Report
from subluminal.ledger.trace.verify import verify_ledger

POLICY = {"policy_id": "team-default", "policy_version": "1.2.0", "policy_hash": "a" * 64}
BASE_MS = 1_700_000_000_000
# Shim ids as our own producers have them: calls named after them are theirs.
OURS, THEIRS = "s018bcfe56800a1a1a1a1a1a1a1a1", "s018bcfe56801b2b2b2b2b2b2b2b2"


def timestamp(ms: int) -> str:
    seconds, millis = divmod(ms, 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{millis:03d}Z"


class EventMaker:
    """The events of one shim, numbered. Every method returns a line without its newline."""

    def __init__(self, run_id: str, shim_id: str, *, identity: bool = True, start_ms: int = BASE_MS) -> None:
        self.run_id = run_id
        self.shim_id = shim_id
        self.identity = identity
        self.ms = start_ms
        self.seq = 0
        self.calls = 0

    def event(self, kind: str, **members: Any) -> bytes:
        self.seq += 1
        self.ms += 1
        event: dict[str, Any] = {
            "type": kind,
            "v": "0.2.0",
            "ts": timestamp(self.ms),
            "run_id": self.run_id,
            "agent_id": "repo-fixer",
            "client": "claude",
            "env": "dev",
            "source": {"host_id": "host-1", "proc_id": "proc-1", "shim_id": self.shim_id, "seq": self.seq},
        }
        if self.identity:
            event["principal"] = "ann"
            event["workload"] = {"user": "ann", "repo_path": "/home/ann/project"}
        return json.dumps({**event, **members}, separators=(",", ":")).encode()

    def run_start(self, **run: Any) -> bytes:
        return self.event(
            "run_start", run={"started_at": timestamp(self.ms), "mode": "guardrails", "policy": POLICY, **run}
        )

    def run_end(self, status: str = "SUCCEEDED") -> bytes:
        summary = dict.fromkeys(
            ("calls_total", "calls_allowed", "calls_blocked", "calls_throttled", "errors_total", "duration_ms"), 0
        )
        return self.event("run_end", run={"ended_at": timestamp(self.ms), "status": status, "summary": summary})

    def start(
        self, tool: str = "git_status", server: str = "git", *, preview: str = '{"path":"."}', **members: Any
    ) -> bytes:
        self.calls += 1
        self.reference = {
            "call_id": f"{self.shim_id}-{self.calls}",
            "server_name": server,
            "tool_name": tool,
            "args_hash": f"{self.calls:064x}",
        }
        call = {
            **self.reference,
            "transport": "mcp_stdio",
            "bytes_in": 170,
            "preview": {"truncated": False, "args_preview": preview},
            "seq": self.calls,
        }
        return self.event("tool_call_start", call={**call, **members})

    def seen(self, transport: str, tool_use_id: str) -> bytes:
        """The start of a call that other doors see too, under the client's id of it."""
        context = {"claudecode/toolUseId": tool_use_id}
        return self.start(transport=transport, call_context=context, args_hash="e" * 64)

    def decision(self, action: str = "ALLOW", **members: Any) -> bytes:
        allowed = action == "ALLOW"
        decision: dict[str, Any] = {
            "action": action,
            "rule_id": None if allowed else "deny-writes",
            "severity": "info" if allowed else "warn",
            "explain": {
                "summary": "No rule matched." if allowed else "Writes are denied.",
                "reason_code": "DEFAULT_ALLOW" if allowed else "DENYLIST_MATCH",
            },
            "policy": POLICY,
            **members,
        }
        return self.event("tool_call_decision", call=self.reference, decision=decision)

    def end(self, status: str = "OK", *, preview: str = "clean", **members: Any) -> bytes:
        return self.event(
            "tool_call_end",
            call=self.reference,
            status=status,
            latency_ms=3,
            bytes_out=220,
            preview={"truncated": False, "result_preview": preview},
            **members,
        )

    def call(self, action: str = "ALLOW", status: str = "OK", **names: Any) -> list[bytes]:
        if action == "ALLOW":
            return [self.start(**names), self.decision(), self.end(status)]
        error = {"class": "policy_block", "message": "refused"}
        return [self.start(**names), self.decision(action), self.end("ERROR", error=error)]

    def whole_run(self, calls: int) -> list[bytes]:
        lines = [self.run_start()]
        for _ in range(calls):
            lines += self.call()
        return [*lines, self.run_end()]


def sub_environment(home: Path, **extra: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name == "SUB_CORE" or not name.startswith("SUB_")}
    return {**kept, "SUB_HOME": str(home), "HOME": str(home.parent), **extra}


def start_ledgerd(home: Path, *arguments: str, **extra: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "subluminal", "ledgerd", "--foreground", "--quiet", *arguments],
        env=sub_environment(home, **extra),
        stdin=subprocess.DEVNULL,
    )


def connect_ledgerd(home: Path) -> socket.socket:
    """A connection to the daemon of this home, which may still be starting."""

    def attempt() -> socket.socket | None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(GENEROUS_S)
        here = os.open(home, os.O_RDONLY)
        try:
            connection.connect(f"/proc/self/fd/{here}/ledgerd.sock" if len(str(home)) > 80 else f"{home}/ledgerd.sock")
        except OSError:
            connection.close()
            return None
        finally:
            os.close(here)
        return connection

    connection = wait_for(attempt, what="a listening ledgerd")
    assert connection is not None
    return connection


@contextmanager
def ledgerd(home: Path, *arguments: str, **extra: str) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon that listens; stopped at the end."""
    process = start_ledgerd(home, *arguments, **extra)
    try:
        connect_ledgerd(home).close()
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(GENEROUS_S)


def verify_all(path: str) -> list[Report]:
    """The runs alone."""
    return verify_ledger(path)[1]


def create_journal(spool: str, shim_id: str) -> int:
    os.makedirs(spool, mode=0o700, exist_ok=True)
    return create_locked(os.path.join(spool, journal_name(shim_id)))


def spool_of(home: Path) -> Path:
    spool = home / "spool"
    spool.mkdir(parents=True, exist_ok=True)
    for directory in (home, spool):
        directory.chmod(0o700)
    return spool
