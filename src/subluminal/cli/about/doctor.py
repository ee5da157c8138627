"""`sub doctor`: whether all is in order, and if not, which command mends it."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Any

from subluminal import __version__
from subluminal.cli.options import Command, Option, Values
from subluminal.cli.render.columns import terminal_columns
from subluminal.cli.render.output import note, paint, print_json
from subluminal.contracts.errors import FleetError
from subluminal.doctor.examination import examine
from subluminal.doctor.findings import ERROR, NOTE, WARNING, Area
from subluminal.doctor.installation import dependency_versions
from subluminal.host.home import is_present, joined_file
from subluminal.reports.printable import count, printable

_MARKS = {"ok": ("✓", "ok"), WARNING: ("!", "!"), ERROR: ("✗", "X"), NOTE: ("·", "-")}
_COLOURS = {"ok": "green", WARNING: "yellow", ERROR: "red", NOTE: "cyan"}


HELP = """Check the installation and say how to mend it.

Looks at the program, its home directory and settings, the policies in force here, secrets, clients and the
ledger. Changes nothing, but with --fix the modes of our own files and what killed runs have left. Exit code: 0 all
is well, 1 something is broken, 2 the check itself failed.

\b
Examples:
  sub doctor
  sub doctor --fix               mend what can be mended safely
  sub doctor --self-test         prove it with a real call in a temporary home
  sub doctor --strict --json     for scripts: warnings fail too
"""

OPTIONS = [
    Option("--self-test", "self_test", "Also send a real call through a shim, and kill one (about 5 s).", is_flag=True),
    Option("--fix", "fix", "Run those of the commands by which nothing can be lost, then look again.", is_flag=True),
    Option("--strict", "strict", "Warnings count as errors.", is_flag=True),
    Option("--json", "as_json", "One JSON object.", is_flag=True),
]


def doctor(values: Values) -> int:
    fixed = _fix(examine(os.getcwd(), fleet=_fleet())) if values["fix"] else []
    areas = examine(os.getcwd(), self_test=values["self_test"], fleet=_fleet())
    code = exit_code(areas, values["strict"])
    if values["as_json"]:
        print_json({**_as_json(areas, code), "fixed": fixed})
    else:
        _show(areas)
    return code


def _fleet() -> dict[str, Any] | None:
    """How this machine stands with its fleet; None: it has joined none, and nothing of fleets is imported."""
    if not is_present(joined_file()):
        return None
    from subluminal.fleet.joined import require_joined
    from subluminal.fleet.status import machine_status

    try:
        return machine_status(require_joined())
    except FleetError as error:
        return {"error": str(error)}


def _fix(areas: list[Area]) -> list[str]:
    """Exactly the commands that would be shown."""
    import subprocess

    done = []
    for finding in (finding for area in areas for finding in area.findings if finding.safe and finding.mend):
        note(f"fix: {printable(finding.mend or '')}")
        words = shlex.split(finding.mend or "")
        if subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False).returncode == 0:
            done.append(finding.mend or "")
    return done


def exit_code(areas: list[Area], strict: bool = False) -> int:
    findings = [finding for area in areas for finding in area.findings]
    if any(finding.code == "check-failed" for finding in findings):
        return 2
    bad = (ERROR, WARNING) if strict else (ERROR,)
    return 1 if any(finding.level in bad for finding in findings) else 0


def _as_json(areas: list[Area], code: int) -> dict[str, Any]:
    return {
        "ok": code == 0,
        "version": __version__,
        "dependencies": dependency_versions(),
        "findings": [finding for area in areas for finding in area.findings],
        "areas": [{"area": area.name, "level": area.level, "summary": area.summary, **area.facts} for area in areas],
    }


def _show(areas: list[Area]) -> None:
    width = max(len(area.name) for area in areas)
    for area in areas:
        first, *more = _wrapped(printable(area.summary), width + 4)
        print(f"{_mark(area.level)} {area.name.ljust(width)}  {first}".rstrip())
        for line in more:
            print(f"{' ' * (width + 4)}{line}")
        for finding in area.findings:
            first, *more = _wrapped(printable(finding.message), 6)
            print(f"    {_mark(finding.level)} {first}")
            for line in more:
                print(f"      {line}")
            if finding.mend:
                print(f"        {paint(printable(finding.mend), None, bold=True)}")
    print(_verdict(areas))


def _wrapped(text: str, indent: int) -> list[str]:
    """Between words, to the terminal's width; a pipe gets it whole."""
    columns = terminal_columns()
    if columns is None:
        return [text]
    import textwrap

    room = max(20, columns - indent)
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]


def _verdict(areas: list[Area]) -> str:
    findings = [finding for area in areas for finding in area.findings]
    levels = [finding.level for finding in findings]
    parts = [count(levels.count(level), level) for level in (ERROR, WARNING) if level in levels]
    if not parts:
        return "All is well."
    counted = f"{' and '.join(parts)}."
    if any(finding.safe for finding in findings):
        counted += " `sub doctor --fix` mends what is safe."
    mends = [finding.mend for finding in findings if finding.level != NOTE]
    if not any(mends):
        return counted
    if not all(mends):
        return f"{counted} The indented commands mend what a command can."
    return f"{counted} {'The indented command mends it' if len(mends) == 1 else 'The indented commands mend them'}."


def _mark(level: str) -> str:
    fancy, plain = _MARKS[level]
    try:
        fancy.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return plain
    return paint(fancy, _COLOURS[level])


DOCTOR = Command("doctor", doctor, HELP, OPTIONS)
