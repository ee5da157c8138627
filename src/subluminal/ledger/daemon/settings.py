"""The ledger's settings: `[ledger]` in config.toml, each overruled by its environment variable."""

from __future__ import annotations

import os
import tomllib

from subluminal.contracts.errors import ConfigError, LedgerError
from subluminal.host import home

IDLE_EXIT_S = 900.0


def private_home() -> str:
    """The absolute SUB_HOME, made if need be; LedgerError if it cannot be."""
    directory = os.path.abspath(home.sub_home())
    try:
        return home.ensure_private_dir(directory)
    except OSError as error:
        raise LedgerError(
            f"The directory {directory} cannot be made: {error.strerror}.",
            hint="Set SUB_HOME to one that can be written.",
        ) from None


def idle_exit_s() -> float:
    """Seconds without work after which the daemon ends: SUB_LEDGER_IDLE_S, `ledger.idle_exit_s`, 900."""
    value: object = os.environ.get("SUB_LEDGER_IDLE_S")
    where = "SUB_LEDGER_IDLE_S"
    if value is None:
        value, where = _table().get("idle_exit_s", IDLE_EXIT_S), f"idle_exit_s in {home.config_file()}"
    try:
        seconds = float(value)  # type: ignore[arg-type]  # anything else is what the except is for
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 < seconds < 1e9:
        raise ConfigError(f"{where} must be a number of seconds above 0, not {value!r}.")
    return seconds


def _table() -> dict[str, object]:
    path = home.config_file()
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file).get("ledger", {})
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from None
    if not isinstance(table, dict):
        raise ConfigError(f"[ledger] in {path} must be a table.")
    return table
