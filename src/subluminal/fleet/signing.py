"""One policy file signed outside of a repository: who signed it, not whether there is a newer one.

What is signed is a line that says what this is, and the file's bytes, so that the signature of anything else made with
the same key is none of a policy. The signature is a small JSON file beside the policy.
"""

from __future__ import annotations

import msgspec

from subluminal.contracts.digest import sha256_hex
from subluminal.contracts.errors import FleetError, VerificationError
from subluminal.fleet.keys import load_private, load_public
from subluminal.host.files import replace_file
from subluminal.policy.compile.bundle import compile_bundle
from subluminal.policy.compile.snapshot import read_source

SUFFIX = ".sig"
_PURPOSE = b"subluminal policy signature 1\n"
_MAX_BYTES = 1 << 14


class Signature(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    policy_id: str
    policy_version: str
    policy_hash: str
    signature: str
    format: int = 1


def key_name(raw: bytes) -> str:
    return sha256_hex(raw)[:16]


def sign_policy(path: str, key: str, passphrase: bytes | None, out: str | None) -> Signature:
    """A policy that does not compile is not signed."""
    source = read_source(path)
    snapshot = compile_bundle(source, path)
    private = load_private(key, passphrase)
    made = Signature(
        key_name(private.public_key().public_bytes_raw()),
        snapshot["policy_id"],
        snapshot["version"],
        snapshot["policy_hash"],
        private.sign(_PURPOSE + source).hex(),
    )
    replace_file(out or path + SUFFIX, msgspec.json.format(msgspec.json.encode(made)) + b"\n", mode=0o644)
    return made


def verify_policy(path: str, key: str, signature: str | None) -> Signature:
    """Raises VerificationError where the file is not exactly what the holder of this key has signed."""
    from cryptography.exceptions import InvalidSignature

    public = load_public(key)
    source = read_source(path)
    stated = _read(signature or path + SUFFIX)
    try:
        public.verify(bytes.fromhex(stated.signature), _PURPOSE + source)
    except (InvalidSignature, ValueError):
        if stated.key != key_name(public.public_bytes_raw()):
            raise VerificationError(f"{path} was signed with another key ({stated.key}).") from None
        hint = "Take the file and its signature from whoever signed it."
        raise VerificationError(f"{path} is not what was signed, or its signature was altered.", hint=hint) from None
    snapshot = compile_bundle(source, path)
    return msgspec.structs.replace(
        stated,
        key=key_name(public.public_bytes_raw()),
        policy_id=snapshot["policy_id"],
        policy_version=snapshot["version"],
        policy_hash=snapshot["policy_hash"],
    )


def _read(path: str) -> Signature:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(_MAX_BYTES), type=Signature)
    except OSError as error:
        raise FleetError(f"{path} cannot be read: {error.strerror}.", hint="`sub policy sign` makes it.") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise VerificationError(f"{path} is no signature of `sub policy sign`.") from None
