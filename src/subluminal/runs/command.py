"""A command as one run: who it is, its record, and the command itself. `headless` adds a record that is judged."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from subluminal.contracts.errors import SubluminalError
from subluminal.host import home
from subluminal.host.run.membership import Membership
from subluminal.producer.producer import Producer
from subluminal.reports.printable import printable
from subluminal.runs.launch import EXIT_FAILED, EXIT_TERMINATED, EXIT_TIMEOUT, Ended, run_child
from subluminal.runs.options import RunOptions
from subluminal.runs.run import Run, run_environment

if TYPE_CHECKING:
    from subluminal.ledger.fold.run_facts import RunFacts
    from subluminal.runs.model_api.door import Doors
    from subluminal.runs.verdict import Verdict

# The shims of an agent that has ended by itself end their servers first: up to 0.65 s for a stubborn one.
SHIMS_END_S = 1.0
# Why a run is ended whose door before the model's API has gone.
_WITHOUT_DOOR = "without its door"
# Takes one line for whoever started the run. It must not fail: a reader that has gone must not cost the exit code.
Say = Callable[[str], None]


class Outcome(NamedTuple):
    """`code` is what the caller exits with. Facts and a verdict are there only where the run was headless."""

    code: int
    status: str
    facts: RunFacts | None = None
    verdict: Verdict | None = None
    problems: tuple[str, ...] = ()


def run_command(command: list[str], options: RunOptions, say: Say) -> Outcome:
    """Raises UsageError for a command that cannot be started."""
    if options.headless is not None:
        from subluminal.runs.headless import run_headless

        return run_headless(command, options, options.headless, say)
    run = Run(run_environment(os.environ, options, guess_client(command[0])), options)
    try:
        return execute(command, run, run.producer(), say, options)
    finally:
        run.membership.leave()


def guess_client(command: str) -> str:
    name = os.path.basename(command)
    return name if name in ("claude", "codex") else "custom"


def execute(
    command: list[str],
    run: Run,
    producer: Producer,
    say: Say,
    options: RunOptions,
    *,
    on_tick: Callable[[], None] = lambda: None,
    stdout: int | None = None,
) -> Outcome:
    """`on_tick` is called ten times a second while the command runs. `stdout`: where the command's goes; None: ours."""
    membership = run.membership
    timeout_s = options.timeout_s
    doors: Doors | None = None

    def stop() -> str | None:
        on_tick()
        if membership.terminated is not None:
            return "terminated"
        return _WITHOUT_DOOR if doors is not None and doors.have_ended() else None

    if producer.policy_error is not None:
        say(f"sub: the policy could not be loaded, so every tool call will be refused: {producer.policy_error}")
    if (fault := membership.register(run.environ, os.getcwd())) is not None:
        say(f"sub: nothing can be recorded: {home.sub_home()} cannot be written ({fault.strerror}); see `sub doctor`")
    producer.open({"command": os.path.basename(command[0])}, policies=False)
    try:
        if options.model_api:
            from subluminal.runs.model_api.door import Doors

            doors = Doors(command, run.environ, options.model_api_upstream)
            command = doors.command
        ended = run_child(
            command,
            run.environ,
            end_others=lambda: membership.sweep(below=os.getpid()),
            stop=stop,
            timeout_s=timeout_s,
            stdout=stdout,
        )
    except SubluminalError:
        producer.close("FAILED")
        raise
    finally:
        if doors is not None:
            doors.close()
        membership.unregister()
    terminated = membership.terminated
    status = run_status(ended, terminated is not None)
    _close(producer, membership, status, patience_s=SHIMS_END_S if ended.why is None else 0)
    _tell(ended, terminated, timeout_s, say)
    if ended.why is None:
        return Outcome(ended.code, status)
    if terminated is not None:
        return Outcome(EXIT_TERMINATED, status)
    return Outcome(EXIT_FAILED if ended.why == _WITHOUT_DOOR else EXIT_TIMEOUT, status)


def _close(producer: Producer, membership: Membership, status: str, *, patience_s: float) -> None:
    """The end of the run itself, with the calls that its shims made. Who interrupts us now must not cost the record."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        producer.close(status, membership.counts(patience_s))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _tell(ended: Ended, terminated: tuple[str, str] | None, timeout_s: float | None, say: Say) -> None:
    if ended.left:
        say(f"sub: these processes of the run could not be ended: {', '.join(map(str, ended.left))}")
    if terminated is not None:
        say(f"sub: the run was terminated ({printable(terminated[0])}): {printable(terminated[1])}")
    elif ended.why == "timeout":
        say(f"sub: the run was ended after {timeout_s:g} s")
    elif ended.why == _WITHOUT_DOOR:
        say("sub: the door before the model's API has ended, and the run with it: calls could not be judged any more")


def run_status(ended: Ended, terminated: bool) -> str:
    if terminated:
        return "TERMINATED"
    if ended.why == _WITHOUT_DOOR:
        return "FAILED"
    if ended.why is not None or ended.signal:
        return "CANCELLED"
    return "SUCCEEDED" if ended.code == 0 else "FAILED"
