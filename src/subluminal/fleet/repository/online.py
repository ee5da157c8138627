"""What is online: a snapshot of all that was signed, and a timestamp: what makes a publication known, and fresh."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from subluminal.contracts.errors import FleetError
from subluminal.contracts.moments import rfc3339
from subluminal.fleet.repository.roles import MissingKey, delegated_roles, expiry, sign

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuf.api.metadata import Metadata

    from subluminal.fleet.keys import KeyRing
    from subluminal.fleet.repository.store import Lives, Store
    from subluminal.fleet.repository.trusted import Trusted

ONLINE = ("snapshot", "timestamp")
_CLOCKS_DIFFER = timedelta(minutes=5)
_HINT = "What was signed lies in the origin; machines see it after `sub fleet renew` where the online keys are."


class Online:
    def __init__(self, store: Store, trusted: Trusted, ring: KeyRing, say: Callable[[str], None]) -> None:
        self._store = store
        self._trusted = trusted
        self._ring = ring
        self._say = say

    def renew(self, lives: Lives, above: dict[str, int] | None = None) -> None:
        """Sign what is newest as one snapshot, and a timestamp. Nothing in it may be older than machines know it.

        `above`: versions that were signed with keys which count for nothing any more.
        """
        from tuf.api.metadata import Metadata, Snapshot, Timestamp

        meta = {}
        for role in self._roles():
            self.require_newest(role)
            found = self._trusted.find(role)
            if found is not None:
                meta[f"{role}.json"] = _meta(found.version, found.data)
        if clock := self.behind(lives):
            self._say(clock)
        last = {role: max(self._trusted.version(role), (above or {}).get(role, 0)) for role in ONLINE}
        snapshot = Metadata(Snapshot(last["snapshot"] + 1, expires=expiry(lives.snapshot), meta=meta))
        self._sign(snapshot, "snapshot")
        timestamp = Metadata(Timestamp(last["timestamp"] + 1, expires=expiry(lives.timestamp)))
        timestamp.signed.snapshot_meta = _meta(snapshot.signed.version, snapshot.to_bytes())
        self._sign(timestamp, "timestamp")
        self._store.write(snapshot, "snapshot")
        self._store.write(timestamp, "timestamp")

    def require_newest(self, role: str) -> None:
        """FleetError where what machines know of a role is gone from here: what is signed next would undo it."""
        known = self._known().get(role, 0)
        if known > self._trusted.version(role):
            hint = "Put it back from a copy of the origin; machines would refuse what is older."
            raise FleetError(f"Version {known} of {role} is gone from the origin.", hint=hint)

    def behind(self, lives: Lives) -> str | None:
        """That the last timestamp was signed at a moment that is still to come by this clock. Nothing is refused for
        it: it may be the other clock that was wrong, and a stop must get out."""
        found = self._trusted.find("timestamp")
        signed_at = None if found is None else found.metadata.signed.expires - timedelta(seconds=lives.timestamp)
        if signed_at is None or signed_at < datetime.now(UTC) + _CLOCKS_DIFFER:
            return None
        when = rfc3339(int(signed_at.timestamp() * 1000))
        return (
            f"The last timestamp was signed at {when}, which is still to come by this machine's clock: it is behind,"
            " and machines may refuse what it signs as expired; or that of whoever signed was ahead."
        )

    def is_due(self, lives: Lives) -> bool:
        """Something new lies in the origin, or a third of what is online has lived its life."""
        now = datetime.now(UTC)
        for role, life_s in (("snapshot", lives.snapshot), ("timestamp", lives.timestamp)):
            found = self._trusted.find(role)
            if found is None or found.metadata.signed.expires - now < timedelta(seconds=life_s * 2 / 3):
                return True
        return bool(self.pending())

    def pending(self) -> list[str]:
        """The roles of which a newer version is here than machines know of."""
        known = self._known()
        return [role for role in self._roles() if self._trusted.version(role) > known[role]]

    def _roles(self) -> list[str]:
        return ["targets", *delegated_roles(self._trusted.read("targets").signed)]

    def _known(self) -> dict[str, int]:
        snapshot = self._trusted.find("snapshot")
        meta: Any = {} if snapshot is None else snapshot.metadata.signed.meta
        return {role: meta[f"{role}.json"].version if f"{role}.json" in meta else 0 for role in self._roles()}

    def _sign(self, metadata: Metadata[Any], role: str) -> None:
        holder = self._trusted.read("root").signed.roles[role]
        try:
            sign(metadata, role, holder.keyids, holder.threshold, self._ring)
        except MissingKey as missing:
            raise MissingKey(str(missing), hint=_HINT) from None


def _meta(version: int, data: bytes) -> Any:
    from tuf.api.metadata import MetaFile

    return MetaFile.from_data(version, data, ["sha256"])
