"""A lock on an open file for which processes queue, and which no dying process can keep.

`flock` belongs to the open file: the kernel releases it when its holder dies, and keeps those who wait in a queue. It
knows no time limit, and a holder that was stopped (SIGSTOP) does not let go; so whoever finds the lock taken lets a
thread stand in the queue for it, and waits for that thread as long as it likes. The thread is started the first time
the lock is found taken for more than a moment, and is all there is to waiting: nobody sleeps and tries again.

Why not fcntl: a POSIX lock belongs to the process and is dropped when *any* descriptor of the file is closed.
"""

from __future__ import annotations

import _thread
import os
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from time import monotonic_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

AT_ONCE = LOCK_EX | LOCK_NB
# A holder needs some microseconds, less than it takes to stand in the queue: so long, and then so often, the lock is
# tried before, each time after letting others run. Where nobody else wants this processor the holder has another one,
# and lets go soon; where many do, the first time takes longer than that.
SPIN_NS = 100_000
SPINS = 24


class QueuedLock:
    """`fd` stays the caller's to close, after `close`. Its lock is released with `flock(fd, LOCK_UN)`.

    While nothing is `queued`, the caller may also try `flock(fd, AT_ONCE)` by itself.
    """

    __slots__ = ("_asked", "_change", "_closed", "_fd", "_granted", "_tell", "_wanted", "queued")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._change = _thread.allocate_lock()  # guards what both threads see
        self.queued = False  # the thread stands in the queue, or has been asked to
        self._wanted = False  # somebody waits for what the thread will get
        self._closed = False
        self._tell: Callable[[], None] | None = None
        self._granted = _taken()
        self._asked: _thread.LockType | None = None

    def take(self, seconds: float) -> bool:
        """Have the lock within this time. False: somebody else kept it."""
        left, until = SPINS if seconds > 0 else 1, monotonic_ns() + SPIN_NS
        while left and not self.queued:
            try:
                flock(self._fd, AT_ONCE)
                return True
            except BlockingIOError:
                os.sched_yield()
            if seconds <= 0 or monotonic_ns() > until:
                left -= 1
        if seconds <= 0:
            return False
        self.ask()
        return self._granted.acquire(timeout=seconds) or self.give_up()

    # -- for callers that run a loop ------------------------------------------------------------------------------

    def ask(self, tell: Callable[[], None] | None = None) -> None:
        """Stand in the queue; `tell` is called, mostly from another thread, as soon as `take_asked` will succeed."""
        with self._change:
            came = not self._granted.locked()  # for somebody who asked before, and has not taken it yet
            if not came:
                self._wanted = True
                self._tell = tell
                if self.queued:
                    return
                self.queued = True
        if came:
            if tell is not None:
                tell()
            return
        if self._asked is None:
            self._asked = _taken()
            _thread.start_new_thread(self._queue, (os.dup(self._fd), self._asked))
        self._asked.release()

    def take_asked(self) -> bool:
        """Whether the lock that was asked for is ours now."""
        return self._granted.acquire(blocking=False)

    def give_up(self) -> bool:
        """Stop waiting. True: the lock came at the last moment, and is ours."""
        with self._change:
            self._wanted = False
            self._tell = None
            return self._granted.acquire(blocking=False)

    # -- the thread -----------------------------------------------------------------------------------------------

    def _queue(self, fd: int, asked: _thread.LockType) -> None:
        # A descriptor of its own for the same open file: the caller's number may be somebody else's by then.
        try:
            while not self._closed:
                asked.acquire()
                if self._closed:
                    break
                flock(fd, LOCK_EX)
                with self._change:
                    self.queued = False
                    if self._wanted and not self._closed:
                        self._wanted = False
                        self._granted.release()
                        tell, self._tell = self._tell, None
                    else:
                        flock(fd, LOCK_UN)
                        tell = None
                if tell is not None:
                    tell()
        finally:
            os.close(fd)

    def close(self) -> None:
        """Without the guard: in a forked child the thread that held it may not be there."""
        self._closed = True
        self._wanted = False
        if self._asked is not None and self._asked.locked():
            self._asked.release()


def _taken() -> _thread.LockType:
    lock = _thread.allocate_lock()
    lock.acquire()
    return lock
