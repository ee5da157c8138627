"""What every command of a repository is told: where it is, and which keys are at hand."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from subluminal.cli.render.output import note
from subluminal.contracts.errors import UsageError

if TYPE_CHECKING:
    from subluminal.fleet.repository.publishing import Repository

REPOSITORY_VARIABLE = "SUB_FLEET_REPOSITORY"

_OPTIONS = (
    click.option("--repository", metavar="DIR", help=f"The repository.  [${REPOSITORY_VARIABLE}, or here]"),
    click.option("--key", "keys", metavar="FILE", multiple=True, help="A private key beside those of the repository."),
    click.option("--passphrase-env", metavar="NAME", help="The variable that holds the passphrase of the keys."),
)


def repository_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def open_repository(directory: str | None, keys: tuple[str, ...], passphrase_env: str | None) -> Repository:
    from subluminal.fleet.repository.publishing import Repository

    found = directory or os.environ.get(REPOSITORY_VARIABLE) or os.getcwd()
    return Repository(found, keys, passphrase_of(passphrase_env), lambda said: note(f"sub: {said}"))


def passphrase_of(name: str | None) -> bytes | None:
    if name is None:
        return None
    value = os.environ.get(name)
    if not value:
        raise UsageError(f"--passphrase-env {name}: there is no such variable, or it is empty.")
    return value.encode()


def bytes_of(text: str, option: str) -> int:
    """`1500MB`, `1GiB`."""
    import re

    from subluminal.policy.lint.units import BYTES, size_in_bytes

    if not re.fullmatch(f"[0-9]{{1,12}}({'|'.join(BYTES)})", text) or size_in_bytes(text) <= 0:
        raise UsageError(f"{option} {text!r} is no size.", hint="Write a number and a unit: 800MB, 1GiB.")
    return size_in_bytes(text)


def milliseconds_of(text: str, option: str) -> int:
    """`7d`, `90s`, `500ms`."""
    import re

    from subluminal.policy.lint.units import milliseconds

    if not re.fullmatch("[0-9]{1,12}(ms|s|m|h|d)", text) or milliseconds(text) <= 0:
        raise UsageError(f"{option} {text!r} is no length of time.", hint="Write a number and a unit: 10s, 12h, 7d.")
    return milliseconds(text)
