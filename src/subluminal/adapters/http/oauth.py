"""Logins that clients do themselves, through us: only where they are told of our address is anything rewritten.

A client asks for a token for the resource it talks to, and that is our public URL; both `resource` in a server's
metadata and `resource_metadata` in its challenge must name it. Everything else passes: issuers, scopes, step-up. A
`resource` that is not the server's own stays: it is for the client to see that its token would be used elsewhere.
"""

from __future__ import annotations

import re

from subluminal.contracts.errors import SubluminalError
from subluminal.contracts.jsontext import to_json
from subluminal.http.heads import Headers
from subluminal.http.urls import ServerUrl, read_url
from subluminal.logins.addresses import Address, covers
from subluminal.mcp.message.reading import read_value

PROTECTED = "/.well-known/oauth-protected-resource"
AUTHORIZATION = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")
_METADATA = re.compile(rb'(resource_metadata\s*=\s*)("(?:[^"\\]|\\.)*"|[^\s,]+)', re.IGNORECASE)


def rewritten_challenge(headers: Headers, metadata_url: str) -> Headers:
    """`WWW-Authenticate` with our address of the metadata; all other parameters as they are."""
    ours = b'"' + metadata_url.encode() + b'"'
    return [
        (name, _METADATA.sub(lambda found: found.group(1) + ours, value))
        if name.lower() == b"www-authenticate"
        else (name, value)
        for name, value in headers
    ]


def named_metadata(headers: Headers) -> str | None:
    """Where a challenge says that the metadata is."""
    for name, value in headers:
        found = _METADATA.search(value) if name.lower() == b"www-authenticate" else None
        if found is not None:
            return found.group(2).strip(b'"').decode("latin-1")
    return None


def rewritten_metadata(body: bytes, server: ServerUrl, public_url: str) -> bytes | None:
    """Metadata of the protected resource, with our address as the resource; None: it is no such thing."""
    value = read_value(body)
    if not isinstance(value, dict):
        return None
    if not _is_of(server, value.get("resource")):
        return body
    return to_json({**value, "resource": public_url}).encode()


def old_server_metadata(server: ServerUrl, public_url: str) -> bytes:
    """Of a server that has none. Before 2025-06-18 a server was its own authorization server: clients would take us for
    it, and refuse what it says of itself."""
    return to_json({"resource": public_url, "authorization_servers": [str(server.origin)]}).encode()


def _is_of(server: ServerUrl, resource: object) -> bool:
    try:
        named = read_url(resource) if isinstance(resource, str) else None
    except SubluminalError:
        return False
    return named is not None and covers(_address(named), _address(server))


def _address(url: ServerUrl) -> Address:
    return Address(url.origin.scheme, url.origin.host, url.origin.port, url.path, "")
