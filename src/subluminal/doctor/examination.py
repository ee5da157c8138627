"""All the checks, one after the other. Nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from subluminal.contracts.errors import SubluminalError
from subluminal.doctor.clients import check_clients
from subluminal.doctor.findings import ERROR, Area
from subluminal.doctor.fleet import check_fleet
from subluminal.doctor.home import check_home, check_runs
from subluminal.doctor.hooks import check_hooks
from subluminal.doctor.installation import check_installation
from subluminal.doctor.ledger import check_ledger
from subluminal.doctor.policy import check_policy
from subluminal.doctor.settings import check_config, check_secrets
from subluminal.doctor.tools import check_tools


def examine(cwd: str, *, self_test: bool = False, fleet: dict[str, Any] | None = None) -> list[Area]:
    """Every area in turn; the self-test, which takes seconds, if asked for. `fleet`: of a machine that joined one."""
    installation = _guarded("installation", check_installation)
    areas = [installation, _guarded("home", check_home)]
    try:
        settings, config = check_config()
    except OSError as error:
        settings, config = _failed("settings", error), None
    areas.append(settings)
    areas.append(_guarded("policy", lambda: check_policy(cwd)))
    if fleet is not None:
        areas.append(_guarded("fleet", lambda: check_fleet(fleet)))
    areas.append(_guarded("tools", lambda: check_tools(cwd)))
    areas.append(_guarded("secrets", lambda: check_secrets(config)))
    try:
        areas += check_clients(cwd, installation.facts.get("sub"))
    except (SubluminalError, OSError) as error:
        areas.append(_failed("clients", error))
    areas.append(_guarded("hooks", lambda: check_hooks(cwd)))
    areas.append(_guarded("runs", check_runs))
    areas.append(_guarded("ledger", check_ledger))
    if self_test:
        from subluminal.doctor.self_test import check_self

        areas.append(_guarded("self-test", check_self))
    return areas


def _guarded(name: str, check: Callable[[], Area]) -> Area:
    """One check that cannot be made must not hide the others."""
    try:
        return check()
    except (SubluminalError, OSError) as error:
        return _failed(name, error)


def _failed(name: str, error: Exception) -> Area:
    area = Area(name)
    hint = error.hint if isinstance(error, SubluminalError) else None
    area.add(ERROR, "check-failed", f"cannot be checked: {error}" + (f" {hint}" if hint else ""))
    return area
