"""`sub proxy http` as a user types it: what is wrong is said before anything listens; `--check` shows the mapping."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.command_line import run_sub
from harness.places import ROOT

TRACKER = str(ROOT / "tests" / "fixtures" / "http_api" / "tracker.yaml")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "--config"),
        (("--config", "none.yaml"), "none.yaml:1:1: error: cannot read the mapping: No such file"),
        (("--config", TRACKER, "--listen", "here"), "--listen here: write it as HOST:PORT"),
        (("--config", TRACKER, "--listen", "0.0.0.0:0"), "--token-env VARIABLE"),
        (("--config", TRACKER, "--bearer-env", "NOT_SET"), "NOT_SET is not set"),
        (("--config", TRACKER, "--header-env", "nonsense"), "write it as NAME=VARIABLE"),
    ],
)
def test_what_is_wrong_is_a_sentence(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    done = run_sub(tmp_path, "proxy", "http", *words)
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_bad_mapping_is_told_with_place_and_fix(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text("server: x\nupstram: http://h/\noperations:\n  - {tool: a, method: GET, path: b}\n")
    done = run_sub(tmp_path, "proxy", "http", "--config", str(path))
    assert done.returncode == 2 and done.stdout == ""
    assert 'm.yaml:2:1: error: unknown key "upstram"' in done.stderr and 'did you mean "upstream"?' in done.stderr
    checked = run_sub(tmp_path, "proxy", "http", "--config", str(path), "--check")
    assert checked.returncode == 2
    for said in ("unknown key", "there is no `upstream`", '"b": a path begins with a slash', "write /b"):
        assert said in checked.stderr, said


def test_check_prints_the_operations(tmp_path: Path) -> None:
    done = run_sub(tmp_path, "proxy", "http", "--config", TRACKER, "--check")
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "tracker  http://127.0.0.1:9/api/v3  unmapped: refuse"
    assert lines[1].split() == ["tool", "method", "path", "query", "body", "risk_class"]
    assert lines[7].split() == [
        "delete_repo",
        "DELETE",
        "/repos/{owner}/{repo}",
        "any",
        "none",
        "destructive,",
        "write_like",
    ]


def test_check_prints_them_as_json(tmp_path: Path) -> None:
    done = run_sub(tmp_path, "proxy", "http", "--config", TRACKER, "--check", "--json")
    told = json.loads(done.stdout)
    assert (told["server"], told["unmapped"], len(told["operations"])) == ("tracker", "refuse", 24)
    assert told["operations"][0] == {
        "tool": "get_me", "method": "GET", "path": "/user", "query": [], "body": "none", "risk_class": ["read_like"],
    }  # fmt: skip
