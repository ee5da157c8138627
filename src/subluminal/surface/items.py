"""One thing that a server says, and its fingerprint: SHA-256 of its canonical JSON, every member counted.

A member that is left out of a fingerprint is where the next attack goes, so none is: `_meta`, icons and members that no
revision names count like the description. Each member has a digest of its own, so that a difference can be named
without the text. Order of keys, white space and spelling of numbers are no difference.

What canonical JSON does not take (a key twice, nested too deep) is known by its bytes alone, and is `unread`.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from subluminal.contracts.canonical import canonical_bytes
from subluminal.contracts.digest import sha256_hex
from subluminal.contracts.errors import CanonicalError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

TOOL, PROMPT, TEMPLATE, INSTRUCTIONS, SERVER = "tool", "prompt", "resource_template", "instructions", "server"
KINDS = (TOOL, PROMPT, TEMPLATE, INSTRUCTIONS, SERVER)
# Of a list: the member that holds its elements. A template is named by its address: two may share a name.
LISTS = {"tools/list": (TOOL, "tools", "name"), "prompts/list": (PROMPT, "prompts", "name")}
LISTS["resources/templates/list"] = (TEMPLATE, "resourceTemplates", "uriTemplate")
OPENINGS = ("initialize", "server/discover")
METHODS = frozenset((*LISTS, *OPENINGS))

# A server could say any number of things; what is beyond counts as not said. Real ones have up to some hundred tools.
MAX_ITEMS = 4096
MAX_NAME_CHARS = 256
# One that is longer is known by its bytes: nobody reads a mebibyte of description.
MAX_ITEM_BYTES = 1_048_576
# Of a definition so much is kept to be shown and compared line by line; of a whole list so much.
MAX_KEPT_BYTES = 64 * 1024
MAX_LIST_KEPT_BYTES = 4 * 1024 * 1024
DIGEST_CHARS = 16

_object = msgspec.json.Decoder(dict[str, Raw]).decode
_array = msgspec.json.Decoder(list[Raw]).decode
_string = msgspec.json.Decoder(str).decode
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Item(Struct, eq=False):
    """`fields`: a digest for each member. `definition`: canonical JSON, or None where it is more than is kept.

    `times`: how often its name stood in one list; more than once, all of them make the fingerprint.
    """

    kind: str
    name: str
    fingerprint: str
    fields: dict[str, str] = {}
    definition: bytes | None = None
    unread: str = ""
    times: int = 1

    @property
    def key(self) -> str:
        return item_key(self.kind, self.name)


def item_key(kind: str, name: str) -> str:
    """What it is called within its server: a tool by its name alone, for tools are what people speak of."""
    return name if kind == TOOL else f"{kind}:{name}" if name else f"{kind}:"


def read_item(kind: str, name: str, raw: bytes) -> Item:
    if len(raw) > MAX_ITEM_BYTES:
        return large_item(kind, name, sha256_hex(raw))
    try:
        canonical = canonical_bytes(raw)
    except CanonicalError as fault:
        return Item(kind, name, sha256_hex(raw), {}, None, fault.kind)
    fields = {}
    if canonical[:1] == b"{":
        fields = {member: digest(bytes(value)) for member, value in _object(canonical).items()}
    kept = canonical if len(canonical) <= MAX_KEPT_BYTES else None
    return Item(kind, name, sha256_hex(canonical), fields, kept)


def large_item(kind: str, name: str, raw_hash: str) -> Item:
    """More than is read: known by the hash of its bytes."""
    return Item(kind, name, raw_hash, {}, None, "too_large")


def digest(canonical: bytes) -> str:
    return sha256_hex(canonical)[:DIGEST_CHARS]


def read_result(method: str, result: bytes) -> list[Item]:
    """What a result says; nothing where it cannot be read as one."""
    try:
        members = _object(result)
        if method in OPENINGS:
            return _opening(members)
        kind, member, naming = LISTS[method]
        elements = _array(bytes(members[member]))
    except (*_UNREADABLE, KeyError):
        return []
    gathered = Gathered()
    for element in elements:
        raw = bytes(element)
        name = _name(raw, naming)
        if name is not None:
            gathered.add(read_item(kind, name, raw))
    return gathered.items


class Gathered:
    """The items of one list, within its bounds. A name that stands twice is one item: nobody can say which is meant."""

    __slots__ = ("_by_name", "_kept", "items")

    def __init__(self) -> None:
        self.items: list[Item] = []
        self._by_name: dict[str, Item] = {}
        self._kept = 0

    def add(self, item: Item) -> None:
        earlier = self._by_name.get(item.name)
        if earlier is not None:
            _join(earlier, item)
            return
        if len(self.items) >= MAX_ITEMS or len(item.name) > MAX_NAME_CHARS:
            return
        self._kept += len(item.definition or b"")
        if self._kept > MAX_LIST_KEPT_BYTES:
            item.definition = None
        self._by_name[item.name] = item
        self.items.append(item)


def _join(first: Item, other: Item) -> None:
    """In the order of the list, for a client takes the first or the last of them."""
    first.times += 1
    first.fingerprint = sha256_hex(f"{first.fingerprint}{other.fingerprint}".encode())
    for member, value in other.fields.items():
        first.fields[member] = digest(f"{first.fields.get(member, '')}{value}".encode())
    both = None
    if first.definition is not None and other.definition is not None:
        inside = first.definition[1:-1] if first.times > 2 else first.definition
        both = b"[%s,%s]" % (inside, other.definition)
    first.definition = both if both is not None and len(both) <= MAX_KEPT_BYTES else None
    first.unread = first.unread or other.unread


def _opening(members: dict[str, Raw]) -> list[Item]:
    """`initialize`, and what stands in its place in the stateless revision."""
    wanted = ((INSTRUCTIONS, "instructions"), (SERVER, "serverInfo"))
    return [read_item(kind, "", bytes(members[member])) for kind, member in wanted if member in members]


def _name(raw: bytes, naming: str) -> str | None:
    try:
        return _string(bytes(_object(raw)[naming]))
    except (*_UNREADABLE, KeyError):
        return None


def names_of(items: Iterable[Item]) -> list[str]:
    return [item.name for item in items if item.kind == TOOL]
