"""Names of tools as clients write them, and the arguments that rules see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from subluminal.adapters.tools.names import Tools, with_paths
from subluminal.host.run.tool_notes import RunToolNotes


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "sub"))


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("Bash", ("builtin", "Bash")),
        ("mcp__notes__add", ("notes", "add")),
        ("mcp__notes__add__now", ("notes", "add__now")),
        ("mcp__my_server__add", ("my server", "add")),
        ("mcp__a__b__c", ("a__b", "c")),
        ("mcp__listed__here__tool", ("listed__here", "tool")),
        ("mcp__", ("builtin", "mcp__")),
        ("mcp__notes", ("builtin", "mcp__notes")),
        ("mcp__notes__", ("builtin", "mcp__notes__")),
        ("mcp____x", ("builtin", "mcp____x")),
    ],
)
def test_a_name_is_cut_where_the_configuration_or_a_shim_knows_it(name: str, called: tuple[str, str]) -> None:
    RunToolNotes("run-1", "listed__here").add({"tool": frozenset()})
    assert Tools("run-1", ["my server", "a__b"]).called(name) == called


def test_what_a_server_said_of_its_tools_to_a_shim_holds_here_too() -> None:
    tools = Tools("run-1")
    assert tools.risk_classes("notes", "drop") is None, "nobody has listed it"
    RunToolNotes("run-1", "notes").add({"drop": frozenset(("write_like",))})
    assert tools.risk_classes("notes", "drop") == {"write_like"}
    assert tools.risk_classes("builtin", "Bash") == frozenset()


PATCH = "*** Begin Patch\n*** Delete File: a\n*** End Patch"


@pytest.mark.parametrize(
    ("given", "cwd", "paths"),
    [
        ({"command": PATCH}, "/work", ["/work/a"]),
        ({"command": PATCH, "workdir": "below"}, "/work", ["/work/below/a"]),
        ({"command": PATCH, "workdir": "/other"}, "/work", ["/other/a"]),
        ({"command": PATCH}, "", ["/a"]),
        ({"command": PATCH}, "relative", ["relative/a", "(unread)"]),
        ({"command": 7}, "/work", ["(unread)"]),
        ({}, "/work", ["(unread)"]),
        ({"input": PATCH.replace(": a", ": /etc/x")}, "/w", ["/etc/x"]),
    ],
)
def test_the_files_of_a_patch_are_added_and_nothing_else_changes(
    given: dict[str, object], cwd: str, paths: list[str]
) -> None:
    text = json.dumps(given).encode()
    assert json.loads(with_paths("codex", "apply_patch", text, cwd)) == {**given, "paths": paths}
    assert with_paths("claude", "apply_patch", text, cwd) == text, "only Codex has such a tool"


def test_arguments_without_a_patch_keep_their_bytes() -> None:
    for text in (b'{"command": "dispatch \\u0061"}', b"{}", b"[]", b"not JSON at all: patch", b'{"command":["a",1]}'):
        assert with_paths("codex", "Bash", text, "/w") == text
