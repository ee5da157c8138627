"""Codex's tools by the names that its models call them, as its hooks tell them: one call has one name at every door.

    exec_command {"cmd": LINE, ...}                    Bash {"command": LINE}
    shell_command {"command": LINE, ...}               Bash {"command": LINE}
    shell, local_shell {"command": [WORD, ...], ...}   Bash {"command": "WORD ..."}
    the shell of the API {"commands": [LINE, ...]}     Bash {"command": "LINE\nLINE"}
    apply_patch {"input": PATCH}                       apply_patch {"command": PATCH}
    NAME in the namespace mcp__SERVER                  mcp__SERVER__NAME

Arguments that two parsers could read differently stay as they are: the gate says what is wrong with them.
"""

from __future__ import annotations

import shlex
from typing import Any

from subluminal.adapters.tools.names import MCP_PREFIX, PATCH_TOOL
from subluminal.contracts.canonical import read_args
from subluminal.contracts.errors import CanonicalError
from subluminal.contracts.jsontext import to_json

SHELL_TOOL = "Bash"
_BETWEEN = "__"
# Where each has its line, or the words of it.
_LINES = {
    "exec_command": "cmd",
    "shell_command": "command",
    "shell": "command",
    "local_shell": "command",
    "container.exec": "command",
    "local_shell_call": "command",
    "shell_call": "commands",
}
_PATCHES = frozenset((PATCH_TOOL, "apply_patch_call"))


def hook_name(name: str, namespace: str = "") -> str:
    if namespace.startswith(MCP_PREFIX):
        return namespace.removesuffix(_BETWEEN) + _BETWEEN + name
    if name in _PATCHES:
        return PATCH_TOOL
    return SHELL_TOOL if name in _LINES else name


def hook_input(name: str, namespace: str, arguments: bytes, cwd: str) -> tuple[bytes, str]:
    """The arguments as the hook has them, and the directory where the call begins."""
    if namespace.startswith(MCP_PREFIX) or not (name in _LINES or name == PATCH_TOOL):
        return arguments, cwd
    try:
        value = read_args(arguments)[0]
    except CanonicalError:
        return arguments, cwd
    given: dict[str, Any] = value if isinstance(value, dict) else {}
    key = _LINES.get(name, "input")
    said = given.get(key)
    if isinstance(said, list) and said and all(isinstance(word, str) for word in said):
        said = "\n".join(said) if key == "commands" else shlex.join(said)
    if not isinstance(said, str):
        return arguments, cwd
    workdir = given.get("workdir", given.get("working_directory"))
    start = _below(cwd, workdir) if isinstance(workdir, str) else cwd
    return to_json({"command": said}).encode("utf-8", "surrogatepass"), start


def _below(cwd: str, workdir: str) -> str:
    return workdir if workdir.startswith("/") else f"{cwd.rstrip('/')}/{workdir}"
