"""`sub agent`: run an agent program as one identified run, and see what it does."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterable, Mapping

import click

from subluminal.agents.base import Backend, RunRequest
from subluminal.agents.claude_code import ClaudeCode
from subluminal.agents.codex import Codex
from subluminal.agents.environment import run_environment, run_identity
from subluminal.agents.generic import Generic
from subluminal.agents.membership import RunMembership
from subluminal.agents.narrative import Narrative, Piece
from subluminal.agents.recorder import Recorder
from subluminal.agents.run import AgentRun
from subluminal.cli.render.output import note, paint, print_json
from subluminal.contracts.agent_event import AgentCompletion, AgentEvent
from subluminal.contracts.errors import UsageError
from subluminal.host.identity import make_source
from subluminal.reports.printable import printable
from subluminal.runs.launch import EXIT_TERMINATED, EXIT_TIMEOUT

BACKENDS: dict[str, type[Backend]] = {"claude": ClaudeCode, "codex": Codex, "generic": Generic}
# As a shell tells a death by signal; the codes for a timeout and a terminated run are those of `sub run`.
EXIT_SIGNAL = 128
EXIT_NOT_STARTED = 2
WATCH_EVERY_S = 0.1


@click.group("agent", help="Run an agent and read its events.")
def agent_group() -> None:
    pass


@agent_group.command("kinds", help="List the agents that can be run, and what each can report.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def kinds_command(as_json: bool) -> None:
    for name, backend in BACKENDS.items():
        capabilities = sorted(backend.capabilities)
        if as_json:
            print_json({"name": name, "agent_kind": backend.kind, "capabilities": capabilities})
        else:
            print(f"{name:<8}  {backend.kind:<12}  {', '.join(capabilities)}")


RUN_HELP = """Run an agent with one prompt, as one run with an identity that every tool call below it carries.

The agent's words go to stdout, what it does to stderr. With --json, stdout has one AgentEvent per line and at last
{"completion": ...}. The prompt "-" is read from standard input.

\b
Examples:
  sub agent run claude -- "Fix the failing test"
  sub agent run codex --json --timeout 600 -- "Summarise the changes" > events.jsonl
  sub agent run claude -a --model -a opus -- "Review this branch"
  sub agent run generic --program ./my-agent.sh -- "Do it"

