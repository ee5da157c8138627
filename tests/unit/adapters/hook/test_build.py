"""The hook command as it is put into the home."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from subluminal.adapters.hook import build, client, start
from subluminal.adapters.hook.command import ANSWERED, TIMEOUT_S, hook_command
from subluminal.host.client_process import SHELLS

SOURCE = (Path(build.__file__).parent / "client.c").read_text()


def test_it_is_compiled_where_there_is_a_compiler_and_in_python_elsewhere(tmp_path: Path) -> None:
    home = str(tmp_path / "sub")
    foreseen = build.client_words(home)  # what --dry-run and --managed show
    compiled = build.build_client(home)
    assert build.client_words(home) == [compiled] == foreseen and stat.S_IMODE(os.stat(compiled).st_mode) == 0o700
    script = build.build_client(home, compiler="no-such-compiler")
    assert build.client_words(home)[1:] == ["-I", "-S", "-E", script] and not os.path.exists(compiled)
    assert sorted(os.listdir(tmp_path / "sub" / "bin")) == ["sub-hook.pyc"]


@pytest.mark.parametrize("script", ["exit 1", "cp /bin/true $out", "echo 'exit 0' >$out; chmod 700 $out", "sleep 0"])
def test_a_compiler_that_makes_nothing_that_works_is_as_if_there_were_none(tmp_path: Path, script: str) -> None:
    (fake := tmp_path / "cc").write_text(f"#!/bin/sh\nfor out; do :; done\n{script}\n")
    fake.chmod(0o700)
    home = str(tmp_path / "sub")
    assert build.build_client(home, compiler=str(fake)).endswith(".pyc")
    assert os.listdir(tmp_path / "sub" / "bin") == ["sub-hook.pyc"]


def test_both_know_the_same_numbers_and_the_same_shells() -> None:
    numbers = dict(re.findall(r"(\w+) = (\d+)", re.search(r"enum \{(.*?)\}", SOURCE)[1]))  # type: ignore[index]
    assert numbers == {name: str(getattr(client, name)) for name in numbers}
    assert ANSWERED == client.ANSWERED and build.EXIT_NOT_ASKED == client.FAILED == start.EXIT_FAILED
    assert client.DEADLINE_S == start.DEADLINE_S < TIMEOUT_S
    listed = re.search(r"shells\[\] = \{(.*?)\}", SOURCE)[1]  # type: ignore[index]
    assert set(re.findall(r'"(\w+)"', listed)) == set(client.SHELLS) == SHELLS


def test_only_hooks_that_can_still_stop_something_refuse_when_they_fail(tmp_path: Path) -> None:
    assert "exit 2;; esac; done" in hook_command("claude", str(tmp_path))
    assert "exit 2;; esac; done" in hook_command("claude", str(tmp_path), "ConfigChange")
    for event in ("PostToolUse", "PostToolBatch", "Stop", "SessionEnd"):
        assert "closed" not in hook_command("claude", str(tmp_path), event)
