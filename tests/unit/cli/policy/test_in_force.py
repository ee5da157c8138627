"""`sub policy in-force`, `lint` and `explain` without a file: what applies in a directory, as people are told."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.command_line import SUB
from harness.ledger import sub_environment
from harness.terminal import TerminalProgram

POLICY = """policy_id: {name}
version: "1"
mode: {mode}
defaults: {{decision_on_error: BLOCK}}
selectors: {selectors}
rules:
  - rule_id: {name}-rule
    kind: deny
    match: {{tool_name: {{glob: ["{tool}"]}}}}
    effect: {{action: BLOCK, reason_code: OF_{upper}}}
"""
TESTS = """tests:
  - name: a test
    calls: [{server_name: fs, tool_name: delete_file, expect: BLOCK}]
"""


def written(path: Path, name: str, *, tool: str = "delete_*", mode: str = "guardrails", selectors: str = "{}") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = POLICY.format(name=name, tool=tool, mode=mode, selectors=selectors, upper=name.upper().replace("-", "_"))
    path.write_text(text)
    return path


class Place:
    """A repository, and a home of its own."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "home" / ".subluminal"
        self.home.mkdir(parents=True, mode=0o700)
        self.repository = directory / "repository"
        (self.repository / ".git").mkdir(parents=True)
        self.own = self.repository / ".subluminal" / "policy.yaml"
        self.users = self.home / "policy.yaml"

    def sub(self, *words: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*SUB, "policy", *words],
            cwd=cwd or self.repository,
            env=sub_environment(self.home, **env),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def json(self, *words: str, **options: Any) -> Any:
        return json.loads(self.sub(*words, "--json", **options).stdout)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_newcomer_is_told_what_to_do(place: Place) -> None:
    told = place.sub("in-force")
    assert told.returncode == 0
    assert "No policy is in force here: every call is allowed and recorded." in told.stdout
    assert "sub policy init " in told.stdout
    assert place.json("in-force")["policies"] == []
    assert place.sub("lint").returncode == 0
    assert "sub policy init" in place.sub("lint").stderr


def test_policies_are_listed_in_their_order_with_where_they_come_from(place: Place) -> None:
    written(place.users, "mine")
    written(place.own, "outer")
    inner = place.repository / "a" / "b"
    written(inner / ".subluminal" / "policy.yaml", "inner", mode="observe")
    told = place.json("in-force", cwd=inner)
    assert [(one["order"], one["origin"], one["policy_id"], one["mode"]) for one in told["policies"]] == [
        (1, "user", "mine", "guardrails"),
        (2, "repository", "outer", "guardrails"),
        (3, "repository", "inner", "observe"),
    ]
    assert all(one["valid"] and one["applies"] and len(one["policy_hash"]) == 64 for one in told["policies"])
    text = place.sub("in-force", cwd=inner).stdout
    assert "~/.subluminal/policy.yaml" in text
    assert "the strictest decision wins" in text


def test_a_policy_that_is_named_sets_the_others_aside(place: Place) -> None:
    written(place.own, "team")
    named = written(place.repository / "other.yaml", "named")
    told = place.json("in-force", SUB_POLICY="other.yaml")
    assert [(one["origin"], one["path"]) for one in told["policies"]] == [("SUB_POLICY", str(named))]
    assert told["set_aside"] == [{"origin": "repository", "path": str(place.own)}]
    text = place.sub("in-force", SUB_POLICY="other.yaml").stdout
    assert "not in force: repository .subluminal/policy.yaml (SUB_POLICY is set)" in text


def test_what_does_not_load_is_said_with_its_sentence(place: Place) -> None:
    written(place.own, "team")
    place.own.write_text(place.own.read_text().replace("kind: deny", "kind: denny"))
    told = place.sub("in-force")
    assert told.returncode == 1
    assert "does not load: every tool call is refused until it is mended" in told.stdout
    assert 'unknown kind "denny"' in told.stdout
    assert 'did you mean "deny"?' in told.stdout
    (one,) = place.json("in-force")["policies"]
    assert (one["valid"], one["applies"], one["policy_id"]) == (False, False, None)
    assert one["findings"][0]["line"] == 8


def test_selectors_that_leave_the_run_out_say_why_and_an_option_tries_another(place: Place) -> None:
    written(place.own, "team", selectors="{client: [claude]}")
    (one,) = place.json("in-force")["policies"]
    assert one["applies"] is False
    assert one["left_out"] == 'selectors.client asks for "claude", and this run has "unknown"'
    assert "does not apply to this run" in place.sub("in-force").stdout
    assert place.json("in-force", "--client", "claude")["policies"][0]["applies"] is True
    assert place.json("in-force", SUB_CLIENT="claude")["policies"][0]["applies"] is True


def test_a_name_that_is_almost_right_is_pointed_out(place: Place) -> None:
    written(place.own.with_name("policy.yml"), "team")
    assert ".subluminal/policy.yml is not read" in place.sub("in-force").stdout


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_it_fits_the_terminal(place: Place, columns: int) -> None:
    written(place.users, "a-policy-with-a-rather-long-name-of-its-own-for-everybody")
    written(place.own, "team", selectors='{workload: {repo: ["acme/web", "acme/api", "acme/worker"]}}')
    env = sub_environment(place.home, PYTHONUTF8="1")
    command = ["sh", "-c", f'cd {place.repository} && exec "$@"', "-", *SUB, "policy", "in-force"]
    with TerminalProgram(command, env=env, columns=columns, lines=40) as program:
        program.wait_for("try it with")
        assert max(len(row) for row in program.screen.rows) <= columns


