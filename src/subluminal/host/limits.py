"""The numbers of a shim that an operator may set, with their defaults."""

from __future__ import annotations

from subluminal.contracts.vocabulary import MAX_INSPECT_BYTES, MAX_PREVIEW_BYTES

MAX_MESSAGE_BYTES = 256 * 1024 * 1024


class Limits:
    __slots__ = (
        "audit_before",
        "max_inspect_bytes",
        "max_message_bytes",
        "max_preview_bytes",
        "refusal_style",
        "timeout_ms",
    )

    def __init__(
        self,
        max_inspect_bytes: int = MAX_INSPECT_BYTES,
        max_preview_bytes: int = MAX_PREVIEW_BYTES,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        timeout_ms: int = 0,
        refusal_style: str = "error",
        audit_before: bool = False,
    ) -> None:
        self.max_inspect_bytes = max_inspect_bytes
        self.max_preview_bytes = max_preview_bytes
        self.max_message_bytes = max_message_bytes
        self.timeout_ms = timeout_ms
        self.refusal_style = refusal_style
        self.audit_before = audit_before
