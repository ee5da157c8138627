"""How a refused call is told in the place of the model's, and how a request's history gets the model's back.

The client is told of a `function_call` under another name, with everything of the model's item in its arguments
(`model/refused`). Of a history, such an item and the client's answer to it become what the provider would have been
sent had the client known the tool:

| the model's item | its result as it is sent to the provider |
|---|---|
| `function_call`, `local_shell_call` | `function_call_output`, as Codex does |
| `custom_tool_call` | `custom_tool_call_output` |
| `shell_call`, `apply_patch_call` | in their own form, as a failure |
| `computer_call`, `tool_search_call` | no text has a place in theirs: the call stays renamed, and its result says why |
| any other | the type with `_output` |

Of a `function_call` only name and arguments are put back, in the item that the client wrote: so the provider gets the
bytes of a direct session. An `id` that the client leaves out is left out: a provider that stored nothing refuses it.
"""

from __future__ import annotations

from msgspec import Struct

from subluminal.contracts.jsontext import quote
from subluminal.contracts.members import Edit, splice, text_of
from subluminal.model.refused import PREFIX, refused_name, unwrapped, wrapped
from subluminal.model.responses.items import (
    COMPUTER_CALL,
    FUNCTION_CALL,
    LOCAL_SHELL_CALL,
    TOOL_SEARCH_CALL,
    Call,
    Item,
    read_call,
    read_item,
)
from subluminal.model.words import ModelFault

_STAYS_RENAMED = (COMPUTER_CALL, TOOL_SEARCH_CALL)
_AS_FUNCTION = (FUNCTION_CALL, LOCAL_SHELL_CALL, *_STAYS_RENAMED)
FUNCTION_OUTPUT = b'"function_call_output"'


class Restored(Struct, eq=False):
    """A refused call in a history: the model's item, its type, and why it was refused."""

    item: bytes
    kind: str
    text: str


def refused_item(call: Call, text: str, original: bytes | None = None) -> bytes:
    """The item for the client. `original`: what is kept of the model's, where not all of it."""
    item = call.item
    arguments = json_text(wrapped(original or item.text, text).decode())
    name = json_text(refused_name(call.name))
    if original is None and item.type == FUNCTION_CALL and item.raw("name") and item.raw("arguments"):
        edits = [_put(item, "name", name), _put(item, "arguments", arguments)]
        return splice(item.text, edits)
    return _renamed(call, name, arguments, b'"completed"')


def announced(call: Call) -> bytes:
    """The item before anything of its arguments is said."""
    return _renamed(call, json_text(refused_name(call.name)), b'""', b'"in_progress"')


def shortened(call: Call) -> bytes:
    """What is kept of a call that is too large to be sent to and fro."""
    return _function_call(call, json_text(call.name), b'"{}"', b'"completed"')


def restored(item: Item) -> Restored | None:
    """None: it is not one of ours. A model may have forged it: nothing but a call of this name comes of it."""
    name = item.said("name")
    if item.type != FUNCTION_CALL or not name.startswith(PREFIX):
        return None
    arguments = text_of(item.raw("arguments"))
    found = unwrapped(arguments.encode()) if arguments else None
    if found is None:
        return None
    try:
        original = read_item(found[0])
    except ModelFault:
        return None
    if not original.is_call or refused_name(read_call(original).name) != name:
        return None
    return Restored(_put_back(item, original), original.type, found[1])


def _put_back(item: Item, original: Item) -> bytes:
    if original.type in _STAYS_RENAMED:
        return item.text
    if original.type == FUNCTION_CALL and original.raw("name") and original.raw("arguments"):
        return splice(item.text, [_put(item, key, original.raw(key)) for key in ("name", "arguments")])
    parts = []
    for key, span in original.at.items():
        if key == "call_id" and item.raw("call_id"):
            parts.append(b'"call_id":' + item.raw("call_id"))
        elif key != "id" or item.raw("id") or not original.raw("call_id"):
            parts.append(original.text[span.key : span.end])
    return b"{%b}" % b",".join(parts)


def restored_output(item: Item, kind: str, text: str) -> bytes:
    """The client's result of a call of this kind that was refused, in our words."""
    told = json_text(text)
    if kind in _AS_FUNCTION:
        if item.raw("output"):
            return splice(item.text, [_put(item, "output", told)])
        return _output(FUNCTION_OUTPUT, item, b'"output":' + told)
    if kind == "shell_call":
        outcome = b'"outcome":{"type":"exit","exit_code":1}'
        return _output(b'"shell_call_output"', item, b'"output":[{"stdout":"","stderr":%b,%b}]' % (told, outcome))
    if kind == "apply_patch_call":
        return _output(b'"apply_patch_call_output"', item, b'"status":"failed","output":' + told)
    return _output(json_text(kind + "_output"), item, b'"output":' + told)


def _output(kind: bytes, item: Item, rest: bytes) -> bytes:
    return b'{"type":%b,"call_id":%b,%b}' % (kind, item.raw("call_id"), rest)


def _renamed(call: Call, name: bytes, arguments: bytes, status: bytes) -> bytes:
    item = call.item
    own = b"".join(b'"%b":%b,' % (key.encode(), item.raw(key)) for key in ("id", "namespace") if item.raw(key))
    return _function_call(call, name, arguments, status, own)


def _function_call(call: Call, name: bytes, arguments: bytes, status: bytes, own: bytes = b"") -> bytes:
    form = b'{"type":"function_call",%b"status":%b,"call_id":%b,"name":%b,"arguments":%b}'
    return form % (own, status, json_text(call.id), name, arguments)


def _put(item: Item, key: str, value: bytes) -> Edit:
    span = item.at[key]
    return Edit(span.start, span.end, value)


def json_text(text: str) -> bytes:
    return quote(text).encode("utf-8", "replace")
