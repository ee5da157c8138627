"""What keeps hooks from being asked: each switch is named, and nothing is said where all is well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.hook_files import HookHome
from harness.waiting import wait_for
from subluminal.adapters.hook.build import build_client
from subluminal.clients.base import Place
from subluminal.clients.hooks.managed import managed_hooks
from subluminal.clients.hooks.switches import ManagedFiles, options_in_use
from subluminal.doctor.findings import ERROR, NOTE, WARNING, Area, Finding
from subluminal.doctor.hooks import check_hooks

POLICY = """\
policy_id: team
version: "1"
mode: guardrails
defaults: {decision_on_error: BLOCK}
selectors: {}
rules: []
"""


class Desk(HookHome):
    """A user with hooks and an administrator."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root, monkeypatch)
        for name in [name for name in os.environ if name.startswith(("SUB_", "CLAUDE_"))]:
            if name != "SUB_HOME":
                monkeypatch.delenv(name)
        self.managed = ManagedFiles(Place(platform="linux"), str(root / "administrator"))

    def installed(self, *clients: str) -> None:
        build_client()
        for client in clients or ("claude", "codex"):
            assert all(report.status == "changed" for report in self.install(client))

    def examined(self) -> Area:
        return check_hooks(str(self.project), self.managed)

    def found(self) -> list[Finding]:
        """What is more than a note. What other programs of this machine do right now is not this user's."""
        return [each for each in self.examined().findings if each.level != NOTE and each.code != "hooks-off-now"]

    def one(self, code: str) -> Finding:
        found = [each for each in self.found() if each.code == code]
        assert len(found) == 1, self.found()
        return found[0]

    def edit(self, path: Path, **values: Any) -> None:
        old = json.loads(path.read_bytes()) if path.exists() else {}
        self.put(path, json.dumps({**old, **values}))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, monkeypatch)


def test_where_no_client_is_used_nothing_is_said(desk: Desk) -> None:
    area = desk.examined()
    assert (area.summary, area.findings) == ("no client with hooks is used here", [])


def test_a_client_without_hooks_is_told_with_the_command(desk: Desk) -> None:
    desk.put(desk.home / ".claude.json", "{}")
    area = desk.examined()
    assert "not governed (sub import claude --hooks)" in area.summary
    assert area.findings == []


def test_hooks_as_an_import_leaves_them_are_well_and_are_no_sandbox(desk: Desk) -> None:
    desk.installed()
    assert desk.found() == []
    summary = desk.examined().summary
    assert f"Claude Code: 9 hooks in {desk.settings}" in summary
    assert f"Codex: 6 hooks in {desk.hooks_json}" in summary
    assert "a guardrail, not a sandbox" in summary
    notes = " ".join(each.message for each in desk.examined().findings)
    assert all(word in notes for word in ("--bare", "--safe-mode", "--setting-sources", "features.hooks=false"))


@pytest.mark.parametrize("name", ["settings.json", "project", "local", "managed", "managed.d"])
def test_hooks_that_are_disabled_in_any_file_of_claude_code(desk: Desk, name: str) -> None:
    desk.installed("claude")
    path = {
        "settings.json": desk.settings,
        "project": desk.project / ".claude" / "settings.json",
        "local": desk.project / ".claude" / "settings.local.json",
        "managed": Path(desk.managed.settings),
        "managed.d": Path(desk.managed.settings).with_suffix(".d") / "10.json",
    }[name]
    desk.edit(path, disableAllHooks=True)
    found = desk.one("hooks-disabled")
    assert found.level == ERROR
    assert "disableAllHooks" in found.message and str(path) in found.message
    assert str(path) in (found.mend or "")
    desk.edit(path, disableAllHooks=False)
    assert desk.found() == []


def test_managed_hooks_alone(desk: Desk) -> None:
    desk.installed("claude")
    desk.edit(Path(desk.managed.settings), allowManagedHooksOnly=True)
    assert "allowManagedHooksOnly" in desk.one("hooks-managed-only").message
    desk.put(Path(desk.managed.settings), managed_hooks("claude", Place(platform="linux")).content)
    desk.edit(Path(desk.managed.settings), allowManagedHooksOnly=True)
    assert desk.found() == [], "ours are among them"
    desk.edit(desk.settings, disableAllHooks=True)
    assert desk.found() == [], "that spares what an administrator has installed"


def test_a_session_that_is_told_to_be_simple(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.installed("claude")
    desk.edit(desk.settings, env={"CLAUDE_CODE_SIMPLE": "1"})
    assert str(desk.settings) in desk.one("hooks-bare").message
    desk.edit(desk.settings, env={"CLAUDE_CODE_SIMPLE": "0"})
    assert desk.found() == []
    monkeypatch.setenv("CLAUDE_CODE_SIMPLE", "true")
    assert "is set here" in desk.one("hooks-bare").message


def test_settings_that_claude_code_passes_over(desk: Desk) -> None:
    desk.installed("claude")
    path = desk.put(desk.project / ".claude" / "settings.json", "{ // a note\n}")
    assert str(path) in desk.one("hooks-unreadable").message


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[features]\nhooks = false\n", "features.hooks"),
        ("[features]\ncodex_hooks = false\n", "features.hooks"),
        ("[profiles.quick.features]\nhooks = false\n", "profiles.quick.features.hooks"),
    ],
)
@pytest.mark.parametrize("scope", ["user", "project"])
def test_a_feature_of_codex_that_is_switched_off(desk: Desk, text: str, where: str, scope: str) -> None:
    desk.installed("codex")
    path = desk.config_toml if scope == "user" else desk.project / ".codex" / "config.toml"
    before = path.read_text() if path.exists() else ""
    desk.put(path, before + "\n" + text)
    found = desk.one("hooks-disabled")
    assert where in found.message and str(path) in found.message
    desk.put(Path(desk.managed.requirements), "[features]\nhooks = true\n")
    assert desk.found() == [], "an administrator has pinned it"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("allow_managed_hooks_only = true\n", "hooks-managed-only"),
        ("[features]\nhooks = false\n", "hooks-disabled"),
        ("[features\n", "hooks-unreadable"),
    ],
)
def test_what_an_administrator_of_codex_says(desk: Desk, text: str, code: str) -> None:
    desk.installed("codex")
    desk.put(Path(desk.managed.requirements), text)
    assert desk.managed.requirements in desk.one(code).message


