"""Write docs/man/sub.1, the manual page, from the same help texts as docs/cli.md; `--check` only compares."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

os.environ["COLUMNS"] = "100"
for name in [name for name in os.environ if name.startswith("SUB_")]:
    del os.environ[name]

import click  # noqa: E402

from subluminal import __version__  # noqa: E402
from subluminal.cli.commands import COMMANDS  # noqa: E402
from subluminal.cli.main import cli  # noqa: E402

TARGET = Path(__file__).resolve().parent.parent / "docs" / "man" / "sub.1"
ENVIRONMENT = {
    "SUB_HOME": "Where everything is kept; ~/.subluminal where it is not set.",
    "SUB_POLICY": "The policy that is in force, in place of the user's and the repository's.",
    "SUB_RUN_ID": "The run that calls belong to; set by sub run.",
    "NO_COLOR, FORCE_COLOR": "No colour at all; colour where the output is no terminal, too.",
}
FILES = {
    "~/.subluminal/config.toml": "Settings; sub config shows those in force.",
    "~/.subluminal/policy.yaml": "The user's policy; a repository has .subluminal/policy.yaml.",
    "~/.subluminal/ledger.db": "The record.",
}


def render() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield f'.TH SUB 1 "" "subluminal {__version__}" "User Commands"'
    yield ".SH NAME"
    yield r"sub \- policy and record for the tool calls of AI agents"
    yield ".SH SYNOPSIS"
    yield r".B sub"
    yield r".I COMMAND"
    yield r"[\fIOPTIONS\fR] [\fIARGUMENTS\fR]"
    yield ".SH DESCRIPTION"
    yield _escaped(cli.help or "")
    yield ".SH COMMANDS"
    root = click.Context(cli, info_name="sub")
    for name, entry in COMMANDS.items():
        command = cli.get_command(root, name)
        assert command is not None
        yield ".TP"
        yield rf"\fBsub {_escaped(name)}\fR"
        yield _escaped(entry[2])
        yield from _options(command, click.Context(command, info_name=name, parent=root))
    for title, entries in (("ENVIRONMENT", ENVIRONMENT), ("FILES", FILES)):
        yield f".SH {title}"
        for word, text in entries.items():
            yield ".TP"
            yield rf"\fB{_escaped(word)}\fR"
            yield _escaped(text)
    yield ".SH EXIT STATUS"
    yield "0: fine. 1: violations or a failure found. 2: usage or tool error. sub run returns its command's own."
    yield ".SH SEE ALSO"
    yield r"sub help, sub COMMAND \-\-help, and the docs directory of the project."


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    """One paragraph: the options by name, or the commands of a group with theirs."""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield ".br"
            yield rf"\fB{_escaped(name)}\fR: {_escaped(below.get_short_help_str(limit=100))}"
        return
    flags = [max(parameter.opts, key=len) for parameter in command.params if isinstance(parameter, click.Option)]
    if flags:
        yield ".br"
        yield "Options: " + _escaped(", ".join(flags)) + "."


def _escaped(text: str) -> str:
    """Nothing in it begins a request or is taken for an escape."""
    escaped = " ".join(text.replace("\b", "").split()).replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped


def main(argv: list[str]) -> int:
    if argv not in ([], ["--check"]):
        print("usage: generate_man.py [--check]", file=sys.stderr)
        return 2
    text = render()
    if not argv:
        TARGET.parent.mkdir(exist_ok=True)
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
        print("docs/man/sub.1 is out of date: run `python tools/generate_man.py`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
