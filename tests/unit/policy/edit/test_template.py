"""The policies that `sub policy init` writes: each is short, clean, tested, and says what it is for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from harness import places
from subluminal.policy.compile.bundle import compile_bundle
from subluminal.policy.edit.layout import format_policy
from subluminal.policy.edit.template import STARTER, TEMPLATES, described, template_files
from subluminal.policy.lint.findings import NOTE
from subluminal.policy.lint.load import load_bundle
from subluminal.policy.replay.testing import run_file

DIRECTORY = places.ROOT / "src" / "subluminal" / "policy" / "edit" / "templates"
every_template = pytest.mark.parametrize("name", TEMPLATES)


@pytest.fixture(autouse=True)
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "work"
    (place / ".git").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(place)
    return place


def written(name: str, directory: Path) -> tuple[Path, Path]:
    policy, tests = template_files(name, str(directory / "policy.yaml")).items()
    for path, content in (policy, tests):
        Path(path).write_bytes(content)
    return Path(policy[0]), Path(tests[0])


def test_every_template_has_its_tests_and_is_named() -> None:
    names = {path.name for path in DIRECTORY.iterdir()}
    assert names == {f"{name}{ending}" for name in TEMPLATES for ending in (".yaml", ".test.yaml")}
    assert TEMPLATES[0] == STARTER


@every_template
def test_a_template_lints_without_errors_and_warnings_and_is_formatted(name: str, repository: Path) -> None:
    for path in written(name, repository):
        assert format_policy(path.read_bytes(), path.name) == path.read_bytes()
    findings = load_bundle((repository / "policy.yaml").read_bytes(), "policy.yaml").findings
    assert [finding for finding in findings if finding.level != NOTE] == []


@every_template
def test_the_tests_of_a_template_pass_and_cover_every_rule(name: str, repository: Path) -> None:
    _, tests = written(name, repository)
    result = run_file(str(tests))
    assert Path(result.policy).name == "policy.yaml"
    assert [test.failure.text() for test in result.results if test.failure] == []
    assert [rule_id for rule_id, covered in result.covered.items() if not covered] == []


@every_template
def test_a_template_is_called_by_its_name_and_is_short(name: str) -> None:
    source = template_files(name, "policy.yaml")["policy.yaml"]
    assert compile_bundle(source, "policy.yaml")["policy_id"] == name
    # `coding` speaks of shells, files and pages at once.
    assert len(source.splitlines()) <= (190 if name == "coding" else 140)
    assert described()[name].endswith(".") and len(described()[name]) <= 110


def test_rules_of_several_templates_can_stand_in_one_policy() -> None:
    """Who has two kinds of servers copies the rules of both: no id is in two of them."""
    ids = Counter(
        rule["rule_id"]
        for name in TEMPLATES
        for rule in compile_bundle(template_files(name, "p.yaml")["p.yaml"], "p.yaml")["rules"]
    )
    assert [rule_id for rule_id, count in ids.items() if count > 1] == []
