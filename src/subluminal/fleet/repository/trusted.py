"""What may be signed again or made known: of each role the newest that the right keys have signed, and nothing else.

The origin is written by several people, and perhaps by somebody else. What is read there is verified as a machine would
verify it before it becomes part of what is signed next; files that nobody may have signed are passed over, and named.
Root is read from beside the origin, where machines' own copy comes from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from subluminal.contracts.errors import FleetError
from subluminal.fleet.repository.store import Store

if TYPE_CHECKING:
    from tuf.api.metadata import Metadata, TargetFile

TOP = ("root", "targets", "snapshot", "timestamp")


class Found(NamedTuple):
    """`data` is the file as it lies there: who signed it may have written it in another way than we would."""

    metadata: Metadata[Any]
    data: bytes

    @property
    def version(self) -> int:
        return int(self.metadata.signed.version)


class Trusted:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.passed_over: list[str] = []

    def read(self, role: str) -> Metadata[Any]:
        found = self.find(role)
        if found is None:
            hint = "Put it back from a copy of the origin; machines keep what they have meanwhile."
            raise FleetError(f"There is no {role} in {self._store.metadata} that its keys have signed.", hint=hint)
        return found.metadata

    def version(self, role: str) -> int:
        """0: nothing of it is here."""
        found = self.find(role)
        return 0 if found is None else found.version

    def find(self, role: str) -> Found | None:
        if role == "root":
            return self._root()
        signer = self.read("root" if role in TOP else "targets").signed
        for version in self._store.versions(role):
            found = self._signed(signer, role, self._store.metadata_bytes(role, version))
            if found is not None and version in (None, found.version):
                return found
            name = self._store.file_name(role, version)
            self.passed_over += [] if name in self.passed_over else [name]
        return None

    def _root(self) -> Found:
        data = self._store.root_bytes()
        from tuf.api.exceptions import RepositoryError
        from tuf.api.metadata import Metadata

        try:
            signer = Metadata.from_bytes(data).signed
            found = self._signed(signer, "root", data)
        except (RepositoryError, AttributeError):
            found = None
        if found is None:
            raise FleetError(f"{self._store.root_file} is not signed by the keys of root.")
        return found

    def _signed(self, signer: Any, role: str, data: bytes) -> Found | None:
        from tuf.api.exceptions import RepositoryError
        from tuf.api.metadata import Metadata

        try:
            metadata = Metadata.from_bytes(data)
            signer.verify_delegate(role, metadata.signed_bytes, metadata.signatures)
        except (RepositoryError, ValueError):
            return None
        return Found(metadata, data)

    def target(self, role: str, path: str) -> bytes | None:
        """The bytes of a target as the role has signed them; None: it has signed none at this place."""
        from tuf.api.exceptions import RepositoryError

        found = self.find(role)
        target: TargetFile | None = None if found is None else found.metadata.signed.targets.get(path)
        if target is None:
            return None
        data = self._store.target_bytes(path, target.hashes["sha256"])
        try:
            target.verify_length_and_hashes(data)
        except RepositoryError:
            raise FleetError(f"{path} in the origin is not what {role} has signed.") from None
        return data
