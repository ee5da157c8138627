"""YAML to a tree with positions, from parser events alone. See `document` for what is bounded and why.

libyaml is used where PyYAML has it (about ten times faster on a large bundle); the pure parser reads the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from subluminal.policy.document.tree import (
    MAX_DEPTH,
    MAX_NODES,
    DocumentError,
    Mapping,
    Node,
    Scalar,
    Sequence,
    check_text,
    core_schema_value,
    duplicate_key,
    place,
)
from subluminal.policy.lint.findings import WARNING, Finding, shown

_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# Plain words that YAML 1.1 readers take for booleans and we, with YAML 1.2, take for words.
_OLD_BOOLEANS = frozenset({"yes", "Yes", "YES", "no", "No", "NO", "on", "On", "ON", "off", "Off", "OFF"})


def parse_yaml(text: str) -> Node:
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=_PARSER):
            builder.take(event)
    except yaml.YAMLError as error:
        raise _syntax_error(error, text) from None
    if builder.root is None:
        raise DocumentError("empty", "the file holds no policy", "start from `sub policy init`", 1, 1)
    return builder.root


class _Builder:
    """Puts events together. Open collections are a stack, so depth costs no recursion."""

    def __init__(self) -> None:
        self.root: Node | None = None
        self.documents = 0
        self.nodes = 0
        self.anchors: dict[str, Node] = {}
        self.open: list[tuple[Node, str | None]] = []
        self.keys: list[Scalar | None] = []
        self.merges: dict[int, list[Mapping]] = {}

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                raise _at(event, "several-documents", "a second document starts here", "keep one policy in one file")
        elif isinstance(event, yaml.AliasEvent):
            self.add(self.alias(event), event)
        elif isinstance(event, yaml.ScalarEvent):
            node = self.scalar(event)
            self.anchor(event, node)
            self.add(node, event)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self.start(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self.end(event)

    def scalar(self, event: yaml.ScalarEvent) -> Scalar:
        _refuse_tag(event)
        line, column = _place(event)
        if event.style:
            return Scalar(line, column, check_text(event.value, line, column))
        try:
            return Scalar(line, column, core_schema_value(event.value), plain=event.value)
        except ValueError as error:
            raise _at(event, "number-range", str(error), "use a number of 64 bits, or quote it") from None

    def anchor(self, event: Any, node: Node) -> None:
        if event.anchor is not None:
            self.anchors[event.anchor] = node

    def alias(self, event: yaml.AliasEvent) -> Node:
        name = str(event.anchor)
        node = self.anchors.get(name)
        if node is None:
            raise _at(event, "unknown-alias", f"alias *{name} has no anchor above it", f"define &{name} first")
        if any(node is parent for parent, _ in self.open):
            raise _at(event, "recursive-alias", f"alias *{name} stands inside what it names", "write the value out")
        self.check_depth(node.height, event)
        return node

    def start(self, event: Any) -> None:
        _refuse_tag(event)
        self.check_depth(0, event)
        if self.waits_for_key():
            raise _at(event, "key-not-text", "a list or mapping used as a key", "use a plain word as the key")
        kind = Mapping if isinstance(event, yaml.MappingStartEvent) else Sequence
        node = kind(*_place(event))
        self.anchor(event, node)
        self.open.append((node, event.anchor))
        self.keys.append(None)

    def check_depth(self, height: int, event: Any) -> None:
        if len(self.open) + height >= MAX_DEPTH:
            raise _at(event, "too-deep", f"more than {MAX_DEPTH} levels of nesting", "flatten the document")

    def waits_for_key(self) -> bool:
        return bool(self.open) and isinstance(self.open[-1][0], Mapping) and self.keys[-1] is None

    def end(self, event: Any) -> None:
        node, _ = self.open.pop()
        self.keys.pop()
        if isinstance(node, Mapping):
            for source in self.merges.pop(id(node), []):
                for key, entry in source.items.items():
                    node.items.setdefault(key, entry)
        self.add(node, event)

    def add(self, node: Node, event: Any) -> None:
        self.count(node, event)
        if not self.open:
            self.root = node
            return
        parent, _ = self.open[-1]
        parent.size += node.size
        parent.height = max(parent.height, node.height + 1)
        if isinstance(parent, Sequence):
            parent.items.append(node)
        elif isinstance(parent, Mapping):
            key = self.keys[-1]
            if key is None:
                self.keys[-1] = self.key(parent, node, event)
            else:
                self.keys[-1] = None
                self.put(parent, key, node, event)

    def count(self, node: Node, event: Any) -> None:
        """Collections were counted with their content; an alias adds all that it stands for."""
        self.nodes += node.size if isinstance(event, yaml.AliasEvent) else 1
        if self.nodes > MAX_NODES:
            message = f"more than {MAX_NODES:,} values once aliases are expanded"
            raise _at(event, "too-many-nodes", message, "remove the aliases or split the policy")

    def key(self, parent: Mapping, node: Node, event: Any) -> Scalar:
        if not isinstance(node, Scalar):
            raise _at(event, "key-not-text", "a list or mapping used as a key", "use a plain word as the key")
        text = node.plain if node.plain is not None else node.value
        if text in parent.items:
            raise duplicate_key(parent, text, *_place(event))
        return Scalar(*_place(event), text, node.plain)

    def put(self, parent: Mapping, key: Scalar, node: Node, event: Any) -> None:
        if key.plain != "<<":
            parent.items[key.value] = (key, node)
            return
        sources = node.items if isinstance(node, Sequence) else [node]
        if id(parent) in self.merges or not all(isinstance(source, Mapping) for source in sources):
            raise _at(event, "bad-merge", "<< takes one mapping or one list of mappings", "write << : *name, once")
        self.merges[id(parent)] = [source for source in sources if isinstance(source, Mapping)]


def yaml_traps(node: Node, filename: str) -> Iterator[Finding]:
    """Plain scalars that YAML 1.1 and YAML 1.2 readers take for different values."""
    stack, seen = [node], set()
    while stack:
        current = stack.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, Mapping):
            for key, value in current.items.values():
                stack += [value, key]
        elif isinstance(current, Sequence):
            stack += current.items
        elif isinstance(current, Scalar) and current.plain is not None:
            yield from _trap(current, current.plain, filename)


def _trap(node: Scalar, text: str, filename: str) -> Iterator[Finding]:
    digits = text.lstrip("+-")
    if text in _OLD_BOOLEANS:
        message = f"{text} is the word {shown(text)} here, but a boolean to YAML 1.1 readers"
        fix = f'quote it ("{text}"), or write true or false'
    elif len(digits) > 1 and digits[0] == "0" and digits.isdigit():
        message = f"{text} is {int(text)} here, but an octal number to YAML 1.1 readers"
        fix = f"write {int(text)} without the zero, or quote it"
    else:
        return
    yield Finding(WARNING, "yaml-trap", message, fix, filename, node.line, node.column)


def _place(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _at(event: Any, code: str, message: str, fix: str) -> DocumentError:
    return DocumentError(code, message, fix, *_place(event))


def _refuse_tag(event: Any) -> None:
    if event.tag is not None:
        message = f"the YAML tag {shown(event.tag)} is not accepted"
        raise _at(event, "yaml-tag", message, "remove it: a policy is plain data")


def _syntax_error(error: yaml.YAMLError, text: str) -> DocumentError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "not valid YAML"
    if mark is None:
        position = getattr(error, "position", 0)
        line, column = place(text[:position]) if isinstance(position, int) and position >= 0 else (1, 1)
    else:
        line, column = mark.line + 1, mark.column + 1
    lines = text.split("\n")
    source = lines[line - 1] if line <= len(lines) else ""
    if "\t" in source[: len(source) - len(source.lstrip())]:
        return DocumentError("yaml-tab", "a tab in the indentation", "indent with spaces", line, source.index("\t") + 1)
    context = getattr(error, "context", None)
    message = f"not valid YAML: {problem}" + (f" {context}" if context else "")
    fix = "check indentation, quotes and brackets just above this place"
    return DocumentError("yaml-syntax", message, fix, line, column)
