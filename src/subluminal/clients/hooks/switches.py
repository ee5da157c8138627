"""What turns hooks off: settings, features, variables and options of the clients. Reads only.

A client that is told not to run hooks says nothing about it, so each switch has a sentence here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import msgspec

from subluminal.clients.base import Place
from subluminal.clients.codex import CODEX
from subluminal.clients.hooks.groups import read_file
from subluminal.clients.hooks.managed import CODEX_REQUIREMENTS, managed_settings
from subluminal.clients.hooks.places import CLAUDE_SETTINGS
from subluminal.contracts.errors import ClientConfigError

_SIMPLE = "CLAUDE_CODE_SIMPLE"
# Options that no file shows; each turns off what the sentence says.
OPTIONS = {
    "claude": "--bare turns off all hooks, --safe-mode and --setting-sources those of the user",
    "codex": "-c features.hooks=false and --disable hooks turn off all hooks that are not pinned",
}
_CLAUDE_OPTIONS = ("--bare", "--safe-mode", "--setting-sources")
_OFF = ("", "0", "false", "no", "off")
# Features are few; a file with more is not looked through.
_MAX_PROFILES = 1_000


class Switch(msgspec.Struct):
    """`path` is where it is set (None: in no file). `spares_managed`: hooks of an administrator run all the same."""

    code: str
    message: str
    path: str | None = None
    spares_managed: bool = True


class ManagedFiles:
    """Where an administrator's files lie; passed in, so that tests can move them."""

    def __init__(self, place: Place, root: str = "") -> None:
        self.settings = root + managed_settings(place)
        self.requirements = root + CODEX_REQUIREMENTS

    def all_settings(self) -> list[str]:
        """The file and those of the directory beside it, which are read behind it."""
        directory = os.path.splitext(self.settings)[0] + ".d"
        try:
            names = sorted(name for name in os.listdir(directory) if name.endswith(".json"))
        except OSError:
            names = []
        return [self.settings, *(os.path.join(directory, name) for name in names)]


def values_of(path: str, parse: Callable[[str], Any]) -> dict[str, Any] | None:
    """A file as values; None if there is none. ClientConfigError: its client cannot read it either."""
    snapshot, text = read_file(path)
    if snapshot is None:
        return None
    try:
        values = parse(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise ClientConfigError(f"{path}: {error}") from None
    return values if isinstance(values, dict) else {}


def claude_switches(place: Place, managed: ManagedFiles) -> Iterator[Switch]:
    if _is_on(place.environ.get(_SIMPLE)):
        yield Switch("hooks-bare", f"{_SIMPLE} is set here, which turns off all hooks", spares_managed=False)
    for file in CLAUDE_SETTINGS.find(place):
        yield from _of_settings(file.path, managed=False)
    for path in managed.all_settings():
        yield from _of_settings(path, managed=True)


def _of_settings(path: str, *, managed: bool) -> Iterator[Switch]:
    try:
        values = values_of(path, json.loads)
    except ClientConfigError as error:
        yield Switch("hooks-unreadable", f"{error}: Claude Code passes over the whole file", path)
        return
    if values is None:
        return
    if values.get("disableAllHooks") is True:
        yield Switch("hooks-disabled", f"{path}: disableAllHooks turns hooks off", path, spares_managed=not managed)
    if managed and values.get("allowManagedHooksOnly") is True:
        yield Switch("hooks-managed-only", f"{path}: allowManagedHooksOnly drops all but managed hooks", path)
    variables = values.get("env")
    if isinstance(variables, dict) and _is_on(variables.get(_SIMPLE)):
        yield Switch("hooks-bare", f"{path}: {_SIMPLE} turns off all hooks", path, spares_managed=False)


def _is_on(value: object) -> bool:
    return value is not None and str(value).strip().lower() not in _OFF


def codex_switches(place: Place, managed: ManagedFiles) -> Iterator[Switch]:
    import tomllib  # Codex alone

    try:
        required = values_of(managed.requirements, tomllib.loads) or {}
    except ClientConfigError as error:
        yield Switch("hooks-unreadable", f"{error}: Codex may not start", managed.requirements)
        required = {}
    is_pinned = _feature(required) is True
    if _feature(required) is False:
        yield Switch("hooks-disabled", f"{managed.requirements}: features.hooks = false", managed.requirements)
    if required.get("allow_managed_hooks_only") is True:
        message = f"{managed.requirements}: allow_managed_hooks_only drops all but managed hooks"
        yield Switch("hooks-managed-only", message, managed.requirements)
    for file in CODEX.find(place):
        try:
            values = values_of(file.path, tomllib.loads)
        except ClientConfigError:
            continue  # told as the fault of the file that it is
        for where in _features_off(values or {}) if not is_pinned else ():
            message = f"{file.path}: {where} = false turns off all hooks"
            yield Switch("hooks-disabled", message, file.path, spares_managed=False)


def _features_off(values: dict[str, Any]) -> Iterator[str]:
    if _feature(values) is False:
        yield "features.hooks"
    profiles = values.get("profiles")
    if not isinstance(profiles, dict):
        return
    for name, profile in list(profiles.items())[:_MAX_PROFILES]:
        if isinstance(profile, dict) and _feature(profile) is False:
            yield f"profiles.{name}.features.hooks"


def _feature(values: dict[str, Any]) -> bool | None:
    """`codex_hooks` is what it was called at first."""
    features = values.get("features")
    if not isinstance(features, dict):
        return None
    found = features.get("hooks", features.get("codex_hooks"))
    return found if isinstance(found, bool) else None


def options_in_use(argv: list[str]) -> str | None:
    """The option with which a client that runs was started without hooks; None: it was not."""
    client = next((name for word in argv[:2] if (name := _client_of(word)) is not None), None)
    if client == "claude":
        for word in argv:
            if word.split("=")[0] in _CLAUDE_OPTIONS:
                return word.split("=")[0]
    if client == "codex":
        return _codex_option(argv)
    return None


def _client_of(word: str) -> str | None:
    name = os.path.basename(word)
    return name if name in ("claude", "codex") else None


def _codex_option(words: list[str]) -> str | None:
    for before, word in pairwise(words):
        if before in ("-c", "--config") and word.replace(" ", "").endswith("features.hooks=false"):
            return f"{before} {word}"
        if before == "--disable" and word in ("hooks", "codex_hooks"):
            return f"{before} {word}"
    return None
