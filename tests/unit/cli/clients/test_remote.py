"""`sub import` of servers behind URLs as a user types it: real processes, real servers on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.client_files import ClientHome
from harness.http_answers import HttpAnswers, reply

SUB = os.path.join(os.path.dirname(sys.executable), "sub")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClientHome:
    return ClientHome(tmp_path, monkeypatch)


def sub(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SUB, *arguments], capture_output=True, text=True, timeout=60)


def write(home: ClientHome, **urls: str) -> Path:
    entries = {name: {"type": "http", "url": url} for name, url in urls.items()}
    return home.write("claude", json.dumps({"mcpServers": entries}, indent=2))


def servers(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())["mcpServers"]
    return found


def test_servers_are_asked_and_those_that_want_a_login_stay(home: ClientHome) -> None:
    with HttpAnswers(reply("401 No", b"")) as closed, HttpAnswers(reply("200 OK")) as open_:
        path = write(home, closed=closed.url, open=open_.url)
        original = path.read_bytes()
        done = sub("import", "claude")
    assert done.returncode == 1
    assert f"sub login closed --url {closed.url}\n" in done.stdout, "nothing stands behind a command"
    assert "then import again" in done.stderr
    assert servers(path)["closed"] == {"type": "http", "url": closed.url}
    assert servers(path)["open"]["args"][-2:] == ["--url", open_.url]
    assert sub("restore", "claude").returncode == 0
    assert path.read_bytes() == original


def test_a_dry_run_says_the_same_and_writes_nothing(home: ClientHome) -> None:
    with HttpAnswers(reply("401 No", b"")) as closed:
        path = write(home, closed=closed.url)
        before = path.read_bytes()
        report = json.loads(sub("import", "claude", "--dry-run", "--json").stdout)
    assert report["files"][0]["servers"][0]["status"] == "login"
    assert path.read_bytes() == before


def test_offline_asks_nobody(home: ClientHome) -> None:
    with HttpAnswers(reply("401 No", b"")) as closed:
        path = write(home, closed=closed.url)
        assert sub("import", "claude", "--offline").returncode == 0
        assert closed.requests == []
    assert servers(path)["closed"]["command"] == SUB


def test_only_the_servers_that_were_chosen_are_asked(home: ClientHome) -> None:
    with HttpAnswers(reply("200 OK")) as one, HttpAnswers(reply("200 OK")) as other:
        write(home, one=one.url, other=other.url)
        assert sub("import", "claude", "--server", "one").returncode == 0
        assert (len(one.requests), len(other.requests)) == (1, 0)


def test_a_server_with_credentials_is_not_asked(home: ClientHome) -> None:
    with HttpAnswers(reply("401 No", b"")) as server:
        entry = {"type": "http", "url": server.url, "headers": {"Authorization": "Bearer ${TOKEN}"}}
        home.write("claude", json.dumps({"mcpServers": {"a": entry}}))
        assert sub("import", "claude").returncode == 0
        assert server.requests == []


def test_the_overview_asks_nobody_and_says_what_would_be_done(home: ClientHome) -> None:
    with HttpAnswers(reply("401 No", b"")) as server:
        write(home, a=server.url)
        shown = sub("import")
        assert server.requests == []
    assert "would be routed (http)" in shown.stdout and "sub import claude" in shown.stderr


def test_a_hostile_address_cannot_drive_the_terminal(home: ClientHome) -> None:
    entry = {"type": "http", "url": "http://e.test/\x1b[2J", "headers": {"\x9bx": "1"}}
    home.write("claude", json.dumps({"mcpServers": {"\x1b[2J": entry}}), "project")
    for arguments in (["import"], ["import", "claude", "--dry-run"], ["import", "claude"], ["doctor"]):
        done = sub(*arguments)
        assert "\x1b" not in done.stdout + done.stderr and "\x9b" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_a_server_behind_a_url_is_confirmed_by_its_address(home: ClientHome) -> None:
    write(home, docs="https://e.test/mcp?x=1")
    bind = [SUB, "secrets", "add", "docs_token", "--source", "file", "--bind", "docs:header:Authorization"]
    done = subprocess.run(bind, input="tok-0123456789", capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    config = (home.sub_home / "config.toml").read_text()
    assert 'inject_as = "header:Authorization"' in config and 'prefix = "Bearer "' in config
    assert 'url = "https://e.test/mcp"' in config, "binding confirms the user's own server of that name"
    write(home, docs="https://evil.test/mcp")
    assert (
        "gets none of its secrets: this is not the address that you have confirmed"
        in sub("import", "claude", "--offline").stdout
    )
    assert sub("secrets", "confirm", "docs").returncode == 0
    assert 'url = "https://evil.test/mcp"' in (home.sub_home / "config.toml").read_text()


def test_an_address_is_confirmed_by_hand(home: ClientHome) -> None:
    done = sub("secrets", "confirm", "docs", "--url", "https://u:p@e.test/mcp?key=abc", "--json")
    assert done.returncode == 0, done.stderr
    assert 'url = "https://e.test/mcp"' in (home.sub_home / "config.toml").read_text()
    assert "abc" not in done.stdout
    for wrong in (
        ["--url", "nonsense"],
        ["--url", "https://e.test", "--scope", "user"],
        ["--url", "https://e.test", "--", "x"],
    ):
        assert sub("secrets", "confirm", "docs", *wrong).returncode == 2
