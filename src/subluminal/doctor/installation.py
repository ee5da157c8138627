"""Is the program itself in order, with all that it needs?"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys

from subluminal import __version__
from subluminal.contracts.errors import ConfigError
from subluminal.contracts.vocabulary import INTERFACE_VERSION
from subluminal.doctor.findings import ERROR, NOTE, WARNING, Area, quoted
from subluminal.host.executable import find_sub, may_vanish

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


def check_installation() -> Area:
    area = Area("installation")
    python = sys.version.partition(" ")[0]
    area.facts = {"package": __version__, "interface_pack": INTERFACE_VERSION, "python": python, "sub": None}
    if sys.version_info < _OLDEST_PYTHON:
        area.add(
            ERROR, "old-python", f"Python {python} is too old; 3.11 is needed: install it anew (README, Installing)"
        )
    for module, name in _NEEDED.items():
        if not _has(module):
            mend = quoted(sys.executable, "-m", "pip", "install", name)
            area.add(ERROR, "missing-dependency", f"{name} is not installed", mend)
    try:
        sub = find_sub()
    except ConfigError as error:
        area.add(ERROR, "no-sub", str(error))
        return area
    area.facts["sub"] = sub
    area.summary = f"subluminal {__version__}, Python {python}, {sub}"
    if may_vanish(sub):
        message = f"{sub} lies in an environment that is cleared away at times: install it (README, Installing)"
        area.add(WARNING, "passing-sub", message)
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


def dependency_versions() -> dict[str, str | None]:
    import importlib.metadata  # brings half of `email` with it, and only programs ask

    found: dict[str, str | None] = {}
    for name in _NEEDED.values():
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found
