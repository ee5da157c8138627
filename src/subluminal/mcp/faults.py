"""How a call failed, as the `error` of its end event (§1.6). The gate masks messages and cuts them to one line."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def fault(error_class: str, message: str, code: int | str | None = None) -> dict[str, Any]:
    detail: dict[str, Any] = {"class": error_class, "message": message}
    if code is not None:
        detail["code"] = code
    return detail


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
