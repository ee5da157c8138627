"""Projected service-account tokens of Kubernetes: a JWT of the cluster's issuer for our audience, checked against the
issuer's keys (`issuer_keys`). The namespace is the tenant, the pod the machine.

What a header of a token says of itself is believed as far as it must be: `kid` picks a key, and the algorithm is that
of the key. Only RS256 and ES256, which clusters use.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from subluminal.fleet.collector.credentials import SHIP, Caller
from subluminal.fleet.collector.issuer_keys import IssuerKeys, Key, decoded

_MAX_TOKEN_CHARS = 16_384
# Clocks of nodes and of the collector may differ by this much.
LEEWAY_S = 60


class ServiceAccounts:
    def __init__(self, issuer: str, audience: str, jwks: str) -> None:
        self._issuer, self._audience = issuer, audience
        self._keys = IssuerKeys(jwks)

    def __call__(self, token: str) -> Caller | None:
        claims = self._claims(token)
        return None if claims is None else self._caller(claims)

    def _claims(self, token: str) -> dict[str, Any] | None:
        parts = token.split(".")
        if len(token) > _MAX_TOKEN_CHARS or len(parts) != 3:
            return None
        try:
            header, payload = (msgspec.json.decode(decoded(part)) for part in parts[:2])
            signature = decoded(parts[2])
        except (ValueError, msgspec.MsgspecError, RecursionError):
            return None
        if not isinstance(header, dict) or not isinstance(payload, dict) or "crit" in header:
            return None
        kid = header.get("kid")
        key = self._keys.find(kid) if isinstance(kid, str) else None
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
