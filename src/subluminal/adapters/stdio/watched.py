"""The descriptors that the poll loop waits for. The kernel is only told what has changed.

With epoll the kernel does not go through all of them twice a call. It takes no regular file and no descriptor that is
closed, which a client may well give us: then all of them are polled, where such a descriptor is always ready.
"""

from __future__ import annotations

import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

STDIN, STDOUT = 0, 1
# Events at a time, more than we have descriptors. Unless it is told, Python makes room for a thousand at every wait.
MOST = 16


class Watched:
    """`poll(seconds, MOST)` gives pairs of a descriptor and what became of it; it changes where epoll is given up."""

    __slots__ = ("_poller", "masks", "poll")

    def __init__(self) -> None:
        self.masks: dict[int, int] = {}
        self._poller: Any = None
        self.poll: Callable[[float, int], list[tuple[int, int]]]
        try:
            self._poller = select.epoll()
            self.poll = self._poller.poll
        except (AttributeError, OSError):  # another system, or no descriptor left
            self._poll_all()

    def add(self, fd: int, mask: int) -> None:
        known = self.masks.get(fd)
        if known == mask:
            return
        self.masks[fd] = mask
        try:
            if known is None:
                self._poller.register(fd, mask)
            else:
                self._poller.modify(fd, mask)
        except OSError:
            self._poll_all()

    def remove(self, fd: int) -> None:
        if self.masks.pop(fd, None) is not None:
            try:
                self._poller.unregister(fd)
            except OSError:
                pass  # closed, and so no longer with the kernel

    def _poll_all(self) -> None:
        epoll, self._poller = self._poller, select.poll()
        if epoll is not None:
            epoll.close()
        for fd, mask in self.masks.items():
            self._poller.register(fd, mask)
        poll = self._poller.poll
        self.poll = lambda seconds, _: poll(seconds * 1000)
