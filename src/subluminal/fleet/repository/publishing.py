"""What is done with a repository: made, published to, stopped and renewed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from subluminal.contracts.errors import FleetError
from subluminal.fleet.extras import require_extra
from subluminal.fleet.keys import PRIVATE, KeyRing, load_public, new_key, tuf_key
from subluminal.fleet.published import (
    EVERYONE,
    MAX_REASON_CHARS,
    MAX_STOPS,
    STOP_ROLE,
    STOPS_PATH,
    Policies,
    Published,
    Stop,
    Stops,
    checked_tenant,
    policies_path,
    read_policies,
    read_stops,
    stop_snapshot,
    tenant_role,
)
from subluminal.fleet.repository.online import ONLINE, Online
from subluminal.fleet.repository.roles import (
    ROOT_KEYS,
    delegate,
    delegated_roles,
    new_delegated,
    new_root,
    new_targets,
    place_of,
    raise_version,
    sign,
)
from subluminal.fleet.repository.store import Lives, Store
from subluminal.fleet.repository.trusted import TOP, Trusted
from subluminal.policy.compile.snapshot import read_source

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuf.api.metadata import Metadata, Targets


class Repository:
    """`ring` holds the keys that are at hand; what it lacks cannot be signed, and is said. `say`: what whoever signs
    should know of this machine's clock."""

    def __init__(
        self,
        directory: str,
        named: tuple[str, ...] = (),
        passphrase: bytes | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        require_extra("tuf", "cryptography")
        self.store = Store(directory)
        self.passphrase = passphrase
        self.ring = KeyRing(self.store.keys, named, passphrase)
        self.trusted = Trusted(self.store)
        self.online = Online(self.store, self.trusted, self.ring, say)
        self._lives: Lives | None = None

    @property
    def lives(self) -> Lives:
        if self._lives is None:
            self._lives = self.store.lives()
        return self._lives

    # -- making -----------------------------------------------------------------------------------------------

    def init(self, tenants: list[str], lives: Lives) -> list[str]:
        """Keys, roles and an empty publication; the files of the keys that were made."""
        if self.store.exists:
            raise FleetError(f"{self.store.directory} is a repository already.", hint="sub fleet status shows it.")
        names = [f"root-{number}" for number in range(1, ROOT_KEYS + 1)] + [*TOP[1:], STOP_ROLE]
        roles = [tenant_role(checked_tenant(name)) for name in dict.fromkeys((EVERYONE, *tenants))]
        self.store.make(lives)
        made = {name: self._new_key(name) for name in [*names, *roles]}
        top = {role: [made[role]] for role in TOP[1:]}
        root = new_root({"root": [made[name] for name in names[:ROOT_KEYS]], **top}, lives.root)
        self._sign_root(root)
        targets = new_targets(lives.targets)
        for role in (STOP_ROLE, *roles):
            delegate(targets.signed, role, place_of(role), made[role])
            self._write_delegated(targets.signed, role, new_delegated(lives.targets), self._empty(role))
        self.sign_targets(targets)
        self.renew()
        return [self._key_file(name) for name in [*names, *roles]]

    def _new_key(self, name: str) -> Any:
        return tuf_key(new_key(self._key_file(name), self.passphrase))

    def keyid_of(self, name: str) -> str:
        return str(tuf_key(load_public(self._key_file(name))).keyid)

    def _key_file(self, name: str) -> str:
        return os.path.join(self.store.keys, name + PRIVATE)

    def _empty(self, role: str) -> tuple[str, bytes]:
        if role == STOP_ROLE:
            return STOPS_PATH, msgspec.json.encode(Stops([]))
        return policies_path(role.removeprefix(tenant_role(""))), msgspec.json.encode(Policies([]))

    def add_tenant(self, name: str, key: Any | None) -> None:
        """A tenant with its author's public key, or with a new one. Nothing is published in its name yet."""
        role = tenant_role(checked_tenant(name))
        with self.store.held():
            targets = self.trusted.read("targets")
            if role in delegated_roles(targets.signed):
                raise FleetError(f"There is a tenant {name} already.", hint="`sub fleet revoke` changes its key.")
            delegate(targets.signed, role, place_of(role), key if key is not None else self._new_key(role))
            raise_version(targets, self.lives.targets)
            if key is None:
                self._write_delegated(targets.signed, role, new_delegated(self.lives.targets), self._empty(role))
            self.sign_targets(targets)
            if key is None:
                self.renew()

    # -- publishing -------------------------------------------------------------------------------------------

    def publish(self, tenant: str, paths: list[str]) -> list[dict[str, Any]]:
        """The policies of a tenant, in order, instead of those before. They must compile."""
        packet = Policies([Published(os.path.basename(path), _text(path)) for path in paths])
        data = msgspec.json.encode(packet)
        compiled = read_policies(data, tenant)
        with self.store.held():
            self._publish(tenant_role(checked_tenant(tenant)), policies_path(tenant), data)
        return compiled

    def stops(self) -> list[Stop]:
        data = self.trusted.target(STOP_ROLE, STOPS_PATH)
        return [] if data is None else read_stops(data)

    def stop(self, stop: Stop) -> None:
        if len(stop.reason) > MAX_REASON_CHARS:
            raise FleetError(f"A reason has at most {MAX_REASON_CHARS} characters.")
        stop_snapshot(stop)  # what no machine could make a rule of is said here
        with self.store.held():
            stops = self.stops()
            if len(stops) >= MAX_STOPS:
                raise FleetError(f"There are {len(stops)} stops already.", hint="Lift one: sub fleet resume STOP.")
            self._publish(STOP_ROLE, STOPS_PATH, msgspec.json.encode(Stops([*stops, stop])))

    def resume(self, stop_ids: list[str]) -> list[Stop]:
        """Lift these stops; all where none is named."""
        with self.store.held():
            stops = self.stops()
            known = {stop.stop_id for stop in stops}
            if unknown := [each for each in stop_ids if each not in known]:
                raise FleetError(f"No stop {unknown[0]} is active.", hint="`sub fleet status` lists them.")
            kept = [stop for stop in stops if stop_ids and stop.stop_id not in stop_ids]
            self._publish(STOP_ROLE, STOPS_PATH, msgspec.json.encode(Stops(kept)))
            return [stop for stop in stops if stop not in kept]

    def _publish(self, role: str, path: str, data: bytes) -> None:
        targets = self.trusted.read("targets").signed
        if role not in delegated_roles(targets):
            name = role.removeprefix(tenant_role(""))
            raise FleetError(f"There is no tenant {name}.", hint=f"`sub fleet tenant {name}` adds one.")
        self.online.require_newest(role)
        # Made anew: nothing of what lies in the origin is signed by way of it.
        metadata = new_delegated(self.lives.targets, self.trusted.version(role) + 1)
        self._write_delegated(targets, role, metadata, (path, data))
        self.renew()

    def _write_delegated(
        self, targets: Targets, role: str, metadata: Metadata[Targets], content: tuple[str, bytes]
    ) -> None:
        path, data = content
        delegated = delegated_roles(targets)[role]
        metadata.signed.targets = {path: self.store.write_target(path, data)}
        sign(metadata, role, delegated.keyids, delegated.threshold, self.ring)
        self.store.write(metadata, role)

    # -- what holds for a while -----------------------------------------------------------------------------------

    def renew(self) -> None:
        """Make known what is newest here. What authors and those on call have left in the origin is taken in if the key
        of their role has signed it."""
        self.online.renew(self.lives)

    def renewed(self, roles: list[str]) -> bool:
        """These roles sign again what they have signed, for another life; then what is online."""
        with self.store.held():
            for role in roles:
                self._prolong(role)
            self.renew()
        return True

    def renew_if_due(self) -> bool:
        with self.store.held():
            if not self.online.is_due(self.lives):
                return False
            self.renew()
        return True

    def _prolong(self, role: str) -> None:
        delegated = delegated_roles(self.trusted.read("targets").signed)
        if role not in ("root", "targets", *delegated):
            raise FleetError(f"There is no role {role} to prolong.", hint="`sub fleet status` lists them.")
        metadata = self.trusted.read(role)
        raise_version(metadata, self.lives.root if role == "root" else self.lives.targets)
        if role == "root":
            self._sign_root(metadata)
        elif role == "targets":
            self.sign_targets(metadata)
        else:
            sign(metadata, role, delegated[role].keyids, delegated[role].threshold, self.ring)
            self.store.write(metadata, role)

    def versions(self) -> dict[str, int]:
        return {role: self.trusted.version(role) for role in ONLINE}

    def _sign_root(self, root: Metadata[Any]) -> None:
        role = root.signed.roles["root"]
        sign(root, "root", role.keyids, role.threshold, self.ring)
        self.store.write(root, "root")

    def sign_targets(self, targets: Metadata[Any]) -> None:
        role = self.trusted.read("root").signed.roles["targets"]
        sign(targets, "targets", role.keyids, role.threshold, self.ring)
        self.store.write(targets, "targets")


def _text(path: str) -> str:
    try:
        return read_source(path).decode()
    except UnicodeDecodeError:
        raise FleetError(f"{path} is no UTF-8 text.") from None
