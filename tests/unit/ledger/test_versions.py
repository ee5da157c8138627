"""Records of other versions of the interface pack: 0.1.0 reads on, a later MINOR goes on, a MAJOR is refused.

`contract-0.1.0` was recorded by a `sub run` of that version: its journals, its policy, and the compiled snapshot.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.fake_server import fake_server
from harness.ledger import EventMaker, ledgerd, spool_of, sub_environment
from harness.places import FIXTURES
from harness.shim import Shim
from harness.waiting import wait_for
from subluminal.contracts.events import decode_event, encode_event
from subluminal.ledger.fold.reading import BadEvent, NewerEvent, read_event

RECORDED = FIXTURES / "contract-0.1.0"
JOURNALS = sorted(RECORDED.glob("*.jsonl"))
LINES = [line for path in JOURNALS for line in path.read_bytes().splitlines(keepends=True)]


def sub(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "subluminal", *arguments],
        env=sub_environment(home, SUB_LEDGER_IDLE_S="60"),
        cwd=home.parent,
        capture_output=True,
        text=True,
        timeout=60,
    )


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def changed(line: bytes, **members: Any) -> bytes:
    return json.dumps({**json.loads(line), **members}).encode()


def call_lines(version: str, **call: Any) -> list[bytes]:
    """A run with one call, written by another version; `call` are members of its start that this one does not know."""
    maker = EventMaker("run-1", "shim-1")
    first, *rest = maker.whole_run(1)
    lines = [changed(line, v=version, mood="sunny", run_depth={"a": [1]}) for line in (first, *rest)]
    start = json.loads(lines[1])
    start["call"].update(call)
    lines[1] = json.dumps(start).encode()
    return lines


def test_every_recorded_event_of_0_1_0_is_read_and_written_again_byte_for_byte() -> None:
    assert len(LINES) == 31
    for line in LINES:
        event = decode_event(line)
        assert event.v == "0.1.0"
        assert encode_event(event) == line
        assert not isinstance(read_event(line), NewerEvent)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    spool_of(home)
    return home


def test_recorded_journals_of_0_1_0_are_ingested_verified_queried_and_replayed(home: Path) -> None:
    for path in JOURNALS:
        shutil.copy(path, home / "spool" / path.name)
        os.chmod(home / "spool" / path.name, 0o600)
    with ledgerd(home):
        wait_for(lambda: not list((home / "spool").glob("*.jsonl")), what="the journals to be taken in")
        (run,) = json_lines(sub(home, "runs", "--json").stdout)
        assert (run["run_id"], run["status"], run["calls_total"]) == ("run-recorded", "SUCCEEDED", 8)
        calls = json_lines(sub(home, "query", "--json").stdout)
        assert [call["decision"] for call in sorted(calls, key=lambda call: call["seq"])] == [
            "BLOCK", "ALLOW", "BLOCK", "BLOCK", "REJECT_WITH_HINT", "ALLOW", "BLOCK", "BLOCK",
        ]  # fmt: skip
        verified = json.loads(sub(home, "verify", "run-recorded", "--json").stdout)
        assert (verified["ok"], verified["faults"]) == (True, [])
        checked = sub(home, "policy", "check", str(RECORDED / "policy.yaml"), "--against", "ledger", "--json")
        assert checked.returncode == 0, checked.stderr
        assert json.loads(checked.stdout)["calls"] == 8


def test_recorded_events_of_0_1_0_are_ingested_from_a_file_too(home: Path) -> None:
    with ledgerd(home):
        told = sub(home, "ingest", *map(str, JOURNALS), "--json")
        assert json.loads(told.stdout) == {"stored": 31, "known": 0, "bad": 0, "bad_lines": []}


def test_the_snapshot_that_0_1_0_compiled_is_what_its_policy_still_compiles_to(tmp_path: Path) -> None:
    """So the hashes in old records go on naming the policies that people have."""
    recorded = json.loads((RECORDED / "snapshot.json").read_text())
    out = sub(tmp_path / "home", "policy", "compile", str(RECORDED / "policy.yaml"))
    assert out.returncode == 0, out.stderr
    compiled = json.loads(out.stdout)
    assert compiled["policy_hash"] == recorded["policy_hash"]
    assert compiled == {name: recorded[name] for name in compiled}


def test_a_shim_judges_by_the_policy_of_0_1_0_as_it_was_judged_then(tmp_path: Path) -> None:
    shutil.copy(RECORDED / "policy.yaml", tmp_path / "policy.yaml")
    setup = Shim(tmp_path, "box", fake_server(), policy=tmp_path / "policy.yaml", env={"SUB_ENV": "dev"})
    starts = [event["call"] for event in map(json.loads, LINES) if event["type"] == "tool_call_start"]
    arguments = [json.loads(start["preview"]["args_preview"]) for start in starts]
    setup.run(*[(start["tool_name"], given) for start, given in zip(starts, arguments, strict=True)])
    then = [event["decision"] for event in map(json.loads, LINES) if event["type"] == "tool_call_decision"]
    now = [event["decision"] for event in setup.events.events_of("tool_call_decision")]
    said = [(d["action"], d["rule_id"], d["explain"]["reason_code"], d["policy"]["policy_hash"]) for d in now]
    assert said == [(d["action"], d["rule_id"], d["explain"]["reason_code"], d["policy"]["policy_hash"]) for d in then]


@pytest.mark.parametrize("version", ["0.1.0", "0.2.7", "0.3.0", "0.17.2", "", "of mine"])
def test_unknown_fields_are_ignored_whatever_version_wrote_them(version: str) -> None:
    for line in call_lines(version, colour="red", priority=3):
        assert not isinstance(read_event(line), NewerEvent)


def test_a_later_minor_with_words_of_its_own_goes_on_and_only_the_event_with_them_is_kept_unread(home: Path) -> None:
    with ledgerd(home):
        lines = call_lines("0.3.0", transport="carrier_pigeon")
        assert isinstance(read_event(lines[1]), NewerEvent)
        (home.parent / "newer.jsonl").write_bytes(b"\n".join(lines) + b"\n")
        told = json.loads(sub(home, "ingest", str(home.parent / "newer.jsonl"), "--json").stdout)
        assert (told["stored"], told["bad"]) == (len(lines), 0)
        (run,) = json_lines(sub(home, "runs", "--json").stdout)
        assert (run["status"], run["calls_total"]) == ("SUCCEEDED", 1)
        assert sub(home, "verify", "run-1").returncode == 0


def test_words_that_this_version_should_know_are_no_event() -> None:
    for version in ("0.1.0", "0.2.0"):
        with pytest.raises(BadEvent):
            read_event(call_lines(version, transport="carrier_pigeon")[1])


@pytest.mark.parametrize("version", ["1.0.0", "2.1", "17"])
def test_another_major_is_refused_with_a_sentence_and_never_guessed(home: Path, version: str) -> None:
    with ledgerd(home):
        lines = call_lines(version, transport="carrier_pigeon")
        path = home.parent / "major.jsonl"
        path.write_bytes(b"\n".join(lines) + b"\n")
        told = sub(home, "ingest", str(path))
        assert told.returncode == 1 and "Traceback" not in told.stderr
        assert f"version {version} of the interface pack" in told.stdout + told.stderr
        assert "upgrade" in told.stdout + told.stderr
        assert sub(home, "runs", "--json").stdout == ""


def test_a_journal_of_another_major_is_set_aside_and_nothing_of_it_is_lost(home: Path) -> None:
    lines = call_lines("1.0.0")
    path = home / "spool" / "shim-1.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    path.chmod(0o600)
    with ledgerd(home):
        aside = home / "spool" / "rejected" / "shim-1.jsonl"
        wait_for(lambda: aside.exists() and aside.read_bytes().count(b"\n") == len(lines), what="its lines, set aside")
        assert aside.read_bytes().splitlines() == lines
