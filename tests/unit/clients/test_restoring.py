"""Restore after real life happened: several imports, edits by client and user, lost backups."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness.client_files import SUB, ClientHome
from subluminal.clients import backups
from subluminal.clients.base import Place
from subluminal.clients.importing import Choice
from subluminal.clients.registry import CLIENTS
from subluminal.clients.restoring import files_to_restore

ONE = b'{\n  "mcpServers": {\n    "a": {\n      "command": "x"\n    }\n  }\n}\n'


def servers(path: Path) -> Any:
    return json.loads(path.read_bytes())["mcpServers"]


def add(path: Path, name: str, entry: dict[str, Any]) -> None:
    value = json.loads(path.read_bytes())
    value["mcpServers"][name] = entry
    path.write_text(json.dumps(value, indent=2) + "\n")


def change(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


@pytest.mark.contract("IMP-001")
def test_several_imports_are_undone_as_one(home: ClientHome) -> None:
    path = home.write("claude", ONE)
    home.imported("claude", sub="/old/bin/sub")
    home.imported("claude", sub="/new/bin/sub")
    assert servers(path)["a"]["command"] == "/new/bin/sub"
    assert len(backups.records()) == 2
    assert home.restored("claude").exact is True
    assert path.read_bytes() == ONE


def test_an_import_after_the_client_added_a_server_is_undone_completely(home: ClientHome) -> None:
    path = home.write("claude", ONE)
    home.imported("claude")
    add(path, "b", {"command": "y", "args": ["1"]})
    second = home.imported("claude")
    assert {server.name: server.status for server in second.servers} == {"a": "already", "b": "wrapped"}
    report = home.restored("claude")
    assert report.exact is False
    assert {server.name: server.status for server in report.servers} == {"a": "restored", "b": "restored"}
    assert servers(path) == {"a": {"command": "x"}, "b": {"command": "y", "args": ["1"]}}


def test_what_the_user_changed_in_a_routed_entry_is_kept(home: ClientHome) -> None:
    path = home.write("claude", ONE)
    home.imported("claude")
    change(path, '"--", "x"]', '"--", "x2", "--verbose"], "env": {"K": "v"}')
    home.restored("claude")
    assert servers(path) == {"a": {"command": "x2", "args": ["--verbose"], "env": {"K": "v"}}}


def test_an_entry_the_user_took_back_by_hand_or_removed_is_left(home: ClientHome) -> None:
    path = home.write(
        "claude", b'{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}, "c": {"command": "z"}}}'
    )
    home.imported("claude")
    value = json.loads(path.read_bytes())
    value["mcpServers"]["a"] = {"command": "mine"}
    del value["mcpServers"]["b"]
    path.write_text(json.dumps(value))
    home.restored("claude")
    assert servers(path) == {"a": {"command": "mine"}, "c": {"command": "z"}}


def test_a_renamed_entry_is_still_recognised_and_its_rules_follow_the_name(home: ClientHome) -> None:
    path = home.write("claude", ONE)
    home.imported("claude")
    change(path, '"a": {', '"renamed": {')
    (server,) = home.imported("claude").servers
    assert server.status == "updated"
    assert servers(path)["renamed"]["args"][1:3] == ["--server-name", "renamed"]
    home.restored("claude")
    assert servers(path)["renamed"]["command"] == "x"


def test_an_entry_routed_by_hand_comes_back_as_it_was_and_a_second_restore_undoes_it(home: ClientHome) -> None:
    original = b'{"mcpServers": {"mine": {"command": "sub", "args": ["shim", "--", "m"]}, "n": {"command": "y"}}}'
    path = home.write("claude", original)
    home.imported("claude")
    report = home.restored("claude")
    assert path.read_bytes() == original and report.exact is True
    assert {server.name: server.status for server in report.servers} == {"mine": "kept", "n": "restored"}
    home.restored("claude")
    assert servers(path)["mine"] == {"command": "m", "args": []}


def test_a_damaged_backup_is_not_trusted(home: ClientHome) -> None:
    path = home.write("claude", ONE)
    home.imported("claude")
    (record,) = backups.records()
    Path(backups.backup_path(record)).write_bytes(b'{"mcpServers": {"evil": {"command": "rm"}}}')
    assert home.restored("claude").exact is False
    assert path.read_bytes() == ONE


def test_records_that_are_no_records_are_passed_over(home: ClientHome) -> None:
    path = home.write("claude", ONE)
    home.imported("claude")
    for name, data in (("0.json", b"\xff"), ("1.json", b"[]"), ("2.json", b'{"id": 5}')):
        (home.sub_home / "backups" / name).write_bytes(data)
    home.restored("claude")
    assert path.read_bytes() == ONE


def test_without_backups_an_added_list_stays_behind_empty(home: ClientHome) -> None:
    path = home.write("claude", ONE)
    home.imported("claude")
    shutil.rmtree(home.sub_home)
    home.restored("claude")
    assert servers(path) == {"a": {"command": "x", "args": []}}


def test_a_second_restore_finds_nothing_to_do(home: ClientHome) -> None:
    path = home.write("claude", ONE)
    home.imported("claude")
    home.restored("claude")
    assert home.restored("claude").status == "unchanged"
    assert path.read_bytes() == ONE


def test_import_works_again_after_a_restore(home: ClientHome) -> None:
    path = home.write("claude", ONE)
    for _ in range(3):
        assert home.imported("claude").status == "changed"
        assert home.restored("claude").exact is True
        assert path.read_bytes() == ONE
    assert len(backups.records()) == 3


def test_one_server_alone_can_be_restored(home: ClientHome) -> None:
    path = home.write("claude", b'{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}')
    home.imported("claude")
    home.choice = Choice(servers=["a"])
    home.restored("claude")
    assert servers(path)["a"] == {"command": "x"}
    assert servers(path)["b"]["command"] == SUB


def test_a_file_that_was_removed_stays_removed_and_its_backup_is_named(home: ClientHome) -> None:
    path = home.write("claude", ONE)
    home.imported("claude")
    path.unlink()
    report = home.restored("claude")
    assert report.status == "gone" and report.backup is not None and Path(report.backup).read_bytes() == ONE
    assert not path.exists()


def test_projects_imported_elsewhere_are_restored_from_anywhere(
    home: ClientHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home.write("claude", ONE, "project")
    home.imported("claude", "project")
    monkeypatch.chdir("/")
    assert str(path) in [file.path for file in files_to_restore(CLIENTS["claude"], Place())]


def test_names_the_codex_user_had_listed_himself_stay_listed(home: ClientHome) -> None:
    original = '[mcp_servers.a]\ncommand = "x"\nenv_vars = ["SUB_HOME", "MINE"]\n'
    path = home.write("codex", original)
    home.imported("codex")
    path.write_text(path.read_text() + "# edited\n")
    home.restored("codex")
    assert path.read_text() == original + "# edited\n"


def test_a_dry_run_shows_the_way_back_and_writes_nothing(home: ClientHome) -> None:
    path = home.write("claude", ONE)
    home.imported("claude")
    imported = path.read_bytes()
    report = home.restored("claude", dry_run=True)
    assert report.status == "restored" and '+      "command": "x"' in (report.diff or "")
    assert path.read_bytes() == imported
    assert backups.records()[0].restored_at is None


def test_a_placeholder_that_no_shim_will_fill_in_is_pointed_out(home: ClientHome) -> None:
    text = '{"mcpServers": {"a": {"command": "x", "env": {"TOKEN": "ghp_0123456789abcdefghij"}}}}'
    path = home.write("claude", text.encode())
    home.imported("claude")
    change(path, "ghp_0123456789abcdefghij", "sub://token")
    report = home.restored("claude")
    assert report.warnings == [
        "TOKEN is sub://token, which only Subluminal can fill in; put the value there (sub secrets get token --reveal)"
    ]