\b
Exit codes: 0 the agent succeeded, 1 it failed, 2 it could not be started, 124 timeout,
125 the run was terminated (sub kill, or a policy), 130 interrupted.
"""


@agent_group.command("run", help=RUN_HELP)
@click.argument("agent", type=click.Choice(list(BACKENDS)))
@click.argument("prompt", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print AgentEvents as JSON lines.")
@click.option("--timeout", "timeout_s", type=float, default=0, metavar="S", help="End the agent after S seconds.")
@click.option("--cwd", type=click.Path(exists=True, file_okay=False), help="The agent's working directory.")
@click.option("--agent-id", help="Name of this agent in events and policies. Default: the kind of agent.")
@click.option("--program", metavar="PATH", help="The agent's program, if it is not found by its name.")
@click.option("-a", "--arg", "args", multiple=True, metavar="ARG", help="Pass ARG on to the agent. Repeatable.")
@click.option("--verbose", "-v", is_flag=True, help="Show status events too.")
@click.option("--show-stderr", is_flag=True, help="Let the agent write to our stderr; otherwise it is discarded.")
@click.option("--no-record", is_flag=True, help="Do not write the agent's events to the ledger.")
def run_command(
    agent: str,
    prompt: tuple[str, ...],
    as_json: bool,
    timeout_s: float,
    cwd: str | None,
    agent_id: str | None,
    program: str | None,
    args: tuple[str, ...],
    verbose: bool,
    show_stderr: bool,
    no_record: bool,
) -> int:
    backend = BACKENDS[agent]()
    chosen_id = agent_id or os.environ.get("SUB_AGENT_ID") or backend.kind
    stamped = run_environment(os.environ, backend.client, chosen_id)
    request = RunRequest(
        _prompt(prompt),
        args=args,
        cwd=cwd,
        env=stamped,
        timeout_s=timeout_s,
        # With --cwd a relative path would be looked for there, which is not where the user stands.
        program=os.path.abspath(program) if program and "/" in program else program,
        show_stderr=show_stderr,
    )
    backend.check(request)
    narrative = None if as_json else Narrative(verbose)
    if narrative is not None:
        note(f"run {printable(stamped['SUB_RUN_ID'])}")
    follower = Follower(backend, request, stamped, narrative, record=not no_record)
    completion = asyncio.run(follower.follow())
    if narrative is None:
        print_json({"completion": completion})
    else:
        _show(narrative.end(completion))
        _advise(completion, follower, show_stderr)
    sys.stdout.flush()
    return _exit_code(completion, follower)


def _prompt(words: tuple[str, ...]) -> str:
    if words == ("-",):
        try:
            return sys.stdin.buffer.read().decode()
        except UnicodeDecodeError:
            raise UsageError("the prompt on standard input is not UTF-8") from None
    return " ".join(words)


class Follower:
    """One run, followed to its end: each event recorded and told; signals and orders to stop passed on."""

    def __init__(
        self,
        backend: Backend,
        request: RunRequest,
        stamped: Mapping[str, str],
        narrative: Narrative | None,
        *,
        record: bool,
    ) -> None:
        self.signum: int | None = None
        self.terminated: tuple[str, str] | None = None
        self._backend = backend
        self._request = request
        self._narrative = narrative
        source = make_source()
        identity = run_identity(os.environ, stamped, source.host_id)
        self._recorder = Recorder(identity, source) if record else None
        self._membership = RunMembership({**os.environ, **stamped}, owner="SUB_RUN_ID" not in os.environ)

    async def follow(self) -> AgentCompletion:
        if self._recorder is not None:
            self._recorder.open(self._backend.kind)
        async with self._backend.run(self._request) as run:
            loop = asyncio.get_running_loop()
            for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(signum, self._stop, run, signum)
            watch = asyncio.create_task(self._watch(run))
            try:
                async for event in run.events:
                    self._tell(event)
            except BaseException:
                run.cancel()  # a reader of our output that has gone away ends the run too
                raise
            finally:
                completion = await run.completion()
                watch.cancel()
                self._membership.leave(sweep=completion.status in ("CANCELLED", "TIMEOUT"))
                if self._recorder is not None:
                    self._recorder.close(completion, terminated=self.terminated is not None)
        return completion

    def _tell(self, event: AgentEvent) -> None:
        if self._recorder is not None:
            self._recorder.record(event)
        if self._narrative is None:
            print_json(event)
            sys.stdout.flush()
        else:
            _show(self._narrative.tell(event))

    def _stop(self, run: AgentRun, signum: int) -> None:
        self.signum = self.signum or signum
        run.cancel()

    async def _watch(self, run: AgentRun) -> None:
        """`sub kill`, or a policy that ends the run, ends the agent as well."""
        while (terminated := self._membership.terminated) is None:
            await asyncio.sleep(WATCH_EVERY_S)
        self.terminated = terminated
        run.cancel()


def _show(pieces: Iterable[Piece]) -> None:
    for piece in pieces:
        if piece.is_words:
            sys.stdout.write(piece.text)
            sys.stdout.flush()
        else:
            sys.stderr.write(paint(piece.text, "red" if piece.failed else "cyan", stream=sys.stderr))
            sys.stderr.flush()


def _advise(completion: AgentCompletion, follower: Follower, show_stderr: bool) -> None:
    if follower.terminated is not None:
        note(f"  The run was terminated ({printable(': '.join(follower.terminated))}).")
    hidden = (completion.data or {}).get("stderr_bytes")
    if completion.status == "FAILED" and hidden and not show_stderr:
        note(f"  It wrote {hidden} bytes to stderr; add --show-stderr to see them.")


def _exit_code(completion: AgentCompletion, follower: Follower) -> int:
    if completion.status == "SUCCEEDED":
        return 0
    if completion.status == "TIMEOUT":
        return EXIT_TIMEOUT
    if completion.status == "CANCELLED":
        return EXIT_TERMINATED if follower.terminated is not None else EXIT_SIGNAL + (follower.signum or signal.SIGINT)
    return EXIT_NOT_STARTED if completion.exit_code is None else 1
