"""What is trusted of a fleet's origin: TUF, and each of its refusals as a sentence.

`code` of a `Refused` is a stable word: `unreachable`, `expired`, `rollback`, `unsigned`, `altered`, `too_large`,
`slow`, `missing`, `invalid`. Whatever is refused, the last good stays in force.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, Any

import msgspec

from subluminal import __version__
from subluminal.contracts.errors import FleetError
from subluminal.fleet.extras import require_extra
from subluminal.fleet.machine.clock import clock_words
from subluminal.host.files import read_private
from subluminal.host.home import ensure_private_dir, fleet_tuf_dir

if TYPE_CHECKING:
    from tuf.ngclient import Updater

ANCHOR = "anchor.json"
STOPS_APART = "stop"
_MAX_ROOT_BYTES = 512_000


class Refused(FleetError):
    """The origin could not be reached, or what it says is not believed."""

    def __init__(self, code: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class _Version(msgspec.Struct):
    version: int


class _Signed(msgspec.Struct):
    signed: _Version


# Made here, and not when first used: several threads ask.
_signed = msgspec.json.Decoder(_Signed).decode


class Session:
    """One consistent view of the origin: all that it gives was published together."""

    def __init__(self, updater: Updater, directory: str) -> None:
        self._updater = updater
        self._directory = directory

    @property
    def version(self) -> int:
        """Of the snapshot, which counts what was published."""
        return signed_version(self._directory)

    def target(self, path: str, limit: int) -> bytes:
        info = self._updater.get_targetinfo(path)
        if info is None:
            hint = "Is the tenant's name right? Whoever keeps the fleet adds one with `sub fleet tenant`."
            raise Refused("missing", f"The fleet publishes no {path}.", hint=hint)
        if info.length > limit:
            raise Refused("too_large", f"{path} is said to have {info.length} bytes; at most {limit} are taken.")
        file = self._updater.find_cached_target(info) or self._updater.download_target(info)
        with open(file, "rb") as content:
            data = content.read(limit + 1)
        info.verify_length_and_hashes(data)
        return data


class Origin:
    """`url` holds `metadata/` and `targets/`. One session at a time: they share what is on the disk.

    `apart`: a name for a view of its own, which shares the anchor and nothing else. Stops have one: they must not wait
    until a policy has been fetched, however slowly an origin sends it.
    """

    def __init__(self, url: str, home: str, apart: str | None = None) -> None:
        require_extra("tuf", "cryptography")
        from subluminal.fleet.machine.fetching import BoundedFetcher

        self._url = url.rstrip("/")
        self._anchor = os.path.join(fleet_tuf_dir(home), ANCHOR)
        self._directory = fleet_tuf_dir(home) if apart is None else os.path.join(fleet_tuf_dir(home), apart)
        self._home = home
        self._lock = RLock()
        self._fetcher = BoundedFetcher(f"subluminal/{__version__}")

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Refreshed and verified, or Refused."""
        with self._lock:
            self._fetcher.ahead_ms = None
            with _told(self._url, lambda: self.ahead_ms):
                yield Session(self._refreshed(), self._directory)

    @property
    def ahead_ms(self) -> int | None:
        """By how much this machine's clock is ahead of the origin's, as it told last; None: it told nothing."""
        return self._fetcher.ahead_ms

    def _refreshed(self) -> Updater:
        from tuf.ngclient import Updater

        targets = os.path.join(self._directory, "targets")
        if not os.path.isdir(targets) and os.path.isfile(self._anchor):  # a machine that has left has none
            ensure_private_dir(targets, self._home)
        updater = Updater(
            self._directory,
            f"{self._url}/metadata/",
            targets,
            f"{self._url}/targets/",
            self._fetcher,
            bootstrap=read_private(self._anchor, _MAX_ROOT_BYTES),
        )
        updater.refresh()
        return updater


def signed_version(directory: str) -> int:
    """Of the snapshot that is trusted here; 0: none yet."""
    try:
        data = read_private(os.path.join(directory, "snapshot.json"), 1 << 24)
        return _signed(data).signed.version
    except (OSError, msgspec.DecodeError):
        return 0


@contextmanager
def _told(url: str, ahead_ms: Callable[[], int | None]) -> Iterator[None]:
    from tuf.api import exceptions as tuf

    try:
        yield
    except tuf.DownloadHTTPError as error:
        code = "unreachable" if error.status_code >= 500 else "missing"
        raise Refused(code, f"{url} answered with HTTP {error.status_code}.") from None
    except tuf.DownloadLengthMismatchError as error:
        raise Refused("too_large", f"{url} sends more than it may: {error}.") from None
    except tuf.SlowRetrievalError as error:
        # urllib3 counts a connection that was refused among those that took too long.
        if getattr(error.__cause__, "reason", None) is not None:
            raise Refused("unreachable", f"{url} cannot be reached: {_cause(error)}.") from None
        raise Refused("slow", f"{url} sends too slowly.") from None
    except tuf.DownloadError as error:
        raise Refused("unreachable", f"{url} cannot be reached: {_cause(error)}.") from None
    except tuf.ExpiredMetadataError as error:
        hint = "Somebody must run `sub fleet renew` where the clock is right, or an old state is being replayed."
        clock = clock_words(max(0, ahead_ms() or 0) // 1000)
        why = f" {clock}: that is likely why." if clock else ""
        raise Refused("expired", f"What {url} shows has expired: {error}.{why}", hint=hint) from None
    except tuf.BadVersionNumberError as error:
        hint = "An older state is being replayed, or the origin was put back from a copy."
        raise Refused("rollback", f"{url} shows an older version than was seen before: {error}.", hint=hint) from None
    except tuf.UnsignedMetadataError as error:
        raise Refused("unsigned", f"What {url} shows is not signed by the keys it needs: {error}.") from None
    except tuf.LengthOrHashMismatchError as error:
        raise Refused("altered", f"What {url} shows was altered or does not belong together: {error}.") from None
    except (tuf.RepositoryError, ValueError) as error:
        raise Refused("invalid", f"What {url} shows cannot be read: {error}.") from None


def _cause(error: BaseException) -> str:
    """The innermost reason, in one line."""
    reason: Any = error
    while (inner := getattr(reason, "reason", None) or reason.__cause__) and isinstance(inner, BaseException):
        reason = inner
    return (getattr(reason, "strerror", None) or str(reason) or type(reason).__name__).rstrip(".")[:200]
