"""Whatever lies at a configuration's path: reading cannot hang, fill memory or follow a trap; writing harms nothing."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from harness.client_files import SUB, ClientHome
from harness.waiting import GENEROUS_S
from subluminal.clients import backups, files
from subluminal.clients.importing import Choice, import_file
from subluminal.clients.registry import CLIENTS
from subluminal.contracts.errors import ClientConfigError

PLAIN = b'{"mcpServers": {"a": {"command": "x", "args": ["1"]}}}\n'
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def test_a_fifo_is_refused_without_waiting_for_a_writer(home: ClientHome) -> None:
    os.mkfifo(home.file_of("claude").path)
    report = home.imported("claude")
    assert report.status == "refused" and "not a regular file" in (report.error or "")


@pytest.mark.parametrize("target", ["/dev/zero", "/dev/tty", "/proc/self/mem", "/"])
def test_a_link_to_something_that_is_no_plain_file_is_refused(home: ClientHome, target: str) -> None:
    path = home.file_of("claude").path
    os.symlink(target, path)
    assert home.imported("claude").status == "refused"
    assert os.readlink(path) == target


def test_a_directory_is_refused(home: ClientHome) -> None:
    os.mkdir(home.file_of("claude").path)
    assert home.imported("claude").status == "refused"


def test_links_that_form_a_loop_are_refused(home: ClientHome) -> None:
    path = home.file_of("claude").path
    os.symlink(path + ".b", path)
    os.symlink(path, path + ".b")
    assert "loop" in (home.imported("claude").error or "")


def test_a_dangling_link_is_refused_and_its_target_is_not_created(home: ClientHome) -> None:
    path = home.file_of("claude").path
    os.symlink(str(home.home / "nowhere"), path)
    assert "does not exist" in (home.imported("claude").error or "")
    assert not (home.home / "nowhere").exists()


def test_a_file_beyond_the_limit_is_refused(home: ClientHome) -> None:
    path = home.write("claude", PLAIN)
    os.truncate(path, files.MAX_CONFIG_BYTES + 1)
    assert "larger than" in (home.imported("claude").error or "")


def test_the_file_behind_a_chain_of_links_is_changed_and_the_links_stay(home: ClientHome) -> None:
    dotfiles = home.home / "dotfiles"
    dotfiles.mkdir()
    real = dotfiles / "claude.json"
    real.write_bytes(PLAIN)
    (dotfiles / "hop").symlink_to("claude.json")
    link = Path(home.file_of("claude").path)
    link.symlink_to("dotfiles/hop")

    assert home.imported("claude").status == "changed"
    assert os.readlink(link) == "dotfiles/hop" and real.is_file() and not real.is_symlink()
    assert SUB in real.read_text()
    assert home.restored("claude").exact is True
    assert real.read_bytes() == PLAIN and link.is_symlink()


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664, 0o755])
def test_the_mode_stays(home: ClientHome, mode: int) -> None:
    path = home.write("claude", PLAIN)
    path.chmod(mode)
    home.imported("claude")
    assert stat.S_IMODE(path.stat().st_mode) == mode
    home.restored("claude")
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_extended_attributes_stay(home: ClientHome) -> None:
    path = home.write("claude", PLAIN)
    try:
        os.setxattr(path, "user.note", b"mine")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    home.imported("claude")
    assert os.getxattr(path, "user.note") == b"mine"


def test_a_read_only_file_is_refused_even_where_the_rename_would_work(home: ClientHome) -> None:
    path = home.write("claude", PLAIN)
    path.chmod(0o444)
    report = home.imported("claude")
    assert report.status == "refused" and "read-only" in (report.error or "") and "chmod" in (report.hint or "")
    assert path.read_bytes() == PLAIN


@as_root
def test_a_file_of_another_user_is_refused_unless_asked_and_then_keeps_its_owner(home: ClientHome) -> None:
    path = home.write("claude", PLAIN)
    os.chown(path, 12345, 23456)
    assert "another user" in (home.imported("claude").error or "")
    assert path.read_bytes() == PLAIN
    assert home.imported("claude", foreign=True).status == "changed"
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 23456)


def test_a_directory_that_everyone_can_change_is_pointed_out(home: ClientHome) -> None:
    path = home.write("claude", PLAIN, "project")
    path.parent.chmod(0o777)
    report = home.imported("claude", "project")
    assert report.status == "changed"
    assert any("every user" in warning for warning in report.warnings)


def test_a_hard_link_is_pointed_out(home: ClientHome) -> None:
    path = home.write("claude", PLAIN)
    os.link(path, home.home / "second")
    report = home.imported("claude")
    assert any("hard links" in warning for warning in report.warnings)
    assert (home.home / "second").read_bytes() == PLAIN


def test_temporary_names_cannot_be_foreseen_or_followed(home: ClientHome, monkeypatch: pytest.MonkeyPatch) -> None:
    path = home.write("claude", PLAIN)
    victim = home.home / "victim"
    victim.write_text("untouched")
    monkeypatch.setattr(os, "urandom", bytes)
    planted = path.parent / f".{path.name}.{'00' * 6}.new"
    planted.symlink_to(victim)
    assert home.imported("claude").status == "refused"
    assert victim.read_text() == "untouched" and path.read_bytes() == PLAIN
    assert planted.is_symlink(), "what others have put there is theirs"


@pytest.mark.parametrize("how", ["in place", "by rename", "removed", "link turned", "same bytes, new file"])
def test_a_change_between_reading_and_writing_is_noticed(
    home: ClientHome, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    path = home.write("claude", PLAIN)
    other = home.home / "other.json"
    theirs = b'{"mcpServers": {}, "theirs": 1}'
    make_like = files._make_like

    def meanwhile(*arguments: object) -> None:
        make_like(*arguments)  # type: ignore[arg-type]
        if how == "in place":
            path.write_bytes(theirs)
        elif how == "removed":
            path.unlink()
        else:
            other.write_bytes(PLAIN if how == "same bytes, new file" else theirs)
            if how == "link turned":
                path.unlink()
                path.symlink_to(other)
            else:
                other.rename(path)

    monkeypatch.setattr(files, "_make_like", meanwhile)
    report = home.imported("claude")

    assert report.status == "refused" and "another program" in (report.error or "")
    if how == "removed":
        assert not path.exists()
    else:
        assert SUB not in path.read_text()
    assert home.leftovers() == []
    assert backups.records() == []


def test_a_client_that_keeps_writing_always_reads_a_whole_file(home: ClientHome) -> None:
    """A real process rewrites the file all the time, as clients do."""
    path = home.write("claude", b'{"n": 0, "mcpServers": {"a": {"command": "x", "args": []}}}')
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdin and writer.stdout
    try:
        outcomes = set()
        for round_ in range(60):
            writer.stdin.write(f"{round_}\n")
            writer.stdin.flush()
            file = home.file_of("claude")
            outcomes.add(import_file(CLIENTS["claude"], file, f"/v{round_}/sub", Choice()).status)  # type: ignore[union-attr]
            assert writer.stdout.readline() == f"{round_}\n"
        assert outcomes <= {"changed", "refused", "unchanged"} and "changed" in outcomes
    finally:
        writer.stdin.close()
        writer.wait(GENEROUS_S)
    assert home.leftovers() == []


# Reads, changes one setting, replaces; stops at once if what it reads is not what such a client wrote.
_WRITER = """
import json, os, sys
path = sys.argv[1]
for line in sys.stdin:
    value = json.load(open(path))
    assert set(value) == {"n", "mcpServers"} and set(value["mcpServers"]) == {"a"}, value
    value["n"] = int(line)
    with open(path + ".new", "w") as new:
        json.dump(value, new)
    os.rename(path + ".new", path)
    print(line.strip(), flush=True)
