"""`sub` as click has it. `light.guarded` makes every error a sentence and an exit code."""

from __future__ import annotations

import click

from subluminal.cli.commands import COMMANDS
from subluminal.cli.lazy import LazyGroup
from subluminal.cli.light import guarded

COMPLETION_VARIABLE = "_SUB_COMPLETE"


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Subluminal stands between AI agents and their tools: it decides each tool call and records it.",
    epilog="Start with: sub import claude, run your agent as always, sub tail. More: sub help quickstart.",
)
@click.option("--version", "show_version", is_flag=True, is_eager=True, help="Print the version and exit.")
@click.pass_context
def cli(ctx: click.Context, show_version: bool) -> None:
    pass


def run(args: list[str]) -> int:
    return guarded(lambda: _run(args))


def _run(args: list[str]) -> int:
    if args[:1] == ["--version"]:
        args = ["version", *args[1:]]
    try:
        result = cli.main(args=args, prog_name="sub", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return 2
    except click.Abort:
        return 130
    return result if isinstance(result, int) else 0
