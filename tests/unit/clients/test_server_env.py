"""Moving one value out of a client's file: found, replaced in place, nothing else touched."""

from __future__ import annotations

import json

import pytest

from harness.client_files import ClientHome
from subluminal.clients import files
from subluminal.clients.server_env import find_server_env, set_server_env
from subluminal.contracts.errors import ClientConfigError

JSONC = '// mine\r\n{"mcpServers": {"a": {"env": {"T": "old", /* c */ "U": "old"}}, "b": {"env": {"T": "old"}}}}'
TOMLS = [
    '[mcp_servers.a]\ncommand = "x"\n[mcp_servers.a.env]\nT = "old" # c\nU = "old"\n',
    '[mcp_servers.a]\ncommand = "x"\nenv = { T = "old", U = "old" }\n',
    'mcp_servers.a.command = "x"\nmcp_servers.a.env.T = "old"\nmcp_servers.a.env."U" = \'old\'\n',
]


def test_only_the_value_changes(home: ClientHome) -> None:
    path = home.write("gemini", JSONC)
    assert set_server_env("gemini", "a", "T", 'new "é"') == [str(path)]
    assert path.read_bytes().decode() == JSONC.replace('"T": "old", /*', '"T": "new \\"é\\"", /*')
    assert [found.value for found in find_server_env("gemini", "a", "T")] == ['new "é"']


@pytest.mark.parametrize("text", TOMLS)
def test_only_the_value_changes_in_toml(home: ClientHome, text: str) -> None:
    path = home.write("codex", text)
    set_server_env("codex", "a", "T", "new")
    assert path.read_text() == text.replace('T = "old"', 'T = "new"')


def test_it_works_on_a_routed_entry_and_survives_the_restore(home: ClientHome) -> None:
    path = home.write("claude", '{"mcpServers": {"a": {"command": "x", "env": {"T": "old"}}}}')
    home.imported("claude")
    set_server_env("claude", "a", "T", "new")
    home.restored("claude")
    assert json.loads(path.read_bytes())["mcpServers"] == {"a": {"command": "x", "env": {"T": "new"}}}


def test_every_scope_is_changed_unless_one_is_named_or_a_value_expected(home: ClientHome) -> None:
    entry = {"a": {"command": "x", "env": {"T": "old"}}}
    other = {"a": {"command": "x", "env": {"T": "other"}}}
    path = home.write("claude", json.dumps({"mcpServers": entry, "projects": {"/p": {"mcpServers": other}}}))
    project = home.write("claude", json.dumps({"mcpServers": entry}), "project")
    assert [found.scope for found in find_server_env("claude", "a", "T")] == ["user", "local", "project"]
    set_server_env("claude", "a", "T", "one", scope="project")
    assert '"one"' in project.read_text() and '"one"' not in path.read_text()
    set_server_env("claude", "a", "T", "two", expected="other")
    assert [found.value for found in find_server_env("claude", "a", "T")] == ["old", "two", "one"]


def test_a_variable_that_is_not_set_is_an_error_with_a_way_out(home: ClientHome) -> None:
    home.write("claude", '{"mcpServers": {"a": {"command": "x"}}}')
    with pytest.raises(ClientConfigError) as error:
        set_server_env("claude", "a", "T", "new")
    assert "sets no T" in str(error.value) and error.value.hint


def test_a_file_that_changes_meanwhile_is_not_overwritten(home: ClientHome, monkeypatch: pytest.MonkeyPatch) -> None:
    path = home.write("claude", '{"mcpServers": {"a": {"env": {"T": "old"}}}}')
    check = files.check_writable

    def meanwhile(snapshot: files.Snapshot, *, foreign: bool = False) -> None:
        check(snapshot, foreign=foreign)
        path.write_text("{}")

    monkeypatch.setattr(files, "check_writable", meanwhile)
    with pytest.raises(files.ChangedMeanwhile):
        set_server_env("claude", "a", "T", "new")
    assert path.read_text() == "{}"


def test_the_value_is_not_in_the_representation(home: ClientHome) -> None:
    home.write("claude", '{"mcpServers": {"a": {"env": {"T": "s3cret-value"}}}}')
    assert "s3cret-value" not in repr(find_server_env("claude", "a", "T"))