def test_a_hook_that_changed_since_it_was_trusted_is_trusted_again_by_the_command(desk: Desk) -> None:
    desk.installed("codex")
    desk.hooks_json.write_text(desk.hooks_json.read_text().replace('"timeout": 30', '"timeout": 29', 1))
    found = desk.one("hooks-untrusted")
    assert "changed since it was trusted: PreToolUse" in found.message
    assert found.mend == "sub import codex --hooks"
    desk.install("codex")
    assert desk.found() == []


def test_a_hook_that_was_never_trusted_or_is_switched_off(desk: Desk) -> None:
    desk.installed("codex")
    key = f'[hooks.state."{desk.hooks_json}:stop:0:0"]\n'
    text = desk.config_toml.read_text()
    desk.config_toml.write_text(text.replace(key, key + "enabled = false\n"))
    assert "switched off: Stop" in desk.one("hooks-untrusted").message
    desk.config_toml.unlink()
    assert "not trusted: PreToolUse" in desk.one("hooks-untrusted").message


def test_hooks_of_codex_in_a_file_that_it_ignores(desk: Desk) -> None:
    desk.installed("codex")
    desk.edit(desk.hooks_json, other=1)
    assert "Codex ignores the whole file" in desk.one("hooks-unreadable").message


def test_a_hook_that_is_gone_and_one_that_was_changed(desk: Desk) -> None:
    desk.installed("claude")
    hooks = json.loads(desk.settings.read_bytes())["hooks"]
    del hooks["ConfigChange"]
    hooks["PreToolUse"][0]["matcher"] = "Bash"
    desk.edit(desk.settings, hooks=hooks)
    assert desk.one("hooks-missing").message == "Claude Code: no hook on ConfigChange"
    changed = desk.one("hooks-changed")
    assert (changed.level, changed.mend) == (WARNING, "sub import claude --hooks")
    desk.install("claude")
    assert desk.found() == []


def test_hooks_that_were_taken_out_altogether_are_missed_until_they_are_restored(desk: Desk) -> None:
    desk.installed("claude")
    desk.put(desk.settings, '{"model": "x"}')
    missing = desk.one("hooks-missing")
    assert missing.message.startswith("Claude Code: no hook on PreToolUse, ")
    assert (missing.level, missing.mend) == (ERROR, "sub import claude --hooks")
    desk.take_out("claude")
    assert desk.found() == []


def test_a_hook_command_that_is_not_there(desk: Desk) -> None:
    desk.installed("claude")
    program = Path(build_client())
    program.unlink()
    assert str(program) in desk.one("hook-missing").message
    build_client()
    assert desk.found() == []


def test_a_policy_that_fails_closed_and_no_marker_for_it(desk: Desk) -> None:
    desk.installed("claude")
    desk.put(desk.project / ".subluminal" / "policy.yaml", POLICY)
    assert desk.one("marker-missing").mend == "sub import --all --hooks"
    closed = desk.sub_home / "closed"
    closed.mkdir(mode=0o700)
    (closed / "x").write_text(f"{desk.home}-other\n")
    assert [each.code for each in desk.found()] == ["marker-missing"]
    (closed / "x").write_text(f"{desk.project}\n")
    assert desk.found() == []
    assert desk.examined().facts["closed"] == [str(desk.project)]


@pytest.mark.parametrize(
    ("argv", "option"),
    [
        (["claude", "--bare"], "--bare"),
        (["node", "/usr/bin/claude", "-p", "x", "--setting-sources=project"], "--setting-sources"),
        (["/opt/claude", "--safe-mode", "-p"], "--safe-mode"),
        (["codex", "exec", "-c", "features.hooks=false", "x"], "-c features.hooks=false"),
        (["codex", "--disable", "hooks"], "--disable hooks"),
        (["claude", "-p", "what is --bare"], None),
        (["vim", "claude", "--bared"], None),
        (["codex", "exec", "--bare"], None),
        ([], None),
    ],
)
def test_options_with_which_a_client_runs(argv: list[str], option: str | None) -> None:
    assert options_in_use(argv) == option


@pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")
def test_a_client_that_runs_without_hooks_right_now(desk: Desk, tmp_path: Path) -> None:
    desk.installed("claude")
    client = tmp_path / "claude"
    client.symlink_to(sys.executable)
    code = "import sys; sys.stdin.read()"
    with subprocess.Popen([str(client), "-c", code, "--bare"], stdin=subprocess.PIPE) as process:
        told = f"process {process.pid} (claude)"
        wait_for(
            lambda: any(told in each.message for each in desk.examined().findings if each.code == "hooks-off-now"),
            what="the process to be seen",
        )
        process.kill()
