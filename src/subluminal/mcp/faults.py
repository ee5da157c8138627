"""How a call failed, as the `error` of its end event (§1.7). The gate masks messages and cuts them to one line.

`retryable` says that the fault was of the moment, so that the same call may succeed later. It does not say that the
call had no effect: whoever sends a write again must know that it may be done twice.

    timeout, transport    true: nobody answered
    upstream_error        false: the server answered, and would answer the same; but for codes that name a moment
    policy_block          by the decision (the gate): true for THROTTLE only
    unknown               not said: the call was cancelled, or nobody can tell how it went
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_NOBODY_ANSWERED = ("timeout", "transport")
# An internal error and a timeout of the server (JSON-RPC), and what HTTP calls too early, too many, or out of service.
_MOMENTARY_CODES = frozenset((-32603, -32001, 408, 425, 429, 500, 502, 503, 504))


def fault(error_class: str, message: str, code: int | str | None = None) -> dict[str, Any]:
    detail: dict[str, Any] = {"class": error_class, "message": message}
    if code is not None:
        detail["code"] = code
    if error_class in _NOBODY_ANSWERED:
        detail["retryable"] = True
    elif error_class == "upstream_error":
        detail["retryable"] = _is_momentary(code)
    return detail


def _is_momentary(code: int | str | None) -> bool:
    """Some servers write the number as text."""
    if isinstance(code, str):
        digits = code.removeprefix("-")
        return len(code) < 8 and digits.isascii() and digits.isdecimal() and int(code) in _MOMENTARY_CODES
    return code in _MOMENTARY_CODES


def upstream_error(value: Any) -> dict[str, Any]:
    """From the `error` member of a reply."""
    if not isinstance(value, dict):
        return fault("upstream_error", "the server answered with an error")
    message = value.get("message")
    code = value.get("code")
    return fault(
        "upstream_error",
        message if isinstance(message, str) and message.strip() else "the server answered with an error",
        code if isinstance(code, (int, str)) and not isinstance(code, bool) else None,
    )


def tool_error(value: dict[str, Any]) -> dict[str, Any]:
    """From a result with `isError`: the first text that says something."""
    content = value.get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and isinstance(block.get("text"), str) and block["text"].strip():
            return fault("upstream_error", block["text"])
    return fault("upstream_error", "the tool reported an error")
