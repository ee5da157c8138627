"""Files of ours: opened only if they are what we made, and replaced in one step, whatever is killed when.

`open_private` goes through no link and waits for no FIFO. `replace_file`: whoever reads finds the old bytes or the new.

The new bytes go to a hidden file beside the target, which no link can divert and nobody else can read, and that one is
renamed over it. A symbolic link at `path` is itself replaced; callers that mean the file behind it resolve it first.

The shim loads this with its policies: nothing but `os`.
"""

from __future__ import annotations

import os
from errno import ELOOP
from stat import S_ISREG

from subluminal.host.home import ensure_private_dir, refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# A process that is killed while it writes leaves a file of this name, which `host.run.files` clears away in `run/`.
DRAFT = ".new"
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def open_private(path: str, flags: int) -> int:
    """A file below SUB_HOME; PermissionError for whatever else stands in its place. Made 0600 if `flags` say so.

    To write, it must be ours and have one name only: a second one could be that of any file of the user.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno != ELOOP:
            raise
        raise refusal(path, "is a symbolic link, which is not followed here; remove it") from None
    status = os.fstat(descriptor)
    fault = None if S_ISREG(status.st_mode) else "is not a regular file; remove it"
    if fault is None and flags & (os.O_WRONLY | os.O_RDWR):
        if status.st_uid not in (os.geteuid(), 0):
            fault = f"belongs to another user (uid {status.st_uid}); remove it"
        elif status.st_nlink > 1:
            fault = "has a second name (a hard link); remove it"
    if fault is not None:
        os.close(descriptor)
        raise refusal(path, fault)
    return descriptor


def read_private(path: str, limit: int = -1) -> bytes:
    with open(open_private(path, os.O_RDONLY), "rb") as file:
        return file.read(limit)


def keep_first(path: str, data: bytes, limit: int) -> bytes:
    """What stands at `path`, at most `limit` bytes; where nothing does, `data`, put there. Of several that come at once
    one wins, and all return what that one wrote."""
    for _ in range(2):
        try:
            if known := read_private(path, limit):
                return known
        except FileNotFoundError:
            pass
        directory, name = os.path.split(path)
        ensure_private_dir(directory)
        draft = os.path.join(directory, f".{name}.{os.urandom(6).hex()}{DRAFT}")
        with open(open_private(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(data)
        try:
            os.link(draft, path)
            return data
        except FileExistsError:
            continue
        finally:
            os.unlink(draft)
    return read_private(path, limit)


def replace_file(
    path: str,
    data: bytes | Iterable[bytes],
    *,
    mode: int | None = None,
    durable: bool = False,
    dir_fd: int | None = None,
    finish: Callable[[int], None] | None = None,
) -> int:
    """Put `data` at `path` or raise and leave everything as it was; returns its size.

    The file is 0600 unless `mode` says otherwise. `durable`: it has reached the disk, and so has its name. `finish` is
    given the descriptor when the bytes are written, and may still refuse by raising. With `dir_fd`, `path` is relative
    to that directory.
    """
    directory, name = os.path.split(path)
    draft = os.path.join(directory, f".{name[:100]}.{os.urandom(6).hex()}{DRAFT}")
    descriptor = os.open(draft, _FLAGS, 0o600, dir_fd=dir_fd)
    try:
        with open(descriptor, "wb") as file:
            for piece in (data,) if isinstance(data, bytes) else data:
                file.write(piece)
            file.flush()
            if mode is not None:
                os.fchmod(descriptor, mode)
            if finish is not None:
                finish(descriptor)
            if durable:
                os.fsync(descriptor)
            size = file.tell()
        os.rename(draft, path, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except BaseException:
        try:
            os.unlink(draft, dir_fd=dir_fd)
        except OSError:
            pass
        raise
    if durable:
        _sync_directory(directory, dir_fd)
    return size


def unlinked_file(directory: str) -> int:
    """A file without a name (0600): nothing is left behind whatever happens to us."""
    ensure_private_dir(directory)
    flags = os.O_RDWR | os.O_CLOEXEC
    if hasattr(os, "O_TMPFILE"):
        try:
            return os.open(directory, flags | os.O_TMPFILE, 0o600)
        except OSError:
            pass  # a file system without it
    path = os.path.join(directory, f".held-{os.getpid()}-{os.urandom(6).hex()}")
    fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink(path)
    return fd


def _sync_directory(directory: str, dir_fd: int | None) -> None:
    descriptor = os.open(directory or os.curdir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
