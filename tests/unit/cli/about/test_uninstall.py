"""`sub uninstall`, and a restore that gives adopted secrets back: real files, real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.client_files import ClientHome
from harness.keychain import NONE, use_keychain

SUB = os.path.join(os.path.dirname(sys.executable), "sub")
TOKEN = "ghp_ThisIsNotARealTokenAtAll0000000000"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClientHome:
    use_keychain(monkeypatch, tmp_path, NONE)
    return ClientHome(tmp_path, monkeypatch)


def sub(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([SUB, *arguments], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert TOKEN not in done.stdout + done.stderr and "Traceback" not in done.stderr
    return done


def adopted(home: ClientHome) -> tuple[Path, bytes]:
    """Claude Code, routed, with its token adopted; and the file as it was."""
    server = {"command": "true", "env": {"TOKEN": TOKEN}}
    path = home.write("claude", json.dumps({"mcpServers": {"box": server}}, indent=2))
    original = path.read_bytes()
    assert sub("import", "claude").returncode == 0
    assert sub("secrets", "adopt", "box", "TOKEN", "--source", "file").returncode == 0
    assert TOKEN not in path.read_text() and SUB in path.read_text()
    return path, original


def test_a_restore_leaves_adopted_secrets_in_their_store_and_says_how_they_come_back(home: ClientHome) -> None:
    path, original = adopted(home)
    done = sub("restore", "claude")
    assert done.returncode == 0 and "--secrets" in done.stderr
    assert "sub://token" in path.read_text()
    again = sub("restore", "claude", "--secrets")
    assert again.returncode == 0 and "box: TOKEN is in" in again.stderr
    assert path.read_bytes() == original


def test_a_secret_that_no_store_holds_is_said_to_be_lost(home: ClientHome) -> None:
    path, _ = adopted(home)
    assert sub("secrets", "remove", "token").returncode == 0
    done = sub("restore", "claude", "--secrets", "--json")
    assert json.loads(done.stdout)["secrets_put_back"] == []
    assert "no store holds token" in done.stderr and "sub://token" in path.read_text()


def test_it_says_what_there_is_and_changes_nothing(home: ClientHome) -> None:
    path, _ = adopted(home)
    before = path.read_bytes()
    shown = sub("uninstall")
    assert shown.returncode == 0 and path.read_bytes() == before
    assert f"{path}: box" in shown.stdout and str(home.sub_home) in shown.stdout and "uninstall" in shown.stdout
    assert "Nothing was changed" in shown.stderr
    report = json.loads(sub("uninstall", "--json").stdout)
    assert report["removed"] is False and report["routed"][0]["servers"] == ["box"]


def test_it_restores_clients_and_keeps_the_record(home: ClientHome) -> None:
    path, original = adopted(home)
    done = sub("uninstall", "--yes", "--secrets")
    assert done.returncode == 0 and path.read_bytes() == original
    assert home.sub_home.is_dir() and str(home.sub_home) in done.stderr


def test_it_removes_everything_when_told_so(home: ClientHome) -> None:
    path, original = adopted(home)
    assert sub("uninstall", "--yes", "--secrets", "--purge").returncode == 0
    assert path.read_bytes() == original and not home.sub_home.exists()


def test_a_file_that_cannot_be_restored_keeps_the_rest(home: ClientHome) -> None:
    path, _ = adopted(home)
    path.write_text("{broken")
    done = sub("uninstall", "--yes", "--purge")
    assert done.returncode == 1 and str(path) in done.stderr
    assert home.sub_home.is_dir(), "the backup may be what is needed now"
