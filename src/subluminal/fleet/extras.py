"""What the extra `fleet` brings, asked for where it is used."""

from __future__ import annotations

from importlib.util import find_spec

from subluminal.contracts.errors import FleetError


def require_extra(*modules: str) -> None:
    """A sentence instead of a traceback where a module of the extra is not installed."""
    missing = [name for name in modules if not _is_there(name)]
    if missing:
        hint = "Install Subluminal with its extra: pip install 'PATH-OR-ADDRESS[fleet]' (README, Installing)."
        raise FleetError(f"This needs what is not installed: {', '.join(missing)}.", hint=hint)


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # nor what it is part of
        return False
