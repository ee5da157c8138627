"""`sub tools pin`, `unpin`, `approve`: a person says what may stand. Never an agent: a process that belongs to a run is
refused."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from subluminal.cli.render.output import note, paint, print_json
from subluminal.cli.tools.show import show_lines
from subluminal.cli.tools.survey import Row, chosen, survey
from subluminal.contracts.errors import ToolsError, UsageError
from subluminal.host.client_process import run_of_this_process
from subluminal.host.home import REPOSITORY_TOOLS_LOCK, tools_lock_file
from subluminal.host.identity import repository_root
from subluminal.host.tools.known import KnownFile
from subluminal.host.tools.locks import read_lock, write_lock
from subluminal.surface.differences import lines
from subluminal.surface.known import KnownServer, approve
from subluminal.surface.pins import Lock
from subluminal.surface.texts import visible

# Nobody waits here but the person who asked.
_PATIENCE_S = 5.0
_WHAT = click.argument("what", required=False, metavar="[SERVER[/TOOL]]")
_REPOSITORY = click.option(
    "--repository", is_flag=True, help=f"In this repository's {REPOSITORY_TOOLS_LOCK}, to be committed."
)
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Show what would be written; write nothing.")
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object.")


@click.command("pin")
@_WHAT
@_REPOSITORY
@_DRY_RUN
@_JSON
def pin_command(what: str | None, repository: bool, dry_run: bool, as_json: bool) -> int:
    """Pin what is known now: from here on, anything else is a change.

    Pins are in your own lock, or with --repository in one that is committed. The strictest counts, and a repository's
    lock never satisfies a policy of yours that asks for pins.

    \b
    Examples:
      sub tools pin github --dry-run
      sub tools pin github/create_issue
      sub tools pin --repository
    """
    _refuse_runs("pin")
    rows = chosen(survey(), what)
    path, mine = _lock(repository)
    lock = _read(path, mine)
    changed = [row for row in rows if row.was is not None]
    if changed:
        names = ", ".join(visible(row.name, "") for row in changed[:5])
        raise ToolsError(f"changed since they were seen or pinned: {names}", hint="Look first: sub tools approve")
    for row in rows:
        lock.setdefault(row.server.server_name, {})[row.key] = row.pin
    return _finish("pinned", rows, {path: (lock, mine)}, dry_run, as_json)


@click.command("unpin")
@_WHAT
@_REPOSITORY
@_DRY_RUN
@_JSON
def unpin_command(what: str | None, repository: bool, dry_run: bool, as_json: bool) -> int:
    """Take pins back.

    \b
    Examples:
      sub tools unpin github
      sub tools unpin github/create_issue --repository
    """
    _refuse_runs("unpin")
    path, mine = _lock(repository)
    lock = _read(path, mine)
    rows = [row for row in chosen(survey(), what) if row.key in lock.get(row.server.server_name, {})]
    for row in rows:
        lock[row.server.server_name].pop(row.key, None)
    return _finish("unpinned", rows, {path: (lock, mine)}, dry_run, as_json)


@click.command("approve")
@_WHAT
@click.option("--yes", is_flag=True, help="Do not ask: what is shown has been looked at.")
@_DRY_RUN
@_JSON
def approve_command(what: str | None, yes: bool, dry_run: bool, as_json: bool) -> int:
    """Look at what has changed, and accept it.

    The change is shown first. Accepted, it is what later versions are compared with; where the tool is pinned, in your
    lock or in this repository's, the pin moves as well.

    \b
    Examples:
      sub tools approve github --dry-run
      sub tools approve github/create_issue
    """
    _refuse_runs("approve")
    rows = [row for row in chosen(survey(), what) if row.was is not None or row.known.unsteady]
    if as_json and not (yes or dry_run):
        raise UsageError("--json needs --yes or --dry-run: nobody can be asked")
    if not as_json:
        for row in rows:
            _show(row)
    if rows and not (yes or dry_run) and not _asked(len(rows)):
        note("Nothing was changed.")
        return 1
    files = moved_pins(rows, os.getcwd())
    if not dry_run:
        for row in rows:
            accept(row)
    return _finish("approved", rows, files, dry_run, as_json)


def moved_pins(rows: list[Row], directory: str) -> dict[str, tuple[Lock, bool]]:
    """The locks, yours and that of the repository there, with the pins of these moved to what is known now."""
    files: dict[str, tuple[Lock, bool]] = {}
    for path, mine in (_lock(False), *([_lock(True, directory)] if repository_root(directory) else [])):
        lock = _read(path, mine)
        moved = [row for row in rows if row.key in lock.get(row.server.server_name, {})]
        for row in moved:
            lock[row.server.server_name][row.key] = row.pin
        if moved:
            files[path] = (lock, mine)
    return files


def _refuse_runs(verb: str) -> None:
    run_id = run_of_this_process()
    if run_id is not None:
        raise ToolsError(
            f"this process belongs to run {run_id}: an agent cannot {verb} what servers say to it",
            hint="A person does that, from a terminal of their own.",
        )


def _lock(repository: bool, directory: str = ".") -> tuple[str, bool]:
    if not repository:
        return tools_lock_file(), True
    here = os.path.abspath(directory)
    return os.path.join(repository_root(here) or here, REPOSITORY_TOOLS_LOCK), False


def _read(path: str, mine: bool) -> Lock:
    try:
        return read_lock(path, mine)
    except ToolsError as fault:
        raise ToolsError(f"{path} {fault}", hint="Put it back from version control, or remove it.") from None


def accept(row: Row) -> None:
    def work(server: KnownServer) -> bool:
        known = server.items.get(row.key)
        if known is None or known.latest != row.now.fingerprint:
            raise ToolsError(f"{visible(row.name, '')} has changed again meanwhile", hint="Look at it again.")
        approve(known, row.now.fingerprint)
        return True

    KnownFile(row.server.server_name, row.server.launch).update(work, _PATIENCE_S)


def _show(row: Row) -> None:
    click.echo(paint(visible(row.name, ""), None, bold=True) + f"  {row.stands.why or 'answers differently each time'}")
    for finding in row.found:
        click.echo(f"  {finding.risk_class}: {visible(finding.where, '')}: {finding.what}")
    show_lines(lines(row.was, row.now))


def _asked(number: int) -> bool:
    if not sys.stdin.isatty():
        raise UsageError("nobody can be asked here", hint="When you have looked at the change: --yes")
    return click.confirm(f"Accept {'this' if number == 1 else f'these {number}'}?", default=False)


def write_pins(files: dict[str, tuple[Lock, bool]]) -> None:
    for path, (lock, mine) in files.items():
        try:
            write_lock(path, lock, mine)
        except OSError as error:
            raise ToolsError(f"{path} cannot be written: {error.strerror}") from None


def _finish(verb: str, rows: list[Row], files: dict[str, tuple[Lock, bool]], dry_run: bool, as_json: bool) -> int:
    if not dry_run and rows:
        write_pins(files)
    if as_json:
        said: dict[str, Any] = {verb: [row.name for row in rows], "files": sorted(files), "dry_run": dry_run}
        print_json(said)
        return 0
    for row in rows:
        note(f"  {'would be ' if dry_run else ''}{verb}: {visible(row.name, '')}")
    if not rows:
        note("Nothing to do.")
    for path in files if rows else ():
        note(f"  {'would be written' if dry_run else 'written'}: {path}")
    return 0
