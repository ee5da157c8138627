"""Every setting in force with where it comes from, for people who ask why it is so (`sub config`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from subluminal.host.config import IDLE_EXIT_S, Config, idle_exit_s, load_config, project_path, user_settings
from subluminal.host.home import config_file, sub_home

DEFAULT = "default"
_SHIM = (
    "audit", "health_ms", "max_inspect_bytes", "max_message_bytes", "max_preview_bytes", "refusal_style", "timeout_ms"
)  # fmt: skip
_RECORD = ("max_result_bytes", "max_results_bytes", "results")
_PER_SERVER = ("audit", "refusal_style", "timeout_ms")


class Setting(NamedTuple):
    """`source` is a file, a variable, or "default"."""

    name: str
    value: Any
    source: str


def settings_in_force(environ: Mapping[str, str], cwd: str) -> tuple[list[Setting], list[str]]:
    """The settings, and sentences about what was left out. Raises `ConfigError` as whoever uses them would."""
    config = load_config(environ, cwd)
    path = config_file(sub_home(environ))
    found = [Setting("home", sub_home(environ), "SUB_HOME" if environ.get("SUB_HOME") else DEFAULT)]
    for section, keys in (("shim", _SHIM), ("record", _RECORD)):
        for key in keys:
            source = _source(section, key, config, environ, cwd, path)
            found.append(Setting(f"{section}.{key}", getattr(config, key), source))
    idle = "SUB_LEDGER_IDLE_S" if "SUB_LEDGER_IDLE_S" in environ else path
    seconds = idle_exit_s(environ)
    kept = idle != path or "idle_exit_s" in user_settings(environ).get("ledger", {})
    found.append(Setting("ledger.idle_exit_s", seconds, idle if kept or seconds != IDLE_EXIT_S else DEFAULT))
    for name, regex in config.patterns:
        found.append(Setting(f"redaction.{name}", regex, path if _is_users(name, environ) else _project(cwd, path)))
    for server in config.server_names():
        found += _of_server(config, server, path)
    return found, config.warnings


def _source(section: str, key: str, config: Config, environ: Mapping[str, str], cwd: str, path: str) -> str:
    variable = "SUB_RECORD_RESULTS" if key == "results" else f"SUB_{key.upper()}"
    if variable in environ and (section == "shim" or key == "results"):
        return variable
    own = user_settings(environ).get(section, {})
    without_project = own.get(key, getattr(Config({}), key))
    if getattr(config, key) != without_project:
        return _project(cwd, path)
    return path if key in own else DEFAULT


def _project(cwd: str, path: str) -> str:
    return project_path(cwd, path) or DEFAULT


def _is_users(name: str, environ: Mapping[str, str]) -> bool:
    patterns = user_settings(environ).get("redaction", {}).get("patterns", [])
    return any(pattern.get("name") == name for pattern in patterns)


def _of_server(config: Config, name: str, path: str) -> list[Setting]:
    own = user_settings(os.environ).get("servers", {}).get(name, {})
    server = config.server(name)
    found = [Setting(f"servers.{name}.{key}", getattr(server, key), path) for key in _PER_SERVER if key in own]
    if "record" in own:
        found.append(Setting(f"servers.{name}.record.results", "all" if config.keeps_results(name) else "off", path))
    for binding in server.secret_bindings:
        source = "SUB_SECRET_BINDINGS" if server.bindings_from_environ else path
        what = f"{binding.source} {binding.secret_ref}"
        found.append(Setting(f"servers.{name}.secret {binding.inject_as}", what, source))
    if server.env_allowlist is not None:
        found.append(Setting(f"servers.{name}.env_allowlist", list(server.env_allowlist), path))
    return found
