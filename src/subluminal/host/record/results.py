"""Kept results on the disk: `SUB_HOME/results/<hash of the run>/<shim_id>.results`, appended to by one producer.

Opened for each write: a process that serves a thousand runs holds no thousand descriptors for what few of them have.
"""

from __future__ import annotations

import os

from subluminal.contracts.digest import sha256_hex
from subluminal.contracts.kept_results import SUFFIX
from subluminal.host.files import open_private
from subluminal.host.home import ensure_private_dir, results_dir, run_results_dir
from subluminal.host.record.journal import safe_name

# Larger than any file we write by default; what a bundle or a user put there is read no further.
MAX_FILES = 4096


def directory_of(run_id: str, home: str | None = None) -> str:
    return run_results_dir(sha256_hex(run_id.encode("utf-8", "surrogatepass")), home)


def append(run_id: str, shim_id: str, frames: bytes) -> None:
    """Raises OSError; what was half written is left out by who reads it."""
    directory = directory_of(run_id)
    ensure_private_dir(results_dir())
    ensure_private_dir(directory)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    descriptor = open_private(os.path.join(directory, safe_name(shim_id) + SUFFIX), flags)
    try:
        view = memoryview(frames)
        while view:
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)


def kept_files(directory: str) -> list[str]:
    """The files of one run, by name; none where nothing was kept."""
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(SUFFIX) and not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [os.path.join(directory, name) for name in names[:MAX_FILES]]


def remove(directory: str) -> int:
    """The kept results of one run; how many bytes that was."""
    freed = 0
    for path in kept_files(directory):
        freed += os.lstat(path).st_size
        os.unlink(path)
    try:
        os.rmdir(directory)
    except OSError:
        pass  # not there, or it holds what is not ours
    return freed


def kept_runs() -> list[tuple[str, float, int]]:
    """Every run of which results are kept: its directory, when it was last written to, and its size."""
    found = []
    root = results_dir()
    for name in sorted(os.listdir(root)) if os.path.isdir(root) else []:
        directory = run_results_dir(name)
        status = [os.lstat(path) for path in kept_files(directory)]
        if status:
            found.append((directory, max(each.st_mtime for each in status), sum(each.st_size for each in status)))
    return found
