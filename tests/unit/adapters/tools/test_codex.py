"""One call has one name and the same arguments at the model API and at a hook."""

from __future__ import annotations

import json
from typing import Any

import pytest

from subluminal.adapters.tools.codex import hook_input, hook_name


@pytest.mark.parametrize(
    ("name", "namespace", "hooked"),
    [
        ("exec_command", "", "Bash"),
        ("shell_command", "", "Bash"),
        ("shell", "", "Bash"),
        ("local_shell_call", "", "Bash"),
        ("shell_call", "", "Bash"),
        ("apply_patch", "", "apply_patch"),
        ("apply_patch_call", "", "apply_patch"),
        ("view_image", "", "view_image"),
        ("spawn_agent", "multi_agent_v1", "spawn_agent"),
        ("add", "mcp__notes", "mcp__notes__add"),
        ("add", "mcp__notes__", "mcp__notes__add"),
        ("exec_command", "mcp__notes", "mcp__notes__exec_command"),
    ],
)
def test_a_tool_has_the_name_that_its_hook_has(name: str, namespace: str, hooked: str) -> None:
    assert hook_name(name, namespace) == hooked


@pytest.mark.parametrize(
    ("name", "given", "seen", "start"),
    [
        ("exec_command", {"cmd": "ls -l", "yield_time_ms": 5}, {"command": "ls -l"}, "/w"),
        ("exec_command", {"cmd": "ls", "workdir": "below"}, {"command": "ls"}, "/w/below"),
        ("exec_command", {"cmd": "ls", "workdir": "/etc"}, {"command": "ls"}, "/etc"),
        ("shell", {"command": ["bash", "-lc", "rm x"]}, {"command": "bash -lc 'rm x'"}, "/w"),
        ("local_shell_call", {"type": "exec", "command": ["ls"]}, {"command": "ls"}, "/w"),
        ("shell_call", {"commands": ["cd x", "rm y"]}, {"command": "cd x\nrm y"}, "/w"),
        ("apply_patch", {"input": "*** Begin Patch"}, {"command": "*** Begin Patch"}, "/w"),
        ("exec_command", {"cmd": 7}, {"cmd": 7}, "/w"),
        ("exec_command", {}, {}, "/w"),
        ("view_image", {"path": "x"}, {"path": "x"}, "/w"),
    ],
)
def test_arguments_are_those_of_the_hook(name: str, given: Any, seen: Any, start: str) -> None:
    arguments, where = hook_input(name, "", json.dumps(given).encode(), "/w")
    assert (json.loads(arguments), where) == (seen, start)


@pytest.mark.parametrize("raw", [b'{"cmd":"ls","cmd":"rm x"}', b'{"cmd":"ls"', b'{"cmd":"\\ud800"}', b"[]", b""])
def test_what_two_parsers_read_differently_stays_as_it_is(raw: bytes) -> None:
    assert hook_input("exec_command", "", raw, "/w") == (raw, "/w")
