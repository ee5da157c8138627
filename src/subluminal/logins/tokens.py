"""The token of a server, for whoever talks to it.

    login = find(name, url)                           None: no login for this name at this URL
    login.access_token(now_s)                         the token in force; None if it has expired or will in a moment
    login.refresh(now_s, rejected)                    a new one; blocking, so loops call it in a thread

One refresh at a time over all processes: whoever comes second finds what the first one has stored. A refresh token is
often good for one use only, so the answer is stored before anything else is done with it.
"""

from __future__ import annotations

from msgspec.structs import replace

from subluminal.contracts.errors import LoginError, LoginUnreachable
from subluminal.logins import kept as keeping
from subluminal.logins.addresses import read
from subluminal.logins.kept import Kept, Stamp, reference
from subluminal.logins.wording import login_words
from subluminal.reports.printable import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Login", "LoginError", "LoginUnreachable", "find"]

# A token that expires on its way to the server costs a second request; one that lives for a minute has to be used too.
EARLY_S = 30.0
EARLY_PART = 0.1


def find(name: str, url: str, heard: Callable[[list[str]], None] | None = None) -> Login | None:
    """The login for this name at this URL. A token goes only where it was made for: the origin and path count.

    `heard` is told, in whatever thread, every value that must be masked, before anybody can use it.
    """
    ref = reference(name, url)
    if ref is None or keeping.stamp(ref) is None:
        return None
    login = Login(name, read(url).resource, ref, heard)
    return login if login._current() is not None else None


class Login:
    """`repr` shows no token. `access_token` may be asked while another thread refreshes."""

    __slots__ = ("_heard", "_known", "_ref", "name", "url")

    def __init__(self, name: str, url: str, ref: str, heard: Callable[[list[str]], None] | None = None) -> None:
        self.name = name
        self.url = url
        self._ref = ref
        self._heard = heard
        self._known: tuple[Stamp | None, Kept | None] = (None, None)  # replaced as a whole, never changed

    def __repr__(self) -> str:
        return f"Login({self.name!r}, {self.url!r})"

    def access_token(self, now_s: float) -> str | None:
        """Reads the store only if it has changed."""
        return _in_force(self._current(), now_s)

    def secrets(self) -> list[str]:
        """Every value that must be masked, as it is now."""
        kept = self._current()
        return [] if kept is None else kept.secrets()

    def refresh(self, now_s: float, rejected: str | None = None) -> str:
        """A token other than `rejected`, at the cost of at most one request.

        `LoginUnreachable`: nobody could be asked, and the login is as it was. Any other `LoginError`: the user has to
        log in again, and the sentence says how.
        """
        with keeping.locked(self._ref):
            kept = self._read()
            if kept is None:
                raise LoginError(self._again("is gone"))
            token = _in_force(kept, now_s)
            if token is not None and token != rejected:
                return token
            if not kept.refresh_token:
                why = "has expired" if token is None else "was refused"
                raise LoginError(self._again(f"{why} and cannot be renewed"))
            return self._renew(kept, now_s)

    def _renew(self, kept: Kept, now_s: float) -> str:
        from subluminal.logins import grants

        self._write(kept)  # a store that takes nothing is found before the refresh token is spent
        try:
            granted = grants.refresh(kept)
        except LoginUnreachable:
            raise
        except LoginError as error:
            if isinstance(error, grants.GrantRefused) and error.code == "invalid_grant":
                self._write(replace(kept, refresh_token=""))  # it will not be good again: nobody else has to ask
            raise LoginError(self._again(f"cannot be renewed ({error})")) from None
        self._write(
            replace(
                kept,
                access_token=granted.access_token,
                refresh_token=granted.refresh_token or kept.refresh_token,
                obtained_at=now_s,
                expires_at=None if granted.lifetime_s is None else now_s + granted.lifetime_s,
                scopes=kept.scopes if granted.scopes is None else granted.scopes,
            )
        )
        return granted.access_token

    def _again(self, why: str) -> str:
        kept = self._known[1]
        more = ("--token-env", "VARIABLE") if kept is not None and kept.kind == keeping.TOKEN else ()
        return f"the login for {printable(self.name)} {why}; log in again: {login_words(self.name, self.url, *more)}"

    def _current(self) -> Kept | None:
        known = self._known
        return known[1] if keeping.stamp(self._ref) == known[0] else self._read()

    def _read(self) -> Kept | None:
        # The stamp first: what changes in between is read again the next time.
        stamp = keeping.stamp(self._ref)
        kept = None if stamp is None else keeping.load(self._ref)
        self._know(stamp, kept)
        return kept

    def _know(self, stamp: Stamp | None, kept: Kept | None) -> None:
        if self._heard is not None and kept is not None:
            self._heard(kept.secrets())
        self._known = (stamp, kept)

    def _write(self, kept: Kept) -> None:
        note = keeping.note_of(self._ref)
        assert note is not None  # the lock is ours
        keeping.store(kept, note.source)
        self._know(keeping.stamp(self._ref), kept)


def _in_force(kept: Kept | None, now_s: float) -> str | None:
    if kept is None:
        return None
    if kept.expires_at is not None:
        early = min(EARLY_S, EARLY_PART * (kept.expires_at - kept.obtained_at))
        if now_s >= kept.expires_at - early:
            return None
    return kept.access_token
