"""Canonical JSON under random values, random spellings of them, and random bytes."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from subluminal.contracts import canonical
from subluminal.contracts.canonical import args_hash, canonical_bytes, read_args
from subluminal.contracts.errors import CanonicalError

ROUNDS = settings(max_examples=150, deadline=None, derandomize=True, database=None)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    [":", '":', "\\u003a", "<&>", "\x7f"]
)
numbers = (
    st.integers()
    | st.integers(-(10**40), 10**40)
    | st.decimals(allow_nan=False, allow_infinity=False, places=6)
    | st.builds(lambda c, e: Decimal(c).scaleb(e), st.integers(-9999, 9999), st.integers(-700, 700))
)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=20,
)
seeds = st.integers(0, 2**32)


def spell(value: Any, rnd: random.Random) -> str:
    """One of the many JSON texts that mean this value."""
    return spell_space(rnd) + spell_value(value, rnd) + spell_space(rnd)


def spell_value(value: Any, rnd: random.Random) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return spell_string(value, rnd)
    if isinstance(value, int | Decimal):
        return spell_number(Decimal(value), rnd)
    if isinstance(value, list):
        return "[" + ",".join(spell(item, rnd) for item in value) + spell_space(rnd) + "]"
    members = list(value.items())
    rnd.shuffle(members)
    pairs = (spell_space(rnd) + spell_string(k, rnd) + spell_space(rnd) + ":" + spell(v, rnd) for k, v in members)
    return "{" + ",".join(pairs) + spell_space(rnd) + "}"


def spell_space(rnd: random.Random) -> str:
    return "".join(rnd.choices(" \t\r\n", k=rnd.choice([0, 0, 0, 1, 3])))


def spell_string(text: str, rnd: random.Random) -> str:
    return '"' + "".join(spell_character(c, rnd) for c in text) + '"'


def spell_character(c: str, rnd: random.Random) -> str:
    plain = json.dumps(c, ensure_ascii=False)[1:-1]
    if rnd.random() < 0.7:
        return plain
    units = c.encode("utf-16-be")
    escaped = "".join(f"\\u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2))
    return rnd.choice([escaped, escaped.upper().replace("U", "u"), "\\/" if c == "/" else plain])


def spell_number(number: Decimal, rnd: random.Random) -> str:
    sign, digits, exponent = number.as_tuple()
    coefficient = "".join(map(str, digits)) + "0" * (zeros := rnd.choice([0, 0, 1, 3]))
    assert isinstance(exponent, int)
    exponent -= zeros
    prefix = "-" if sign else ""
    style = rnd.choice(["plain", "exponent", "shifted"])
    if style == "plain" or coefficient.strip("0") == "":
        return prefix + plainly(coefficient, exponent)
    if style == "exponent":
        return f"{prefix}{coefficient.lstrip('0')}{rnd.choice('eE')}{exponent:{rnd.choice(['', '+'])}d}"
    shift = rnd.randint(-5, 5)
    return f"{prefix}{plainly(coefficient, shift)}e{exponent - shift}"


def plainly(coefficient: str, exponent: int) -> str:
    if exponent >= 0:
        return (coefficient + "0" * exponent).lstrip("0") or "0"
    padded = coefficient.rjust(1 - exponent, "0")
    return (padded[:exponent].lstrip("0") or "0") + "." + padded[exponent:]


@ROUNDS
@given(values, seeds, seeds)
def test_every_spelling_of_a_value_has_one_canonical_form(value, one, other):
    first = spell(value, random.Random(one)).encode()
    second = spell(value, random.Random(other)).encode()
    assert canonical_bytes(first) == canonical_bytes(second) == canonical_bytes(value)


@ROUNDS
@given(values, values, seeds)
def test_different_values_have_different_hashes(a, b, seed):
    assume(not same(a, b))
    assert args_hash(spell(a, random.Random(seed)).encode()) != args_hash(spell(b, random.Random(seed)).encode())


@ROUNDS
@given(values, seeds)
def test_any_small_change_of_a_value_changes_its_hash(value, seed):
    changed = change(value, random.Random(seed))
    assert args_hash(value) != args_hash(changed)


def same(a: Any, b: Any) -> bool:
    """Equality of JSON values: unlike in Python, true is not 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


