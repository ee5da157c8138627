"""What each client must hear, exactly. An answer with a word too many, or none for a reason, lets Codex run the call.

Allowed is no answer at all: `allow` would skip the client's own question whether the call may be made.
"""

from __future__ import annotations

import struct

from subluminal.contracts.jsontext import to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class Answer(NamedTuple):
        """What the hook command exits with and prints."""

        code: int = 0
        stdout: bytes = b""
        stderr: bytes = b""
else:
    from collections import namedtuple

    Answer = namedtuple("Answer", ("code", "stdout", "stderr"), defaults=(0, b"", b""))

NOTHING = Answer()
_FRAME = struct.Struct("!BII")
# The hook command holds no more; no answer comes near it.
MAX_ANSWER_BYTES = 65_536
_NO_REASON = "This call was refused by the policy in force."


def deny(reason: str) -> Answer:
    """Before a call, for both clients."""
    said = {"permissionDecision": "deny", "permissionDecisionReason": reason.strip() or _NO_REASON}
    return _said({"hookSpecificOutput": {"hookEventName": "PreToolUse", **said}})


def stop(client: str, reason: str) -> Answer:
    """After a call, where the run is over. Codex would only put the text in the place of the result."""
    return _said({"continue": False, "stopReason": reason}) if client == "claude" else NOTHING


def block_change(reason: str) -> Answer:
    """Of settings, in mid-session; only Claude Code asks."""
    return _said({"decision": "block", "reason": reason})


def _said(value: object) -> Answer:
    return Answer(stdout=to_json(value).encode("utf-8", "replace"))


def frame(answer: Answer) -> bytes:
    """As it goes to the hook command."""
    return _FRAME.pack(answer.code, len(answer.stdout), len(answer.stderr)) + answer.stdout + answer.stderr
