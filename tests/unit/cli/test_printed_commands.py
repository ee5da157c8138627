"""Every command line that the pages print is one that there is: the command, and each of its options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from harness import places
from subluminal.cli.main import cli

PAGES = [places.ROOT / "README.md", *sorted((places.ROOT / "docs").glob("*.md"))]
# At the start of a line of its own, as a shell has it; a remark follows after two spaces or a #.
LINE = re.compile(r"^(?:\$ | {4,})?(?:[A-Z_]+=\S+ )*(sub [a-z].*)$")
END = re.compile(r"\s{2,}|\s#|\s\||\s>|;|&&|\s\.\.\.")


def printed() -> Iterator[tuple[Path, int, str]]:
    for page in PAGES:
        fenced = False
        for number, line in enumerate(page.read_text().splitlines(), 1):
            if line.startswith("```"):
                fenced = not fenced
                continue
            found = LINE.match(line) if fenced or line.startswith("    ") else None
            if found:
                yield page, number, END.split(found[1].replace("[", "").replace("]", ""))[0]


def fault(text: str) -> str | None:
    try:
        words = shlex.split(text)[1:]
    except ValueError:
        return None  # goes on in the next line
    command: click.Command = cli
    context = click.Context(cli, info_name="sub")
    while isinstance(command, click.Group):
        if not words or words[0].startswith("-"):
            break
        below = command.get_command(context, words[0])
        if below is None:
            return None if command.name == "export" else f"there is no command {words[0]!r}"
        command, context = below, click.Context(below, info_name=words.pop(0), parent=context)
    if command.name == "shim":
        return None  # reads its own options, and has its own tests of them
    known = {flag: option for option in command.params for flag in (*option.opts, *option.secondary_opts)}
    rest = iter(words)
    for word in rest:
        if word == "--":
            break
        option = known.get(word.split("=")[0])
        if word.startswith("--") and option is None and word not in ("--help", "--version"):
            return f"sub {command.name} has no option {word}"
        if isinstance(option, click.Option) and not option.is_flag and "=" not in word:
            next(rest, None)  # its value, which may look like an option
    return None


def test_the_pages_print_commands():
    assert sum(1 for _ in printed()) > 150


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_printed_command_exists(page):
    faults = [
        f"{page.name}:{number}: {text}: {found}"
        for where, number, text in printed()
        if where == page and (found := fault(text))
    ]
    assert not faults, "\n".join(faults)
