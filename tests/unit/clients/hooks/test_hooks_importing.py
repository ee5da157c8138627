"""What an import of hooks does with entries that are there already, and with files that it cannot change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.hook_files import HookHome, hooks_in
from subluminal.clients.hooks import trust
from subluminal.clients.hooks.wanted import EVENTS, commands_of, hooks_of

THEIRS = {"matcher": "Bash", "hooks": [{"type": "command", "command": "theirs"}]}


def ours(client: str, event: str = "PreToolUse") -> dict[str, Any]:
    group: dict[str, Any] = hooks_of(client)[event][0]
    return group


def statuses(home: HookHome, client: str) -> dict[str, str]:
    [report] = [report for report in home.install(client) if not report.path.endswith(".toml")]
    return {hook.event: hook.status for hook in report.hooks}


def settings(home: HookHome, hooks: dict[str, Any]) -> Path:
    return home.put(home.settings, json.dumps({"hooks": hooks}, indent=2))


def test_every_event_has_a_matcher_for_all_tools_and_a_timeout(home: HookHome) -> None:
    home.install("claude")
    for groups in hooks_in(home.settings).values():
        assert [(group["matcher"], [h["timeout"] for h in group["hooks"]]) for group in groups] == [("*", [30])]


def test_an_entry_of_another_home_is_brought_up_to_date_in_its_place(home: HookHome) -> None:
    old = {"matcher": "*", "hooks": [{"type": "command", "command": "/old/bin/sub-hook claude PreToolUse; exit 0"}]}
    path = settings(home, {"PreToolUse": [THEIRS, old, THEIRS]})
    assert statuses(home, "claude")["PreToolUse"] == "updated"
    [_, group, _] = hooks_in(path)["PreToolUse"]
    assert group == {
        "matcher": "*",
        "hooks": [{"type": "command", "command": commands_of("claude")["PreToolUse"], "timeout": 30}],
    }


@pytest.mark.parametrize("change", [{"matcher": "Bash"}, {"matcher": None}, {"timeout": 1}])
def test_an_entry_that_was_made_narrower_is_widened(home: HookHome, change: dict[str, Any]) -> None:
    home.install("claude")
    if "timeout" in change:  # what stands in it depends on the home of this test
        change = {"hooks": [{**ours("claude")["hooks"][0], **change}]}
    group = {key: value for key, value in {**ours("claude"), **change}.items() if value is not None}
    path = settings(home, {**hooks_in(home.settings), "PreToolUse": [group]})
    found = statuses(home, "claude")
    assert (found.pop("PreToolUse"), set(found.values())) == ("updated", {"already"})
    assert hooks_in(path)["PreToolUse"] == [ours("claude")]


def test_an_entry_that_is_there_twice_is_left_once(home: HookHome) -> None:
    path = settings(home, {"PreToolUse": [ours("claude"), THEIRS, ours("claude")]})
    home.install("claude")
    assert hooks_in(path)["PreToolUse"] == [ours("claude"), THEIRS]


def test_a_handler_that_the_user_put_into_a_group_of_theirs_is_taken_out_of_it(home: HookHome) -> None:
    joined = {"matcher": "Bash", "hooks": [*THEIRS["hooks"], *ours("claude")["hooks"]]}
    path = settings(home, {"PreToolUse": [joined]})
    home.install("claude")
    assert hooks_in(path)["PreToolUse"] == [THEIRS, ours("claude")]
    home.take_out("claude")
    assert hooks_in(path)["PreToolUse"] in ([THEIRS], [joined])


def test_a_handler_below_a_header_of_its_own_is_known(home: HookHome) -> None:
    command = json.dumps(ours("codex")["hooks"][0]["command"])
    theirs = '[[hooks.PreToolUse]]\n\n[[hooks.PreToolUse.hooks]]\ntype = "command"\ncommand = "theirs"\n'
    mine = f'\n[[hooks.PreToolUse.hooks]]\ntype = "command"\ncommand = {command}\ntimeout = 30\n'
    path = home.put(home.config_toml, theirs + mine)
    home.take_out("codex")
    assert path.read_text() == theirs


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{ // a note\n}", "plain JSON only"),
        ('{"hooks": []}', "not a table"),
        ('{"hooks": {}, "hooks": {}}', "twice"),
        ('{"hooks": {"Stop": [], "Stop": []}}', "twice"),
        ('{"hooks": {"PreToolUse": {}}}', "not a list"),
        ('{"hooks": ', "line 1"),
        ("[]", "no JSON object"),
    ],
)
def test_a_file_that_cannot_be_read_with_certainty_is_left_alone(home: HookHome, text: str, why: str) -> None:
    path = home.put(home.settings, text)
    [report] = home.install("claude")
    assert report.status == "refused"
    assert why in (report.error or "") and str(path) in (report.error or "")
    assert path.read_text() == text


def test_a_file_that_is_made_to_keep_us_busy_is_refused(home: HookHome) -> None:
    path = home.put(home.settings, '{"x": "' + "x" * 2**20 + '"}')
    [report] = home.install("claude")
    assert "larger than 1 MiB" in (report.error or "")
    many = [ours("claude")] * 1_000
    path.write_text(json.dumps({"hooks": {"PreToolUse": many}}))
    [report] = home.install("claude")
    assert report.status == "refused"


def test_codex_would_ignore_a_file_with_other_keys_so_it_is_refused(home: HookHome) -> None:
    text = '{"description": "mine",\n "$schema": "x"}'
    home.put(home.hooks_json, text)
    [report] = home.install("codex")
    assert report.status == "refused"
    assert '"$schema" (line 2)' in (report.error or "")
    assert not home.config_toml.exists(), "no half of it is written"


def test_nothing_is_written_where_one_of_two_files_is_refused(home: HookHome) -> None:
    path = home.put(home.config_toml, "model = 'x'\n")
    path.chmod(0o400)
    [report] = home.install("codex")
    assert report.status == "refused"
    assert "read-only" in (report.error or "")
    assert not home.hooks_json.exists()


def test_a_dry_run_shows_the_change_and_writes_nothing(home: HookHome) -> None:
    path = home.put(home.settings, '{"model": "opus"}')
    [report] = home.install("claude", dry_run=True)
    assert report.status == "changed"
    assert "+" in (report.diff or "") and "ConfigChange" in (report.diff or "")
    assert path.read_text() == '{"model": "opus"}'
    assert not home.sub_home.exists()
    config, hooks = home.install("codex", dry_run=True)
    assert "trusted_hash" in (config.diff or "") and "PreToolUse" in (hooks.diff or "")
    assert not home.config_toml.exists() and not home.hooks_json.exists()


@pytest.mark.parametrize(("scope", "name"), [("project", "settings.json"), ("local", "settings.local.json")])
def test_a_project_has_settings_of_its_own(home: HookHome, scope: str, name: str) -> None:
    [report] = home.install("claude", scope)
    path = home.project / ".claude" / name
    assert (report.path, report.scope) == (str(path), scope)
    assert set(hooks_in(path)) == {wanted.event for wanted in EVENTS["claude"]}
    home.take_out("claude")
    assert not path.exists()


def test_a_hash_is_that_of_codex() -> None:
    """Of Codex 0.166.0, by its own list of hooks."""
    bare = {"command": "/bin/true"}
    assert trust.trust_hash("PostToolUse", "*", {**bare, "timeout": 30}) == (
        "sha256:7a6979c6b13fc4e5f3fb68b9ea224e7a4146e6a26be0cd466560abccc306ae14"
    )
    assert trust.trust_hash("SessionEnd", "*", {**bare, "timeout": 30}) == (
        "sha256:17d89aec71dc20cef167696b0116a5c2809c1d26f9dce848d17380a1b49f87b6"
    )
    assert trust.trust_hash("Stop", "*", {**bare, "timeout": 30, "statusMessage": "x"}) == (
        "sha256:abd1c6120a9db979ff41ef4144263cdb09309592f5bc9ebc6af6b6afdf3a4967"
    )
    assert trust.trust_hash("SubagentStart", "", bare) == (
        "sha256:724e74d115fb45a5f22e9c312c61d92b0ab5f5c596dd0167842b6822f0c404b0"
    )


def test_a_hook_that_has_moved_is_trusted_in_its_new_place_alone(home: HookHome) -> None:
    home.put(home.hooks_json, json.dumps({"hooks": {"Stop": [THEIRS]}}))
    home.install("codex")
    assert f"{home.hooks_json}:stop:1:0" in hooks_in(home.config_toml)["state"]
    values = json.loads(home.hooks_json.read_bytes())
    values["hooks"]["Stop"].pop(0)
    home.hooks_json.write_text(json.dumps(values))
    home.install("codex")
    state = hooks_in(home.config_toml)["state"]
    assert f"{home.hooks_json}:stop:0:0" in state
    assert f"{home.hooks_json}:stop:1:0" not in state
    assert len(state) == len(EVENTS["codex"])


def test_a_home_of_codex_that_is_named_is_called_as_codex_calls_it(
    home: HookHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home.home / "elsewhere").mkdir()
    link = home.home / "link"
    link.symlink_to(home.home / "elsewhere")
    monkeypatch.setenv("CODEX_HOME", str(link))
    home.install("codex")
    state = hooks_in(home.home / "elsewhere" / "config.toml")["state"]
    assert f"{(home.home / 'elsewhere' / 'hooks.json').resolve()}:stop:0:0" in state


def test_what_the_user_said_of_a_hook_of_ours_stays_until_it_goes(home: HookHome) -> None:
    home.install("codex")
    key = f'[hooks.state."{home.hooks_json}:stop:0:0"]\n'
    path = home.config_toml
    path.write_text(path.read_text().replace(key, key + "enabled = true\n"))
    home.install("codex")
    assert hooks_in(path)["state"][f"{home.hooks_json}:stop:0:0"]["enabled"] is True
    home.take_out("codex")
    assert path.read_text().split() == [*key.split(), "enabled", "=", "true"]
