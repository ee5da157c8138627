"""What a line from a client is, and which lines two parsers could read differently (one row per class of trick)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subluminal.adapters.stdio.framing import read_line
from subluminal.mcp.message.reading import AMBIGUOUS, BATCH, CALL, CANCEL, PASS, REQUEST, RESPONSE, call_context, id_key
from subluminal.mcp.message.wire import read_reply, read_reply_batch

PLAIN = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"rm","arguments":{"a":1}}}'

CALLS: dict[str, bytes] = {
    "as clients write it": PLAIN,
    "no jsonrpc": b'{"id":7,"method":"tools/call","params":{"name":"rm","arguments":{"a":1}}}',
    "jsonrpc last": b'{"method":"tools/call","params":{"arguments":{"a":1},"name":"rm"},"id":7,"jsonrpc":"2.0"}',
    "white space": b' { "id" : 7 ,\t"method":"tools/call", "params":{"name" :"rm","arguments":{"a":1}} }\t',
    "CRLF": PLAIN + b"\r",
    "escaped method": PLAIN.replace(b"tools/call", b"tools\\/c\\u0061ll"),
    "escaped name": PLAIN.replace(b'"rm"', b'"\\u0072m"'),
    "escaped key": PLAIN.replace(b'"params"', b'"p\\u0061rams"'),
    "further keys": PLAIN[:-1] + b',"extra":[1,{"name":"other"}]}',
    "further params": PLAIN.replace(b'"name"', b'"more":{"name":"other"},"name"'),
    "with _meta": PLAIN.replace(b'"name"', b'"_meta":{"progressToken":1},"name"'),
    "with task": PLAIN.replace(b'"name"', b'"task":{"ttl":1},"name"'),
    "arguments as an array": PLAIN.replace(b'{"a":1}', b"[1,2]"),
    "arguments as text": PLAIN.replace(b'{"a":1}', b'"text"'),
    "numbers beyond 64 bits": PLAIN.replace(b'{"a":1}', b'{"a":123456789012345678901234567890,"b":1e400}'),
    "ten thousand levels": PLAIN.replace(b'{"a":1}', b"[" * 10_000 + b"]" * 10_000),
}


@pytest.mark.parametrize("line", CALLS.values(), ids=CALLS.keys())
def test_every_spelling_on_which_parsers_agree_is_the_same_call(line: bytes) -> None:
    reading = read_line(line)
    assert (reading.kind, reading.tool_name, reading.id_raw) == (CALL, "rm", b"7")


def doubled(member: bytes) -> bytes:
    return PLAIN.replace(b"{", b"{" + member + b",", 1)


def in_params(member: bytes) -> bytes:
    return PLAIN.replace(b'{"name"', b"{" + member + b',"name"', 1)


TRICKS: dict[str, bytes] = {
    "method twice": doubled(b'"method":"ping"'),
    "params twice": doubled(b'"params":{"name":"ls"}'),
    "id twice": doubled(b'"id":8'),
    "name twice": in_params(b'"name":"ls"'),
    "name twice, one escaped": in_params(b'"n\\u0061me":"ls"'),
    "arguments twice": in_params(b'"arguments":{}'),
    "another key of params twice": in_params(b'"x":1,"x":2'),
    "Method": PLAIN.replace(b'"method"', b'"Method"'),
    "METHOD beside method": doubled(b'"METHOD":"ping"'),
    "Name beside name": in_params(b'"Name":"ls"'),
    "Params": PLAIN.replace(b'"params"', b'"Params"'),
    "full-width method": PLAIN.replace(b'"method"', '"ｍｅｔｈｏｄ"'.encode()),
    "long s in params": PLAIN.replace(b'"params"', '"paramſ"'.encode()),
    "a space in the key": PLAIN.replace(b'"method"', b'"method "'),
    "NUL ends the key in C": PLAIN.replace(b'"method"', b'"method\\u0000x"'),
    "NUL ends the method in C": PLAIN.replace(b"tools/call", b"tools/call\\u0000"),
    "NUL ends the name in C": PLAIN.replace(b'"rm"', b'"rm\\u0000.txt"'),
    "Tools/Call": PLAIN.replace(b"tools/call", b"Tools/Call"),
    "a space in the method": PLAIN.replace(b"tools/call", b" tools/call"),
    "full-width method value": PLAIN.replace(b"tools/call", "ｔools/call".encode()),
    "two values on a line": PLAIN + PLAIN,
    "two values, one harmless": b"{}" + PLAIN,
    "trailing bytes": PLAIN + b"x",
    "trailing brace": PLAIN + b"}",
    "BOM": b"\xef\xbb\xbf" + PLAIN,
    "bare CR": b'{"jsonrpc":"2.0","method":"notifications/x","params":\r' + PLAIN + b"\r}",
    "CR in white space": PLAIN.replace(b",", b",\r", 1),
    "two CRs at the end": PLAIN + b"\r\r",
    "raw NUL": PLAIN + b"\x00",
    "vertical tab": b"\x0b" + PLAIN,
    "next line (C1)": "\x85".encode() + PLAIN,
    "line separator": PLAIN + "\u2028".encode() + PLAIN,
    "UTF-16": PLAIN.decode().encode("utf-16-le"),
    "UTF-16 with BOM": PLAIN.decode().encode("utf-16"),
    "UTF-32": PLAIN.decode().encode("utf-32-le"),
    "invalid UTF-8": PLAIN.replace(b'"rm"', b'"rm\xff"'),
    "overlong UTF-8": PLAIN.replace(b'"rm"', b'"\xc1\xb2m"'),
    "raw surrogate": PLAIN.replace(b'"rm"', b'"\xed\xa0\x80"'),
    "lone surrogate in the name": PLAIN.replace(b'"rm"', b'"\\ud800"'),
    "comment": PLAIN.replace(b",", b",/* */", 1),
    "trailing comma": PLAIN[:-1] + b",}",
    "single quotes": PLAIN.replace(b'"', b"'"),
    "NaN": PLAIN.replace(b'"id":7', b'"id":NaN'),
    "Infinity among extras": PLAIN[:-1] + b',"x":-Infinity}',
    "a control character in a string": PLAIN.replace(b'"rm"', b'"rm\x01"'),
    "an escape that does not exist": PLAIN.replace(b'"rm"', b'"\\xrm"'),
    "truncated": PLAIN[:-2],
    "no params": b'{"id":1,"method":"tools/call"}',
    "params as an array": b'{"id":1,"method":"tools/call","params":["rm"]}',
    "no name": b'{"id":1,"method":"tools/call","params":{}}',
    "name as a number": b'{"id":1,"method":"tools/call","params":{"name":1}}',
    "deep, and name twice": in_params(b'"name":"ls"').replace(b'{"a":1}', b"[" * 5000 + b"]" * 5000),
    "deep, and a comment": PLAIN.replace(b'{"a":1}', b"[" * 5000 + b"/**/" + b"]" * 5000),
    "a batch with a lone surrogate": b"[" + PLAIN + b',"\\ud800"]',
    "a batch that is cut": b"[" + PLAIN,
    "words": b"tools/call rm",
}


@pytest.mark.parametrize("line", TRICKS.values(), ids=TRICKS.keys())
def test_what_two_parsers_could_read_differently_is_ambiguous(line: bytes) -> None:
    reading = read_line(line)
    assert reading.kind == AMBIGUOUS
    assert reading.ambiguous


@pytest.mark.parametrize("trick", ["duplicate key", "arguments"])
def test_an_ambiguous_call_is_answered_under_its_id_when_there_is_one(trick: str) -> None:
    line = in_params(b'"name":"ls"' if trick == "duplicate key" else b'"Arguments":{}')
    assert read_line(line).id_raw == b"7"
    assert read_line(PLAIN + b"x").id_raw == b"7"
    assert read_line(b'{"jsonrpc":"2.0","id":NaN,"method":"tools/call"').id_raw is None


HARMLESS: dict[str, tuple[bytes, str]] = {
    "request": (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', REQUEST),
    "unknown method": (b'{"jsonrpc":"2.0","id":"x","method":"tools/callback","params":{"a":1,"a":2}}', REQUEST),
    "notification": (b'{"jsonrpc":"2.0","method":"notifications/initialized"}', PASS),
    "response": (b'{"jsonrpc":"2.0","id":1,"result":{"x":1}}', RESPONSE),
    "cancel": (b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}', CANCEL),
    "blank": (b"", PASS),
    "spaces": (b"  \t", PASS),
    "CR of a blank line": (b"\r", PASS),
    "a number": (b"17", PASS),
    "a string that tells of a call": (json.dumps(PLAIN.decode()).encode(), PASS),
    "line separator inside a string": ('{"method":"notifications/x","params":"\u2028"}'.encode(), PASS),
    "batch": (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', BATCH),
    "empty batch": (b"[]", BATCH),
}


@pytest.mark.parametrize(("line", "kind"), HARMLESS.values(), ids=HARMLESS.keys())
def test_what_is_certainly_no_tool_call_is_not_judged(line: bytes, kind: str) -> None:
    assert read_line(line).kind == kind


def test_every_element_of_a_batch_is_read_on_its_own() -> None:
    line = b" [" + PLAIN + b' , {"id":1,"method":"ping"},17,' + in_params(b'"name":"x"') + b",[" + PLAIN + b"]]"
    kinds = [element.kind for element in read_line(line).elements]
    assert kinds == [CALL, REQUEST, PASS, AMBIGUOUS, AMBIGUOUS]


@pytest.mark.parametrize(
    "raw",
    [
        b"7",
        b"-0",
        b"1.50",
        b"1e3",
        b"null",
        b"true",
        b'"7"',
        b'"\\u0037"',
        b'{"a":[1]}',
        b"123456789012345678901234567890",
    ],
)
def test_an_id_is_kept_byte_for_byte(raw: bytes) -> None:
    assert read_line(PLAIN.replace(b":7", b":" + raw)).id_raw == raw


def test_ids_are_told_apart_by_type_and_value_not_by_spelling() -> None:
    same = [(b'"a"', b'"\\u0061"'), (b"1.0", b"1"), (b"10", b"1e1")]
    different = [(b'"1"', b"1"), (b"null", b'"null"'), (b"true", b"1"), (b"9007199254740993", b"9007199254740992")]
    assert all(id_key(one) == id_key(other) for one, other in same)
    assert all(id_key(one) != id_key(other) for one, other in different)


def test_the_era_is_told_by_the_request_itself() -> None:
    meta = b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}'
    assert read_line(in_params(meta)).era_2026
    assert not read_line(PLAIN).era_2026


def test_the_clients_own_ids_are_kept_and_nothing_else_of_meta() -> None:
    meta = {"claudecode/toolUseId": "toolu_1", "progressToken": 4, "callId": 7, "itemId": "x" * 300, "secret": "s"}
    assert call_context(json.dumps(meta).encode()) == {"claudecode/toolUseId": "toolu_1"}
    assert call_context(b'{"callId":') is None


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[1,2]", b'{"id":1,"method":"ping"}', b'{"result":{}}', b"\xff\xfe", b"[" * 9999]
)
def test_what_is_no_reply_is_none(line: bytes) -> None:
    assert read_reply(line) is None


def test_a_reply_is_found_in_any_order_of_keys() -> None:
    reply = read_reply(b'{"result":{"content":[]},"jsonrpc":"2.0","id":"a"}')
    assert reply is not None
    assert (reply.id_raw, reply.result, reply.error) == (b'"a"', b'{"content":[]}', None)


PIECES = [
    *(bytes([byte]) for byte in b"\"'{}[],:\\\r\x00\xff 1e"),
    *(b"\\u0000", b"\\ud800", b"null", b"/*", b"//", "ｎ".encode(), PLAIN),
    *(b'"method"', b'"tools/call"', b'"params"', b'"name"', b'"rm"', b'"id"'),
]


@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=4), max_size=40).map(b"".join))
def test_any_bytes_are_read_without_a_crash(line: bytes) -> None:
    line = line.replace(b"\n", b"")
    reading = read_line(line)
    assert reading.kind in (PASS, REQUEST, CALL, CANCEL, BATCH, AMBIGUOUS, RESPONSE)
    read_reply(line)
    read_reply_batch(line)
    id_key(line)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["jsonrpc", "id", "method", "params", "x"]), JSON, max_size=5), st.booleans())
def test_valid_json_that_is_no_call_is_never_refused(message: dict[str, object], ascii_only: bool) -> None:
    line = json.dumps(message, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    try:
        line.decode()
    except UnicodeDecodeError:
        return
    if "tools/call" not in str(message.get("method")).casefold():
        assert read_line(line).kind != AMBIGUOUS


@given(JSON, st.text(max_size=10), JSON, st.booleans())
def test_a_call_is_read_as_json_reads_it(arguments: object, name: str, request_id: object, compact: bool) -> None:
    message = {
        "jsonrpc": "2.0",
        "id": request_id,
        "method": "tools/call",
        "params": {"name": name, "arguments": arguments},
    }
    line = json.dumps(message, separators=(",", ":") if compact else None).encode()
    reading = read_line(line)
    if "\0" in name or any(0xD800 <= ord(c) < 0xE000 for c in name):
        assert reading.kind == AMBIGUOUS
        return
    assert (reading.kind, reading.tool_name) == (CALL, name)
    assert reading.id_raw is not None and json.loads(reading.id_raw) == request_id
    assert reading.arguments is not None
    assert json.loads(reading.arguments) == ({} if arguments is None else arguments)
