"""Which server of a run lists which tool: one file for each run, `SUB_HOME/run/<hash>.names`, lines that are only
appended to. By it the shims of a run see that a name of theirs stands, or seems to stand, for another server's tool."""

from __future__ import annotations

import os

import msgspec

from subluminal.contracts.digest import sha256_hex
from subluminal.host.home import ensure_private_dir, run_dir, run_names_file
from subluminal.host.run.tool_notes import OPEN_FLAGS, is_ours
from subluminal.surface.names import outline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# Some thousand tools of some dozen servers.
MAX_BYTES = 1_048_576

_decode = msgspec.json.Decoder(tuple[str, list[str]]).decode


class RunNames:
    """Names of one server among those of its run."""

    __slots__ = ("_added", "_server_name", "_size", "_theirs", "path")

    def __init__(self, run_id: str, server_name: str) -> None:
        self.path = run_names_file(sha256_hex(run_id.encode("utf-8", "surrogatepass")))
        self._server_name = server_name
        self._added: set[str] = set()
        self._theirs: dict[str, str] = {}
        self._size = -1

    def add(self, names: Iterable[str]) -> None:
        """Those of ours that nobody has been told of."""
        outlines = {outline(name) for name in names} - self._added
        if not outlines:
            return
        self._added |= outlines
        line = msgspec.json.encode((self._server_name, sorted(outlines)))
        try:
            ensure_private_dir(run_dir())
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | OPEN_FLAGS, 0o600)
            try:
                if is_ours(fd) and os.fstat(fd).st_size + len(line) < MAX_BYTES:
                    os.write(fd, b"\n" + line + b"\n")
            finally:
                os.close(fd)
        except OSError:
            pass

    def refresh(self) -> bool:
        """Whether others have said more."""
        try:
            size = os.stat(self.path).st_size
        except OSError:
            return False
        if size == self._size:
            return False
        self._size = size
        before = len(self._theirs)
        for line in _read(self.path).split(b"\n"):
            try:
                server_name, outlines = _decode(line) if line else ("", [])
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            if server_name != self._server_name:
                self._theirs.update((each, server_name) for each in outlines)
        return len(self._theirs) != before

    def other(self, name: str) -> str | None:
        """Another server of the run that has a tool of this name, or of one that looks like it."""
        return self._theirs.get(outline(name))


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | OPEN_FLAGS)
        try:
            return os.read(fd, MAX_BYTES) if is_ours(fd) else b""
        finally:
            os.close(fd)
    except OSError:
        return b""
