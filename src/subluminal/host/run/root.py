"""Where a run began: one line in `SUB_HOME/run/<hash of the run id>.root`, written once by whoever asks first.

Relative entries of a policy start there. A later `cd`, another server's directory and a `.git` that the agent makes do
not move it.
"""

from __future__ import annotations

import os

from subluminal.contracts.digest import sha256_hex
from subluminal.host.files import open_private, read_private
from subluminal.host.home import ensure_private_dir, run_dir, run_root_file
from subluminal.host.identity import repository_root

# The longest path, in bytes of UTF-8.
MAX_BYTES = 16_384


def root_of(directory: str) -> str:
    """The root of the repository that a directory belongs to, else itself."""
    return os.path.realpath(repository_root(directory) or directory)


def settle_root(run_id: str, directory: str) -> str:
    """The root of the run as it was written down, else that of this directory, from now on for all.

    Without a home to write to, it is this process's alone.
    """
    path = run_root_file(sha256_hex(run_id.encode("utf-8", "surrogatepass")))
    draft = f"{path}.{os.getpid()}.new"
    root = root_of(directory)
    try:
        known = _read(path)
        if known is None:
            ensure_private_dir(run_dir())
            _write(draft, os.fsencode(root))
            try:
                os.link(draft, path)  # one of several starting shims wins
            except FileExistsError:
                pass
            finally:
                os.unlink(draft)
            known = _read(path)
    except OSError:
        return root
    return known or root


def _read(path: str) -> str | None:
    try:
        root = os.fsdecode(read_private(path, MAX_BYTES))
    except FileNotFoundError:
        return None
    return root if root.startswith("/") else None


def _write(path: str, text: bytes) -> None:
    try:
        os.unlink(path)  # left by a process that was killed and had our pid
    except FileNotFoundError:
        pass
    descriptor = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        os.write(descriptor, text)
    finally:
        os.close(descriptor)
