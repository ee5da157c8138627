"""`sub import --hooks` and `sub restore` as a user types them: real processes, real files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from harness.hook_files import HookHome, hooks_in

SUB = os.path.join(os.path.dirname(sys.executable), "sub")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HookHome:
    return HookHome(tmp_path, monkeypatch)


def sub(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SUB, *arguments], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)


def test_servers_and_hooks_are_imported_and_restored_to_the_byte(home: HookHome) -> None:
    servers = '{"mcpServers": {"a": {"command": "x"}}}'
    settings = '{\n  "model": "opus"\n}\n'
    config = '# mine\n[mcp_servers.a]\ncommand = "x"\n'
    home.write("claude", servers)
    home.put(home.settings, settings)
    home.put(home.config_toml, config)
    done = sub("import", "--all", "--hooks")
    assert done.returncode == 0, done.stderr
    assert "PreToolUse" in done.stdout and "guardrail, not a sandbox" in done.stderr
    assert set(hooks_in(home.settings)) > {"PreToolUse", "ConfigChange"}
    assert "shim" in home.config_toml.read_text() and "trusted_hash" in home.config_toml.read_text()
    commands = [group["hooks"][0]["command"] for group in hooks_in(home.hooks_json)["PreToolUse"]]
    program = commands[0].split()[0]
    assert program.startswith(str(home.sub_home)) and os.access(program, os.X_OK)
    again = sub("import", "--all", "--hooks")
    assert "Nothing to do" in again.stderr, again.stderr
    done = sub("restore", "--all")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("byte for byte") == 4
    assert home.settings.read_text() == settings
    assert home.config_toml.read_text() == config
    assert Path(home.file_of("claude").path).read_text() == servers
    assert not home.hooks_json.exists()


def test_an_import_without_hooks_says_in_a_line_what_is_not_governed(home: HookHome) -> None:
    home.write("claude", '{"mcpServers": {"a": {"command": "x"}}}')
    home.write("gemini", '{"mcpServers": {"a": {"command": "x"}}}')
    said = [line for line in sub("import", "--all").stderr.splitlines() if "not governed" in line]
    assert said == ["Built-in tools of Claude Code are not governed by this:  sub import claude --hooks"]
    assert sub("import", "claude", "--hooks").returncode == 0
    assert "not governed" not in sub("import", "claude").stderr


def test_the_report_for_programs_names_every_event(home: HookHome) -> None:
    report = json.loads(sub("import", "codex", "--hooks", "--json", "--dry-run").stdout)
    [config, hooks] = report["files"]
    assert [hook["status"] for hook in config["hooks"]] == ["trusted"] * 6
    assert {hook["event"]: hook["status"] for hook in hooks["hooks"]}["PreToolUse"] == "added"
    assert not home.sub_home.exists() and not home.hooks_json.exists()


def test_managed_files_are_printed_and_never_written(home: HookHome) -> None:
    done = sub("import", "codex", "--hooks", "--managed")
    assert done.returncode == 0
    values = tomllib.loads(done.stdout)
    assert values["features"] == {"hooks": True}
    assert len(values["hooks"]) == 6
    assert "/etc/codex/requirements.toml" in done.stderr and "Nothing was written" in done.stderr
    done = sub("import", "claude", "--hooks", "--managed")
    assert len(json.loads(done.stdout)["hooks"]) == 9
    [told] = json.loads(sub("import", "claude", "--hooks", "--managed", "--json").stdout)["managed"]
    assert told["content"] == done.stdout
    assert not home.sub_home.exists() and not home.settings.exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["import", "gemini", "--hooks"], "claude and codex"),
        (["import", "--hooks"], "which client"),
        (["import", "claude", "--managed"], "--managed is about hooks"),
        (["import", "--all", "--hooks", "--managed"], "whose managed file"),
        (["import", "claude", "--hooks", "--file", "x"], "takes no --file"),
        (["import", "codex", "--hooks", "--scope", "project"], "for the user"),
        (["import", "emacs", "--hooks"], "Known clients"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(home: HookHome, arguments: list[str], says: str) -> None:
    done = sub(*arguments)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr and "Traceback" not in done.stderr
    assert not home.hooks_json.exists() and not home.settings.exists()
