"""`sub run`: one identified run of an agent."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import click

from subluminal.cli.output import note, printable
from subluminal.contracts.errors import UsageError
from subluminal.contracts.vocabulary import CLIENTS, ENVS
from subluminal.core.gate import Gate
from subluminal.core.redact import Redactor
from subluminal.host import paths
from subluminal.host.identity import discover, make_source, new_id
from subluminal.host.launch import EXIT_TERMINATED, EXIT_TIMEOUT, Ended, run_child
from subluminal.host.notify import Notifier
from subluminal.host.registration import Registration
from subluminal.host.runstate import SharedState
from subluminal.host.sinks import JournalSink, open_sink
from subluminal.policy.watch import PolicyWatch


def _now() -> tuple[int, int]:
    return time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000


def run_status(ended: Ended, terminated: bool) -> str:
    if terminated:
        return "TERMINATED"
    if ended.why is not None or ended.signal:
        return "CANCELLED"
    return "SUCCEEDED" if ended.code == 0 else "FAILED"


def hold_standard_descriptors() -> None:
    """Started with one of them closed, our own files would take its number. The command finds it closed as before."""
    while (fd := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= 2:
        pass
    os.close(fd)


def say(message: str) -> None:
    """To the user, if there still is one: a reader of stderr that has gone must not cost the command's exit code."""
    try:
        note(f"sub: {message}")
    except (OSError, ValueError):
        sys.stderr = None


def guess_client(command: str) -> str:
    name = os.path.basename(command)
    return name if name in ("claude", "codex") else "custom"


@click.command(
    "run",
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    epilog="Examples:\n\n  sub run -- claude\n\n  sub run --agent-id fixer --timeout 600 -- codex exec 'fix the build'"
    "\n\n  sub run --strict --bundle trace -- claude -p 'fix the build'",
)
@click.option("--agent-id", help="Stable name of this agent (default: the client's name).")
@click.option("--client", type=click.Choice(CLIENTS), help="Default: from the command's name.")
@click.option("--env", "env_name", type=click.Choice(ENVS), help="Default: ci in CI, else dev.")
@click.option("--principal", help="Who started the run (default: you).")
@click.option("--run-id", help="Default: SUB_RUN_ID if set (a part of that run), else a new one.")
@click.option("--policy", type=click.Path(dir_okay=False), help="Policy bundle for this run.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0), help="Seconds; 0 means none.")
@click.option(
    "--headless/--no-headless", default=None, help="As in CI: no daemon, a report at the end. Default: if CI is set."
)
@click.option(
    "--events", metavar="FILE|-", help="Headless: the run's events as JSONL; - is stdout (the agent's goes to stderr)."
)
@click.option("--bundle", metavar="DIR", help="Headless: a trace bundle with reports for CI; DIR must be new or empty.")
@click.option("--strict", is_flag=True, help="Headless: exit 1 if a call was refused or a policy failed to load.")
@click.option(
    "--fail-on", type=click.Choice(("critical", "warn", "any")), help="Strict, for refusals of this severity or above."
)
@click.option("--max-blocked", type=click.IntRange(min=0), metavar="N", help="Strict, tolerating N refused calls.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def run_command(command: tuple[str, ...], **given: Any) -> int:
    """Run COMMAND as one identified run: every shim below it shares its run id, budgets and policy.

    The terminal is the command's own. Exit code: the command's, 128 + the signal that ended it, 124 after --timeout,
    125 when the run was terminated (`sub kill`, or a policy), 127 or 126 when the command cannot be started.

    In CI (see docs/ci.md) --strict, --events and --bundle make it a gate: the agent's own exit code is returned if it
    is not 0, else 1 when the job's rules were broken."""
    hold_standard_descriptors()
    if is_headless(given):
        from subluminal.cli.ci_run import HeadlessRunner

        return HeadlessRunner(list(command), given).run()
    return Runner(list(command), given).run()


def is_headless(given: dict[str, Any]) -> bool:
    """As asked; by default where CI is set; and always where an option needs it."""
    options = ("events", "bundle", "strict", "fail_on", "max_blocked")
    needs = [name for name in options if given.get(name) is not None and given[name] is not False]
    wanted = given.get("headless")
    if wanted is False and needs:
        option = "--" + needs[0].replace("_", "-")
        raise UsageError(f"{option} needs a headless run", hint="Leave out --no-headless.")
    if wanted is not None:
        return bool(wanted)
    if not needs and os.environ.get("SUB_RUN_ID") and os.environ.get("SUB_EVENTS", "").startswith("dir:"):
        return False  # a part of a run that is being recorded already
    return bool(needs) or os.environ.get("CI", "").lower() not in ("", "0", "false", "no")


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
        self.notifier = Notifier(isinstance(self.sink, JournalSink) and self.sink.spooled)

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
            say(f"nothing can be recorded: {paths.sub_home()} cannot be written ({error.strerror}); see `sub doctor`")
            return None

    def _stop_reason(self) -> str | None:
        return "terminated" if self.state.terminated is not None else None

    def _close(self, status: str) -> None:
        wall, mono = _now()
        self.gate.close(status, wall, mono)
        self.sink.write(self.gate.take())
        self.sink.close()
        self.notifier.ring(0, last=True)
