"""Backups of clients' files in `SUB_HOME/backups`: one pair per import that changed a file, never overwritten.

<id>.original   the bytes as they were (they may hold secrets: 0600, like the file itself at best)
<id>.json       the record: which file, both hashes, which entries were wrapped and what was added to them
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

import msgspec

from subluminal.contracts.digest import sha256_hex_once
from subluminal.contracts.errors import ClientConfigError
from subluminal.host import home
from subluminal.host.clock import utc_now
from subluminal.host.files import read_private, replace_file


class RemovedMembers(msgspec.Struct, frozen=True):
    """Text that an import took out, the keys in it, and the key it stood behind (empty: it came first)."""

    after: str
    keys: list[str]
    text: str


class WrappedEntry(msgspec.Struct, frozen=True):
    """What one import did to one entry, so that exactly this can be undone again.

    `spelled` has, by the key that an import wrote, the text that stood in its place (of `type`: its value).
    """

    location: list[str]
    name: str
    occurrence: int
    added_keys: list[str]
    added_env_vars: list[str]
    spelled: dict[str, str] = {}
    removed: list[RemovedMembers] = []


class AddedHooks(msgspec.Struct, frozen=True):
    """What one import of hooks added: commands and trust hashes by which they are known, and keys that were not there.

    `created`: there was no file at all.
    """

    commands: list[str] = []
    trusted: list[str] = []
    keys: list[list[str]] = []
    created: bool = False


# Where an entry stands: the keys that lead to its table, its name, and which of several of that name it is.
EntryKey = tuple[tuple[str, ...], str, int]


class Record(msgspec.Struct):
    """`routed_before` are entries that were routed already when no import of ours was in force: the user's own.

    `holds` says what kind of file it is: one with servers, or one that we touch for its hooks alone.
    """

    id: str
    client: str
    scope: str
    path: str
    real_path: str
    created_at: str
    original_sha256: str
    written_sha256: str
    size: int
    mode: int
    sub: str
    wrapped: list[WrappedEntry]
    routed_before: list[EntryKey] = []
    restored_at: str | None = None
    holds: str = "servers"
    hooks: AddedHooks | None = None


def digest(data: bytes) -> str:
    return sha256_hex_once(data)


def new_id(client: str) -> str:
    """Sorts by time, so that two imports within a second keep their order."""
    return f"{datetime.now(UTC).strftime('%Y%m%dT%H%M%S.%fZ')}-{client}-{os.urandom(4).hex()}"


def save(record: Record, original: bytes) -> None:
    """Both files are on disk before the caller touches the user's file."""
    try:
        home.ensure_private_dir(home.backup_dir())
        _write_new(_path(record.id, "original"), original)
        _write_new(_path(record.id, "json"), _encode(record))
    except OSError as error:
        discard(record)
        raise ClientConfigError(
            f"no backup could be written to {home.backup_dir()}: {error.strerror}; nothing was changed"
        ) from None


def discard(record: Record) -> None:
    """The import did not happen after all."""
    for kind in ("json", "original"):
        try:
            os.unlink(_path(record.id, kind))
        except OSError:
            pass


def mark_restored(record: Record) -> None:
    record.restored_at = utc_now()
    replace_file(_path(record.id, "json"), _encode(record), durable=True)


def records() -> list[Record]:
    """Oldest first. A record that cannot be read is passed over: restoring works without it."""
    found = []
    try:
        names = sorted(name for name in os.listdir(home.backup_dir()) if name.endswith(".json"))
    except OSError:
        return []
    for name in names:
        try:
            found.append(msgspec.json.decode(read_private(os.path.join(home.backup_dir(), name)), type=Record))
        except (OSError, msgspec.DecodeError):
            continue
    return sorted(found, key=lambda record: record.id)


def history(client: str, real_path: str) -> list[Record]:
    """The imports of one file, oldest first."""
    return [record for record in records() if record.client == client and record.real_path == real_path]


def original(record: Record) -> bytes | None:
    """The backed-up bytes, or None if they are gone or are no longer what the record says."""
    try:
        data = read_private(_path(record.id, "original"))
    except OSError:
        return None
    return data if digest(data) == record.original_sha256 else None


def rewind(data: bytes, history: list[Record]) -> tuple[bytes, list[Record]]:
    """Follow the chain of imports back as far as hashes prove that the file is as an import left it."""
    used: list[Record] = []
    while True:
        found = digest(data)
        for record in reversed(history):
            if record.written_sha256 == found and record not in used:
                before = original(record)
                if before is not None:
                    break
        else:
            return data, used
        used.append(record)
        data = before


def backup_path(record: Record) -> str:
    return _path(record.id, "original")


def _path(record_id: str, kind: str) -> str:
    # The id comes from a file name we wrote; a planted record must not lead out of the directory.
    return os.path.join(home.backup_dir(), f"{os.path.basename(record_id)}.{kind}")


def _encode(record: Record) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record)) + b"\n"


def _write_new(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)
