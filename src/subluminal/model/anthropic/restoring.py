"""Refused calls in a history, put back as the provider emitted them, with our reason for their result.

A call is ours if its name is the refused name of the call that its input wraps. Its result stands in the message that
follows. Text is spliced: all that is not restored reaches the provider as the client wrote it.
"""

from __future__ import annotations

from subluminal.contracts.jsontext import to_json
from subluminal.contracts.members import MAX_PARTS, Edit, Span, elements_at, members, members_at, splice, text_of
from subluminal.model.refused import PREFIX, refused_name, unwrapped
from subluminal.model.words import ModelFault

_PREFIX = PREFIX.encode()
_RESULT = b"tool_result"
_WRAPPED = ({"name", "input"}, {"type", "name", "input"})


def restored(body: bytes, messages: Span) -> bytes:
    """The same bytes object where there is nothing to restore."""
    if _PREFIX not in body:
        return body
    edits: list[Edit] = []
    reasons: dict[str, str] = {}  # of calls in the message before, by id
    for span in elements_at(body, messages, MAX_PARTS):
        has_call = body.find(_PREFIX, span.start, span.end) >= 0
        if not has_call and not reasons:
            continue
        role, blocks = _message(body, span)
        if role == "assistant":
            reasons = _restore_calls(body, blocks, edits)
        else:
            if reasons and role == "user":
                _restore_results(body, blocks, reasons, edits)
            reasons = {}
    return splice(body, edits)


def _message(body: bytes, span: Span) -> tuple[str | None, list[Span]]:
    """Role and blocks. What has two readings is left as it is: the provider judges that."""
    try:
        found = members_at(body, span)
        role = text_of(found["role"].of(body)) if "role" in found else None
        return role, elements_at(body, found["content"], MAX_PARTS) if "content" in found else []
    except ModelFault:
        return None, []


def _restore_calls(body: bytes, blocks: list[Span], edits: list[Edit]) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for span in blocks:
        if body.find(_PREFIX, span.start, span.end) < 0:
            continue
        found = _block(body, span)
        if found is None or not {"type", "id", "name", "input"} <= found.keys():
            continue
        call_id = text_of(found["id"].of(body))
        emitted = _emitted(body, found)
        if call_id is None or emitted is None:
            continue
        call, reason = emitted
        edits += (Edit(found[key].start, found[key].end, value) for key, value in call.items())
        reasons[call_id] = reason
    return reasons


def _emitted(body: bytes, found: dict[str, Span]) -> tuple[dict[str, bytes], str] | None:
    """The members of the call as the model wrote them, and why it was refused; None: it is not one of ours."""
    taken = unwrapped(found["input"].of(body))
    if found["type"].of(body) != b'"tool_use"' or taken is None:
        return None
    call, reason = taken
    try:
        inner = members(call)
        if inner.keys() not in _WRAPPED:
            return None
        members(inner["input"].of(call))  # an object
    except ModelFault:
        return None
    name = text_of(inner["name"].of(call))
    if name is None or text_of(found["name"].of(body)) != refused_name(name):
        return None
    return {key: span.of(call) for key, span in inner.items()}, reason


def _restore_results(body: bytes, blocks: list[Span], reasons: dict[str, str], edits: list[Edit]) -> None:
    for span in blocks:
        if body.find(_RESULT, span.start, span.end) < 0:
            continue
        found = _block(body, span)
        if found is None or "type" not in found or "tool_use_id" not in found:
            continue
        reason = reasons.get(text_of(found["tool_use_id"].of(body)) or "")
        if reason is None or text_of(found["type"].of(body)) != "tool_result":
            continue
        content = to_json(reason).encode("utf-8", "replace")
        end = found["tool_use_id"].end
        for key, value in (("content", content), ("is_error", b"true")):
            if key in found:
                edits.append(Edit(found[key].start, found[key].end, value))
            else:
                edits.append(Edit(end, end, b',"%b":%b' % (key.encode(), value)))


def _block(body: bytes, span: Span) -> dict[str, Span] | None:
    try:
        return members_at(body, span)
    except ModelFault:
        return None
