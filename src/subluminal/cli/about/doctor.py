"""`sub doctor`: whether all is in order, and if not, which command mends it."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from subluminal import __version__
from subluminal.cli.render.output import paint, print_json
from subluminal.doctor.examination import examine
from subluminal.doctor.findings import ERROR, NOTE, WARNING, Area
from subluminal.doctor.installation import dependency_versions
from subluminal.reports.printable import count, printable

_MARKS = {"ok": ("✓", "ok"), WARNING: ("!", "!"), ERROR: ("✗", "X"), NOTE: ("·", "-")}
_COLOURS = {"ok": "green", WARNING: "yellow", ERROR: "red", NOTE: "cyan"}


@click.command("doctor")
@click.option("--self-test", is_flag=True, help="Also send a real call through a shim, and kill one (about 5 s).")
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def doctor_command(self_test: bool, strict: bool, as_json: bool) -> int:
    """Check the installation and say how to mend it.

    Looks at the program, its home directory and settings, the policies in force here, secrets, clients and the
    ledger. Changes nothing. Exit code: 0 all is well, 1 something is broken, 2 the check itself failed.

    \b
    Examples:
      sub doctor
      sub doctor --self-test         prove it with a real call in a temporary home
      sub doctor --strict --json     for scripts: warnings fail too
    """
    areas = examine(os.getcwd(), self_test=self_test)
    code = exit_code(areas, strict)
    if as_json:
        print_json(_as_json(areas, code))
    else:
        _show(areas)
    return code


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
        print(f"{_mark(area.level)} {area.name.ljust(width)}  {printable(area.summary)}".rstrip())
        for finding in area.findings:
            print(f"    {_mark(finding.level)} {printable(finding.message)}")
            if finding.mend:
                print(f"        {paint(printable(finding.mend), None, bold=True)}")
    print(_verdict(areas))


def _verdict(areas: list[Area]) -> str:
    findings = [finding for area in areas for finding in area.findings]
    levels = [finding.level for finding in findings]
    parts = [count(levels.count(level), level) for level in (ERROR, WARNING) if level in levels]
    if not parts:
        return "All is well."
    counted = f"{' and '.join(parts)}."
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
