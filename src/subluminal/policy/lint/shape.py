"""Does a document have the shape of a type of `contracts.policy`? Every difference is a finding with its place.

The types are read by introspection, so field names, words, bounds and defaults are stated once, in the contract.
`msgspec.convert` would stop at the first fault and knows no lines; this walk goes on and knows them all.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect

from subluminal.policy.document.tree import Mapping, Node, Scalar, Sequence, plain_value
from subluminal.policy.lint.findings import ERROR, MAX_FINDINGS, Finding, is_slip, nearest, one_of, shown
from subluminal.policy.lint.units import A_DURATION, MAX_EXACT, meant_duration, milliseconds, size_in_bytes
from subluminal.policy.lint.wording import (
    accepts,
    duration_fix,
    duration_out_of_bounds,
    example,
    field_fix,
    found,
    is_duration,
    is_size,
    literal,
    mapping_fix,
    noun,
    nouns,
    options_fix,
    out_of_bounds,
    predicate_fix,
    scalar_fix,
    size_fix,
    word_fix,
)

# Lists that choose: an empty one could be read as "nothing" or as "anything", so it is refused.
_CHOICES = frozenset((
    "env", "agent_id", "client", "namespace", "service_account", "repo", "branch", "risk_class", "has_keys",
    "missing_keys", "utc_hours",
))  # fmt: skip


class Checker:
    """Collects findings. `rule_id` is the rule being walked, for the messages."""

    def __init__(self, filename: str, whole: str = "the policy") -> None:
        self.filename = filename
        self.findings: list[Finding] = []
        self.rule_id: str | None = None
        self.whole = whole
        self.sound_rules: set[int] = set()
        self._above: list[tuple[inspect.StructType, str]] = []  # the mappings around the one being walked

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
        if isinstance(node, Scalar) and isinstance(node.value, str) and any(map(is_size, options)):
            self.check_size(node, options, name)
            return
        for option in options:
            if _resembles(option, node):
                self.check(node, option, name)
                return
        self.report(
            node, "wrong-type", f"{name} must be {nouns(options)}, not {found(node)}", options_fix(options, node, name)
        )

    def check_size(self, node: Scalar, options: list[inspect.Type], name: str) -> None:
        """A number or a size; the size is bounded as the number is."""
        size = next(option for option in options if is_size(option))
        if out_of_bounds(size, node.value):
            digits = node.value.strip("-").isdigit()
            fix = options_fix(options, node) if digits else size_fix(node.value)
            self.report(node, "bad-value", f"{name} is {shown(node.value)}; it must be {nouns(options)}", fix)
            return
        fault = out_of_bounds(options[0], size_in_bytes(node.value))
        if size_in_bytes(node.value) > MAX_EXACT:
            fault = f"at most {MAX_EXACT}"
        if fault:
            self.report(node, "out-of-range", f"{name} is {shown(node.value)}; it must be {fault}", f"make it {fault}")

    def check_tagged(self, node: Node, structs: list[inspect.StructType], name: str) -> None:
        field = str(structs[0].tag_field)
        if not isinstance(node, Mapping):
            self.report(node, "wrong-type", f"{self.whole} must be a mapping, not {found(node)}", "write its fields")
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
            fix = mapping_fix(node, expected, name)
            self.report(node, "wrong-type", f"{name or self.whole} must be a mapping, not {found(node)}", fix)
            return
        self._above.append((expected, name))
        for key, (key_node, value) in node.items.items():
            if key in fields:
                self.check_field(value, fields, key, f"{name}.{key}" if name else key)
            elif key != expected.tag_field:
                self.unknown_field(key_node, value, expected, name)
        self._above.pop()
        for key, field in fields.items():
            if key in node.items and f"{key}_ms" in node.items and is_duration(field.type):
                message = f"{name}.{key} and {key}_ms are the same time, given twice"
                self.report(node.items[f"{key}_ms"][0], "given-twice", message, f"keep {key} or {key}_ms")
            if field.required and key not in node.items:
                message, fix = f"{name or self.whole} has no {key}", f"add {key}: {example(field.type)}"
                self.report(node, "missing-field", message, fix)

    def check_field(self, node: Node, fields: dict[str, inspect.Field], key: str, name: str) -> None:
        expected = fields[key].type
        if is_duration(expected):
            self.check_duration(node, expected, fields[f"{key}_ms"].type, name)
            return
        twin = fields.get(key.removesuffix("_ms"))
        if twin is not None and is_duration(twin.type) and isinstance(node, Scalar) and isinstance(node.value, str):
            meant = meant_duration(node.value)
            if meant is not None:
                message = f"{name} must be a whole number, not {found(node)}"
                self.report(node, "wrong-type", message, f"write {twin.encode_name}: {meant} instead of {key}")
                return
        self.check(node, expected, name)

    def check_duration(self, node: Node, expected: inspect.Type, twin: inspect.Type, name: str) -> None:
        """`twin`: the field that takes the same time in milliseconds; its bounds hold."""
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            self.report(node, "wrong-type", f"{name} must be {A_DURATION}, not {found(node)}", duration_fix(node))
        elif out_of_bounds(expected, node.value):
            self.report(
                node, "bad-value", f"{name} is {shown(node.value)}; it must be {A_DURATION}", duration_fix(node)
            )
        else:
            fault = duration_out_of_bounds(twin, milliseconds(node.value))
            if fault:
                message = f"{name} is {shown(node.value)}; it must be {fault}"
                self.report(node, "out-of-range", message, f"make it {fault}")

    def unknown_field(self, key: Scalar, value: Node, struct: inspect.StructType, name: str) -> None:
        message = f"unknown field {shown(key.value)} in {name or self.whole}"
        known = [field.encode_name for field in struct.fields]
        for field in struct.fields:
            inner = field.type
            if isinstance(inner, inspect.StructType) and any(key.value == f.encode_name for f in inner.fields):
                path = f"{name}.{field.encode_name}" if name else field.encode_name
                self.report(key, "unknown-field", message, f"move it into {path}")
                return
        for outer, place in reversed(self._above[:-1]):
            if any(key.value == field.encode_name for field in outer.fields):
                self.report(key, "unknown-field", message, f"move it up, into {place or self.whole}")
                return
        fix = field_fix(str(key.value), value, name) if len(self.findings) < MAX_FINDINGS else None
        if fix is not None and not is_slip(str(key.value), known):
            self.report(key, "unknown-field", message, fix)
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
            value = literal(node) if isinstance(node, Scalar) and node.value is not None else None
            last = name.rsplit(".")[-1]
            fix = f"write [{value}]" if value else f"write {last}: []"
            if isinstance(node, Mapping):
                fix = f"put a dash before each: {last} is a list of such mappings, {last}: [{{...}}]"
            self.report(node, "wrong-type", f"{name} must be a list, not {found(node)}", fix)
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
            self.report(
                node, "wrong-type", f"{name} must be a mapping, not {found(node)}", predicate_fix(node, expected, name)
            )
            return
        if expected.min_length and not node.items:
            self.report(node, "empty-mapping", f"{name} is empty", "add a key or remove the field")
        for key, (_, value) in node.items.items():
            self.check(value, expected.value_type, f"{name}.{key}")

    def check_word(self, node: Node, expected: inspect.LiteralType, name: str) -> None:
        if not isinstance(node, Scalar) or node.value not in expected.values:
            words = [str(value) for value in expected.values]
            message, fix = f"{name} must be {one_of(words)}, not {found(node)}", word_fix(node, name)
            if fix is not None and not (isinstance(node, Scalar) and is_slip(str(node.value), words)):
                self.report(node, "bad-value", message, fix)
                return
            self.unknown_word(node, "bad-value", message, words)

    def check_scalar(self, node: Node, expected: inspect.Type, name: str) -> None:
        if not accepts(expected, node):
            message = f"{name} must be {noun(expected)}, not {found(node)}"
            self.report(node, "wrong-type", message, scalar_fix(expected, node))
            return
        assert isinstance(node, Scalar)
        fault = out_of_bounds(expected, node.value)
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
    return accepts(expected, node)


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
