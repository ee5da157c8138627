"""Who holds the other end of a TCP connection that this process has accepted: a user and a process of this machine.

    peer = peer_of_socket(accepted)      asked while the connection stands: the answer holds for its whole life

The user comes from the kernel's own table. The process is looked for among those of our own user: first those that
connected before, then the youngest; a search is bounded, and what it does not find is None. Where the system tells
nothing (macOS), everything is None. No fault of the system is an exception. A search may take milliseconds: where a
loop runs, it is made in a thread.
"""

from __future__ import annotations

import os
import socket
import sys
from time import monotonic_ns

from subluminal.host.identity import process_facts
from subluminal.host.sock_diag import owner_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol

    from subluminal.host.sock_diag import Address

    class Connected(Protocol):
        """A socket, or what asyncio shows of one."""

        def getsockname(self) -> tuple[str, int]: ...
        def getpeername(self) -> tuple[str, int]: ...
        def getsockopt(self, level: int, name: int, size: int, /) -> bytes: ...


# A link is read in about a microsecond. A desk has some hundred processes of a user with some dozen descriptors each.
MAX_PROCESSES = 4_096
MAX_DESCRIPTORS = 65_536
SEARCH_NS = 250_000_000
# Processes that connected before: clients open several connections, and come back.
MAX_RECENT = 64

_ESTABLISHED = 1
_recent: dict[int, int] = {}  # with the number of the descriptor that was found last
# Who opens many connections has the next ones close behind: listing thousands of descriptors takes milliseconds.
NEXT_DESCRIPTORS = 64
# Sockets that a search has come by, and where: a client that connects a thousand times at once is looked through once.
_seen: dict[str, str] = {}


class Peer:
    """`start` tells the process from a later one of the same number. All of it is unknown where nothing is found."""

    __slots__ = ("pid", "start", "uid")

    def __init__(self, uid: int | None = None, pid: int | None = None, start: str = "") -> None:
        self.uid = uid
        self.pid = pid
        self.start = start

    @property
    def is_ours(self) -> bool:
        """A process of our own user. Where the system tells nothing, nobody is."""
        return self.uid == os.geteuid()

    def __repr__(self) -> str:
        return f"Peer(uid={self.uid}, pid={self.pid}, start={self.start!r})"


def peer_of_socket(connection: Connected) -> Peer:
    """As `peer_of`, and certain: while our end is established, nobody else can have taken the peer's address."""
    try:
        local, remote = connection.getsockname(), connection.getpeername()
        peer = peer_of((local[0], local[1]), (remote[0], remote[1]))
        if sys.platform == "linux" and connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _ESTABLISHED:
            return peer
    except (OSError, IndexError, TypeError):
        pass
    return Peer()


def peer_of(local: Address, remote: Address) -> Peer:
    """The holder of the end `remote` of a connection whose end `local` is ours.

    Whoever was connected and has gone may have left its address to another: ask early, or `peer_of_socket`.
    """
    owner = owner_of(remote, local)
    if owner is None:
        return Peer()
    if owner.uid != os.geteuid():
        return Peer(owner.uid)
    pid, start = _Search(owner.inode).holder()
    return Peer(owner.uid, pid, start)


class _Search:
    """For the holder of one socket, with what is left of its bounds."""

    def __init__(self, inode: int) -> None:
        self._link = f"socket:[{inode}]"
        self._descriptors = MAX_DESCRIPTORS
        self._end_ns = monotonic_ns() + SEARCH_NS

    def holder(self) -> tuple[int | None, str]:
        seen = _seen.pop(self._link, None)
        if seen is not None and self._leads_to_it(seen) and _is_of(pid := int(seen.split("/")[2]), os.geteuid()):
            return self._eldest(pid, seen)
        for pid in self._candidates():
            if self._descriptors <= 0 or monotonic_ns() > self._end_ns:
                break
            descriptor = self._descriptor(pid)
            if descriptor is not None:
                return self._eldest(pid, descriptor)
        return None, ""

    def _candidates(self) -> Iterator[int]:
        """Each is looked at as it comes. Ourselves last: we hold many sockets, and few of them lead back to us."""
        ourselves, user = os.getpid(), os.geteuid()
        seen = {ourselves}
        for pid in reversed(list(_recent)):
            seen.add(pid)
            if pid != ourselves and _is_of(pid, user):
                yield pid
        try:
            found = sorted((int(name) for name in os.listdir("/proc") if name.isdigit()), reverse=True)
        except OSError:
            return
        for pid in found[:MAX_PROCESSES]:
            if pid not in seen and _is_of(pid, user):
                yield pid
        yield ourselves

    def _descriptor(self, pid: int) -> str | None:
        """The path of one that leads to the socket. The youngest first."""
        directory = f"/proc/{pid}/fd"
        last = _recent.get(pid)
        if last is not None:
            for number in range(last + 1, last + 1 + NEXT_DESCRIPTORS):
                if self._leads_to_it(path := f"{directory}/{number}"):
                    return path
        try:
            numbers = sorted(map(int, os.listdir(directory)), reverse=True)
        except (OSError, ValueError):
            return None
        for number in numbers:
            self._descriptors -= 1
            if self._descriptors < 0:
                return None
            path = f"{directory}/{number}"
            link = self._read(path)
            if link == self._link:
                return path
            if link.startswith("socket:"):
                _seen[link] = path
        if len(_seen) > MAX_DESCRIPTORS:
            _seen.clear()
        return None

    def _read(self, path: str) -> str:
        try:
            return os.readlink(path)
        except OSError:
            return ""

    def _leads_to_it(self, path: str) -> bool:
        return self._read(path) == self._link

    def _eldest(self, pid: int, descriptor: str) -> tuple[int | None, str]:
        """A child may have inherited the socket: its parent connected, whichever of the two was found first."""
        parent, start = process_facts(pid)[1:]
        while parent > 1 and (inherited := self._descriptor(parent)) is not None:
            pid, descriptor = parent, inherited
            parent, start = process_facts(pid)[1:]
        if not start or not self._leads_to_it(descriptor):  # gone meanwhile, and its number may be another's
            return None, ""
        _recent.pop(pid, None)
        _recent[pid] = int(descriptor.rpartition("/")[2])
        for oldest in list(_recent)[:-MAX_RECENT]:
            _recent.pop(oldest, None)
        return pid, start


def _is_of(pid: int, user: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == user
    except OSError:
        return False
