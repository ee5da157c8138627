"""`sub shim` in the list of commands. The real one is started before this module could be (see `__main__`)."""

from __future__ import annotations

import click

from subluminal.adapters.stdio.options import USAGE


class ShimCommand(click.Command):
    def get_help(self, ctx: click.Context) -> str:
        """The shim parses and describes its own options."""
        return USAGE.rstrip("\n")


@click.command("shim", cls=ShimCommand, context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def shim_command(words: tuple[str, ...]) -> int:
    from subluminal.adapters.stdio.shim import main

    return main(list(words))
