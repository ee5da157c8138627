"""What `shape` says of a value that is not as the contract wants it: what was found, what is wanted, and the fix."""

from __future__ import annotations

import re
from typing import Any

from msgspec import inspect

from subluminal.contracts.policy import Duration, HourRange, Size
from subluminal.contracts.terms import Timestamp
from subluminal.policy.document.tree import Mapping, Node, Scalar, Sequence
from subluminal.policy.lint.findings import MAX_SHOWN, one_of, shown
from subluminal.policy.lint.units import A_DURATION, A_SIZE, MILLISECONDS, meant_duration, meant_sizes, size_in_bytes

_TRUE_WORDS = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


def _pattern(annotated: Any) -> str:
    return str(annotated.__metadata__[0].pattern)


_DURATION, _SIZE = _pattern(Duration), _pattern(Size)
# The contract states these as regular expressions; people are told in words.
PATTERN_WORDS = {
    _pattern(Timestamp): 'a time in UTC such as "2026-01-31T12:00:00Z"',
    _pattern(HourRange): 'hours such as 9 or "9-17"',
    _DURATION: A_DURATION,
    _SIZE: A_SIZE,
}


def is_duration(expected: inspect.Type) -> bool:
    return isinstance(expected, inspect.StrType) and expected.pattern == _DURATION


def is_size(expected: inspect.Type) -> bool:
    return isinstance(expected, inspect.StrType) and expected.pattern == _SIZE


def accepts(expected: inspect.Type, node: Node) -> bool:
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


def noun(expected: inspect.Type) -> str:
    if is_duration(expected) or is_size(expected):
        return A_DURATION if is_duration(expected) else A_SIZE
    for kind, word in (
        (inspect.StrType, "text"),
        (inspect.BoolType, "true or false"),
        (inspect.IntType, "a whole number"),
        (inspect.FloatType, "a number"),
        (inspect.ListType, "a list"),
        (inspect.LiteralType, "a word"),
    ):
        if isinstance(expected, kind):
            return word
    return "a mapping"


def nouns(options: list[inspect.Type]) -> str:
    words = list(dict.fromkeys(noun(option) for option in options))
    if words == ["a list", "text"]:
        return "text or a list of texts"
    if "a number" in words and "a whole number" in words:
        words.remove("a whole number")
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def found(node: Node) -> str:
    if isinstance(node, Mapping):
        return "a mapping"
    if isinstance(node, Sequence):
        return "a list"
    assert isinstance(node, Scalar)
    if node.value is None:
        return "empty"
    kinds = {bool: "the boolean", int: "the number", float: "the number", str: "the text"}
    return f"{kinds[type(node.value)]} {literal(node)}"


def literal(node: Node) -> str:
    """As the author wrote it: `1.10` is not `1.1` to whoever reads the message. A longer value is left to them."""
    if isinstance(node, Scalar) and node.value is not None:
        if node.plain is not None and not isinstance(node.value, str):
            return node.plain[:48]
        return shown(node.value)
    if isinstance(node, Sequence) and 0 < len(node.items) <= 3 and all(isinstance(n, Scalar) for n in node.items):
        return f"[{', '.join(map(literal, node.items))}]"
    return "..." if isinstance(node, Scalar) else "[...]"


def mapping_fix(node: Node, expected: inspect.StructType, name: str) -> str:
    fields = sorted(expected.fields, key=lambda field: not field.required)
    last = name.rsplit(".")[-1]
    names = [field.encode_name for field in fields]
    if "glob" in names:
        return f"write {last}: {{glob: {_listed(node)}}}"
    if isinstance(node, Scalar) and node.value is None and not fields[0].required:
        return f"write {last}: {{}}"
    if names == ["min", "max"] and isinstance(node, Scalar):
        # Which of the two was meant cannot be told: what refuses large calls asks from `min` on.
        return f"write {last}: {{min: {literal(node)}}} for this and more, {{max: {literal(node)}}} for this and less"
    if names == ["programs"] and last == "programs":
        return f"name the argument that holds the line: command: {{ARGUMENT: {{programs: {literal(node)}}}}}"
    if isinstance(node, Scalar) and isinstance(node.value, str) and _takes(fields[0], node.value):
        return f"write {last}: {{{names[0]}: {node.value[:MAX_SHOWN]}}}"
    if sum(field.required for field in fields) == 1 == len(fields):
        return f"write {last}: {{{names[0]}: {literal(node)}}}"
    return f"give it fields: {', '.join(names)}"


def _listed(node: Node) -> str:
    """The one value or the several that stand where a list of them is wanted."""
    value = literal(node)
    if isinstance(node, Sequence):
        return value
    return f"[{value if isinstance(node, Scalar) and node.value else '...'}]"


def _takes(field: inspect.Field, text: str) -> bool:
    """Whether a text that stands in place of a mapping was meant as its one required field."""
    if not field.required:
        return False
    if isinstance(field.type, inspect.LiteralType):
        return text in field.type.values
    return field.encode_name == "arg"


