"""Does a document have the shape of a type of `contracts.policy`? Every difference is a finding with its place.

The types are read by introspection, so field names, words, bounds and defaults are stated once, in the contract.
`msgspec.convert` would stop at the first fault and knows no lines; this walk goes on and knows them all.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import inspect

from subluminal.contracts.events import Timestamp
from subluminal.contracts.policy import HourRange
from subluminal.policy.document.tree import Mapping, Node, Scalar, Sequence, plain_value
from subluminal.policy.lint.findings import ERROR, MAX_FINDINGS, Finding, nearest, one_of, shown

_TRUE_WORDS = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


# Lists that choose: an empty one could be read as "nothing" or as "anything", so it is refused.
_CHOICES = frozenset((
    "env", "agent_id", "client", "namespace", "service_account", "repo", "branch", "risk_class", "has_keys",
    "utc_hours",
))  # fmt: skip


def _pattern(annotated: Any) -> str:
    return str(annotated.__metadata__[0].pattern)


# The contract states these as regular expressions; people are told in words.
_PATTERNS = {
    _pattern(Timestamp): 'a time in UTC such as "2026-01-31T12:00:00Z"',
    _pattern(HourRange): 'hours such as 9 or "9-17"',
}


class Checker:
    """Collects findings. `rule_id` is the rule being walked, for the messages."""

    def __init__(self, filename: str, whole: str = "the policy") -> None:
        self.filename = filename
        self.findings: list[Finding] = []
        self.rule_id: str | None = None
        self.whole = whole
        self.sound_rules: set[int] = set()

    def report(self, node: Node, code: str, message: str, fix: str) -> None:
        self.findings.append(Finding(ERROR, code, message, fix, self.filename, node.line, node.column, self.rule_id))

    def check(self, node: Node, expected: inspect.Type, name: str) -> None:
        """Compare one node with one type; `name` is its place in the contract's words."""
        if isinstance(expected, inspect.UnionType):
            self.check_union(node, expected, name)
        elif isinstance(expected, inspect.StructType):
            self.check_struct(node, expected, name)
        elif isinstance(expected, inspect.ListType):
            self.check_list(node, expected, name)
        elif isinstance(expected, inspect.DictType):
            self.check_dict(node, expected, name)
        elif isinstance(expected, inspect.LiteralType):
            self.check_word(node, expected, name)
        elif not isinstance(expected, inspect.AnyType):
            self.check_scalar(node, expected, name)

    def check_union(self, node: Node, expected: inspect.UnionType, name: str) -> None:
        options = [t for t in expected.types if not isinstance(t, inspect.NoneType)]
        nullable = any(isinstance(t, inspect.NoneType) for t in expected.types)
        if nullable and isinstance(node, Scalar) and node.value is None:
            return
        structs = [t for t in options if isinstance(t, inspect.StructType)]
        if len(options) == 1:
            self.check(node, options[0], name)
        elif structs and structs[0].tag_field is not None:
            self.check_tagged(node, structs, name)
        else:
            self.check_options(node, options, name)

    def check_options(self, node: Node, options: list[inspect.Type], name: str) -> None:
        for option in options:
            if _resembles(option, node):
                self.check(node, option, name)
                return
        words = _nouns(options)
        self.report(node, "wrong-type", f"{name} must be {words}, not {_found(node)}", f"write {words}")

    def check_tagged(self, node: Node, structs: list[inspect.StructType], name: str) -> None:
        field = str(structs[0].tag_field)
        if not isinstance(node, Mapping):
            self.report(node, "wrong-type", f"{self.whole} must be a mapping, not {_found(node)}", "write its fields")
            return
        tag = node.get(field)
        tags = {str(struct.tag): struct for struct in structs}
        if tag is None:
            message = f"{name or self.whole} has no {field}"
            self.report(node, "missing-field", message, f"add {field}: one of {one_of(tags)}")
        elif not isinstance(tag, Scalar) or tag.value not in tags:
            word = tag.value if isinstance(tag, Scalar) else None
            self.unknown_word(tag, f"unknown-{field}", f"unknown {field} {shown(word)}", list(tags))
            near = nearest(str(word), tags)
            if near:
                self.check_struct(node, tags[near], name)
        else:
            self.check_struct(node, tags[tag.value], name)

    def check_struct(self, node: Node, expected: inspect.StructType, name: str) -> None:
        fields = {field.encode_name: field for field in expected.fields}
        if not isinstance(node, Mapping):
            fix = _mapping_fix(node, expected, name)
            self.report(node, "wrong-type", f"{name or self.whole} must be a mapping, not {_found(node)}", fix)
            return
        for key, (key_node, value) in node.items.items():
            if key in fields:
                self.check(value, fields[key].type, f"{name}.{key}" if name else key)
            elif key != expected.tag_field:
                self.unknown_field(key_node, expected, name)
        for key, field in fields.items():
            if field.required and key not in node.items:
                message, fix = f"{name or self.whole} has no {key}", f"add {key}: {_example(field.type)}"
                self.report(node, "missing-field", message, fix)

    def unknown_field(self, key: Scalar, struct: inspect.StructType, name: str) -> None:
        message = f"unknown field {shown(key.value)} in {name or self.whole}"
        known = [field.encode_name for field in struct.fields]
        for field in struct.fields:
            inner = field.type
            if isinstance(inner, inspect.StructType) and any(key.value == f.encode_name for f in inner.fields):
                path = f"{name}.{field.encode_name}" if name else field.encode_name
                self.report(key, "unknown-field", message, f"move it into {path}")
                return
        self.unknown_word(key, "unknown-field", message, known + ([struct.tag_field] if struct.tag_field else []))

    def unknown_word(self, node: Node, code: str, message: str, known: list[str]) -> None:
        word = node.value if isinstance(node, Scalar) and isinstance(node.value, str) else ""
        # Guessing is dear, and findings beyond the bound are not shown.
        near = nearest(word, known) if len(self.findings) < MAX_FINDINGS else None
        fix = f"did you mean {shown(near)}?" if near else f"use {one_of(known)}"
        self.report(node, code, message, fix)

    def check_list(self, node: Node, expected: Any, name: str) -> None:
        if not isinstance(node, Sequence):
            value = _literal(node) if isinstance(node, Scalar) and node.value is not None else None
            fix = f"write [{value}]" if value else f"write {name.rsplit('.')[-1]}: []"
            self.report(node, "wrong-type", f"{name} must be a list, not {_found(node)}", fix)
            return
        if expected.min_length and len(node.items) < expected.min_length:
            message = f"{name} is empty, so it can never match"
            self.report(node, "empty-list", message, "add a value or remove the field")
        if not node.items and name.rsplit(".")[-1] in _CHOICES:
            message = f"{name} is empty: nothing, or anything?"
            self.report(node, "empty-list", message, "add a value, or remove the field")
        for index, item in enumerate(node.items):
            if name == "rules":
                self.check_rule(item, expected.item_type)
            else:
                self.check(item, expected.item_type, f"{name}[{index}]")

    def check_rule(self, node: Node, expected: inspect.Type) -> None:
        """Places inside a rule are named from the rule, which has a name of its own."""
        rule_id = node.get("rule_id") if isinstance(node, Mapping) else None
        self.rule_id = str(rule_id.value) if isinstance(rule_id, Scalar) and rule_id.value is not None else None
        whole, self.whole = self.whole, "the rule"
        before = len(self.findings)
        self.check(node, expected, "")
        if len(self.findings) == before:
            self.sound_rules.add(id(node))
        self.rule_id, self.whole = None, whole

    def check_dict(self, node: Node, expected: inspect.DictType, name: str) -> None:
        if not isinstance(node, Mapping):
            self.report(node, "wrong-type", f"{name} must be a mapping, not {_found(node)}", "write key: value")
            return
        if expected.min_length and not node.items:
            self.report(node, "empty-mapping", f"{name} is empty", "add a key or remove the field")
        for key, (_, value) in node.items.items():
            self.check(value, expected.value_type, f"{name}.{key}")

    def check_word(self, node: Node, expected: inspect.LiteralType, name: str) -> None:
        if not isinstance(node, Scalar) or node.value not in expected.values:
            words = [str(value) for value in expected.values]
            self.unknown_word(node, "bad-value", f"{name} must be {one_of(words)}, not {_found(node)}", words)

    def check_scalar(self, node: Node, expected: inspect.Type, name: str) -> None:
        if not _accepts(expected, node):
            message = f"{name} must be {_noun(expected)}, not {_found(node)}"
            self.report(node, "wrong-type", message, _scalar_fix(expected, node))
            return
        assert isinstance(node, Scalar)
        fault = _out_of_bounds(expected, node.value)
        if fault:
            self.report(node, "out-of-range", f"{name} is {shown(node.value)}; it must be {fault}", f"make it {fault}")


