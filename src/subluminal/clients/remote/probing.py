"""Asking servers behind URLs whether they want a login: one `initialize` each, all at once, within a few seconds.

Nothing of the user's is sent: no header of the entry, no login. Nothing is followed: a redirect is an answer. A server
may send whatever it likes for as long as it likes; nobody waits longer than `DEADLINE_S` for all of them.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic
from urllib.parse import urlsplit

from subluminal import __version__
from subluminal.clients.remote.asking import Answer

DEADLINE_S = 5.0
TELL_AFTER_S = 2.0
# A repository could name any number of servers, of anybody.
MAX_ASKED = 64
_PARAMS = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "subluminal", "version": __version__},
}
_BODY = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": _PARAMS}).encode()
_HEADERS = {
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
    "Connection": "close",
    "User-Agent": f"subluminal/{__version__}",
}
_TOO_SLOW = Answer(fault=f"did not answer within {DEADLINE_S:.0f} seconds")


def ask(addresses: Iterable[str], slow: Callable[[int], None] = lambda waiting: None) -> dict[str, Answer]:
    """What each server said. `slow` is told once how many are waited for, if that takes longer than a moment."""
    wanted = list(dict.fromkeys(addresses))[:MAX_ASKED]
    said: SimpleQueue[tuple[str, Answer]] = SimpleQueue()
    for address in wanted:
        # Daemons: a server that never ends its answer must not keep the command from ending.
        threading.Thread(target=lambda at=address: said.put((at, _ask(at))), daemon=True).start()
    answers: dict[str, Answer] = {}
    started = monotonic()
    _gather(said, answers, len(wanted), started + TELL_AFTER_S)
    if len(answers) < len(wanted):
        slow(len(wanted) - len(answers))
        _gather(said, answers, len(wanted), started + DEADLINE_S)
    return {address: answers.get(address, _TOO_SLOW) for address in wanted}


def _gather(said: SimpleQueue[tuple[str, Answer]], answers: dict[str, Answer], wanted: int, until: float) -> None:
    while len(answers) < wanted and (left := until - monotonic()) > 0:
        with suppress(Empty):
            address, answer = said.get(timeout=left)
            answers[address] = answer


def _ask(address: str) -> Answer:
    parts = urlsplit(address)
    secure = parts.scheme.lower() == "https"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connect = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = connect(parts.hostname or "", parts.port, timeout=DEADLINE_S)
    try:
        connection.request("POST", target, _BODY, _HEADERS)
        response = connection.getresponse()
        return _meaning(response.status, response.getheader("Location"), address)
    except ssl.SSLCertVerificationError as error:
        return Answer(fault=f"shows a certificate that is not trusted ({error.verify_message})")
    except ssl.SSLError:
        return Answer(fault="does not speak TLS as it should")
    except TimeoutError:
        return _TOO_SLOW
    except OSError as error:
        return Answer(fault=f"cannot be reached ({error.strerror or 'no such host'})")
    except (http.client.HTTPException, ValueError):
        return Answer(fault="does not answer as an HTTP server")
    finally:
        connection.close()


def _meaning(status: int, location: str | None, address: str) -> Answer:
    if status == 401:
        return Answer(asks_for_login=True)
    if 300 <= status < 400:
        elsewhere = _is_elsewhere(location or "", address)
        return Answer(fault="sends us to another server" if elsewhere else "sends us to another address")
    if status >= 500:
        return Answer(fault=f"answers with HTTP status {status}")
    return Answer()


def _is_elsewhere(location: str, address: str) -> bool:
    try:
        there, here = urlsplit(location), urlsplit(address)
        return bool(there.netloc) and (there.scheme, there.netloc) != (here.scheme, here.netloc)
    except ValueError:
        return True
