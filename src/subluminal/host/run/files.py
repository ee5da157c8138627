"""The state files of runs: naming, making, checking, and clearing away. `state` says what is in them."""

from __future__ import annotations

import os
import stat
import time

from subluminal.contracts.digest import sha256_hex
from subluminal.host.home import run_dir, run_state_file

FORMAT = 1
MAGIC = b"SUBSTATE" + FORMAT.to_bytes(8, "little")
HEADER_BYTES = 4_096
ARENA_BYTES = 1_048_576  # holds every pool of core.state at its bound, with room for records behind
FILE_BYTES = HEADER_BYTES + 2 * ARENA_BYTES
BOOT_ID_AT, RUN_ID_AT = 16, 128
MAX_RUN_ID_BYTES = HEADER_BYTES - RUN_ID_AT - 2
# A shim that lives keeps its run's file fresh, so this is how long all of a run's shims may be gone before its budgets
# are forgotten. Long enough that an agent gains nothing by killing them and waiting.
STALE_AFTER_SECONDS = 24 * 3600


def state_path(run_id: str, directory: str | None = None) -> str:
    return run_state_file(sha256_hex(run_id.encode("utf-8", "surrogatepass")), directory)


def boot_id() -> bytes:
    """Monotonic time restarts with the machine. Where the boot has no id, core.state's clock slack must do."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return bytes.fromhex(file.read().decode().strip().replace("-", "")).ljust(16, b"\0")[:16]
    except (OSError, ValueError):
        return b"\0" * 16


def create_file(path: str, run_id: str, boot_id: bytes) -> None:
    """Make a complete file under another name and link it into place; losing the race to another shim is fine."""
    making = f"{path}.{os.getpid()}.new"
    raw_id = run_id.encode("utf-8", "surrogatepass")[:MAX_RUN_ID_BYTES]
    header = bytearray(HEADER_BYTES)
    header[:16] = MAGIC
    header[BOOT_ID_AT : BOOT_ID_AT + 16] = boot_id
    header[RUN_ID_AT : RUN_ID_AT + 2 + len(raw_id)] = len(raw_id).to_bytes(2, "little") + raw_id
    try:
        os.unlink(making)  # left by a process that was killed and had our pid
    except FileNotFoundError:
        pass
    fd = os.open(making, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _allocate(fd, FILE_BYTES)
        os.pwrite(fd, header, 0)
        os.link(making, path)
    except FileExistsError:
        pass
    finally:
        os.close(fd)
        os.unlink(making)


def _allocate(fd: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
        return
    block = bytes(65_536)  # macOS: writing is what allocates
    for at in range(0, size, len(block)):
        os.pwrite(fd, block[: size - at], at)


def fault(fd: int) -> str | None:
    """Why this file is not one we can map."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        return "the state file is not a regular file"
    if status.st_uid != os.geteuid():
        raise OSError(None, "the state file belongs to another user")
    if status.st_size != FILE_BYTES:
        return "the state file has another size"
    if os.pread(fd, 16, 0) != MAGIC:
        return "the state file has another format"
    return None


def write_aside(path: str, content: bytes) -> None:
    """Keep the latest damaged state for whoever wants to know; failing to is no reason to fail."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(fd, content)
        finally:
            os.close(fd)
    except OSError:
        pass


def keep_fresh(path: str) -> None:
    """For a run that is idle but alive."""
    try:
        os.utime(path)
    except OSError:
        pass


def remove_stale(older_than_seconds: float = STALE_AFTER_SECONDS, directory: str | None = None) -> int:
    """Delete the state of runs that nobody has used for long (and what damage or a kill left behind)."""
    where = directory or run_dir()
    removed = 0
    try:
        names = os.listdir(where)
    except OSError:
        return 0
    limit = time.time() - older_than_seconds
    for name in names:
        if not name.endswith((".state", ".state.bad", ".new")):
            continue
        path = os.path.join(where, name)
        try:
            if os.lstat(path).st_mtime < limit:
                os.unlink(path)
                removed += 1
        except OSError:
            continue
    return removed
