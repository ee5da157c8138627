"""The files of a repository: the newest metadata of each role, and writing in the order that machines need.

A machine that sees a new timestamp keeps it even if the rest cannot be had: so target files come first, then targets,
then snapshot, and the timestamp last. Each file is replaced in one step.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from subluminal.contracts.errors import FleetError
from subluminal.host.files import replace_file

if TYPE_CHECKING:
    from tuf.api.metadata import Metadata, TargetFile

HOUR_S = 3600
DAY_S = 24 * HOUR_S


class Lives(msgspec.Struct):
    """For how long what is signed holds, in seconds. What is online is renewed by `sub fleet renew`."""

    root: int = 365 * DAY_S
    targets: int = 365 * DAY_S
    snapshot: int = 7 * DAY_S
    timestamp: int = DAY_S


class Store:
    def __init__(self, directory: str) -> None:
        self.directory = os.path.abspath(directory)
        self.origin = os.path.join(self.directory, "origin")
        self.metadata = os.path.join(self.origin, "metadata")
        self.targets = os.path.join(self.origin, "targets")
        self.keys = os.path.join(self.directory, "keys")
        self.root_file = os.path.join(self.directory, "root.json")
        self._settings = os.path.join(self.directory, "fleet.json")

    @property
    def exists(self) -> bool:
        return os.path.exists(self._settings)

    def make(self, lives: Lives) -> None:
        for directory in (self.metadata, self.targets):
            os.makedirs(directory, exist_ok=True)
        os.makedirs(self.keys, mode=0o700, exist_ok=True)
        replace_file(self._settings, msgspec.json.format(msgspec.json.encode(lives)) + b"\n", mode=0o644)

    def lives(self) -> Lives:
        try:
            with open(self._settings, "rb") as file:
                return msgspec.json.decode(file.read(1 << 16), type=Lives)
        except FileNotFoundError:
            hint = "Name it with --repository DIR, or make one: sub fleet init DIR."
            raise FleetError(f"{self.directory} is no repository of a fleet.", hint=hint) from None
        except (OSError, msgspec.DecodeError) as error:
            raise FleetError(f"{self._settings} cannot be read: {error}.") from None

    @contextmanager
    def held(self) -> Iterator[None]:
        """One publisher at a time in this directory."""
        descriptor = os.open(os.path.join(self.directory, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def versions(self, role: str) -> list[int | None]:
        """Those that lie in the origin, the highest first; None: a file that has no version in its name."""
        if role == "timestamp":
            return [None] if os.path.exists(os.path.join(self.metadata, self.file_name(role, None))) else []
        suffix = f".{role}.json"
        names = [name.removesuffix(suffix) for name in os.listdir(self.metadata) if name.endswith(suffix)]
        versions = sorted((int(name) for name in names if name.isdecimal() and len(name) < 10), reverse=True)
        return list(versions)

    def file_name(self, role: str, version: int | None) -> str:
        return f"{role}.json" if version is None else f"{version}.{role}.json"

    def metadata_bytes(self, role: str, version: int | None) -> bytes:
        return self._read(os.path.join(self.metadata, self.file_name(role, version)))

    def root_bytes(self) -> bytes:
        return self._read(self.root_file)

    def target_bytes(self, path: str, digest: str) -> bytes:
        directory, name = os.path.split(os.path.join(self.targets, path))
        return self._read(os.path.join(directory, f"{digest}.{name}"))

    def _read(self, path: str) -> bytes:
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            hint = "Put it back from a copy of the origin; machines keep what they have meanwhile."
            raise FleetError(f"{path} cannot be read: {error.strerror}.", hint=hint) from None

    def write_target(self, path: str, data: bytes) -> TargetFile:
        from tuf.api.metadata import TargetFile

        target = TargetFile.from_data(path, data, ["sha256"])
        directory, name = os.path.split(os.path.join(self.targets, path))
        os.makedirs(directory, exist_ok=True)
        replace_file(os.path.join(directory, f"{target.hashes['sha256']}.{name}"), data, mode=0o644, durable=True)
        return target

    def write(self, metadata: Metadata[Any], role: str) -> None:
        data = metadata.to_bytes()
        name = self.file_name(role, None if role == "timestamp" else metadata.signed.version)
        replace_file(os.path.join(self.metadata, name), data, mode=0o644, durable=True)
        if role == "root":
            replace_file(self.root_file, data, mode=0o644, durable=True)
