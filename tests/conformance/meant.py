"""Differences that are meant: by the way, the scenario and the check, each with its reason. `*` is any."""

from __future__ import annotations

from fnmatch import fnmatchcase

_TOKEN_FOR_US = "a client asks for a token for the address it talks to, which is ours: so `resource` is rewritten"
_NO_METADATA = (
    "a server of 2025-03-26 without any metadata is taken for its own authorization server, and that would be us; "
    "such a server is for `sub login`"
)
_OPTIONAL_STREAMS = (
    "before a command, a reply that nothing precedes is JSON; event streams, priming events and resumption are "
    "optional for a server"
)
_TRIMMED = "white space around a header's value is not part of it, and does not go on"
MEANT = [
    ("proxy", "auth/*", "resource-parameter-matches-prm", _TOKEN_FOR_US),
    ("proxy", "auth/2025-03-26-oauth-endpoint-fallback", "*", _NO_METADATA),
    ("shim", "server-sse-polling", "*", _OPTIONAL_STREAMS),
    ("shim", "server-sse-multiple-streams", "server-sse-streams-functional", _OPTIONAL_STREAMS),
    ("*", "http-header-validation", "sep-2243-server-accepts-whitespace-header-value", _TRIMMED),
]


def reason(way: str, scenario: str, check: str) -> str | None:
    given = (way if way != "command" else "shim", scenario, check)
    for *patterns, why in MEANT:
        if all(fnmatchcase(value, pattern) for value, pattern in zip(given, patterns, strict=True)):
            return why
    return None
