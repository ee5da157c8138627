"""`sub doctor --self-test`: a real call through a real shim into a real ledger, and a shim killed without warning.

Everything happens in a temporary SUB_HOME that is removed afterwards; the user's ledger is not touched. The
organisation's policy is in force here as everywhere, so the call may be refused: it is recorded all the same.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from subluminal.contracts.errors import ConfigError, SubluminalError
from subluminal.doctor.findings import ERROR, WARNING, Area
from subluminal.doctor.tool_server import TOOL
from subluminal.host.executable import find_sub
from subluminal.host.run.processes import carrying, process_table

CALLS = 200
SERVER_NAME = "self-test"
_ANSWER_S = 15.0
_ARRIVE_S = 10.0
# The watchdog gives the server 0.5 s after SIGTERM and as much after SIGKILL.
_GONE_S = 3.0
_REMOVE_S = 3.0
_LOOK_S = 0.02
_SLOW_MS = 5.0
_SERVER = [sys.executable, "-P", "-m", "subluminal.doctor.tool_server"]


class SelfTestFailure(SubluminalError):
    """What did not happen; a finding, not a fault of the doctor."""

    exit_code = 1


class Session:
    """One client of one server: speaks MCP over its pipes and gives up after a while."""

    def __init__(self, command: list[str], environ: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ, bufsize=0
        )
        self._next_id = 0
        self._pending = b""
        self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "doctor"}})

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        import select

        self._next_id += 1
        request = {"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params}
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None and stdout is not None
        deadline = time.monotonic() + _ANSWER_S
        try:
            stdin.write(json.dumps(request).encode() + b"\n")
            while b"\n" not in self._pending:
                ready, _, _ = select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))
                chunk = os.read(stdout.fileno(), 65536) if ready else b""
                if not chunk:
                    raise self._no_answer(method)
                self._pending += chunk
        except BrokenPipeError:
            raise self._no_answer(method) from None
        line, _, self._pending = self._pending.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def call(self) -> dict[str, Any]:
        return self.ask("tools/call", {"name": TOOL, "arguments": {}})

    def close(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(_GONE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def _no_answer(self, method: str) -> SelfTestFailure:
        self.process.kill()
        assert self.process.stderr is not None
        said = self.process.stderr.read(4096).decode("utf-8", "replace").strip().splitlines()
        return SelfTestFailure(f"no answer to {method}" + (f": {said[-1]}" if said else ""))


@contextmanager
def _home() -> Iterator[str]:
    """Gone afterwards, also where the last process of the test was still writing to it while it was being removed."""
    home = tempfile.mkdtemp(prefix="sub-doctor-")
    try:
        yield home
    finally:
        give_up = time.monotonic() + _REMOVE_S
        while os.path.exists(home) and time.monotonic() < give_up:
            shutil.rmtree(home, ignore_errors=True)
            time.sleep(_LOOK_S)


def check_self() -> Area:
    area = Area("self-test")
    with _home() as home:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("SUB_")}
        environ |= {"SUB_HOME": home, "SUB_RUN_ID": "self-test", "SUB_CLIENT": "custom"}
        try:
            _call_and_record(area, environ)
            _kill(area, environ)
        except SelfTestFailure as failure:
            area.add(ERROR, "self-test-failed", str(failure), "sub shim --server-name test -- cat </dev/null")
        finally:
            _run(environ, "ledgerd", "--stop")
    return area


def sub_command() -> list[str]:
    """As a client would start it, where it is installed."""
    try:
        return [find_sub()]
    except ConfigError:
        return [sys.executable, "-P", "-m", "subluminal"]


def _shim() -> list[str]:
    return [*sub_command(), "shim", "--server-name", SERVER_NAME, "--", *_SERVER]


def _call_and_record(area: Area, environ: dict[str, str]) -> None:
    direct = _measure(_SERVER, environ)
    through = _measure(_shim(), environ)
    added = max(0.0, through - direct)
    call = _recorded(environ)
    area.facts = {"overhead_ms": round(added, 3), "direct_ms": round(direct, 3), "decision": call.get("decision")}
    area.summary = f"a call was recorded; the shim adds {added:.2f} ms"
    if added > _SLOW_MS:
        message = f"the shim adds {added:.1f} ms per call: this machine is very busy"
        area.add(WARNING, "slow", message, "sub doctor --self-test")


def _measure(command: list[str], environ: dict[str, str]) -> float:
    """Milliseconds per call, the median of many."""
    session = Session(command, environ)
    try:
        times = []
        for _ in range(CALLS):
            begin = time.perf_counter()
            session.call()
            times.append(time.perf_counter() - begin)
    finally:
        session.close()
    return median(times) * 1000


def _recorded(environ: dict[str, str]) -> dict[str, Any]:
    """The call as the ledger tells it."""
    deadline = time.monotonic() + _ARRIVE_S
    while True:
        done = _run(environ, "query", "--server", SERVER_NAME, "--limit", "1", "--json")
        if done.returncode == 0 and done.stdout.strip():
            call: dict[str, Any] = json.loads(done.stdout.splitlines()[0])
            return call
        if time.monotonic() > deadline:
            raise SelfTestFailure(f"the call did not arrive in the ledger within {_ARRIVE_S:g} s")
        time.sleep(0.05)


def _kill(area: Area, environ: dict[str, str]) -> None:
    """SIGKILL to the shim, as clients do it: the server must go too."""
    mark = str(os.getpid())
    session = Session(_shim(), {**environ, "SUB_SELF_TEST": mark})
    try:
        reply = session.call()
        content = reply.get("result", {}).get("content", [{}])
        server = int(content[0].get("text", 0))
        begin = time.monotonic()
        os.kill(session.process.pid, signal.SIGKILL)
        session.process.wait()
        while left := _left({server, *carrying("SUB_SELF_TEST", mark)}):
            if time.monotonic() - begin > _GONE_S:
                raise SelfTestFailure(f"a shim was killed and left processes behind: {', '.join(map(str, left))}")
            time.sleep(0.01)
    finally:
        session.close()
    gone_ms = round((time.monotonic() - begin) * 1000)
    area.facts["gone_ms"] = gone_ms
    area.summary += f"; a killed shim left nothing behind ({gone_ms} ms)"


def _left(pids: set[int]) -> list[int]:
    return [process.pid for process in process_table() if process.pid in pids and not process.dead]


def _run(environ: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*sub_command(), *arguments],
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=60,
        check=False,
    )
