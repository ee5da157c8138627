"""Write docs/cli.md: the --help of every command, in the order of `sub --help`; `--check` only compares."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

# Click wraps to the terminal and shows defaults from the environment: neither may reach the page.
os.environ["COLUMNS"] = "100"
for name in [name for name in os.environ if name.startswith("SUB_")]:
    del os.environ[name]

import click  # noqa: E402

from subluminal.cli.about.help import TOPICS  # noqa: E402
from subluminal.cli.main import cli  # noqa: E402

TARGET = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
WIDTH = 100
HEAD = """\
# Command line

Every command and its options, generated from `--help` by `python tools/generate_cli_docs.py`.

- Data goes to stdout, messages to stderr. `--json` gives JSON, one object per line where there are several.
- Control, direction and zero-width characters in foreign text are shown, never obeyed: as `\\u202e` in text; in JSON as
  its own escape, which reads back as the same value. Only events and bundles stay as they were recorded, byte for byte.
- `--csv` gives a cell of text that a spreadsheet would compute (it begins with `=`, `+`, `-`, `@`, a full-width form of
  these, a tab or a line break) an apostrophe before it; numbers stay numbers. Without it the value is what it was.
- Exit codes: 0 fine; 1 violations or failure found; 2 usage or tool error; `sub run` returns its command's own.
- Colour only on a terminal, and never with `NO_COLOR`; with `FORCE_COLOR` elsewhere too. No prompt without a terminal.
- A run goes by its id, by a beginning or end of it that no other has, as `last`, or as `last~1` for the one before; a
  call by its id or a beginning or end of it. What is shown short on a terminal is such an end.
- Words may be cut short and in any case where only one begins so: `--decision reject`, `--status succ`.
"""


def render() -> str:
    topics = "\n".join(f"- `sub help {name}`: {summary}" for name, summary in TOPICS.items())
    pieces = [HEAD, f"Short texts to read in the terminal:\n\n{topics}\n", _section("sub", _help(cli, "sub", None))]
    pieces += [_section(path, text) for path, text in _commands()]
    return "\n".join(pieces)


def _commands() -> Iterator[tuple[str, str]]:
    root = click.Context(cli, info_name="sub", terminal_width=WIDTH)
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        assert command is not None
        yield from _tree(command, name, root)


def _tree(command: click.Command, name: str, parent: click.Context) -> Iterator[tuple[str, str]]:
    context = click.Context(command, info_name=name, parent=parent, terminal_width=WIDTH)
    yield context.command_path, _help(command, name, parent)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from _tree(found, below, context)


def _help(command: click.Command, name: str, parent: click.Context | None) -> str:
    names = {"help_option_names": ["-h", "--help"]} if parent is None else {}
    with click.Context(command, info_name=name, parent=parent, terminal_width=WIDTH, **names) as context:
        return command.get_help(context)


def _section(title: str, text: str) -> str:
    body = "\n".join(line.rstrip() for line in text.rstrip().splitlines())
    return f"## {title}\n\n```\n{body}\n```\n"


def main(argv: list[str]) -> int:
    if argv not in ([], ["--check"]):
        print("usage: generate_cli_docs.py [--check]", file=sys.stderr)
        return 2
    text = render()
    if not argv:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
        print("docs/cli.md is out of date: run `python tools/generate_cli_docs.py`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
