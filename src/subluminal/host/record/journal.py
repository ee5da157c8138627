"""Journals: one append-only file of event lines per shim, `SUB_HOME/spool/<shim_id>.jsonl`.

The writer holds `flock(LOCK_EX)` on its journal while it lives; the kernel lets go of it however the writer dies. The
reader (`sub ledgerd`) takes the lock without waiting: getting it means the writer is gone.

Traps:
- A journal appears under its name only when it is locked already (`create_locked` links it into place), so the
  reader can never take a newborn journal for a dead one.
- The descriptor must not leak into children: the lock belongs to the open file, not to the process. `os.open` gives
  close-on-exec; a child made by plain fork must close it.
- The spool belongs to the user but not everything in it need be a journal: open only regular files, never a link.

Imports nothing heavy: the shim loads this at start-up.
"""

from __future__ import annotations

import fcntl
import os
import stat
from io import BytesIO

SUFFIX = ".jsonl"


def journal_name(shim_id: str) -> str:
    """The file name of a shim's journal."""
    return safe_name(shim_id) + SUFFIX


def safe_name(shim_id: str) -> str:
    """Ids are ours, but never trusted to be free of slashes and dots."""
    safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in shim_id)
    return safe[:120] or "_"


def create_locked(path: str) -> int:
    """A new journal, locked from its first moment; the descriptor to append to, kept open while the writer lives.

    FileExistsError if there is such a journal: it is never replaced, for it may hold events not yet taken in.
    """
    directory, name = os.path.split(path)
    hidden = os.path.join(directory, f".{name}.{os.getpid()}")
    try:
        os.unlink(hidden)  # left by a process that was killed and had our pid
    except FileNotFoundError:
        pass
    descriptor = os.open(
        hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600
    )
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.link(hidden, path)
    except BaseException:
        os.close(descriptor)
        raise
    finally:
        os.unlink(hidden)
    return descriptor


def list_journals(spool: str) -> list[str]:
    try:
        names = os.listdir(spool)
    except FileNotFoundError:
        return []
    return sorted(name for name in names if name.endswith(SUFFIX) and not name.startswith("."))


def open_journal(spool: str, name: str) -> int | None:
    """A journal for reading and, if its writer is dead, for closing it. None: not a file of ours."""
    try:
        descriptor = os.open(
            os.path.join(spool, name), os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )
    except OSError:
        return None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        os.close(descriptor)
        return None
    return descriptor


def take_if_dead(descriptor: int) -> bool:
    """Take the lock if the writer is gone. Let go of it with `release`."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def release(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def complete_lines(chunk: bytes) -> tuple[list[bytes], int]:
    """The whole lines at the start of a chunk, without their newlines, and how many bytes they take."""
    end = chunk.rfind(b"\n") + 1
    if not end:
        return [], 0
    # BytesIO looks for newlines with memchr, `split` byte by byte.
    return [line[:-1] for line in BytesIO(chunk[:end])], end
