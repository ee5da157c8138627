"""From a refused call to a better policy with real clients: refused, promoted for its run, then for good."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clients import programs
from clients.models import Decided, ModelServer, ToolCall, Turn
from clients.scenarios import BOX, ECHO, GOODBYE
from clients.test_through_shim import Desk
from harness.ledger import ledgerd
from harness.processes import kill_marked
from harness.waiting import wait_for
from subluminal.contracts.moments import epoch_ms

pytestmark = [pytest.mark.clients, pytest.mark.timeout(240)]
# What a model takes to answer, at the least: a second, in which a promote has come into force, is four calls.
THINKING_S = 0.25
OTHER = ToolCall("echo", {"text": "something else"}, server=BOX)
POLICY = """# The policy of this desk.
policy_id: team
version: "1"
mode: control
defaults: {decision_on_error: BLOCK}
selectors: {}
rules:
  # Greetings are not to be echoed.
  - rule_id: no-greeting
    kind: deny
    match: {tool_name: {glob: [echo]}, args: {key_equals: {text: hello}}}
    effect: {action: BLOCK, hint_text: Say something else.}
"""


class Operator:
    """Somebody with a terminal of their own."""

    def __init__(self, desk: Desk) -> None:
        self._env = {**programs.base_env(desk.home), "SUB_HOME": str(desk.sub_home)}
        self._cwd = desk.home

    def sub(self, *words: str) -> list[dict[str, Any]]:
        done = subprocess.run(
            [sys.executable, "-m", "subluminal", *words, "--json"],
            env=self._env,
            cwd=self._cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def refused_call(self) -> dict[str, Any]:
        rows = wait_for(lambda: self.sub("query", "--rule", "no-greeting", "--limit", "1"), what="the refused call")
        return rows[0]


@pytest.fixture(params=["claude_code", "codex"])
def desk(request: pytest.FixtureRequest, cli_dir: Path, home: Path) -> Iterator[Desk]:
    place = Desk(request.param, cli_dir, home)
    (place.sub_home / "policy.yaml").write_text(POLICY)
    with ledgerd(place.sub_home):
        yield place
    kill_marked(place.marker)


def test_a_refused_call_is_promoted_for_its_run_and_then_for_good(desk: Desk) -> None:
    operator = Operator(desk)
    promoted: dict[str, Any] = {}
    others: list[str] = []

    def promote(model: ModelServer) -> Turn:
        assert "Say something else" in model.tool_outputs()[-1]
        promoted.update(operator.refused_call())
        operator.sub("promote", promoted["call_id"])
        return ECHO

    def again(model: ModelServer) -> Turn:
        """The same call until it goes through; then another run, while this one is on."""
        if "echo: hello" not in model.tool_outputs()[-1]:
            time.sleep(THINKING_S)
            return ECHO
        _, other = desk.run(ECHO, OTHER, GOODBYE)
        others.extend(other.tool_outputs())
        return GOODBYE

    _, model = desk.run(ECHO, Decided(promote), *[Decided(again)] * 20)
    assert "echo: hello" in model.tool_outputs()[-1]
    _in_force_within_a_second(operator, promoted["run_id"])
    refused, corrected = others
    assert "Say something else" in refused and "echo: something else" in corrected
    _, given_up = desk.run(ECHO, GOODBYE)
    assert "Say something else" in given_up.tool_outputs()[-1]
    (rule,) = operator.sub("hints", "--rule", "no-greeting")
    # What the scripts did: one was promoted, one corrected itself at once, one gave up.
    counted = rule["outcomes"]["promoted"] + rule["outcomes"]["corrected"] + rule["outcomes"]["gave_up"]
    assert (rule["outcomes"]["corrected"], rule["outcomes"]["gave_up"]) == (1, 1), rule
    assert counted == rule["refused"] and rule["recovery_rate"] == 0.5 and rule["calls_to_recovery"] == 1.0
    (told,) = operator.sub("promote", promoted["call_id"], "--persist", "--yes")
    assert "+  - rule_id: allow-box-echo" in told["text_diff"]
    assert told["past"]["newly_allowed_total"] >= 3
    _, allowed = desk.run(ECHO, GOODBYE)
    assert "echo: hello" in allowed.tool_outputs()[-1]


def _in_force_within_a_second(operator: Operator, run_id: str) -> None:
    """By the record: a second after the promote no call like it is refused any more."""
    (run,) = operator.sub("show", run_id)
    (promote,) = [item for item in run["timeline"] if item["kind"] == "promote"]
    (through,) = [item for item in run["timeline"] if item.get("reason_code") == "PROMOTED"]
    later = [item for item in run["timeline"] if item["at"] > promote["at"] and item.get("rule_id") == "no-greeting"]
    assert all(epoch_ms(item["at"]) - epoch_ms(promote["at"]) < 1_000 for item in later)
    assert promote["promote"]["promote_id"] == through["rule_id"]
