"""The address of a server that is reached over HTTP: whether it can be used, and what in it nobody may see.

A URL may be a credential itself (a password before the host, a key in the query, a long random segment of the path).
What is shown, recorded and confirmed is its `public_form`: scheme, host, port and path. Imported for such servers only.
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, parse_qsl, urlsplit

from subluminal.contracts.errors import ConfigError
from subluminal.host.secrets.credential_names import is_credential_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Servers and proxies on the way take 8 KiB at most.
MAX_URL_BYTES = 8192
_ALLOWED = re.compile(r"[!#-;=?-\[\]_a-z~]*")  # printable ASCII without space, quotes, < > \ ^ ` { | }
_QUERY_NAMES = frozenset(("code", "sig", "signature", "k", "t", "jwt", "session", "sid"))
_TOKEN_SEGMENT = re.compile(r"(?=(?:[^0-9]*[0-9]){3})(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9_=~.+-]{24,}")


def address_of(environ: Mapping[str, str], url: str | None, url_env: str | None) -> str:
    """The URL that the options of a shim name. Raises `ConfigError`, in which no part of the URL is told."""
    if url_env is not None:
        url = environ.get(url_env)
        if not url:
            hint = "The server's entry sets it; import the client again: sub import CLIENT."
            raise ConfigError(f"{url_env} is not set, and it should hold the server's URL", hint=hint)
    fault = address_fault(url or "")
    if fault is not None:
        raise ConfigError(f"the server's URL {fault}", hint="For example: --url https://mcp.example/mcp")
    return url or ""


def address_fault(url: str) -> str | None:
    """Why a URL cannot be used, as the end of a sentence; None if it can."""
    if len(url) > MAX_URL_BYTES:
        return f"is longer than {MAX_URL_BYTES} bytes"
    if _ALLOWED.fullmatch(url) is None:
        return "holds characters that a URL cannot have (write them as %XX)"
    scheme = url.partition(":")[0].lower()
    if scheme not in ("http", "https"):
        return f"does not begin with http:// or https:// ({scheme}:)" if scheme in _KNOWN else _NO_SCHEME
    try:
        parts = urlsplit(url)
        if not parts.hostname or parts.port == 0:
            return "names no host"
    except ValueError:
        return "names no host and port that can be read"
    return None


_KNOWN = ("ws", "wss", "unix")
_NO_SCHEME = "does not begin with http:// or https://"


def public_form(url: str) -> str:
    """Scheme, host, port and path, in one spelling; segments that look like tokens are not shown."""
    parts = urlsplit(url)
    path = "/".join("***" if _TOKEN_SEGMENT.fullmatch(segment) else segment for segment in parts.path.split("/"))
    return _origin(parts) + (path or "/")


def confirmed_form(url: str) -> str:
    """What a confirmation is compared with: origin and path as they are, by digest where they hold a token."""
    from subluminal.contracts.digest import sha256_hex

    parts = urlsplit(url)
    path = parts.path or "/"
    shown = public_form(url)
    return shown if "***" not in shown else f"{shown}#sha256={sha256_hex(path.encode())}"


def _origin(parts: SplitResult) -> str:
    scheme = parts.scheme.lower()
    host = (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    port = parts.port
    return f"{scheme}://{host}" + ("" if port in (None, 443 if scheme == "https" else 80) else f":{port}")


def secret_parts(url: str) -> list[str]:
    """What in a URL may be a credential: to be masked, and never to stand on a command line."""
    parts = urlsplit(url)
    found = [part for part in (parts.username, parts.password) if part]
    for name, value in parse_qsl(parts.query, keep_blank_values=False, max_num_fields=1000):
        if is_credential_name(name) or name.lower() in _QUERY_NAMES or _TOKEN_SEGMENT.fullmatch(value):
            found.append(value)
    found += [segment for segment in parts.path.split("/") if _TOKEN_SEGMENT.fullmatch(segment)]
    return found
