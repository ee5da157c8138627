"""What a server has said of its tools in this run, for the shim that comes after: Claude Code respawns a dead server
and does not list its tools again.

One file for each run and server, `<hash>.tools` in `SUB_HOME/run/`: JSON lines, each the tools that a list taught and
their classes. Lines are appended in one write each, so shims of the same server lose none of each other's; a line that
was torn is passed over. A note can only mark a tool as listed and raise what annotations say of it; of the classes by
which it stands against pins and earlier versions the last line counts, for these can be approved. Whoever may write
here has the user's own rights and could change the policy itself; a file that others can write is not believed.
"""

from __future__ import annotations

import os
import stat

import msgspec

from subluminal.contracts.digest import sha256_hex
from subluminal.contracts.vocabulary import ANNOTATED_CLASSES, LISTED_CLASSES
from subluminal.host.home import ensure_private_dir, run_dir, tool_notes_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Ten thousand tools with ordinary names.
MAX_BYTES = 1_048_576
OPEN_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class RunToolNotes:
    """`path` may not be there: most runs have no respawned shim, and a server need not list anything."""

    __slots__ = ("path",)

    def __init__(self, run_id: str, server_name: str) -> None:
        whose = f"{len(run_id)}:{run_id}{server_name}"
        self.path = tool_notes_file(sha256_hex(whose.encode("utf-8", "surrogatepass")))

    def read(self) -> dict[str, frozenset[str]]:
        try:
            fd = os.open(self.path, os.O_RDONLY | OPEN_FLAGS)
            try:
                text = os.read(fd, MAX_BYTES) if is_ours(fd) else b""
            finally:
                os.close(fd)
        except OSError:
            return {}
        notes: dict[str, frozenset[str]] = {}
        for line in text.split(b"\n"):
            try:
                taught = msgspec.json.decode(line, type=dict[str, list[str]]) if line else {}
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                continue
            for name, classes in taught.items():
                said = notes.get(name, frozenset()) & ANNOTATED_CLASSES
                notes[name] = said | LISTED_CLASSES.intersection(classes)
        return notes

    def add(self, notes: Mapping[str, frozenset[str]]) -> None:
        """A note that cannot be kept costs the next shim a list, nothing else."""
        line = msgspec.json.encode({name: sorted(classes) for name, classes in notes.items()})
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


def is_ours(fd: int) -> bool:
    status = os.fstat(fd)
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
