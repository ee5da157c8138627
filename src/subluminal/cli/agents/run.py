"""`sub run`: one identified run of an agent."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from subluminal.contracts.errors import UsageError
from subluminal.contracts.short_ids import short
from subluminal.contracts.vocabulary import CLIENTS, ENVS
from subluminal.host.identity import is_ci, new_id
from subluminal.reports.printable import printable


@click.command(
    "run",
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
)
@click.option("--agent-id", "--agent", help="Stable name of this agent (default: the client's name).")
@click.option("--client", type=click.Choice(CLIENTS), help="Default: from the command's name.")
@click.option("--env", type=click.Choice(ENVS), help="Default: ci in CI, prod in a pod of Kubernetes, else dev.")
@click.option("--principal", help="Who started the run (default: you).")
@click.option("--run-id", help="Default: SUB_RUN_ID if set (a part of that run), else a new one.")
@click.option("--policy", type=click.Path(dir_okay=False), help="Policy bundle for this run.")
@click.option("--meta", multiple=True, metavar="KEY=VALUE", help="Said of the run in its record. Repeatable.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0), help="Seconds; 0 means none.")
@click.option("--model-api", is_flag=True, help="Judge tool calls in the model's answers too: see docs/model-api.md.")
@click.option(
    "--model-api-upstream", metavar="URL", help="The provider's address.  [the one that the command would ask]"
)
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
@click.option("--quiet", "-q", is_flag=True, help="No lines of ours at the start and the end.")
@click.option("--max-blocked", type=click.IntRange(min=0), metavar="N", help="Strict, tolerating N refused calls.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def run_command(command: tuple[str, ...], headless: bool | None, quiet: bool, **given: Any) -> int:
    """Run COMMAND as one identified run: every shim below it shares its run id, budgets and policy.

    The terminal is the command's own; on one, a line at the start names the run, and one at the end says what its calls
    came to (--quiet: neither). Exit code: the command's, 128 + the signal that ended it, 124 after --timeout,
    125 when the run was terminated (`sub kill`, or a policy), 127 or 126 when the command cannot be started, 1 when the
    door of --model-api has died.

    In CI (see docs/ci.md) --strict, --events and --bundle make it a gate: the agent's own exit code is returned if it
    is not 0, else 1 when the job's rules were broken.

    \b
    Examples:
      sub run -- claude
      sub run --agent-id fixer --timeout 600 -- codex exec 'fix the build'
      sub run --strict --bundle trace -- claude -p 'fix the build'
      sub run --model-api -- claude
    """
    from subluminal.cli.agents.summary import summary
    from subluminal.runs.command import run_command as run
    from subluminal.runs.options import HeadlessOptions, RunOptions

    if given["model_api_upstream"] and not given["model_api"]:
        raise UsageError("--model-api-upstream needs --model-api")
    job = HeadlessOptions(**{name: given.pop(name) for name in HeadlessOptions._fields})
    options = RunOptions(**given, headless=job if is_headless(headless, job._asdict()) else None)
    if quiet or options.headless is not None or not is_watched():
        return run(list(command), options, say).code
    options = options._replace(run_id=options.run_id or os.environ.get("SUB_RUN_ID") or new_id("run-"))
    assert options.run_id is not None
    say(f"sub: run {printable(short(options.run_id))} ({printable(options.run_id)})")
    code = run(list(command), options, say).code
    say(f"sub: {summary(options.run_id)}")
    return code


def is_watched() -> bool:
    """Whether a person sees what we say, and no outer run of ours has said it."""
    try:
        return bool(sys.stderr.isatty()) and not os.environ.get("SUB_RUN_ID")
    except (AttributeError, ValueError):
        return False


def is_headless(wanted: bool | None, given: dict[str, object]) -> bool:
    """As asked; by default where CI is set; and always where an option needs it."""
    needs = [name for name, value in given.items() if value is not None and value is not False]
    if wanted is False and needs:
        option = "--" + needs[0].replace("_", "-")
        raise UsageError(f"{option} needs a headless run", hint="Leave out --no-headless.")
    if wanted is not None:
        return wanted
    if not needs and os.environ.get("SUB_RUN_ID") and os.environ.get("SUB_EVENTS", "").startswith("dir:"):
        return False  # a part of a run that is being recorded already
    return bool(needs) or is_ci(os.environ)


def say(line: str) -> None:
    """To the user, if there still is one: a reader of stderr that has gone must not cost the command's exit code."""
    if sys.stderr is None:
        return
    try:
        print(line, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        sys.stderr = None
