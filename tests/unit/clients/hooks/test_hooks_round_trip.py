"""Hooks in files of every layout: installed beside the user's own, once, and taken out again to the byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.hook_files import HookHome, hooks_in
from subluminal.clients.hooks.wanted import EVENTS, hooks_of

THEIRS = {"matcher": "Bash", "hooks": [{"type": "command", "command": "theirs"}]}
PRETTY = json.dumps({"model": "opus", "hooks": {"PreToolUse": [THEIRS, THEIRS], "Stop": []}, "z": 1}, indent=4) + "\n"
JSON_FILES = {
    "empty": "",
    "blank": " \n\n",
    "an empty object": "{}",
    "an empty object on lines": "{\n}\n",
    "other settings on one line": '{"model":"opus","env":{"A":"1"}}',
    "other settings on lines": '{\n  "model": "opus",\n  "permissions": {\n    "allow": ["Bash(ls)"]\n  }\n}\n',
    "tabs": '{\n\t"model": "opus"\n}',
    "hooks of the user": PRETTY,
    "CRLF": PRETTY.replace("\n", "\r\n"),
    "a byte order mark": "\ufeff" + PRETTY,
    "hooks on one line": json.dumps({"hooks": {"PreToolUse": [THEIRS], "Notification": [THEIRS]}}),
    "empty hooks": '{"hooks": {}, "model": "opus"}',
    "empty hooks on lines": '{\n  "hooks": {\n  }\n}',
    "no final newline": PRETTY.rstrip("\n"),
}
LISTS = 'hooks = { PreToolUse = [{ matcher = "Bash", hooks = [{ type = "command", command = "theirs" }] }] }\n'
TABLES = """\
# what I like
model = "gpt-5"  # best

[[hooks.PreToolUse]]  # mine
matcher = "Bash"

[[hooks.PreToolUse.hooks]]
type = "command"
command = 'theirs'

