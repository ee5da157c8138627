"""Which policies are in force, and in which order."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from subluminal.policy import sources as locate
from subluminal.policy.compile.bundle import snapshot_bytes
from subluminal.policy.lint.findings import UnreadablePolicy
from subluminal.policy.sources import BUILTIN_OBSERVE, find_policies

EMPTY = """policy_id: {name}
version: "1"
mode: guardrails
defaults: {{decision_on_error: BLOCK}}
selectors: {{}}
rules: []
"""


@pytest.fixture(autouse=True)
def organisation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "etc" / "policy.yaml"
    monkeypatch.setattr(locate, "ORGANISATION_POLICY", str(path))
    return path


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / ".git").mkdir(parents=True)
    (root / "src" / "deep").mkdir(parents=True)
    return root


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(EMPTY.format(name=path.parent.name.strip(".")))
    return path


def found(cwd: Path, explicit: str | None = None, **environ: str) -> list[tuple[str, str | None]]:
    environ.setdefault("SUB_HOME", os.environ["SUB_HOME"])
    return [(source.origin, source.path or source.inline) for source in find_policies(environ, str(cwd), explicit)]


def user_policy() -> Path:
    return Path(os.environ["SUB_HOME"]) / "policy.yaml"


def test_with_no_policy_at_all_the_built_in_one_observes(repository: Path) -> None:
    (source,) = find_policies({}, str(repository))
    assert source.origin == "builtin"
    assert source.load() == BUILTIN_OBSERVE
    assert hashlib.sha256(snapshot_bytes(BUILTIN_OBSERVE)).hexdigest() == BUILTIN_OBSERVE["policy_hash"]


def test_organisation_user_and_repository_stack_in_this_order(organisation: Path, repository: Path) -> None:
    paths = [write(organisation), write(user_policy()), write(repository / ".subluminal" / "policy.yaml")]
    sources = find_policies(dict(os.environ), str(repository / "src" / "deep"))
    assert [source.origin for source in sources] == ["organisation", "user", "repository"]
    assert [source.path for source in sources] == [str(path) for path in paths]
    assert [source.load()["policy_id"] for source in sources] == ["etc", "subluminal", "subluminal"]


def test_a_named_policy_replaces_user_and_repository_but_never_the_organisation(
    organisation: Path, repository: Path
) -> None:
    write(organisation)
    write(user_policy())
    write(repository / ".subluminal" / "policy.yaml")
    org = ("organisation", str(organisation))
    assert found(repository, "x.yaml", SUB_POLICY="y.yaml") == [org, ("--policy", str(repository / "x.yaml"))]
    assert found(repository, SUB_POLICY="/y.yaml", SUB_POLICY_JSON="{}") == [org, ("SUB_POLICY", "/y.yaml")]
    assert found(repository, SUB_POLICY_JSON="{}") == [org, ("SUB_POLICY_JSON", "{}")]


def test_a_nested_policy_is_added_to_the_one_above_it(repository: Path) -> None:
    outer = write(repository / ".subluminal" / "policy.yaml")
    inner = write(repository / "src" / ".subluminal" / "policy.yaml")
    assert found(repository / "src" / "deep") == [("repository", str(outer)), ("repository", str(inner))]


def test_the_search_ends_at_the_repository_root(repository: Path, tmp_path: Path) -> None:
    write(tmp_path / ".subluminal" / "policy.yaml")
    assert found(repository) == [("builtin", None)]


def test_outside_a_repository_the_working_directory_s_own_policy_counts_and_none_above_it(tmp_path: Path) -> None:
    directory = tmp_path / "plain"
    path = write(directory / ".subluminal" / "policy.yaml")
    (directory / "below").mkdir()
    assert found(directory) == [("repository", str(path))]
    assert found(directory / "below") == [("builtin", None)]


def test_a_home_that_is_a_repository_is_judged_once(own_home: Path) -> None:
    (own_home / ".git").mkdir(parents=True)
    write(user_policy())
    assert found(own_home) == [("user", str(user_policy()))]


def test_a_worktree_whose_git_is_a_file_is_a_repository(tmp_path: Path) -> None:
    root = tmp_path / "worktree"
    root.mkdir()
    (root / ".git").write_text("gitdir: elsewhere\n")
    path = write(root / ".subluminal" / "policy.yaml")
    assert found(root) == [("repository", str(path))]


@pytest.mark.parametrize("kind", ["dangling", "directory", "loop"])
def test_a_policy_that_is_there_but_cannot_be_read_is_no_reason_to_have_none(repository: Path, kind: str) -> None:
    path = repository / ".subluminal" / "policy.yaml"
    if kind == "loop":
        path.parent.symlink_to(".subluminal")
    else:
        path.parent.mkdir()
    if kind == "dangling":
        path.symlink_to("nowhere")
    elif kind == "directory":
        path.mkdir()
    (source,) = find_policies(dict(os.environ), str(repository))
    assert source.origin == "repository"
    with pytest.raises(UnreadablePolicy):
        source.load()


def test_a_named_policy_that_is_missing_is_an_error_and_not_the_built_in(repository: Path) -> None:
    (source,) = find_policies({"SUB_POLICY": "missing.yaml"}, str(repository))
    with pytest.raises(UnreadablePolicy, match=r"missing\.yaml"):
        source.load()


def test_the_environment_cannot_move_the_organisations_policy(organisation: Path, repository: Path) -> None:
    write(organisation)
    everything = dict.fromkeys(
        ("SUB_HOME", "HOME", "SUB_POLICY", "SUB_ORGANISATION_POLICY", "XDG_CONFIG_DIRS"), "/nowhere"
    )
    assert found(repository, **everything)[0] == ("organisation", str(organisation))
