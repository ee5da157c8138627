"""Put what commands really say into a page: `PYTHONPATH=tests python -m pages.record docs/tour.md`.

The lines after `$ ` in its console blocks are run on the machine of a reader, and what stood below them is replaced.
The same lines are run and compared by the tests.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pages.machine import Machine
from pages.printed import Printed, lines_of
from pages.test_printed_lines import outcome_of


def recorded(page: Path) -> str:
    text = page.read_text(encoding="utf-8").splitlines()
    found = {line.number: line for line in lines_of(page) if text[line.number - 1].startswith("$ ")}
    written: list[str] = []
    skipped_to = 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, Machine(Path(folder) / "m") as machine:
        for number, line in enumerate(text, 1):
            if number <= skipped_to:
                continue
            written.append(line)
            if number in found:
                written += _said(machine, found[number])
                skipped_to = number + len(found[number].shown)
    return "\n".join(written) + "\n"


def _said(machine: Machine, line: Printed) -> list[str]:
    outcome = outcome_of(machine, line)
    said = [] if outcome is None else [text.rstrip() for text in outcome.text.rstrip().splitlines()]
    return [*said, ""] if line.shown[-1:] == ("",) else said


if __name__ == "__main__":
    for name in sys.argv[1:]:
        Path(name).write_text(recorded(Path(name)), encoding="utf-8")
