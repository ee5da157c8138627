"""`sub hints` over a ledger whose runs were scripted: its figures are what the scripts did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.command_line import run_sub, stored
from harness.ledger import EventMaker, ledgerd, spool_of
from subluminal.contracts.canonical import args_hash

HINT = {"hint_text": "Push to a branch.", "suggested_args": {"branch": "mine"}, "retry_advice": None}
RULE = {"rule_id": "no-main", "hint": {**HINT, "hint_kind": "ARG_FIX"}}


def refused(maker: EventMaker, args: dict[str, Any], *, use_id: str | None = None) -> list[bytes]:
    start = called(maker, args, use_id)
    error = {"class": "policy_block", "message": "refused"}
    decision = maker.decision("REJECT_WITH_HINT", **RULE)
    issued = maker.event("hint_issued", call={"call_id": maker.reference["call_id"]}, hint=RULE["hint"])
    return [start, decision, issued, maker.end("ERROR", error=error)]


def went_well(maker: EventMaker, args: dict[str, Any], *, use_id: str | None = None) -> list[bytes]:
    return [called(maker, args, use_id), maker.decision(), maker.end()]


def called(maker: EventMaker, args: dict[str, Any], use_id: str | None) -> bytes:
    context = {} if use_id is None else {"call_context": {"claudecode/toolUseId": use_id}}
    line = json.loads(maker.start("push", preview=json.dumps(args), **context))
    maker.reference["args_hash"] = line["call"]["args_hash"] = args_hash(args)
    return json.dumps(line).encode()


def run_of(name: str, *calls: Any, status: str | None = "SUCCEEDED", start_ms: int = 1_700_000_000_000) -> list[bytes]:
    maker = EventMaker(name, f"shim-{name}", start_ms=start_ms)
    lines = [maker.run_start()]
    for call in calls:
        lines += call(maker)
    return lines if status is None else [*lines, maker.run_end(status)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("hints") / "home"
    main, mine, other = {"branch": "main"}, {"branch": "mine"}, {"branch": "other"}
    lines = [
        *run_of("as-hinted", lambda m: refused(m, main), lambda m: went_well(m, mine)),
        *run_of("otherwise", lambda m: refused(m, main), lambda m: went_well(m, other)),
        *run_of("repeats", lambda m: refused(m, main), lambda m: refused(m, main), status="FAILED"),
        *run_of("elsewhere", lambda m: refused(m, main), lambda m: m.call(tool="status")),
        *run_of("goes-on", lambda m: refused(m, main), status=None),
        *run_of("blocked", lambda m: m.call("BLOCK", tool="delete"), start_ms=1_800_000_000_000),
    ]
    stored(home, lines)
    return home


def told(home: Path, *arguments: str) -> list[dict[str, Any]]:
    done = run_sub(home, "hints", "--json", "--no-sync", *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_figures_are_what_the_scripts_did(home: Path) -> None:
    hinted, blocked = told(home)
    assert (hinted["rule_id"], hinted["refused"], hinted["runs"]) == ("no-main", 6, 5)
    assert hinted["outcomes"] == {
        "corrected": 2, "repeated": 1, "other_tool": 1, "gave_up": 0, "ended": 1, "promoted": 0, "open": 1,
    }  # fmt: skip
    assert (hinted["counted"], hinted["recovery_rate"], hinted["calls_to_recovery"]) == (5, 0.4, 1.0)
    assert hinted["as_hinted"] == 1
    assert hinted["agents"] == [{"agent_id": "repo-fixer", "refused": 6}]
    assert [hint["hint_text"] for hint in hinted["hints"]] == ["Push to a branch."]
    assert hinted["hints"][0]["recovery_rate"] == 0.4
    assert {example["outcome"] for example in hinted["examples"]} == {
        "corrected", "repeated", "other_tool", "ended", "open",
    }  # fmt: skip
    assert (blocked["rule_id"], blocked["outcomes"]["gave_up"], blocked["hints"]) == ("deny-writes", 1, [])


def test_a_rule_or_a_time_is_chosen(home: Path) -> None:
    assert [rule["rule_id"] for rule in told(home, "--rule", "no-main")] == ["no-main"]
    assert [rule["rule_id"] for rule in told(home, "--since", "2027-01-01")] == ["deny-writes"]
    assert told(home, "--rule", "nothing") == []


def test_the_runs_have_the_recovery_that_the_hint_ledger_says(home: Path, tmp_path: Path) -> None:
    """Here, and where their bundles were taken in."""
    other = tmp_path / "other"
    spool_of(other)
    bundles = tmp_path / "bundles"
    exported = run_sub(home, "export", "runs", "-o", str(bundles), "--json")
    assert (exported.returncode, len(exported.stdout.splitlines())) == (0, 6), exported.stderr
    with ledgerd(other):
        for bundle in bundles.iterdir():
            assert run_sub(other, "ingest", str(bundle)).returncode == 0
    for place in (home, other):
        rows = [json.loads(line) for line in run_sub(place, "runs", "--json", "--no-sync").stdout.splitlines()]
        assert {row["run_id"]: row["recovery_rate"] for row in rows} == {
            "as-hinted": 1.0, "otherwise": 1.0, "repeats": 0.0, "elsewhere": 0.0, "goes-on": None, "blocked": 0.0,
        }  # fmt: skip
        for row in rows:
            (rule,) = told(place, "--run", row["run_id"])
            assert rule["recovery_rate"] == row["recovery_rate"], row["run_id"]


def test_runs_have_a_column_of_recovery_where_it_is_asked_for(home: Path) -> None:
    def lines(*asked: str) -> list[list[str]]:
        return [line.split() for line in run_sub(home, "runs", "--no-sync", *asked).stdout.splitlines()]

    assert "RECOVERY" not in lines()[0] and "RECOVERY" in lines("--wide")[0]
    assert lines("--columns", "run,recovery", "--run", "goes-on") == [["RUN", "RECOVERY"], ["goes-on", "-"]]
    assert lines("--columns", "recovery", "--run", "otherwise", "--csv") == [["recovery_rate"], ["1.0"]]


def test_people_see_a_table_and_all_of_one_rule(home: Path) -> None:
    table = run_sub(home, "hints", "--no-sync").stdout
    assert table.splitlines()[0].split()[:3] == ["RULE", "REFUSED", "RECOVERY"]
    assert table.splitlines()[1].split()[:4] == ["no-main", "6", "40%", "1.0"]
    whole = run_sub(home, "hints", "--no-sync", "--rule", "no-main").stdout
    assert "40% of 5, after 1.0 calls, 1 exactly as suggested" in whole
    assert "Push to a branch." in whole and "git/push: corrected, then git/push" in whole


def test_calls_of_one_message_are_told_from_a_reaction_by_the_transcript(tmp_path: Path) -> None:
    """By time alone, the second of two calls that were made at once looks like a correction of the first."""
    home = tmp_path / "home"
    first, second = {"branch": "main"}, {"branch": "mine"}
    stored(home, run_of("r", lambda m: refused(m, first, use_id="t1"), lambda m: went_well(m, second, use_id="t2")))
    assert told(home)[0]["outcomes"]["corrected"] == 1
    transcript(tmp_path, "s1", ("m1", "t1"), ("m1", "t2"))
    (rule,) = told(home)
    assert rule["outcomes"]["gave_up"] == 1 and rule["by_time"] == 0
    assert told(home, "--no-transcripts")[0]["by_time"] == 1


def test_sessions_whose_provider_counts_calls_from_one_are_kept_apart(tmp_path: Path) -> None:
    home = tmp_path / "home"
    main, mine = {"branch": "main"}, {"branch": "mine"}
    stored(
        home, run_of("r", lambda m: refused(m, main, use_id="call_1"), lambda m: went_well(m, mine, use_id="call_2"))
    )
    transcript(tmp_path, "s1", ("m1", "call_1"), ("m2", "call_2"), at="2023-11-14T22:13:20.000Z")
    transcript(tmp_path, "s2", ("m1", "call_1"), at="2023-11-15T01:00:00.000Z")
    transcript(tmp_path, "s3", ("m1", "call_1"), at="2023-11-14T20:00:00.000Z")
    (rule,) = told(home)
    assert rule["outcomes"]["corrected"] == 1 and rule["by_time"] == 0


def transcript(root: Path, session: str, *made: tuple[str, str], at: str = "") -> None:
    """A session of Claude Code: (message, call) for each call of it."""
    path = root / ".claude" / "projects" / "-w" / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    for message, use in made:
        block = {"type": "tool_use", "id": use, "name": "mcp__git__push", "input": {}}
        said = {"type": "assistant", "sessionId": session, "message": {"id": message, "content": [block]}}
        lines.append(json.dumps({**said, "timestamp": at} if at else said) + "\n")
    path.write_text("".join(lines))


def test_an_empty_ledger_is_said_to_be_empty(tmp_path: Path) -> None:
    done = run_sub(tmp_path / "home", "hints", "--json", "--no-sync")
    assert (done.returncode, done.stdout) == (0, "")
    assert "Nothing has been recorded yet." in done.stderr
