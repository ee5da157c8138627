"""Policies named on the command line: read them, compile them, and show every finding of one that does not."""

from __future__ import annotations

import sys
from typing import Any

from subluminal.cli.light import Finished
from subluminal.cli.render.output import paint
from subluminal.policy.compile.snapshot import MAX_SOURCE_BYTES, read_source
from subluminal.policy.lint.findings import ERROR, NOTE, WARNING, Finding, InvalidPolicy
from subluminal.reports.printable import printable

STDIN = "<stdin>"

_COLOURS = {ERROR: "red", WARNING: "yellow", NOTE: "cyan"}


def source_of(path: str) -> tuple[bytes, str]:
    """The bytes of a policy and the name to show for it; `-` is standard input."""
    if path == "-":
        return sys.stdin.buffer.read(MAX_SOURCE_BYTES + 1), STDIN
    return read_source(path), path


def compiled(path: str) -> dict[str, Any]:
    """The snapshot of a policy; otherwise all findings on stderr and the end of the command."""
    from subluminal.policy.compile.bundle import compile_bundle

    try:
        return compile_bundle(*source_of(path))
    except InvalidPolicy as invalid:
        show_findings(invalid.findings, sys.stderr)
        raise Finished(invalid.exit_code) from None


def show_findings(findings: list[Finding], stream: Any) -> None:
    for finding in findings:
        colour = _COLOURS[finding.level]
        head, _, rest = printable(finding.text()).partition(f" {finding.level}: ")
        print(f"{head} {paint(finding.level, colour, bold=True, stream=stream)}: {rest}", file=stream)
        print(f"    fix: {printable(finding.fix)}", file=stream)
