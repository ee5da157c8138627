"""What is known of servers: one file for each server as it is configured, `SUB_HOME/tools/<hash>.json`.

All shims of this home read and write them: one at a time, each file replaced whole, so that whoever is killed leaves
the old one or the new one. A file that cannot be read, or that others could have written, is not believed: then nothing
is known of the server, and its tools are new. Whoever has to wait for long goes without: the list is told again.
"""

from __future__ import annotations

import os
import stat
import time

import msgspec

from subluminal.contracts.digest import sha256_hex
from subluminal.host.files import open_private, replace_file
from subluminal.host.home import ensure_private_dir, known_tools_dir, known_tools_file, known_tools_lock
from subluminal.surface.known import FORMAT, KnownServer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Four thousand tools with a few versions each; beyond, definitions are not kept.
MAX_BYTES = 16 * 1024 * 1024
# A shim has a client waiting. Others hold the lock for some milliseconds.
PATIENCE_S = 0.1
_BETWEEN_TRIES_S = 0.002

_decode = msgspec.json.Decoder(KnownServer).decode


class KnownFile:
    """`update` gives `work` what is known now; what it returns true for is written."""

    __slots__ = ("_launch", "_server_name", "path")

    def __init__(self, server_name: str, launch: str) -> None:
        self._server_name = server_name
        self._launch = launch
        whose = f"{len(server_name)}:{server_name}{launch}"
        self.path = known_tools_file(sha256_hex(whose.encode("utf-8", "surrogatepass"))[:32])

    def read(self) -> KnownServer:
        return _read(self.path) or KnownServer(self._server_name, self._launch)

    def update(self, work: Callable[[KnownServer], bool], patience_s: float = PATIENCE_S) -> KnownServer:
        """What is known afterwards, whether or not it could be written."""
        lock = _lock(patience_s)
        try:
            known = self.read()
            if work(known) and lock >= 0:
                _write(self.path, known)
        finally:
            if lock >= 0:
                os.close(lock)
        return known


def launch_of(words: Sequence[str], directory: str) -> str:
    """What tells servers of one name apart: their command or address, where a relative path means this directory's.

    A hash: commands and addresses hold secrets.
    """
    said = [os.path.join(directory, word) if _is_path_here(word, directory) else word for word in words]
    return sha256_hex("\0".join(said).encode("utf-8", "surrogatepass"))[:12] if words else ""


def _is_path_here(word: str, directory: str) -> bool:
    return not os.path.isabs(word) and os.sep in word and os.path.exists(os.path.join(directory, word))


def all_known() -> list[KnownServer]:
    """Every server that was ever seen here, by name."""
    directory = known_tools_dir()
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(".json") and not name.startswith("."))
    except OSError:
        return []
    found = [_read(os.path.join(directory, name)) for name in names]
    return sorted((each for each in found if each is not None), key=lambda each: (each.server_name, each.launch))


def _read(path: str) -> KnownServer | None:
    try:
        fd = open_private(path, os.O_RDONLY)
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            if status.st_uid != os.geteuid() or status.st_mode & 0o022 or not stat.S_ISREG(status.st_mode):
                return None
            known = _decode(file.read(MAX_BYTES))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return known if known.format == FORMAT and all(each.versions for each in known.items.values()) else None


def _write(path: str, known: KnownServer) -> None:
    data = msgspec.json.encode(known)
    if len(data) > MAX_BYTES:
        for item in known.items.values():
            for version in item.versions:
                version.definition = ""
        data = msgspec.json.encode(known)
    try:
        if len(data) <= MAX_BYTES:
            replace_file(path, data)
    except OSError:
        pass


def _lock(patience_s: float) -> int:
    """-1: it is not to be had in time, or nowhere to be had."""
    import fcntl

    give_up = time.monotonic() + patience_s
    try:
        ensure_private_dir(known_tools_dir())
        fd = open_private(known_tools_lock(), os.O_RDWR | os.O_CREAT)
    except OSError:
        return -1
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except OSError:
            if time.monotonic() > give_up:
                os.close(fd)
                return -1
            time.sleep(_BETWEEN_TRIES_S)
