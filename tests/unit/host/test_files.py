"""A file is replaced whole or not at all, by one piece of code."""

from __future__ import annotations

import ast
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from subluminal.host.files import replace_file

SOURCE = Path(__file__).resolve().parents[3] / "src" / "subluminal"
# What is renamed there exists already, whole: a log, a directory, a journal, a damaged state, what a compiler wrote.
OTHER_RENAMES = {
    "fleet/machine/joining.py",
    "host/run/state.py",
    "ledger/daemon/log.py",
    "native/build.py",
    "runs/headless_dirs.py",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    return path


def assert_untouched(path: Path) -> None:
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == [path.name]


def test_the_new_bytes_take_the_place_of_the_old_ones_and_nothing_else_is_left(path: Path) -> None:
    assert replace_file(str(path), [b"n", b"ew one"]) == 7
    assert path.read_bytes() == b"new one"
    assert os.listdir(path.parent) == ["file"]


def test_a_file_is_private_unless_a_mode_is_asked_for(path: Path) -> None:
    path.chmod(0o666)
    replace_file(str(path), b"secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    replace_file(str(path), b"shared", mode=0o644)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_write_that_fails_half_way_leaves_the_old_file_whole(path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        replace_file(str(path), pieces())
    assert_untouched(path)


def test_whoever_looks_last_may_refuse(path: Path) -> None:
    def refuse(fd: int) -> None:
        assert os.fstat(fd).st_size == 3
        raise ValueError("changed meanwhile")

    with pytest.raises(ValueError, match="meanwhile"):
        replace_file(str(path), b"new", finish=refuse)
    assert_untouched(path)


def test_a_kill_while_writing_leaves_the_old_file_whole(path: Path) -> None:
    program = (
        "import os, signal, sys; from subluminal.host.files import replace_file\n"
        "replace_file(sys.argv[1], b'new', finish=lambda fd: os.kill(os.getpid(), signal.SIGKILL))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    (draft,) = set(os.listdir(path.parent)) - {"file"}
    assert draft.startswith(".file.") and draft.endswith(".new"), "hidden, and known to those who clear away"


def test_a_link_is_replaced_and_not_followed(path: Path) -> None:
    link = path.with_name("link")
    link.symlink_to(path)
    replace_file(str(link), b"new")
    assert not link.is_symlink() and link.read_bytes() == b"new"
    assert path.read_bytes() == b"old"


def test_a_name_may_be_relative_to_a_directory_that_was_checked_before(path: Path, tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        replace_file("file", b"new", dir_fd=directory, durable=True)
    finally:
        os.close(directory)
    assert path.read_bytes() == b"new"


def test_a_durable_file_and_its_name_are_on_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bool] = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(stat.S_ISDIR(os.fstat(fd).st_mode)), sync(fd))[1])
    replace_file(str(path), b"new")
    assert synced == []
    replace_file(str(path), b"newer", durable=True)
    assert synced == [False, True]


def test_no_other_module_replaces_files_in_its_own_way() -> None:
    found = set()
    for module in SOURCE.rglob("*.py"):
        text = module.read_text()
        for node in ast.walk(ast.parse(text)) if re.search(r"\bos\s*\.\s*re(name|place)\b", text) else ():
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.rename", "os.replace"):
                found.add(module.relative_to(SOURCE).as_posix())
    assert found == {"host/files.py"} | OTHER_RENAMES
