"""Projected service-account tokens of Kubernetes: a JWT of the cluster's issuer for our audience, checked against the
issuer's keys (JWKS, from a file or a URL). The namespace is the tenant, the pod the machine.

What a header of a token says of itself is believed as far as it must be: `kid` picks a key, and the algorithm is that
of the key. Only RS256 and ES256, which clusters use.
"""

from __future__ import annotations

import base64
import binascii
import threading
import time
from typing import Any
from urllib.request import Request, urlopen

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from subluminal.contracts.errors import ConfigError
from subluminal.fleet.collector.credentials import SHIP, Caller

_MAX_TOKEN_CHARS = 16_384
_MAX_KEYS_BYTES = 1 << 20
# Clocks of nodes and of the collector may differ by this much.
LEEWAY_S = 60
# Keys are asked for again after this long, and not more often than this for a `kid` that is not known.
_KEYS_KEPT_S, _AGAIN_S = 3600.0, 30.0

Key = rsa.RSAPublicKey | ec.EllipticCurvePublicKey


class ServiceAccounts:
    def __init__(self, issuer: str, audience: str, jwks: str) -> None:
        self._issuer, self._audience, self._jwks = issuer, audience, jwks
        self._lock = threading.Lock()
        self._keys: dict[str, Key] = {}
        self._asked_at = float("-inf")
        self._refresh()
        if not self._keys:
            raise ConfigError(f"{jwks} has no key that can be used.", hint="Name the JWKS of the cluster's issuer.")

    def __call__(self, token: str) -> Caller | None:
        claims = self._claims(token)
        return None if claims is None else self._caller(claims)

    def _claims(self, token: str) -> dict[str, Any] | None:
        parts = token.split(".")
        if len(token) > _MAX_TOKEN_CHARS or len(parts) != 3:
            return None
        try:
            header, payload = (msgspec.json.decode(_bytes(part)) for part in parts[:2])
            signature = _bytes(parts[2])
        except (ValueError, msgspec.MsgspecError, RecursionError):
            return None
        if not isinstance(header, dict) or not isinstance(payload, dict) or "crit" in header:
            return None
        key = self._key(header.get("kid"))
        signed = f"{parts[0]}.{parts[1]}".encode("ascii", "replace")
        return payload if key is not None and _is_signed(key, header.get("alg"), signed, signature) else None

    def _caller(self, claims: dict[str, Any]) -> Caller | None:
        audiences = claims.get("aud")
        audiences = [audiences] if isinstance(audiences, str) else audiences
        now = time.time()
        expires, begins = claims.get("exp"), claims.get("nbf", 0)
        if not isinstance(expires, (int, float)) or not isinstance(begins, (int, float)):
            return None
        if now > expires + LEEWAY_S or now < begins - LEEWAY_S or claims.get("iss") != self._issuer:
            return None
        if not isinstance(audiences, list) or self._audience not in audiences:
            return None
        place = claims.get("kubernetes.io")
        if not isinstance(place, dict):
            return None
        pod = place.get("pod")
        namespace, name = place.get("namespace"), pod.get("name") if isinstance(pod, dict) else None
        if not isinstance(namespace, str) or not isinstance(name, str):
            return None
        uid = pod.get("uid") if isinstance(pod, dict) else None
        machine = f"{name}:{uid}" if isinstance(uid, str) and uid else name
        return Caller(namespace, machine, frozenset((SHIP,)))

    def _key(self, kid: Any) -> Key | None:
        with self._lock:
            age = time.monotonic() - self._asked_at
            if age > _KEYS_KEPT_S or (kid not in self._keys and age > _AGAIN_S):
                self._refresh()
            return self._keys.get(kid) if isinstance(kid, str) else None

    def _refresh(self) -> None:
        """Keys that cannot be had leave the last good ones in force."""
        self._asked_at = time.monotonic()
        try:
            self._keys = _public_keys(_read(self._jwks))
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            if not self._keys:
                raise ConfigError(f"The keys of the issuer cannot be read from {self._jwks}: {error}.") from None


def _read(place: str) -> bytes:
    if place.startswith(("https://", "http://127.0.0.1", "http://localhost", "http://[::1]")):
        with urlopen(Request(place, headers={"accept": "application/json"}), timeout=10) as answer:
            return bytes(answer.read(_MAX_KEYS_BYTES))
    with open(place, "rb") as file:
        return file.read(_MAX_KEYS_BYTES)


def _public_keys(text: bytes) -> dict[str, Key]:
    found: dict[str, Key] = {}
    for entry in msgspec.json.decode(text, type=dict[str, Any]).get("keys", ()):
        kid = entry.get("kid")
        if not isinstance(kid, str) or entry.get("use", "sig") != "sig":
            continue
        if entry.get("kty") == "RSA":
            found[kid] = rsa.RSAPublicNumbers(_number(entry["e"]), _number(entry["n"])).public_key()
        elif entry.get("kty") == "EC" and entry.get("crv") == "P-256":
            numbers = ec.EllipticCurvePublicNumbers(_number(entry["x"]), _number(entry["y"]), ec.SECP256R1())
            found[kid] = numbers.public_key()
    return found


def _is_signed(key: Key, algorithm: Any, signed: bytes, signature: bytes) -> bool:
    try:
        if isinstance(key, rsa.RSAPublicKey):
            if algorithm != "RS256" or key.key_size < 2048:
                return False
            key.verify(signature, signed, padding.PKCS1v15(), SHA256())
            return True
        if algorithm != "ES256" or len(signature) != 64:
            return False
        r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
        key.verify(encode_dss_signature(r, s), signed, ec.ECDSA(SHA256()))
        return True
    except InvalidSignature:
        return False


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def _number(text: str) -> int:
    return int.from_bytes(_bytes(text), "big")
