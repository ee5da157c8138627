"""Can the settings be read, and every secret they bind?"""

from __future__ import annotations

import os

from subluminal.contracts.errors import ConfigError
from subluminal.doctor.findings import ERROR, NOTE, WARNING, Area, edit_command, quoted
from subluminal.host import home
from subluminal.host.config import Config, load_config
from subluminal.host.secrets.bindings import Binding, env_names, resolve
from subluminal.host.secrets.confirmation import confirm_words
from subluminal.reports.printable import count


def check_config() -> tuple[Area, Config | None]:
    path = home.config_file()
    exists = os.path.lexists(path)
    area = Area("settings", path if exists else "defaults (no config.toml)", facts={"path": path, "exists": exists})
    try:
        config = load_config(os.environ)
    except ConfigError as error:
        message = f"{error} {error.hint or ''}".strip()
        area.summary = f"{path} cannot be used"
        area.add(ERROR, "config-invalid", message, edit_command(path))
        return area, None
    for warning in config.warnings:
        # Its modes are looked at with those of the other files.
        if "can be changed by other users" not in warning:
            area.add(WARNING, "config-warning", warning, edit_command(path))
    return area, config


def check_secrets(config: Config | None) -> Area:
    area = Area("secrets", facts={"bindings": 0, "resolved": 0})
    if config is None:
        area.summary = "not checked: the settings cannot be read"
        return area
    try:
        bound = [
            (server, binding) for server in config.server_names() for binding in config.server(server).secret_bindings
        ]
    except ConfigError as error:
        area.summary = "the bindings cannot be read"
        area.add(ERROR, "bindings-invalid", f"{error} {error.hint or ''}".strip(), "unset SUB_SECRET_BINDINGS")
        return area
    missing = [pair for pair in bound if not _check_binding(area, *pair)]
    for server in dict.fromkeys(server for server, _ in bound if not config.server(server).confirmed):
        message = f"{server}: no command line was confirmed for it, so it gets none of its secrets"
        area.add(WARNING, "unconfirmed", message, confirm_words(server))
    area.facts = {"bindings": len(bound), "resolved": len(bound) - len(missing)}
    area.summary = f"{count(len(bound), 'binding')} resolved" if bound else "no bindings"
    if missing:
        area.summary = f"{len(bound) - len(missing)} of {count(len(bound), 'binding')} resolved"
    return area


def _check_binding(area: Area, server: str, binding: Binding) -> bool:
    resolved = resolve(
        [Binding(binding.inject_as, binding.secret_ref, binding.source, redact=binding.redact)], os.environ
    )
    if not resolved.errors:
        return True
    message = f"{server}: {binding.inject_as} from {binding.source} {binding.secret_ref}: {resolved.errors[0]}"
    if binding.source == "env":
        # The client may have an environment that this shell has not.
        level, mend = WARNING, f"export {env_names(binding.secret_ref)[0]}=..."
        message += " (in this shell; what counts is the environment of the client)"
    else:
        level, mend = ERROR, quoted("sub", "secrets", "add", binding.secret_ref, "--source", binding.source)
    area.add(level if binding.required else NOTE, "secret-unresolved", message, mend)
    return False