"""


def test_a_full_disk_leaves_the_file_and_no_temporary(home: ClientHome, monkeypatch: pytest.MonkeyPatch) -> None:
    path = home.write("claude", PLAIN)

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    report = home.imported("claude")
    assert report.status == "refused" and "No space left" in (report.error or "")
    assert path.read_bytes() == PLAIN and home.leftovers() == []


def test_no_backup_no_change(home: ClientHome) -> None:
    path = home.write("claude", PLAIN)
    home.sub_home.mkdir()
    (home.sub_home / "backups").write_text("in the way")
    report = home.imported("claude")
    assert report.status == "refused"
    assert path.read_bytes() == PLAIN


def test_backups_are_private_and_exact(home: ClientHome) -> None:
    home.write("claude", PLAIN)
    home.imported("claude")
    (record,) = backups.records()
    assert backups.original(record) == PLAIN
    for path in (home.sub_home, home.sub_home / "backups"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in (home.sub_home / "backups").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_planted_record_cannot_lead_out_of_the_backup_directory(home: ClientHome) -> None:
    home.write("claude", PLAIN)
    home.imported("claude")
    (record,) = backups.records()
    record.id = "../../" + record.id
    assert os.path.dirname(backups.backup_path(record)) == str(home.sub_home / "backups")


def test_reading_nothing_is_none_and_says_nothing(home: ClientHome) -> None:
    assert files.read(str(home.home / "absent")) is None
    assert files.read("/dev/null/absent") is None
    with pytest.raises(ClientConfigError):
        files.read("/dev/zero")