def _resembles(expected: inspect.Type, node: Node) -> bool:
    """Whether a node was meant to be this option of a union, be it right in all details or not."""
    if isinstance(node, Mapping):
        return isinstance(expected, inspect.StructType | inspect.DictType)
    if isinstance(node, Sequence):
        return isinstance(expected, inspect.ListType)
    if isinstance(expected, inspect.LiteralType):
        return isinstance(node, Scalar) and isinstance(node.value, str)
    return _accepts(expected, node)


def _accepts(expected: inspect.Type, node: Node) -> bool:
    if not isinstance(node, Scalar):
        return isinstance(expected, inspect.AnyType)
    value = node.value
    if isinstance(value, bool):
        return isinstance(expected, inspect.BoolType)
    if isinstance(value, str):
        return isinstance(expected, inspect.StrType)
    if isinstance(value, int):
        return isinstance(expected, inspect.IntType | inspect.FloatType)
    return isinstance(expected, inspect.FloatType) and value is not None


def _noun(expected: inspect.Type) -> str:
    for kind, noun in (
        (inspect.StrType, "text"),
        (inspect.BoolType, "true or false"),
        (inspect.IntType, "a whole number"),
        (inspect.FloatType, "a number"),
        (inspect.ListType, "a list"),
        (inspect.LiteralType, "a word"),
    ):
        if isinstance(expected, kind):
            return noun
    return "a mapping"


