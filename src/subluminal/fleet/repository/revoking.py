"""A key is taken from its role, and a new one put in its place.

The keys of tenants and of stops are named by `targets`, those of the top roles by root, which needs two of its three
keys. What the role had signed is signed again with the new key, so that nothing of it is lost: if the old key was
stolen, what was published last may be the thief's, and is to be looked at.
"""

from __future__ import annotations

from typing import Any

from subluminal.contracts.errors import FleetError
from subluminal.fleet.repository.publishing import Repository
from subluminal.fleet.repository.roles import delegated_roles, raise_version, sign


def revoke(repository: Repository, role: str, key: Any) -> None:
    """`role`: targets, snapshot, timestamp, root-N, stop or tenant-NAME. `key`: the new public key."""
    with repository.store.held():
        targets = repository.trusted.read("targets")
        if role in delegated_roles(targets.signed):
            _revoke_delegated(repository, targets, role, key)
        elif role in ("targets", "snapshot", "timestamp") or role.startswith("root-"):
            _revoke_top(repository, role, key)
        else:
            hint = "`sub fleet status --repository DIR` lists them."
            raise FleetError(f"There is no role {role}.", hint=hint)


def _revoke_delegated(repository: Repository, targets: Any, role: str, key: Any) -> None:
    delegated = delegated_roles(targets.signed)[role]
    metadata = repository.trusted.find(role)  # before its old key counts for nothing
    for old in list(delegated.keyids):
        targets.signed.revoke_key(old, role)
    targets.signed.add_key(key, role)
    raise_version(targets, repository.lives.targets)
    repository.sign_targets(targets)
    if metadata is not None:
        raise_version(metadata.metadata, repository.lives.targets)
        sign(metadata.metadata, role, delegated_roles(targets.signed)[role].keyids, 1, repository.ring)
        repository.store.write(metadata.metadata, role)
    repository.renew()


def _revoke_top(repository: Repository, role: str, key: Any) -> None:
    root = repository.trusted.read("root")
    # Before old keys count for nothing.
    targets, above = repository.trusted.read("targets"), repository.versions()
    before = root.signed.roles["root"].keyids.copy()
    top = "root" if role.startswith("root-") else role
    old = repository.keyid_of(role) if top == "root" else root.signed.roles[role].keyids[0]
    if old not in root.signed.roles[top].keyids:
        raise FleetError(
            f"{role} is no key of root here.", hint=f"Its public half is looked for in {repository.store.keys}."
        )
    root.signed.revoke_key(old, top)
    root.signed.add_key(key, top)
    raise_version(root, repository.lives.root)
    # Machines go from one root to the next: two keys of the old one and two of the new one must have signed.
    role_now = root.signed.roles["root"]
    sign(root, "root", list(dict.fromkeys([*before, *role_now.keyids])), role_now.threshold, repository.ring)
    _check_thresholds(root, before)
    repository.store.write(root, "root")
    if top == "targets":
        raise_version(targets, repository.lives.targets)
        repository.sign_targets(targets)
    repository.online.renew(repository.lives, above)


def _check_thresholds(root: Any, before: list[str]) -> None:
    role = root.signed.roles["root"]
    for keyids, which in ((before, "before"), (role.keyids, "now")):
        have = len(set(root.signatures) & set(keyids))
        if have < role.threshold:
            hint = "Put two of them into the keys of the repository for this, and take them away again."
            raise FleetError(f"Root needs {role.threshold} of its keys of {which}; {have} are at hand.", hint=hint)