[mcp_servers.a]
command = "x"
# the end
"""
IN_HEADER = (
    '[hooks]\nPreToolUse = [\n  { matcher = "Bash", hooks = [{ type = "command", command = "theirs" }] }, # a\n]\n'
)
TOML_FILES = {
    "tables": TABLES,
    "tables, CRLF": TABLES.replace("\n", "\r\n"),
    "tables, no final newline": TABLES.rstrip("\n"),
    "an inline table": LISTS,
    "an inline table with states": LISTS.replace(
        "hooks = {", 'hooks = { state = { "/x:stop:0:0" = { trusted_hash = "h" } },', 1
    ),
    "a list below a header": IN_HEADER,
    "a list below a header, then tables": IN_HEADER + '\n[hooks.state."/x:stop:0:0"]\nenabled = true\n\n[b]\nc = 1\n',
    "a dotted key": 'hooks.PreToolUse = [{ hooks = [{ type = "command", command = "theirs" }] }]\n',
}
STATES_ONLY = {
    "no hooks at all": 'model = "gpt-5"\n\n[mcp_servers.a]\ncommand = "x"',
    "empty": "",
    "states": '[hooks.state."/x:stop:0:0"]\ntrusted_hash = "h"\n\n\n# behind\n',
    "an inline state": '[hooks]\nstate = { "/x:stop:0:0" = { trusted_hash = "h" } }\n',
}


def check_installed(path: Path, client: str, before: dict[str, list[object]]) -> None:
    """Ours stand behind those of the user, which are as they were."""
    found = hooks_in(path)
    ours = hooks_of(client)
    for event in {*before, *ours} - {"state"}:
        assert found[event] == [*before.get(event, []), *ours.get(event, [])], event


@pytest.mark.parametrize("text", JSON_FILES.values(), ids=JSON_FILES)
def test_settings_of_claude_code(home: HookHome, text: str) -> None:
    path = home.put(home.settings, text)
    before = hooks_in(path) if text.strip() else {}
    [report] = home.install("claude")
    assert report.status == "changed"
    assert [hook.status for hook in report.hooks] == ["added"] * len(EVENTS["claude"])
    check_installed(path, "claude", before)
    installed = path.read_bytes()
    assert [each.status for each in home.install("claude")] == ["unchanged"]
    assert path.read_bytes() == installed
    [report] = home.take_out("claude")
    assert (report.status, report.exact) == ("restored", True)
    assert path.read_bytes() == text.encode()
    assert home.take_out("claude") == []


@pytest.mark.parametrize("name", [name for name, text in JSON_FILES.items() if text.strip()])
def test_settings_that_were_edited_since_lose_our_hooks_alone(home: HookHome, name: str) -> None:
    text = JSON_FILES[name]
    path = home.put(home.settings, text)
    home.install("claude")
    installed = path.read_bytes().decode()
    path.write_bytes(installed.replace("{", '{"mine": [1],', 1).encode())
    [report] = home.take_out("claude")
    assert (report.status, report.exact) == ("restored", False)
    comma = "," if json.loads(text.lstrip("\ufeff")) else ""
    assert path.read_bytes().decode() == text.replace("{", '{"mine": [1]' + comma, 1)


def test_a_file_that_was_not_there_is_made_and_taken_away(home: HookHome) -> None:
    [report] = home.install("claude")
    assert (report.status, report.backup) == ("changed", None)
    assert json.loads(home.settings.read_bytes()) == {"hooks": hooks_of("claude")}
    assert home.settings.stat().st_mode & 0o777 == 0o600
    home.take_out("claude")
    assert not home.settings.exists()
    assert home.leftovers() == []


def test_a_file_that_we_made_and_the_user_filled_stays(home: HookHome) -> None:
    home.install("claude")
    values = json.loads(home.settings.read_bytes())
    home.settings.write_text(json.dumps({**values, "model": "opus"}))
    home.take_out("claude")
    assert json.loads(home.settings.read_bytes()) == {"model": "opus"}


def test_a_file_that_we_made_and_the_user_removed_is_no_matter(home: HookHome) -> None:
    home.install("claude")
    home.settings.unlink()
    assert home.take_out("claude") == []
    [report] = home.install("claude")
    assert report.status == "changed"


@pytest.mark.parametrize("text", TOML_FILES.values(), ids=TOML_FILES)
def test_hooks_in_the_configuration_of_codex_are_joined_there(home: HookHome, text: str) -> None:
    path = home.put(home.config_toml, text)
    before = hooks_in(path)
    [report] = home.install("codex")
    assert report.path == str(path)
    check_installed(path, "codex", before)
    assert not home.hooks_json.exists()
    installed = path.read_bytes()
    assert [each.status for each in home.install("codex")] == ["unchanged"]
    assert path.read_bytes() == installed
    [report] = home.take_out("codex")
    assert report.exact
    assert path.read_bytes() == text.encode()


@pytest.mark.parametrize("text", TOML_FILES.values(), ids=TOML_FILES)
def test_a_configuration_that_was_edited_since_loses_our_hooks_alone(home: HookHome, text: str) -> None:
    path = home.put(home.config_toml, text)
    home.install("codex")
    newline = "\r\n" if "\r\n" in text else "\n"
    path.write_bytes(f"# mine{newline}".encode() + path.read_bytes())
    [report] = home.take_out("codex")
    assert (report.status, report.exact) == ("restored", False)
    assert path.read_bytes() == f"# mine{newline}{text}".encode()


@pytest.mark.parametrize("text", STATES_ONLY.values(), ids=STATES_ONLY)
@pytest.mark.parametrize("edited", [False, True])
def test_other_hooks_of_codex_go_to_a_file_of_their_own(home: HookHome, text: str, edited: bool) -> None:
    path = home.put(home.config_toml, text)
    before = hooks_in(path).get("state", {})
    config, hooks = home.install("codex")
    assert (config.path, hooks.path) == (str(path), str(home.hooks_json))
    check_installed(home.hooks_json, "codex", {})
    state = hooks_in(path)["state"]
    assert {key: state[key] for key in before} == before
    assert len(state) == len(before) + len(EVENTS["codex"])
    if edited:
        path.write_bytes(b"# mine\n" + path.read_bytes())
    home.take_out("codex")
    assert path.read_bytes() == (b"# mine\n" if edited else b"") + text.encode()
    assert not home.hooks_json.exists()


def test_codex_without_any_file(home: HookHome) -> None:
    home.install("codex")
    assert set(hooks_in(home.config_toml)) == {"state"}
    home.take_out("codex")
    assert not home.config_toml.exists()
    assert not home.hooks_json.exists()


def test_servers_and_hooks_of_one_file_come_back_together(home: HookHome) -> None:
    path = home.put(home.config_toml, TABLES)
    home.imported("codex")
    home.install("codex")
    assert b"shim" in path.read_bytes()
    [report] = home.take_out("codex")
    assert report.exact
    assert path.read_text() == TABLES


def test_hooks_that_the_user_added_behind_ours_stay(home: HookHome) -> None:
    path = home.put(home.config_toml, TABLES)
    home.install("codex")
    more = '\n# more of mine\n[[hooks.PreToolUse]]\nhooks = [{ type = "command", command = "later" }]\n'
    path.write_text(path.read_text() + more)
    [report] = home.take_out("codex")
    assert path.read_text() == TABLES + more
    assert report.warnings == ["your hooks on PreToolUse moved up; trust them again in Codex (/hooks)"]
