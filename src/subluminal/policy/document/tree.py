"""Bytes to a tree of values with positions: YAML or JSON, read as data and nothing else.

YAML is read from the parser's events, never through a constructor, so no tag can make an object. Plain words follow
the YAML 1.2 core schema: `no`, `on` and `off` are words and not booleans. Everything that can grow is bounded: bytes,
depth, and the nodes left after aliases are expanded (the "billion laughs" is refused when it is counted, not when it
is built). A key that occurs twice is an error, since two readers of the file would see two policies.
"""

from __future__ import annotations

import math
import re
from typing import Any

from subluminal.contracts.errors import SubluminalError
from subluminal.policy.compile.snapshot import MAX_SOURCE_BYTES
from subluminal.policy.lint.findings import ERROR, Finding, InvalidPolicy, shown

# The deepest place the contract names is 7 levels down; `suggested_args` may go further.
MAX_DEPTH = 32
MAX_NODES = 200_000

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


class DocumentError(SubluminalError):
    """The file is not one well-formed document. Carries its place and a stable code."""

    def __init__(self, code: str, message: str, fix: str, line: int, column: int) -> None:
        super().__init__(message, hint=fix)
        self.code = code
        self.fix = fix
        self.line = line
        self.column = column


class Node:
    """One value and where it starts (from 1). `size` and `height` are of the tree below it, aliases expanded."""

    __slots__ = ("column", "height", "line", "size")

    def __init__(self, line: int, column: int) -> None:
        self.line = line
        self.column = column
        self.size = 1
        self.height = 0


class Scalar(Node):
    """`plain` is the text of an unquoted YAML scalar, else None."""

    __slots__ = ("plain", "value")

    def __init__(self, line: int, column: int, value: Any, plain: str | None = None) -> None:
        super().__init__(line, column)
        self.value = value
        self.plain = plain


class Sequence(Node):
    __slots__ = ("items",)

    def __init__(self, line: int, column: int) -> None:
        super().__init__(line, column)
        self.items: list[Node] = []


class Mapping(Node):
    """`items` maps a key to (the key's own node, its value)."""

    __slots__ = ("items",)

    def __init__(self, line: int, column: int) -> None:
        super().__init__(line, column)
        self.items: dict[str, tuple[Scalar, Node]] = {}

    def get(self, key: str) -> Node | None:
        entry = self.items.get(key)
        return entry[1] if entry else None


def duplicate_key(mapping: Mapping, key: str, line: int, column: int) -> DocumentError:
    message = f"key {shown(key)} occurs twice; the first is on line {mapping.items[key][0].line}"
    return DocumentError("duplicate-key", message, "keep one of the two", line, column)


def plain_value(node: Node | None) -> Any:
    """The tree below a node as dicts, lists and scalars."""
    if isinstance(node, Mapping):
        return {key: plain_value(value) for key, (_, value) in node.items.items()}
    if isinstance(node, Sequence):
        return [plain_value(item) for item in node.items]
    return node.value if isinstance(node, Scalar) else None


def parse_document(source: bytes, filename: str) -> Node:
    """Read one document. The name decides the syntax: `.json` is JSON, anything else YAML (of which JSON is a part)."""
    text = decode_text(source)
    if filename.lower().endswith(".json"):
        from subluminal.policy.document.json_tree import parse_json

        return parse_json(text)
    from subluminal.policy.document.yaml_tree import parse_yaml

    return parse_yaml(text)


def parse_policy(source: bytes, filename: str) -> Node:
    """The same for a file of ours: what is wrong with it is a finding of InvalidPolicy."""
    try:
        return parse_document(source, filename)
    except DocumentError as error:
        finding = Finding(ERROR, error.code, str(error), error.fix, filename, error.line, error.column)
        raise InvalidPolicy([finding]) from None


def decode_text(source: bytes) -> str:
    if len(source) > MAX_SOURCE_BYTES:
        message = f"the file has {len(source):,} bytes; a policy may have {MAX_SOURCE_BYTES:,}"
        fix = "check that this is the policy file; split a very large policy into stacked bundles"
        raise DocumentError("file-too-large", message, fix, 1, 1)
    if source[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DocumentError("not-utf8", "the file is UTF-16", "save it as UTF-8", 1, 1)
    if source.startswith(b"\xef\xbb\xbf"):
        source = source[3:]
    try:
        text = source.decode("utf-8")
    except UnicodeDecodeError as error:
        line, column = place(source[: error.start].decode("utf-8", "replace"))
        raise DocumentError(
            "not-utf8", f"byte 0x{source[error.start]:02x} is not UTF-8", "save the file as UTF-8", line, column
        ) from None
    nul = text.find("\0")
    if nul >= 0:
        line, column = place(text[:nul])
        raise DocumentError("control-character", "a NUL character", "remove it: a policy is plain text", line, column)
    return text


def check_text(text: str, line: int, column: int) -> str:
    """Escapes can spell what the file itself may not hold."""
    if "\0" in text:
        raise DocumentError("control-character", "a NUL character", "remove it", line, column)
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise DocumentError("lone-surrogate", "half of a surrogate pair", "write the whole character", line, column)
    return text


def place(before: str) -> tuple[int, int]:
    """Line and column (from 1) of the character that follows `before`."""
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


_INT = re.compile(r"[-+]?[0-9]+\Z")
_OTHER_INT = re.compile(r"0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def core_schema_value(text: str) -> Any:
    """An unquoted YAML scalar by the 1.2 core schema. A number beyond the bounds of `number` raises ValueError."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _INT.match(text):
        return number(text, integer=True)
    if _OTHER_INT.match(text):
        return bounded_int(int(text, 0)) if len(text) < 40 else number("1e999", integer=False)
    if _FLOAT.match(text):
        return number(text, integer=False)
    return text


def number(text: str, *, integer: bool) -> int | float:
    """A number that means the same to every reader: 64-bit integers, finite floats, `1.0` the same as `1`."""
    if len(text) > 400:
        raise ValueError("a number of more than 400 digits")
    if integer:
        return bounded_int(int(text))
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number beyond the range of floating point")
    return bounded_int(int(value)) if value.is_integer() else value


def bounded_int(value: int) -> int:
    if not INT64_MIN <= value <= INT64_MAX:
        raise ValueError("a whole number beyond 64 bits")
    return value
