"""What `sub secrets adopt` took out of clients' files, and its way back once no shim stands before the server."""

from __future__ import annotations

from typing import NamedTuple

from subluminal.clients import routed
from subluminal.clients.base import Client, ConfigFile
from subluminal.clients.importing import Choice, load
from subluminal.clients.server_env import set_server_env
from subluminal.contracts.errors import ClientConfigError
from subluminal.host.secrets.bindings import PLACEHOLDER, placeholder


class Adopted(NamedTuple):
    """A placeholder that nobody fills in any more."""

    client: str
    path: str
    scope: str
    server: str
    variable: str
    secret_ref: str


def left_behind(client: Client, file: ConfigFile, choice: Choice) -> list[Adopted]:
    """In entries that are not routed. A file that cannot be read has been told of by the restore itself."""
    try:
        loaded = load(client, file.path)
    except ClientConfigError:
        return []
    if loaded is None or not loaded[1].root.members:
        return []
    return [
        Adopted(client.name, file.path, entry.scope, entry.name, member.key, member.node.value[len(PLACEHOLDER) :])
        for entry in client.entries(loaded[1], file.scope)
        if choice.covers(entry) and entry.env is not None and routed.recognise(entry) is None
        for member in entry.env.members
        if member.node.kind == "string" and member.node.value.startswith(PLACEHOLDER)
    ]


def put_back(adopted: Adopted, value: str) -> None:
    set_server_env(
        adopted.client,
        adopted.server,
        adopted.variable,
        value,
        scope=adopted.scope,
        expected=placeholder(adopted.secret_ref),
    )
