"""`sub import` and `sub restore` as a user types them: real processes, real files."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from harness.client_files import CORPUS, ClientHome

SUB = os.path.join(os.path.dirname(sys.executable), "sub")
TOKEN = "ghp_ThisIsNotARealTokenAtAll0000000000"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClientHome:
    return ClientHome(tmp_path, monkeypatch)


def sub(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SUB, *arguments], capture_output=True, text=True, timeout=60, cwd=cwd)


@pytest.mark.contract("IMP-001")
@pytest.mark.parametrize(
    ("client", "source"), [("claude", "claude-user/nested-projects.json"), ("codex", "codex/comments-everywhere.toml")]
)
def test_import_then_restore_is_byte_identical_and_keeps_the_names(home: ClientHome, client: str, source: str) -> None:
    original = (CORPUS / source).read_bytes()
    path = home.write(client, original)

    imported = sub("import", client, "--offline")

    assert imported.returncode == 0, imported.stderr
    assert f"sub restore {client}" in imported.stderr and "sub tail" in imported.stderr
    assert SUB in path.read_text() and path.read_bytes() != original
    restored = sub("restore", client)
    assert restored.returncode == 0, restored.stderr
    assert "byte for byte" in restored.stdout
    assert path.read_bytes() == original


def test_the_absolute_path_of_this_sub_is_what_clients_will_start(home: ClientHome) -> None:
    path = home.write("claude", '{"mcpServers": {"a": {"command": "x"}}}')
    assert sub("import", "claude").returncode == 0
    entry = json.loads(path.read_bytes())["mcpServers"]["a"]
    assert entry == {"command": SUB, "args": ["shim", "--server-name", "a", "--client", "claude", "--", "x"]}


def test_without_a_client_it_shows_everything_and_changes_nothing(home: ClientHome) -> None:
    claude = home.write("claude", '{"mcpServers": {"a": {"command": "x"}, "h": {"type": "http", "url": "u"}}}')
    home.write("codex", "[broken")
    before = claude.read_bytes()
    shown = sub("import")
    assert shown.returncode == 0
    assert "would be routed" in shown.stdout and "http" in shown.stdout and "line 1" in shown.stdout
    assert "sub import claude" in shown.stderr
    assert claude.read_bytes() == before and not home.sub_home.exists()
    found = json.loads(sub("import", "--json").stdout)["found"]
    assert [file["client"] for file in found] == ["claude", "codex"]


def test_a_projects_file_is_imported_from_a_directory_below_it(home: ClientHome) -> None:
    path = home.write("claude", '{"mcpServers": {"a": {"command": "x"}}}', "project")
    below = home.project / "src"
    below.mkdir()
    report = json.loads(sub("import", "claude", "--scope", "project", "--json", cwd=below).stdout)
    assert [file["path"] for file in report["files"]] == [str(path)]
    assert report["files"][0]["servers"][0]["status"] == "wrapped"


def test_a_repositorys_file_is_left_out_and_named_until_it_is_asked_for(home: ClientHome) -> None:
    own = home.write("claude", '{"mcpServers": {"mine": {"command": "x"}}}')
    shared = home.write("claude", '{"mcpServers": {"theirs": {"command": "x"}}}', "project")
    before = shared.read_bytes()
    done = sub("import", "claude")
    assert done.returncode == 1
    assert "left       theirs" in done.stdout and "sub import claude --scope project" in done.stderr
    assert SUB in own.read_text() and shared.read_bytes() == before
    asked = sub("import", "claude", "--scope", "project")
    assert asked.returncode == 0 and "needs Subluminal on the PATH" in asked.stderr
    entry = json.loads(shared.read_bytes())["mcpServers"]["theirs"]
    assert entry["command"] == "sub" and entry["args"][-2:] == ["--", "x"]
    assert sub("import", "claude").returncode == 0, "what is routed is not left out"
    assert sub("restore", "claude").returncode == 0 and shared.read_bytes() == before


def test_a_repositorys_file_is_routed_by_who_agrees_on_a_terminal(home: ClientHome) -> None:
    shared = home.write("claude", '{"mcpServers": {"theirs": {"command": "x"}}}', "project")
    for answer, command in ((b"n\n", "x"), (b"y\n", "sub")):
        master, slave = pty.openpty()
        with subprocess.Popen([SUB, "import", "claude"], stdin=slave, stderr=slave, stdout=subprocess.DEVNULL) as done:
            os.write(master, answer)
            done.wait(60)
        os.close(slave)
        os.close(master)
        assert json.loads(shared.read_bytes())["mcpServers"]["theirs"]["command"] == command


def test_a_dry_run_says_what_would_be_done_and_not_that_it_was(home: ClientHome) -> None:
    home.write("claude", '{"mcpServers": {"a": {"command": "x"}}}')
    shown = sub("import", "claude", "--dry-run").stdout
    assert "would wrap" in shown and "wrapped" not in shown


def test_all_clients_at_once_and_back(home: ClientHome) -> None:
    originals = {}
    for client, source in {
        "claude": "claude-user/user-scope.json",
        "codex": "codex/typical.toml",
        "gemini": "gemini/comments.json",
        "vscode": "vscode/inputs-and-comments.json",
        "opencode": "opencode/local-and-remote.json",
        "zed": "zed/old-and-new.json",
    }.items():
        data = (CORPUS / source).read_bytes()
        originals[home.write(client, data)] = data
    assert sub("import", "--all").returncode == 0
    assert all(path.read_bytes() != data for path, data in originals.items())
    assert sub("restore", "--all").returncode == 0
    assert all(path.read_bytes() == data for path, data in originals.items())


def test_a_dry_run_is_a_diff_on_stdout_without_secrets(home: ClientHome) -> None:
    path = home.write("claude", json.dumps({"mcpServers": {"a": {"command": "x", "env": {"T": TOKEN}}}}, indent=2))
    before = path.read_bytes()
    shown = sub("import", "claude", "--dry-run")
    assert shown.returncode == 0
    assert '-      "command": "x"' in shown.stdout and f'+      "command": "{SUB}"' in shown.stdout
    assert TOKEN not in shown.stdout + shown.stderr
    assert "sub secrets adopt a T" in shown.stderr
    assert path.read_bytes() == before


def test_a_broken_file_stops_only_itself(home: ClientHome) -> None:
    broken = home.write("claude", '{\n"mcpServers": {,}}')
    whole = home.write("claude", '{"mcpServers": {"a": {"command": "x"}}}', "project")
    result = sub("import", "claude", "--scope", "user", "--scope", "project")
    assert result.returncode == 2
    assert "line 2" in result.stdout and "Traceback" not in result.stderr
    assert broken.read_text() == '{\n"mcpServers": {,}}'
    assert "--server-name" in whole.read_text()


def test_entries_that_cannot_be_routed_give_exit_code_one(home: ClientHome) -> None:
    home.write("claude", '{"mcpServers": {"a": {"command": 5}}}')
    result = sub("import", "claude")
    assert result.returncode == 1 and "not a string" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["import", "emacs"], 2, "Known clients"),
        (["import", "claude", "--all"], 2, "not both"),
        (["import", "--dry-run"], 2, "which client"),
        (["import", "claude"], 1, ".claude.json"),
        (["import", "--all"], 0, ""),
        (["import", "--all", "--file", "x"], 2, "needs the client"),
        (["restore"], 2, "which client"),
        (["restore", "claude"], 0, "Nothing to restore"),
        (["restore", "--list"], 0, "No backups"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    home: ClientHome, arguments: list[str], code: int, says: str
) -> None:
    result = sub(*arguments)
    assert result.returncode == code, result.stderr
    assert says in result.stderr and "Traceback" not in result.stderr


def test_a_server_that_does_not_exist_is_an_error(home: ClientHome) -> None:
    path = home.write("claude", '{"mcpServers": {"a": {"command": "x"}}}')
    result = sub("import", "claude", "--server", "b")
    assert result.returncode == 2 and "'b'" in result.stderr and "Known here: a." in result.stderr
    result = sub("import", "claude", "--server", "b", "--server", "a")
    assert result.returncode == 2 and "'b'" in result.stderr
    assert SUB not in path.read_text(), "a slip changes nothing"
    assert sub("restore", "claude", "--server", "nobody").returncode == 2


def test_a_single_file_can_be_named(home: ClientHome) -> None:
    path = home.project / "mcp.json"
    path.write_text('{"mcpServers": {"a": {"command": "x"}}}')
    assert sub("import", "claude", "--file", "mcp.json").returncode == 0
    assert SUB in path.read_text()
    assert sub("restore", "claude").returncode == 0
    assert path.read_text() == '{"mcpServers": {"a": {"command": "x"}}}'


def test_backups_are_listed(home: ClientHome) -> None:
    path = home.write("claude", '{"mcpServers": {"a": {"command": "x"}}}')
    sub("import", "claude")
    (row,) = json.loads(sub("restore", "--list", "--json").stdout)["backups"]
    assert row["intact"] is True and row["record"]["path"] == str(path)
    assert Path(row["backup"]).read_text() == '{"mcpServers": {"a": {"command": "x"}}}'
    assert str(path) in sub("restore", "--list").stdout


def test_names_from_a_hostile_repository_cannot_drive_the_terminal(home: ClientHome) -> None:
    home.write("claude", '{"mcpServers": {"\\u001b[2Jx\\u009b": {"command": "x"}}}', "project")
    for arguments in (["import"], ["import", "claude", "--dry-run"], ["import", "claude"], ["restore", "claude"]):
        result = sub(*arguments)
        assert "\x1b" not in result.stdout + result.stderr and "\x9b" not in result.stdout + result.stderr


@pytest.mark.parametrize("command", ["import", "restore"])
def test_help_has_examples(home: ClientHome, command: str) -> None:
    shown = sub(command, "--help").stdout
    assert "Examples:" in shown and f"sub {command} claude" in shown and "windsurf" in shown


def test_a_scope_that_there_is_not_is_said(home: ClientHome) -> None:
    home.write("codex", "")
    unknown = sub("import", "codex", "--scope", "moon")
    assert unknown.returncode == 2 and "'moon' is not one of 'user', 'local', 'project', 'managed'" in unknown.stderr
    none = sub("import", "codex", "--scope", "managed")
    assert none.returncode == 1 and "Codex has no file of the scope managed here." in none.stderr
