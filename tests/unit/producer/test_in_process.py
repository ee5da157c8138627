"""The door of a process: its journal, ledgerd, settings and ends."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from harness.in_process import POLICY, isolate
from harness.ledger import ledgerd, spool_of
from harness.waiting import wait_for
from subluminal.contracts.toolcall import ToolCall
from subluminal.producer.in_process import TRANSPORT, Door


def tool_call(tool: str = "look") -> ToolCall:
    return ToolCall("notes", tool, b"{}", 2, TRANSPORT)


def test_calls_reach_the_ledger_by_way_of_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(tmp_path, monkeypatch)
    monkeypatch.delenv("SUB_EVENTS")
    home = tmp_path / "sub"
    spool_of(home)
    with ledgerd(home):
        door = Door(POLICY, server_name="notes")
        record = door.judge(tool_call())
        (journal,) = (home / "spool").glob("*.jsonl")
        assert journal.read_bytes().count(b"\n") == 4, "on record before the tool runs"
        door.settle(record, "OK", latency_ms=1)

        def calls() -> Any:
            with sqlite3.connect(f"file:{home}/ledger.db?mode=ro", uri=True) as database:
                return database.execute("select tool_name, decision, status from tool_calls").fetchall()

        wait_for(lambda: calls() == [("look", "ALLOW", "OK")], what="the call in the ledger")
        door.close()


def test_it_opens_once_ends_once_and_opens_anew_after_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = isolate(tmp_path, monkeypatch)
    door = Door(POLICY)
    door.close()
    assert not Path(events.path).exists(), "a door that was never used leaves no trace"
    door.open()
    door.open()
    door.close()
    door.close()
    assert events.types() == ["run_start", "policy_loaded", "run_end"]
    door.judge(tool_call())
    door.close()
    assert len({event["source"]["shim_id"] for event in events.events()}) == 2


def test_what_a_project_may_not_set_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    isolate(tmp_path, monkeypatch)
    (tmp_path / ".subluminal").mkdir()
    (tmp_path / ".subluminal" / "config.toml").write_text("[shim]\nmax_preview_bytes = 999999\n")
    door = Door(POLICY)
    door.open()
    door.close()
    assert "may only make settings stricter" in capsys.readouterr().err


def test_a_record_that_cannot_be_written_is_said_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    isolate(tmp_path, monkeypatch)
    door = Door(POLICY, events="file:/nonexistent/events.jsonl")
    assert door.judge(tool_call()).decision.action == "ALLOW"
    door.close()
    assert "events could not be recorded" in capsys.readouterr().err


def test_a_refused_continuation_is_not_written_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = isolate(tmp_path, monkeypatch)
    door = Door(POLICY)
    record = door.judge(tool_call())
    door.gate.state.terminate("STOP", "stopped by the operator")
    door.judge_again(record, tool_call())
    door.refusal(record)
    door.refuse(record, 10)
    door.close()
    assert [event["decision"]["action"] for event in events.events_of("tool_call_decision")] == [
        "ALLOW",
        "TERMINATE_RUN",
    ]
    assert len(events.events_of("tool_call_end")) == 1
