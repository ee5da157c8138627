"""Requests at a token endpoint (RFC 6749, 7009, 8707), and what may be taken from their answers.

`oauthlib` spells the requests. Answers are read here: a token goes into a header of every later request, so what cannot
stand in one is refused, and so is every type but Bearer.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any, NamedTuple
from urllib.parse import quote

from oauthlib.oauth2.rfc6749.parameters import prepare_token_request

from subluminal.contracts.errors import LoginError, LoginUnreachable
from subluminal.core.redact.spellings import MIN_SECRET_BYTES
from subluminal.logins import fetch
from subluminal.logins.addresses import read
from subluminal.logins.kept import Kept, Registered
from subluminal.logins.scopes import readable
from subluminal.logins.wording import said

MAX_TOKEN_CHARS = 12 * 1024
MAX_LIFETIME_S = 10 * 366 * 86400
_FORM = "application/x-www-form-urlencoded"


class Granted(NamedTuple):
    access_token: str
    refresh_token: str  # empty: none was given
    lifetime_s: float | None  # None: not said
    scopes: list[str] | None  # None: those that were asked for

    def __repr__(self) -> str:
        return f"Granted(lifetime_s={self.lifetime_s!r}, scopes={self.scopes!r})"


class GrantRefused(LoginError):
    """`code` is the server's word (RFC 6749 §5.2)."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def exchange_code(
    token_endpoint: str, client: Registered, code: str, verifier: str, redirect_uri: str, resource: str
) -> Granted:
    members = {"code": code, "redirect_uri": redirect_uri, "resource": resource}
    return _ask(token_endpoint, client, "authorization_code", members, (code, verifier), code_verifier=verifier)


def refresh(kept: Kept) -> Granted:
    """Without `scope`: the new token is to have what the old one had."""
    assert kept.client is not None
    members = {"refresh_token": kept.refresh_token, "resource": kept.resource}
    return _ask(kept.token_endpoint, kept.client, "refresh_token", members, (kept.refresh_token,))


def revoke(kept: Kept) -> bool:
    """Whether the server says that the tokens are worthless now; False where it cannot be asked."""
    if not kept.revocation_endpoint or kept.client is None:
        return False
    refreshable = bool(kept.refresh_token)
    members = {
        "token": kept.refresh_token or kept.access_token,
        "token_type_hint": "refresh_token" if refreshable else "access_token",
        "client_id": kept.client.client_id,
    }
    body, headers = _authenticated("&".join(f"{k}={quote(v, safe='')}" for k, v in members.items()), kept.client)
    try:
        return fetch.post(read(kept.revocation_endpoint), _FORM, body, headers).status == 200
    except (LoginError, ValueError):
        return False


def check_token(token: object, what: str = "access_token") -> str:
    """A token that can stand in a header and can be masked."""
    if not isinstance(token, str) or not MIN_SECRET_BYTES <= len(token) <= MAX_TOKEN_CHARS:
        raise LoginError(f"the {what} is not a text of {MIN_SECRET_BYTES} to {MAX_TOKEN_CHARS} characters")
    if not all("!" <= c <= "~" for c in token):
        raise LoginError(f"the {what} holds characters that no token may hold")
    return token


def _ask(
    endpoint: str, client: Registered, grant: str, members: dict[str, str], sent: tuple[str, ...], **more: str
) -> Granted:
    form = prepare_token_request(grant, client_id=client.client_id, **members, **more)
    body, headers = _authenticated(form, client)
    reply = fetch.post(read(endpoint), _FORM, body, headers)
    answer = reply.json()
    if reply.status == 200 and answer is not None and "error" not in answer:
        return _granted(answer)
    where = read(endpoint).origin
    if reply.status >= 500 or reply.status in (408, 429):
        raise LoginUnreachable(f"{where} could not give a token now (status {reply.status})")
    code = said((answer or {}).get("error"), (*sent, client.client_secret))
    if not code:
        raise LoginUnreachable(f"{where} gave no token, and no reason that can be understood (status {reply.status})")
    why = said((answer or {}).get("error_description"), (*sent, client.client_secret))
    raise GrantRefused(f"{where} gave no token: {code}{f' ({why})' if why else ''}", code)


def _authenticated(form: str, client: Registered) -> tuple[bytes, dict[str, str]]:
    if client.auth_method == "client_secret_basic":
        pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
        return form.encode(), {"Authorization": "Basic " + b64encode(pair.encode()).decode()}
    if client.auth_method == "client_secret_post":
        form += f"&client_secret={quote(client.client_secret, safe='')}"
    return form.encode(), {}


def _granted(answer: dict[str, Any]) -> Granted:
    kind = answer.get("token_type")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise LoginError(f"the token is of type {said(kind) or 'unknown'}, and only Bearer is understood")
    refresh_token = answer.get("refresh_token")
    return Granted(
        check_token(answer.get("access_token")),
        check_token(refresh_token, "refresh_token") if refresh_token else "",
        _lifetime(answer.get("expires_in")),
        list(readable(answer["scope"])) if isinstance(answer.get("scope"), str) else None,
    )


def _lifetime(value: object) -> float | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        return None  # a token that is never good would be renewed with every call
    return float(min(value, MAX_LIFETIME_S))
