"""Where secret values rest: `env` (not stored at all), `file`, `keychain`.

    open_store(source, environ, kind) -> a store with get, put, remove, refs

`file` keeps one file per secret in `SUB_HOME/secrets/`, 0600. It is encrypted (AES-256-GCM, bound to its reference)
with a key from the operating system's keychain where there is one, and plain otherwise: `encrypted` says which.
`keychain` is the operating system's own store, through `keyring`.

A kind (`SECRETS`, `LOGINS`) has a place of its own in each store, so that no reference of a binding leads to a login.

Traps: the directory may have been prepared by someone else, so it is opened once without following links, checked, and
everything happens relative to that descriptor; files are opened without following links and checked after opening.
A plain-text backend of `keyring` counts as a keychain only if the user chose it (PYTHON_KEYRING_BACKEND).
"""

from __future__ import annotations

import os
import stat

from subluminal.contracts.errors import SecretError
from subluminal.host.files import replace_file
from subluminal.host.home import ensure_private_dir, login_dir, secret_dir, sub_home
from subluminal.host.secrets.bindings import check_secret_ref, env_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from subluminal.host.home import Place

# A service of its own: references are the user's words, and none may collide with the key.
KEY_SERVICE = "subluminal-file-store"
KEY_NAME = "key"
INDEX = ".keychain"
_PLAIN = b"subluminal-secret/1 plain\n"
_SEALED = b"subluminal-secret/1 aes-256-gcm\n"
MAX_SECRET_BYTES = 64 * 1024
_EXTRA = "Install Subluminal with its extra: pip install 'PATH-OR-ADDRESS[keychain]' (README, Installing)."


class Kind:
    """`again` says how a value of this kind is stored anew; `bound` is what an encrypted file is bound to, before its
    reference (which has no colon)."""

    __slots__ = ("again", "bound", "place", "service")

    def __init__(self, place: Place, service: str, bound: str, again: str) -> None:
        self.place = place
        self.service = service
        self.bound = bound
        self.again = again


SECRETS = Kind(secret_dir, "subluminal", "", "Store it again: sub secrets add {ref} --source file")
LOGINS = Kind(login_dir, "subluminal-login", "login:", "Log in again: `sub login --list` shows the names.")


class Entry:
    """What may be told about a stored secret."""

    __slots__ = ("encrypted", "modified_ms", "secret_ref", "source")

    def __init__(self, secret_ref: str, source: str, encrypted: bool, modified_ms: int | None) -> None:
        self.secret_ref = secret_ref
        self.source = source
        self.encrypted = encrypted
        self.modified_ms = modified_ms


def open_store(source: str, environ: Mapping[str, str], kind: Kind = SECRETS) -> EnvStore | FileStore | KeychainStore:
    directory = kind.place(sub_home(environ))
    if source == "file":
        return FileStore(directory, kind)
    if source == "keychain":
        return KeychainStore(directory, kind)
    return EnvStore(environ)


class EnvStore:
    """Values stay in the environment of whoever starts the client."""

    source = "env"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def get(self, ref: str) -> str | None:
        return next((self._environ[name] for name in env_names(ref) if self._environ.get(name)), None)

    def put(self, ref: str, value: str) -> Entry:
        hint = f"Set {env_names(ref)[0]} in the client's environment, or use --source file or keychain."
        raise SecretError("source env stores nothing", hint=hint)

    def remove(self, ref: str) -> bool:
        raise SecretError("source env stores nothing", hint=f"Unset {env_names(ref)[0]} where you set it.")

    def refs(self) -> list[Entry]:
        return []


