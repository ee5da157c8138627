"""A call as the record tells it, for whoever judges it again: what the ledger reads and the policy package replays."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.contracts.identity import Identity


class RecordedCall:
    """Times are wall-clock milliseconds. What the record does not tell is None (`args_hash`: empty)."""

    __slots__ = (
        "action",
        "ambiguous",
        "args_hash",
        "args_preview",
        "at_ms",
        "bytes_in",
        "call_id",
        "continues",
        "ended_ms",
        "latency_ms",
        "reason_code",
        "rule_id",
        "seq",
        "server_name",
        "status",
        "tags",
        "tool_name",
    )

    def __init__(
        self,
        call_id: str,
        server_name: str,
        tool_name: str,
        args_hash: str,
        at_ms: int,
        seq: int,
        *,
        bytes_in: int = 0,
        args_preview: str | None = None,
        tags: frozenset[str] = frozenset(),
        ambiguous: str | None = None,
        continues: str | None = None,
        action: str | None = None,
        rule_id: str | None = None,
        reason_code: str | None = None,
        status: str | None = None,
        ended_ms: int | None = None,
        latency_ms: int | None = None,
    ) -> None:
        self.call_id = call_id
        self.server_name = server_name
        self.tool_name = tool_name
        self.args_hash = args_hash
        self.at_ms = at_ms
        self.seq = seq
        self.bytes_in = bytes_in
        self.args_preview = args_preview
        self.tags = tags
        self.ambiguous = ambiguous
        self.continues = continues
        self.action = action
        self.rule_id = rule_id
        self.reason_code = reason_code
        self.status = status
        self.ended_ms = ended_ms
        self.latency_ms = latency_ms


class RecordedRun:
    """The calls of one run in the order in which they were decided.

    `policy_tags`: every risk class that the policies then in force could have given; None when they are not known.
    """

    __slots__ = ("calls", "identity", "policy_tags")

    def __init__(self, identity: Identity, calls: list[RecordedCall], policy_tags: frozenset[str] | None) -> None:
        self.identity = identity
        self.calls = calls
        self.policy_tags = policy_tags