def change(value: Any, rnd: random.Random) -> Any:
    """The same value, but for one leaf, key or item."""
    if value is None or isinstance(value, bool):
        return 0 if value is None else not value
    if isinstance(value, str):
        return value + rnd.choice(["a", " ", "\u0301", "\x00"])
    if isinstance(value, int):
        return value + rnd.choice([-1, 1])
    if isinstance(value, Decimal):
        return value.next_plus()
    if isinstance(value, list):
        if not value or rnd.random() < 0.3:
            return [*value, None]
        at = rnd.randrange(len(value))
        return [*value[:at], change(value[at], rnd), *value[at + 1 :]]
    if not value or rnd.random() < 0.3:
        return {**value, "a new key that is long enough": None}
    key = rnd.choice(sorted(value))
    return {**value, key: change(value[key], rnd)}


@ROUNDS
@given(values, seeds)
def test_the_fast_and_the_exact_path_agree(value, seed):
    raw = spell(value, random.Random(seed)).encode()
    fast_value, fast_canonical = read_args(raw)
    exact_value, exact_canonical = canonical._read_exactly(raw)
    assert fast_canonical == exact_canonical
    assert same(fast_value, exact_value)
    assert same(fast_value, value)


@ROUNDS
@given(values)
def test_the_canonical_form_is_json_and_its_own_canonical_form(value):
    form = canonical_bytes(value)
    assert canonical_bytes(form) == form
    json.loads(form, parse_int=Decimal, parse_float=Decimal)


@ROUNDS
@given(st.dictionaries(texts, values, min_size=1, max_size=5), seeds)
def test_a_repeated_key_is_found_in_any_spelling(members, seed):
    rnd = random.Random(seed)
    pairs = list(members.items())
    pairs.append((rnd.choice(pairs)[0], rnd.choice(pairs)[1]))
    rnd.shuffle(pairs)
    raw = "{" + ",".join(spell_string(k, rnd) + spell_space(rnd) + ":" + spell(v, rnd) for k, v in pairs) + "}"
    try:
        canonical_bytes(rnd.choice(["%s", "[%s]", '{"a":%s}']).replace("%s", raw).encode())
    except CanonicalError as error:
        assert error.kind == "duplicate_key"
    else:
        raise AssertionError("the repeated key was not found")


FRAGMENTS = [
    *(bytes([byte]) for byte in b'"\\{}[]:,10-.e \na\x00\xff'),
    *(b"\\u", b"\\u003a", b"\\ud800", b"\xc3\xa9", b"true", b"null", b"NaN", b"9" * 700, b"[" * 300),
]


def read_alike_by_both_paths(raw: bytes) -> None:
    try:
        fast = read_args(raw)[1]
    except CanonicalError as error:
        assert error.kind in canonical.KINDS
        fast = None
    try:
        exact = canonical._read_exactly(raw)[1]
    except CanonicalError:
        exact = None
    assert fast == exact


@settings(ROUNDS, max_examples=600)
@given(st.binary(max_size=60) | st.lists(st.sampled_from(FRAGMENTS), max_size=14).map(b"".join))
def test_no_bytes_can_do_more_than_be_refused(raw):
    read_alike_by_both_paths(raw)


@ROUNDS
@given(values, seeds, st.data())
def test_damaged_json_is_read_or_refused_alike_by_both_paths(value, seed, data):
    raw = bytearray(spell(value, random.Random(seed)).encode())
    at = data.draw(st.integers(0, max(0, len(raw) - 1)))
    raw[at : at + data.draw(st.integers(0, 2))] = data.draw(st.sampled_from(FRAGMENTS))
    read_alike_by_both_paths(bytes(raw))
