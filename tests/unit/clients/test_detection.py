"""Where each client's files are looked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.client_files import ClientHome
from subluminal.clients.base import Place
from subluminal.clients.registry import CLIENTS, client_named
from subluminal.clients.survey import survey
from subluminal.contracts.errors import UsageError
from subluminal.contracts.vocabulary import CLIENTS as CLIENT_WORDS


def paths(client: str, place: Place) -> list[str]:
    return [file.path for file in CLIENTS[client].find(place)]


def test_every_client_uses_a_word_of_the_contract() -> None:
    assert {client.word for client in CLIENTS.values()} <= set(CLIENT_WORDS)


def test_an_unknown_client_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError) as error:
        client_named("emacs")
    assert "claude" in (error.value.hint or "")


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ("claude", "/h/.claude.json"),
        ("claude-desktop", "/h/.config/Claude/claude_desktop_config.json"),
        ("codex", "/h/.codex/config.toml"),
        ("gemini", "/h/.gemini/settings.json"),
        ("cursor", "/h/.cursor/mcp.json"),
        ("vscode", "/h/.config/Code/User/mcp.json"),
        ("windsurf", "/h/.codeium/windsurf/mcp_config.json"),
        ("opencode", "/h/.config/opencode/opencode.json"),
        ("zed", "/h/.config/zed/settings.json"),
    ],
)
def test_the_users_file(client: str, expected: str) -> None:
    assert paths(client, Place("/w", {"HOME": "/h"}, "linux"))[0] == expected


@pytest.mark.parametrize(
    ("client", "variable", "expected"),
    [
        ("claude", "CLAUDE_CONFIG_DIR", "/v/.claude.json"),
        ("codex", "CODEX_HOME", "/v/config.toml"),
        ("zed", "XDG_CONFIG_HOME", "/v/zed/settings.json"),
    ],
)
def test_a_variable_moves_the_users_file(client: str, variable: str, expected: str) -> None:
    found = paths(client, Place("/w", {"HOME": "/h", variable: "/v"}, "linux"))
    assert found[0] == expected
    assert not [path for path in found if path.startswith("/h")]


def test_on_a_mac_desktop_programs_keep_their_files_elsewhere() -> None:
    place = Place("/w", {"HOME": "/h"}, "darwin")
    assert paths("claude-desktop", place) == ["/h/Library/Application Support/Claude/claude_desktop_config.json"]


@pytest.mark.parametrize(
    ("client", "name"),
    [
        ("claude", ".mcp.json"),
        ("codex", ".codex/config.toml"),
        ("gemini", ".gemini/settings.json"),
        ("cursor", ".cursor/mcp.json"),
        ("vscode", ".vscode/mcp.json"),
        ("opencode", "opencode.json"),
        ("zed", ".zed/settings.json"),
    ],
)
def test_a_projects_file_is_found_from_below_up_to_the_repository_and_no_further(
    home: ClientHome, client: str, name: str
) -> None:
    below = home.project / "deep" / "er"
    below.mkdir(parents=True)
    found = paths(client, Place(str(below)))
    assert str(below / name) in found and str(home.project / name) in found
    assert str(home.project.parent / name) not in found


def test_outside_of_a_repository_the_search_ends_below_the_home_directory(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    directories = Place(str(below), {"HOME": str(tmp_path)}).project_directories()
    assert directories == [str(below), str(tmp_path / "a")]


def test_standing_in_the_home_directory_no_file_is_found_twice(home: ClientHome) -> None:
    found = paths("codex", Place(str(home.home)))
    assert found == [str(home.home / ".codex" / "config.toml")]


def test_managed_files_are_changed_only_when_asked_for() -> None:
    managed = [file for file in CLIENTS["claude"].find(Place("/w", {"HOME": "/h"}, "linux")) if file.scope == "managed"]
    assert [(file.path, file.default) for file in managed] == [("/etc/claude-code/managed-mcp.json", False)]


def test_the_survey_says_what_is_routed_what_is_not_and_what_cannot_be_read(home: ClientHome) -> None:
    program = home.home / "bin" / "sub"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    home.write("claude", '{"mcpServers": {"a": {"command": "x"}, "h": {"type": "http", "url": "u"}, "odd": 1}}')
    home.write("cursor", '{"mcpServers": {"b": {"command": "y", "env": {"API_TOKEN": "abcdefgh"}}}}')
    home.write("codex", "broken")
    home.imported("cursor", sub=str(program))

    found = {file.client: file for file in survey(os.getcwd(), os.environ)}

    a, h, odd = found["claude"].entries
    assert (a.transport, a.wrapped) == ("stdio", False)
    assert (h.transport, h.wrapped) == ("http", False)
    assert (odd.transport, odd.problem) == ("unknown", "is not a table of settings")
    (b,) = found["cursor"].entries
    assert (b.wrapped, b.sub, b.sub_exists, b.server_name) == (True, str(program), True, "b")
    assert [literal.variable for literal in b.literals] == ["API_TOKEN"]
    assert found["codex"].line == 1 and found["codex"].entries == []
    program.unlink()
    (b,) = next(file for file in survey() if file.client == "cursor").entries
    assert b.sub_exists is False
