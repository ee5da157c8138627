"""Which places are marked as closed for a hook that can ask nobody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from subluminal.policy.closed import keep_markers


def policy(mode: str = "guardrails", on_error: str = "BLOCK") -> str:
    defaults: dict[str, Any] = {"decision_on_error": on_error}
    head = {"policy_id": "p", "version": "1", "mode": mode, "defaults": defaults}
    return json.dumps({**head, "selectors": {}, "rules": []})


def marked(home: Path) -> list[str]:
    return sorted(path.read_text() for path in (home / "closed").glob("*"))


def test_the_users_policy_closes_every_place_while_it_is_enforced_and_fails_closed(tmp_path: Path) -> None:
    environ = {"SUB_HOME": str(tmp_path / "sub"), "HOME": str(tmp_path)}
    (home := tmp_path / "sub").mkdir(mode=0o700)
    keep_markers(environ, str(tmp_path))
    assert not (home / "closed").exists(), "nothing is written where nothing is closed"
    for text, expected in (
        (policy(), ["/\n"]),
        (policy(mode="observe"), []),
        (policy(mode="control"), ["/\n"]),
        (policy(on_error="ALLOW"), []),
        ("no policy at all", ["/\n"]),
    ):
        (home / "policy.yaml").write_text(text)
        keep_markers(environ, str(tmp_path))
        assert marked(home) == expected, text
    (home / "policy.yaml").unlink()
    keep_markers(environ, str(tmp_path))
    assert marked(home) == []


def test_a_repositorys_policy_closes_the_repository_and_keeps_what_others_have_marked(tmp_path: Path) -> None:
    environ = {"SUB_HOME": str(tmp_path / "sub"), "HOME": str(tmp_path)}
    for name in ("one", "two"):
        (tmp_path / name / ".git").mkdir(parents=True)
        (tmp_path / name / ".subluminal").mkdir()
        (tmp_path / name / ".subluminal" / "policy.yaml").write_text(policy())
        (tmp_path / name / "below").mkdir()
        keep_markers(environ, str(tmp_path / name / "below"))
    assert marked(tmp_path / "sub") == [f"{tmp_path}/one/\n", f"{tmp_path}/two/\n"]
    (tmp_path / "one" / ".subluminal" / "policy.yaml").write_text(policy(mode="observe"))
    keep_markers(environ, str(tmp_path / "one"))
    assert marked(tmp_path / "sub") == [f"{tmp_path}/two/\n"]


def test_a_policy_that_was_named_for_a_run_closes_its_directory_beside_the_users(tmp_path: Path) -> None:
    environ = {"SUB_HOME": str(tmp_path / "sub"), "HOME": str(tmp_path), "SUB_POLICY_JSON": policy()}
    (tmp_path / "sub").mkdir(mode=0o700)
    (tmp_path / "sub" / "policy.yaml").write_text(policy())
    keep_markers(environ, str(tmp_path))
    assert marked(tmp_path / "sub") == ["/\n", f"{tmp_path}/\n"]


def test_a_directory_whose_name_is_no_line_is_marked_by_the_one_above(tmp_path: Path) -> None:
    environ = {"SUB_HOME": str(tmp_path / "sub"), "HOME": str(tmp_path), "SUB_POLICY_JSON": policy()}
    (tmp_path / "two\nlines").mkdir()
    keep_markers(environ, str(tmp_path / "two\nlines"))
    assert marked(tmp_path / "sub") == [f"{tmp_path}/\n"]
