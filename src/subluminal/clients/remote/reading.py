"""An entry for a server behind a URL, as the client wrote it or as an import did; or why it cannot be routed.

Both forms are read into the same value: an import is right if the value before is the value after.
"""

from __future__ import annotations

import re

from msgspec import Struct

from subluminal.clients.base import Client, Entry, HttpFields
from subluminal.clients.document import Document
from subluminal.clients.literals import looks_secret
from subluminal.clients.spans import Member, line_of
from subluminal.host.secrets.addresses import address_fault, secret_parts
from subluminal.host.secrets.bindings import CONTROL_VARIABLES, SECRET_PREFIX, is_variable_name
from subluminal.host.secrets.credential_names import is_credential_name
from subluminal.host.secrets.headers import MAX_HEADERS, TRANSPORT_HEADERS, header_fault, is_header_value

# `type` -> what the shim is told. A server of the newer transport is found out without a word.
_TRANSPORTS = {
    "http": "auto", "streamable-http": "auto", "streamable_http": "auto", "streamableHttp": "auto", "remote": "auto",
    "sse": "sse",
}  # fmt: skip
_REFERENCE = re.compile(r"\$\{(?:[a-z]+:)?(\w*)[^}]*\}|\{(?:env|file):([^}]*)\}|\$(\w+)")
# Settings that we do not know and that, by their names, decide who we are to the server or how it is reached.
_DECISIVE = re.compile(r"(?i)auth|header|token|credential|proxy|cert|tls|ssl|socket|tcp|fetch|init$|scopes")


class Remote(Struct, frozen=True):
    """`headers` are names with values as written, `from_environment` names with the variable of the client's own."""

    url: str
    transport: str = "auto"
    headers: tuple[tuple[str, str], ...] = ()
    from_environment: tuple[tuple[str, str], ...] = ()
    bearer: str | None = None

    def in_order(self) -> Remote:
        """Headers have no order: two of these are the same server if they are equal."""
        ordered = tuple(sorted(self.headers)), tuple(sorted(self.from_environment))
        return Remote(self.url, self.transport, *ordered, self.bearer)

    @property
    def has_credentials(self) -> bool:
        if self.bearer or self.from_environment or keeps_a_secret(self.url):
            return True
        own = ((name, value) for name, value in self.headers if name.lower() not in TRANSPORT_HEADERS)
        return any(is_credential_name(n) or _REFERENCE.search(v) or looks_secret(n, v) for n, v in own)


class NotRouted(Struct):
    """Why an entry stays as it is. `fault`: its owner should mend it; else it is only not for us."""

    why: str
    fault: bool = False


def keeps_a_secret(url: str) -> bool:
    """Whether a URL as written, with references in it, may become one that nobody should see."""
    names = ("".join(name or "" for name in match) for match in _REFERENCE.findall(url))
    return any(is_credential_name(name) for name in names) or bool(secret_parts(_without_references(url)))


def _without_references(url: str) -> str:
    bare = _REFERENCE.sub("x", url)
    return bare if bare.startswith(("http:", "https:")) or not _REFERENCE.match(url) else f"https://{bare}"


def read_entry(entry: Entry, client: Client, document: Document) -> Remote | NotRouted:
    """An entry that has a URL and no command."""
    fields = client.http
    if fields is None:
        return NotRouted(f"{client.title} reaches no servers over HTTP from this file")
    for key in (*fields.all_keys, *fields.logins, "type", client.env_key):
        twice = entry.node.all(key)
        if len(twice) > 1:
            return NotRouted(f'has "{key}" twice (line {line_of(document.text, twice[1].start)}); remove one', True)
    other = _unserved(entry, fields)
    if other is not None:
        return other
    if entry.env is not None:
        return NotRouted(
            f'has "{client.env_key}" beside its address, which {client.title} does not use; take it out', True
        )
    url, transport = _address(entry, fields)
    if isinstance(url, NotRouted):
        return url
    return _with_headers(entry, fields, Remote(url, transport), document)


def own_login(entry: Entry, client: Client, document: Document) -> str | None:
    """The setting of a login that the client does itself; None if it does none."""
    for member in entry.node.members:
        if client.http is not None and member.key in client.http.logins and document.raw(member.node) != "false":
            return member.key
    return None


