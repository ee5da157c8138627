"""`sub import` and `sub restore`: routing clients' MCP servers through the shim, and putting their files back."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from subluminal.cli.clients.hooks import (
    check_asked,
    hook_lines,
    hooks_imported,
    hooks_restored,
    say_what_is_not_governed,
    show_managed,
)
from subluminal.cli.clients.put_back import offer_values
from subluminal.cli.render.output import note, paint, print_json
from subluminal.cli.render.progress import with_progress
from subluminal.clients import backups
from subluminal.clients.base import Client, ConfigFile, Place
from subluminal.clients.configured import PROJECT
from subluminal.clients.importing import Choice, import_file, to_be_asked
from subluminal.clients.registry import CLIENTS, client_named
from subluminal.clients.remote.asking import Answer
from subluminal.clients.report import FileReport
from subluminal.clients.restoring import files_to_restore, restore_file
from subluminal.clients.shared import LEFT, asked_for, command_in, left_out
from subluminal.clients.survey import SurveyedEntry, SurveyedFile, survey, survey_file
from subluminal.contracts.errors import UsageError
from subluminal.host import home
from subluminal.host.executable import find_sub, may_vanish
from subluminal.reports.printable import count, printable

_COLOURS = {
    "wrapped": "green", "updated": "green", "restored": "green", "corrected": "yellow", "skipped": "yellow",
    "login": "yellow", LEFT: "yellow", "refused": "red", "added": "green", "trusted": "green", "removed": "green",
}  # fmt: skip

_WOULD = {
    "wrapped": "would wrap", "updated": "would update", "corrected": "would correct", "restored": "would restore",
    "added": "would add", "trusted": "would trust", "removed": "would remove",
}  # fmt: skip
_SCOPES = ("user", "local", "project", "managed")
_names = click.argument("client", required=False, metavar="[CLIENT]")
_options = (
    click.option("--all", "everything", is_flag=True, help="Every client that has a configuration here."),
    click.option("--server", "servers", multiple=True, metavar="NAME", help="Only this server (repeatable)."),
    click.option(
        "--scope",
        "scopes",
        multiple=True,
        metavar="SCOPE",
        type=click.Choice(_SCOPES),
        help="Only user, local, project or managed.",
    ),
    click.option("--file", "path", metavar="PATH", help="This file, read as the client's configuration."),
    click.option("--dry-run", is_flag=True, help="Show the change as a diff; write nothing."),
    click.option("--foreign", is_flag=True, help="Also change files of another user (as root; the owner is kept)."),
    click.option("--json", "as_json", is_flag=True, help="One JSON report on stdout."),
)


class _Asked(NamedTuple):
    client: str | None
    everything: bool
    servers: tuple[str, ...]
    scopes: tuple[str, ...]
    path: str | None
    dry_run: bool
    foreign: bool
    as_json: bool


def _with_options(function: Callable[..., int]) -> Callable[..., int]:
    for option in reversed(_options):
        function = option(function)
    return _names(function)


@click.command("import", epilog="Clients: " + ", ".join(CLIENTS) + ".")
@_with_options
@click.option("--offline", is_flag=True, help="Ask no server whether it wants a login.")
@click.option("--hooks", is_flag=True, help="Also put hooks before the client's own tools (claude, codex).")
@click.option("--managed", is_flag=True, help="With --hooks: print what an administrator installs; write nothing.")
def import_command(offline: bool, hooks: bool, managed: bool, **given: Any) -> int:
    """Route a client's MCP servers through Subluminal.

    Every server keeps its name, environment and settings; its command is started, or its URL is reached, by `sub shim`
    from now on. The file is backed up first; `sub restore` puts it back. Servers behind a URL without credentials are
    asked whether they want a login: those stay as they are until `sub login`. Files of a repository, which others have
    too, are changed only with --scope project or if you agree. Without CLIENT: shows what there is and changes nothing.

    Exit code: 0 done; 1 an entry was left out, skipped or corrected or wants a login; 2 a file was refused, or usage.

    \b
    Examples:
      sub import                     what was found, and what an import would do
      sub import claude              Claude Code: your own servers
      sub import claude --scope project   those of this repository
      sub import codex --dry-run     the change as a diff
      sub import claude --server github
      sub import claude --hooks      its built-in tools too: Bash, edits, fetches
      sub import --all --offline
    """
    asked = _Asked(**given)
    client, dry_run = asked.client, asked.dry_run
    check_asked(client, hooks, managed, asked.path)
    if managed and client is not None:
        return show_managed(client, asked.as_json)
    if client is None and not asked.everything:
        if asked.servers or asked.scopes or asked.path or dry_run or offline or hooks:
            raise UsageError("say which client to import", hint="For example: sub import claude --dry-run; or --all.")
        return _overview(asked.as_json)
    sub = find_sub()
    choice = Choice(asked.servers, asked.scopes)
    targets, left = _without_shared(_targets(asked, choice, restoring=False), asked)
    _check_names(asked.servers, targets + left)
    answers = {} if offline else _ask(targets, choice)
    foreign = asked.foreign
    found = (
        import_file(c, f, command_in(f, sub), choice, answers=answers, dry_run=dry_run, foreign=foreign)
        for c, f in with_progress(targets, "client files")
    )
    reports = [report for report in found if report is not None]
    reports += [report for c, f in left if (report := left_out(c, f, choice)) is not None]
    if hooks:
        reports += hooks_imported(client, choice, sub=sub, dry_run=dry_run, foreign=asked.foreign)
    if reports and not dry_run:
        from subluminal.host.bytecode import compile_missing

        compile_missing()  # or every shim pays for it at its start
    missing = _missing(asked.servers, reports)
    code = 1 if client is not None and not reports else _exit_code(reports, missing)
    if asked.as_json:
        print_json({"command": "import", "dry_run": dry_run, "sub": sub, "files": reports})
        return code
    _show(reports, dry_run)
    if not targets and not left and client is not None:
        note(f"{client_named(client).title} has no file of the scope {' or '.join(asked.scopes)} here.")
        return code
    if not reports and client is not None:
        note(f"No configuration of {client_named(client).title} was found. Looked at:")
        for _, file in targets + left:
            note(f"  {printable(file.path)}")
        return code
    _after_import(reports, client, dry_run, sub)
    say_what_is_not_governed(reports, hooks)
    return code


@click.command("restore", epilog="Clients: " + ", ".join(CLIENTS) + ".")
@_with_options
@click.option("--list", "listing", is_flag=True, help="List the backups instead.")
@click.option("--secrets", is_flag=True, help="Put adopted secrets back into the files, in plain text.")
def restore_command(listing: bool, secrets: bool, **given: Any) -> int:
    """Put a client's configuration back.

    A file that is as the import left it gets its original bytes back. If the client or you changed it since, only the
    entries that were routed through Subluminal are put back and every other change is kept. Works without backups too.
    Secrets that `sub secrets adopt` took out stay in their store, unless you agree or give --secrets.

    \b
    Examples:
      sub restore claude
      sub restore codex --dry-run
      sub restore --all
      sub restore --list             the backups that are kept
    """
    asked = _Asked(**given)
    if listing:
        return _list_backups(asked.client, asked.as_json)
    if asked.client is None and not asked.everything:
        raise UsageError("say which client to restore", hint="For example: sub restore claude; or sub restore --all.")
    choice, dry_run = Choice(asked.servers, asked.scopes), asked.dry_run
    targets = _targets(asked, choice, restoring=True)
    _check_names(asked.servers, targets)
    every = with_progress(targets, "client files")
    found = (restore_file(c, f, choice, dry_run=dry_run, foreign=asked.foreign) for c, f in every)
    reports = [report for report in found if report is not None]
    if asked.path is None:
        named = CLIENTS if asked.client is None else [asked.client]
        reports += hooks_restored(named, choice, dry_run=dry_run, foreign=asked.foreign)
    code = _exit_code(reports, _missing(asked.servers, reports))
    if asked.as_json:
        put = [] if dry_run else offer_values(targets, choice, wanted=secrets, may_ask=False)
        back = [{"path": each.path, "server": each.server, "variable": each.variable} for each in put]
        print_json({"command": "restore", "dry_run": dry_run, "files": reports, "secrets_put_back": back})
        return code
    _show([report for report in reports if report.status != "unchanged" or report.servers], dry_run)
    if not any(report.status in ("restored", "refused", "gone") for report in reports):
        note("Nothing to restore: no server is routed through Subluminal, and no hook is installed.")
    elif dry_run:
        note("Nothing was written (--dry-run).")
    if not dry_run:
        offer_values(targets, choice, wanted=secrets, may_ask=True)
    return code


def _ask(targets: list[tuple[Client, ConfigFile]], choice: Choice) -> dict[str, Answer]:
    addresses = [address for client, file in targets for address in to_be_asked(client, file, choice)]
    if not addresses:
        return {}
    from subluminal.clients.remote.probing import MAX_ASKED, ask

    if len(set(addresses)) > MAX_ASKED:
        note(f"Only the first {MAX_ASKED} of these servers are asked whether they want a login.")
    return ask(addresses, slow=lambda waiting: note(f"Asking {count(waiting, 'server')} whether a login is wanted ..."))


def _targets(asked: _Asked, choice: Choice, *, restoring: bool) -> list[tuple[Client, ConfigFile]]:
    name = asked.client
    if name is not None and asked.everything:
        raise UsageError("name a client or use --all, not both")
    if asked.path is not None:
        if name is None:
            raise UsageError("--file needs the client whose format it has")
        return [_file_of(client_named(name), os.path.abspath(asked.path))]
    place = Place()
    clients = list(CLIENTS.values()) if name is None else [client_named(name)]
    if restoring:
        return [(client, file) for client in clients for file in files_to_restore(client, place)]
    return [(client, file) for client in clients for file in client.find(place) if choice.covers_file(file)]


def _file_of(client: Client, path: str) -> tuple[Client, ConfigFile]:
    """A file by its path has the scope that the client gives it: a repository's stays a repository's."""
    known = client.find(Place(os.path.dirname(path)))
    return client, next((file for file in known if file.path == path), ConfigFile(path, "user"))


def _without_shared(
    targets: list[tuple[Client, ConfigFile]], asked: _Asked
) -> tuple[list[tuple[Client, ConfigFile]], list[tuple[Client, ConfigFile]]]:
    """Files to import, and those of the repository, which others have too: they are changed when asked for."""
    if PROJECT in asked.scopes or asked.path is not None:
        return targets, []
    shared = [target for target in targets if target[1].scope == PROJECT]
    waiting = [(client, file) for client, file in shared if left_out(client, file, Choice(asked.servers))]
    interactive = not (asked.as_json or asked.dry_run) and sys.stdin.isatty() and sys.stderr.isatty()
    agreed = [target for target in waiting if interactive and _agreed(target[1])]
    return [target for target in targets if target not in shared or target in agreed], [
        target for target in shared if target in waiting and target not in agreed
    ]


def _agreed(file: ConfigFile) -> bool:
    note(f"{printable(file.path)} belongs to the repository: whoever works in it would need `sub` on their PATH.")
    return click.confirm("Route its servers through Subluminal?", default=False, err=True)


def _check_names(servers: tuple[str, ...], targets: list[tuple[Client, ConfigFile]]) -> None:
    """A name that no file has is a slip, unless a file could not be read."""
    if not servers:
        return
    files = [file for client, each in targets if (file := survey_file(client, each, None)) is not None]
    known = list(dict.fromkeys(entry.name for file in files for entry in file.entries))
    wrong = [name for name in servers if name not in known]
    if wrong and not any(file.error for file in files):
        hint = f"Known here: {', '.join(map(printable, known))}." if known else "No server is configured here."
        raise UsageError(f"no server is called {wrong[0]!r} here", hint=hint)


def _missing(servers: tuple[str, ...], reports: list[FileReport]) -> list[str]:
    """Names that were asked for and are in no file that could be read."""
    present = {server.name for report in reports for server in report.servers}
    missing = [name for name in servers if name not in present]
    for name in missing:
        note(f"No server is called {name!r} here.")
    return missing


def _exit_code(reports: list[FileReport], missing: list[str]) -> int:
    if any(report.status == "refused" for report in reports):
        return 2
    unfinished = ("skipped", "corrected", "login", LEFT)
    return 1 if missing or any(report.count(*unfinished) for report in reports) else 0


def _show(reports: list[FileReport], dry_run: bool) -> None:
    for report in reports:
        print(f"{paint(CLIENTS[report.client].title, None, bold=True)}  {printable(report.path)}")
        width = max((len(printable(server.name)) for server in report.servers), default=0)
        for server in report.servers:
            where = server.scope if server.project is None else f"{server.scope} {server.project}"
            line = f"{printable(server.name).ljust(width)}  {printable(where)}"
            detail = server.detail or ""
            status = paint(_word(server.status, dry_run), _COLOURS.get(server.status))
            # A command to be copied has a line to itself, with nothing behind it.
            shown = f"\n             {printable(detail)}" if server.status == "login" else f"  ({printable(detail)})"
            print(f"  {status}  {line}" + (shown if detail else ""))
        if report.error:
            print(f"  {paint('refused', 'red')}   {printable(report.error)}")
            if report.hint:
                print(f"            {printable(report.hint)}")
        elif not report.servers and not report.hooks:
            print("  no MCP servers")
        for status, events in hook_lines(report):
            print(f"  {paint(_word(status, dry_run), _COLOURS.get(status))}  {events}")
        if report.exact is not None:
            print("  byte for byte as before the import" if report.exact else "  other changes in the file were kept")
        if report.backup:
            print(f"  backup    {printable(report.backup)}")
        for warning in report.warnings:
            print(f"  {paint('note', 'yellow')}      {printable(warning)}")
        if report.diff:
            print("\n".join(printable(line) for line in report.diff.split("\n")))


def _word(status: str, dry_run: bool) -> str:
    """What was done, or what would be."""
    return (_WOULD[status] if dry_run and status in _WOULD else status).ljust(13 if dry_run else 9)


def _after_import(reports: list[FileReport], client: str | None, dry_run: bool, sub: str) -> None:
    for report in reports:
        for literal in report.literals:
            command = f"sub secrets adopt {shlex.quote(literal.server)} {shlex.quote(literal.variable)}"
            note(printable(f"{literal.server}: {literal.variable} looks like a secret in the file. Move it: {command}"))
    if any(report.count(LEFT) for report in reports):
        for name in dict.fromkeys(report.client for report in reports if report.count(LEFT)):
            note(f"The repository's servers were left out: others have its files too. Route them:  {asked_for(name)}")
    if any(report.scope == PROJECT and report.status == "changed" for report in reports):
        note("The repository's file names `sub` without a path: whoever works in it needs Subluminal on the PATH.")
    if any(report.count("login") for report in reports):
        note("Log in as shown, then import again.")
    if may_vanish(sub):
        note(f"{sub} lies in an environment that may be cleared away. Install it (pipx, uv tool) and import again.")
    if dry_run:
        note("Nothing was written (--dry-run).")
    elif any(report.status == "changed" for report in reports):
        note(f"Undo at any time:  sub restore {client or '--all'}")
        note("Restart the client, then watch its tool calls:  sub tail")
    elif any(report.error or report.count("skipped", "login", "http", LEFT) for report in reports):
        return  # what was refused has been told, and nobody knows what it holds
    elif any(report.hooks for report in reports):
        note("Nothing to do: servers and hooks are as they should be.")
    elif not any(report.count("already", "updated") for report in reports):
        note("No servers are configured here yet. Add one with the client, then import again.")
    else:
        note("Nothing to do: every server goes through Subluminal already.")


def _overview(as_json: bool) -> int:
    found = survey()
    if as_json:
        print_json({"command": "import", "dry_run": True, "sub": find_sub(), "found": found})
        return 0
    for file in found:
        print(f"{paint(CLIENTS[file.client].title, None, bold=True)}  {printable(file.path)}")
        _overview_of(file)
    waiting = dict.fromkeys(_import_of(file) for file in found if any(_would_wrap(entry) for entry in file.entries))
    if not found:
        note("No client configuration was found. Known clients: " + ", ".join(CLIENTS) + ".")
    elif waiting:
        note("Nothing was changed. To route these servers through Subluminal:")
        for command in waiting:
            note(f"  {command}")
    else:
        note("Nothing to do: every server that can goes through Subluminal already.")
    return 0


def _import_of(file: SurveyedFile) -> str:
    """Files that others have too are imported only when asked for."""
    return f"sub import {file.client}" + (f" --scope {file.scope}" if file.scope in ("managed", PROJECT) else "")


def _overview_of(file: SurveyedFile) -> None:
    if file.error:
        print(f"  {paint('unreadable', 'red')}  {printable(file.error)}")
    elif not file.entries:
        print("  no MCP servers")
    width = max((len(printable(entry.name)) for entry in file.entries), default=0)
    for entry in file.entries:
        where = entry.scope if entry.project is None else f"{entry.scope} {entry.project}"
        print(f"  {printable(entry.name).ljust(width)}  {printable(where)}  {_outlook(entry)}")


def _would_wrap(entry: SurveyedEntry) -> bool:
    return not entry.wrapped and (entry.transport == "stdio" or (entry.transport == "http" and entry.stays is None))


def _outlook(entry: SurveyedEntry) -> str:
    if entry.wrapped:
        return "routed" if entry.sub_exists else f"routed, but {printable(entry.sub or '')} does not exist"
    why = entry.problem or entry.stays
    if why is not None:
        return f"stays as it is: {printable(why)}"
    return "would be routed (http)" if entry.transport == "http" else "would be routed"


def _list_backups(client: str | None, as_json: bool) -> int:
    kept = [record for record in backups.records() if client is None or record.client == client]
    if as_json:
        rows = [
            {"backup": backups.backup_path(r), "intact": backups.original(r) is not None, "record": r} for r in kept
        ]
        print_json({"backups": rows})
        return 0
    for record in kept:
        state = "restored" if record.restored_at else "active"
        damaged = "" if backups.original(record) is not None else "  (missing or damaged)"
        print(f"{record.created_at[:19]}Z  {record.client}  {state}  {printable(record.path)}{damaged}")
        print(f"    {printable(backups.backup_path(record))}")
    if not kept:
        note(f"No backups in {home.backup_dir()}.")
    return 0
