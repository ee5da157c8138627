"""Where a server's tokens come from: asked of the server itself, then of the authorization server that it names.

In this order: `resource_metadata` of the challenge to a request without a token; the well-known places of the resource
(RFC 9728), with its path and without; the well-known places of the authorization server (RFC 8414, OpenID). A server of
2025-03-26 has no resource metadata: its own origin is then the authorization server.

A server may name any authorization server, but the token that is asked for is for the server itself, and an
authorization server speaks for nobody but its own issuer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from subluminal.contracts.errors import LoginError
from subluminal.logins import fetch
from subluminal.logins.addresses import Address, AddressError, covers, named_by, read
from subluminal.logins.challenge import bearer
from subluminal.logins.scopes import readable
from subluminal.logins.wording import said

MAX_ISSUERS = 3
_RESOURCE = "/.well-known/oauth-protected-resource"
_OAUTH = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"
_ASK_WITHOUT_TOKEN = msgspec.json.encode({
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "subluminal", "version": "0"},
    },
})  # fmt: skip


class Discovered(NamedTuple):
    """URLs in it are checked."""

    server: Address
    resource: str
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str | None
    revocation_endpoint: str | None
    scopes: tuple[str, ...]
    auth_methods: tuple[str, ...] | None  # of the token endpoint; None: not said
    names_itself: bool  # its redirects carry `iss` (RFC 9207)


def scopes_wanted(www_authenticate: str | Iterable[str]) -> str | None:
    """The scopes that a server wants on top (`error="insufficient_scope"`); None if this is not what it says."""
    parameters = bearer(www_authenticate)
    if parameters is None or parameters.get("error") != "insufficient_scope":
        return None
    return " ".join(readable(parameters.get("scope"))) or None


def discover(url: str) -> Discovered:
    server = server_address(url)
    answer = fetch.request("POST", server, _HEADERS, _ASK_WITHOUT_TOKEN, want_body=False)
    if answer.status in (404, 405):  # HTTP+SSE of 2024-11-05 begins with a GET
        answer = fetch.request("GET", server, {"Accept": "text/event-stream"}, want_body=False)
    if 300 <= answer.status < 400:
        to = said(answer.location)
        raise LoginError(
            f"{server.resource} sends elsewhere: {to}", hint="If you trust it, use that address with --url."
        )
    parameters = bearer(answer.challenges) or {}
    document = _resource_document(server, parameters.get("resource_metadata"))
    if document is None and answer.status in (404, 410):  # its origin may have logins, but for something else
        raise LoginError(
            f"there is no server at {server.resource} (status {answer.status})",
            hint="Look at the address: the end of its path is easily forgotten, such as /mcp.",
        )
    issuers = _issuers(server, document)
    stands_in = not issuers
    resource = server.resource if document is None else document["resource"]
    scopes = readable(parameters.get("scope")) or readable((document or {}).get("scopes_supported"))
    for issuer in issuers or [server.origin]:
        metadata = _metadata(server, issuer, stands_in)
        if metadata is not None:
            return _of_metadata(server, resource, scopes, metadata)
    if document is not None:
        raise LoginError(f"the authorization server of {server.resource} publishes no metadata")
    if answer.status != 401:
        hint = "If it needs a token all the same: --token-env VARIABLE."
        raise LoginError(f"{server.resource} asks for no login (status {answer.status})", hint=hint)
    return _of_old_server(server, scopes)


_HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


def server_address(url: str) -> Address:
    try:
        return read(url)
    except AddressError as error:
        hint = "A URL such as https://mcp.example.com/mcp; http only for this machine."
        raise LoginError(f"the server's URL {error}", hint=hint) from None


def _resource_document(server: Address, named: str | None) -> dict[str, Any] | None:
    path = server.path.rstrip("/")
    places = [server._replace(path=_RESOURCE + path, query=""), server._replace(path=_RESOURCE, query="")]
    if named is not None:
        places.insert(0, _named(server, named, "resource_metadata"))
    for place in dict.fromkeys(places):
        document = _document(place)
        if document is not None and "resource" in document:
            return _for_server(server, document)
    return None


def _for_server(server: Address, document: dict[str, Any]) -> dict[str, Any]:
    resource = _named(server, document["resource"], "resource")
    if not covers(resource, server):
        message = f"{server.resource} says that its tokens are for {resource.resource}, which is another server"
        raise LoginError(message, hint="A token made for it could be used elsewhere. Ask whoever runs the server.")
    return document


def _issuers(server: Address, document: dict[str, Any] | None) -> list[str]:
    """Those that it names; none: the server stands in for one."""
    named = (document or {}).get("authorization_servers")
    if not isinstance(named, list) or not named:
        return []
    for issuer in named[:MAX_ISSUERS]:
        if _named(server, issuer, "authorization_servers").query:
            raise LoginError(f"the authorization server of {server.resource} has a query in its name")
    return [str(issuer) for issuer in named[:MAX_ISSUERS]]


def _metadata(server: Address, issuer: str, stands_in: bool) -> dict[str, Any] | None:
    for place in _metadata_places(named_by(server, issuer)):
        document = _document(place)
        if document is not None and "authorization_endpoint" in document:
            if not _speaks_for(server, issuer, document.get("issuer"), stands_in):
                other = said(document.get("issuer")) or "nobody"
                raise LoginError(f"what {place.origin} publishes for {issuer} is of another issuer: {other}")
            return document
    return None


def _speaks_for(server: Address, issuer: str, own_name: object, stands_in: bool) -> bool:
    """A server that stands in for an authorization server may call itself by a path of its own."""
    if str(own_name).rstrip("/") == issuer.rstrip("/"):
        return True
    try:
        return stands_in and named_by(server, own_name).origin == server.origin
    except AddressError:
        return False


def _metadata_places(issuer: Address) -> Iterator[Address]:
    path = issuer.path.rstrip("/")
    yield issuer._replace(path=_OAUTH + path)
    yield issuer._replace(path=_OPENID + path)
    if path:
        yield issuer._replace(path=path + _OPENID)


def _of_metadata(server: Address, resource: str, scopes: tuple[str, ...], metadata: dict[str, Any]) -> Discovered:
    issuer = str(metadata["issuer"])
    methods = metadata.get("code_challenge_methods_supported")
    if not isinstance(methods, list) or "S256" not in methods:
        message = f"{issuer} does not support PKCE with S256, without which a login could be stolen on its way"
        raise LoginError(message, hint="Ask whoever runs it; or get a token yourself and use --token-env VARIABLE.")
    if scopes and "offline_access" in readable(metadata.get("scopes_supported")):
        scopes = tuple(dict.fromkeys((*scopes, "offline_access")))  # else there is no refresh token
    auth_methods = metadata.get("token_endpoint_auth_methods_supported")
    return Discovered(
        server,
        resource,
        issuer,
        _endpoint(server, metadata, "authorization_endpoint"),
        _endpoint(server, metadata, "token_endpoint"),
        _endpoint(server, metadata, "registration_endpoint") if metadata.get("registration_endpoint") else None,
        _endpoint(server, metadata, "revocation_endpoint") if metadata.get("revocation_endpoint") else None,
        scopes,
        tuple(m for m in auth_methods if isinstance(m, str)) if isinstance(auth_methods, list) else None,
        metadata.get("authorization_response_iss_parameter_supported") is True,
    )


def _of_old_server(server: Address, scopes: tuple[str, ...]) -> Discovered:
    """The default endpoints of 2025-03-26."""
    at = server.origin
    ends = (f"{at}/authorize", f"{at}/token", f"{at}/register")
    return Discovered(server, server.resource, at, *ends, None, scopes, None, False)


def _endpoint(server: Address, metadata: dict[str, Any], key: str) -> str:
    _named(server, metadata.get(key), key)
    return str(metadata[key])


def _named(server: Address, url: object, key: str) -> Address:
    try:
        return named_by(server, url)
    except AddressError as error:
        raise LoginError(f"{server.resource} cannot be logged in at: its {key} {error}") from None


def _document(place: Address) -> dict[str, Any] | None:
    reply = fetch.get(place)
    return reply.json() if reply.status == 200 else None
