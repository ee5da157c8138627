"""The templates for clients' own tools: for each rule, calls that it refuses, and calls that pass the whole policy."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness import places
from harness.sentences import Step, Story, World
from subluminal.policy.compile.bundle import compile_bundle
from subluminal.policy.edit.template import template_files

DIRECTORY = places.ROOT / "tests" / "language" / "builtin"
TEMPLATES = ("shell", "coding")
AT_LEAST = 5


def step_of(call: Any) -> Step:
    """A text is a command of the shell; a mapping has one tool and its arguments."""
    if isinstance(call, str):
        return Step(call="builtin/Bash", args={"command": call})
    [(tool, args)] = call.items()
    return Step(call=f"builtin/{tool}", args=args)


def told(path: Path) -> list[tuple[str, str | None, list[Any], list[Any]]]:
    """(template, rule, what it refuses, what passes) of one file. No rule: what none may refuse."""
    found = []
    for entry in yaml.safe_load(path.read_text(encoding="utf-8")):
        for template, rule in entry["rules"].items():
            found.append((template, rule, entry["refuse"], entry["pass"]))
    return found


CASES = [case for path in sorted(DIRECTORY.glob("*.yaml")) for case in told(path)]
REFUSED = [(template, rule, call) for template, rule, refused, _ in CASES for call in refused]
PASSED = [(template, call) for template, _, _, passed in CASES for call in passed]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world").resolve())


@pytest.fixture(autouse=True)
def own_home(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from subluminal.host.run.root import settle_root

    monkeypatch.setenv("SUB_HOME", str(world.home / ".subluminal"))
    settle_root("sentences", str(world.root))


@cache
def snapshot_of(template: str) -> dict[str, Any]:
    return compile_bundle(template_files(template, "policy.yaml")["policy.yaml"], f"{template}.yaml")


@pytest.mark.parametrize(("template", "rule", "call"), REFUSED, ids=str)
def test_a_call_is_refused_by_a_rule(world: World, template: str, rule: str, call: Any) -> None:
    [verdict] = Story(snapshot_of(template), world).tell(step_of(call))
    assert verdict.decision.action == "REJECT_WITH_HINT"
    assert verdict.decision.rule_id is not None


@pytest.mark.parametrize(("template", "call"), PASSED, ids=str)
def test_what_a_coding_agent_needs_passes(world: World, template: str, call: Any) -> None:
    [verdict] = Story(snapshot_of(template), world).tell(step_of(call))
    decision = verdict.decision
    assert decision.action == "ALLOW", (decision.rule_id, decision.reason_code, decision.summary)


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_rule_has_calls_of_both_kinds_and_is_what_refuses_most_of_them(world: World, template: str) -> None:
    story_of = snapshot_of(template)
    denies = {rule["rule_id"] for rule in story_of["rules"] if rule["kind"] == "deny"}
    for rule in sorted(denies):
        refused = [call for of, name, calls, _ in CASES for call in calls if (of, name) == (template, rule)]
        passed = [call for of, name, _, calls in CASES for call in calls if (of, name) == (template, rule)]
        assert len(passed) >= AT_LEAST, rule
        by = [Story(story_of, world).tell(step_of(call))[0].decision.rule_id for call in refused]
        assert by.count(rule) >= AT_LEAST, (rule, by)


def test_the_shell_rules_of_both_templates_say_the_same() -> None:
    """`coding` holds those of `shell` under names of its own, so that both can stand in one policy."""
    rules = {template: {rule["rule_id"]: rule for rule in snapshot_of(template)["rules"]} for template in TEMPLATES}
    pairs = [entry["rules"] for entry in yaml.safe_load((DIRECTORY / "shell.yaml").read_text(encoding="utf-8"))]
    assert {pair["shell"] for pair in pairs} == set(rules["shell"])
    for pair in pairs:
        first, second = rules["shell"][pair["shell"]], rules["coding"][pair["coding"]]
        assert {**first, "rule_id": "", "effect": None} == {**second, "rule_id": "", "effect": None}
        assert first["effect"]["reason_code"] == second["effect"]["reason_code"]


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_refusal_tells_the_model_how_to_go_on(template: str) -> None:
    for rule in snapshot_of(template)["rules"]:
        if rule["kind"] == "deny":
            assert rule["effect"]["action"] == "REJECT_WITH_HINT"
            assert len(rule["effect"]["hint_text"]) > 40
