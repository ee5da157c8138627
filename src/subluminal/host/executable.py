"""Finding the absolute `sub` that clients shall start.

Clients start servers with a PATH of their own, so only an absolute path is reliable. The name the user typed is
preferred to the file behind it: links such as `/opt/homebrew/bin/sub` survive an upgrade, what they lead to may not.
"""

from __future__ import annotations

import os
import shutil
import sys

from subluminal.contracts.errors import ConfigError

# Environments that package runners make for one use and clear away later.
_PASSING_PLACES = ("/uv/archive-v", "/.cache/uv/", "/pipx/.cache/", "/.cache/pipx/")


def find_sub() -> str:
    """The absolute path of this installation's `sub`; raises ConfigError if there is none."""
    beside = os.path.join(os.path.dirname(sys.executable), "sub")
    for candidate in (_invoked(), shutil.which("sub"), beside):
        if candidate and _is_program(candidate) and _same_installation(candidate, beside):
            return os.path.abspath(candidate)
    invoked = _invoked()
    if invoked and _is_program(invoked):
        return os.path.abspath(invoked)
    hint = "Install the package (README, Installing) and run `sub import` from there."
    raise ConfigError("the `sub` program of this installation was not found", hint=hint)


def may_vanish(path: str) -> bool:
    """True for a program in an environment that its maker clears away (uvx, pipx run)."""
    return any(place in os.path.realpath(path) for place in _PASSING_PLACES)


def _invoked() -> str | None:
    program = sys.argv[0] if sys.argv else ""
    if os.path.basename(program) != "sub":
        return None
    return program if os.sep in program else shutil.which(program)


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _same_installation(candidate: str, beside: str) -> bool:
    """Another program may be called `sub`; ours is the one beside the running interpreter, or a link to it."""
    return os.path.realpath(candidate) == os.path.realpath(beside)
