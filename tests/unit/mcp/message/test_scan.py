"""The streaming scan sees what a whole parser sees, wherever the chunks are cut, and distrusts the rest."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subluminal.mcp.message import scan as scan_module
from subluminal.mcp.message.exact import read_scan
from subluminal.mcp.message.reading import AMBIGUOUS
from subluminal.mcp.message.scan import MessageScan

CALL = (
    '{"jsonrpc":"2.0","id":"a\\"b","method":"tools/call","params":{"name":"rm","arguments":{"a":["}",{"b":"\\\\"}]}}}'
)


def scanned(data: bytes, *cuts: int, strict: bool = True) -> MessageScan:
    scan = MessageScan(strict)
    edges = [0, *sorted(cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        scan.feed(data[start:end])
    scan.finish()
    return scan


def test_every_cut_in_two_reads_the_same() -> None:
    data = CALL.encode()
    whole = scanned(data)
    assert whole.ambiguous is None
    assert whole.values["params.name"] == b'"rm"'
    assert whole.values["id"] == b'"a\\"b"'
    for cut in range(len(data) + 1):
        part = scanned(data, cut)
        assert (part.values, part.keys, part.ambiguous) == (whole.values, whole.keys, None), cut


def test_pieces_that_lie_inside_a_text_are_read_as_they_are_with_its_quotes() -> None:
    """Such pieces are passed over quickly: nothing that makes a message ambiguous may be missed in them."""
    made = random.Random(7)
    parts = (b"a", b"zz ", b"\\n", b"\\\\", b'\\"', b"{", b"]", b"\t", b"\x01", "é".encode(), b"\xff")
    doubted = 0
    for _ in range(2_000):
        text = b"".join(made.choices(parts, weights=(9, 9, 9, 9, 9, 3, 3, 0.2, 0.1, 3, 0.1), k=made.randint(0, 40)))
        arguments = b'{"deep":[{"t":"%s"}]}' % text
        message = b'{"id":1,"method":"tools/call","params":{"name":"e","arguments":%s}}' % arguments
        whole, cut = MessageScan(), MessageScan()
        whole.feed(message)
        for at in range(0, len(message), 5):
            cut.feed(message[at : at + 5])
        for scan in (whole, cut):
            scan.finish()
        assert (whole.ambiguous is None) is (cut.ambiguous is None), message
        assert (whole.values, whole.keys) == (cut.values, cut.keys)
        doubted += whole.ambiguous is not None
        if whole.ambiguous is None:
            assert whole.args_raw_hash == cut.args_raw_hash == hashlib.sha256(arguments).hexdigest()
    assert 100 < doubted < 1_900


def test_byte_by_byte_reads_the_same() -> None:
    data = CALL.encode()
    assert scanned(data, *range(1, len(data))).values == scanned(data).values


def reference(value: dict[str, Any]) -> dict[str, Any]:
    """What the scan should have found, from a whole parse: scalars by value, containers by kind."""
    found: dict[str, Any] = {}
    for key, item in value.items():
        if key in ("params", "result") and isinstance(item, dict):
            found.update({f"{key}.{inner}": _kind(deep) for inner, deep in item.items()})
        else:
            found[key] = _kind(item)
    return found


def _kind(value: Any) -> Any:
    return type(value)() if isinstance(value, dict | list) else value


NAMES = ["method", "id", "params", "result", "name", "arguments", "x", "jsonrpc"]
PROTOCOL_NAMES = {*NAMES, *(f"{container}.{name}" for container in ("params", "result") for name in NAMES)}
KEYS = st.sampled_from(NAMES)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=15,
)
MESSAGES = st.dictionaries(KEYS, JSON | st.dictionaries(KEYS, JSON, max_size=5), max_size=6)


@given(MESSAGES, st.lists(st.integers(0, 400), max_size=6), st.sampled_from([None, 0, 1]), st.booleans())
def test_it_finds_what_a_whole_parser_finds(
    message: dict[str, Any], cuts: list[int], indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(message, ensure_ascii=ascii_only, indent=indent).replace("\n", " ")
    data = text.encode("utf-8", "surrogatepass")
    scan = scanned(data, *(min(cut, len(data)) for cut in cuts))
    try:
        data.decode()
    except UnicodeDecodeError:
        assert scan.ambiguous == "invalid UTF-8"
        return
    assert scan.ambiguous is None
    found = {key: json.loads(raw) for key, raw in scan.values.items()}
    assert all(found.get(key) == value for key, value in reference(message).items() if key in PROTOCOL_NAMES)
    assert PROTOCOL_NAMES & found.keys() == PROTOCOL_NAMES & reference(message).keys()


@given(st.binary(max_size=60), st.integers(0, 60))
def test_any_bytes_are_scanned_without_a_crash_and_only_json_objects_pass(data: bytes, cut: int) -> None:
    scan = scanned(data, min(cut, len(data)))
    if scan.ambiguous is None:
        assert data.strip(b" \t\r")[:1] == b"{"


HEAD = b'{"id":1,"method":"tools/call","params":{"arguments":'
BIG = b'"' + b"x" * 70_000 + b'"'

TRICKS: dict[str, bytes] = {
    "single quotes hide a name": HEAD + b"""{"a":'"'},"name":"rm","x":{"b":'"'},"name":"ls"}}""",
    "a comment hides a name": HEAD + b"""{"a":1/*"*/},"name":"rm","x":{"b":1/*"*/},"name":"ls"}}""",
    "a hash comment": HEAD + b"""[#"] ],"name":"ls"}}""",
    "a scalar that is none": b"""{"id":'",,"method":"tools/call","params":{"name":"ls"}}""",
    "a backslash outside strings": b"""{"id":1,"method":"tools/call","params":{"arguments":[\\"],"name":"ls"}}""",
    "NaN in arguments": b'{"id":1,"method":"tools/call","params":{"arguments":[NaN],"name":"ls"}}',
    "name twice": b'{"id":1,"method":"tools/call","params":{"name":"ls","arguments":' + BIG + b',"name":"rm"}}',
    "Name": b'{"id":1,"method":"tools/call","params":{"Name":"rm","name":"ls"}}',
    "method twice": b'{"id":1,"method":"ping","params":{"name":"rm"},"method":"tools/call"}',
    "a variant of the method": b'{"id":1,"method":"TOOLS/CALL","params":{"name":"rm"}}',
    "NUL in the name": b'{"id":1,"method":"tools/call","params":{"name":"rm\\u0000x"}}',
    "an escaped key": b'{"id":1,"method":"tools/call","params":{"n\\u0061me":"rm","name":"ls"}}',
    "params escaped": b'{"id":1,"method":"tools/call","p\\u0061rams":{"name":"rm"}}',
    "two values": b'{"id":1,"method":"ping"}{"id":1,"method":"tools/call","params":{"name":"rm"}}',
    "a batch": b'[{"id":1,"method":"tools/call","params":{"name":"rm"}}]',
    "a bare CR": b'{"id":1,"method":"ping","params":\r{}}',
    "a name too long": b'{"id":1,"method":"tools/call","params":{"name":' + BIG + b"}}",
    "an id too long": b'{"id":' + BIG + b',"method":"tools/call","params":{"name":"ls"}}',
    "an id that is an object": b'{"id":{"a":1},"method":"tools/call","params":{"name":"ls"}}',
    "a number too long": b'{"id":' + b"1" * 70_000 + b',"method":"tools/call","params":{"name":"ls"}}',
    "cut off": b'{"id":1,"method":"tools/call","params":{"name":"ls"}',
    "cut off in an escape": b'{"id":1,"method":"tools/call","params":{"name":"ls\\',
    "cut off in a character": b'{"id":1,"method":"ping","params":"\xc3',
    "a BOM": b'\xef\xbb\xbf{"id":1,"method":"ping"}',
}  # fmt: skip


