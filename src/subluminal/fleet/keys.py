"""Ed25519 keys as files: `NAME.pem` (PKCS 8, 0600, under a passphrase if one is given) and `NAME.pub` beside it.

A private key that others can read is refused: whoever has copied it can sign.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

from subluminal.contracts.errors import FleetError
from subluminal.fleet.extras import require_extra
from subluminal.host.files import replace_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PRIVATE, PUBLIC = ".pem", ".pub"
_MAX_BYTES = 1 << 16


def new_key(path: str, passphrase: bytes | None = None) -> Ed25519PublicKey:
    """Make a pair of keys; FleetError where one is there: a key is never written over."""
    require_extra("cryptography")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if os.path.lexists(path):
        raise FleetError(f"{path} is there already.", hint="Keys are not written over; choose another name.")
    private = Ed25519PrivateKey.generate()
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    how: Any = serialization.NoEncryption()
    if passphrase:
        how = serialization.BestAvailableEncryption(passphrase)
    replace_file(path, private.private_bytes(pem, pkcs8, how), durable=True)
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    public = private.public_key()
    replace_file(public_path(path), public.public_bytes(pem, spki), mode=0o644, durable=True)
    return public


def public_path(path: str) -> str:
    return path.removesuffix(PRIVATE) + PUBLIC


def load_private(path: str, passphrase: bytes | None = None) -> Ed25519PrivateKey:
    require_extra("cryptography")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = _read(path, private=True)
    try:
        key = load_pem_private_key(data, passphrase if b"ENCRYPTED" in data else None)
    except TypeError:
        hint = "Name the variable that holds it: --passphrase-env NAME."
        raise FleetError(f"{path} is under a passphrase.", hint=hint) from None
    except ValueError:
        hint = "Is the passphrase right, and the file whole?" if b"ENCRYPTED" in data else "Is the file whole?"
        raise FleetError(f"{path} cannot be read as a private key.", hint=hint) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise FleetError(f"{path} is no Ed25519 key.", hint="`sub fleet key FILE` makes one.")
    return key


def load_public(path: str) -> Ed25519PublicKey:
    """From a `.pub` file; a private key's own public half where its `.pem` is named."""
    require_extra("cryptography")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    beside = public_path(path)
    try:
        key = load_pem_public_key(_read(beside if os.path.exists(beside) else path, private=False))
    except ValueError:
        raise FleetError(f"{path} cannot be read as a public key.", hint="It is the file that ends in .pub.") from None
    if not isinstance(key, Ed25519PublicKey):
        raise FleetError(f"{path} is no Ed25519 key.", hint="`sub fleet key FILE` makes one.")
    return key


def _read(path: str, *, private: bool) -> bytes:
    try:
        with open(path, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if private and mode & 0o077:
                hint = f"chmod 600 {path}, and ask who could have read it."
                raise FleetError(f"{path} can be read by others ({mode:04o}): it is not used.", hint=hint)
            return file.read(_MAX_BYTES)
    except OSError as error:
        raise FleetError(f"{path} cannot be read: {error.strerror}.") from None


class KeyRing:
    """The private keys at hand: those of a directory, and others that were named. Found by their id, not by name."""

    def __init__(self, directory: str, named: tuple[str, ...] = (), passphrase: bytes | None = None) -> None:
        self.directory = directory
        self._named = named
        self._passphrase = passphrase
        self._signers: dict[str, Any] | None = None
        self.locked: list[str] = []

    def signer(self, keyid: str) -> Any | None:
        """A signer of `securesystemslib` for this key, if it is here and can be read."""
        if self._signers is None:
            self._signers = {}
            for path in self._paths():
                self._take(path)
        return self._signers.get(keyid)

    def _paths(self) -> list[str]:
        try:
            found = sorted(name for name in os.listdir(self.directory) if name.endswith(PRIVATE))
        except OSError:
            found = []
        return [*self._named, *(os.path.join(self.directory, name) for name in found)]

    def _take(self, path: str) -> None:
        from securesystemslib.signer import CryptoSigner

        assert self._signers is not None
        try:
            signer = CryptoSigner(load_private(path, self._passphrase))
        except FleetError:
            if path in self._named:
                raise
            self.locked.append(path)
            return
        self._signers[signer.public_key.keyid] = signer


def tuf_key(public: Ed25519PublicKey) -> Any:
    from securesystemslib.signer import SSlibKey

    return SSlibKey.from_crypto(public)
