"""URLs that a user or a server has named: checked before anything is sent to them, shown or opened in a browser.

Only what RFC 3986 allows in a URL passes, so that a checked URL can be printed. `https` is required; `http` is for
this machine alone, and only where the user's own server is on this machine: no server elsewhere leads us to a port of
the user's.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

# With the other bounds of what is kept, a login stays within what a store takes (64 KiB).
MAX_CHARS = 2048
_DEFAULT_PORTS = {"https": 443, "http": 80}
_ALLOWED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/?#[]@!$&'()*+,;=%")


class AddressError(ValueError):
    """What is wrong with a URL, to stand after its name: "is not ..."."""


class Address(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str
    query: str

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}"

    @property
    def target(self) -> str:
        """What stands in a request line."""
        return (self.path or "/") + (f"?{self.query}" if self.query else "")

    @property
    def resource(self) -> str:
        """Origin and path in one spelling: what a token is made for (RFC 8707)."""
        return self.origin + self.path.rstrip("/")

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def read(url: object) -> Address:
    """A URL of any server; AddressError says why it is none that we would talk to."""
    if not isinstance(url, str) or not url or len(url) > MAX_CHARS:
        raise AddressError(f"is not a URL of at most {MAX_CHARS} characters")
    if not _ALLOWED.issuperset(url):
        raise AddressError("holds characters that no URL may hold")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise AddressError("is not a URL") from None
    if parts.scheme not in _DEFAULT_PORTS:
        raise AddressError("is not an https URL")
    if not host or port == 0:
        raise AddressError("names no host that could be reached")
    if parts.username is not None or "@" in parts.netloc:
        raise AddressError("holds a user name or a password")
    if parts.fragment or "#" in url:
        raise AddressError("holds a fragment")
    address = Address(parts.scheme, host, port or _DEFAULT_PORTS[parts.scheme], parts.path, parts.query)
    if address.scheme == "http" and not address.is_loopback:
        raise AddressError("is not https, which everything beyond this machine must be")
    return address


def named_by(server: Address, url: object) -> Address:
    """A URL that a server has named; the same rules, and this machine only if the server itself is here."""
    address = read(url)
    if address.is_loopback and not server.is_loopback:
        raise AddressError("leads to this machine, which no other may name")
    return address


def covers(resource: Address, server: Address) -> bool:
    """Whether a token for `resource` is one for `server`: the same origin, and its path or one above it."""
    if resource.origin != server.origin:
        return False
    above, below = resource.path.rstrip("/"), server.path.rstrip("/")
    return below == above or below.startswith(above + "/")
