"""What people read who have gone astray: the wrong file, a directory that is gone, a policy that is not for them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from harness.command_line import SUB
from harness.ledger import sub_environment
from harness.terminal import TerminalProgram
from subluminal.cli.main import run

POLICY = """policy_id: p
version: "1"
mode: guardrails
defaults: {decision_on_error: BLOCK}
selectors: {}
rules:
  - rule_id: reads
    kind: allow
    match: {risk_class: [read_like]}
    effect: {action: ALLOW}
  - rule_id: nothing-else
    kind: deny
    match: {}
    unless: {args: {path_within: {path: .}}}
    effect: {action: BLOCK}
"""
TESTS = """tests:
  - name: nothing is allowed
    calls: [{server_name: s, tool_name: t, expect: BLOCK}]
"""


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    work = tmp_path / "work"
    (work / ".git").mkdir(parents=True)
    for name in [name for name in os.environ if name.startswith("SUB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "home" / ".subluminal"))
    monkeypatch.chdir(work)
    return work


@pytest.mark.parametrize(
    "command", ["in-force", "lint", "test", "explain --server s --tool t", "init", "schema -o schema.json"]
)
def test_a_working_directory_that_is_gone_is_named(tmp_path: Path, command: str) -> None:
    (tmp_path / "gone").mkdir()
    shell = 'cd gone && rmdir ../gone && exec "$@"'
    done = subprocess.run(
        ["sh", "-c", shell, "sh", *SUB, "policy", *command.split()],
        cwd=tmp_path,
        env=sub_environment(tmp_path / "home"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("sub: The working directory is gone\n  It was removed or renamed")
    assert done.stdout == ""


def test_a_policy_that_is_named_to_test_has_its_tests_run(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "p.yaml").write_text(POLICY)
    assert run(["policy", "test", "p.yaml"]) == 2
    assert "p.yaml is a policy, and has no tests beside it\n  Write them into p.test.yaml" in capsys.readouterr().err
    (work / "p.test.yaml").write_text(TESTS)
    assert run(["policy", "test", "p.yaml"]) == 0
    assert "pass  nothing is allowed" in capsys.readouterr().out


def test_a_test_file_that_is_not_there_is_not_called_a_policy(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "test", "p.test.yaml"]) == 2
    told = capsys.readouterr().err
    assert "p.test.yaml cannot be tested: No such file or directory" in told and "the policy" not in told


def test_a_directory_is_not_a_policy(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "compile", "."]) == 2
    told = capsys.readouterr().err
    assert "it is a directory" in told and "name the policy file in it" in told


def test_a_policy_for_other_runs_is_not_said_to_be_in_force(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "false")
    assert run(["policy", "init", "--template", "ci"]) == 0
    told = capsys.readouterr().err
    assert 'does not apply to a run of yours: selectors.env asks for "ci", and this run has "dev"' in told
    assert "in force here from now on" not in told


@pytest.mark.parametrize("workload", ['{"repo": 1}', '{"labels": {"team": true}}', '{"repo": ["a"]}'])
def test_a_workload_that_no_selector_could_match_is_refused(workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "in-force", "--workload", workload]) == 2
    assert "must be text" in capsys.readouterr().err


def test_a_class_that_is_missing_is_said_to_be(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "p.yaml").write_text(POLICY)
    assert run(["policy", "explain", "p.yaml", "--server", "s", "--tool", "t"]) == 0
    assert "classes   none (--risk-class adds those of the server)" in capsys.readouterr().out
    assert run(["policy", "explain", "p.yaml", "--server", "s", "--tool", "t", "--risk-class", "other"]) == 0
    assert "classes   other\n" in capsys.readouterr().out


def test_a_class_that_nothing_gives_is_warned_of(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "p.yaml").write_text(POLICY)
    assert run(["policy", "lint", "--strict", "p.yaml"]) == 1
    assert 'no tag rule above adds the risk class "read_like" [unknown-risk-class]' in capsys.readouterr().out


@pytest.mark.parametrize("columns", [60, 200])
def test_a_decision_is_broken_between_words(work: Path, tmp_path: Path, columns: int) -> None:
    (work / "p.yaml").write_text(POLICY)
    command = [*SUB, "policy", "explain", "p.yaml", "--server", "s", "--tool", "t", "--args", '{"path": "/etc"}']
    environment = sub_environment(tmp_path / "home")
    with TerminalProgram(command, env=environment, columns=columns, lines=60) as program:
        program.wait_for("tool.")
        rows = program.screen.text.splitlines()
    start = next(number for number, row in enumerate(rows) if row.startswith("decision")) + 1
    told = [row for row in rows[start:] if row]
    assert all(row.startswith(" " * 10) and not row.startswith(" " * 11) for row in told)
    assert (len(told) > 2) == (columns == 60)
    assert " ".join(row.strip() for row in told).endswith("change the arguments or use another tool.")
