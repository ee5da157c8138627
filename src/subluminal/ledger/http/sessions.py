"""Who may look at the page: one-time links, and the sessions that they become. No I/O, no clock: time is passed in.

A link is 256 bits, good once and for a minute; opening it gives the browser a cookie of 256 other bits. Other servers
on this machine receive that cookie as well (cookies know no ports), so it is never the bearer token, it means nothing
to any other daemon, and it opens nothing by itself: see `guard`.

What was handed out is kept as a keyed hash, so that looking it up tells nothing about it by the time that takes.
"""

from __future__ import annotations

import hmac
import secrets
from threading import Lock

LINK_S = 60.0
# A working day and the evening after it; the browser forgets its cookie when it is closed.
SESSION_S = 24 * 3600.0
MAX_LINKS = 64
MAX_SESSIONS = 64


class Sessions:
    """Links are asked for by the daemon's thread and opened by that of the server."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._lock = Lock()
        self._links: dict[bytes, tuple[float, str, str]] = {}  # until when, where it leads, from which directory
        self._sessions: dict[bytes, tuple[float, str]] = {}  # until when, from which directory

    def _hash(self, kind: bytes, secret: str) -> bytes:
        return hmac.digest(self._key, kind + secret.encode("utf-8", "replace"), "sha256")

    def link(self, path: str, now: float, directory: str = "") -> str:
        """A new code that leads to this path of the page, for whoever works in this directory."""
        code = secrets.token_urlsafe(32)
        with self._lock:
            _keep_young(self._links, MAX_LINKS - 1)
            self._links[self._hash(b"link", code)] = (now + LINK_S, path, directory)
        return code

    def redeem(self, code: str, now: float) -> tuple[str, str] | None:
        """The cookie and the path; None: unknown, too old, or used before."""
        with self._lock:
            until, path, directory = self._links.pop(self._hash(b"link", code), (now, "", ""))
            if until <= now:
                return None
            cookie = secrets.token_urlsafe(32)
            _keep_young(self._sessions, MAX_SESSIONS - 1)
            self._sessions[self._hash(b"session", cookie)] = now + SESSION_S, directory
            return cookie, path

    def holds(self, cookie: str, now: float) -> bool:
        with self._lock:
            return self._sessions.get(self._hash(b"session", cookie), (now, ""))[0] > now

    def directory(self, cookie: str) -> str:
        """Where whoever opened it works; empty: nobody said."""
        with self._lock:
            return self._sessions.get(self._hash(b"session", cookie), (0.0, ""))[1]

    def end(self, cookie: str) -> None:
        with self._lock:
            self._sessions.pop(self._hash(b"session", cookie), None)

    def csrf(self, cookie: str) -> str:
        """What a write of this session carries in its header: only a page of ours can have read it."""
        return self._hash(b"csrf", cookie).hex()


def _keep_young(kept: dict[bytes, tuple[float, str, str]] | dict[bytes, tuple[float, str]], most: int) -> None:
    """Those that came last. Entries are added at the end and live equally long."""
    for old in list(kept)[: max(0, len(kept) - most)]:
        del kept[old]