def test_lint_checks_what_is_in_force_with_its_tests(place: Place) -> None:
    written(place.users, "mine")
    written(place.own, "team")
    tests = place.own.with_name("policy.test.yaml")
    tests.write_text(TESTS)
    report = place.json("lint")
    assert report["files"] == [str(place.users), ".subluminal/policy.yaml", ".subluminal/policy.test.yaml"]
    assert report["errors"] == 0
    tests.write_text(TESTS.replace("expect: BLOCK", "expects: BLOCK"))
    told = place.sub("lint")
    assert told.returncode == 1
    assert ".subluminal/policy.test.yaml:3:" in told.stdout
    assert 'did you mean "expect"?' in told.stdout


def test_lint_of_a_policy_that_is_named_but_not_there_is_not_silence(place: Place) -> None:
    told = place.sub("lint", SUB_POLICY="missing.yaml")
    assert told.returncode == 2
    assert "cannot read the policy" in told.stdout
    assert place.sub("lint", SUB_POLICY_JSON="{}").returncode == 1


def files(place: Place, *paths: str) -> Sequence[str]:
    return list(place.json("lint", *paths)["files"])


def test_lint_finds_policies_and_tests_below_a_directory_and_nothing_else(place: Place) -> None:
    written(place.own, "team")
    written(place.repository / "policies" / "ci.yml", "ci")
    (place.repository / "policies" / "ci.test.yaml").write_text(TESTS)
    (place.repository / "compose.yaml").write_text("services: {}\n")
    (place.repository / "package.json").write_text("{}")
    written(place.repository / "node_modules" / "x" / "policy.yaml", "of-a-package")
    place.sub("schema", "-o", ".subluminal/policy.schema.json")
    place.sub("compile", ".subluminal/policy.yaml", "-o", "policies/snapshot.json")
    found = ["./.subluminal/policy.yaml", "./policies/ci.test.yaml", "./policies/ci.yml"]
    assert files(place, ".") == found
    assert files(place, "policies", ".subluminal/policy.yaml") == [
        "policies/ci.test.yaml",
        "policies/ci.yml",
        ".subluminal/policy.yaml",
    ]


def test_lint_reads_a_policy_whose_id_is_misspelt(place: Place) -> None:
    path = written(place.repository / "policies" / "ci.yaml", "ci")
    path.write_text(path.read_text().replace("policy_id", "polcy_id"))
    told = place.sub("lint", "policies")
    assert told.returncode == 1
    assert 'did you mean "policy_id"?' in told.stdout


def test_lint_of_a_directory_without_a_policy_is_an_error(place: Place) -> None:
    (place.repository / "empty").mkdir()
    told = place.sub("lint", "empty")
    assert (told.returncode, told.stdout) == (2, "")
    assert "There is no policy in empty" in told.stderr


def test_lint_says_that_the_policy_of_a_test_is_missing(place: Place) -> None:
    (place.repository / "alone.test.yaml").write_text(TESTS)
    told = place.sub("lint", "alone.test.yaml")
    assert told.returncode == 1
    assert "the policy that it tests is not there: alone.yaml" in told.stdout


def test_explain_puts_a_call_to_all_that_is_in_force(place: Place) -> None:
    written(place.users, "mine", tool="read_*")
    written(place.own, "team")
    told = place.json("explain", "--server", "fs", "--tool", "delete_file")
    assert told["decision"]["reason_code"] == "OF_TEAM"
    assert [one["policy"]["policy_id"] for one in told["policies"]] == ["mine", "team"]
    text = place.sub("explain", "--server", "fs", "--tool", "delete_file").stdout
    assert "together  BLOCK  by team: of several policies, the strictest decision wins" in text
    assert "together  ALLOW  all allow it" in place.sub("explain", "--server", "fs", "--tool", "list").stdout


def test_explain_says_so_where_nothing_is_in_force(place: Place) -> None:
    told = place.sub("explain", "--server", "fs", "--tool", "delete_file")
    assert told.returncode == 0
    assert "No policy is in force here" in told.stdout
    assert place.json("explain", "--server", "fs", "--tool", "t")["policies"] == []


def test_explain_does_not_judge_by_a_policy_that_does_not_load(place: Place) -> None:
    place.own.parent.mkdir()
    place.own.write_text("rules: []")
    told = place.sub("explain", "--server", "fs", "--tool", "delete_file")
    assert told.returncode == 1
    assert "every tool call is refused (POLICY_INVALID)" in told.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "--call ID"),
        (["--server", "fs"], "--call ID"),
        (["--run", "last"], "--run and --shim go with --call"),
        (["--call", "x", "--tool", "t", "--env", "ci"], "--tool, --env cannot be given with --call"),
    ],
)
def test_explain_says_what_is_missing(place: Place, words: list[str], sentence: str) -> None:
    told = place.sub("explain", *words)
    assert told.returncode == 2
    assert sentence in told.stderr


def test_the_schema_is_printed_and_named_by_the_starter(place: Place) -> None:
    assert place.json("schema")["title"] == "Policy bundle"
    assert place.json("schema", "--snapshot")["title"] == "Policy snapshot"
    made = place.sub("init")
    assert made.returncode == 0
    first = place.own.read_text().splitlines()[0]
    beside = place.own.parent / first.removeprefix("# yaml-language-server: $schema=")
    assert json.loads(beside.read_text()) == place.json("schema")
    assert str(place.repository) not in place.own.read_text()
    assert "another version" not in place.sub("lint").stderr
    beside.write_text(beside.read_text().replace("Policy bundle", "Policy bundle of old"))
    assert "sub policy schema -o .subluminal/policy.schema.json" in place.sub("lint").stderr
    beside.write_text("kept")
    assert "another version" not in place.sub("lint").stderr
    assert place.sub("init", ".subluminal/second.yaml").returncode == 0
    assert beside.read_text() == "kept"
