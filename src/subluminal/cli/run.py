"""`sub run` and `sub kill`: one identified run, and its emergency stop."""

from __future__ import annotations

import os
import time
from typing import Any

import click

from subluminal.cli.output import note, print_json
from subluminal.contracts.errors import UsageError
from subluminal.contracts.vocabulary import CLIENTS, ENVS
from subluminal.core.gate import Gate
from subluminal.core.redact import Redactor
from subluminal.host.identity import discover, make_source, new_id
from subluminal.host.launch import EXIT_TERMINATED, EXIT_TIMEOUT, Ended, Registration, run_child
from subluminal.host.notify import Notifier
from subluminal.host.runstate import SharedState, list_runs
from subluminal.host.sinks import open_sink
from subluminal.policy.watch import PolicyWatch


def _now() -> tuple[int, int]:
    return time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000


def run_status(ended: Ended, terminated: bool) -> str:
    if terminated:
        return "TERMINATED"
    if ended.why is not None or ended.signal:
        return "CANCELLED"
    return "SUCCEEDED" if ended.code == 0 else "FAILED"


def guess_client(command: str) -> str:
    name = os.path.basename(command)
    return name if name in ("claude", "codex") else "custom"


@click.command(
    "run",
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    epilog="Examples:\n\n  sub run -- claude\n\n  sub run --agent-id fixer --timeout 600 -- codex exec 'fix the build'",
)
@click.option("--agent-id", help="Stable name of this agent (default: the client's name).")
@click.option("--client", type=click.Choice(CLIENTS), help="Default: from the command's name.")
@click.option("--env", "env_name", type=click.Choice(ENVS), help="Default: ci in CI, else dev.")
@click.option("--principal", help="Who started the run (default: you).")
@click.option("--run-id", help="Default: a new one.")
@click.option("--policy", type=click.Path(dir_okay=False), help="Policy bundle for this run.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0), help="Seconds; 0 means none.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def run_command(command: tuple[str, ...], **given: Any) -> int:
    """Run COMMAND as one identified run: every shim below it shares its run id, budgets and policy.

    The terminal is the command's own; its exit code is returned. `sub kill` ends it."""
    return Runner(list(command), given).run()


class Runner:
    """One `sub run`: identity, registration, record, child."""

    def __init__(self, command: list[str], given: dict[str, Any]) -> None:
        self.command = command
        self.environ = dict(os.environ)
        self.run_id: str = given.get("run_id") or new_id("run-")
        self.timeout_s: float | None = given.get("timeout_s")
        self.environ["SUB_RUN_ID"] = self.run_id
        self.environ["SUB_CLIENT"] = given.get("client") or os.environ.get("SUB_CLIENT") or guess_client(command[0])
        for variable, word in (("SUB_AGENT_ID", "agent_id"), ("SUB_ENV", "env_name"), ("SUB_PRINCIPAL", "principal")):
            if given.get(word):
                self.environ[variable] = given[word]
        if given.get("policy"):
            path = os.path.abspath(given["policy"])
            if not os.path.exists(path):
                raise UsageError(f"--policy {given['policy']}: there is no such file")
            self.environ["SUB_POLICY"] = path
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
        self.notifier = Notifier(True)

    def run(self) -> int:
        if self.policy.error is not None:
            note(f"sub: the policy could not be loaded, so every tool call will be refused: {self.policy.error}")
        registration = Registration(self.environ)
        wall, mono = _now()
        self.gate.open(wall, mono, {"command": os.path.basename(self.command[0])})
        self.sink.write(self.gate.take())
        try:
            ended = run_child(
                self.command, self.environ, run_id=self.run_id, stop=self._stop_reason, timeout_s=self.timeout_s
            )
        except UsageError:
            self._close("FAILED")
            raise
        finally:
            registration.remove()
        terminated = self.state.terminated
        self._close(run_status(ended, terminated is not None))
        if terminated is not None:
            note(f"sub: the run was terminated ({terminated[0]}): {terminated[1]}")
            return EXIT_TERMINATED if ended.why is not None else ended.code
        if ended.why == "timeout":
            note(f"sub: the run was ended after {self.timeout_s:g} s")
            return EXIT_TIMEOUT
        return ended.code

    def _stop_reason(self) -> str | None:
        return "terminated" if self.state.terminated is not None else None

    def _close(self, status: str) -> None:
        wall, mono = _now()
        self.gate.close(status, wall, mono)
        self.sink.write(self.gate.take())
        self.sink.close()
        self.notifier.ring(0, last=True)


@click.command("kill", epilog="Examples:\n\n  sub kill last\n\n  sub kill --all --reason 'runaway agents'")
@click.argument("run", required=False)
@click.option("--all", "every", is_flag=True, help="Every run on this machine that has not ended.")
@click.option("--reason", default="stopped by the operator", help="Shown to the agent with each refusal.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def kill_command(run: str | None, every: bool, reason: str, as_json: bool) -> int:
    """Stop a run: every further tool call of RUN (an id, or `last`) is refused, and `sub run` ends the agent."""
    if every == (run is not None):
        raise UsageError("name one run, or --all", hint="`sub runs` lists them; `last` is the most recent.")
    known = sorted(list_runs(), key=lambda info: info.used_at)
    if every:
        targets = [info.run_id for info in known if info.terminated is None]
    elif run == "last":
        targets = [info.run_id for info in known[-1:]]
    else:
        targets = [str(run)]
    if not targets:
        raise UsageError("there is no run to stop", hint="`sub runs` lists them.")
    killed = [target for target in targets if SharedState.kill(target, "OPERATOR", reason)]
    if as_json:
        print_json({"killed": killed, "not_found": [t for t in targets if t not in killed]})
    else:
        for target in targets:
            note(f"stopped {target}" if target in killed else f"sub: no run {target!r} has state on this machine")
    return 0 if killed else 1
