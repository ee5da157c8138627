"""`sub completion`: click's completion scripts, for our program. Click answers them when the variable is set."""

from __future__ import annotations

import os

import click
from click.shell_completion import get_completion_class

from subluminal.cli.main import COMPLETION_VARIABLE, cli
from subluminal.cli.render.output import note
from subluminal.contracts.errors import UsageError
from subluminal.host.files import replace_file

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.option("--install", is_flag=True, help="Write it to where the shell looks for it.")
def completion_command(shell: str | None, install: bool) -> None:
    """Print the completion script of a shell, or install it. Without SHELL: that of $SHELL.

    Completes commands, options and their words, and also runs, servers, tools, secrets, clients, topics and files.

    \b
    Examples:
      sub completion --install
      sub completion zsh --install
    For this session only:
      eval "$(sub completion bash)"
    """
    if shell is None and not install:
        raise UsageError("say which shell", hint=f"One of {', '.join(SHELLS)}; or sub completion --install.")
    chosen = shell or os.path.basename(os.environ.get("SHELL", ""))
    if chosen not in SHELLS:
        raise UsageError("$SHELL names none of the shells that are known", hint=f"Say which: {', '.join(SHELLS)}.")
    kind = get_completion_class(chosen)
    assert kind is not None
    # Not `source()`, which would ask the bash on the path for its version: the script may be for another machine.
    source = kind(cli, {}, "sub", COMPLETION_VARIABLE)
    script = source.source_template % source.source_vars()
    if not install:
        click.echo(script)
        return
    path = _place(chosen)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    replace_file(path, script.encode() + b"\n", mode=0o644)
    note(f"wrote {path}")
    if chosen == "zsh":
        note("zsh looks there if ~/.zshrc says so, before compinit:  fpath=(~/.zfunc $fpath)")
    note("New shells have it.")


def _place(shell: str) -> str:
    home = os.path.expanduser("~")
    data = os.environ.get("XDG_DATA_HOME") or os.path.join(home, ".local", "share")
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    return {
        "bash": os.path.join(data, "bash-completion", "completions", "sub"),
        "zsh": os.path.join(home, ".zfunc", "_sub"),
        "fish": os.path.join(config, "fish", "completions", "sub.fish"),
    }[shell]
