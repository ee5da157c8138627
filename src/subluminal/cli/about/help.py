"""`sub help`: the commands, the help of one, or a short text on a topic."""

from __future__ import annotations

import os

import click

from subluminal.cli.commands import COMMANDS
from subluminal.cli.main import cli
from subluminal.contracts.errors import UsageError

TOPICS = {
    "quickstart": "From nothing to the first recorded call.",
    "policy": "Rules: where they are found and what they can do.",
    "secrets": "Give a server its token without the agent.",
    "ci": "Agents without a person beside them.",
    "reason-codes": "Why a call was decided as it was.",
}


def topic_text(name: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), "topics", name + ".txt"), encoding="utf-8") as file:
        return file.read()


@click.command("help")
@click.argument("words", nargs=-1, metavar="[TOPIC|COMMAND...]")
@click.pass_context
def help_command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Read about a topic or a command.

    \b
    Examples:
      sub help
      sub help quickstart
      sub help query
      sub help policy init
    """
    topic = " ".join(words)
    if not words:
        click.echo(cli.get_help(_context(ctx)))
        click.echo("\nTopics (sub help TOPIC):")
        for name, summary in TOPICS.items():
            click.echo(f"  {name:<12}  {summary}")
    elif topic in TOPICS:  # a topic goes before the command of its name, whose help says --help
        click.echo(topic_text(topic), nl=False)
        if topic in COMMANDS:
            click.echo(f"\nOptions of the command: sub {topic} --help")
    else:
        _show_command(_context(ctx), words)


def _show_command(root: click.Context, words: tuple[str, ...]) -> None:
    at = root
    for word in words:
        group = at.command
        command = group.get_command(at, word) if isinstance(group, click.Group) else None
        if command is None:
            hint = f"Topics: {', '.join(TOPICS)}. Commands: {at.command_path} --help."
            raise UsageError(f"There is no topic or command {' '.join(words)!r}.", hint=hint)
        at = click.Context(command, info_name=word, parent=at)
    with at:
        click.echo(at.command.get_help(at))


def _context(ctx: click.Context) -> click.Context:
    return ctx.parent if ctx.parent is not None else click.Context(cli, info_name="sub")
