"""Is Subluminal itself in order: the program, its home directory, its settings, secrets and run state?"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import stat
import sys

from subluminal import __version__
from subluminal.cli.doctor.report import ERROR, NOTE, WARNING, Area, count, edit_command, quoted
from subluminal.contracts.errors import ConfigError
from subluminal.contracts.vocabulary import INTERFACE_VERSION
from subluminal.host import home
from subluminal.host.config import Config, load_config
from subluminal.host.executable import find_sub, may_vanish
from subluminal.host.run.registration import stale_registrations
from subluminal.host.run.state import list_runs
from subluminal.host.secrets.bindings import Binding, env_names, resolve

# Import name -> distribution.
_NEEDED = {
    "msgspec": "msgspec",
    "re2": "google-re2",
    "yaml": "PyYAML",
    "ruamel.yaml": "ruamel.yaml",
    "aiohttp": "aiohttp",
    "tomlkit": "tomlkit",
}
_OLDEST_PYTHON = (3, 11)
# Below this the ledger will soon be unable to grow.
_LOW_DISK_BYTES = 200 * 1024 * 1024


def check_installation() -> Area:
    area = Area("installation")
    python = platform.python_version()
    area.facts = {"package": __version__, "interface_pack": INTERFACE_VERSION, "python": python, "sub": None}
    if sys.version_info < _OLDEST_PYTHON:
        area.add(ERROR, "old-python", f"Python {python} is too old; 3.11 is needed", "pipx install subluminal")
    for module, name in _NEEDED.items():
        if not _has(module):
            area.add(
                ERROR,
                "missing-dependency",
                f"{name} is not installed",
                quoted(sys.executable, "-m", "pip", "install", name),
            )
    try:
        sub = find_sub()
    except ConfigError as error:
        area.add(ERROR, "no-sub", str(error), "pipx install subluminal")
        return area
    area.facts["sub"] = sub
    area.summary = f"subluminal {__version__}, Python {python}, {sub}"
    if may_vanish(sub):
        message = f"{sub} lies in an environment that is cleared away from time to time"
        area.add(WARNING, "passing-sub", message, "pipx install subluminal")
    _check_path(area, sub)
    return area


def _check_path(area: Area, sub: str) -> None:
    on_path = shutil.which("sub")
    if on_path is None:
        area.add(NOTE, "not-on-path", "`sub` is not on PATH", f"export PATH={quoted(os.path.dirname(sub))}:$PATH")
    elif os.path.realpath(on_path) != os.path.realpath(sub):
        message = f"`sub` on PATH is another program: {on_path}"
        area.add(WARNING, "other-sub", message, f"export PATH={quoted(os.path.dirname(sub))}:$PATH")


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def check_home() -> Area:
    directory = home.sub_home()
    area = Area("home", facts={"path": directory, "exists": os.path.isdir(directory)})
    area.summary = directory if os.path.isdir(directory) else f"{directory} (made on first use)"
    if not os.path.isdir(directory):
        _check_future_home(area, directory)
        return area
    if not os.access(directory, os.W_OK | os.X_OK):
        message = f"{directory} cannot be written: nothing can be recorded"
        area.add(ERROR, "home-read-only", message, quoted("chmod", "u+rwx", directory))
    for path, wanted in home.private_places():
        _check_private(area, path, wanted)
    free = shutil.disk_usage(directory).free
    area.facts["free_bytes"] = free
    if free < _LOW_DISK_BYTES:
        message = f"only {free // 2**20} MiB are free where the record is kept"
        area.add(WARNING, "disk-low", message, "sub prune --older-than 30d")
    return area


def _check_future_home(area: Area, home: str) -> None:
    if os.path.lexists(home):
        area.add(ERROR, "home-no-directory", f"{home} is not a directory", quoted("mv", home, home + ".old"))
        return
    above = os.path.dirname(os.path.abspath(home))
    while not os.path.exists(above):
        above = os.path.dirname(above)
    if not os.access(above, os.W_OK | os.X_OK):
        area.add(
            ERROR,
            "home-unmakeable",
            f"{home} cannot be made: {above} is not writable",
            quoted("export", f"SUB_HOME={os.path.expanduser('~/.subluminal')}"),
        )


def _check_private(area: Area, path: str, wanted: int) -> None:
    try:
        status = os.stat(path)
    except OSError:
        return
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid != os.geteuid():
        message = f"{path} belongs to another user (uid {status.st_uid})"
        area.add(ERROR, "foreign-owner", message, quoted("sudo", "chown", str(os.geteuid()), path))
    # Others may read a policy; nobody else may change anything, or look at the rest.
    elif mode & (0o022 if path in (home.user_policy(), home.config_file()) else 0o077):
        level = ERROR if mode & 0o022 else WARNING
        mend = quoted("chmod", f"{wanted:o}", path)
        area.add(level, "open-to-others", f"{path} is open to others ({mode:04o})", mend)


def check_config() -> tuple[Area, Config | None]:
    path = home.config_file()
    exists = os.path.lexists(path)
    area = Area("settings", path if exists else "defaults (no config.toml)", facts={"path": path, "exists": exists})
    try:
        config = load_config(os.environ)
    except ConfigError as error:
        message = f"{error} {error.hint or ''}".strip()
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
        area.add(ERROR, "bindings-invalid", f"{error} {error.hint or ''}".strip(), "unset SUB_SECRET_BINDINGS")
        return area
    missing = [pair for pair in bound if not _check_binding(area, *pair)]
    area.facts = {"bindings": len(bound), "resolved": len(bound) - len(missing)}
    area.summary = f"{count(len(bound), 'binding')} resolved" if bound else "no bindings"
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


def check_runs() -> Area:
    runs = list_runs()
    stale = stale_registrations()
    stopped = [run for run in runs if run.terminated is not None]
    area = Area("runs", facts={"with_state": len(runs), "stopped": len(stopped), "stale_registrations": stale})
    area.summary = f"{count(len(runs), 'run')} with state" if runs else "none yet"
    if stopped:
        area.summary += f", {len(stopped)} stopped"
    if stale:
        message = f"{count(len(stale), 'registration')} of a `sub run` that was killed"
        area.add(WARNING, "stale-registration", message, quoted("rm", *stale))
    return area


def dependency_versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in _NEEDED.values():
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found
