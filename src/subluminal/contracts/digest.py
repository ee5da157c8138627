"""Hashes for the shim: OpenSSL's SHA-256 is fast on long input but costs 3.7 MB of memory and a library load.

Python's own SHA-256 is as fast up to some hundred bytes, which is what most calls have. So OpenSSL is loaded with the
first input long enough to gain from it, and a shim that only sees small calls stays small. The C part, where it was
built, hashes small input, and up to 64 KiB on a processor with instructions for it: as fast as OpenSSL, without it.
"""

from __future__ import annotations

from subluminal.native.chosen import core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

try:
    from _sha256 import sha256 as _own  # until Python 3.11
except ImportError:
    try:
        from _sha2 import sha256 as _own
    except ImportError:
        from hashlib import sha256 as _own

try:
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

__all__ = ["blake2b", "sha256", "sha256_hex", "sha256_hex_once"]

# Above this, OpenSSL is faster (0.6 us against 4.8 us for 300 bytes).
_OWN_BYTES = 160
# A one-time hash at start-up, of a policy file say, is no reason to load OpenSSL.
_OWN_ONCE_BYTES = 128 * 1024

_openssl: Callable[[bytes], Any] | None = None


def sha256(data: bytes = b"") -> Any:
    """A running hash for long input."""
    global _openssl
    if _openssl is None:
        from hashlib import sha256 as openssl

        _openssl = openssl
    return _openssl(data)


def _sha256_hex(data: bytes) -> str:
    text: str = (_own(data) if len(data) <= _OWN_BYTES else sha256(data)).hexdigest()
    return text


sha256_hex: Callable[[bytes], str] = _sha256_hex if core is None else core.bound("sha256_hex", _sha256_hex)


def sha256_hex_once(data: bytes) -> str:
    text: str = (_own(data) if len(data) <= _OWN_ONCE_BYTES else sha256(data)).hexdigest()
    return text
