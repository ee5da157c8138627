"""The order of the record where a call is not a message of MCP: whoever hears of a decision can rely on it.

    record, refused = ask(producer, call, wall_ms, mono_ms, words)   decided and handed over; only now is it told
    settle(producer, record, "OK", ...)                              what came of it; `producer.hand_over()` follows

A refused call has ended when `ask` returns. Where a loop runs, the run's state is waited for before (`turns`).
"""

from __future__ import annotations

from subluminal.contracts.digest import sha256_hex
from subluminal.contracts.vocabulary import ALLOW, MAX_INSPECT_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from subluminal.contracts.toolcall import ToolCall
    from subluminal.core.gate.record import CallRecord
    from subluminal.producer.producer import Producer

    Told = TypeVar("Told")


def ask(
    producer: Producer,
    call: ToolCall,
    wall_ms: int,
    mono_ms: int,
    words: Callable[[int, str, dict[str, Any]], tuple[Told, int]],
) -> tuple[CallRecord, Told | None]:
    """`words` makes what the caller is told of a refusal, and says its size, of code, message and data (contract C).

    None in its place: allowed.
    """
    gate = producer.gate
    record = gate.judge(call, wall_ms, mono_ms)
    told = None
    if record.decision.action == ALLOW:
        gate.announce(record, wall_ms)
    else:
        told, size = words(*gate.refusal(record))
        gate.announce(record, wall_ms)
        gate.settle_refused(record, wall_ms, mono_ms, size)
    producer.hand_over()
    return record, told


def settle(
    producer: Producer,
    record: CallRecord,
    status: str,
    wall_ms: int,
    mono_ms: int,
    result: bytes = b"",
    *,
    latency_ms: int,
    error: dict[str, Any] | None = None,
    bytes_out: int | None = None,
    max_inspect_bytes: int = MAX_INSPECT_BYTES,
) -> None:
    """The end of a call that was let through. A result of more than is inspected is told by its hash (§1.10).

    `bytes_out`: where more has passed than the result that is shown.
    """
    large = len(result) > max_inspect_bytes
    producer.gate.settle(
        record,
        status,
        wall_ms,
        mono_ms,
        latency_ms=latency_ms,
        bytes_out=len(result) if bytes_out is None else bytes_out,
        result_raw=None if large else result,
        result_stream_hash=sha256_hex(result) if large else None,
        error=error,
    )
