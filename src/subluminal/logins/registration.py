"""How we become known to an authorization server: by an id that the user has, or by registering (RFC 7591).

A registration is kept with its login and used again while it fits: the same issuer, the same redirect address (many
servers compare the port), no scope beyond those it was made with.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from subluminal.contracts.errors import LoginError
from subluminal.logins import fetch
from subluminal.logins.addresses import read
from subluminal.logins.discovery import Discovered
from subluminal.logins.kept import Kept, Registered
from subluminal.logins.wording import said

MAX_ID_CHARS = 4096
_METHODS = ("none", "client_secret_basic", "client_secret_post")


def given(client_id: str, client_secret: str, found: Discovered) -> Registered:
    """A client that the user has registered."""
    if not _is_word(client_id):
        raise LoginError("the client id is empty, too long or holds characters that it may not hold")
    if not client_secret:
        return Registered(client_id)
    method = _chosen(found, ("client_secret_basic", "client_secret_post"))
    return Registered(client_id, client_secret, method)


def remembered(kept: Kept | None, found: Discovered, scopes: Sequence[str], now_s: float) -> Registered | None:
    """The client of an earlier login, if it still fits."""
    client = None if kept is None or kept.issuer != found.issuer else kept.client
    if client is None or not client.port:
        return client
    if not set(scopes) <= set(client.scopes) or 0 < client.secret_expires_at <= now_s:
        return None
    return client


def register(found: Discovered, port: int, redirect_uri: str, scopes: Sequence[str]) -> Registered:
    if found.registration_endpoint is None:
        hint = "Register one there by hand (a native app, redirect http://127.0.0.1), then add: --client-id ID"
        raise LoginError(f"{found.issuer} registers no clients by itself", hint=hint)
    method = _chosen(found, _METHODS)
    wanted = {
        "client_name": "Subluminal",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        **({"scope": " ".join(scopes)} if scopes else {}),
    }
    endpoint = read(found.registration_endpoint)
    reply = fetch.post(endpoint, "application/json", msgspec.json.encode(wanted))
    answer = reply.json() or {}
    if reply.status not in (200, 201):
        why = said(answer.get("error_description")) or said(answer.get("error")) or f"status {reply.status}"
        hint = "With a client that you have registered there by hand: --client-id ID"
        raise LoginError(f"{endpoint.origin} did not register us: {why}", hint=hint)
    client_id, secret = answer.get("client_id"), answer.get("client_secret") or ""
    if not _is_word(client_id) or (secret and not _is_word(secret)):
        raise LoginError(f"{endpoint.origin} registered us without a client_id that can be used")
    assert isinstance(client_id, str)
    method = answer.get("token_endpoint_auth_method", method)
    if not secret:
        method = "none"
    elif method not in _METHODS:
        raise LoginError(f"{endpoint.origin} wants us to prove who we are in a way that we do not know: {said(method)}")
    expires = answer.get("client_secret_expires_at")
    expires_at = float(expires) if isinstance(expires, int) and 0 < expires < 1e12 else 0.0
    return Registered(client_id, secret, method, port, list(scopes), expires_at)


def _chosen(found: Discovered, methods: Sequence[str]) -> str:
    """No secret where none is wanted, else the one that the server names first; where it says nothing, ours."""
    offered = found.auth_methods or ()
    if "none" in methods and "none" in offered:
        return "none"
    return next((method for method in offered if method in methods), methods[0])


def _is_word(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_ID_CHARS and all(" " <= c <= "~" for c in value)
