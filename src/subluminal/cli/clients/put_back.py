"""After a restore: adopted secrets go back into the client's file if that is wanted, or it is said how they would."""

from __future__ import annotations

import os
import sys

import click

from subluminal.cli.render.output import note
from subluminal.clients.adopted import Adopted, left_behind, put_back
from subluminal.clients.base import Client, ConfigFile
from subluminal.clients.importing import Choice
from subluminal.host.secrets.keystore import keychain_available, open_store
from subluminal.reports.printable import count, printable


def offer_values(
    targets: list[tuple[Client, ConfigFile]], choice: Choice, *, wanted: bool, may_ask: bool
) -> list[Adopted]:
    """Those that were put back. Values go from the store into the file and nowhere else."""
    found = [adopted for client, file in targets for adopted in left_behind(client, file, choice)]
    if not found:
        return []
    names = ", ".join(printable(f"{each.server}: {each.variable}") for each in found)
    note(f"{count(len(found), 'adopted secret')} of these files only a shim fills in: {names}.")
    if not wanted and may_ask and sys.stdin.isatty() and sys.stderr.isatty():
        wanted = click.confirm("Put the values back into the files, in plain text?", default=False, err=True)
    if not wanted:
        note("Put them back, in plain text:  sub restore CLIENT --secrets")
        return []
    return [each for each in found if _put(each)]


def _put(adopted: Adopted) -> bool:
    for source in ("keychain", "file") if keychain_available() else ("file",):
        value = open_store(source, os.environ).get(adopted.secret_ref)
        if value is not None:
            put_back(adopted, value)
            note(f"  {printable(adopted.server)}: {printable(adopted.variable)} is in {printable(adopted.path)} again")
            return True
    name = printable(adopted.secret_ref)
    note(f"  {printable(adopted.server)}: no store holds {name}; write the value into {printable(adopted.path)}")
    return False
