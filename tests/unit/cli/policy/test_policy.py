"""`sub policy`: what people type, what they read, and the exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from harness import places
from subluminal.cli.main import run
from subluminal.cli.policy.group import COMMANDS
from subluminal.policy.compile.bundle import compile_bundle

FIXTURES = places.FIXTURES / "policies"
GOOD = FIXTURES / "examples" / "argument-guard.yaml"
BAD = FIXTURES / "bad"


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "home" / ".subluminal"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


class Sub:
    """Runs a command in this process and keeps what it said."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *args: object) -> int:
        self._capsys.readouterr()
        code = run(["policy", *map(str, args)])
        self.out, self.err = self._capsys.readouterr()
        return code

    def json(self, *args: object) -> Any:
        self(*args)
        return json.loads(self.out)


@pytest.fixture
def sub(capsys: pytest.CaptureFixture[str]) -> Sub:
    return Sub(capsys)


def test_init_writes_a_policy_that_lints_clean_and_passes_its_tests(sub: Sub) -> None:
    assert sub("init") == 0
    assert "sub policy lint .subluminal/policy.yaml" in sub.err
    assert sub("lint", "--strict", ".subluminal/policy.yaml") == 0
    assert sub("test", "--fail-on-empty", "--min-coverage", 100) == 0
    assert sub("fmt", "--check", ".subluminal/policy.yaml", ".subluminal/policy.test.yaml") == 0


def test_init_never_overwrites(sub: Sub, own_home: Path) -> None:
    (own_home / "mine.yaml").write_text("mine")
    assert sub("init", "mine.yaml") == 2
    assert "exists already" in sub.err
    assert (own_home / "mine.yaml").read_text() == "mine"
    (own_home / "other.test.yaml").write_text("mine")
    assert sub("init", "other.yaml") == 2
    assert (own_home / "other.test.yaml").read_text() == "mine"
    assert not (own_home / "other.yaml").exists()


def test_init_for_the_user_and_on_trial(sub: Sub) -> None:
    assert sub("init", "--user", "--json") == 0
    written = json.loads(sub.out)["written"]
    assert written[0] == os.path.join(os.environ["SUB_HOME"], "policy.yaml")
    assert Path(os.environ["SUB_HOME"]).stat().st_mode & 0o777 == 0o700
    assert sub("init", "--dry-run", "x.yaml") == 0
    assert "# A starter policy" in sub.out
    assert not Path("x.yaml").exists()
    assert sub("init", "x.json") == 2
    assert sub("init", "--user", "x.yaml") == 2


def test_lint_says_where_what_and_how(sub: Sub) -> None:
    assert sub("lint", BAD / "unknown-kind.yaml") == 1
    assert f'{BAD / "unknown-kind.yaml"}:8:11: error: rule "a": unknown kind "denny" [unknown-kind]\n' in sub.out
    assert '    fix: did you mean "deny"?\n' in sub.out
    assert "1 file checked: 4 errors, 0 warnings" in sub.err


def test_lint_lets_warnings_pass_unless_strict(sub: Sub) -> None:
    assert sub("lint", BAD / "unreachable.yaml") == 0
    assert sub("lint", "--strict", BAD / "unreachable.yaml") == 1


def test_lint_notes_what_readings_match_and_lets_it_pass_even_when_strict(sub: Sub) -> None:
    assert sub("lint", "--strict", GOOD) == 0
    assert "note: rule" in sub.out and "[readings]" in sub.out
    assert "0 errors, 0 warnings, 1 note" in sub.err
    sub("lint", "--format", "github", GOOD)
    assert sub.out.startswith("::notice ")


def test_lint_reports_as_json(sub: Sub) -> None:
    report = sub.json("lint", "--json", GOOD, BAD / "unknown-kind.yaml")
    assert (report["errors"], report["warnings"], report["notes"], len(report["files"])) == (4, 0, 1, 2)
    assert [finding["level"] for finding in report["findings"]] == ["note"] + ["error"] * 4
    first = report["findings"][1]
    assert (first["code"], first["line"], first["column"], first["rule_id"]) == ("unknown-kind", 8, 11, "a")


def test_lint_reports_as_sarif(sub: Sub) -> None:
    report = sub.json("lint", "--format", "sarif", BAD / "unknown-kind.yaml")
    assert report["version"] == "2.1.0"
    (run_,) = report["runs"]
    result = run_["results"][0]
    assert run_["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "unknown-kind"
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 8, "startColumn": 11}


