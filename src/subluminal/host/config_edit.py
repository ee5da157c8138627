"""Changes to `config.toml` by commands: comments and order are kept, and the file is replaced in one step.

Imports tomlkit, so nothing on the shim's path may import this.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from subluminal.contracts.errors import ConfigError
from subluminal.host.config import load_config
from subluminal.host.files import replace_file
from subluminal.host.home import config_file, ensure_private_dir, sub_home
from subluminal.host.secrets.bindings import Binding


def with_binding(text: str, server: str, binding: Binding) -> str:
    """The document with this binding in `[servers.<server>]`, in place of another for the same variable."""
    document = _parse(text)
    entry = _server_table(document, server)
    table = tomlkit.inline_table()
    table.update({"inject_as": binding.inject_as, "secret_ref": binding.secret_ref, "source": binding.source})
    if binding.prefix:
        table["prefix"] = binding.prefix
    bindings = entry.get("secret_bindings")
    if bindings is None:
        bindings = tomlkit.array().multiline(True)
        entry["secret_bindings"] = bindings
    for existing in bindings:
        if existing.get("inject_as") == binding.inject_as:
            existing.update(table)
            return tomlkit.dumps(document)
    bindings.append(table if isinstance(bindings, tomlkit.items.Array) else _as_table(table))
    return tomlkit.dumps(document)


def with_confirmed(text: str, server: str, records: list[dict[str, Any]]) -> str:
    """The document with these command lines among those confirmed in `[servers.<server>]`."""
    if not records:
        return text
    document = _parse(text)
    entry = _server_table(document, server)
    confirmed = entry.get("confirmed")
    if confirmed is None:
        confirmed = entry["confirmed"] = tomlkit.array().multiline(True)
    # Other variables for a command line replace those that were confirmed with it before.
    lines = [_line(record) for record in records]
    for known in [known for known in confirmed if _line(known) in lines]:
        confirmed.remove(known)
    for record in records:
        table = tomlkit.inline_table()
        table.update(record)
        confirmed.append(table if isinstance(confirmed, tomlkit.items.Array) else _as_table(table))
    return tomlkit.dumps(document)


def _line(record: Any) -> tuple[Any, Any, Any]:
    return record.get("command"), record.get("directory"), record.get("url")


def _server_table(document: tomlkit.TOMLDocument, server: str) -> Any:
    servers = document.setdefault("servers", tomlkit.table(is_super_table=True))
    return servers.setdefault(server, tomlkit.table())


def read_config_text(environ: Mapping[str, str]) -> str:
    # A file that does not load is not edited: the change could mean something else than it seems.
    load_config(environ)
    try:
        with open(config_file(sub_home(environ)), encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def write_config_text(environ: Mapping[str, str], text: str) -> str:
    """Replace the file (or the file a link points to); returns its path."""
    home = sub_home(environ)
    path = os.path.realpath(config_file(home))
    try:
        ensure_private_dir(home, home)
        replace_file(path, text.encode(), durable=True)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
    return path


def _parse(text: str) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:
        raise ConfigError(f"config.toml is not valid TOML: {error}") from None


def _as_table(inline: tomlkit.items.InlineTable) -> tomlkit.items.Table:
    table = tomlkit.table()
    table.update(inline)
    return table
