"""`sub replay`: a recorded run again, with nothing executed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from subluminal.cli.render.output import note, print_json
from subluminal.cli.render.progress import Progress
from subluminal.cli.replay.report import told_as_if, told_comparison
from subluminal.contracts.errors import UsageError
from subluminal.contracts.jsontext import escaped

_COMMAND = "subluminal.replay.command"
_WAYS = (
    "Name an agent (sub replay RUN -- claude), a server (--serve SERVER), or a policy (--policy NEW) "
    "for the run as it would have gone."
)


class _WithCommand(click.Command):
    """What stands after `--` is a command, whether a run was named before it or not."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_COMMAND] = args[at + 1 :]
        return super().parse_args(ctx, args[:at])


@click.command("replay", cls=_WithCommand)
@click.argument("run", metavar="[RUN|BUNDLE] [-- COMMAND...]", default="last")
@click.option("--policy", metavar="FILE", help="Judge by this policy, not by those in force.")
@click.option(
    "--serve", "server_name", metavar="SERVER", help="Be this server of the run, on standard input and output."
)
@click.option(
    "--on-miss",
    type=click.Choice(("refuse", "pass")),
    default="refuse",
    show_default=True,
    help="A call that is not on record: refuse it, or pass it to the server itself (COMMAND, with --serve).",
)
@click.option(
    "--repeat-last", is_flag=True, help="Answer a call that is asked more often than then with its last answer."
)
@click.option("--ignore", multiple=True, metavar="KEY", help="Compare arguments without this member. Repeatable.")
@click.option("--report", metavar="FILE", help="Also write the report as JSON; FILE must not exist.")
@click.option("--session", metavar="DIR", hidden=True, help="A replay that is on: how its servers are started.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object; the agent's output goes to stderr.")
def replay_command(
    run: str,
    policy: str | None,
    server_name: str | None,
    on_miss: str,
    repeat_last: bool,
    ignore: tuple[str, ...],
    report: str | None,
    session: str | None,
    as_json: bool,
) -> int:
    """Replay a recorded run: every call is answered from the record, and no server is started.

    With a COMMAND the agent runs as always, with the servers of the record in place of its own, and its calls are held
    against the record: the same calls, other calls, other decisions. With --serve one server of the run stands on
    standard input and output. With --policy alone the run is judged again as it was made, without an agent.

    RUN is a run id, a beginning or end of one, last, last~1, or a bundle. Answers need results, which are kept only
    where config.toml says `results = "all"` below [record]. Windows and rates see the recorded times. Tools of the
    agent itself are refused where it has our hooks; else they really run, and the report says so.

    \b
    Exit codes:
      0  as it is on record
      1  something differs, or the agent failed; the kept results were changed
      2  usage error, or the run cannot be replayed

    \b
    Examples:
      sub replay last -- claude -p 'fix the build'
      sub replay last --policy new.yaml -- codex exec 'fix the build'
      sub replay last --policy new.yaml
      sub replay trace.tar.gz --serve github
      sub replay 01JD3 --serve fs --on-miss pass -- npx server-filesystem .
    """
    from subluminal.runs.replay.session import Options, Session

    command: list[str] = click.get_current_context().meta[_COMMAND]
    if session is not None:
        return _serve_in(Session(session), server_name, command)
    options = Options(_readable(policy), sorted(set(ignore)), repeat_last, on_miss == "pass")
    with _new_file(report) as out:
        if server_name is not None:
            return _serve(run, options, server_name, command, out)
        if command:
            return _agent(run, options, command, as_json, out)
        if policy is None:
            raise UsageError("there is nothing to replay the run with", hint=_WAYS)
        return _as_if(run, policy, as_json, out)


def _serve_in(session: Any, server_name: str | None, command: list[str]) -> int:
    from subluminal.runs.replay.serving import serve

    if server_name is None:
        raise UsageError("--session needs --serve")
    return serve(session, server_name, command)


def _serve(run: str, options: Any, server_name: str, command: list[str], out: IO[str] | None) -> int:
    from subluminal.runs.replay.comparing import Comparison
    from subluminal.runs.replay.serving import serve
    from subluminal.runs.replay.session import Session

    if options.passes and not command:
        raise UsageError("--on-miss pass needs the server's own command", hint="After the options: -- COMMAND...")
    if command and not options.passes:
        raise UsageError("a server's command is not started in a replay", hint="Unless --on-miss pass asks for it.")
    tape = _load(run)
    with Session.new(tape, options) as session:
        code = serve(session, server_name, command)
        comparison = Comparison(tape.of_server(server_name), session.noted())
    _write(out, comparison.as_dict())
    for line in told_comparison(comparison):
        note(line)
    return code or int(comparison.differs)


def _agent(run: str, options: Any, command: list[str], as_json: bool, out: IO[str] | None) -> int:
    from subluminal.runs.replay.agent import replay_agent

    comparison, code = replay_agent(_load(run), options, command, stdout=2 if as_json else None)
    facts = {**comparison.as_dict(), "agent_exit": code}
    _write(out, facts)
    if as_json:
        print_json(facts)
    else:
        print("\n".join(told_comparison(comparison)))
        if code:
            print(f"the agent ended with {code}")
    return 1 if comparison.differs or code else 0


def _as_if(run: str, policy: str, as_json: bool, out: IO[str] | None) -> int:
    from subluminal.cli.policy.source import compiled
    from subluminal.runs.replay.as_if import AsIf
    from subluminal.runs.replay.tape import recorded

    snapshot = compiled(policy)
    with recorded(run) as (recorded_run, _, _):
        judged = AsIf(snapshot, recorded_run)
    _write(out, judged.as_dict())
    if as_json:
        print_json(judged.as_dict())
    else:
        print("\n".join(told_as_if(judged)))
    return 1 if judged.differs else 0


def _load(run: str) -> Any:
    from subluminal.runs.replay.tape import load_tape

    with Progress("events read") as progress:
        return load_tape(run, progress.step)


def _readable(policy: str | None) -> str | None:
    if policy is not None:
        from subluminal.cli.policy.source import compiled

        if policy == "-":
            raise UsageError("--policy - cannot be read more than once", hint="Name a file.")
        compiled(policy)  # a policy that does not load would refuse every call
    return policy


@contextmanager
def _new_file(report: str | None) -> Iterator[IO[str] | None]:
    """Made before anything is replayed, to be sure of it; where there is nothing to report, it goes again."""
    if report is None:
        yield None
        return
    try:
        file = open(report, "x", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600))
    except OSError as error:
        raise UsageError(f"--report {report} cannot be written: {error.strerror}", hint="Name a new file.") from None
    try:
        with file:
            yield file
    finally:
        if not os.path.getsize(report):
            os.unlink(report)


def _write(out: IO[str] | None, facts: dict[str, Any]) -> None:
    if out is not None:
        import json

        out.write(escaped(json.dumps(facts, indent=2, ensure_ascii=False)) + "\n")
        out.flush()
