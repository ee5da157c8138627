"""The policies that `sub policy init` writes, each with its tests: the starter, and one for each kind of server.

`templates/NAME.yaml` and `templates/NAME.test.yaml` are written as they are. What a template is for stands in its own
`description`.
"""

from __future__ import annotations

import os

STARTER = "starter"
# In the order in which they are listed.
TEMPLATES = (STARTER, "readonly", "filesystem", "git", "github", "browser", "database", "shell", "coding", "ci")
_DIRECTORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "templates")
_DESCRIPTION = b"description: "


def template_files(name: str, path: str) -> dict[str, bytes]:
    """File name -> content, for a policy that is to stand at `path`."""
    stem, extension = os.path.splitext(path)
    return {path: _read(f"{name}.yaml"), f"{stem}.test{extension}": _read(f"{name}.test.yaml")}


def described() -> dict[str, str]:
    """What each template is for, in a line."""
    return {name: _description(_read(f"{name}.yaml")) for name in TEMPLATES}


def _description(policy: bytes) -> str:
    (line,) = [line for line in policy.splitlines() if line.startswith(_DESCRIPTION)]
    return line.removeprefix(_DESCRIPTION).decode()


def _read(name: str) -> bytes:
    with open(os.path.join(_DIRECTORY, name), "rb") as file:
        return file.read()
