"""TOML as the tree that YAML and JSON are read to. Its reader tells no places: values have those of their operation."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from subluminal.policy.document.tree import DocumentError, Mapping, Node, Scalar, Sequence, decode_text

_PLACE = re.compile(r"(.*) \(at line ([0-9]+), column ([0-9]+)\)\Z", re.DOTALL)
_OPERATION = re.compile(r"^[ \t]*\[\[[ \t]*operations[ \t]*\]\]", re.MULTILINE)
# A file of ours has three levels; the reader itself recurses.
MAX_DEPTH = 8


def parse_toml(source: bytes) -> Node:
    text = decode_text(source)
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _PLACE.match(str(error))
        message, line, column = found.groups() if found else (str(error), "1", "1")
        raise DocumentError(
            "toml-syntax", f"this is not TOML: {message}", "check the quotes and brackets there", int(line), int(column)
        ) from None
    except ValueError:  # Python reads no number of thousands of digits
        raise DocumentError("number-range", "a number of too many digits", "write a shorter one", 1, 1) from None
    except RecursionError:
        raise DocumentError("too-deep", "too many levels of nesting", "flatten the document", 1, 1) from None
    lines = [text.count("\n", 0, found.start()) + 1 for found in _OPERATION.finditer(text)]
    root = _node(value, 1, 0)
    operations = root.get("operations") if isinstance(root, Mapping) else None
    if isinstance(operations, Sequence) and len(operations.items) == len(lines):
        operations.items = [_node(each, line, 2) for each, line in zip(value["operations"], lines, strict=True)]
    return root


def _node(value: Any, line: int, depth: int) -> Node:
    if depth > MAX_DEPTH:
        raise DocumentError("too-deep", "too many levels of nesting", "flatten the document", line, 1)
    if isinstance(value, dict):
        mapping = Mapping(line, 1)
        mapping.items = {key: (Scalar(line, 1, key), _node(each, line, depth + 1)) for key, each in value.items()}
        return mapping
    if isinstance(value, list):
        sequence = Sequence(line, 1)
        sequence.items = [_node(each, line, depth + 1) for each in value]
        return sequence
    return Scalar(line, 1, value)
