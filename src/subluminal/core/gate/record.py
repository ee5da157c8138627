"""One call between judging and settling."""

from __future__ import annotations

from msgspec import Struct

from subluminal.contracts.digest import sha256_hex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subluminal.contracts.decision import Decision
    from subluminal.contracts.toolcall import ToolCall
    from subluminal.core.engine.stack import Verdict


class CallRecord(Struct, eq=False, gc=False):
    call: ToolCall
    call_id: str
    started_mono_ms: int
    # The gate decides before anybody else sees the record.
    decision: Decision = None  # type: ignore[assignment]
    verdict: Verdict = None  # type: ignore[assignment]  # what else goes with the decision
    args: tuple[Any, bytes] | None = None  # value and canonical form until the call is announced; None: not read
    args_hash: str = ""
    ref: str = ""  # by which its events name it, from the moment it is announced
    legs: int = 1
    waited_ms: int = 0  # between the legs of a multi-round-trip call
    settled: bool = False

    def read_args(self) -> Any:
        return None if self.args is None else self.args[0]

    def read_args_hash(self) -> str:
        if not self.args_hash and self.args is not None:
            self.args_hash = sha256_hex(self.args[1])
        return self.args_hash