@pytest.mark.parametrize("data", TRICKS.values(), ids=TRICKS.keys())
def test_a_message_that_is_only_scanned_gives_no_more_away_than_one_that_is_read(data: bytes) -> None:
    rng = random.Random(1)
    for _ in range(10):
        scan = scanned(data, *(rng.randrange(len(data)) for _ in range(3)))
        assert read_scan(scan).kind == AMBIGUOUS


def test_a_reply_is_followed_through_bytes_that_would_make_a_request_ambiguous() -> None:
    data = b'{"result":{"content":["\xff\x00",{"x":\'y\'}],"isError":true,"name":' + BIG + b'},"id":12}\r'
    scan = scanned(data, 30, 40, strict=False)
    assert scan.values["id"] == b"12"
    assert scan.values["result.isError"] == b"true"


def test_memory_stays_bounded_however_many_members_there_are() -> None:
    scan = MessageScan()
    scan.feed(b'{"params":{')
    for number in range(scan_module.MAX_FOLLOWED_MEMBERS + 10):
        scan.feed(b'"k%d":1,' % number)
    assert scan.ambiguous == "too many members"
    assert len(scan.keys) <= scan_module.MAX_FOLLOWED_MEMBERS


@settings(max_examples=50)
@given(st.integers(1, 3000), st.integers(1, 500))
def test_nesting_is_followed_to_its_end_whatever_its_depth(depth: int, step: int) -> None:
    data = b'{"x":' + b'[{"a":' * depth + b'"]}"' + b"}]" * depth + b',"id":5}'
    scan = scanned(data, *range(step, len(data), step))
    assert scan.ambiguous is None
    assert scan.values["id"] == b"5"


ARGUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
BLANKS = st.text(" \t", max_size=3)


@given(ARGUMENTS, st.lists(st.integers(0, 600), max_size=8), BLANKS, BLANKS, st.booleans(), st.booleans())
def test_arguments_are_hashed_as_they_were_sent_wherever_the_chunks_are_cut(
    value: Any, cuts: list[int], before: str, after: str, plain: bool, last: bool
) -> None:
    sent = json.dumps(value, ensure_ascii=plain, indent=1 if last else None).replace("\n", " ").encode()
    member = b'"arguments":%s%s%s' % (before.encode(), sent, after.encode())
    name = b'"name":"arguments"'
    params = b"{%s}" % b",".join([name, member] if last else [member, name])
    data = b'{"arguments":[1],"method":"tools/call","params":%s,"id":1,"result":{"arguments":2}}' % params
    scan = scanned(data, *(min(cut, len(data)) for cut in cuts))
    assert scan.args_raw_hash == hashlib.sha256(sent).hexdigest()
    assert scan.ambiguous is None
    assert read_scan(scan).args_raw_hash == scan.args_raw_hash


def test_where_there_are_no_arguments_there_is_no_hash_of_them() -> None:
    for params in ("{}", '{"name":"t"}', '[{"arguments":{}}]', '{"more":{"arguments":{}}}'):
        data = f'{{"method":"tools/call","params":{params},"arguments":{{}}}}'
        assert scanned(data.encode()).args_raw_hash is None


def test_a_message_that_is_ambiguous_or_not_a_request_costs_no_hash() -> None:
    twice = b'{"method":"tools/call","params":{"name":"t","arguments":{},"arguments":{}}}'
    assert read_scan(scanned(twice)).args_raw_hash is None
    assert scanned(CALL.encode(), strict=False).args_raw_hash is None
