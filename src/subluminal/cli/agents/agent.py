"""`sub agent run`: an agent program as one identified run, and what it does."""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
import sys
from collections.abc import Callable, Iterable

import click

from subluminal.agents.base import RunRequest
from subluminal.agents.generic import Generic
from subluminal.agents.registry import BACKENDS
from subluminal.cli.agents.narrative import Narrative, Piece
from subluminal.cli.render.output import note, paint, print_json
from subluminal.contracts.agent_event import AgentEvent
from subluminal.contracts.errors import UsageError
from subluminal.reports.printable import printable
from subluminal.runs.agent import AgentOutcome, FollowedAgent


@click.command("run", short_help="Run an agent with one prompt.")
@click.argument("agent", type=click.Choice(list(BACKENDS)))
@click.argument("prompt", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print AgentEvents as JSON lines.")
@click.option("--timeout", "timeout_s", type=float, default=0, metavar="S", help="End the agent after S seconds.")
@click.option("--cwd", type=click.Path(exists=True, file_okay=False), help="The agent's working directory.")
@click.option("--agent-id", "--agent", help="Name of this agent in events and policies. Default: the kind of agent.")
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
    """Run an agent with one prompt, as one run with an identity that every tool call below it carries.

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
    request = RunRequest(
        _prompt(prompt),
        args=args,
        cwd=cwd,
        timeout_s=timeout_s,
        # With --cwd a relative path would be looked for there, which is not where the user stands.
        program=os.path.abspath(program) if program and "/" in program else program,
        show_stderr=show_stderr,
    )
    backend = BACKENDS[agent]()
    if isinstance(backend, Generic) and not as_json:
        backend.heard = _pass_on()
    followed = FollowedAgent(backend, request, agent_id=agent_id, record=not no_record)
    narrative = None if as_json else Narrative(verbose)
    if narrative is not None:
        note(f"run {printable(followed.run_id)}")
    outcome = asyncio.run(_follow(followed, narrative))
    if narrative is None:
        print_json({"completion": outcome.completion})
    else:
        _show(narrative.end(outcome.completion))
        _advise(outcome, show_stderr)
    sys.stdout.flush()
    return outcome.code


def _pass_on() -> Callable[[bytes], None]:
    """A program of which nothing is known prints what it prints; nothing in it is obeyed."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def heard(data: bytes) -> None:
        sys.stdout.write(printable(decoder.decode(data), keep="\n\t"))
        sys.stdout.flush()

    return heard


def _prompt(words: tuple[str, ...]) -> str:
    if words == ("-",):
        try:
            return sys.stdin.buffer.read().decode()
        except UnicodeDecodeError:
            raise UsageError("the prompt on standard input is not UTF-8") from None
    return " ".join(words)


async def _follow(followed: FollowedAgent, narrative: Narrative | None) -> AgentOutcome:
    def tell(event: AgentEvent) -> None:
        if narrative is None:
            print_json(event)
            sys.stdout.flush()
        else:
            _show(narrative.tell(event))

    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(signum, followed.stop, signum)
    return await followed.follow(tell)


def _show(pieces: Iterable[Piece]) -> None:
    for piece in pieces:
        if piece.is_words:
            sys.stdout.write(piece.text)
            sys.stdout.flush()
        else:
            sys.stderr.write(paint(piece.text, "red" if piece.failed else "cyan", stream=sys.stderr))
            sys.stderr.flush()


def _advise(outcome: AgentOutcome, show_stderr: bool) -> None:
    if outcome.terminated is not None:
        note(f"  The run was terminated ({printable(': '.join(outcome.terminated))}).")
    hidden = (outcome.completion.data or {}).get("stderr_bytes")
    if outcome.completion.status == "FAILED" and hidden and not show_stderr:
        note(f"  It wrote {hidden} bytes to stderr; add --show-stderr to see them.")
