"""`sub export runs`: a bundle for each run that the filters of `sub runs` find."""

from __future__ import annotations

import os
import re
from hashlib import sha256
from typing import Any

from subluminal.cli.filters import conditions, filter_options
from subluminal.cli.options import Command, Option, Values
from subluminal.cli.record.nothing_yet import say_nothing_found
from subluminal.cli.render.output import note, print_json
from subluminal.cli.render.progress import with_progress
from subluminal.contracts.errors import LedgerError, UsageError
from subluminal.contracts.filters import OF_THEIR_CALLS, RUN_FILTERS, Filters, RunFilters
from subluminal.host import home
from subluminal.ledger.read.ledger import MAX_LIMIT, Ledger, open_or_empty
from subluminal.ledger.trace.bundle import export_run
from subluminal.reports.printable import count, printable

HELP = """Export the runs that match, each as a bundle of its own in a directory.

The filters are those of `sub runs`; without any it is every run of the ledger. A bundle that is there already is left
as it is, so the same command again exports what is new. A run that is still going on is exported as far as it has come.

\b
Examples:
  sub export runs --since 7d -o traces
  sub export runs --agent repo-fixer --decision BLOCK -o traces --dry-run
  sub export runs --run last --run last~1 -o traces --json
"""

OPTIONS = [
    *filter_options((*RUN_FILTERS, *OF_THEIR_CALLS)),
    Option("-o/--output", "output", "The directory; it is made where it is missing.", metavar="DIRECTORY"),
    Option("--dry-run", "dry_run", "Say which runs would be exported; write nothing.", is_flag=True),
    Option("--json", "as_json", "One JSON object for each run.", is_flag=True),
]


def bundle_name(run_id: str, ending: str = ".tar.gz") -> str:
    """A file name of whatever a run calls itself; two runs never have the same."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", run_id)[:100].lstrip(".")
    if name != run_id:
        name += "-" + sha256(run_id.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return name + ending


def export_runs(values: Values) -> int:
    directory = values["output"]
    if not directory:
        raise UsageError("Where to is missing.", hint="Name a directory: -o traces.")
    with open_or_empty() as ledger:
        run_ids = _found(ledger, values)
        if not run_ids:
            say_nothing_found(ledger, "No run matches.")
        elif not values["dry_run"]:
            _make(directory)
        exported = 0
        for run_id in with_progress(run_ids, "runs"):
            exported += _export(ledger, run_id, directory, values)
    if not values["as_json"]:
        would = "would be exported" if values["dry_run"] else "exported"
        there = f", {len(run_ids) - exported} were there already" if exported < len(run_ids) else ""
        note(f"{count(exported, 'run')} {would} to {printable(directory)}{there}.")
    return 0


def _found(ledger: Ledger, values: Values) -> list[str]:
    filters = RunFilters(**conditions(RUN_FILTERS, values, ledger))
    calls = Filters(**conditions(OF_THEIR_CALLS, values, ledger))
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = ledger.runs(filters, calls=calls, limit=MAX_LIMIT, cursor=cursor)
        found += [row["run_id"] for row in page.rows]
        cursor = page.next_cursor
        if cursor is None:
            return found


def _export(ledger: Ledger, run_id: str, directory: str, values: Values) -> bool:
    path = os.path.join(directory, bundle_name(run_id))
    is_new = not os.path.lexists(path)
    facts: dict[str, Any] = {"run_id": run_id, "path": path, "exported": is_new and not values["dry_run"]}
    if is_new and not values["dry_run"]:
        manifest = export_run(ledger, run_id, path, home.snapshot_dir())
        facts |= {"event_count": manifest.event_count, "chain_head": manifest.chain_head}
    if values["as_json"]:
        print_json(facts)
    elif is_new:
        print(printable(path))
    return is_new


def _make(directory: str) -> None:
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as error:
        raise LedgerError(
            f"The directory {directory} cannot be made: {error.strerror}.", hint="Choose another with -o."
        ) from None


EXPORT_RUNS = Command("runs", export_runs, HELP, OPTIONS)
