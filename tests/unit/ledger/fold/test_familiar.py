"""A line that is read by its familiar envelope is read as `reading` reads it, or not at all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from harness.ledger import EventMaker
from subluminal.contracts.vocabulary import INTERFACE_VERSION
from subluminal.ledger.fold.familiar import Familiar
from subluminal.ledger.fold.reading import AnyEvent, BadEvent, read_event

ENVELOPE = {"v", "run_id", "agent_id", "client", "env", "principal", "workload"}


def lines_of_a_call(maker: EventMaker) -> list[bytes]:
    would = {"action": "BLOCK", "rule_id": "r", "severity": "warn", "explain": {"summary": "s", "reason_code": "R"}}
    return [
        maker.start(tags=["a"], call_context={"claudecode/toolUseId": "t"}, preview="ä\n\u0007"),
        maker.decision("ALLOW", would=would, backoff_ms=3),
        maker.end("ERROR", error={"class": "timeout", "code": 3}, overhead_us=4, waited_ms=2),
    ]


def check(event: Any, line: bytes, known: AnyEvent) -> None:
    """`event` was read of the line by its envelope, which is that of `known`."""
    read = read_event(line)
    told = asdict(event)
    assert told.pop("ts") == read.ts and told.pop("source").seq == read.source.seq
    everything = asdict(read)
    assert (everything.pop("source").shim_id, everything.pop("ts")) == (known.source.shim_id, read.ts)
    assert {name: everything.pop(name) for name in ENVELOPE} == {name: getattr(known, name) for name in ENVELOPE}
    assert told == everything


@pytest.mark.parametrize("identity", [True, False])
def test_the_events_of_a_call_are_read_by_their_envelope(identity: bool) -> None:
    maker = EventMaker('run "1" ä', "shim-1", identity=identity)
    # `json` would escape what is not ASCII, which our producers do not.
    known = read_event(json.dumps(json.loads(maker.run_start()), ensure_ascii=False, separators=(",", ":")).encode())
    familiar = Familiar(known)
    for seq, line in enumerate(lines_of_a_call(maker), 2):
        plain = json.dumps(json.loads(line), ensure_ascii=False, separators=(",", ":")).encode()
        event = familiar.read(plain, seq)
        assert event is not None
        check(event, plain, known)
        assert familiar.read(plain, seq + 1) is None and familiar.read(plain, seq - 1) is None


def test_three_in_a_row_are_told_at_once_and_anything_else_one_by_one() -> None:
    maker = EventMaker("run-1", "shim-1")
    familiar = Familiar(read_event(maker.run_start()))
    start, decision, end = lines = lines_of_a_call(maker)
    assert [type(event).__name__ for event in familiar.events(lines, 0, 2)] == [
        "ToolCallStart",
        "ToolCallDecision",
        "ToolCallEnd",
    ]
    assert len(familiar.events(lines, 1, 3)) == 1
    assert len(familiar.events([start, decision], 0, 2)) == 1
    assert len(familiar.events([start, end, decision], 0, 2)) == 1
    assert familiar.events([maker.run_end()], 0, 5) == []


AGAIN = ('"run_id":"other"', '"source":{}', '"ts":"x"', '"type":"run_end"', '" ts":"y"', '" seq":{"seq":9}', '"new":1')


@given(data=st.data())
def test_whatever_a_line_holds_it_is_read_alike_or_left_to_the_reader(data: st.DataObject) -> None:
    maker = EventMaker("run-1", "shim-1")
    known = read_event(maker.run_start())
    which = data.draw(st.integers(0, 2))
    line = bytearray(lines_of_a_call(maker)[which])
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(line) - 1))
        how = data.draw(st.sampled_from(("change", "cut", "put in", "again", "swap")))
        if how == "change":
            line[place] = data.draw(st.integers(0, 255))
        elif how == "cut":
            del line[place : place + data.draw(st.integers(1, 4))]
        elif how == "put in":
            line[place:place] = data.draw(
                st.sampled_from((b" ", b"0", b"\\", b'"', b"}", b"{", b",", b"\xff", b"\\u0000"))
            )
        elif how == "again":
            line[-1:] = b"," + data.draw(st.sampled_from(AGAIN)).encode() + b"}"
        else:
            line = bytearray(line.replace(b'"call":', b'"ts":"z","call":'))
        if not line:
            return
    event = Familiar(known).read(bytes(line), which + 2)
    if event is not None:
        check(event, bytes(line), known)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"ts":"2023-11-14T22:13:20', b'"ts":"2023-11-14T25:13:20'),
        (b'"ts":"2023-11-14T22:13:20', b'"ts":"2023-02-30T22:13:20'),
        (b'"seq":2}', b'"seq":02}'),
        (INTERFACE_VERSION.encode(), b"9.2.0"),
        (b'"client":"claude"', b'"client":"nobody"'),
        (b'"bytes_in":170', b'"bytes_in":-1'),
    ],
)
def test_what_the_reader_refuses_is_not_familiar(old: bytes, new: bytes) -> None:
    maker = EventMaker("run-1", "shim-1")
    familiar = Familiar(read_event(maker.run_start()))
    line = maker.start()
    assert familiar.read(line, 2) is not None and old in line
    assert familiar.read(line.replace(old, new), 2) is None
    with pytest.raises(BadEvent):
        read_event(line.replace(old, new))
