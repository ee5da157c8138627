"""Logins at rest. The tokens are a value in the secret store, of a kind of their own; a note beside it has what may be
told (whose, for which URL, until when), and its time of change says whether the value has to be read again.

A login belongs to a name and a URL together: what a repository calls by the same name at another address is another
login. The value is written before the note: who reads in between finds tokens that are newer than the note says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_UN, flock

import msgspec

from subluminal.contracts.digest import sha256_hex_once
from subluminal.contracts.errors import LoginError, LoginUnreachable
from subluminal.host.files import open_private, read_private, replace_file
from subluminal.host.home import LOGIN_NOTE, ensure_private_dir, login_dir, login_lock, login_note
from subluminal.host.run.lock import QueuedLock
from subluminal.host.secrets.keystore import LOGINS, Entry, open_store
from subluminal.logins.addresses import AddressError, read

OAUTH, TOKEN = "oauth", "token"
# Longer than one refresh can take (`fetch.TOTAL_S`).
LOCK_S = 30.0
_MAX_NOTE_BYTES = 256 * 1024
Stamp = tuple[int, int, int]


class Registered(msgspec.Struct, omit_defaults=True):
    """How we are known to an authorization server."""

    client_id: str
    client_secret: str = ""
    auth_method: str = "none"
    port: int = 0  # of the redirect address that was registered; 0: the user has given the client
    scopes: list[str] = []
    secret_expires_at: float = 0

    def __repr__(self) -> str:
        return f"Registered({self.client_id!r})"


class Kept(msgspec.Struct, omit_defaults=True):
    """All that is stored of a login."""

    name: str
    url: str  # origin and path, in one spelling
    access_token: str
    kind: str = OAUTH
    refresh_token: str = ""
    obtained_at: float = 0
    expires_at: float | None = None
    scopes: list[str] = []
    resource: str = ""
    issuer: str = ""
    token_endpoint: str = ""
    revocation_endpoint: str = ""
    client: Registered | None = None

    def __repr__(self) -> str:
        return f"Kept({self.name!r}, {self.url!r})"

    def secrets(self) -> list[str]:
        """What must be masked wherever it appears."""
        client_secret = "" if self.client is None else self.client.client_secret
        return [value for value in (self.access_token, self.refresh_token, client_secret) if value]


class Note(msgspec.Struct):
    """What may be told of a login."""

    name: str
    url: str
    source: str
    encrypted: bool
    kind: str
    issuer: str
    scopes: list[str]
    obtained_at: float
    expires_at: float | None
    refreshable: bool


def reference(name: str, url: str) -> str | None:
    """The reference of a login; None for a URL that no login can be for."""
    try:
        resource = read(url).resource
    except AddressError:
        return None
    plain = "".join(c if c.isascii() and c.isalnum() else "_" for c in name[:32])
    digest = sha256_hex_once(f"{name}\n{resource}".encode("utf-8", "surrogatepass"))
    return f"l{plain}-{digest[:32]}"


def stamp(ref: str) -> Stamp | None:
    """Changes with every change of the login; None: there is none."""
    try:
        status = os.stat(login_note(ref), follow_symlinks=False)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def note_of(ref: str) -> Note | None:
    try:
        return msgspec.json.decode(read_private(login_note(ref), _MAX_NOTE_BYTES), type=Note)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LoginError(f"{login_note(ref)} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise LoginError(f"{login_note(ref)} is damaged", hint="Remove it and log in again.") from None


def notes() -> list[Note]:
    """Every login, by name."""
    try:
        names = os.listdir(login_dir())
    except OSError:
        return []
    refs = [name.removesuffix(LOGIN_NOTE) for name in names if name.endswith(LOGIN_NOTE) and not name.startswith(".")]
    found = [note for ref in refs if (note := note_of(ref)) is not None]
    return sorted(found, key=lambda note: (note.name, note.url))


def load(ref: str) -> Kept | None:
    """The tokens as they are stored now."""
    note = note_of(ref)
    value = None if note is None else open_store(note.source, os.environ, LOGINS).get(ref)
    if value is None:
        return None
    try:
        kept = msgspec.json.decode(value, type=Kept)
    except (msgspec.DecodeError, RecursionError):
        kept = None
    if kept is None or reference(kept.name, kept.url) != ref:
        raise LoginError("a stored login is damaged or of another server", hint="Remove it: sub logout NAME")
    return kept


def check_store(name: str, url: str, source: str) -> None:
    """Raises what would be raised after the user has come all the way through a login."""
    if ref := reference(name, url):
        open_store(source, os.environ, LOGINS).get(ref)


def store(kept: Kept, source: str) -> Note:
    """For whoever holds the lock of this login, which has made the directory."""
    ref = reference(kept.name, kept.url)
    assert ref is not None
    before = note_of(ref)
    entry: Entry = open_store(source, os.environ, LOGINS).put(ref, msgspec.json.encode(kept).decode())
    note = Note(
        kept.name, kept.url, source, entry.encrypted, kept.kind, kept.issuer, kept.scopes, kept.obtained_at,
        kept.expires_at, bool(kept.refresh_token),
    )  # fmt: skip
    try:
        replace_file(login_note(ref), msgspec.json.encode(note), durable=True)
    except OSError as error:
        raise LoginError(f"{login_note(ref)} cannot be written: {error.strerror}") from None
    if before is not None and before.source != source:
        open_store(before.source, os.environ, LOGINS).remove(ref)
    return note


def remove(ref: str) -> None:
    """For whoever holds the lock. The value goes first: a note without one is no login."""
    note = note_of(ref)
    if note is not None:
        open_store(note.source, os.environ, LOGINS).remove(ref)
        os.unlink(login_note(ref))


@contextmanager
def locked(ref: str, seconds: float = LOCK_S) -> Iterator[None]:
    """One process (and one thread of it) at a time changes a login."""
    try:
        ensure_private_dir(login_dir())
        descriptor = open_private(login_lock(ref), os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise LoginError(f"{error.filename or login_lock(ref)} cannot be used: {error.strerror}") from None
    lock = QueuedLock(descriptor)
    try:
        if not lock.take(seconds):
            raise LoginUnreachable("another process has been busy with this login for too long", hint="Try again.")
        try:
            yield
        finally:
            flock(descriptor, LOCK_UN)
    finally:
        lock.close()
        os.close(descriptor)
