"""`sub policy fmt`. Imports no engine: a file is laid out, not judged."""

from __future__ import annotations

import sys

from subluminal.cli.options import Argument, Command, Misused, Option, Values
from subluminal.cli.policy.files import write_file
from subluminal.cli.policy.source import source_of
from subluminal.cli.render.output import note, print_json
from subluminal.policy.edit.layout import format_policy
from subluminal.reports.printable import printable

HELP = """Format policy files in place: indentation, spacing, line ends. Comments, key order and meaning stay.

With --check nothing is written, and the exit code is 1 if a file would change.

\b
Examples:
  sub policy fmt .subluminal/policy.yaml
  sub policy fmt --check policies/*.yaml
"""

OPTIONS = [
    Option("--check", "check", "Change nothing; exit 1 if a file is not formatted.", is_flag=True),
    Option("--dry-run", "dry_run", "Change nothing; print what would change as a diff.", is_flag=True),
    Option("--json", "as_json", "Print the names of the files that change as JSON.", is_flag=True),
]


def fmt(values: Values) -> int:
    files, check, dry_run = values["files"], values["check"], values["dry_run"]
    if values["as_json"] and "-" in files:
        raise Misused("--json tells which files change; what is formatted from standard input goes to stdout.")
    changed = []
    for path in files:
        source, name = source_of(path)
        formatted = format_policy(source, name)
        if path == "-":
            sys.stdout.write(formatted.decode())
        elif formatted != source:
            changed.append(path)
            if dry_run:
                _print_diff(path, source, formatted)
            elif not check:
                write_file(path, formatted)
    if values["as_json"]:
        print_json({"changed": changed, "written": not (check or dry_run)})
    else:
        verb = "would change" if check or dry_run else "formatted"
        for path in changed:
            note(f"{verb} {printable(path)}")
    return 1 if check and changed else 0


def _print_diff(path: str, old: bytes, new: bytes) -> None:
    import difflib

    lines = difflib.unified_diff(
        old.decode("utf-8", "replace").split("\n"), new.decode().split("\n"), path, f"{path} (formatted)", lineterm=""
    )
    for line in lines:
        print(printable(line.replace("\t", " ")))


FMT = Command("fmt", fmt, HELP, OPTIONS, Argument("files", "FILE...", required=True, many=True))
