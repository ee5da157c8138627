"""`sub policy suggest` as a user runs it: on transcripts of both clients and on the ledger, good and bad."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from harness.agents_at_work import as_transcripts, runs_of
from harness.command_line import run_sub, stored
from harness.ledger import BASE_MS, EventMaker
from subluminal.agents.transcripts.seen import SeenCall, SeenRun
from subluminal.contracts.canonical import canonical_bytes, digest


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which both clients have worked."""
    home = tmp_path_factory.mktemp("worked")
    as_transcripts(runs_of(5, 80), home)
    return home


def suggest(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_sub(home / ".subluminal", "policy", "suggest", *arguments, HOME=str(home))


def test_a_newcomer_gets_a_policy_with_tests_that_hold(worked: Path, tmp_path: Path) -> None:
    target = tmp_path / "new" / "policy.yaml"
    found = suggest(worked, "-o", str(target))
    assert found.returncode == 0, found.stderr
    assert "Seen: " in found.stderr and "near misses let through" in found.stderr and "claude" in found.stderr
    linted = run_sub(tmp_path, "policy", "lint", "--strict", "--json", str(target.parent))
    assert linted.returncode == 0, linted.stdout
    tested = run_sub(tmp_path, "policy", "test", str(target))
    assert tested.returncode == 0 and " 0 failed" in tested.stderr, tested.stdout
    text = target.read_text() + target.with_name("policy.test.yaml").read_text()
    for person in ("ada", "grace", "linus", "margaret", "edsger", "barbara"):
        assert f"/home/{person}" not in text
    assert "It can never catch" in text and "/work/project-" not in text

    again = suggest(worked, "-o", str(target))
    assert again.returncode == 2 and "exists already" in again.stderr
    before = target.read_bytes(), target.with_name("policy.test.yaml").read_bytes()
    forced = suggest(worked, "-o", str(target), "--force")
    assert forced.returncode == 0
    assert (target.read_bytes(), target.with_name("policy.test.yaml").read_bytes()) == before


def test_without_a_file_the_policy_goes_to_stdout_and_nothing_is_written(worked: Path) -> None:
    plain = suggest(worked, "--client", "codex")
    assert plain.returncode == 0 and "\npolicy_id: suggested\n" in plain.stdout and "(codex " in plain.stdout
    facts = json.loads(suggest(worked, "--client", "codex", "--json", "--dry-run", "-o", str(worked / "x.yaml")).stdout)
    assert facts["policy"] == plain.stdout and facts["written"] == [] and not (worked / "x.yaml").exists()
    assert facts["proof"]["near_misses"] > 0 and facts["sources"].keys() == {"codex"}
    assert len(facts["never_caught"]) >= 4


def test_against_a_policy_only_changes_are_proposed(worked: Path, tmp_path: Path) -> None:
    policy = tmp_path / "mine.yaml"
    policy.write_text(
        'policy_id: mine\nversion: "1"\nmode: guardrails\ndefaults: {decision_on_error: BLOCK}\nselectors: {}\nrules:\n'
        "  - {rule_id: no-mail, kind: deny, match: {server_name: {glob: [helpdesk]}, tool_name: {glob: [reply]}},"
        " effect: {action: BLOCK}}\n"
    )
    found = suggest(worked, "--against", str(policy))
    assert found.returncode == 0, found.stderr
    assert "let-helpdesk-reply" in found.stdout and "Put it above no-mail" in found.stdout
    assert "Put it above the first allow" in found.stdout and "nothing-else" not in found.stdout
    assert "policy_id" not in found.stdout


def test_with_nothing_to_learn_from_it_says_so(tmp_path: Path) -> None:
    found = suggest(tmp_path)
    assert found.returncode == 2 and "nothing to learn from" in found.stderr and "--from" in found.stderr


def test_runs_that_contradict_each_other_suggest_nothing(tmp_path: Path) -> None:
    runs = [_one(f"server-{n}", f"tool_{n}", {"a": str(n)}, n) for n in range(10)]
    as_transcripts(runs, tmp_path)
    found = suggest(tmp_path)
    assert found.returncode == 1 and "Nothing is suggested" in found.stderr and found.stdout == ""
    told = json.loads(suggest(tmp_path, "--json").stdout)
    assert (told["policy"], told["tests"], told["written"], told["runs"]) == (None, None, [], 10)


def test_foreign_files_and_places_that_are_not_there_get_a_sentence(tmp_path: Path) -> None:
    foreign = tmp_path / "notes.jsonl"
    foreign.write_text('{"hello": 1}\n')
    found = suggest(tmp_path, "--from", str(foreign))
    assert found.returncode == 2 and "no transcript of Claude Code or Codex" in found.stderr
    gone = suggest(tmp_path, "--from", str(tmp_path / "gone"))
    assert gone.returncode == 2 and "is not there" in gone.stderr
    wrong = suggest(tmp_path, "--target-refusals", "lots")
    assert wrong.returncode == 2 and "Write 2% or 0.02" in wrong.stderr


def test_hostile_names_reach_neither_the_terminal_nor_the_policy(tmp_path: Path) -> None:
    evil = "read\x1b[31m\x07file"
    runs = [_one("fs", "read_file", {"path": f"/w/app/{n}.py"}, n) for n in range(12)]
    runs += [_one("fs", evil, {"x\x1b[2J": "y", "path": "a\nb"}, n) for n in range(12, 24)]
    as_transcripts(runs, tmp_path)
    found = suggest(tmp_path)
    assert found.returncode == 0, found.stderr
    assert "\x1b" not in found.stdout + found.stderr and "its name cannot stand in a policy" in found.stdout


def test_secrets_that_every_run_gave_are_not_copied(tmp_path: Path) -> None:
    secret = "ghp_" + "x1Y2" * 9
    runs = [_one("api", "call", {"token": secret, "url": "https://api.example.com/"}, n) for n in range(12)]
    as_transcripts(runs, tmp_path)
    found = suggest(tmp_path, "--json")
    assert found.returncode == 0 and secret not in found.stdout and "api.example.com" in found.stdout


def test_the_ledger_tells_places_refusals_and_what_is_not_whole(tmp_path: Path) -> None:
    lines: list[bytes] = []
    for number in range(12):
        maker = EventMaker(f"run-{number}", f"shim-{number}", start_ms=BASE_MS + number * 60_000)
        lines.append(maker.run_start())
        lines += _recorded(maker, {"path": f"/home/ann/project/src/f{number}.py"})
        lines += _recorded(maker, {"path": "/srv/refused/x"}, action="BLOCK")
        lines += maker.call(tool="read_file", server="fs", preview='{"path":"[REDACTED:token]"}')
        lines.append(maker.run_end())
    home = tmp_path / "home"
    stored(home, lines)
    found = run_sub(home, "policy", "suggest", HOME=str(tmp_path / "nobody"))
    assert found.returncode == 0, found.stderr
    assert "path_within: {path: [src]}" in found.stdout and "/home/ann" not in found.stdout
    assert "/srv/refused" not in found.stdout and "(ledger 12)" in found.stdout
    assert "12 calls whose arguments are not whole" in found.stderr
    assert "12 calls that failed or were refused" in found.stderr


def test_a_session_that_the_ledger_has_too_is_one_run(tmp_path: Path) -> None:
    args = {"path": "/w/app/a.py"}
    runs = [
        SeenRun(f"s{n}", "claude", [SeenCall("fs", "read_file", args, 20, BASE_MS + n, "/w/app")]) for n in range(2)
    ]
    as_transcripts(runs, tmp_path)
    as_transcripts([runs[0]], tmp_path / "again")
    lines: list[bytes] = []
    for number in range(2):
        maker = EventMaker(f"run-{number}", f"shim-{number}", start_ms=BASE_MS + number)
        use_id = {"claudecode/toolUseId": f"s{number}-0"}
        lines += [maker.run_start(), *_recorded(maker, args, call_context=use_id), maker.run_end()]
    home = tmp_path / "home"
    stored(home, lines)
    sources = ["--from", "ledger", "--from", str(tmp_path / ".claude"), "--from", str(tmp_path / "again")]
    found = run_sub(home, "policy", "suggest", "--json", *sources, HOME=str(tmp_path))
    assert found.returncode == 1 and "2 calls in 2 runs" in found.stderr, found.stderr


def test_only_what_is_new_enough_is_learned_from(tmp_path: Path) -> None:
    as_transcripts([_one("fs", "read_file", {"path": f"/w/app/{n}.py"}, n) for n in range(12)], tmp_path)
    found = suggest(tmp_path, "--since", "1h")
    assert found.returncode == 2 and "nothing to learn from" in found.stderr


def _recorded(maker: EventMaker, args: dict[str, str], action: str = "ALLOW", **more: object) -> list[bytes]:
    text = json.dumps(args, separators=(",", ":"))
    args_hash = digest(canonical_bytes(text.encode()))
    started = maker.start(tool="read_file", server="fs", preview=text, args_hash=args_hash, bytes_in=len(text), **more)
    maker.reference["args_hash"] = args_hash
    if action == "ALLOW":
        return [started, maker.decision(), maker.end()]
    error = {"class": "policy_block", "message": "refused"}
    return [started, maker.decision(action), maker.end("ERROR", error=error)]


def _one(server: str, tool: str, args: dict[str, str], at: int) -> SeenRun:
    return SeenRun(f"run-{at}", "claude", [SeenCall(server, tool, args, 40, 1_760_000_000_000 + at * 60_000, "/w/app")])
