"""One connection to an origin, or a clause that says why there is none."""

from __future__ import annotations

import asyncio
import os
import ssl
from functools import cache

from subluminal.http.outbound import Outbound
from subluminal.http.urls import Origin

# What OpenSSL says when the other side speaks something else, by its version.
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")


class DialFault(Exception):
    """No connection. `why` is a clause for a person."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


async def dial(origin: Origin, context: ssl.SSLContext | None, seconds: float) -> Outbound:
    """Raises DialFault. `context` is for https; without one the system's certificates are trusted."""
    loop = asyncio.get_running_loop()
    secure = origin.scheme == "https"
    try:
        async with asyncio.timeout(seconds):
            _, outbound = await loop.create_connection(
                Outbound,
                origin.host,
                origin.port,
                ssl=(context or system_trust()) if secure else None,
                server_hostname=origin.host if secure else None,
            )
    except TimeoutError:
        raise DialFault(f"no connection to {origin} within {seconds:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise DialFault(f"the certificate of {origin} is not valid: {error.verify_message.rstrip('.')}") from None
    except ssl.SSLError as error:
        raise DialFault(f"no TLS connection to {origin}: {_tls_reason(error)}") from None
    except OSError as error:
        raise DialFault(f"no connection to {origin}: {_reason(error)}") from None
    except ValueError:  # a name that no resolver takes
        raise DialFault(f"no connection to {origin}: its host is not a valid name") from None
    return outbound


@cache
def system_trust() -> ssl.SSLContext:
    """The certificates of the system, or those that SSL_CERT_FILE and SSL_CERT_DIR name. Read once: it takes long."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _tls_reason(error: ssl.SSLError) -> str:
    if error.reason in _NO_TLS:
        return "what answers there does not speak TLS"
    return (error.reason or "the handshake failed").replace("_", " ").lower()


def _reason(error: OSError) -> str:
    """asyncio puts addresses into the texts of its errors, and several errors into one without a number."""
    if isinstance(error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError):
        return "it closed the connection at once"
    if error.errno is None:
        return "it cannot be reached"
    known = os.strerror(error.errno) if error.errno > 0 else error.strerror  # below: of the resolver
    return (known or "it cannot be reached").lower()