def _mapping_fix(node: Node, expected: inspect.StructType, name: str) -> str:
    fields = sorted(expected.fields, key=lambda field: not field.required)
    last = name.rsplit(".")[-1]
    if any(field.encode_name == "glob" for field in fields):
        return f"write {last}: {{glob: [{_literal(node) if isinstance(node, Scalar) and node.value else '...'}]}}"
    if isinstance(node, Scalar) and node.value is None and not fields[0].required:
        return f"write {last}: {{}}"
    return f"give it fields: {', '.join(field.encode_name for field in fields)}"


def _nouns(options: list[inspect.Type]) -> str:
    nouns = list(dict.fromkeys(_noun(option) for option in options))
    if "a number" in nouns and "a whole number" in nouns:
        nouns.remove("a whole number")
    return nouns[0] if len(nouns) == 1 else f"{', '.join(nouns[:-1])} or {nouns[-1]}"


def _found(node: Node) -> str:
    if isinstance(node, Mapping):
        return "a mapping"
    if isinstance(node, Sequence):
        return "a list"
    assert isinstance(node, Scalar)
    if node.value is None:
        return "empty"
    kinds = {bool: "the boolean", int: "the number", float: "the number", str: "the text"}
    return f"{kinds[type(node.value)]} {_literal(node)}"


def _literal(node: Scalar) -> str:
    """As the author wrote it: `1.10` is not `1.1` to whoever reads the message."""
    if node.plain is not None and not isinstance(node.value, str):
        return node.plain[:48]
    return shown(node.value)


