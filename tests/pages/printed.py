"""The command lines that README and docs print, with what the page shows below them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from harness import places

PAGES = [places.ROOT / "README.md", *sorted((places.ROOT / "docs").glob("*.md"))]
_COMMAND = re.compile(r"^ *(?:\$ )?(?P<line>(?:[A-Z_]+=\S+ )*(?:sub|claude|codex)(?: .*)?)$")
# A remark stands after two spaces or a #.
_REMARK = re.compile(r"\s{2,}.*|\s+# .*")
# A synopsis names what the reader must put in, or chooses: RUN, [OPTIONS], a | b, ...
_SYNOPSIS = re.compile(
    r"\[[A-Za-z-]|\.\.\.|…| \| --|\((--|-)"
    r"|(?<![\w-])(?!(?:JSON|BLOCK|ERROR|TIMEOUT|FAILED)\b)[A-Z]{3,}(?![\w=:/])(?! TABLE)"
)


class Printed(NamedTuple):
    page: str
    section: str
    number: int
    line: str
    shown: tuple[str, ...]  # what the page shows below it; empty: nothing


def printed() -> Iterator[Printed]:
    for page in PAGES:
        yield from lines_of(page)


def lines_of(page: Path) -> Iterator[Printed]:
    section, fence = "", None
    text = page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(text, 1):
        if line.startswith("```"):
            fence = line[3:].strip() if fence is None else None
        elif fence is None and line.startswith("#"):
            section = line.lstrip("# ")
        elif fence == "console":
            if line.startswith("$ "):
                shown = tuple(_shown(text[number:]))
                yield Printed(page.name, section, number, _REMARK.sub("", line[2:]).rstrip(), shown)
        elif (fence is not None or line.startswith("    ")) and (found := _COMMAND.match(line)):
            command = _REMARK.sub("", found["line"]).rstrip()
            if fence == "sh" or not _SYNOPSIS.search(command):  # a line for a shell is one whole: `|` is a pipe there
                yield Printed(page.name, section, number, command, ())


def _shown(below: list[str]) -> Iterator[str]:
    for line in below:
        if line.startswith(("$ ", "```")):
            return
        yield line
