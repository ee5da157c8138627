"""From a policy file to its compiled snapshot, cheaply: what the shim imports.

On a warm start nothing of YAML is imported: the source is read and hashed, and the snapshot that was compiled from
exactly these bytes is read from `SUB_HOME/snapshots/`. A cache file is believed only if it is a regular file of ours
that nobody else can write, was made by this compiler from this source, and its content has the `policy_hash` it
claims; anything else is ignored and written anew. A cache that cannot be written costs time, never correctness.

A cache file is one JSON object: the four members of `_frame` and then the snapshot's canonical bytes, so checking
`policy_hash` is one SHA-256 over bytes already in hand.
"""

from __future__ import annotations

import os
import stat
import sys

import msgspec

from subluminal import __version__
from subluminal.contracts.digest import sha256_hex_once
from subluminal.contracts.errors import PolicyError
from subluminal.host.home import ensure_private_dir, snapshot_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Raise whenever the compiler gives another snapshot for the same source.
COMPILER_REVISION = 2
# A bundle of 1,000 rules is about 0.4 MB; a larger file is a mistake or an attack.
MAX_SOURCE_BYTES = 4 * 1024 * 1024
# A snapshot repeats defaults that its source left out; ten times the source is far beyond any real one.
MAX_SNAPSHOT_BYTES = 10 * MAX_SOURCE_BYTES
# Every edit of a policy leaves one file behind; the oldest go.
MAX_CACHED = 64


def load_snapshot(path: str, *, apart: bool = False) -> dict[str, Any]:
    """The compiled snapshot of a policy file; raises PolicyError (with `findings`) if it cannot be had.

    `apart`: compiled by a child, for a process that lives long and needs the compiler once.
    """
    return _compiled(read_source(path), path, apart)


def load_inline(text: str, filename: str = "SUB_POLICY_JSON.json", *, apart: bool = False) -> dict[str, Any]:
    """The same for a bundle given as JSON text."""
    return _compiled(text.encode("utf-8", "surrogateescape"), filename, apart)


def read_source(path: str) -> bytes:
    """A policy's bytes. Never blocks on a FIFO, never reads a device, never more than the bound."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            mode = os.fstat(fd).st_mode
            if not stat.S_ISREG(mode):
                raise _unreadable(path, "it is a directory" if stat.S_ISDIR(mode) else "not a regular file")
            return _read(fd, MAX_SOURCE_BYTES + 1)
        finally:
            os.close(fd)
    except OSError as error:
        raise _unreadable(path, error.strerror or "cannot be read") from None


def _unreadable(path: str, why: str) -> PolicyError:
    from subluminal.policy.lint.findings import UnreadablePolicy

    return UnreadablePolicy(path, why)


def _read(fd: int, limit: int) -> bytes:
    chunks = []
    while limit > 0:
        chunk = os.read(fd, min(limit, 1 << 20))
        if not chunk:
            break
        chunks.append(chunk)
        limit -= len(chunk)
    return b"".join(chunks)


def _compiled(source: bytes, filename: str, apart: bool) -> dict[str, Any]:
    source_hash = sha256_hex_once(source)
    cached = _read_cache(source_hash)
    if cached is None and apart:
        _compile_apart(source, filename, source_hash)
        cached = _read_cache(source_hash)
    # What a child could not compile or not leave for us is compiled here: then what is wrong with it is told.
    return _compile(source, filename, source_hash) if cached is None else cached


def _compile_apart(source: bytes, filename: str, source_hash: str) -> None:
    """In a child, which leaves the snapshot where it is looked for: the compiler takes 8 MiB that nobody gives back."""
    if len(sys._current_frames()) > 1:
        return  # a fork would copy the locks of other threads as they are
    try:
        child = os.fork()
    except OSError:
        return
    if child == 0:
        try:
            _compile(source, filename, source_hash)
        finally:
            os._exit(0)  # nothing of the parent's is flushed, closed or told
    try:
        os.waitpid(child, 0)
    except ChildProcessError:  # a host that reaps for us
        pass


def _compile(source: bytes, filename: str, source_hash: str) -> dict[str, Any]:
    from subluminal.policy.compile.bundle import compile_bundle, snapshot_bytes

    snapshot = compile_bundle(source, filename)
    _write_cache(source_hash, snapshot["policy_hash"], snapshot_bytes(snapshot))
    return snapshot


def _frame(source_hash: str, policy_hash: str) -> bytes:
    return (
        f'{{"compiled_by":"{__version__}/{COMPILER_REVISION}","source_hash":"{source_hash}",'
        f'"policy_hash":"{policy_hash}",'
    ).encode()


def _read_cache(source_hash: str) -> dict[str, Any] | None:
    try:
        fd = os.open(snapshot_file(source_hash), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o022:
            return None
        content = _read(fd, MAX_SNAPSHOT_BYTES)
    except OSError:
        return None
    finally:
        os.close(fd)
    return _checked(content, source_hash)


def _checked(content: bytes, source_hash: str) -> dict[str, Any] | None:
    frame_length = len(_frame(source_hash, "0" * 64))
    body = b"{" + content[frame_length:]
    policy_hash = sha256_hex_once(body)
    if content[:frame_length] != _frame(source_hash, policy_hash):
        return None
    try:
        snapshot: dict[str, Any] = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None
    snapshot["policy_hash"] = policy_hash
    return snapshot


def _write_cache(source_hash: str, policy_hash: str, body: bytes) -> None:
    from subluminal.host.files import replace_file  # a shim that finds its snapshot writes none

    path = snapshot_file(source_hash)
    try:
        ensure_private_dir(os.path.dirname(path))
        replace_file(path, _frame(source_hash, policy_hash) + body[1:])
        _prune(os.path.dirname(path))
    except OSError:
        pass


def _prune(directory: str) -> None:
    with os.scandir(directory) as entries:
        files = sorted((entry.stat(follow_symlinks=False).st_mtime_ns, entry.path) for entry in entries)
    for _, path in files[:-MAX_CACHED]:
        os.unlink(path)
