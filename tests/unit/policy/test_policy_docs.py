"""The author's reference is complete and its examples work."""

from __future__ import annotations

import re

import msgspec
import pytest
from msgspec import inspect

from harness import places
from subluminal.cli.policy.group import COMMANDS, policy_group
from subluminal.contracts.policy import Bundle
from subluminal.core.engine.hints import PLACEHOLDERS
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
    for name in COMMANDS:
        command = policy_group.get_command(None, name)  # type: ignore[arg-type]
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
