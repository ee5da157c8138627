"""One call between judging and settling."""

from __future__ import annotations

from msgspec import Struct

from subluminal.contracts.digest import sha256_hex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subluminal.contracts.decision import Decision
    from subluminal.contracts.toolcall import ToolCall


class CallRecord(Struct, eq=False, gc=False):
    call: ToolCall
    call_id: str
    started_mono_ms: int
    # The gate decides before anybody else sees the record.
    decision: Decision = None  # type: ignore[assignment]
    seq: int = 0
    value: Any = None  # the arguments and their canonical form, until the call is announced; None if they were not read
    canonical: bytes | None = None
    args_hash: str = ""
    tags: list[str] = None  # type: ignore[assignment]  # with the decision
    trips: list[dict[str, Any]] = None  # type: ignore[assignment]  # with the decision
    watch: Any = None
    ref: str = ""
    legs: int = 1
    waited_ms: int = 0  # between the legs of a multi-round-trip call
    announced: bool = False
    settled: bool = False

    def read_args(self) -> Any:
        return self.value

    def read_args_hash(self) -> str:
        if not self.args_hash and self.canonical is not None:
            self.args_hash = sha256_hex(self.canonical)
        return self.args_hash
