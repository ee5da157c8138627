"""Content blocks: whose call one is, and the same call under its refused name.

A block that nobody knows and that has a `name` and an `input` is taken for a call of the client: it is judged rather
than passed. The refused call wraps `{"name": NAME, "input": INPUT}`, and `type` where that is another than `tool_use`.
"""

from __future__ import annotations

from msgspec import Struct

from subluminal.contracts.jsontext import to_json
from subluminal.contracts.members import Edit, Span, members, splice, text_of
from subluminal.model.refused import refused_name, wrapped
from subluminal.model.words import ModelFault

TOOL_USE = "tool_use"
PROVIDER_RUN = frozenset(("server_tool_use", "mcp_tool_use"))
# What a client only shows or sends back.
_SHOWN = frozenset(("text", "thinking", "redacted_thinking", "compaction", "container_upload", "image", "document"))
_RESULT = "_tool_result"
_READ = frozenset(
    ("type", "id", "name", "input", "tool_use_id", "server_name", "is_error", "content"),
)
# Where a model's input is no JSON, the provider's documentation has clients send it back under this key.
INVALID_INPUT = "INVALID_JSON"
# Ids have some 30 characters, names at most 200; more than this is no word, and nobody here keeps it.
MAX_WORD_CHARS = 512
MAX_CALLS = 4096
_ONE_READING = ("too_deep", "number_out_of_range")


class Block(Struct, eq=False):
    """One block: its text, and where its members stand in it."""

    text: bytes
    members: dict[str, Span]
    kind: str

    @property
    def is_call(self) -> bool:
        if self.kind == TOOL_USE:
            return True
        known = self.kind in PROVIDER_RUN or self.kind in _SHOWN
        return not known and "name" in self.members and "input" in self.members

    @property
    def is_provider_run(self) -> bool:
        return self.kind in PROVIDER_RUN

    @property
    def is_result(self) -> bool:
        return self.kind.endswith(_RESULT) and not self.is_call

    def raw(self, key: str) -> bytes:
        span = self.members.get(key)
        return b"" if span is None else span.of(self.text)

    def text_under(self, key: str) -> str | None:
        return text_of(self.raw(key))


def read_block(text: bytes) -> Block:
    found = members(text, _READ)
    kind = text_of(found["type"].of(text)) if "type" in found else None
    if kind is None:
        raise ModelFault("a content block has no type")
    return Block(text, found, kind)


def call_words(block: Block) -> tuple[str, str]:
    """Id and name of a call."""
    call_id, name = block.text_under("id"), block.text_under("name")
    if not call_id or not name or len(call_id) > MAX_WORD_CHARS or len(name) > MAX_WORD_CHARS:
        raise ModelFault("a tool call has no id or no name")
    return call_id, name


class CallIds:
    """The ids of one message's calls: a result belongs to the call of its id, so two of them with one id are one."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def fault_of(self, call_id: str) -> str | None:
        if call_id in self._seen:
            return "two tool calls with one id"
        if len(self._seen) >= MAX_CALLS:
            raise ModelFault("more tool calls than one message has")
        self._seen.add(call_id)
        return None


def refused_input(block: Block, arguments: bytes, reason: str) -> bytes:
    """The input of the refused call: what `restored_call` needs."""
    kind = b"" if block.kind == TOOL_USE else b'"type":%b,' % block.raw("type")
    return wrapped(b'{%b"name":%b,"input":%b}' % (kind, block.raw("name"), _as_object(arguments)), reason)


def renamed(block: Block, new_input: bytes) -> bytes:
    """The block as a call of the refused name; its other members stay as they are."""
    new = {
        "type": b'"tool_use"',
        "name": to_json(refused_name(call_words(block)[1])).encode(),
        "input": new_input,
    }
    edits = [Edit(*block.members[key][:2], text) for key, text in new.items() if key in block.members]
    if "input" not in block.members:
        end = block.members["name"].end
        edits.append(Edit(end, end, b',"input":' + new_input))
    return splice(block.text, edits)


def _as_object(arguments: bytes) -> bytes:
    """The provider takes an object for an input, and nothing else."""
    try:
        members(arguments)
    except ModelFault:
        text = arguments.decode("utf-8", "replace")
        return b'{"%b":%b}' % (INVALID_INPUT.encode(), to_json(text).encode())
    return arguments