def test_lint_reports_as_github_annotations_that_cannot_be_forged(sub: Sub, own_home: Path) -> None:
    hostile = own_home / "a,b.yaml"
    hostile.write_text('"x\\n::error::owned": 1\n')
    assert sub("lint", "--format", "github", "a,b.yaml") == 1
    lines = sub.out.splitlines()
    assert all(line.startswith("::error file=a%2Cb.yaml,line=1,col=1,title=") for line in lines)
    assert "owned" in sub.out


def test_lint_does_not_obey_terminal_escapes(sub: Sub) -> None:
    sub("lint", BAD / "terminal-escape.yaml")
    assert "\x1b" not in sub.out


def test_no_name_or_text_in_a_policy_can_drive_the_terminal(sub: Sub, own_home: Path) -> None:
    escapes = r"\e]0;title\a\e[2J\u009b31m\u202e"
    policy = own_home / "p\x1b[31m.yaml"
    policy.write_text(f"""
policy_id: "id{escapes}"
version: "1{escapes}"
mode: guardrails
defaults: {{decision_on_error: BLOCK}}
selectors: {{}}
rules:
  - {{rule_id: "tag{escapes}", kind: tag, enabled: true, severity: info, match: {{}},
     effect: {{tag: {{add_risk_class: ["class{escapes}"]}}}}}}
  - {{rule_id: "deny{escapes}", kind: deny, enabled: true, severity: info, match: {{}},
     effect: {{action: REJECT_WITH_HINT, reason_code: "CODE{escapes}", message: "no{escapes}",
              hint_text: "hint{escapes}", suggested_args: {{"key{escapes}": "value{escapes}"}}}}}}
""")
    empty = own_home / "empty.yaml"
    text = 'policy_id: e\nversion: "1"\nmode: observe\ndefaults: {decision_on_error: ALLOW}\nselectors: {}\nrules: []\n'
    empty.write_text(text)
    for words in (
        ("explain", policy, "--server", "s\x1b[2J", "--tool", "t\x1b[2J"),
        ("diff", policy, empty),
        ("lint", policy),
        ("lint", own_home / "missing\x1b[31m"),
        ("compile", policy, "-o", own_home / "out\x1b[31m"),
        ("fmt", "--dry-run", policy),
        ("fmt", policy),
        ("init", own_home / "new\x1b[31m.yaml"),
        ("test", "--coverage", own_home),
    ):
        sub(*words)
        told = sub.out + sub.err
        assert told
        assert all(line.isprintable() for line in told.split("\n")), (words, told)


def test_a_directory_without_tests_is_said_to_have_none(sub: Sub, own_home: Path) -> None:
    assert sub("test", own_home) == 0
    assert "No test was run" in sub.err
    assert "100%" not in sub.err


def test_a_missing_file_is_a_sentence_and_exit_code_2(sub: Sub) -> None:
    for command in (["lint"], ["compile"], ["explain", "--server", "s", "--tool", "t"], ["fmt"], ["test"]):
        assert sub(*command, "missing.yaml") == 2, command
        assert "missing.yaml" in sub.out + sub.err
        assert "Traceback" not in sub.err


@pytest.mark.parametrize("name", sorted(path.name for path in BAD.iterdir() if path.suffix != ".txt"))
def test_no_command_answers_a_broken_policy_with_a_traceback(sub: Sub, name: str) -> None:
    path = BAD / name
    for command in (
        ["lint", path],
        ["compile", path],
        ["explain", path, "--server", "s", "--tool", "t"],
        ["diff", path, GOOD],
        ["fmt", "--check", path],
    ):
        assert sub(*command) in (0, 1), command
        assert "Traceback" not in sub.err
    assert sub("test", path) in (1, 2)
    assert "Traceback" not in sub.err


def test_compile_prints_the_snapshot(sub: Sub, own_home: Path) -> None:
    snapshot = sub.json("compile", GOOD)
    assert snapshot == compile_bundle(GOOD.read_bytes(), "x.yaml")
    assert sub("compile", GOOD, "-o", "out.json") == 0
    assert sub.out == ""
    assert json.loads((own_home / "out.json").read_text()) == snapshot
    assert snapshot["policy_hash"] in sub.err


def test_compile_shows_all_findings_of_a_broken_policy(sub: Sub) -> None:
    assert sub("compile", BAD / "unknown-kind.yaml") == 1
    assert sub.out == ""
    assert sub.err.count("[unknown-kind]") == 4


