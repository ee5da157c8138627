"""Items of an answer: which of them a client carries out, and what such a call says.

    item = read_item(text)              ModelFault: no object, or a key stands twice
    item.is_call                        a client would carry it out
    read_call(item)                     the call that it is; what two clients could read differently is its `fault`
    observed(item)                      what the provider has carried out itself, or None

| type | name | arguments |
|---|---|---|
| `function_call` | `name` | the text of `arguments`; an empty one is `{}` |
| `custom_tool_call` | `name` | `{"input": ...}` |
| `local_shell_call`, `shell_call`, `computer_call` | the type | `action` |
| `apply_patch_call` | the type | `operation` |
| `tool_search_call` | the type | `arguments` |
| any other with a `call_id` | the type | the item |
"""

from __future__ import annotations

from msgspec import Struct

from subluminal.contracts.digest import blake2b
from subluminal.contracts.jsontext import quote
from subluminal.contracts.members import Span, members, text_of
from subluminal.model.arguments import read_exactly
from subluminal.model.refused import fault_of_name
from subluminal.model.words import Observed

FUNCTION_CALL = "function_call"
CUSTOM_CALL = "custom_tool_call"
LOCAL_SHELL_CALL = "local_shell_call"
TOOL_SEARCH_CALL = "tool_search_call"
COMPUTER_CALL = "computer_call"
# Which member of an item is what a client acts on.
_ACTED_ON = {
    FUNCTION_CALL: "arguments",
    CUSTOM_CALL: "input",
    LOCAL_SHELL_CALL: "action",
    "shell_call": "action",
    COMPUTER_CALL: "action",
    "apply_patch_call": "operation",
    TOOL_SEARCH_CALL: "arguments",
}
_CLIENT_RUN = frozenset(_ACTED_ON)
# Done by the provider before anybody here hears of it. A `program` calls the client's tools by items of their own.
_PROVIDER_RUN = frozenset(
    ("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call", "program")
)
_READ = frozenset(
    ("type", "id", "call_id", "name", "namespace", "execution", "status", "output", "actions", "server_label")
) | frozenset(_ACTED_ON.values())
_NULL = b"null"


class Item(Struct, eq=False):
    """One JSON object of an answer's output or a request's input, with its members in place."""

    text: bytes
    at: dict[str, Span]
    type: str

    def raw(self, key: str) -> bytes:
        """The value of a member; empty: there is none, or it is null."""
        span = self.at.get(key)
        raw = span.of(self.text) if span else b""
        return b"" if raw == _NULL else raw

    def said(self, key: str) -> str:
        return text_of(self.raw(key)) or ""

    @property
    def call_id(self) -> str:
        """Codex takes the id of a local shell call where it has no other."""
        return self.said("call_id") or (self.said("id") if self.type.startswith(LOCAL_SHELL_CALL) else "")

    @property
    def is_call(self) -> bool:
        if self.type in _PROVIDER_RUN or self.type.endswith("_output"):
            return False
        if self.type == TOOL_SEARCH_CALL and self.said("execution") == "server":
            return bool(self.raw("call_id"))
        # The provider's own calls need no id under which a result could be sent.
        return self.type in _CLIENT_RUN or bool(self.raw("call_id"))


class Call(Struct, eq=False):
    item: Item
    id: str
    name: str
    namespace: str
    arguments: bytes
    digest: bytes  # of all that a client acts on, however it is spelled
    fault: str | None = None

    @property
    def kind(self) -> str:
        return self.item.type


def read_item(text: bytes) -> Item:
    at = members(text, _READ)
    kind = at.get("type")
    return Item(text, at, (text_of(kind.of(text)) or "") if kind else "")


def read_call(item: Item) -> Call:
    named = item.type in (FUNCTION_CALL, CUSTOM_CALL)
    name = item.said("name") if named else item.type
    namespace = item.said("namespace")
    arguments = _arguments(item)
    fault, exact = read_exactly(arguments)
    if item.raw("namespace") and not namespace:
        fault = "its namespace is no text"
    fault = fault_of_name(name) or fault
    if not name:
        fault = "it has no name"
    if not item.call_id:
        fault = "it has no call_id"
    digest = blake2b(repr((item.type, name, namespace)).encode("utf-8", "backslashreplace") + b"\0" + exact).digest()
    return Call(item, item.call_id, name or item.type, namespace, arguments, digest, fault)


def _arguments(item: Item) -> bytes:
    raw = item.raw(_ACTED_ON.get(item.type, ""))
    if item.type == CUSTOM_CALL:
        text = text_of(raw)
        return b'{"input":%b}' % (raw if text is None else quote(text).encode())
    if item.type == FUNCTION_CALL or (item.type == TOOL_SEARCH_CALL and raw[:1] == b'"'):
        text = text_of(raw)
        return raw if text is None else (text.strip().encode() and text.encode()) or b"{}"
    if item.type == COMPUTER_CALL and item.raw("actions"):
        return item.text  # some clients take the one, some take the list
    return raw or item.text


def acted_on(item: Item) -> str | None:
    """The text that deltas of the item have told piece by piece; None: it is no text."""
    return text_of(item.raw(_ACTED_ON.get(item.type, "")))


def observed(item: Item) -> Observed | None:
    if item.is_call or not (item.type in _PROVIDER_RUN or item.type.endswith("_call")):
        return None
    error = item.raw("error")
    status = item.said("status")
    failed = (text_of(error) or error.decode()) if error else status if status in ("failed", "incomplete") else None
    arguments = item.raw("action") or item.raw("arguments")
    if item.type == "mcp_call":
        text = text_of(arguments)
        arguments = b"{}" if text is None or not text.strip() else text.encode()
    return Observed(
        id=item.said("id"),
        kind=item.type,
        name=item.said("name") or item.type.removesuffix("_call"),
        arguments=arguments or _without_outcome(item),
        server=item.said("server_label"),
        result=item.raw("output") or item.raw("results") or item.raw("outputs"),
        failed=failed,
    )


def _without_outcome(item: Item) -> bytes:
    """What the provider was asked for, where no one member says it."""
    told = ("type", "id", "status", "output", "outputs", "result", "results", "error")
    return b"{%b}" % b",".join(item.text[span.key : span.end] for key, span in item.at.items() if key not in told)
