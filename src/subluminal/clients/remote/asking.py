"""Which servers behind a URL are asked whether they want a login, and what their answers mean for an import."""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct

from subluminal.clients.references import filled_in
from subluminal.clients.remote.reading import Remote
from subluminal.contracts.errors import SubluminalError
from subluminal.host.config import Config
from subluminal.host.secrets.addresses import address_fault
from subluminal.logins.tokens import find
from subluminal.logins.wording import login_words


class Answer(Struct, frozen=True):
    """`fault` is the end of a sentence about a server that did not answer as one."""

    asks_for_login: bool = False
    fault: str | None = None


# Address -> what its server said.
Answers = Mapping[str, Answer]


def to_ask(name: str, remote: Remote, config: Config | None) -> str | None:
    """The address to ask; None for a server that gets credentials already, or whose address is not known here."""
    if remote.has_credentials:
        return None
    if config is not None and any(binding.header is not None for binding in config.server(name).secret_bindings):
        return None
    return address_here(remote)


def address_here(remote: Remote) -> str | None:
    """With what this environment has; None if that makes no address."""
    address = filled_in(remote.url, os.environ)
    return address if address_fault(address) is None else None


def has_login(name: str, address: str) -> bool:
    try:
        return find(name, address) is not None
    except SubluminalError:
        return False


def login_fault(name: str, setting: str | None, address: str | None) -> str | None:
    """Why a server stays with its client, which logs in itself: until we have a login of our own."""
    if setting is None or (address is not None and has_login(name, address)):
        return None
    way = "" if address is None else f"; to route it: {login_words(name, address)}"
    return f'logs in by itself ("{setting}"){way}'
