"""Tricks with paths and URLs put to real programs as they are installed here, and to the predicates beside them.

`make test` asks Python, Node and curl with a part of the tables and with paths composed at random; `make fuzz` asks the
filesystem server and the fetch server too, and puts everything to all.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import npm, openers
from harness.judging import PathJudge, host_faults
from harness.places import FIXTURES

FUZZING = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
EVERY = 1 if FUZZING else 5
PATHS = json.loads((FIXTURES / "openings" / "paths.json").read_text())["spellings"][::EVERY]
URLS = [row["url"] for row in json.loads((FIXTURES / "openings" / "urls.json").read_text())["spellings"]][::EVERY]
NO_SERVERS = "the filesystem and fetch servers are not installed (make fuzz installs them)"


def needs(program: str) -> None:
    if program in ("filesystem", "fetch", "undici"):
        if not FUZZING and not openers.servers_installed():
            pytest.skip(NO_SERVERS)
        try:
            openers.install_servers()
        except npm.InstallError as error:
            pytest.skip(f"the servers are not available: {error}")
    elif program in ("node", "curl") and shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> openers.Tree:
    return openers.Tree(tmp_path_factory.mktemp("tree"))


WAYS = {"python": openers.PYTHON_WAYS, "node": openers.NODE_WAYS}


@pytest.fixture(scope="module", params=sorted(WAYS))
def program(request: pytest.FixtureRequest, tree: openers.Tree) -> Iterator[Callable[[str, str], list[object]]]:
    """(op, path) to the faults of the predicates, for all ways in which servers of this language open a path."""
    needs(request.param)
    with openers.path_opener(tree, request.param) as opened:
        judge = PathJudge(tree, request.param)

        def faults(op: str, path: str) -> list[object]:
            return [fault for way in WAYS[request.param] for fault in judge.faults(path, opened(way, op, path))]

        yield faults


def test_no_spelling_of_the_table_leads_elsewhere(
    tree: openers.Tree, program: Callable[[str, str], list[object]]
) -> None:
    assert [found for row in PATHS if (found := program(row["op"], tree.spelled(row["path"])))] == []


LINKS = ["out", "up", "deep", "in", "self", "chain", "homely", "abs", "leaf", "slash", "back", "loop"]
PLAIN = ["..", "..", ".", "sub", "repo", "outside", "home", "a.txt", "s.txt", "b.txt", "none", "~"]
NAMES = st.sampled_from([*LINKS, *PLAIN, "%2e%2e", "$HOME", "é.txt", "...", "a\0"])
HEADS = st.sampled_from(["", "", "/", "{base}/", "{base}/repo/", "~/", "file://{base}/", "file:", "$WORK/", "./", "//"])
SLASHES = st.sampled_from(["/", "/", "/", "//", "/./", "\\", "%2f", "/\n"])
ENDS = st.sampled_from(["", "", "", "/", "/.", " ", "?x", "#/../..", ";x", "\0"])


@st.composite
def tricks(draw: st.DrawFn) -> str:
    names = draw(st.lists(NAMES, min_size=1, max_size=8))
    path = names[0] + "".join(draw(SLASHES) + name for name in names[1:])
    path = draw(HEADS) + path + draw(ENDS)
    return path if draw(st.booleans()) else path.replace("..", draw(st.sampled_from(["%2e%2e", ".%2E", "..", ".\n."])))


@settings(max_examples=2_000 if FUZZING else 150)
@given(path=tricks())
def test_no_path_composed_of_tricks_leads_elsewhere(
    tree: openers.Tree, program: Callable[[str, str], list[object]], path: str
) -> None:
    assert program("read", tree.spelled(path)) == []


@pytest.mark.parametrize("told", [("repo", "."), (".",)], ids=["two directories", "one directory"])
def test_the_filesystem_server_opens_nothing_that_was_not_known(tree: openers.Tree, told: tuple[str, ...]) -> None:
    needs("filesystem")
    judge = PathJudge(tree, "filesystem" if len(told) > 1 else "filesystem of base")
    with openers.filesystem(tree, *(tree.base / name for name in told)) as opened:
        spelled = [(row["op"], tree.spelled(row["path"])) for row in PATHS]
        found = [judge.faults(path, opened(op, path)) for op, path in spelled]
    assert [fault for fault in found if fault] == []


@pytest.fixture(scope="module")
def proxy() -> Iterator[openers.Proxy]:
    proxy = openers.Proxy()
    yield proxy
    proxy.close()


@pytest.mark.parametrize("name", [*openers.PYTHON_LIBRARIES, "curl", "undici", "fetch"])
def test_no_url_goes_to_a_host_that_was_not_known(proxy: openers.Proxy, name: str) -> None:
    needs(name)
    with ExitStack() as stack:
        opened = stack.enter_context(openers.url_opener(proxy, name))
        assert [found for url in URLS if (found := host_faults(url, opened(url)))] == []
