"""URLs of servers, as an operator writes them: read once, strictly, and kept byte for byte from then on."""

from __future__ import annotations

import re

from msgspec import Struct

from subluminal.contracts.errors import SubluminalError

_URL = re.compile(r"(https?)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?(/[!-~]*|\?[!-~]*)?\Z", re.ASCII)
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Origin(Struct, frozen=True):
    """Where a URL leads: scheme, host and port."""

    scheme: str
    host: str  # without brackets
    port: int

    @property
    def authority(self) -> bytes:
        """For the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}").encode("ascii")

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority.decode()}"


class ServerUrl(Struct, frozen=True):
    """`target` is what a request line has: path and query, exactly as they were written."""

    origin: Origin
    target: str

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    def __str__(self) -> str:
        return f"{self.origin}{self.target}"


def read_url(text: str) -> ServerUrl:
    """Raises SubluminalError with a sentence that does not quote the URL: it may hold a secret."""
    found = _URL.match(text)
    if found is None or "#" in text:
        raise SubluminalError(
            "the server's URL is not understood",
            hint="Write it as https://host[:port]/path, in ASCII, without user name, password or fragment.",
        )
    scheme, host, port, target = found.groups()
    number = int(port) if port else _DEFAULT_PORTS[scheme]
    if not 0 < number < 65536:
        raise SubluminalError("the port in the server's URL is not between 1 and 65535")
    target = target or "/"
    return ServerUrl(Origin(scheme, host.strip("[]").lower(), number), target if target[0] == "/" else "/" + target)
