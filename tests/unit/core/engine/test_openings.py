"""Hundreds of spellings of paths and URLs, and what real programs opened by them: `path_within` and `host_in` know.

What is let through strictly was opened by nobody elsewhere; what anybody opened inside is stopped generously.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import openers
from harness.places import FIXTURES
from subluminal.core.engine.faults import Unavailable
from subluminal.core.engine.hosts import HostIn
from subluminal.core.engine.paths import PathWithin
from subluminal.host.places import ThisMachine

PATHS = json.loads((FIXTURES / "openings" / "paths.json").read_text())["spellings"]
URLS = json.loads((FIXTURES / "openings" / "urls.json").read_text())["spellings"]
# The one that was told of two directories, the one that was told of one, and all that were told of none.
TOLD = {"filesystem": ("repo", "."), "filesystem of base": (".",)}


def test_there_are_spellings_enough_and_most_were_opened() -> None:
    assert len(PATHS) + len(URLS) >= 300
    assert sum(bool(row["opened"]) for row in (*PATHS, *URLS)) >= 300
    seen = {who for row in (*PATHS, *URLS) for who in row["opened"]}
    wanted = {"filesystem", "filesystem of base", "fetch", "undici", "curl", *openers.PYTHON_LIBRARIES}
    wanted |= {f"node {way}" for way in openers.NODE_WAYS} | {f"python {way}" for way in openers.PYTHON_WAYS}
    assert seen == wanted


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openers.Tree]:
    yield openers.Tree(tmp_path_factory.mktemp("tree"))


def judged(predicate: Any, value: str) -> bool | None:
    """None: it cannot be judged."""
    try:
        return bool(predicate(value))
    except Unavailable:
        return None


def places_of(tree: openers.Tree, who: str) -> ThisMachine:
    command = ["server", *(str(tree.base / name) for name in TOLD.get(who, ()))]
    return ThisMachine(tree.environ, str(tree.repo), command=command)


def is_below(opened: str, directory: str) -> bool:
    return opened == directory or opened.startswith(directory + "/")


@pytest.mark.parametrize("who", sorted({who for row in PATHS for who in row["opened"]}))
@pytest.mark.parametrize("directory", ["repo", "outside", "repo/sub"])
def test_path_within_knows_what_was_opened(tree: openers.Tree, who: str, directory: str) -> None:
    places = places_of(tree, who)
    entry = str(tree.base / directory)
    allow, deny = PathWithin([entry], False, places), PathWithin([entry], True, places)
    wrong = []
    for row in PATHS:
        path, opened = tree.spelled(row["path"]), row["opened"].get(who)
        if opened is None:
            continue
        places.seen.clear()
        inside = is_below(str(Path(opened)), directory)
        if judged(allow, path) and not inside:
            wrong.append(("let through", row["path"], opened))
        if inside and judged(deny, path) is False:
            wrong.append(("not stopped", row["path"], opened))
    assert wrong == []


def test_paths_that_are_written_plainly_are_let_through(tree: openers.Tree) -> None:
    places = places_of(tree, "node open")
    allow = PathWithin(["."], False, places)
    plain = [row["path"] for row in PATHS if row["plain"]]
    assert len(plain) > 15
    assert [path for path in plain if not allow(tree.spelled(path))] == []


def test_few_spellings_that_are_opened_cannot_be_judged(tree: openers.Tree) -> None:
    places = places_of(tree, "node open")
    deny = PathWithin(["/nowhere"], True, places)
    unjudged = {row["path"] for row in PATHS if row["opened"] and judged(deny, tree.spelled(row["path"])) is None}
    assert len(unjudged) < 12, unjudged


LOOPBACK = ("127.", "0.0.0.0")
PRIVATE = ("10.", "192.168.", "172.16.", "169.254.", "100.64.", "fe80:", "fc00:", "fd00:", "fec0:")


def meant(pattern: str, host: str) -> bool:
    if pattern == "loopback":
        return host.startswith(LOOPBACK) or host in ("::1", "::", "localhost") or host.endswith(".localhost")
    if pattern == "private":
        return host.startswith(PRIVATE) and not host.endswith(".test")
    return host.endswith(pattern[1:]) if pattern.startswith("*") else host == pattern


@pytest.mark.parametrize("who", sorted({who for row in URLS for who in row["opened"]}))
@pytest.mark.parametrize("pattern", ["good.test", "*.good.test", "evil.test", "loopback", "private"])
def test_host_in_knows_where_was_connected_to(who: str, pattern: str) -> None:
    allow, deny = HostIn([pattern], False), HostIn([pattern], True)
    wrong = []
    for row in URLS:
        host = row["opened"].get(who)
        if host is None:
            continue
        if judged(allow, row["url"]) and not meant(pattern, host):
            wrong.append(("let through", row["url"], host))
        if meant(pattern, host) and judged(deny, row["url"]) is False:
            wrong.append(("not stopped", row["url"], host))
    assert wrong == []


def test_every_host_that_was_connected_to_is_one_of_the_readings() -> None:
    wrong = []
    for row in URLS:
        for who, host in row["opened"].items():
            name = host if ":" not in host else f"{host}/128"
            if not set(host) & set("*?[") and judged(HostIn([name], True), row["url"]) is False:
                wrong.append((who, row["url"], host))
    assert wrong == []


def test_hosts_that_are_written_plainly_are_let_through() -> None:
    allow = HostIn(["good.test", "*.good.test", "loopback"], False)
    for host in ("good.test", "GOOD.TEST.", "a.b.good.test", "127.0.0.1", "[::1]", "localhost"):
        for url in (f"https://{host}/p?q#f", f"http://{host}:8080", f"{host}", f"{host}:443/x", f"//{host}/x"):
            assert allow(url), url
