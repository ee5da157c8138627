"""Blocking HTTP for logins: one request, one bounded answer, no surprises.

A request ends within `TOTAL_S`, however slowly the other side talks; a body has at most `MAX_BODY_BYTES`. Redirects are
followed for `GET` only, a few times, and to the same origin only. Proxies of the environment are used as elsewhere, but
not for this machine. Nothing of an answer but its status stands in an error.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from base64 import b64encode
from collections.abc import Mapping
from threading import Timer
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec

from subluminal.contracts.errors import LoginUnreachable
from subluminal.logins.addresses import Address, AddressError, read

IO_S = 10.0
# A server that sends a byte now and then keeps within every timeout of a single read.
TOTAL_S = 20.0
MAX_BODY_BYTES = 1 << 20
MAX_REDIRECTS = 3
_REDIRECTS = (301, 302, 303, 307, 308)


class Reply:
    __slots__ = ("body", "challenges", "content_type", "location", "status")

    def __init__(self, answer: http.client.HTTPResponse, body: bytes | None) -> None:
        self.status = answer.status
        self.content_type = (answer.getheader("Content-Type") or "").partition(";")[0].strip().lower()
        self.location = answer.getheader("Location")
        self.challenges = answer.headers.get_all("WWW-Authenticate") or []
        self.body = body  # None: it was larger than we read

    def json(self) -> dict[str, Any] | None:
        """The JSON object that it is; None for anything else."""
        if self.body is None:
            return None
        try:
            value = msgspec.json.decode(self.body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None
        return value if isinstance(value, dict) else None


def get(url: Address) -> Reply:
    """A document that anybody may read."""
    reply = request("GET", url, {"Accept": "application/json"})
    for _ in range(MAX_REDIRECTS):
        if reply.status not in _REDIRECTS or reply.location is None:
            return reply
        try:
            target = read(urljoin(url.origin + url.target, reply.location))
        except (AddressError, ValueError):
            return reply
        if target.origin != url.origin:
            return reply
        url = target
        reply = request("GET", url, {"Accept": "application/json"})
    return reply


def post(url: Address, content_type: str, body: bytes, headers: Mapping[str, str] | None = None) -> Reply:
    """Redirects are answers here: what is sent is for this address alone."""
    sent = {"Accept": "application/json", "Content-Type": content_type, **(headers or {})}
    return request("POST", url, sent, body)


def request(
    method: str, url: Address, headers: Mapping[str, str], body: bytes | None = None, *, want_body: bool = True
) -> Reply:
    connection = _connection(url)
    end = _End(connection)
    try:
        connection.request(method, url.target, body=body, headers={"User-Agent": "subluminal", **headers})
        answer = connection.getresponse()
        reply = Reply(answer, _body(answer) if want_body else None)
        if end.passed:
            raise TimeoutError  # what was read may be a part of it
        return reply
    except ssl.SSLCertVerificationError as error:
        message = f"the certificate of {url.origin} cannot be trusted: {error.verify_message}"
        raise LoginUnreachable(
            message, hint="Is the address right? A company's own CA is named with SSL_CERT_FILE."
        ) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, TimeoutError) or end.passed:
            raise LoginUnreachable(f"{url.origin} did not answer in time") from None
        why = getattr(error, "strerror", None) or type(error).__name__
        raise LoginUnreachable(f"{url.origin} cannot be reached: {why}") from None
    finally:
        end.timer.cancel()
        connection.close()


class _Https(http.client.HTTPSConnection):
    """Its socket is in `sock` during the handshake too, where `_End` finds it."""

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        name = getattr(self, "_tunnel_host", None) or self.host
        context = ssl.create_default_context()
        self.sock = context.wrap_socket(self.sock, server_hostname=name, do_handshake_on_connect=False)
        self.sock.do_handshake()


def _connection(url: Address) -> http.client.HTTPConnection:
    if url.scheme == "http":  # this machine: no proxy stands in between
        return http.client.HTTPConnection(url.host, url.port, timeout=IO_S)
    proxy = None if url.is_loopback or proxy_bypass(f"{url.host}:{url.port}") else getproxies().get("https")
    if not proxy:
        return _Https(url.host, url.port, timeout=IO_S)
    try:
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        host, port = parts.hostname, parts.port or 80
    except ValueError:
        host = None
    if not host or parts.scheme != "http":
        raise LoginUnreachable("the https proxy of the environment is not of the form http://HOST:PORT", hint=_PROXY)
    connection = _Https(host, port, timeout=IO_S)
    headers = {}
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Proxy-Authorization"] = "Basic " + b64encode(pair.encode()).decode()
    connection.set_tunnel(url.host, url.port, headers)
    return connection


_PROXY = "See HTTPS_PROXY and NO_PROXY."


def _body(answer: http.client.HTTPResponse) -> bytes | None:
    body = answer.read(MAX_BODY_BYTES + 1)
    if len(body) > MAX_BODY_BYTES:
        return None
    if answer.length:  # read(n) does not mind that the rest never came
        raise http.client.IncompleteRead(b"")
    return body


class _End:
    """Ends a connection, and with it whatever waits for it, when its time has passed."""

    __slots__ = ("_connection", "passed", "timer")

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self.passed = False
        self.timer = Timer(TOTAL_S, self._pass)
        self.timer.daemon = True
        self.timer.start()

    def _pass(self) -> None:
        self.passed = True
        sock = self._connection.sock
        if sock is not None:
            try:
                # Of the plain socket: that of TLS would want to say goodbye.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
            except OSError:
                pass
