"""Which role signs what: making, changing and signing the metadata of a repository."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from subluminal.contracts.errors import FleetError
from subluminal.fleet.published import STOP_ROLE, tenant_role

if TYPE_CHECKING:
    from securesystemslib.signer import Key
    from tuf.api.metadata import Metadata, Root, Targets

    from subluminal.fleet.keys import KeyRing

ROOT_KEYS = 3
ROOT_THRESHOLD = 2


class MissingKey(FleetError):
    hint = "Put its .pem file into the keys of the repository, or name it: --key FILE."


def expiry(seconds: int, now: datetime | None = None) -> datetime:
    return (now or datetime.now(UTC)).replace(microsecond=0) + timedelta(seconds=seconds)


def new_root(keys: dict[str, list[Key]], life_s: int) -> Metadata[Root]:
    from tuf.api.metadata import Metadata, Root

    root = Root(expires=expiry(life_s), consistent_snapshot=True)
    for role, whose in keys.items():
        for key in whose:
            root.add_key(key, role)
    root.roles["root"].threshold = ROOT_THRESHOLD
    return Metadata(root)


def new_targets(life_s: int) -> Metadata[Targets]:
    from tuf.api.metadata import Delegations, Metadata, Targets

    return Metadata(Targets(expires=expiry(life_s), delegations=Delegations({}, {})))


def new_delegated(life_s: int, version: int = 1) -> Metadata[Targets]:
    from tuf.api.metadata import Metadata, Targets

    return Metadata(Targets(version, expires=expiry(life_s)))


def delegate(targets: Targets, role: str, pattern: str, key: Key) -> None:
    """One role, one key, one place: what it signs elsewhere counts for nothing."""
    from tuf.api.metadata import DelegatedRole

    assert targets.delegations is not None and targets.delegations.roles is not None
    targets.delegations.roles[role] = DelegatedRole(role, [], 1, True, paths=[pattern])
    targets.add_key(key, role)


def delegated_roles(targets: Targets) -> dict[str, Any]:
    delegations = targets.delegations
    return dict((delegations.roles if delegations is not None else None) or {})


def place_of(role: str) -> str:
    """The paths of target files that a delegated role may sign."""
    if role == STOP_ROLE:
        return "stop/*"
    return f"policy/{role.removeprefix(tenant_role(''))}/*"


def raise_version(metadata: Metadata[Any], life_s: int) -> None:
    metadata.signed.version += 1
    metadata.signed.expires = expiry(life_s)


def sign(metadata: Metadata[Any], role: str, allowed: list[str], threshold: int, ring: KeyRing) -> None:
    """With every key of the role that is at hand; MissingKey if they are too few."""
    signers = [signer for keyid in allowed if (signer := ring.signer(keyid)) is not None]
    if len(signers) < threshold:
        locked = f" ({len(ring.locked)} could not be opened)" if ring.locked else ""
        wanted = f"{threshold} of the {len(allowed)} keys" if threshold > 1 else "the key"
        raise MissingKey(f"This needs {wanted} of {role}; {len(signers)} found in {ring.directory}{locked}.")
    metadata.signatures.clear()
    for signer in signers:
        metadata.sign(signer, append=True)
