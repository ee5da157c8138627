"""A file replaced in one step: whoever reads it finds the old bytes or the new ones, whatever is killed when.

The new bytes go to a hidden file beside the target, which no link can divert and nobody else can read, and that one is
renamed over it. A symbolic link at `path` is itself replaced; callers that mean the file behind it resolve it first.

The shim loads this with its policies: nothing but `os`.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# A process that is killed while it writes leaves a file of this name, which `host.run.files` clears away in `run/`.
DRAFT = ".new"
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


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


def _sync_directory(directory: str, dir_fd: int | None) -> None:
    descriptor = os.open(directory or os.curdir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
