"""One call between judging and settling."""

from __future__ import annotations

from subluminal.contracts.digest import sha256_hex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subluminal.contracts.decision import Decision
    from subluminal.contracts.toolcall import ToolCall


class CallRecord:
    __slots__ = (
        "announced",
        "args_hash",
        "call",
        "call_id",
        "canonical",
        "decision",
        "ref",
        "seq",
        "settled",
        "started_mono_ms",
        "tags",
        "trips",
        "value",
        "waited_ms",
        "watch",
    )

    call: ToolCall
    call_id: str
    seq: int
    value: Any  # the arguments and their canonical form, until the call is announced; None if they were not read
    canonical: bytes | None
    args_hash: str
    decision: Decision
    tags: list[str]
    trips: list[dict[str, Any]]
    watch: Any
    ref: str
    started_mono_ms: int
    waited_ms: int  # between the legs of a multi-round-trip call
    announced: bool
    settled: bool

    def read_args(self) -> Any:
        return self.value

    def read_args_hash(self) -> str:
        if not self.args_hash and self.canonical is not None:
            self.args_hash = sha256_hex(self.canonical)
        return self.args_hash
