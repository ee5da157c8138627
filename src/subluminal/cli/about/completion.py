"""`sub completion`: click's completion scripts, for our program. Click answers them when the variable is set."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from subluminal.cli.main import cli

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_SUB_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def completion_command(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    Examples:
      sub completion bash > ~/.local/share/bash-completion/completions/sub
      sub completion zsh  > "${fpath[1]}/_sub"
      sub completion fish > ~/.config/fish/completions/sub.fish
    For this session only:
      eval "$(sub completion bash)"
    """
    kind = get_completion_class(shell)
    assert kind is not None
    # Not `source()`, which would ask the bash on the path for its version: the script may be for another machine.
    source = kind(cli, {}, "sub", VARIABLE)
    click.echo(source.source_template % source.source_vars())
