"""One POST of OTLP over HTTP. A redirect is not followed: what a machine tells goes where its owner said.

2xx                          done; what the receiver says it did not take is told to the caller
408, 425, 429, 5xx, nobody   later, after Retry-After where one is given
anything else                this batch will never be taken: it is given up, with a sentence
"""

from __future__ import annotations

import gzip
import http.client
from urllib.parse import urlsplit

from subluminal.contracts.errors import SubluminalError

TIMEOUT_S = 10.0
RETRY_S = 5.0
MOST_RETRY_S = 300.0
_MAX_ANSWER_BYTES = 64 << 10
_LATER = (408, 425, 429)


class Later(SubluminalError):
    """Nobody took it; nothing is lost by asking again after `seconds`."""

    def __init__(self, message: str, seconds: float = RETRY_S) -> None:
        super().__init__(message, hint="It is sent again by itself.")
        self.seconds = seconds


class NotTaken(SubluminalError):
    hint = "Look at the endpoint in [telemetry] of config.toml, and at what the receiver logs."


def post(endpoint: str, path: str, body: bytes, headers: dict[str, str]) -> bytes:
    """The receiver's answer, an Export*ServiceResponse."""
    target = urlsplit(endpoint)
    kind = http.client.HTTPSConnection if target.scheme == "https" else http.client.HTTPConnection
    connection = kind(target.hostname or "", target.port, timeout=TIMEOUT_S)
    told = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip", **headers}
    try:
        connection.request("POST", target.path + path, gzip.compress(body, 1), told)
        answer = connection.getresponse()
        raw = answer.read(_MAX_ANSWER_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise Later(f"no telemetry receiver answers at {target.hostname}: {_why(error)}") from None
    finally:
        connection.close()
    if 200 <= answer.status < 300:
        return raw
    if answer.status in _LATER or answer.status >= 500:
        raise Later(f"the telemetry receiver answered {answer.status}", _seconds(answer.getheader("Retry-After")))
    raise NotTaken(f"the telemetry receiver refused a batch with {answer.status}")


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__


def _seconds(text: str | None) -> float:
    """A date is not read: the receivers that give one have a clock of their own."""
    return min(float(text), MOST_RETRY_S) if text and text.isascii() and text.isdecimal() else RETRY_S