def test_explain_reads_as_a_story(sub: Sub) -> None:
    assert sub("explain", GOOD, "--server", "crm", "--tool", "search_people", "--args", '{"limit": 500}') == 0
    assert "   1  small-pages    deny        matches -> REJECT_WITH_HINT (PAGE_TOO_LARGE)\n" in sub.out
    assert "   2  no-force-push  deny        tool_name does not match\n" in sub.out
    assert "decision  REJECT_WITH_HINT  rule small-pages, PAGE_TOO_LARGE, warn\n" in sub.out
    assert '{"limit":100}' in sub.out


def test_explain_says_which_reading_matched(sub: Sub) -> None:
    call = ["explain", GOOD, "--server", "git", "--tool", "git_push"]
    assert sub(*call, "--args", '{"force": "true", "branch": "main"}') == 0
    assert 'matches (force: "true" read as true) -> BLOCK' in sub.out
    trace = sub.json(*call, "--args", '{"force": 1.00, "branch": "main"}', "--json")["trace"]
    assert trace[1]["readings"] == [{"key": "force", "value": "1", "read_as": "true"}]
    sub(*call, "--args", json.dumps({"force": "\x1b[2J" + "x" * 500, "branch": "main"}))
    assert "\x1b" not in sub.out and "x" * 100 not in sub.out


def test_explain_as_json_has_decision_trace_and_policy(sub: Sub) -> None:
    answer = sub.json(
        "explain", GOOD, "--server", "crm", "--tool", "search_people", "--args", '{"limit": 500}', "--json"
    )
    assert answer["decision"]["action"] == "REJECT_WITH_HINT"
    assert answer["decision"]["hint"]["suggested_args"] == {"limit": 100}
    assert [record["rule_id"] for record in answer["trace"]] == ["small-pages", "no-force-push"]
    assert answer["policy"]["policy_hash"] == compile_bundle(GOOD.read_bytes(), "x.yaml")["policy_hash"]


def test_explain_knows_identity_and_time(sub: Sub, own_home: Path) -> None:
    policy = own_home / "p.yaml"
    policy.write_text(
        'policy_id: p\nversion: "1"\nmode: guardrails\ndefaults: {decision_on_error: BLOCK}\n'
        "selectors: {env: [prod], agent_id: [bot], client: [codex], workload: {repo: [a/b]}}\n"
        "rules:\n"
        "  - rule_id: night\n    kind: deny\n    enabled: true\n    severity: warn\n"
        '    match: {time: {utc_hours: ["22-5"]}}\n    effect: {action: BLOCK}\n'
    )
    who = ["--env", "prod", "--agent-id", "bot", "--client", "codex", "--workload", '{"repo": "a/b"}']
    call = ["explain", "p.yaml", "--server", "s", "--tool", "t", "--json"]
    assert sub.json(*call, *who, "--at", "2026-01-31T23:00:00Z")["decision"]["action"] == "BLOCK"
    assert sub.json(*call, *who, "--at", "2026-02-01T01:00:00+02:00")["decision"]["action"] == "BLOCK"
    assert sub.json(*call, *who, "--at", "2026-01-31T12:00:00Z")["decision"]["action"] == "ALLOW"
    assert sub.json(*call, "--at", "2026-01-31T23:00:00Z")["policy"]["applies"] is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--args", "{"], "--args is not one JSON object"),
        (["--args", "[1]"], "--args must be a JSON object"),
        (["--args", '{"a": 1, "a": 2}'], "--args is not one JSON object"),
        (["--workload", "nonsense"], "--workload is not one JSON object"),
        (["--at", "yesterday"], "--at yesterday is not a time"),
        (["--env", "production"], "production"),
    ],
)
def test_explain_says_what_is_wrong_with_an_option(sub: Sub, arguments: list[str], words: str) -> None:
    assert sub("explain", GOOD, "--server", "s", "--tool", "t", *arguments) == 2
    assert words in sub.err


@pytest.fixture
def versions(own_home: Path) -> tuple[Path, Path]:
    old, new = own_home / "old.yaml", own_home / "new.yaml"
    old.write_text(GOOD.read_text())
    new.write_text(GOOD.read_text().replace("min: 101", "min: 1001"))
    return old, new


def test_diff_shows_the_loosening_first(sub: Sub, versions: tuple[Path, Path]) -> None:
    assert sub("diff", *versions) == 0
    assert "critical  small-pages: deny rule matches fewer calls (loosens)" in sub.out
    assert "1 change: 1 critical" in sub.out


def test_diff_exit_codes(sub: Sub, versions: tuple[Path, Path]) -> None:
    old, new = versions
    assert sub("diff", "--detailed-exitcode", old, old) == 0
    assert sub("diff", "--detailed-exitcode", old, new) == 2
    assert sub("diff", "--detailed-exitcode", old, BAD / "unknown-kind.yaml") == 1
    assert sub("diff", "--fail-on", "critical", old, new) == 1
    assert sub("diff", "--fail-on", "critical", new, old) == 0
    assert sub("diff", "--fail-on", "info", new, old) == 1


