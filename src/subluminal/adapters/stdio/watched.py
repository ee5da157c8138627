"""The descriptors that the poll loop waits for. The kernel is only told what has changed."""

from __future__ import annotations

import select

STDIN, STDOUT = 0, 1


class Watched:
    __slots__ = ("_poller", "masks", "poll")

    def __init__(self) -> None:
        self._poller = select.poll()
        self.poll = self._poller.poll
        self.masks: dict[int, int] = {}

    def add(self, fd: int, mask: int) -> None:
        if self.masks.get(fd) != mask:
            self.masks[fd] = mask
            self._poller.register(fd, mask)

    def remove(self, fd: int) -> None:
        if self.masks.pop(fd, None) is not None:
            self._poller.unregister(fd)
