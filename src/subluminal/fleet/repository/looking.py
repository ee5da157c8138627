"""What a repository holds: facts for `sub fleet status --repository`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from subluminal.contracts.moments import rfc3339
from subluminal.fleet.published import STOP_ROLE, policies_of, policies_path, tenant_role
from subluminal.fleet.repository.publishing import Repository
from subluminal.fleet.repository.roles import delegated_roles
from subluminal.fleet.repository.trusted import TOP


def repository_status(repository: Repository) -> dict[str, Any]:
    repository.store.lives()
    delegated = delegated_roles(repository.trusted.read("targets").signed)
    tenants = [name.removeprefix(tenant_role("")) for name in delegated if name != STOP_ROLE]
    return {
        "origin": repository.store.origin,
        "roles": _roles(repository, delegated),
        "policies": {tenant: _policies(repository, tenant) for tenant in tenants},
        "stops": [msgspec.to_builtins(stop) for stop in repository.stops()],
        "passed_over": repository.trusted.passed_over,
        "clock": repository.online.behind(repository.lives),
    }


def _roles(repository: Repository, delegated: dict[str, Any]) -> list[dict[str, Any]]:
    root = repository.trusted.read("root").signed
    pending, now = repository.online.pending(), datetime.now(UTC)
    told = []
    for name in (*TOP, *delegated):
        role = root.roles[name] if name in TOP else delegated[name]
        found = repository.trusted.find(name)
        expires = None if found is None else found.metadata.signed.expires
        told.append(
            {
                "role": name,
                "version": 0 if found is None else found.version,
                "expires": None if expires is None else rfc3339(int(expires.timestamp() * 1000)),
                "expired": expires is not None and expires <= now,
                "threshold": role.threshold,
                "keys": len(role.keyids),
                "pending": name in pending,
            }
        )
    return told


def _policies(repository: Repository, tenant: str) -> list[str]:
    data = repository.trusted.target(tenant_role(tenant), policies_path(tenant))
    return [] if data is None else [policy.name for policy in policies_of(data, tenant).policies]
