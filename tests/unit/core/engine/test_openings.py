"""Hundreds of spellings of paths and URLs, and what real programs opened by them: `path_within` and `host_in` know."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness import openers
from harness.judging import PathJudge, host_faults, judged
from harness.places import FIXTURES
from subluminal.core.engine.hosts import HostIn
from subluminal.core.engine.paths import PathWithin


def table(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((FIXTURES / "openings" / name).read_text())["spellings"]
    return rows


PATHS, URLS = table("paths.json"), table("urls.json")
PATH_PROGRAMS = sorted({who for row in PATHS for who in row["opened"]})
URL_PROGRAMS = sorted({who for row in URLS for who in row["opened"]})


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> openers.Tree:
    return openers.Tree(tmp_path_factory.mktemp("tree"))


def test_there_are_spellings_enough_and_every_program_opened_some() -> None:
    assert len(PATHS) >= 300 and len(URLS) >= 200
    assert sum(bool(row["opened"]) for row in (*PATHS, *URLS)) >= 400
    ways = {f"node {way}" for way in openers.NODE_WAYS} | {f"python {way}" for way in openers.PYTHON_WAYS}
    assert set(PATH_PROGRAMS) == ways | {"filesystem", "filesystem of base"}
    assert set(URL_PROGRAMS) == {"fetch", "undici", "curl", *openers.PYTHON_LIBRARIES}


@pytest.mark.parametrize("who", PATH_PROGRAMS)
def test_path_within_knows_what_was_opened(tree: openers.Tree, who: str) -> None:
    judge = PathJudge(tree, who)
    faults = [judge.faults(tree.spelled(row["path"]), row["opened"].get(who)) for row in PATHS]
    assert [fault for fault in faults if fault] == []


def test_a_server_opens_relative_paths_where_its_command_says(tree: openers.Tree) -> None:
    """Why the directories of a command count: the filesystem server does not begin in its working directory."""
    (row,) = [row for row in PATHS if row["path"] == "a.txt" and row["op"] == "read"]
    assert row["opened"]["node open"] == "repo/a.txt" and row["opened"]["filesystem of base"] == "a.txt"
    allow = PathWithin(["."], False, PathJudge(tree, "filesystem of base").places)
    assert allow("a.txt") is False and allow(f"{tree.repo}/a.txt") is True


def test_paths_that_are_written_plainly_are_let_through(tree: openers.Tree) -> None:
    allow = PathWithin(["."], False, PathJudge(tree, "node open").places)
    plain = [row["path"] for row in PATHS if row["plain"]]
    assert len(plain) > 15
    assert [path for path in plain if not allow(tree.spelled(path))] == []


def test_few_paths_that_somebody_opens_cannot_be_judged(tree: openers.Tree) -> None:
    deny = PathWithin(["/nowhere"], True, PathJudge(tree, "node open").places)
    unjudged = [row["path"] for row in PATHS if row["opened"] and judged(deny, tree.spelled(row["path"])) is None]
    assert len(unjudged) <= 10, unjudged


@pytest.mark.parametrize("who", URL_PROGRAMS)
def test_host_in_knows_what_was_connected_to(who: str) -> None:
    faults = [host_faults(row["url"], row["opened"].get(who)) for row in URLS]
    assert [fault for fault in faults if fault] == []


def test_every_host_that_was_connected_to_is_one_of_the_readings() -> None:
    missed = []
    for row in URLS:
        for who, host in row["opened"].items():
            if not set(host) & set("*?[") and judged(HostIn([host], True), row["url"]) is False:
                missed.append((who, row["url"], host))
    assert missed == []


def test_hosts_that_are_written_plainly_are_let_through() -> None:
    allow = HostIn(["good.test", "*.good.test", "loopback"], False)
    for host in ("good.test", "GOOD.TEST.", "a.b.good.test", "127.0.0.1", "[::1]", "localhost"):
        for url in (f"https://{host}/p?q#f", f"http://{host}:8080", host, f"{host}:443/x", f"//{host}/x"):
            assert allow(url), url
