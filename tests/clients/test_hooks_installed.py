"""Hooks as `sub import --hooks` writes them, in front of the real clients: read, trusted, asked, and gone again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clients import programs
from clients.models import Text, ToolCall
from clients.scenarios import model_for
from subluminal.clients.hooks.wanted import EVENTS

pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]
SUB = [sys.executable, "-m", "subluminal"]
# The user's own hook: it leaves a note of what it was asked about.
NOTED = "cat >> {}"
FORMS = ["hooks.json", "config.toml, tables", "config.toml, inline"]
KINDS = {
    "claude": ("claude_code", ToolCall("Bash", {"command": "echo hi"})),
    "codex": ("codex", ToolCall("exec_command", {"cmd": "echo hi"})),
}


class App:
    """`codex app-server`, which knows its hooks and whether it trusts them."""

    def __init__(self, cli_dir: Path, project: Path) -> None:
        self._process = subprocess.Popen(
            [cli_dir / "codex", "app-server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=project,
            text=True,
        )
        self._project = project

    def __enter__(self) -> App:
        self._ask(1, "initialize", {"clientInfo": {"name": "tests", "version": "1"}})
        self._send({"method": "initialized"})
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def hooks(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Every hook that Codex found, and its warnings."""
        [found] = self._ask(2, "hooks/list", {"cwds": [str(self._project)]})["data"]
        return found["hooks"], found["warnings"]

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def _ask(self, number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._send({"id": number, "method": method, "params": params})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if message.get("id") == number:
                answer: dict[str, Any] = message["result"]
                return answer
        raise AssertionError(f"no answer to {method}")


def sub(*arguments: str) -> None:
    done = subprocess.run([*SUB, *arguments], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr


def users_hooks(home: Path, form: str) -> Path:
    """A hook of the user's own in one of the forms that Codex reads; the file in which it stands."""
    directory = home / ".codex"
    directory.mkdir()
    command = json.dumps(NOTED.format(home / "noted"))
    handler = f'type = "command", command = {command}'
    if form == "hooks.json":
        path = directory / "hooks.json"
        path.write_text(f'{{"hooks": {{"PreToolUse": [{{"hooks": [{{"type": "command", "command": {command}}}]}}]}}}}')
    elif form == "config.toml, tables":
        path = directory / "config.toml"
        path.write_text(f"# mine\n[[hooks.PreToolUse]]\nhooks = [{{ {handler} }}]\n")
    else:
        path = directory / "config.toml"
        path.write_text(f"hooks = {{ PreToolUse = [{{ hooks = [{{ {handler} }}] }}] }}\n")
    return path


@pytest.mark.parametrize("form", FORMS)
def test_codex_trusts_our_hooks_and_the_users_is_as_it_was(cli_dir: Path, home: Path, form: str) -> None:
    path = users_hooks(home, form)
    original = path.read_bytes()
    sub("import", "codex", "--hooks")
    with App(cli_dir, home / "project") as app:
        hooks, warnings = app.hooks()
    assert warnings == []
    ours = [hook for hook in hooks if "sub-hook" in hook["command"]]
    assert len(ours) == len(EVENTS["codex"])
    assert {hook["trustStatus"] for hook in ours} == {"trusted"}
    assert {hook["key"].rsplit(":", 3)[0] for hook in ours} == {str(path)}
    [theirs] = [hook for hook in hooks if "sub-hook" not in hook["command"]]
    assert theirs["key"] == f"{path}:pre_tool_use:0:0"
    assert theirs["trustStatus"] == "untrusted", "that is not ours to say"
    sub("restore", "codex")
    assert path.read_bytes() == original


def test_a_hook_that_was_changed_is_not_trusted_until_it_is_imported_again(cli_dir: Path, home: Path) -> None:
    (home / ".codex").mkdir()
    sub("import", "codex", "--hooks")
    path = home / ".codex" / "hooks.json"
    path.write_text(path.read_text().replace('"timeout": 30', '"timeout": 29', 1))

    def statuses() -> set[str]:
        with App(cli_dir, home / "project") as app:
            return {hook["trustStatus"] for hook in app.hooks()[0]}

    assert statuses() == {"trusted", "modified"}
    sub("import", "codex", "--hooks")
    assert statuses() == {"trusted"}


def asked(client: str, cli_dir: Path, home: Path, *options: str) -> set[str]:
    """The events at which a client ran the hook command in a session with one call, by a command that takes notes."""
    notes = home / "asked"
    program = home / ".subluminal" / "bin" / "sub-hook"
    if not program.exists():
        pytest.skip("there is no compiler for the hook command")
    program.unlink()
    program.write_text(f'#!/bin/sh\necho "$2" >> {notes}\ncat > /dev/null\nexit 0\n')
    program.chmod(0o755)
    notes.unlink(missing_ok=True)
    kind, call = KINDS[client]
    with model_for(kind, (call, Text("Done."))) as model:
        if client == "codex":
            command, env = ["codex", "exec", *programs.codex_args(model.url), *options], programs.codex_env()
        else:
            command, env = ["claude", "-p", "--allowedTools=Bash", *options], programs.claude_env(model.url)
        done = subprocess.run(
            [cli_dir / command[0], *command[1:], "Say hi."],
            env={**os.environ, **env},
            cwd=home / "project",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
        )
        assert "hi" in model.tool_outputs()[-1], done.stderr
    return set(notes.read_text().split()) if notes.exists() else set()


@pytest.mark.parametrize(
    ("client", "off"), [("codex", ("-c", "features.hooks=false")), ("claude", ("--setting-sources=project",))]
)
def test_a_client_asks_before_and_after_a_call_of_its_own(
    cli_dir: Path, home: Path, client: str, off: tuple[str, ...]
) -> None:
    sub("import", client, "--hooks")
    assert {"SessionStart", "PreToolUse", "PostToolUse", "Stop"} <= asked(client, cli_dir, home)
    assert asked(client, cli_dir, home, *off) == set(), "as doctor says of this option"
    sub("restore", client)
    assert asked(client, cli_dir, home) == set()
