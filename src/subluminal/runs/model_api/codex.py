"""Codex is told where its model is by `-c KEY=VALUE`, behind those of its user: the last one holds.

Which provider it asks is said as well, so that no file which is not read here leads it elsewhere.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import MutableMapping
from typing import Any

from subluminal.contracts.errors import UsageError
from subluminal.contracts.jsontext import to_json
from subluminal.runs.model_api.routes import OPENAI_URL, with_version

_OWN_PROVIDER = "openai"
_PROVIDER = "model_provider"
_BASE_URL = "openai_base_url"
_COMPRESSION = "features.enable_request_compression"
_CONFIG = ("-c", "--config")
_PROFILE = ("-p", "--profile")
_WITHOUT_FILES = "--ignore-user-config"
# They choose a provider over everything that is configured.
_LOCAL = ("--oss", "--local-provider")


class Codex:
    def __init__(self, command: list[str], environ: MutableMapping[str, str], upstream: str | None) -> None:
        known = _configured(command[1:], environ)
        provider = known.get(_PROVIDER)
        self._provider = provider if isinstance(provider, str) else _OWN_PROVIDER
        self._key = _BASE_URL
        found: Any = known.get(_BASE_URL)
        if self._provider != _OWN_PROVIDER:
            self._key = f"model_providers.{self._provider}.base_url"
            found = _table(_table(known, "model_providers"), self._provider).get("base_url")
            if not isinstance(found, str) and upstream is None:
                raise UsageError(
                    f"Codex is set to the model provider {self._provider}, and its base_url is not to be found",
                    hint="Say it with --model-api-upstream URL.",
                )
        self.upstream: str = upstream or (found if isinstance(found, str) else OPENAI_URL)

    def told(self, command: list[str], environ: MutableMapping[str, str], base: str) -> list[str]:
        address = with_version(base, self.upstream)
        ours = {_PROVIDER: to_json(self._provider), self._key: to_json(address), _COMPRESSION: "false"}
        words = [word for key, value in ours.items() for word in ("-c", f"{key}={value}")]
        theirs = _words(command[1:], _CONFIG)
        place = 1 + (theirs[-1][0] + theirs[-1][1] if theirs else 0)
        return [*command[:place], *words, *command[place:]]

    def close(self) -> None: ...


def _configured(words: list[str], environ: MutableMapping[str, str]) -> dict[str, Any]:
    """What Codex would go by: its files, its profile, and its command line over them."""
    for option in _LOCAL:
        if option in _options(words) or any(word.startswith(option + "=") for word in _options(words)):
            raise UsageError(
                f"--model-api stands before the provider that is configured, and {option} makes Codex ask another",
                hint="Leave out one of them, or configure that provider in Codex's config.toml.",
            )
    files = _WITHOUT_FILES not in _options(words)
    known = _file(environ, "config.toml") if files else {}
    said = _overrides(words)
    chosen: list[Any] = [value for _, _, value in _words(words, _PROFILE)][-1:] or [
        dict(said).get("profile", known.get("profile"))
    ]
    if isinstance(chosen[0], str):
        if files and os.sep not in chosen[0]:
            _merge(known, _file(environ, f"{chosen[0]}.config.toml"))
        _merge(known, _table(_table(known, "profiles"), chosen[0]))  # of earlier versions
    for key, value in said:
        _set(known, key.split("."), value)
    return known


def _options(words: list[str]) -> list[str]:
    """Behind `--` there are none."""
    return words[: words.index("--")] if "--" in words else words


def _words(words: list[str], options: tuple[str, ...]) -> list[tuple[int, int, str]]:
    """Where an option stands, how many words it has, and its value."""
    found = []
    end = len(_options(words))
    at = 0
    while at < end:
        word = words[at]
        if word in options and at + 1 < end:
            found.append((at, 2, words[at + 1]))
            at += 2
            continue
        name, separator, value = word.partition("=")
        if separator and name in options:
            found.append((at, 1, value))
        elif word[:2] in options and len(word) > 2 and word[1] != "-":
            found.append((at, 1, word[2:].removeprefix("=")))
        at += 1
    return found


def _overrides(words: list[str]) -> list[tuple[str, Any]]:
    found = []
    for _, _, text in _words(words, _CONFIG):
        key, _, value = text.partition("=")
        try:
            found.append((key.strip(), tomllib.loads(f"v = {value}")["v"]))
        except (ValueError, RecursionError):  # Codex takes it for a text then
            found.append((key.strip(), value.strip().strip("\"'")))
    return found


def _file(environ: MutableMapping[str, str], name: str) -> dict[str, Any]:
    """What cannot be read, Codex says itself."""
    home = environ.get("CODEX_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".codex")
    try:
        with open(os.path.join(home, name), "rb") as file:
            return tomllib.load(file)
    except (OSError, ValueError, RecursionError):
        return {}


def _table(known: dict[str, Any], name: str) -> dict[str, Any]:
    own = known.get(name)
    return own if isinstance(own, dict) else {}


def _merge(known: dict[str, Any], over: dict[str, Any]) -> None:
    for name, value in over.items():
        if isinstance(value, dict) and isinstance(known.get(name), dict):
            _merge(known[name], value)
        else:
            known[name] = value


def _set(known: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        if not isinstance(known.get(name), dict):
            known[name] = {}
        known = known[name]
    known[path[-1]] = value
