"""One run of an agent: identity, registration, record, child. `headless` is the same for CI."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from subluminal.contracts.errors import UsageError
from subluminal.core.gate.gate import Gate
from subluminal.core.redact.redactor import Redactor
from subluminal.host import home
from subluminal.host.identity import discover, make_source, new_id
from subluminal.host.record.doorbell import Doorbell
from subluminal.host.record.sinks import open_sink
from subluminal.host.run.registration import Registration
from subluminal.host.run.state import SharedState
from subluminal.producer.policies import PolicyWatch
from subluminal.reports.printable import printable
from subluminal.runs.launch import EXIT_TERMINATED, EXIT_TIMEOUT, Ended, run_child


def _now() -> tuple[int, int]:
    return time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000


def run_status(ended: Ended, terminated: bool) -> str:
    if terminated:
        return "TERMINATED"
    if ended.why is not None or ended.signal:
        return "CANCELLED"
    return "SUCCEEDED" if ended.code == 0 else "FAILED"


def say(message: str) -> None:
    """To the user, if there still is one: a reader of stderr that has gone must not cost the command's exit code."""
    try:
        note(f"sub: {message}")
    except (OSError, ValueError):
        sys.stderr = None


def note(message: str) -> None:
    print(message, file=sys.stderr)


def guess_client(command: str) -> str:
    name = os.path.basename(command)
    return name if name in ("claude", "codex") else "custom"


class Runner:
    """One `sub run`: identity, registration, record, child."""

    child_stdout: int | None = None  # the descriptor that the command's stdout goes to; None: our own

    def __init__(self, command: list[str], given: dict[str, Any]) -> None:
        self.command = command
        self.environ = dict(os.environ)
        named: str | None = given.get("run_id")
        inherited = os.environ.get("SUB_RUN_ID") if not named else None
        self.run_id: str = named or inherited or new_id("run-")
        self.owner = not inherited
        self.timeout_s: float | None = given.get("timeout_s")
        self.environ["SUB_RUN_ID"] = self.run_id
        if self.environ.get("SUB_HOME"):
            self.environ["SUB_HOME"] = os.path.abspath(self.environ["SUB_HOME"])
        self.environ["SUB_CLIENT"] = given.get("client") or os.environ.get("SUB_CLIENT") or guess_client(command[0])
        for variable, word in (("SUB_AGENT_ID", "agent_id"), ("SUB_ENV", "env_name"), ("SUB_PRINCIPAL", "principal")):
            if given.get(word):
                self.environ[variable] = given[word]
        if given.get("policy"):
            path = os.path.abspath(given["policy"])
            if not os.path.exists(path):
                raise UsageError(f"--policy {given['policy']}: there is no such file")
            self.environ["SUB_POLICY"] = path
        self.prepare()
        self.state = SharedState.open(self.run_id)
        source = make_source()
        self.identity = discover(self.environ, source.host_id)
        for variable, value in (
            ("SUB_AGENT_ID", self.identity.agent_id),
            ("SUB_ENV", self.identity.env),
            ("SUB_PRINCIPAL", self.identity.principal),
        ):
            if value:
                self.environ[variable] = value
        self.policy = PolicyWatch(self.environ, os.getcwd(), None, self.identity)
        self.gate = Gate(self.identity, source, self.policy.stack, self.state, Redactor(()))
        self.sink = open_sink(self.environ.get("SUB_EVENTS") or "ledger", source.shim_id)
        self.doorbell = Doorbell(self.sink.spooled)

    def prepare(self) -> None:
        """Last changes to the environment before identity and record are made of it."""

    def run(self) -> int:
        if self.policy.error is not None:
            say(f"the policy could not be loaded, so every tool call will be refused: {self.policy.error}")
        registration = self._register()
        wall, mono = _now()
        self.gate.open(wall, mono, {"command": os.path.basename(self.command[0])})
        self.sink.write(self.gate.take())
        try:
            ended = run_child(
                self.command,
                self.environ,
                run_id=self.run_id,
                owner=self.owner,
                stop=self._stop_reason,
                timeout_s=self.timeout_s,
                stdout=self.child_stdout,
            )
        except UsageError:
            self._close("FAILED")
            raise
        finally:
            if registration is not None:
                registration.remove()
        terminated = self.state.terminated
        self._close(run_status(ended, terminated is not None))
        if ended.left:
            say(f"these processes of the run could not be ended: {', '.join(map(str, ended.left))}")
        if terminated is not None:
            say(f"the run was terminated ({printable(terminated[0])}): {printable(terminated[1])}")
            return EXIT_TERMINATED if ended.why is not None else ended.code
        if ended.why == "timeout":
            say(f"the run was ended after {self.timeout_s:g} s")
            return EXIT_TIMEOUT
        return ended.code

    def _register(self) -> Registration | None:
        """Without a home that can be written, the agent runs all the same: its shims find the run by environment."""
        try:
            return Registration(self.environ)
        except OSError as error:
            say(f"nothing can be recorded: {home.sub_home()} cannot be written ({error.strerror}); see `sub doctor`")
            return None

    def _stop_reason(self) -> str | None:
        return "terminated" if self.state.terminated is not None else None

    def _close(self, status: str) -> None:
        wall, mono = _now()
        self.gate.close(status, wall, mono)
        self.sink.write(self.gate.take())
        self.sink.close()
        self.doorbell.ring(last=True)
