"""Claude Code is told where its model is by its environment, and by `--settings` behind its name.

An `env` in its settings stands over its environment, that of a repository as well; `--settings` stands over those. What
the user says with that option is kept beside what we say: of several, Claude Code takes the last.
"""

from __future__ import annotations

import json
import os
from collections.abc import MutableMapping
from contextlib import suppress
from tempfile import mkstemp
from typing import Any

from subluminal.contracts.errors import UsageError
from subluminal.contracts.jsontext import to_json
from subluminal.runs.model_api.routes import ANTHROPIC_VARIABLE, Anthropic

# With one of these Claude Code speaks another API, wherever the base URL leads.
OTHER_APIS = {
    "CLAUDE_CODE_USE_BEDROCK": "Bedrock",
    "CLAUDE_CODE_USE_VERTEX": "Vertex",
    "CLAUDE_CODE_USE_FOUNDRY": "Foundry",
}
_OFF = ("", "0", "false", "no", "off")
_OPTION = "--settings"


class Claude(Anthropic):
    def __init__(self, command: list[str], environ: MutableMapping[str, str], upstream: str | None) -> None:
        self._own, self._in_file = _said(command)
        self._path: str | None = None
        known = {**environ, **_env(_file(_user_settings(environ))), **_env(self._own)}
        for variable, name in OTHER_APIS.items():
            if str(known.get(variable, "")).strip().lower() not in _OFF:
                raise UsageError(
                    f"--model-api stands before the Messages API, and {variable} makes Claude Code speak to {name}",
                    hint=f"Unset {variable}, or leave out --model-api: hooks and shims judge its calls all the same.",
                )
        super().__init__(known, upstream)

    def told(self, command: list[str], environ: MutableMapping[str, str], base: str) -> list[str]:
        super().told(command, environ, base)
        env = {**_env(self._own), ANTHROPIC_VARIABLE: base, **dict.fromkeys(OTHER_APIS, "0")}
        words = [_OPTION, self._given(to_json({**self._own, "env": env}))]
        places = _places(command)
        if not places:
            return [command[0], *words, *command[1:]]
        at, count = places[-1]
        return [*command[:at], *words, *command[at + count :]]

    def _given(self, settings: str) -> str:
        """What was in a file is not shown on a command line: it may hold secrets."""
        if not self._in_file:
            return settings
        number, self._path = mkstemp(".json", "sub-settings-")  # this user's alone
        with open(number, "w", encoding="utf-8") as file:
            file.write(settings)
        return self._path

    def close(self) -> None:
        if self._path is not None:
            with suppress(OSError):
                os.unlink(self._path)


def _places(command: list[str]) -> list[tuple[int, int]]:
    """Where the option stands, and how many words it has. Behind `--` there is none."""
    end = command.index("--") if "--" in command else len(command)
    found = []
    for at, word in enumerate(command[:end]):
        if word == _OPTION and at + 1 < end:
            found.append((at, 2))
        elif word.startswith(_OPTION + "="):
            found.append((at, 1))
    return found


def _said(command: list[str]) -> tuple[dict[str, Any], bool]:
    """The settings that the user gives on the command line: as JSON, or (True) in a file."""
    places = _places(command)
    if not places:
        return {}, False
    at, count = places[-1]
    value = command[at + 1] if count == 2 else command[at].partition("=")[2]
    in_file = not value.lstrip().startswith("{")
    found = _file(value) if in_file else _read(value)
    if found is None:
        raise UsageError(
            "--model-api adds to Claude Code's --settings, and those given cannot be read",
            hint="They are one JSON object, or the name of a file with one.",
        )
    return found, in_file


def _user_settings(environ: MutableMapping[str, str]) -> str:
    home = environ.get("HOME") or os.path.expanduser("~")
    return os.path.join(environ.get("CLAUDE_CONFIG_DIR") or os.path.join(home, ".claude"), "settings.json")


def _file(path: str) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8") as file:
            return _read(file.read())
    except (OSError, ValueError):
        return None


def _read(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _env(settings: dict[str, Any] | None) -> dict[str, str]:
    env = (settings or {}).get("env")
    return {name: str(value) for name, value in env.items()} if isinstance(env, dict) else {}
