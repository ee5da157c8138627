"""One collector over HTTP: segments to it, cursors from it. A connection is kept as long as it works.

Only a collector's own words count. An ingress without a backend, a captive portal or another service may answer 200 to
whatever it is sent: an answer that is not of the shape that was asked for means "later", never "done".
"""

from __future__ import annotations

import http.client
import os
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, quote, urlsplit

import msgspec

from subluminal.contracts.errors import FleetError, UsageError
from subluminal.fleet.joined import NO_CREDENTIAL

if TYPE_CHECKING:
    from subluminal.fleet.joined import Joined
    from subluminal.fleet.segments import Segment

T = TypeVar("T")
_TIMEOUT_S = 60.0
_MAX_ANSWER_BYTES = 64 << 20
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_LONGEST_WAIT_S = 600.0


class Later(FleetError):
    """Not now: nobody answers, or the answer was to come again. `seconds`: after how long, where it said so."""

    def __init__(self, message: str, seconds: float = 0.0) -> None:
        super().__init__(message)
        self.seconds = seconds


class Refusal(FleetError):
    """Sending it again will not help."""


class Missing(FleetError):
    """What is asked for is not there."""


class NoCredential(FleetError):
    """What the collector is to be shown is not where it should be found."""

    code = NO_CREDENTIAL


class _Acked(msgspec.Struct):
    acked: tuple[int, int]


class _Cursor(msgspec.Struct):
    seq: int


