"""A request read as a tool call: which operation it is, its arguments, and whether every server would read it so.

What is judged is what goes on: the request is forwarded in its own bytes, once they are known to have one reading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct, json

from subluminal.adapters.http_api.mapping import JSON, PASS, SAFE
from subluminal.adapters.http_api.paths import Path
from subluminal.adapters.http_api.queries import METHOD_OVERRIDE, read_query
from subluminal.contracts.canonical import parse
from subluminal.contracts.digest import sha256_hex
from subluminal.contracts.errors import CanonicalError
from subluminal.contracts.jsontext import quote
from subluminal.http.heads import is_token

if TYPE_CHECKING:
    from subluminal.adapters.http_api.mapping import Mapping, Operation
    from subluminal.http.heads import RequestHead

# Frameworks and servers take another method or another path from these than from the request's first line.
OVERRIDES = frozenset(
    (
        b"x-http-method-override",
        b"x-http-method",
        b"x-method-override",
        b"x-http-path-override",
        b"x-original-url",
        b"x-rewrite-url",
        b"x-original-uri",
        b"x-forwarded-uri",
        b"x-original-method",
        b"x-forwarded-method",
    )
)
_JSON_SPACE = b" \t\r\n"
BODY = "body"
_names = json.Decoder(dict[str, Raw]).decode


class Reading(Struct, eq=False):
    """`operation` None: the mapping has none for it. `doubt`: why there is more than one reading, if so."""

    tool: str
    operation: Operation | None
    parameters: dict[str, str | int]
    doubt: str | None
    passes: bool  # whether it may go on where policy lets it

    @property
    def risk_class(self) -> frozenset[str] | None:
        """None: nothing is known of it."""
        return None if self.operation is None else self.operation.risk_class


def read_target(mapping: Mapping, head: RequestHead, target: bytes) -> Reading:
    """By its head alone. `target` is the request's without what leads to us; visible ASCII that begins with a slash."""
    method = head.method.decode("ascii")
    where, fragment, _ = target.decode("ascii").partition("#")
    text, _, query = where.partition("?")
    path = Path(text)
    doubt = path.doubt or ("a fragment in the target" if fragment else None) or _overriding(head)
    found = None if path.doubt else mapping.find(method, path)
    if found is not None:
        operation, parameters = found
        values, wrong = read_query(query, operation.query, operation.template.parameters)
        return Reading(operation.tool, operation, {**parameters, **values}, doubt or wrong, True)
    sent: dict[str, str | int] = {"path": text}
    if query:
        sent["query"] = query
    near = mapping.nearly(method, path)
    if near is not None:
        return Reading(near.tool, near, sent, doubt or "a path that is not spelled as the mapping has it", True)
    passes = mapping.unmapped == PASS and method in SAFE
    return Reading(f"({method})", None, sent, doubt, passes)


def _overriding(head: RequestHead) -> str | None:
    # Where headers become variables (CGI, WSGI), a dash and an underscore are the same.
    if any(name.lower().replace(b"_", b"-") in OVERRIDES for name, _ in head.headers):
        return "a header that names another method or path"
    return None


def read_body(reading: Reading, head: RequestHead, body: bytes) -> bytes:
    """The arguments as JSON text: parameters, and the members of the body as they were written.

    What stands twice among them the gate finds, as it does in the arguments of any call. `{P,I}` is JSON exactly if
    `{I}` is, so that a body is not made whole by what is put before it.
    """
    members = _members(reading)
    text = body.strip(_JSON_SPACE)
    doubt = doubtful_body(reading, head, len(body))
    if doubt is not None:
        reading.doubt = reading.doubt or doubt
        return b"{" + members + b"}"
    if text[:1] == b"{" and text[-1:] == b"}":
        inner = text[1:-1]
        reading.doubt = reading.doubt or _overridden(text) or _in_another_case(text, reading)
        return b"{" + members + (b"," if members and inner.strip(_JSON_SPACE) else b"") + inner + b"}"
    if text or body:
        try:
            parse(text)
        except CanonicalError as fault:
            reading.doubt = reading.doubt or f"body: {fault.kind}"
            return b"{" + members + b"}"
        members += b"," if members else b""
        return b"{" + members + b'"' + BODY.encode() + b'":' + text + b"}"
    return b"{" + members + b"}"


def unread_hash(reading: Reading, body_hash: str) -> str:
    """What tells one call from another where its body is not read: the body's hash, with what the target says."""
    return sha256_hex(b"{%b}%b" % (_members(reading), body_hash.encode()))


def _members(reading: Reading) -> bytes:
    return ",".join(f"{quote(name)}:{_text(value)}" for name, value in reading.parameters.items()).encode()


def doubtful_body(reading: Reading, head: RequestHead, size: int) -> str | None:
    """Why a body of this size has no single reading whatever it says."""
    if not size:
        return None
    if reading.operation is None or reading.operation.body != JSON:
        return "a body where none is expected"
    coding = head.said(b"content-encoding")
    if coding is not None and coding.strip(b" \t").lower() != b"identity":
        return "an encoded body"
    if not _is_json(head.said(b"content-type")):
        return "a body whose type is not JSON"
    return None


def _is_json(kind: bytes | None) -> bool:
    """`application/json` and its relatives (`application/merge-patch+json`), in UTF-8."""
    name, _, rest = (kind or b"").lower().replace(b" ", b"").partition(b";")
    if rest not in (b"", b"charset=utf-8", b'charset="utf-8"'):
        return False
    subtype = name.removeprefix(b"application/")
    return subtype != name and is_token(subtype) and (subtype == b"json" or subtype.endswith(b"+json"))


def _overridden(text: bytes) -> str | None:
    """A member `_method` makes another method of it in some frameworks. Parsed only where it may be there."""
    if METHOD_OVERRIDE.encode() not in text.lower() and b"\\u" not in text:
        return None
    try:
        value = parse(text)
    except CanonicalError:
        return None  # the gate says what is wrong
    named = isinstance(value, dict) and any(str(key).casefold() == METHOD_OVERRIDE for key in value)
    return "another method in the body" if named else None


def _in_another_case(text: bytes, reading: Reading) -> str | None:
    """Servers that know no case (Go, .NET) take the last of two such members; C strings end at NUL."""
    try:
        names = _names(text)
    except (ValueError, RecursionError):
        return None  # the gate says what is wrong
    seen: set[str] = set(map(_folded, reading.parameters))
    for name in names:
        folded = _folded(name)
        if folded in seen:
            return "a member of the body that is given twice"
        seen.add(folded)
    return None


def _folded(name: str) -> str:
    return name.partition("\0")[0].strip().casefold()


def _text(value: Any) -> str:
    return str(value) if isinstance(value, int) else quote(value)
