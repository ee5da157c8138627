"""A call as the record tells it, for whoever judges it again: what the ledger reads and the policy package replays."""

from __future__ import annotations

from msgspec import Struct

from subluminal.contracts.identity import Identity


class RecordedCall(Struct, eq=False):
    """Times are wall-clock milliseconds. What the record does not tell is None (`args_hash`: empty)."""

    call_id: str
    server_name: str
    tool_name: str
    args_hash: str
    at_ms: int
    seq: int
    bytes_in: int = 0
    args_preview: str | None = None
    tags: frozenset[str] = frozenset()
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
