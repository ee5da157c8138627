"""The author's reference is complete and its examples work."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from harness import places
from harness.engine import FlatPlaces, Run
from subluminal.cli.policy.group import COMMANDS, POLICY
from subluminal.contracts.identity import Identity
from subluminal.contracts.policy import Bundle
from subluminal.core.engine.hints import PLACEHOLDERS
from subluminal.policy.compile.bundle import compile_bundle
from subluminal.policy.lint.findings import NOTE
from subluminal.policy.lint.load import load_bundle
from subluminal.policy.replay.cases import CaseFile

ROOT = places.ROOT
PAGE = (ROOT / "docs" / "policy.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
SOURCES = [path.read_text() for path in (ROOT / "src" / "subluminal" / "policy").rglob("*.py")]


def field_names(kind: inspect.Type) -> set[str]:
    names: set[str] = set()
    todo, seen = [kind], set()
    while todo:
        current = todo.pop()
        if isinstance(current, inspect.StructType) and current.cls not in seen:
            seen.add(current.cls)
            names |= {field.encode_name for field in current.fields}
            todo += [field.type for field in current.fields]
        elif isinstance(current, inspect.UnionType):
            todo += current.types
        elif isinstance(current, inspect.ListType):
            todo.append(current.item_type)
        elif isinstance(current, inspect.DictType):
            todo.append(current.value_type)
    return names


@pytest.mark.parametrize("kind", [Bundle, CaseFile], ids=["policy", "test file"])
def test_every_field_is_described(kind: type[msgspec.Struct]) -> None:
    names = field_names(inspect.type_info(kind))
    assert len(names) > 15
    assert {name for name in names if not re.search(rf"\b{name}\b", PAGE)} == set()


def test_every_finding_is_listed() -> None:
    words = set(re.findall(r'"([a-z]+(?:-[a-z0-9]+)+)"', "".join(SOURCES)))
    codes = words - {"utf-8", "utf-8-sig", "builtin-observe"}
    assert len(codes) > 30
    assert {code for code in codes if f"`{code}`" not in PAGE} == set()


def test_every_placeholder_of_a_hint_is_listed() -> None:
    assert {word for word in PLACEHOLDERS if f"`{{{word}}}`" not in PAGE} == set()


def test_every_command_and_option_is_described() -> None:
    group = POLICY.click_command()
    for name in COMMANDS:
        command = group.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        options = {flag for parameter in command.params for flag in parameter.opts if flag.startswith("--")}
        (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `sub policy {name} ")]
        missing = {flag for flag in options - {"--json", "--output"} if flag not in row}
        assert missing == set()


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.startswith("policy_id")])
def test_the_examples_lint_clean(block: str) -> None:
    findings = load_bundle(block.encode(), "example.yaml").findings
    assert [finding for finding in findings if finding.level != NOTE] == []


def test_there_are_examples() -> None:
    assert len(BLOCKS) >= 3


def recipe(policy_id: str, env: str = "dev") -> Run:
    (block,) = [block for block in BLOCKS if block.startswith(f"policy_id: {policy_id}\n")]
    return Run(compile_bundle(block.encode(), "p.yaml"), places=FlatPlaces(), identity=Identity("run", env=env))


@pytest.mark.parametrize(
    ("tool", "args", "rule_id"),
    [
        ("write_file", {"path": "src/a.py"}, None),
        ("write_file", {"path": "/work/src/../a.py"}, None),
        ("write_file", {"path": "/etc/hosts"}, "writes-stay-here"),
        ("write_file", {"path": "../a.py"}, "writes-stay-here"),
        ("move_file", {"source": "a", "destination": "b"}, None),
        ("move_file", {"source": "a", "destination": "/tmp/b"}, "moves-stay-here"),
        ("move_file", {"source": "/tmp/a", "destination": "b"}, "moves-stay-here"),
        ("fetch", {"url": "https://example.com/"}, None),
        ("fetch", {"url": "http://localhost:3000/"}, None),
        ("fetch", {"url": "http://10.0.0.7/"}, "no-private-network"),
        ("fetch", {"url": "http://127.0.0.1:3000/"}, "no-private-network"),
        ("Bash", {"command": "git status && rm -rf x"}, "no-rm-no-curl"),
        ("Bash", {"command": "git status"}, None),
    ],
)
def test_the_recipes_do_what_their_comments_say(tool: str, args: dict[str, Any], rule_id: str | None) -> None:
    assert recipe("recipes").call(tool, args).decision.rule_id == rule_id


def test_the_recipe_for_an_hour_counts_to_fifty() -> None:
    run = recipe("recipes")
    found = [run.call("t", {"n": number}).decision.rule_id for number in range(51)]
    assert found == [None] * 50 + ["fifty-an-hour"]


def test_the_recipe_for_mails_lets_reminders_through() -> None:
    run, mail = recipe("recipes"), {"to": "a", "subject": "b", "body": "c"}
    calls = [
        mail,
        {**mail, "priority": 1},
        {**mail, "reminder": True},
        {**mail, "reminder": "yes"},
        {**mail, "to": "d"},
    ]
    found = [run.call("send_mail", args).decision.rule_id for args in calls]
    assert found == [None, "no-mail-twice", None, "no-mail-twice", None]


@pytest.mark.parametrize(("env", "action"), [("ci", "BLOCK"), ("dev", "ALLOW")])
def test_the_recipe_for_ci_is_for_ci(env: str, action: str) -> None:
    run = recipe("reads-in-ci", env)
    assert [run.call(tool).decision.action for tool in ("read_file", "write_file")] == ["ALLOW", action]
