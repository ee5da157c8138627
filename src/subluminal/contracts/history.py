"""A call as the record tells it, for whoever judges it again: what the ledger reads and the policy package replays."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from subluminal.contracts.canonical import digest, read_args
from subluminal.contracts.errors import CanonicalError
from subluminal.contracts.identity import Identity


class RecordedCall(Struct, eq=False):
    """Times are wall-clock milliseconds. What the record does not tell is None (`args_hash`: empty).

    `stood`: the classes that the tool had by what its server says of it; `stood_told`: those of which the record can
    tell whether it had them.
    """

    call_id: str
    server_name: str
    tool_name: str
    args_hash: str
    at_ms: int
    seq: int
    bytes_in: int = 0
    args_preview: str | None = None
    tags: frozenset[str] = frozenset()
    stood: frozenset[str] = frozenset()
    stood_told: frozenset[str] = frozenset()
    ambiguous: str | None = None
    continues: str | None = None
    observed: bool = False
    transport: str = "unknown"
    tool_use_id: str | None = None
    action: str | None = None
    rule_id: str | None = None
    reason_code: str | None = None
    status: str | None = None
    ended_ms: int | None = None
    latency_ms: int | None = None


class RecordedRun(Struct, eq=False):
    """The calls of one run in the order in which they were decided.

    `policy_tags`: every risk class that the policies then in force could have given; None when they are not known.
    """

    identity: Identity
    calls: list[RecordedCall]
    policy_tags: frozenset[str] | None


def whole_arguments(args_preview: str | None, args_hash: str) -> dict[str, Any] | None:
    """The arguments of a call, if the preview is all of them and unmasked: the hash proves it."""
    if args_preview is None:
        return None
    try:
        value, canonical = read_args(args_preview.encode())
    except (CanonicalError, UnicodeEncodeError):
        return None
    return value if digest(canonical) == args_hash and isinstance(value, dict) else None
