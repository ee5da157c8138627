"""Results kept whole: nothing where they are not wanted; masked, bounded and vouched for where they are."""

from __future__ import annotations

import io
import json
import zlib
from typing import Any

from subluminal.contracts.identity import Identity, Source
from subluminal.contracts.kept_results import frames
from subluminal.contracts.toolcall import ToolCall
from subluminal.core.engine.bundle import Engine
from subluminal.core.engine.stack import Stack
from subluminal.core.engine.state import LocalState
from subluminal.core.gate.gate import Gate
from subluminal.core.gate.results import Results
from subluminal.core.redact.redactor import Redactor
from subluminal.policy.sources import BUILTIN_OBSERVE

SECRET = "Zq7" + "vK4mXw9bRt2nLd6sHf8j"
IDENTITY = Identity("run-1")
SOURCE = Source("h", "p", "s1")


def gate_with(max_result: int = 1000, max_results: int = 10_000, wanted: tuple[str, ...] = ("fs",)) -> Gate:
    redactor = Redactor([SECRET])
    gate = Gate(IDENTITY, SOURCE, Stack([Engine(BUILTIN_OBSERVE, IDENTITY)]), LocalState(), redactor)
    gate.results = Results(IDENTITY, SOURCE, redactor, lambda name: name in wanted, max_result, max_results)
    return gate


def ended(gate: Gate, raw: bytes | None, server: str = "fs", status: str = "OK") -> dict[str, Any] | None:
    record = gate.judge(ToolCall(server, "read", b'{"a":1}', 10), 0, 0)
    gate.settle(record, status, 0, 0, latency_ms=1, bytes_out=7, result_raw=raw)
    event = json.loads(gate.take().decode().splitlines()[-1])
    assert event["type"] == "tool_call_end"
    kept: dict[str, Any] | None = event.get("result_kept")
    return kept


def kept_in(gate: Gate) -> list[tuple[dict[str, Any], bytes, str]]:
    assert gate.results is not None
    data = gate.results.take()
    if not data:
        return []
    return [(header, zlib.decompress(body), chain.hex()) for header, body, chain in frames(io.BytesIO(data), "run-1")]


def test_a_result_is_kept_byte_for_byte_and_the_end_event_vouches_for_it() -> None:
    gate = gate_with()
    first, second = ended(gate, b'{"content": [1]}'), ended(gate, b'{"code":-1}', status="ERROR")
    (one, body, chain), (other, _, last) = kept_in(gate)
    assert first == {"state": "whole", "bytes": 16, "hash": chain}
    assert second is not None and second["hash"] == last
    assert body == b'{"content": [1]}'
    assert (one["call_id"], one["server_name"], one["tool_name"], one["status"]) == ("s1-1", "fs", "read", "OK")
    assert (other["status"], len(one["args_hash"])) == ("ERROR", 64)


def test_secrets_are_masked_as_in_previews() -> None:
    gate = gate_with()
    kept = ended(gate, json.dumps({"text": SECRET}).encode())
    ((_, body, _),) = kept_in(gate)
    assert kept is not None and kept["state"] == "masked"
    assert SECRET.encode() not in body and json.loads(body) == {"text": "[REDACTED:injected_secret]"}


def test_nothing_is_kept_of_other_servers_or_of_calls_without_a_result() -> None:
    gate = gate_with()
    assert ended(gate, b"{}", server="other") is None
    assert ended(gate, b"", status="TIMEOUT") is None
    assert kept_in(gate) == []


def test_what_is_larger_than_the_bound_is_named_and_not_kept() -> None:
    gate = gate_with(max_result=20)
    assert ended(gate, b"x" * 21) == {"state": "too_large", "bytes": 21}
    assert ended(gate, None) == {"state": "too_large", "bytes": 7}
    assert kept_in(gate) == []


def test_when_there_is_no_more_room_nothing_after_it_is_kept_either() -> None:
    gate = gate_with(max_results=330)
    states = [(ended(gate, b'"%d"' % number) or {}).get("state") for number in range(3)]
    assert states == ["whole", "no_room", "no_room"]
    assert len(kept_in(gate)) == 1


def test_what_a_server_says_is_kept_once() -> None:
    gate = gate_with()
    assert gate.results is not None
    for result in (b'{"tools":[]}', b'{"tools":[]}', b'{"tools":[1]}'):
        gate.results.said("fs", "tools/list", result)
    gate.results.said("other", "tools/list", b"{}")
    assert [(header["method"], body) for header, body, _ in kept_in(gate)] == [
        ("tools/list", b'{"tools":[]}'),
        ("tools/list", b'{"tools":[1]}'),
    ]


def test_without_them_an_end_says_nothing_of_it() -> None:
    gate = gate_with()
    gate.results = None
    assert ended(gate, b"{}") is None
