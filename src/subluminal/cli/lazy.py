"""A command group from a table: a command's module is imported only when the command is used."""

from __future__ import annotations

import importlib
import os
from typing import Any

import click
from click.shell_completion import CompletionItem

from subluminal.cli.options import Command, Group, Table


def _completing(command: click.Command) -> click.Command:
    """Someone has pressed Tab: the command, or those of the group, with values to offer."""
    from subluminal.cli.about.values import offered

    for below in command.commands.values() if isinstance(command, click.Group) else ():
        _completing(below)
    return offered(command)


class LazyGroup(click.Group):
    """Listing, help and completion come from the table alone."""

    def __init__(self, *args: Any, table: Table, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.table.get(cmd_name)
        if entry is None:
            return None
        command: click.Command | Command | Group = getattr(importlib.import_module(entry[0]), entry[1])
        found = command.click_command() if isinstance(command, Command | Group) else command
        return _completing(found) if "_SUB_COMPLETE" in os.environ else found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.table:
            from difflib import get_close_matches

            near = get_close_matches(args[0], self.table, n=2)
            meant = f" Did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(f"There is no command {args[0]!r}.{meant}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """From the table: click would import every command to learn its help."""
        names = [name for name in self.table if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=self.table[name][2]) for name in names), *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry[2]) for name, entry in self.table.items()])
