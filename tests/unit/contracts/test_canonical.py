"""Canonical JSON: goldens, exact numbers, and the errors."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal

import pytest

from harness import places
from harness.effort import cpu_ratio
from subluminal.contracts.canonical import (
    KINDS,
    MAX_DEPTH,
    MAX_ZEROS,
    DuplicateKeyError,
    args_hash,
    canonical_bytes,
    parse,
    read_args,
)
from subluminal.contracts.errors import CanonicalError

GOLDENS = json.loads((places.FIXTURES / "canonical.json").read_text("utf-8"))


@pytest.mark.contract("HASH-002")
@pytest.mark.parametrize("golden", GOLDENS, ids=[golden["json"][:40] for golden in GOLDENS])
def test_golden_text_has_its_canonical_form_and_hash(golden):
    raw = golden["json"].encode()
    for _ in range(3):
        assert canonical_bytes(raw) == golden["canonical"].encode()
        assert args_hash(raw) == golden["args_hash"]


@pytest.mark.contract("HASH-001")
def test_order_of_keys_does_not_matter_at_any_level():
    a = b'{"tool":{"x":1,"y":[{"p":1,"q":2}]},"all":true}'
    b = b'{"all":true,"tool":{"y":[{"q":2,"p":1}],"x":1}}'
    assert args_hash(a) == args_hash(b)


def test_order_of_array_items_does_matter():
    assert args_hash(b"[1,2]") != args_hash(b"[2,1]")


def test_integers_that_differ_only_beyond_a_double_hash_differently():
    assert args_hash(b'{"n":9007199254740993}') != args_hash(b'{"n":9007199254740992}')


def test_a_string_a_number_and_a_boolean_are_three_things():
    assert len({args_hash(raw) for raw in (b'"1"', b"1", b"true")}) == 3


def test_parsed_numbers_are_exact():
    value = parse(b'{"a":1.0,"b":0.1,"c":1e2,"d":12345678901234567890123,"e":0.30000000000000001,"f":1e-7}')
    assert value == {
        "a": 1,
        "b": Decimal("0.1"),
        "c": 100,
        "d": 12345678901234567890123,
        "e": Decimal("0.30000000000000001"),
        "f": Decimal("1e-7"),
    }
    assert type(value["a"]) is int and type(value["c"]) is int


def test_value_and_canonical_form_come_from_one_reading():
    value, canonical = read_args(b' { "b" : "\\u0041" , "a" : 1.50 } ')
    assert value == {"a": Decimal("1.5"), "b": "A"}
    assert canonical == b'{"a":1.5,"b":"A"}'


@pytest.mark.parametrize(
    ("value", "canonical"),
    [
        ({"b": 2, "a": (1, 2.0)}, b'{"a":[1,2],"b":2}'),
        (1e22, b"10000000000000000000000"),
        (5e-324, b"0." + b"0" * 323 + b"5"),
        (-0.0, b"0"),
        (Decimal("1.500"), b"1.5"),
        (Decimal("1e999999999"), b"1e999999999"),
        (True, b"true"),
        ("text", b'"text"'),
    ],
)
def test_python_values_have_the_same_form_as_their_json(value, canonical):
    assert canonical_bytes(value) == canonical


def test_integers_beyond_what_python_prints_have_their_form():
    assert canonical_bytes(10**5000) == b"1e5000"
    assert canonical_bytes([10**5000 + 1]) == b"[1" + b"0" * 4999 + b"1]"


def test_a_value_that_was_parsed_has_the_form_it_was_parsed_from():
    raw = b"[1e-9,1e500,0.5,1e5,%s]" % (b"7" * 5000)
    value, canonical = read_args(raw)
    assert canonical_bytes(value) == canonical


def test_padding_zeros_end_at_the_documented_bound():
    assert canonical_bytes(b"1e%d" % MAX_ZEROS) == b"1" + b"0" * MAX_ZEROS
    assert canonical_bytes(b"1e%d" % (MAX_ZEROS + 1)) == b"1e%d" % (MAX_ZEROS + 1)
    assert canonical_bytes(b"1e-%d" % (MAX_ZEROS + 1)) == b"0." + b"0" * MAX_ZEROS + b"1"
    assert canonical_bytes(b"1e-%d" % (MAX_ZEROS + 2)) == b"1e-%d" % (MAX_ZEROS + 2)


@pytest.mark.parametrize("zeros", [MAX_ZEROS - 1, MAX_ZEROS, MAX_ZEROS + 1, 4000, 5000])
def test_a_long_integer_and_its_exponent_spelling_are_one_number(zeros):
    written_out = b"[-3" + b"0" * zeros + b"]"
    assert canonical_bytes(written_out) == canonical_bytes(b"[-3e%d]" % zeros)
    assert parse(written_out) == parse(b"[-3e%d]" % zeros)


def test_a_string_of_many_zeros_is_left_alone():
    raw = b'["' + b"0" * 5000 + b'"]'
    assert canonical_bytes(raw) == raw


def test_huge_exponents_and_huge_integers_cost_next_to_nothing():
    hostile = [
        b"1e999999999",
        b"-1e-999999999",
        b"9" * 1_000_000,
        b"0." + b"1" * 1_000_000,
        b"1e" + b"0" * 900_000 + b"1",
    ]
    for raw in hostile:
        assert len(canonical_bytes(raw)) <= len(raw) + 2
        text = b'"' + raw + b'"'
        assert cpu_ratio(lambda: canonical_bytes(raw), lambda: canonical_bytes(text), limit=100) < 100  # noqa: B023


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b'{"a":1,"a":1}', "duplicate_key"),
        (b'{"a":1,"\\u0061":2}', "duplicate_key"),
        (b'{"x":[{"a":1.5, "a":1.5}]}', "duplicate_key"),
        (b'{"a":"\\u003a","a":1}', "duplicate_key"),
        (b'{"a":"\\\\u003a","b":1,"b":1}', "duplicate_key"),
        (b'{"a":1e2,"b":"x:y","b":"\\u003A\\u003A:"}', "duplicate_key"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "too_deep"),
        (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "too_deep"),
        (b"[" * 1_000_000, "too_deep"),
        (b'"\xff"', "invalid_utf8"),
        (b'"\xed\xa0\x80"', "invalid_utf8"),
        (b'{"\xc0\x80":1}', "invalid_utf8"),
        (b'"\\ud800"', "lone_surrogate"),
        (b'{"\\udc00":1}', "lone_surrogate"),
        (b'"\\ud83d\\ud83d"', "lone_surrogate"),
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"[1,]", "invalid_json"),
        (b"[01]", "invalid_json"),
        (b"[1.]", "invalid_json"),
        (b"'a'", "invalid_json"),
        (b'"a\x00b"', "invalid_json"),
        (b"\xef\xbb\xbf{}", "invalid_json"),
        (b"{} {}", "trailing_bytes"),
        (b"{}\x00", "trailing_bytes"),
        (b"NaN", "not_finite"),
        (b'{"a":-Infinity}', "not_finite"),
        (b"1e99999999999999999999", "number_out_of_range"),
        (b"1.5e" + b"9" * 5000, "number_out_of_range"),
    ],
    ids=lambda x: x if isinstance(x, str) else repr(x[:30]),
)
def test_bytes_that_are_not_one_unambiguous_value_are_refused(raw, kind):
    with pytest.raises(CanonicalError) as caught:
        canonical_bytes(raw)
    assert caught.value.kind == kind
    assert kind in KINDS


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (float("nan"), "not_finite"),
        (float("-inf"), "not_finite"),
        (Decimal("NaN"), "not_finite"),
        ({1: 2}, "invalid_value"),
        ({"a": b"bytes"}, "invalid_value"),
        ({"a": {1, 2}}, "invalid_value"),
        (["\ud800"], "lone_surrogate"),
    ],
    ids=repr,
)
def test_values_that_json_cannot_say_are_refused(value, kind):
    with pytest.raises(CanonicalError) as caught:
        canonical_bytes(value)
    assert caught.value.kind == kind


def test_a_value_that_contains_itself_is_too_deep():
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(CanonicalError) as caught:
        canonical_bytes(loop)
    assert caught.value.kind == "too_deep"


def test_the_deepest_value_allowed_is_read_by_every_path():
    for inner in (b"", b" ", b"0.5", b"1e-9", b'"\\u0041"'):
        raw = b"[" * MAX_DEPTH + inner + b"]" * MAX_DEPTH
        value, canonical = read_args(raw)
        assert canonical_bytes(value) == canonical


def test_many_shallow_containers_are_not_deep():
    raw = b"[" + b",".join([b'{"a":[1]}'] * 1000) + b"]"
    assert canonical_bytes(raw) == raw


def test_the_duplicate_key_is_known_but_never_in_the_message():
    with pytest.raises(DuplicateKeyError) as caught:
        parse(b'{"hunter2":1,"hunter2":2}')
    assert caught.value.key == "hunter2"
    assert "hunter2" not in str(caught.value)


def test_syntax_errors_give_the_byte_and_quote_nothing():
    with pytest.raises(CanonicalError, match="at byte 18") as caught:
        parse('{"é":"hunter2 é"x}'.encode())
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


def test_ordinary_arguments_never_import_json():
    program = (
        "import sys; from subluminal.contracts.canonical import read_args\n"
        """for raw in (b'{"b": 1, "a": "\\u003a"}', b'{"x":[1.5,1e-9,1e2]}', b'{}'): read_args(raw)\n"""
        "sys.exit('json' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