def _scalar_fix(expected: inspect.Type, node: Node) -> str:
    if not isinstance(node, Scalar) or node.value is None:
        return f"write {_noun(expected)}, or remove the field"
    text = str(node.value)
    if isinstance(expected, inspect.BoolType):
        word = _TRUE_WORDS.get(text.lower(), text.lower())
        return f"write {word}" if word in ("true", "false") else "write true or false"
    if isinstance(expected, inspect.StrType):
        return f'quote it: "{node.plain if node.plain is not None else text}"'
    digits = text.replace("_", "").replace(",", "")
    if isinstance(node.value, str) and re.fullmatch(r"-?[0-9]+", digits):
        return f"write {digits}" + (" without quotes" if node.plain is None else "")
    if isinstance(node.value, str) and re.fullmatch(r"[0-9]+ *(ms|s|m|h)", text):
        return f"write the time in milliseconds, without a unit: {_milliseconds(text)}"
    return f"write {_noun(expected)}"


def _milliseconds(text: str) -> int:
    unit = text.lstrip("0123456789 ")
    return int(text[: -len(unit)]) * {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}[unit]


def _out_of_bounds(expected: Any, value: Any) -> str | None:
    if isinstance(expected, inspect.IntType | inspect.FloatType):
        if expected.ge is not None and value < expected.ge:
            return f"at least {expected.ge}"
        if expected.gt is not None and value <= expected.gt:
            return f"more than {expected.gt}"
        if expected.le is not None and value > expected.le:
            return f"at most {expected.le}"
        if expected.lt is not None and value >= expected.lt:
            return f"less than {expected.lt}"
    elif isinstance(expected, inspect.StrType):
        if expected.min_length and len(value) < expected.min_length:
            return f"at least {expected.min_length} character long"
        if expected.max_length is not None and len(value) > expected.max_length:
            return f"{expected.max_length} characters or fewer"
        if expected.pattern is not None and not re.search(expected.pattern, value):
            return _PATTERNS.get(expected.pattern, f"of the form {expected.pattern}")
    return None


def _example(expected: inspect.Type) -> str:
    if isinstance(expected, inspect.UnionType):
        expected = expected.types[0]
    if isinstance(expected, inspect.LiteralType):
        return f"one of {one_of(str(value) for value in expected.values)}"
    if isinstance(expected, inspect.ListType):
        return "[...]"
    if isinstance(expected, inspect.StructType):
        return "{...}" if any(field.required for field in expected.fields) else "{}"
    if isinstance(expected, inspect.DictType):
        return "{}"
    return '"..."' if isinstance(expected, inspect.StrType) else _noun(expected)


def expanded(node: Node, expected: inspect.Type) -> Any:
    """The values below a checked node, with the contract's defaults stated where the author left them out."""
    if isinstance(expected, inspect.UnionType):
        expected = _chosen(node, expected)
    if isinstance(expected, inspect.StructType) and isinstance(node, Mapping):
        out = {str(expected.tag_field): expected.tag} if expected.tag_field else {}
        for field in expected.fields:
            value = node.get(field.encode_name)
            if value is not None:
                out[field.encode_name] = expanded(value, field.type)
            elif field.default is not msgspec.NODEFAULT and field.default is not msgspec.UNSET:
                out[field.encode_name] = msgspec.to_builtins(field.default)
        return out
    if isinstance(expected, inspect.ListType) and isinstance(node, Sequence):
        return [expanded(item, expected.item_type) for item in node.items]
    if isinstance(expected, inspect.DictType) and isinstance(node, Mapping):
        return {key: expanded(value, expected.value_type) for key, (_, value) in node.items.items()}
    return plain_value(node)


def _chosen(node: Node, expected: inspect.UnionType) -> inspect.Type:
    options = [t for t in expected.types if not isinstance(t, inspect.NoneType)]
    for option in options:
        if isinstance(option, inspect.StructType) and option.tag_field and isinstance(node, Mapping):
            tag = node.get(option.tag_field)
            if isinstance(tag, Scalar) and tag.value == option.tag:
                return option
    return options[0] if len(options) == 1 else inspect.AnyType()