class Address:
    """Where a collector is, and what it is shown. A token is read anew for each request, and a certificate that was
    exchanged on the disk is shown by a new connection: both are renewed while we run."""

    def __init__(
        self,
        url: str,
        *,
        token_file: str | None = None,
        token_env: str | None = None,
        ca_file: str | None = None,
        certificate: tuple[str, str] | None = None,
        timeout_s: float = _TIMEOUT_S,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        parts = _parts(url)
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise UsageError("A collector is reached by https; by http only on this machine.", hint="Use https://…")
        self.url, self._parts = url, parts
        self._token_file, self._token_env = token_file, token_env
        self._ca_file, self._certificate = ca_file, certificate
        self._timeout_s, self._environ = timeout_s, environ
        if certificate is not None and parts.scheme == "http":
            raise UsageError("A client certificate is shown over https alone.", hint="Use https://…")

    @classmethod
    def of(cls, joined: Joined, collector: str) -> Address:
        """As a machine was told when it joined."""
        pair = (joined.client_cert, joined.client_key) if joined.client_cert and joined.client_key else None
        return cls(
            collector,
            token_file=joined.token_file,
            token_env=joined.token_env,
            ca_file=joined.ca_file,
            certificate=pair,
        )

    def files(self) -> list[tuple[int, int, int] | None]:
        """As they are on the disk now: a connection was made with what they held then."""
        return [_facts(path) for path in (self._ca_file, *(self._certificate or ())) if path is not None]

    def refused(self, error: Exception) -> FleetError | None:
        """What a new connection that failed says of our certificate; None: nothing. Some servers say why, and others,
        a collector of ours among them, only end the connection, as one does that is just being ended itself."""
        if self._certificate is None:
            return None
        file = self._certificate[0]
        if isinstance(error, ssl.SSLError) and "ALERT_" in (error.reason or ""):
            said = (error.reason or "").rpartition("ALERT_")[2].lower().replace("_", " ")
            return NoCredential(f"{self.url} does not take the certificate {file}: {said}.")
        if not isinstance(error, ConnectionResetError | ssl.SSLEOFError):
            return None
        if (ended := _expired(file)) is not None:
            return NoCredential(f"The client certificate {file} has expired: {ended}.")
        return Later(f"{self.url} ends the connection without an answer: does it know who signed {file}?")

    def connect(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        try:
            context = ssl.create_default_context(cafile=self._ca_file)
        except OSError as error:
            raise NoCredential(f"{self._ca_file} holds no authority that can be used: {_why(error)}.") from None
        if self._certificate is not None:
            try:
                # A key under a passphrase would be asked for at the terminal of whoever runs the keeper.
                context.load_cert_chain(*self._certificate, password="")
            except OSError as error:
                both = " and ".join(dict.fromkeys(self._certificate))
                hint = "It takes a certificate, and its key without a passphrase, as PEM."
                raise NoCredential(f"The client certificate {both} cannot be used: {_why(error)}.", hint=hint) from None
        return http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=context)

    def headers(self) -> dict[str, str]:
        token = self._token()
        if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
            hint = "It must hold one token and nothing else."
            raise NoCredential(f"{self._token_file or self._token_env} holds no token.", hint=hint)
        return {} if token is None else {"Authorization": f"Bearer {token}"}

    def _token(self) -> str | None:
        if self._token_file is not None:
            try:
                with open(self._token_file, encoding="ascii") as file:
                    return file.read(65_536).strip()
            except (OSError, ValueError):
                hint = "It must hold the token of this machine."
                raise NoCredential(f"{self._token_file} cannot be read.", hint=hint) from None
        if self._token_env is None:
            return None
        token = self._environ.get(self._token_env)
        if not token:
            hint = "It must hold the token of this machine."
            raise NoCredential(f"The variable {self._token_env} is not set where this is shipped from.", hint=hint)
        return token

    def path(self, place: str) -> str:
        return self._parts.path.rstrip("/") + place


def _facts(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _expired(file: str) -> str | None:
    """When the first certificate of a file did, by this machine's clock."""
    from datetime import UTC, datetime

    from cryptography.x509 import load_pem_x509_certificates

    with open(file, "rb") as content:
        until = load_pem_x509_certificates(content.read())[0].not_valid_after_utc
    return f"{until:%Y-%m-%d %H:%MZ}" if until < datetime.now(UTC) else None


def _why(error: OSError) -> str:
    """OpenSSL's words, without its place in its sources."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it is none").lower().replace("_", " ")
    return error.strerror or str(error)


def _parts(url: str) -> SplitResult:
    hint = "Such as https://collector.example."
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UsageError("That is no address of a collector.", hint=hint) from None
    if parts.username is not None or parts.password is not None:
        raise UsageError("The address of a collector has no user and no password in it.", hint=hint)
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.query or port == 0 or not url.isprintable():
        raise UsageError(f"{url[:80]!r} is no address of a collector.", hint=hint)
    return parts


class Collector:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._connection: http.client.HTTPConnection | None = None
        self._made_with: list[tuple[int, int, int] | None] = []

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def send(self, segment: Segment) -> None:
        """Returns once it is committed. Later: it may be or not; send it again. Refusal: it never will be."""
        from subluminal.fleet.segments import encode

        acked = self.post(encode(segment))
        if acked != (segment.first_seq, segment.last_seq):
            wanted, told = f"{segment.first_seq} to {segment.last_seq}", f"{acked[0]} to {acked[1]}"
            raise Later(f"{self._address.url} has acknowledged {told}, and was sent {wanted}.")

    def post(self, body: bytes) -> tuple[int, int]:
        """Which numbers the collector says it has committed."""
        from subluminal.fleet.segments import CONTENT_TYPE

        return self._ask("POST", "/v1/segments", _Acked, body, {"Content-Type": CONTENT_TYPE}).acked

    def cursor(self, run_id: str, shim_id: str) -> int:
        place = f"/v1/cursor?run_id={quote(run_id, safe='')}&shim_id={quote(shim_id, safe='')}"
        return self.get(place, _Cursor).seq

    def get(self, place: str, shape: type[T]) -> T:
        return self._ask("GET", place, shape, None, {})

    def _ask(self, method: str, place: str, shape: type[T], body: bytes | None, headers: dict[str, str]) -> T:
        if self._connection is not None and self._address.files() != self._made_with:
            self.close()
        for attempt in (0, 1):
            fresh = self._connection is None
            try:
                if self._connection is None:
                    self._made_with = self._address.files()
                    self._connection = self._address.connect()
                everything = {**headers, **self._address.headers()}
                self._connection.request(method, self._address.path(place), body, everything)
                answer = self._connection.getresponse()
                text = answer.read(_MAX_ANSWER_BYTES)
                break
            except (OSError, http.client.HTTPException) as error:
                self.close()
                # A connection that was kept may have been closed meanwhile; a new one tells how things are.
                if fresh or attempt:
                    if (refused := self._address.refused(error)) is not None:
                        raise refused from None
                    raise Later(f"{self._address.url} cannot be reached: {error}.") from None
        if answer.will_close:
            self.close()
        if answer.status != 200:
            raise self._told(answer, text)
        try:
            return msgspec.json.decode(text, type=shape)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise Later(f"{self._address.url} does not answer as a collector does.") from None

    def _told(self, answer: http.client.HTTPResponse, text: bytes) -> FleetError:
        told = _object(text)
        is_collector = "error" in told
        why = str(told.get("error", ""))[:500] or f"it answered {answer.status}"
        if answer.status in (429, 503):
            return Later(why, _seconds(answer.getheader("Retry-After")))
        # A proxy on the way may have a bound of its own for bodies: halves of a segment are smaller.
        if answer.status == 413 or (answer.status in (400, 422) and is_collector):
            return Refusal(why)
        if answer.status in (401, 403):
            return FleetError(f"{self._address.url}: {why}", hint="Look at the token or certificate of this machine.")
        if answer.status == 404 and is_collector:
            return Missing(why, hint=told.get("hint"))
        return Later(f"{self._address.url}: {why}")


def _object(text: bytes) -> dict[str, Any]:
    """What is said in an answer, if it is a JSON object."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}


def _seconds(text: str | None) -> float:
    return min(float(text), _LONGEST_WAIT_S) if text is not None and text.isascii() and text.isdigit() else 0.0