class FileStore:
    source = "file"

    def __init__(self, directory: str, kind: Kind) -> None:
        self.directory = directory
        self._kind = kind

    def get(self, ref: str) -> str | None:
        check_secret_ref(ref)
        data = self._read(ref)
        if data is None:
            return None
        if data.startswith(_PLAIN):
            return data[len(_PLAIN) :].decode("utf-8", "surrogateescape")
        if data.startswith(_SEALED):
            return _unseal(ref, data[len(_SEALED) :], self._kind).decode("utf-8", "surrogateescape")
        message = f"{os.path.join(self.directory, ref)} is not a stored secret"
        raise SecretError(message, hint=self._kind.again.format(ref=ref))

    def put(self, ref: str, value: str) -> Entry:
        check_secret_ref(ref)
        data = check_value(value)
        sealed = _seal(ref, data, self._kind)
        self._write(ref, _PLAIN + data if sealed is None else _SEALED + sealed)
        return Entry(ref, self.source, sealed is not None, None)

    def remove(self, ref: str) -> bool:
        check_secret_ref(ref)
        directory = self._open_directory()
        if directory is None:
            return False
        try:
            os.unlink(ref, dir_fd=directory)
            os.fsync(directory)
            return True
        except FileNotFoundError:
            return False
        finally:
            os.close(directory)

    def refs(self) -> list[Entry]:
        directory = self._open_directory()
        if directory is None:
            return []
        try:
            names = sorted(name for name in os.listdir(directory) if not name.startswith("."))
            return [self._entry(name, directory) for name in names]
        finally:
            os.close(directory)

    def read_index(self) -> list[str]:
        """References kept in the keychain: keychains cannot be listed, so their names (never values) are kept here."""
        return sorted((self._read(INDEX) or b"").decode("utf-8", "replace").split())

    def write_index(self, refs: set[str]) -> None:
        self._write(INDEX, "\n".join(sorted(refs)).encode() + b"\n")

    def _entry(self, name: str, directory: int) -> Entry:
        data = self._read(name) or b""
        modified = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime_ns // 1_000_000
        return Entry(name, self.source, data.startswith(_SEALED), modified)

    def _open_directory(self) -> int | None:
        try:
            descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            hint = "The secret store must be a real directory, not a link. Move it away and try again."
            raise SecretError(f"{self.directory} is not a directory of ours: {error.strerror}", hint=hint) from None
        try:
            _check_private(os.fstat(descriptor), self.directory, 0o700)
        except SecretError:
            os.close(descriptor)
            raise
        return descriptor

    def _read(self, name: str) -> bytes | None:
        directory = self._open_directory()
        if directory is None:
            return None
        path = os.path.join(self.directory, name)
        try:
            # Non-blocking: a named pipe put in a secret's place must not hang the shim.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(name, flags, dir_fd=directory)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SecretError(f"{path} cannot be read: {error.strerror}", hint="It must be a regular file.") from None
        finally:
            os.close(directory)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                raise SecretError(f"{path} is not a regular file with one name", hint="Remove it and store it again.")
            _check_private(status, path, 0o600)
            return file.read(2 * MAX_SECRET_BYTES)

    def _write(self, name: str, data: bytes) -> None:
        try:
            ensure_private_dir(self.directory, os.path.dirname(self.directory))
        except OSError as error:
            raise SecretError(
                f"{error.filename or self.directory} is not a directory of ours: {error.strerror}"
            ) from None
        directory = self._open_directory()
        assert directory is not None
        try:
            replace_file(name, data, durable=True, dir_fd=directory)
        except OSError as error:
            raise SecretError(f"{os.path.join(self.directory, name)} cannot be written: {error.strerror}") from None
        finally:
            os.close(directory)


class KeychainStore:
    """The operating system's keychain: macOS Keychain, Secret Service, KWallet, Windows Credential Locker."""

    source = "keychain"

    def __init__(self, directory: str, kind: Kind) -> None:
        self._index = FileStore(directory, kind)
        self._service = kind.service

    def get(self, ref: str) -> str | None:
        check_secret_ref(ref)
        value = _ask(_keychain(), "get_password", self._service, ref)
        return value if isinstance(value, str) else None

    def put(self, ref: str, value: str) -> Entry:
        check_secret_ref(ref)
        check_value(value)
        _ask(_keychain(), "set_password", self._service, ref, value)
        self._index.write_index({*self._index.read_index(), ref})
        return Entry(ref, self.source, True, None)

    def remove(self, ref: str) -> bool:
        check_secret_ref(ref)
        there = self.get(ref) is not None
        if there:
            _ask(_keychain(), "delete_password", self._service, ref)
        known = self._index.read_index()
        if ref in known:
            self._index.write_index(set(known) - {ref})
        return there

    def refs(self) -> list[Entry]:
        return [Entry(ref, self.source, True, None) for ref in self._index.read_index()]


