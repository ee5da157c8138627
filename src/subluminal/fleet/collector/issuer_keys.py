"""The keys of an issuer of tokens (JWKS), from a file or a URL. Only RSA and P-256, which clusters use.

Whoever asks for a key never waits: keys that are due are read by a thread, one reading at a time, with an end. Anybody
may name a key that there is not, and an issuer may be slow; neither holds up anybody else.
"""

from __future__ import annotations

import base64
import binascii
import logging
import threading
import time
from typing import Any
from urllib.request import Request, urlopen

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from msgspec import Struct

from subluminal.contracts.errors import ConfigError
from subluminal.fleet.collector.credentials import NotYet

_MAX_KEYS_BYTES = 1 << 20
# A reading is given up after this long, whatever comes in the meantime.
_READ_S = 10.0
_PIECE_BYTES = 1 << 16
# Keys are read again after this long, and for a `kid` that is not known; not more often than this.
_KEPT_S, _AGAIN_S = 3600.0, 30.0
log = logging.getLogger("subluminal.collector")

Key = rsa.RSAPublicKey | ec.EllipticCurvePublicKey


class _Keys(Struct):
    keys: list[dict[str, Any]]


class IssuerKeys:
    """Keys that cannot be had leave the last good ones in force; at the start there must be some."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._is_reading = False
        self._read_at = time.monotonic()
        self._tried_at = float("-inf")
        try:
            self._keys = _public_keys(_read(place))
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            raise ConfigError(f"The keys of the issuer cannot be read from {place}: {error}.") from None
        if not self._keys:
            raise ConfigError(f"{place} has no key that can be used.", hint="Name the JWKS of the cluster's issuer.")

    def find(self, kid: str) -> Key | None:
        """NotYet: it is not known, and may be in a moment."""
        may_come = self._is_reading  # asked before the keys: they are laid before the reading ends
        key = self._keys.get(kid)
        if key is None or time.monotonic() - self._read_at > _KEPT_S:
            may_come = self._begin() or may_come
        if key is None and may_come:
            raise NotYet("The issuer's keys are being read, and the one of this token may be among them.")
        return key

    def _begin(self) -> bool:
        with self._lock:
            if self._is_reading or time.monotonic() - self._tried_at < _AGAIN_S:
                return False
            self._is_reading, self._tried_at = True, time.monotonic()
        # A daemon: nobody who ends a collector waits for an issuer.
        threading.Thread(target=self._refresh, name="issuer keys", daemon=True).start()
        return True

    def _refresh(self) -> None:
        try:
            self._keys = _public_keys(_read(self._place)) or self._keys
            self._read_at = time.monotonic()
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            log.error("the keys of the issuer cannot be read: %s", type(error).__name__)
        finally:
            self._is_reading = False


def _read(place: str) -> bytes:
    if not place.startswith(("https://", "http://127.0.0.1", "http://localhost", "http://[::1]")):
        with open(place, "rb") as file:
            return file.read(_MAX_KEYS_BYTES)
    until = time.monotonic() + _READ_S
    found = b""
    with urlopen(Request(place, headers={"accept": "application/json"}), timeout=_READ_S) as answer:
        while len(found) < _MAX_KEYS_BYTES and (piece := answer.read1(_PIECE_BYTES)):
            found += piece
            if time.monotonic() > until:
                raise TimeoutError("it took too long")
    return found


def _public_keys(text: bytes) -> dict[str, Key]:
    """A key that is none, or of a kind that is not used here, is passed over: the others hold."""
    found: dict[str, Key] = {}
    for entry in msgspec.json.decode(text, type=_Keys).keys:
        try:
            kid, key = entry["kid"], _public_key(entry)
        except (KeyError, ValueError, TypeError, UnsupportedAlgorithm):
            continue
        if isinstance(kid, str) and key is not None and entry.get("use", "sig") == "sig":
            found[kid] = key
    return found


def _public_key(entry: dict[str, Any]) -> Key | None:
    if entry["kty"] == "RSA":
        return rsa.RSAPublicNumbers(_number(entry["e"]), _number(entry["n"])).public_key()
    if entry["kty"] == "EC" and entry.get("crv") == "P-256":
        return ec.EllipticCurvePublicNumbers(_number(entry["x"]), _number(entry["y"]), ec.SECP256R1()).public_key()
    return None


def decoded(text: str) -> bytes:
    """Base64 as it stands in keys and tokens; ValueError: it is none."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def _number(text: str) -> int:
    return int.from_bytes(decoded(text), "big")
