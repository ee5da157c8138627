"""The tokens file: for each bearer token its SHA-256, the tenant and machine that it stands for, and what it may do.

    {"tokens": [{"sha256": "…", "tenant": "acme", "machine": "build-7", "may": ["ship"]}]}

The tokens themselves stand nowhere. A file that was replaced is read again; one that cannot be read keeps the last good
one in force, so that a slip of an editor does not cut off a fleet.
"""

from __future__ import annotations

import logging
import os
import secrets
from hashlib import sha256

import msgspec
from msgspec import Struct

from subluminal.contracts.errors import ConfigError, UsageError
from subluminal.fleet.collector.credentials import NAME, READ, SHIP, Caller
from subluminal.host.files import replace_file

_PREFIX = "subf_"
log = logging.getLogger("subluminal.collector")


class Entry(Struct):
    sha256: str
    tenant: str
    machine: str
    may: list[str]


class _File(Struct):
    tokens: list[Entry]


class Tokens:
    """`may_come`: where there is another kind of credential, a file that is not there yet is one without tokens."""

    def __init__(self, path: str, *, may_come: bool = False) -> None:
        self._path = path
        self._seen = self._stamp()
        self._callers: dict[str, Caller] = {}
        if self._seen is None and may_come:
            log.warning("%s is not there: no token is known until it is", path)
        else:
            self._callers = _callers(_read(path))

    def __call__(self, token: str) -> Caller | None:
        if self._stamp() != self._seen:
            self._seen = self._stamp()
            try:
                self._callers = _callers(_read(self._path))
            except ConfigError:
                pass
        return self._callers.get(sha256(token.encode("utf-8", "replace")).hexdigest())

    def _stamp(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino


def _callers(file: _File) -> dict[str, Caller]:
    return {entry.sha256: Caller(entry.tenant, entry.machine, frozenset(entry.may)) for entry in file.tokens}


def _read(path: str) -> _File:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=_File)
    except OSError as error:
        hint = "Make one: sub collector token --tokens FILE --tenant NAME --machine NAME."
        raise ConfigError(f"{path} cannot be read: {error.strerror}.", hint=hint) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no tokens file: {error}.") from None


def add_token(path: str, tenant: str, machine: str, *, may_read: bool) -> str:
    """A new token, whose hash is now in the file; what is returned is told once and kept nowhere."""
    for name in (tenant, machine):
        if not NAME.fullmatch(name):
            raise UsageError(f"{name[:40]!r} is no name.", hint="Letters, digits and . _ : @ / - are taken.")
    file = _read(path) if os.path.exists(path) else _File([])
    token = _PREFIX + secrets.token_urlsafe(32)
    digest = sha256(token.encode()).hexdigest()
    file.tokens.append(Entry(digest, tenant, machine, [READ] if may_read else [SHIP]))
    replace_file(path, msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n", durable=True)
    return token
