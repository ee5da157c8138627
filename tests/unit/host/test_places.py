"""This machine as `path_within` sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from subluminal.contracts.vocabulary import UNJUDGED_ARGS
from subluminal.core.engine.faults import Unavailable
from subluminal.host.places import MAX_LINKS, ThisMachine
from subluminal.host.run.files import remove_stale, state_path
from subluminal.host.run.membership import Membership
from subluminal.host.run.root import settle_root


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "sub-home"))
    return tmp_path / "sub-home"


def machine(directory: Path, **facts: object) -> ThisMachine:
    return ThisMachine({"HOME": "/home/somebody"}, str(directory), **facts)  # type: ignore[arg-type]


def test_a_path_leads_where_the_system_would_open_it(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a/b")
    (tmp_path / "absolute").symlink_to(tmp_path / "link")
    here, places = str(tmp_path.resolve()), machine(tmp_path)
    assert places.real(here, "link/x") == f"{here}/a/b/x"
    assert places.real(here, "absolute/../x") == f"{here}/a/x"
    assert places.real(here, "none/../link/none/new.txt") == f"{here}/a/b/none/new.txt"
    assert places.real("/", f"{here}//./link///") == f"{here}/a/b"
    assert places.real(here, "../../../../../../../../../..") == "/"
    for path in ("link", "absolute/..", "a/b/../../link", "absolute"):
        assert places.real(here, path) == os.path.realpath(tmp_path / path)


def test_a_link_that_leads_nowhere_leads_to_what_would_be_made(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("../elsewhere/new.txt")
    assert machine(tmp_path).real(str(tmp_path), "dangling") == str(tmp_path.parent / "elsewhere" / "new.txt")


@pytest.mark.parametrize("path", [
    "loop/x", "one", "/proc/self/cwd/x", "/proc/self/fd/0", "/proc/self/fd/987/x", "/dev/fd/987", "/proc/1/none",
    "x" * 300, "a\0b",
])  # fmt: skip
def test_what_cannot_be_followed_cannot_be_judged(tmp_path: Path, path: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(Unavailable) as raised:
        machine(tmp_path).real(str(tmp_path), path)
    assert raised.value.reason_code == UNJUDGED_ARGS
    assert raised.value.why


def test_as_many_links_are_followed_as_the_system_follows(tmp_path: Path) -> None:
    (tmp_path / "0").write_text("x")
    for number in range(1, MAX_LINKS + 2):
        (tmp_path / str(number)).symlink_to(str(number - 1))
    places = machine(tmp_path)
    assert (tmp_path / str(MAX_LINKS)).read_text() == "x"
    assert places.real(str(tmp_path), str(MAX_LINKS)) == str(tmp_path / "0")
    with pytest.raises(Unavailable):
        places.real(str(tmp_path), str(MAX_LINKS + 1))


def test_the_work_for_all_paths_of_a_judgement_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent can build a tree in which short links lead through thousands of names, and give a list of them."""
    (tmp_path / "b/b/b/b/b/b/b/b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("b/b/b/b/b/b/b/b")
    places = machine(tmp_path)
    here = str(tmp_path.resolve())
    monkeypatch.setattr("subluminal.host.places.MAX_WALKED", 12 * len(here) + 400)
    assert places.real(here, "link") == f"{here}/b/b/b/b/b/b/b/b"
    with pytest.raises(Unavailable) as raised:
        for number in range(100):
            places.real(here, f"link/{number}")
    assert "too long" in raised.value.why
    places.seen.clear()
    assert places.real(here, "link/1")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may search every directory")
def test_a_directory_that_may_not_be_searched_cannot_be_judged(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    with pytest.raises(Unavailable):
        machine(tmp_path).real(str(tmp_path), "closed/x")


def test_relative_paths_start_where_the_server_stands_and_where_it_is_told_to(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "script.py").write_text("")
    command = ["server", "script.py", "data", f"--cache={tmp_path.parent}", "--port=80", "no-such-directory"]
    here = tmp_path.resolve()
    assert machine(tmp_path, command=command).starts == (str(here), str(here / "data"), str(here.parent))


def test_the_root_is_that_of_the_repository_else_the_directory(tmp_path: Path) -> None:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "repo" / "sub").mkdir()
    (tmp_path / "plain" / "sub").mkdir(parents=True)
    assert machine(tmp_path / "repo" / "sub").root == str(tmp_path / "repo")
    assert machine(tmp_path / "plain" / "sub").root == str(tmp_path / "plain" / "sub")


def test_the_first_of_a_run_says_where_it_began(tmp_path: Path, home: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    assert machine(tmp_path / "first", run_id="r").root == str(tmp_path / "first")
    assert machine(tmp_path / "second", run_id="r").root == str(tmp_path / "first")
    assert machine(tmp_path / "second", run_id="another").root == str(tmp_path / "second")
    (tmp_path / ".git").mkdir()
    assert machine(tmp_path / "first", run_id="r").root == str(tmp_path / "first"), (
        "a repository made later moves nothing"
    )


def test_the_keeper_of_a_run_says_it_before_any_server(tmp_path: Path, home: Path) -> None:
    membership = Membership("r", owner=True)
    assert membership.register({"SUB_RUN_ID": "r"}, str(tmp_path)) is None
    membership.leave()
    assert machine(Path("/"), run_id="r").root == str(tmp_path)


def test_many_processes_at_once_agree(tmp_path: Path, home: Path) -> None:
    code = "import os, sys; from subluminal.host.run.root import settle_root; print(settle_root('r', os.getcwd()))"
    directories = [tmp_path / str(number) for number in range(6)]
    for directory in directories:
        directory.mkdir()
    processes = [
        subprocess.Popen([sys.executable, "-c", code], cwd=directory, stdout=subprocess.PIPE, text=True)
        for directory in directories
    ]
    said = {process.communicate(timeout=60)[0].strip() for process in processes}
    assert len(said) == 1 and said < {str(directory) for directory in directories}


def test_without_a_home_to_write_to_the_root_is_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "file" / "home"))
    assert settle_root("r", str(tmp_path)) == str(tmp_path)


def test_where_a_run_began_is_forgotten_with_its_state(tmp_path: Path, home: Path) -> None:
    Membership("kept", owner=True).leave()
    for run_id in ("kept", "gone"):
        settle_root(run_id, str(tmp_path))
    for path in (home / "run").glob("*.root"):
        os.utime(path, (0, 0))
    remove_stale(3600)
    left = [path.name for path in (home / "run").glob("*.root")]
    assert left == [os.path.basename(state_path("kept")).split(".")[0] + ".root"]


def test_the_home_of_a_policy_is_not_what_the_entry_of_a_server_sets(tmp_path: Path) -> None:
    code = (
        "import os; from subluminal.host.places import ThisMachine;"
        "places = ThisMachine(os.environ, '/', of_entry=True); print(places.home, *places.homes)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    ours = os.environ["HOME"]
    assert done.stdout.split() == [ours, str(tmp_path), ours]


def test_the_home_is_that_of_the_environment_else_the_systems() -> None:
    assert ThisMachine({"HOME": "/home/a"}, "/").home == "/home/a"
    assert ThisMachine({}, "/").home == ThisMachine({}, "/").home_of("")
    assert ThisMachine({}, "/").home_of("no such user") is None
