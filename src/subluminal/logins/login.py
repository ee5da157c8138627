"""Logging in and out: discovery, registration, the browser, the code for a token, and the store."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import NamedTuple

from oauthlib.common import add_params_to_uri
from oauthlib.oauth2 import WebApplicationClient

from subluminal.contracts.errors import LoginError
from subluminal.logins import grants, kept, registration
from subluminal.logins.addresses import read
from subluminal.logins.discovery import Discovered, discover, server_address
from subluminal.logins.kept import Kept, Note, Registered, reference
from subluminal.logins.redirect import Listener, Redirected
from subluminal.logins.wording import said

_VERIFIER_CHARS = 64


class Wanted(NamedTuple):
    """What the user asked for."""

    name: str
    url: str
    source: str
    scopes: tuple[str, ...] = ()  # none: those that the server names
    client_id: str | None = None
    client_secret: str = ""
    callback_port: int = 0
    timeout_s: float = 300.0

    def __repr__(self) -> str:
        return f"Wanted({self.name!r}, {self.url!r})"


class Page(NamedTuple):
    """What the user has to open. Every part is checked, and can be printed."""

    address: str
    issuer: str
    origin: str
    token_origin: str  # who gets the code, and gives the token
    scopes: tuple[str, ...]


def log_in(wanted: Wanted, show: Callable[[Page], None], pasting: int | None = None) -> Note:
    """`show` is given the page as soon as its redirect can be answered; `pasting`: see `Listener.wait`."""
    kept.check_store(wanted.name, wanted.url, wanted.source)
    found = discover(wanted.url)
    before = _before(wanted)
    scopes = _scopes(wanted, found, before)
    listener, client = _known_as(wanted, found, before, scopes)
    try:
        state = secrets.token_urlsafe(32)
        spelled = WebApplicationClient(client.client_id)
        verifier = spelled.create_code_verifier(_VERIFIER_CHARS)
        address = _address(
            found, client, listener.redirect_uri, state, spelled.create_code_challenge(verifier, "S256"), scopes
        )
        at, tokens = read(found.authorization_endpoint).origin, read(found.token_endpoint).origin
        show(Page(address, found.issuer, at, tokens, scopes))
        redirected = listener.wait(state, wanted.timeout_s, pasting)
    finally:
        listener.close()
    _check_issuer(found, redirected)
    now_s = time.time()
    granted = grants.exchange_code(
        found.token_endpoint, client, redirected.code, verifier, listener.redirect_uri, found.resource
    )
    return _store(
        Kept(
            name=wanted.name,
            url=found.server.resource,
            access_token=granted.access_token,
            refresh_token=granted.refresh_token,
            obtained_at=now_s,
            expires_at=None if granted.lifetime_s is None else now_s + granted.lifetime_s,
            scopes=list(scopes) if granted.scopes is None else granted.scopes,
            resource=found.resource,
            issuer=found.issuer,
            token_endpoint=found.token_endpoint,
            revocation_endpoint=found.revocation_endpoint or "",
            client=client,
        ),
        wanted.source,
    )


def keep_token(name: str, url: str, token: str, source: str) -> Note:
    """A token that the user has from elsewhere: kept and sent as it is, never renewed."""
    resource = server_address(url).resource
    token = grants.check_token(token, "token")
    kind = kept.TOKEN
    return _store(Kept(name=name, url=resource, access_token=token, kind=kind, obtained_at=time.time()), source)


def log_out(note: Note) -> bool:
    """Whether the server has taken its tokens back; they are removed here in any case."""
    ref = reference(note.name, note.url)
    assert ref is not None
    with kept.locked(ref):
        try:
            stored = kept.load(ref)
        except LoginError:
            stored = None  # damaged: nothing to take back, all the more to remove
        revoked = stored is not None and grants.revoke(stored)
        kept.remove(ref)
    return revoked


def _before(wanted: Wanted) -> Kept | None:
    ref = reference(wanted.name, wanted.url)
    try:
        return None if ref is None else kept.load(ref)
    except LoginError:
        return None  # what comes now replaces it


def _scopes(wanted: Wanted, found: Discovered, before: Kept | None) -> tuple[str, ...]:
    """A login for more does not take away what an earlier one has."""
    if not wanted.scopes:
        return found.scopes
    earlier = before.scopes if before is not None and before.issuer == found.issuer else ()
    return tuple(dict.fromkeys((*earlier, *wanted.scopes)))


def _known_as(
    wanted: Wanted, found: Discovered, before: Kept | None, scopes: tuple[str, ...]
) -> tuple[Listener, Registered]:
    """A listener, and the client that may use its address."""
    if wanted.client_id is not None:
        client = registration.given(wanted.client_id, wanted.client_secret, found)
        return Listener(wanted.callback_port), client
    known = registration.remembered(before, found, scopes, time.time())
    listener = _listener(wanted.callback_port, 0 if known is None else known.port)
    try:
        if known is None or known.port not in (0, listener.port):
            known = registration.register(found, listener.port, listener.redirect_uri, scopes)
    except BaseException:
        listener.close()
        raise
    return listener, known


def _listener(asked: int, earlier: int) -> Listener:
    if asked or not earlier:
        return Listener(asked)
    try:
        return Listener(earlier)
    except LoginError:
        return Listener()


def _address(
    found: Discovered, client: Registered, redirect_uri: str, state: str, challenge: str, scopes: tuple[str, ...]
) -> str:
    parameters = [
        ("response_type", "code"),
        ("client_id", client.client_id),
        ("redirect_uri", redirect_uri),
        *([("scope", " ".join(scopes))] if scopes else []),
        ("state", state),
        ("code_challenge", challenge),
        ("code_challenge_method", "S256"),
        ("resource", found.resource),
    ]
    try:
        return str(add_params_to_uri(found.authorization_endpoint, parameters))
    except ValueError:
        raise LoginError(
            f"the authorization_endpoint of {found.issuer} has a query that cannot be understood"
        ) from None


def _check_issuer(found: Discovered, redirected: Redirected) -> None:
    """RFC 9207: a code of one server must not be taken to another."""
    if redirected.iss is None and not found.names_itself:
        return
    if redirected.iss != found.issuer:
        came = said(redirected.iss) or "nobody"
        raise LoginError(f"the login began at {found.issuer} and came back from {came}; its code was not used")


def _store(new: Kept, source: str) -> Note:
    ref = reference(new.name, new.url)
    assert ref is not None
    with kept.locked(ref):
        return kept.store(new, source)