def check_value(value: str) -> bytes:
    data = value.encode("utf-8", "surrogateescape")
    if not data or b"\0" in data:
        raise SecretError("a secret cannot be empty or contain a NUL byte")
    if len(data) > MAX_SECRET_BYTES:
        raise SecretError(f"a secret can be at most {MAX_SECRET_BYTES} bytes long; this one has {len(data)}")
    return data


def keychain_available() -> bool:
    try:
        _keychain()
    except SecretError:
        return False
    return True


def _keychain() -> Any:
    try:
        import keyring
    except ImportError:
        raise SecretError("the keychain needs the package keyring", hint=_EXTRA) from None
    try:
        backend = keyring.get_keyring()
        usable = backend.priority >= 1 or bool(os.environ.get("PYTHON_KEYRING_BACKEND"))
    except Exception as error:
        raise SecretError(f"no keychain can be used here: {type(error).__name__}", hint=_NO_KEYCHAIN) from None
    if not usable or type(backend).__module__.startswith(("keyring.backends.fail", "keyring.backends.null")):
        raise SecretError("no keychain was found on this machine", hint=_NO_KEYCHAIN)
    return backend


_NO_KEYCHAIN = "Use --source file (0600 in SUB_HOME/secrets), or --source env, or set up a Secret Service."


def _ask(backend: Any, question: str, *arguments: str) -> object:
    """Backends raise errors of their own, sometimes with the value in the text: only the class is told."""
    try:
        return getattr(backend, question)(*arguments)
    except Exception as error:
        message = f"the keychain refused: {type(error).__name__}"
        raise SecretError(message, hint="Is it unlocked? Try: keyring --list-backends") from None


def _seal(ref: str, data: bytes, kind: Kind) -> bytes | None:
    """None where there is no keychain to hold the key, or no cryptography."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = _file_key(create=True)
    except (ImportError, SecretError):
        return None
    from base64 import b64encode

    nonce = os.urandom(12)
    return b64encode(nonce + AESGCM(key).encrypt(nonce, data, (kind.bound + ref).encode()))


def _unseal(ref: str, sealed: bytes, kind: Kind) -> bytes:
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise SecretError(f"secret {ref!r} is encrypted and needs the package cryptography", hint=_EXTRA) from None
    from base64 import b64decode

    try:
        raw = b64decode(sealed, validate=True)
        return AESGCM(_file_key(create=False)).decrypt(raw[:12], raw[12:], (kind.bound + ref).encode())
    except (InvalidTag, ValueError):
        message = f"secret {ref!r} cannot be decrypted: the file or the key in the keychain was changed"
        raise SecretError(message, hint=kind.again.format(ref=ref)) from None


def _file_key(*, create: bool) -> bytes:
    from base64 import b64decode, b64encode

    backend = _keychain()
    stored = _ask(backend, "get_password", KEY_SERVICE, KEY_NAME)
    if isinstance(stored, str):
        return b64decode(stored)
    if not create:
        raise SecretError("the key of the file store is not in the keychain", hint="Store the secret again.")
    key = os.urandom(32)
    _ask(backend, "set_password", KEY_SERVICE, KEY_NAME, b64encode(key).decode())
    return key


def _check_private(status: os.stat_result, path: str, mode: int) -> None:
    if status.st_uid != os.geteuid():
        raise SecretError(f"{path} belongs to another user", hint="Remove it, or set SUB_HOME to a directory of yours.")
    if status.st_mode & 0o077:
        raise SecretError(
            f"{path} can be read or changed by other users (mode {stat.S_IMODE(status.st_mode):04o})",
            hint=f"Run: chmod {mode:o} {path}   and replace the secret if others may have read it.",
        )