def test_diff_as_json(sub: Sub, versions: tuple[Path, Path]) -> None:
    report = sub.json("diff", "--json", *versions)
    assert report["identical"] is False
    assert report["summary"] == {"critical": 1, "warn": 0, "info": 0}
    (change,) = report["changes"]
    assert (change["rule_id"], change["path"], change["direction"]) == ("small-pages", "match", "loosens")
    assert change["new"]["args"]["numeric_range"]["limit"] == {"min": 1001}


def test_test_fails_reports_and_filters(sub: Sub, own_home: Path) -> None:
    (own_home / "p.yaml").write_text(GOOD.read_text())
    (own_home / "p.test.yaml").write_text(
        "tests:\n"
        "  - {name: right, calls: [{server_name: s, tool_name: t, expect: ALLOW}]}\n"
        "  - {name: wrong, calls: [{server_name: s, tool_name: t, expect: BLOCK}]}\n"
    )
    assert sub("test", "--coverage", "--junit", "report.xml", ".") == 1
    assert 'FAIL  wrong\n        call 1: expected action "BLOCK", got "ALLOW"' in sub.out
    assert "never matched: small-pages" in sub.out
    assert ET.parse("report.xml").getroot()[0].get("failures") == "1"
    assert sub("test", "--run", "right") == 0
    assert sub("test", "--run", "right", "--min-coverage", 50) == 1
    assert sub("test", "--run", "no such test") == 0
    assert sub("test", "--run", "no such test", "--fail-on-empty") == 1
    report = sub.json("test", "--json")
    assert (report["tests"], report["failed"]) == (2, 1)


def test_fmt_keeps_comments_and_meaning(sub: Sub, own_home: Path) -> None:
    ugly = own_home / "p.yaml"
    text = GOOD.read_text().replace("\n    kind:", "   # why\n    kind:").replace("  - rule_id", "-   rule_id")
    ugly.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    ugly.chmod(0o640)
    before = compile_bundle(ugly.read_bytes(), "p.yaml")
    assert sub("fmt", "--check", "p.yaml") == 1
    assert sub("fmt", "--dry-run", "p.yaml") == 0
    assert sub.out.startswith("--- p.yaml")
    assert compile_bundle(ugly.read_bytes(), "p.yaml") == before
    assert sub("fmt", "p.yaml") == 0
    assert sub("fmt", "--check", "p.yaml") == 0
    formatted = ugly.read_text()
    assert formatted.count("# why") == 2
    assert "\r" not in formatted
    assert ugly.stat().st_mode & 0o777 == 0o640
    assert compile_bundle(ugly.read_bytes(), "p.yaml") == before


def test_fmt_writes_a_mapping_in_a_list_with_its_braces(sub: Sub, own_home: Path) -> None:
    line = "tests: [{name: a}, {name: b, calls: []}]\n"
    for source in (line, line.replace("{name: a}", "name: a")):
        (own_home / "p.yaml").write_text(source)
        assert sub("fmt", "p.yaml") == 0
        assert (own_home / "p.yaml").read_text() == line


def test_fmt_leaves_a_broken_file_alone(sub: Sub, own_home: Path) -> None:
    broken = own_home / "p.yaml"
    broken.write_text("a: [1\n")
    assert sub("fmt", "p.yaml") == 1
    assert broken.read_text() == "a: [1\n"


def test_fmt_formats_json(sub: Sub, own_home: Path) -> None:
    path = own_home / "p.json"
    path.write_text('{"b":1,\n"a":"é"}')
    assert sub("fmt", "p.json") == 0
    assert path.read_text() == '{\n  "b": 1,\n  "a": "é"\n}\n'


def test_every_command_has_help_with_an_example_and_speaks_json(sub: Sub) -> None:
    for command in COMMANDS:
        assert sub(command, "--help") == 0
        assert f"sub policy {command}" in sub.out[sub.out.index("Examples:") :]
        assert "--json" in sub.out


def test_a_policy_can_come_from_a_pipe() -> None:
    command = [sys.executable, "-m", "subluminal", "policy", "lint", "-"]
    broken = (BAD / "unknown-kind.yaml").read_bytes()
    done = subprocess.run(command, input=broken, capture_output=True, timeout=60)
    assert done.returncode == 1
    assert b"<stdin>:8:11: error" in done.stdout
    assert subprocess.run(command, input=GOOD.read_bytes(), capture_output=True, timeout=60).returncode == 0
