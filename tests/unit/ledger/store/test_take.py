"""A journal is taken in by whole pieces: the ledger that this makes is the one that line after line would make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.ledger import OURS, THEIRS, EventMaker
from subluminal.ledger.fold.reading import BadEvent
from subluminal.ledger.store.writer import Store

FLAGS = {"truncated": True, "args_preview": "***", "redaction_flags": ["token"]}
WOULD = {"action": "BLOCK", "rule_id": "r", "severity": "warn", "explain": {"summary": "s", "reason_code": "R"}}
HINT = {"hint_text": "do not", "suggested_args": {"a": 1}, "retry_advice": None, "hint_kind": "SAFETY"}
ERROR = {"class": "upstream_error", "message": "no", "code": 7}
STARTS: list[dict[str, Any]] = [
    {"tags": ["a", "b"]},
    {"call_context": {"claudecode/toolUseId": "use-1"}},
    {"observed": True},
    {"ambiguous": "two readings"},
    {"args_stream_hash": "f" * 64},
    {"continues": "x"},
    {"preview": "x" * 5000},
]
DECISIONS: list[dict[str, Any]] = [{"rule_id": "ok"}, {"would": WOULD}, {"backoff_ms": 3}, {"hint": HINT}]
ENDS: list[dict[str, Any]] = [{"overhead_us": 7}, {"error": ERROR}, {"waited_ms": 2}, {"result_stream_hash": "e" * 64}]
HOW = ("twice", "again", "hint", "late decision", "no end", "flags", "cut short", "theirs", "restart")
# Half of the calls are like most calls, or the short way would hardly be gone.
plain = st.just(dict[str, Any]())
call_parts = st.tuples(
    st.one_of(plain, st.sampled_from(STARTS)),
    st.one_of(plain, st.sampled_from(DECISIONS)),
    st.one_of(plain, st.sampled_from(ENDS)),
    st.one_of(st.just(""), st.sampled_from(HOW)),
)


def told(maker: EventMaker, other: EventMaker, parts: tuple[Any, ...]) -> list[bytes]:
    start, decision, end, how = parts
    lines = [maker.start(**start), maker.decision(**decision), maker.end(**end)]
    if how == "twice":
        lines += lines
    elif how == "again":
        lines += [maker.decision("BLOCK"), maker.end("TIMEOUT")]
    elif how == "late decision":
        lines = [maker.start(), maker.end(), maker.decision()]
    elif how == "hint":
        lines.append(maker.event("hint_issued", call={"call_id": maker.reference["call_id"]}, hint=HINT))
    elif how == "no end":
        lines.pop()
    elif how in ("flags", "cut short"):
        maker.seq -= 3
        preview = FLAGS if how == "flags" else {"truncated": True, "args_preview": "x"}
        lines = [maker.event("tool_call_start", call={**maker.reference, **REST, "preview": preview})]
        lines += [maker.decision(**decision), maker.end(**end)]
    elif how == "theirs":
        other.reference = maker.reference
        lines += [other.decision(), other.end()]
    elif how == "restart":
        lines.append(maker.event("tool_call_start", call={**maker.reference, **REST}))
    return lines


REST = {"transport": "mcp_http", "bytes_in": 1, "preview": {"truncated": False}, "seq": 1}


def tables(store: Store) -> dict[str, Any]:
    connection = store.connection
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    left_out = ("sqlite_sequence", "segments")
    found = {
        name: sorted(connection.execute(f"SELECT * FROM {name}"), key=repr) for name in names if name not in left_out
    }
    found["segments"] = connection.execute("SELECT run_no, first_n, lines, head, marks FROM segments").fetchall()
    return found


def take(store: Store, lines: list[bytes], journal: str | None = None) -> list[int]:
    return [place for place, _ in store.take(lines, journal)]


@given(data=st.data())
def test_pieces_of_journals_make_the_same_ledger_as_single_lines(data: st.DataObject) -> None:
    ours, theirs = EventMaker("run-1", OURS), EventMaker("run-1", THEIRS)
    batches: list[list[bytes]] = []
    for calls in data.draw(st.lists(st.lists(call_parts, max_size=5), min_size=1, max_size=3)):
        lines = [] if batches else [ours.run_start(), theirs.run_start()]
        for parts in calls:
            maker, other = (ours, theirs) if data.draw(st.booleans()) else (theirs, ours)
            lines += told(maker, other, parts)
        if lines and data.draw(st.booleans()):
            lines.insert(
                data.draw(st.integers(0, len(lines))), data.draw(st.sampled_from([b"{}", b"", lines[-1][:-1]]))
            )
        batches.append(lines)
    one, many = Store(""), Store("")

    def add_each(lines: list[bytes]) -> list[int]:
        bad = []
        for place, line in enumerate(lines):
            try:
                one.add(line)
            except BadEvent:
                bad.append(place)
        return bad

    for lines in batches:
        refused = one.write(lambda lines=lines: add_each(lines))
        assert many.write(lambda lines=lines: take(many, lines)) == refused
    assert tables(one) == tables(many)
    one.close()
    many.close()


def test_a_hint_for_a_call_that_was_told_in_one_go_finds_it(tmp_path: Path) -> None:
    maker = EventMaker("run-1", "shim-1")
    lines = [maker.run_start(), *maker.call()]
    lines.append(maker.event("hint_issued", call={"call_id": maker.reference["call_id"]}, hint=HINT))
    store = Store(str(tmp_path / "ledger.db"))
    assert store.write(lambda: take(store, lines, "shim-1.jsonl")) == []
    assert store.connection.execute("SELECT hint_text FROM hints").fetchall() == [("do not",)]
    store.close()


def test_a_call_id_that_is_used_again_is_looked_up(tmp_path: Path) -> None:
    """What was taken for new and is not makes the batch run again, looking each one up."""
    maker = EventMaker("run-1", "shim-1")
    lines = [maker.run_start(), *maker.call()]
    maker.calls = 0
    lines += maker.call()
    store = Store(str(tmp_path / "ledger.db"))
    assert store.write(lambda: take(store, lines, "shim-1.jsonl")) == []
    assert store.connection.execute("SELECT start_event, end_event FROM tool_calls").fetchall() == [(2, 4)]
    assert store.connection.execute("SELECT calls_total, event_count FROM runs").fetchall() == [(1, 7)]
    store.close()


def test_familiar_lines_name_who_acts_though_the_first_of_their_kind_was_refused(tmp_path: Path) -> None:
    unknown, named = EventMaker("run-1", "shim-1", identity=False), EventMaker("run-1", "shim-1")
    lines = [unknown.run_start(), named.run_start(), *named.call()]
    store = Store(str(tmp_path / "ledger.db"))
    assert store.write(lambda: take(store, lines[:1])) == []
    assert store.write(lambda: take(store, lines[1:])) == [0]
    assert store.connection.execute("SELECT principal, event_count FROM runs").fetchall() == [("ann", 4)]
    store.close()


def test_a_line_of_another_shim_in_a_journal_is_refused_among_familiar_ones(tmp_path: Path) -> None:
    ours, theirs = EventMaker("run-1", "shim-1"), EventMaker("run-1", "shim-2")
    lines = [ours.run_start(), *ours.call(), theirs.start(), *ours.call()]
    store = Store(str(tmp_path / "ledger.db"))
    assert store.write(lambda: take(store, lines, "shim-1.jsonl")) == [4]
    assert store.connection.execute("SELECT count(*) FROM producers").fetchone() == (1,)
    store.close()


@pytest.mark.parametrize("damage", [b"\n", b"{", b"x" * 300])
def test_after_a_damaged_line_the_familiar_ones_go_on(tmp_path: Path, damage: bytes) -> None:
    maker = EventMaker("run-1", "shim-1")
    lines = [maker.run_start(), *maker.call(), damage, *maker.call()]
    store = Store(str(tmp_path / "ledger.db"))
    assert store.write(lambda: take(store, lines, "shim-1.jsonl")) == [4]
    assert store.connection.execute("SELECT calls_total, event_count FROM runs").fetchall() == [(2, 7)]
    store.close()
