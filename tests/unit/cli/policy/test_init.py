"""`sub policy init`, as somebody would use it who has just heard of it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from harness import places
from subluminal.cli.main import run
from subluminal.policy.edit.template import TEMPLATES


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    work = tmp_path / "work"
    (work / ".git").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "home" / ".subluminal"))
    monkeypatch.chdir(work)
    return work


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_written_and_in_order(name: str, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "init", "--template", name]) == 0
    assert run(["policy", "lint", "--strict", ".subluminal/policy.yaml"]) == 0
    assert run(["policy", "test", "--fail-on-empty", "--min-coverage", "100", ".subluminal"]) == 0
    assert f"policy_id: {name}\n" in (work / ".subluminal" / "policy.yaml").read_text()


def test_the_templates_are_listed_with_what_they_are_for(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "init", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(TEMPLATES)
    assert all(len(line.split()) > 4 for line in lines)
    assert run(["policy", "init", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["templates"]
    assert [entry["name"] for entry in listed] == list(TEMPLATES)
    assert listed[1] == {"name": "readonly", "description": "Agents may look and change nothing, on whatever server."}
    assert not (work / ".subluminal").exists()


def test_an_unknown_template_is_answered_with_the_choices(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "init", "--template", "filesytem"]) == 2
    told = capsys.readouterr().err
    assert "'filesytem'" in told and all(f"'{name}'" in told for name in TEMPLATES)
    assert not (work / ".subluminal").exists()


def test_a_trial_writes_nothing(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "init", "--template", "git", "--dry-run"]) == 0
    assert "policy_id: git\n" in capsys.readouterr().out
    assert run(["policy", "init", "--template", "git", "--dry-run", "--json", "a.yaml"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["written"] == [] and told["would_write"][:2] == ["a.yaml", "a.test.yaml"]
    assert list(work.iterdir()) == [work / ".git"]


def test_a_second_template_overwrites_nothing(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "init", "--template", "git"]) == 0
    before = (work / ".subluminal" / "policy.yaml").read_bytes()
    assert run(["policy", "init", "--template", "github"]) == 2
    assert "exists already" in capsys.readouterr().err
    assert (work / ".subluminal" / "policy.yaml").read_bytes() == before


def test_the_first_example_of_the_page_is_refused(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every line of the first block of docs/policy.md, typed by a new user: the last one asks for a refusal."""
    page = (places.ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
    block = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)[0]
    commands = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert [command[:3] for command in commands if "explain" in command] == [["sub", "policy", "explain"]]
    for command in commands:
        capsys.readouterr()
        assert run(command[1:]) == 0
    told = capsys.readouterr().out
    assert "REJECT_WITH_HINT" in told and "no-destruction" in told


def test_the_example_of_the_readme_prints_what_it_says(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (places.ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = [block for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL) if "policy init" in block]
    init, explain, *told = block.splitlines()
    assert run(shlex.split(init)[2:]) == 0
    capsys.readouterr()
    command, _, shown = explain.partition(" | tail -")
    assert run(shlex.split(command)[2:]) == 0
    assert capsys.readouterr().out.splitlines()[-int(shown) :] == told