def _unserved(entry: Entry, fields: HttpFields) -> NotRouted | None:
    for member in entry.node.members:
        key = member.key
        if key in ("headersHelper", "http_headers_helper"):
            return NotRouted(f'has "{key}": its headers come from a command, which only the client runs')
        if key not in (*fields.all_keys, *fields.logins) and _DECISIVE.search(key):
            return NotRouted(f'has "{key[:40]}", which Subluminal cannot carry over')
    return None


def _address(entry: Entry, fields: HttpFields) -> tuple[str | NotRouted, str]:
    found = [(key, transport) for key, transport in fields.urls if entry.node.get(key) is not None]
    if not found:
        return NotRouted("names no address", True), ""
    if len(found) > 1:
        return NotRouted(f"has {' and '.join(key for key, _ in found)}; keep one", True), ""
    key, transport = found[0]
    node = entry.node.get(key)
    if node is None or node.kind != "string":
        return NotRouted(f'has "{key}" that is not a string', True), ""
    kind = entry.node.get("type")
    if kind is not None:
        if kind.value not in _TRANSPORTS:
            return NotRouted("is reached in a way that is neither HTTP nor SSE (its type)"), ""
        transport = _TRANSPORTS[kind.value]
    fault = address_fault(_without_references(node.value))
    if fault is not None:
        return NotRouted(f"has an address that {fault}", not fault.endswith(":)")), ""
    return node.value, transport


def _with_headers(entry: Entry, fields: HttpFields, remote: Remote, document: Document) -> Remote | NotRouted:
    headers = _pairs(entry.node.member(fields.headers))
    from_environment = _pairs(entry.node.member(fields.env_headers)) if fields.env_headers else ()
    for found in (headers, from_environment):
        if isinstance(found, NotRouted):
            return found
    assert not isinstance(headers, NotRouted) and not isinstance(from_environment, NotRouted)
    bearer = entry.node.get(fields.bearer) if fields.bearer else None
    if bearer is not None and not _is_passed(bearer.value):
        return NotRouted(f'has "{fields.bearer}" that is not the name of a variable of yours', True)
    for name, variable in from_environment:
        if not _is_passed(variable):
            return NotRouted(f"takes the header {name} from what is not a variable of yours", True)
    table = entry.node.get(fields.headers)
    if table is not None and not table.members and document.text[table.start : table.start + 1] != "{":
        return NotRouted(f'has an empty table "{fields.headers}"; take it out', True)
    if _is_torn(entry, fields, document):
        return NotRouted("is laid out in a way that cannot be edited safely", True)
    token = bearer.value if bearer is not None else None
    return Remote(remote.url, remote.transport, headers, from_environment, token)


def _is_torn(entry: Entry, fields: HttpFields, document: Document) -> bool:
    """Whether a setting that must be set aside is in pieces between braces: `{ oauth.a = 1, oauth.b = 2 }`."""
    if document.dialect != "toml" or not document.text.startswith("{", entry.node.start):
        return False
    aside = (*fields.logins, fields.env_headers, fields.bearer)
    tables = (m.node for m in entry.node.members if m.key in aside and m.node.kind == "table")
    return any(not document.text.startswith("{", table.start) for table in tables)


def _is_passed(variable: str) -> bool:
    ours = variable in CONTROL_VARIABLES or variable.startswith(SECRET_PREFIX)
    return is_variable_name(variable) and not ours


def _pairs(member: Member | None) -> tuple[tuple[str, str], ...] | NotRouted:
    """Headers as they stand in the file. What is wrong is said without the value, and with no name that is none."""
    if member is None:
        return ()
    if member.node.kind != "table":
        return NotRouted(f'has "{member.key}" that is not a table', True)
    if len(member.node.members) > MAX_HEADERS:
        return NotRouted(f"has more than {MAX_HEADERS} headers", True)
    seen: set[str] = set()
    for inner in member.node.members:
        fault = header_fault(inner.key)
        if fault is not None:
            return NotRouted(fault, True)
        if inner.node.kind != "string" or not is_header_value(inner.node.value):
            return NotRouted(f"has a value for the header {inner.key} that no header can have", True)
        if inner.key.lower() in seen:
            return NotRouted(f"has the header {inner.key} twice", True)
        seen.add(inner.key.lower())
    return tuple((inner.key, inner.node.value) for inner in member.node.members)
