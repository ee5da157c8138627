"""What is left of an agent run in the spool: envelope lines like a shim's, masked, bounded, and an end."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest

from subluminal.agents import recorder as record
from subluminal.agents.recorder import Recorder
from subluminal.contracts.agent_event import AgentCompletion, AgentEvent, AgentEventKind
from subluminal.contracts.events import RunEnd, decode_event
from subluminal.contracts.identity import Identity, Source

DONE = AgentCompletion("codex", "SUCCEEDED", 0)
TOKEN = "ghp_" + "a1B2c3D4e5" * 4


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUB_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def recorder() -> Recorder:
    return Recorder(Identity("run-1", "me", "codex", "dev", "someone"), Source("h", "p", "s1"), wake_ledger=False)


def text(value: str) -> AgentEvent:
    return AgentEvent("codex", AgentEventKind.TextOutput, "assistant", value)


def lines(home: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (home / "spool" / "s1.jsonl").read_bytes().splitlines()]


def test_events_are_written_as_they_come_with_the_identity_of_the_run_and_numbered(home: Path) -> None:
    writer = recorder()
    writer.record(text("one"))
    writer.record(text("two"))
    first, second = lines(home)
    assert first["type"] == "agent_event"
    assert (first["run_id"], first["agent_id"], first["client"], first["env"], first["principal"]) == (
        *("run-1", "me", "codex", "dev", "someone"),
    )
    assert first["source"] == {"host_id": "h", "proc_id": "p", "shim_id": "s1", "seq": 1}
    assert first["agent"] == {"agent_kind": "codex", "kind": "TextOutput", "channel": "assistant", "text": "one"}
    assert (second["source"]["seq"], second["agent"]["text"]) == (2, "two")
    writer.close(DONE)


def test_the_journal_is_private_and_locked_while_the_run_lives(home: Path) -> None:
    writer = recorder()
    writer.record(text("one"))
    journal = home / "spool" / "s1.jsonl"
    assert journal.stat().st_mode & 0o777 == 0o600
    with open(journal, "rb") as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        writer.close(DONE)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize(
    ("status", "run_status"),
    [("SUCCEEDED", "SUCCEEDED"), ("FAILED", "FAILED"), ("TIMEOUT", "FAILED"), ("CANCELLED", "CANCELLED")],
)
def test_the_end_of_the_agent_is_the_end_of_the_run(home: Path, status: Any, run_status: str) -> None:
    recorder().close(AgentCompletion("codex", status, 1, message="because"))
    last_event, end = lines(home)
    assert last_event["agent"]["message"] == f"completion {status}: because"
    assert last_event["agent"]["data"] == {"status": status, "exit_code": 1}
    assert (end["source"]["seq"], end["run"]["status"], end["run"]["summary"]["calls_total"]) == (2, run_status, 0)
    assert isinstance(decode_event(json.dumps(end).encode()), RunEnd)


def test_credentials_in_the_words_of_an_agent_are_masked(home: Path) -> None:
    writer = recorder()
    writer.record(text(f"your token is {TOKEN}, keep it"))
    writer.record(AgentEvent("codex", AgentEventKind.Error, "error", None, f"401 for {TOKEN}"))
    writer.close(AgentCompletion("codex", "FAILED", 1, message=f"said {TOKEN}"))
    assert TOKEN not in (home / "spool" / "s1.jsonl").read_text()
    assert lines(home)[0]["agent"]["text"].endswith(", keep it")


def test_past_the_bound_only_the_end_is_recorded_and_what_is_missing_is_told(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "MAX_RECORDED_EVENTS", 3)
    writer = recorder()
    for number in range(10):
        writer.record(text(str(number)))
    writer.close(DONE)
    found = lines(home)
    assert [line["source"]["seq"] for line in found] == [1, 2, 3, 4, 5]
    assert found[3]["agent"]["data"]["unrecorded"] == 7
    assert found[4]["type"] == "run_end"


def test_the_bytes_of_a_run_are_bounded_too(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "MAX_RECORDED_BYTES", 10_000)
    writer = recorder()
    for _ in range(20):
        writer.record(text("x" * 1000))
    writer.close(DONE)
    assert writer.unrecorded == 11
    assert (home / "spool" / "s1.jsonl").stat().st_size < 20_000


def test_a_spool_that_cannot_be_written_does_not_disturb_the_run(home: Path) -> None:
    (home / "spool").write_text("not a directory")
    writer = recorder()
    writer.record(text("one"))
    writer.close(DONE)
    assert (home / "spool").read_text() == "not a directory"
    assert sorted(path.name for path in home.iterdir()) == ["spool"], "and nothing was written elsewhere"