def predicate_fix(node: Node, expected: inspect.DictType, name: str) -> str:
    """Predicates on arguments are given for each key; what to compare with is often written without one."""
    if ".args." not in name:
        return "write key: value"
    value, last = literal(node), name.rsplit(".")[-1]
    if isinstance(expected.value_type, inspect.StructType):
        value = f"{{{expected.value_type.fields[0].encode_name}: {value}}}"
    return f"name the argument that it looks at: {last}: {{ARGUMENT: {value}}}"


# What other languages call it, or what one would guess: word -> how it is said here.
_ELSEWHERE = {
    "not": "write `unless` beside match, with what must not hold",
    "none_of": "write `unless` beside match, with what must not hold",
    "except": "write `unless` beside match",
    "all_of": "write its members side by side: all members of match must hold anyway",
    "and": "write its members side by side: all members of match must hold anyway",
    "or": "write any_of: [...], a list of alternatives",
}


def field_fix(key: str, value: Node | None, name: str) -> str | None:
    """For a field that is not there but has a known meaning; None where the nearest name is the better guess."""
    place = name.rsplit(".")[-1].partition("[")[0]
    if place in ("match", "unless", "any_of"):
        return _ELSEWHERE.get(key)
    if place != "args":
        return None
    if "not_" in key or "outside" in key or "without" in key:
        word = "path_within" if "path" in key or "outside" in key else "the predicate"
        return f"write {word} in `unless` beside match: the rule then holds for all others"
    if value is not None and not isinstance(value, Mapping):
        wanted = "key_in" if isinstance(value, Sequence) else "key_equals"
        return f"name a predicate first: {wanted}: {{{key[:MAX_SHOWN]}: {literal(value)}}}"
    return None


def word_fix(node: Node, name: str) -> str | None:
    """For a value that is no word of the contract but says what was meant."""
    if name.endswith("dedupe.key"):
        return f"write key: custom, key_args: {_listed(node)}"
    return None


def scalar_fix(expected: inspect.Type, node: Node) -> str:
    if not isinstance(node, Scalar) or node.value is None:
        return f"write {noun(expected)}, or remove the field"
    text = str(node.value)
    if isinstance(expected, inspect.BoolType):
        word = _TRUE_WORDS.get(text.lower(), text.lower())
        return f"write {word}" if word in ("true", "false") else "write true or false"
    if isinstance(expected, inspect.StrType):
        return f'quote it: "{node.plain if node.plain is not None else text}"'
    digits = _digits(node)
    if digits is not None:
        return f"write {digits}" + (" without quotes" if node.plain is None else "")
    if isinstance(node.value, str) and re.fullmatch(r"[0-9]{1,12} *(ms|s|m|h)", text):
        return f"write the time in milliseconds, without a unit: {_milliseconds(text)}"
    return f"write {noun(expected)}"


def _digits(node: Node) -> str | None:
    """A whole number that was written as text."""
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        return None
    digits = node.value.replace("_", "").replace(",", "")
    return digits if re.fullmatch(r"-?[0-9]+", digits) else None


def _milliseconds(text: str) -> int:
    unit = text.lstrip("0123456789 ")
    return int(text[: -len(unit)]) * {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}[unit]


def options_fix(options: list[inspect.Type], node: Node, name: str = "") -> str:
    if isinstance(node, Sequence) and ".key_equals." in name:
        return f"use key_in for several values: key_in: {{{name.partition('.key_equals.')[2]}: {literal(node)}}}"
    digits = _digits(node)
    if digits is not None and any(isinstance(option, inspect.IntType) for option in options):
        return f"write {digits} without quotes"
    texts = [option for option in options if isinstance(option, inspect.StrType) and option.pattern is None]
    if texts and isinstance(node, Scalar) and node.value is not None:
        return scalar_fix(texts[0], node)
    return f"write {nouns(options)}"


def duration_fix(node: Node) -> str:
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return f"add the unit: {value}s, or {value}ms if these are milliseconds"
    meant = meant_duration(value) if isinstance(value, str) else None
    return f"write {meant}" if meant else "write a whole number and one of ms, s, m, h, d, such as 30s"


def size_fix(text: str) -> str:
    meant = meant_sizes(text)
    if len(meant) == 2:
        thousands, powers_of_two = (f"{spelling} ({size_in_bytes(spelling):,})" for spelling in meant)
        return f"write {thousands} or {powers_of_two}"
    return f"write {meant[0]}" if meant else "write a whole number and one of B, KB, MB, GB, KiB, MiB, GiB"


def duration_out_of_bounds(expected: Any, milliseconds: int) -> str | None:
    """`expected` is the type of the field that takes the same time in milliseconds."""
    if expected.ge is not None and milliseconds < expected.ge:
        return f"at least {expected.ge}ms"
    if expected.le is not None and milliseconds > expected.le:
        return f"at most {expected.le // MILLISECONDS['d']}d"
    return None


def out_of_bounds(expected: Any, value: Any) -> str | None:
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
            return PATTERN_WORDS.get(expected.pattern, f"of the form {expected.pattern}")
    return None


def example(expected: inspect.Type) -> str:
    if is_duration(expected):
        return "1m"
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
    return '"..."' if isinstance(expected, inspect.StrType) else noun(expected)
