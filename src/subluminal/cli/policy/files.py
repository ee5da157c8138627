"""Writing policy files: whole or not at all, and never over something that was not asked for."""

from __future__ import annotations

import os

from subluminal.contracts.errors import ConfigError
from subluminal.host.files import replace_file


def write_file(path: str, content: bytes) -> None:
    """Replace a file in one step, keeping its permissions; a symbolic link keeps pointing to it."""
    target = os.path.realpath(path)
    try:
        mode = os.stat(target).st_mode & 0o777 if os.path.exists(target) else 0o644
        replace_file(target, content, mode=mode)
    except OSError as error:
        raise _cannot_write(path, error) from None


def create_files(files: dict[str, bytes]) -> None:
    """Write new files; if one of them exists, none is written and nothing is touched."""
    for path in files:
        if os.path.lexists(path):
            raise ConfigError(f"{path} exists already", hint="Give another PATH, or move the file away first.")
    for path, content in files.items():
        try:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _cannot_write(path, error) from None
        with os.fdopen(fd, "wb") as file:
            file.write(content)


def _cannot_write(path: str, error: OSError) -> ConfigError:
    why = (error.strerror or "error").lower()
    return ConfigError(f"{path} cannot be written: {why}", hint="Check the directory and its permissions.")
