"""`sub policy explain --call`: calls that a real shim recorded, judged again with what the record has of them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.command_line import SUB
from harness.fake_server import fake_server
from harness.shim import Shim

TOKEN = "ghp_0123456789abcdefghijklmnopqrstuvwxyzAB"
NEW = """policy_id: new
version: "1"
mode: guardrails
defaults: {decision_on_error: BLOCK}
selectors: {}
rules:
  - {rule_id: no-root, kind: deny, match: {args: {key_equals: {path: /}}}, effect: {action: BLOCK}}
  - {rule_id: no-token, kind: deny, match: {args: {key_equals: {token: x}}}, effect: {action: BLOCK}}
  - rule_id: few-writes
    kind: budget
    match: {tool_name: {glob: ["write_*"]}}
    effect: {budget: {scope: run, limit_calls: 3, on_exceed: BLOCK}}
"""
BY_NAME = NEW[: NEW.index("  - {rule_id: no-root")] + NEW[NEW.index("  - rule_id: few-writes") :]
CALLS = [
    ("write_file", {"path": "a"}),
    ("write_file", {"path": "b", "token": TOKEN}),
    ("write_file", {"path": "c", "content": "x" * 50_000}),
    ("read_file", {"path": "/"}),
    ("write_file", {"path": "d"}),
]


class Recorded:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        shim = Shim(directory, "fs", fake_server(tools={"*": {}}))
        shim.run(*CALLS)
        self.env = shim.env
        assert self.sub("ingest", str(directory / "events-fs.jsonl")).returncode == 0
        (directory / "new.yaml").write_text(NEW)
        (directory / "by_name.yaml").write_text(BY_NAME)
        rows = [json.loads(line) for line in self.sub("query", "--json").stdout.splitlines()]
        self.calls = [row["call_id"] for row in reversed(rows)]

    def sub(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*SUB, *words], cwd=self.directory, env=self.env, capture_output=True, text=True, check=False
        )

    def explained(self, number: int, policy: str = "new.yaml") -> Any:
        return json.loads(self.sub("policy", "explain", policy, "--call", self.calls[number], "--json").stdout)

    def told(self, number: int, policy: str = "new.yaml") -> str:
        return self.sub("policy", "explain", policy, "--call", self.calls[number]).stdout


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(tmp_path_factory.mktemp("recorded"))


def test_a_call_whose_arguments_are_recorded_whole_is_judged_with_certainty(recorded: Recorded) -> None:
    told = recorded.explained(3)
    assert (told["decision"]["action"], told["decision"]["rule_id"]) == ("BLOCK", "no-root")
    assert (told["certain"], told["arguments"]["complete"]) == (True, True)
    assert told["recorded"]["decision"] == "ALLOW"
    assert "recorded  ALLOW  no rule, DEFAULT_ALLOW" in recorded.told(3)


def test_counters_stand_as_the_calls_before_it_left_them(recorded: Recorded) -> None:
    told = recorded.explained(4, "by_name.yaml")
    assert (told["decision"]["rule_id"], told["decision"]["reason_code"]) == ("few-writes", "BUDGET_EXCEEDED")
    assert told["calls_before"] == 4
    assert "counters  after 4 earlier calls of its run" in recorded.told(4)
    assert recorded.explained(0, "by_name.yaml")["decision"]["action"] == "ALLOW"


def test_a_masked_value_makes_the_rules_that_look_at_it_uncertain_and_no_others(recorded: Recorded) -> None:
    told = recorded.explained(1)
    assert (told["certain"], told["doubtful_rules"]) == (False, ["no-token"])
    assert "masked" in told["arguments"]["why"]
    text = recorded.told(1)
    assert "not certain: no-token would look at values that are not there" in text
    assert TOKEN not in text
    assert "No rule that was asked looks at them: the decision is certain." in recorded.told(1, "by_name.yaml")


def test_arguments_that_were_cut_make_every_rule_on_arguments_uncertain(recorded: Recorded) -> None:
    told = recorded.explained(2)
    assert told["doubtful_rules"] == ["no-root", "no-token"]
    assert "only the beginning" in told["arguments"]["why"]
    assert recorded.explained(2, "by_name.yaml")["certain"] is True


def test_without_a_file_it_is_judged_by_what_is_in_force(recorded: Recorded) -> None:
    told = recorded.sub("policy", "explain", "--call", recorded.calls[0])
    assert told.returncode == 0
    assert "No policy is in force here" in told.stdout


def test_a_call_that_is_not_recorded_is_said_so(recorded: Recorded) -> None:
    told = recorded.sub("policy", "explain", "new.yaml", "--call", "nothing")
    assert told.returncode == 2
    assert "There is no call 'nothing' in the ledger." in told.stderr
    several = recorded.sub("policy", "explain", "new.yaml", "--call", recorded.calls[0][:4])
    assert several.returncode == 2
    assert "More than one call begins with" in several.stderr
