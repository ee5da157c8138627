"""What a person has changed in the policies of one run (`sub promote --session`): it ends with the run.

One file for each run, `<hash>.promotes` in `SUB_HOME/run/`, beside its state: JSON lines, each one change in the words
of `policy.edit.changes`, appended in one write. Every producer of the run looks at the file's stamp where it looks at
those of its policies, and judges by what is in it. Whoever may write here has the user's own rights and could change
the policy itself; a file that others can write is not believed.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from subluminal.host.home import ensure_private_dir, run_dir
from subluminal.host.run.files import promotes_path
from subluminal.host.run.tool_notes import OPEN_FLAGS, is_ours

# Some thousands of promotes: more than a person makes in one run.
MAX_BYTES = 1_048_576


def read_promotes(run_id: str) -> list[dict[str, Any]]:
    """In order; what is torn or no object is passed over."""
    try:
        fd = os.open(promotes_path(run_id), os.O_RDONLY | OPEN_FLAGS)
        try:
            text = os.read(fd, MAX_BYTES) if is_ours(fd) else b""
        finally:
            os.close(fd)
    except OSError:
        return []
    found = []
    for line in text.split(b"\n"):
        try:
            found.append(msgspec.json.decode(line, type=dict[str, Any]))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
    return found


def add_promote(run_id: str, change: dict[str, Any]) -> None:
    """Raises OSError where it cannot be kept: nobody may be told of a promote that is not there."""
    line = b"\n" + msgspec.json.encode(change) + b"\n"
    ensure_private_dir(run_dir())
    fd = os.open(promotes_path(run_id), os.O_WRONLY | os.O_APPEND | os.O_CREAT | OPEN_FLAGS, 0o600)
    try:
        if not is_ours(fd):
            raise OSError(None, "the file of this run's promotes is not yours alone")
        if os.fstat(fd).st_size + len(line) > MAX_BYTES:
            raise OSError(None, "this run has too many promotes")
        if os.write(fd, line) != len(line):
            raise OSError(None, "the disk is full")
    finally:
        os.close(fd)
