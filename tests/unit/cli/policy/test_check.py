"""`sub policy check` as a user meets it: sources, exit codes, output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.command_line import run_sub, stored
from harness.headless import NO_DELETE, bundle_of
from harness.ledger import EventMaker


def recorded() -> list[bytes]:
    maker = EventMaker("run-1", "s1")
    lines = [maker.run_start()]
    for tool, action in (("read", "ALLOW"), ("delete_file", "ALLOW"), ("write", "BLOCK")):
        lines += maker.call(action, tool=tool)
    return [*lines, maker.run_end()]


def write(path: Path, value: Any) -> str:
    path.write_text(json.dumps(value))
    return str(path)


def events_file(tmp_path: Path) -> str:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"\n".join(recorded()) + b"\n")
    return str(path)


def test_it_names_what_changes_and_fails_the_job_only_when_asked(tmp_path: Path) -> None:
    policy, events = write(tmp_path / "p.json", NO_DELETE), events_file(tmp_path)
    done = run_sub(tmp_path / "home", "policy", "check", policy, "--against", events)
    assert done.returncode == 0
    assert "newly refused: 1 call" in done.stdout and "BLOCK  no-delete" in done.stdout
    assert "git/delete_file  call s1-2 of run-1" in done.stdout
    assert "newly let through: 1 call" in done.stdout and "deny-writes" in done.stdout
    strict = run_sub(tmp_path / "home", "policy", "check", policy, "--against", events, "--fail-on-new-blocks")
    assert strict.returncode == 1
    harmless = write(tmp_path / "q.json", bundle_of())
    assert run_sub(tmp_path, "policy", "check", harmless, "--against", events, "--fail-on-new-blocks").returncode == 0


def test_a_ledger_a_bundle_and_a_file_tell_the_same(tmp_path: Path) -> None:
    home = tmp_path / "home"
    policy = write(tmp_path / "p.json", NO_DELETE)
    stored(home, recorded())
    run_sub(home, "export", "run", "run-1", "-o", str(tmp_path / "trace.tar.gz"))
    sources = ("ledger", str(home / "ledger.db"), str(tmp_path / "trace.tar.gz"), events_file(tmp_path))
    answers = [
        json.loads(run_sub(home, "policy", "check", policy, "--json", "--against", source).stdout) for source in sources
    ]
    for answer in answers:
        del answer["against"]
    assert answers[0]["new_blocks"] == 1 and answers[0]["calls"] == 3
    assert all(answer == answers[0] for answer in answers)


def test_several_sources_add_up(tmp_path: Path) -> None:
    policy, events = write(tmp_path / "p.json", NO_DELETE), events_file(tmp_path)
    done = run_sub(tmp_path, "policy", "check", policy, "--json", "--against", events, events)
    assert json.loads(done.stdout)["new_blocks"] == 2


def test_bad_input_gets_a_sentence(tmp_path: Path) -> None:
    policy = write(tmp_path / "p.json", NO_DELETE)
    nothing = run_sub(tmp_path, "policy", "check", policy)
    assert nothing.returncode == 2 and "--against is missing" in nothing.stderr
    absent = run_sub(tmp_path, "policy", "check", policy, "--against", str(tmp_path / "nowhere"))
    assert absent.returncode == 2 and "is no ledger, no bundle and no file" in absent.stderr
    (tmp_path / "bad.jsonl").write_text("hello\n")
    bad = run_sub(tmp_path, "policy", "check", policy, "--against", str(tmp_path / "bad.jsonl"))
    assert bad.returncode == 2 and "Line 1 is no event" in bad.stderr
    (tmp_path / "broken.yaml").write_text("rules: [")
    broken = run_sub(tmp_path, "policy", "check", str(tmp_path / "broken.yaml"), "--against", events_file(tmp_path))
    assert broken.returncode == 1 and "Traceback" not in broken.stderr
