"""What servers said of their tools, kept for the run: private, appended, and never more than a raise."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from subluminal.host.run import tool_notes
from subluminal.host.run.tool_notes import RunToolNotes

WRITE = frozenset(["write_like"])
NOTHING: frozenset[str] = frozenset()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "sub"))
    return tmp_path / "sub"


def test_notes_are_read_back_by_whoever_comes_after_in_this_run_and_for_this_server_only() -> None:
    RunToolNotes("run", "fs").add({"rm": WRITE, "ls": NOTHING})
    assert RunToolNotes("run", "fs").read() == {"rm": WRITE, "ls": NOTHING}
    assert (
        RunToolNotes("run", "f").read() == RunToolNotes("run2", "fs").read() == RunToolNotes("runf", "s").read() == {}
    )


def test_two_shims_of_one_server_lose_none_of_each_others_notes() -> None:
    first, second = RunToolNotes("run", "fs"), RunToolNotes("run", "fs")
    first.add({"rm": WRITE})
    second.add({"rm": NOTHING, "curl": frozenset(["network_like"])})
    assert first.read() == {"rm": WRITE, "curl": {"network_like"}}


def test_the_file_is_private() -> None:
    notes = RunToolNotes("run", "fs")
    notes.add({"rm": WRITE})
    assert os.stat(notes.path).st_mode & 0o777 == 0o600
    assert os.stat(os.path.dirname(notes.path)).st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "line",
    [
        b'{"rm":["wri',
        b"[1]",
        b'{"rm":1}',
        b"\xff\xfe",
        b"[" * 5000,
        b'{"rm":["\\ud800"]}',
        b'{"ls":["read_like"]}',
        b"null",
    ],
)
def test_what_is_no_note_is_passed_over(line: bytes) -> None:
    notes = RunToolNotes("run", "fs")
    notes.add({"rm": WRITE})
    with open(notes.path, "ab") as file:
        file.write(line)
    notes.add({"cp": WRITE})
    assert {**notes.read(), "ls": NOTHING} == {"rm": WRITE, "cp": WRITE, "ls": NOTHING}


@pytest.mark.parametrize("trap", ["a link", "a FIFO", "a directory", "writable by others"])
def test_a_file_that_is_not_ours_alone_is_neither_believed_nor_written(trap: str, tmp_path: Path) -> None:
    notes = RunToolNotes("run", "fs")
    notes.add({"rm": WRITE})
    elsewhere = tmp_path / "elsewhere"
    os.rename(notes.path, elsewhere)
    before = elsewhere.read_bytes()
    if trap == "a link":
        os.symlink(elsewhere, notes.path)
    elif trap == "a FIFO":
        os.mkfifo(notes.path)
    elif trap == "a directory":
        os.mkdir(notes.path)
    else:
        os.link(elsewhere, notes.path)
        os.chmod(notes.path, 0o620)
    notes.add({"cp": WRITE})
    assert notes.read() == {}
    assert elsewhere.read_bytes() == before


def test_the_file_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_notes, "MAX_BYTES", 100)
    notes = RunToolNotes("run", "fs")
    for number in range(20):
        notes.add({f"tool{number}": WRITE})
    assert os.path.getsize(notes.path) <= 100
    assert "tool0" in notes.read()
