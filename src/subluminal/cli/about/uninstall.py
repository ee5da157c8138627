"""`sub uninstall`: what Subluminal has left on this machine, and its removal when asked for.

Order matters: clients' files come first, for a client whose entry names a program that is gone has lost its server.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

import click

from subluminal.cli.clients.hooks import hooks_restored
from subluminal.cli.clients.put_back import offer_values
from subluminal.cli.render.output import note, print_json
from subluminal.clients.base import Place
from subluminal.clients.hooks.places import WITH_HOOKS
from subluminal.clients.hooks.survey import is_installed
from subluminal.clients.importing import Choice
from subluminal.clients.registry import CLIENTS
from subluminal.clients.restoring import files_to_restore, restore_file
from subluminal.clients.survey import survey
from subluminal.contracts.errors import SecretError, SubluminalError
from subluminal.host import home
from subluminal.host.executable import find_sub
from subluminal.host.secrets.keystore import keychain_available, open_store
from subluminal.ledger.daemon.contact import ask, stop
from subluminal.reports.printable import count, printable


@click.command("uninstall")
@click.option("--yes", "wanted", is_flag=True, help="Restore every client and stop the daemon.")
@click.option("--purge", is_flag=True, help="With --yes: also remove the record, policies and secrets of SUB_HOME.")
@click.option("--secrets", is_flag=True, help="With --yes: put adopted secrets back into clients' files first.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def uninstall_command(wanted: bool, purge: bool, secrets: bool, as_json: bool) -> int:
    """Say what Subluminal has left on this machine; with --yes, take it out again.

    Clients are restored first, hooks included. The record, your policy and your secrets stay unless --purge is given.
    Exit code: 0, or 1 if a client's file could not be restored; then nothing else is removed.

    \b
    Examples:
      sub uninstall                  what there is, and what would stay
      sub uninstall --yes            clients as they were; the record stays
      sub uninstall --yes --purge
    """
    found = _found()
    if not wanted:
        if as_json:
            print_json({**found, "removed": False, "refused": []})
        else:
            _tell(found)
        return 0
    refused = _restored(secrets)
    if not refused:
        stop()
        if purge:
            _purge()
    if as_json:
        print_json({**found, "removed": not refused, "refused": refused})
        return 1 if refused else 0
    for path in refused:
        note(f"sub: {printable(path)} could not be restored; `sub restore --all` says why. Nothing else was removed.")
    if not refused:
        note("Clients are as they were." + (" The home directory is gone." if purge else ""))
        if not purge:
            note(f"The record, policies and secrets are kept in {printable(home.sub_home())}.")
        note(f"The program itself:  {_own_removal()}")
    return 1 if refused else 0


def _found() -> dict[str, Any]:
    place = Place()
    routed = [
        {"client": file.client, "path": file.path, "servers": [entry.name for entry in file.entries if entry.wrapped]}
        for file in survey()
        if any(entry.wrapped for entry in file.entries)
    ]
    directory = home.sub_home()
    return {
        "home": directory,
        "home_bytes": _size(directory) if os.path.isdir(directory) else None,
        "routed": routed,
        "hooks": [name for name in WITH_HOOKS if is_installed(name, place)],
        "keychain": _in_keychain(),
        "ledgerd": ask({"control": "status"}) is not None,
        "program": _own_removal(),
    }


def _in_keychain() -> list[str]:
    """Our own list of them comes first: to look for a keychain takes longer than all the rest."""
    try:
        entries = open_store("keychain", os.environ).refs()
    except SecretError:
        if keychain_available():
            raise
        return []
    return [entry.secret_ref for entry in entries] if entries and keychain_available() else []


def _tell(found: dict[str, Any]) -> None:
    for file in found["routed"]:
        names = ", ".join(map(printable, file["servers"]))
        print(f"routed    {CLIENTS[file['client']].title}  {printable(file['path'])}: {names}")
    for name in found["hooks"]:
        print(f"hooks     {WITH_HOOKS[name].title}")
    if found["ledgerd"]:
        print("daemon    ledgerd runs")
    if found["home_bytes"] is not None:
        print(f"home      {printable(found['home'])}, {found['home_bytes'] // 1024:,} KiB: record, policies, secrets")
    if found["keychain"]:
        print(f"keychain  {count(len(found['keychain']), 'secret')}: {', '.join(map(printable, found['keychain']))}")
    print(f"program   {found['program']}")
    note("Nothing was changed. Restore the clients and stop the daemon:  sub uninstall --yes")
    note("The record, policies and secrets as well:  sub uninstall --yes --purge")


def _restored(secrets: bool) -> list[str]:
    """Paths that could not be restored."""
    place, choice = Place(), Choice()
    targets = [(client, file) for client in CLIENTS.values() for file in files_to_restore(client, place)]
    reports = [restore_file(client, file, choice) for client, file in targets]
    reports += hooks_restored(list(CLIENTS), choice, dry_run=False, foreign=False)
    refused = [report.path for report in reports if report is not None and report.status == "refused"]
    if not refused:
        offer_values(targets, choice, wanted=secrets, may_ask=True)
    return refused


def _purge() -> None:
    if keychain_available():
        store = open_store("keychain", os.environ)
        for entry in store.refs():
            store.remove(entry.secret_ref)
    shutil.rmtree(home.sub_home(), ignore_errors=True)


def _size(directory: str) -> int:
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return total


def _own_removal() -> str:
    """By whom the program was installed, as far as its place tells."""
    try:
        place = os.path.realpath(find_sub())
    except SubluminalError:
        return "pip uninstall subluminal"
    if "/pipx/" in place:
        return "pipx uninstall subluminal"
    if "/uv/tools/" in place:
        return "uv tool uninstall subluminal"
    return f"{os.path.join(os.path.dirname(place), 'python')} -m pip uninstall subluminal"
