"""Reading and replacing a user's file without ever harming it.

The path may be anything a hostile repository or local user put there: a FIFO, a device, a loop of links. So the target
is resolved first, must be a regular file of bounded size, and is opened without following or blocking. Replacing is
atomic (temporary file beside the target, fsync, rename) and keeps links, mode, owner and extended attributes; if
anyone changed the file since it was read, nothing is written.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import NamedTuple

from subluminal.contracts.errors import ClientConfigError
from subluminal.host.files import replace_file

# `~/.claude.json` grows to some megabytes with its histories; nothing real comes near this.
MAX_CONFIG_BYTES = 64 * 1024 * 1024


class Snapshot(NamedTuple):
    """A file as it was read: the path asked for, the file it leads to, the bytes and the inode they came from."""

    path: str
    real: str
    data: bytes
    stat: os.stat_result


class ChangedMeanwhile(ClientConfigError):
    hint = "Nothing was written. Close the client or let it finish, then run the command again."


def read(path: str) -> Snapshot | None:
    """The file, or None if there is none. Raises ClientConfigError for anything that is not a plain file."""
    try:
        real = os.path.realpath(path, strict=True)
        if not stat.S_ISREG(os.lstat(real).st_mode):
            raise _not_regular(path)
        data, status = _read_regular(path, real)
    except (FileNotFoundError, NotADirectoryError):
        if os.path.islink(path):
            raise ClientConfigError(f"{path}: a symbolic link to a file that does not exist") from None
        return None
    except OSError as error:
        raise ClientConfigError(f"{path}: cannot be read: {_reason(error)}") from None
    if len(data) > MAX_CONFIG_BYTES:
        raise ClientConfigError(f"{path}: larger than {MAX_CONFIG_BYTES // 2**20} MiB; not a client's configuration")
    return Snapshot(path, real, data, status)


def _read_regular(path: str, real: str) -> tuple[bytes, os.stat_result]:
    """Looks again after opening: what was a file a moment ago may be a FIFO by now."""
    with open(os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise _not_regular(path)
        return file.read(MAX_CONFIG_BYTES + 1), status


def _not_regular(path: str) -> ClientConfigError:
    return ClientConfigError(f"{path}: not a regular file; left alone")


def _reason(error: OSError) -> str:
    return "its symbolic links form a loop" if error.errno == errno.ELOOP else (error.strerror or "unknown error")


def check_writable(snapshot: Snapshot, *, foreign: bool = False) -> None:
    """Refuse what its owner has protected, and what belongs to someone else unless `foreign` allows it."""
    if snapshot.stat.st_uid != os.geteuid() and not foreign:
        hint = "Run the command as that user; as root, --foreign changes it and keeps its owner."
        raise ClientConfigError(f"{snapshot.path}: belongs to another user (uid {snapshot.stat.st_uid})", hint=hint)
    if not snapshot.stat.st_mode & stat.S_IWUSR:
        message = f"{snapshot.path}: is read-only (mode {stat.S_IMODE(snapshot.stat.st_mode):04o})"
        raise ClientConfigError(message, hint=f"If you want it changed: chmod u+w {snapshot.real}")


def warnings(snapshot: Snapshot) -> list[str]:
    found = []
    parent = os.path.dirname(snapshot.real)
    mode = os.stat(parent).st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        found.append(f"{parent} can be changed by every user of this machine")
    if snapshot.stat.st_nlink > 1:
        found.append(f"{snapshot.real} has {snapshot.stat.st_nlink} hard links; only this one is changed")
    return found


def replace(snapshot: Snapshot, data: bytes) -> None:
    """Put `data` in the place of the file that was read, or raise and leave everything as it is."""

    def finish(fd: int) -> None:
        _make_like(snapshot, fd)
        os.fsync(fd)  # takes long enough for another program to step in, so we look after it
        _check_unchanged(snapshot)

    try:
        replace_file(snapshot.real, data, durable=True, finish=finish)
    except OSError as error:
        raise ClientConfigError(f"{snapshot.path}: cannot be replaced: {error.strerror}") from None


def create(path: str, data: bytes) -> Snapshot:
    """Make a file that is not there; raise if one has appeared."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
            return Snapshot(path, os.path.realpath(path), data, os.fstat(descriptor))
    except FileExistsError:
        raise ChangedMeanwhile(f"{path}: was made by another program at this very moment") from None
    except OSError as error:
        raise ClientConfigError(f"{path}: cannot be made: {error.strerror}") from None


def remove(snapshot: Snapshot) -> None:
    """Take away a file that is as it was read."""
    _check_unchanged(snapshot)
    try:
        os.unlink(snapshot.real)
    except OSError as error:
        raise ClientConfigError(f"{snapshot.path}: cannot be removed: {error.strerror}") from None


def _make_like(snapshot: Snapshot, fd: int) -> None:
    mine, wanted = os.fstat(fd), snapshot.stat
    if (mine.st_uid, mine.st_gid) != (wanted.st_uid, wanted.st_gid):
        os.fchown(fd, wanted.st_uid, wanted.st_gid)
    _copy_attributes(snapshot.real, fd)
    os.fchmod(fd, stat.S_IMODE(wanted.st_mode))


def _copy_attributes(source: str, fd: int) -> None:
    """Access lists and labels live in extended attributes; file systems without them are fine."""
    if not hasattr(os, "listxattr"):
        return
    with contextlib.suppress(OSError):
        for name in os.listxattr(source):
            with contextlib.suppress(OSError):
                os.setxattr(fd, name, os.getxattr(source, name))


def _check_unchanged(snapshot: Snapshot) -> None:
    current = read(snapshot.path)
    if (
        current is None
        or current.real != snapshot.real
        or (current.stat.st_dev, current.stat.st_ino) != (snapshot.stat.st_dev, snapshot.stat.st_ino)
        or current.data != snapshot.data
    ):
        raise ChangedMeanwhile(f"{snapshot.path}: was changed by another program at this very moment")
