"""The upstream process: started first, ended surely.

Clients give almost no grace (some send SIGKILL within milliseconds), so a signal handler alone cannot promise "no
orphans". The upstream leads a process group of its own. A watchdog, forked into a session of its own so that a SIGKILL
to our group misses it, waits on a pipe that only we hold, and takes the upstream's whole group down when we are gone
for any reason. Imported before the upstream runs: nothing heavy here.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# After the client closed our stdin: the server may finish by itself. SDK clients begin to kill after 2 s.
EOF_GRACE_S = 1.2
# After a signal, before SIGTERM follows SIGINT or SIGHUP. Claude Code gives SIGINT 100 ms and SIGTERM 400 ms.
SIGNAL_GRACE_S = 0.25
# After SIGTERM, before SIGKILL.
TERM_GRACE_S = 0.4
# The watchdog works unhurried: nobody waits for it.
WATCHDOG_TERM_GRACE_S = 0.5
WATCHDOG_POLL_S = 0.02
# A process that serves many has thousands of connections. It is one call to the kernel, however many there are.
MAX_DESCRIPTORS = 65_536
# Leftovers of the group after the server itself has ended.
LEFTOVER_GRACE_S = 0.2

_SIGINT, _SIGKILL, _SIGPIPE, _SIGTERM, _SIGXFSZ, _SIGHUP = 2, 9, 13, 15, 25, 1


class Upstream:
    """A running server: its pid (and process group) and our ends of its three pipes."""

    __slots__ = ("group", "pid", "status", "stderr", "stdin", "stdout", "watchdog", "watchdog_pipe")

    def __init__(self, pid: int, group: int, stdin: int, stdout: int, stderr: int) -> None:
        self.pid = pid
        self.group = group
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.status: int | None = None  # exit code, or 128 + signal, once it has ended
        self.watchdog = 0
        self.watchdog_pipe = -1

    def poll(self) -> int | None:
        """The exit status if the server has ended; never waits."""
        if self.status is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                pid, status = self.pid, 0
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self.status = code if code >= 0 else 128 - code
        return self.status

    def signal(self, number: int) -> bool:
        """To the whole group; False when nothing of it is left."""
        try:
            os.killpg(self.group, number)
        except (ProcessLookupError, PermissionError):
            # macOS answers EPERM for a group of zombies.
            return False
        return True

    def release_watchdog(self) -> None:
        """All is clean: the watchdog may go without killing."""
        if self.watchdog_pipe >= 0:
            try:
                os.write(self.watchdog_pipe, b"q")
            except OSError:
                pass
            os.close(self.watchdog_pipe)
            self.watchdog_pipe = -1
            try:
                os.waitpid(self.watchdog, 0)
            except ChildProcessError:
                pass


def spawn(argv: list[str], environ: Mapping[str, str]) -> Upstream:
    """Start the server in a process group of its own. Raises OSError when it cannot be started."""
    stdin_r, stdin_w = os.pipe()
    stdout_r, stdout_w = os.pipe()
    stderr_r, stderr_w = os.pipe()
    group, holder_pipe = _open_group()
    watchdog, watchdog_pipe = _start_watchdog(group)
    try:
        pid = os.posix_spawnp(
            argv[0],
            argv,
            environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, stdin_r, 0),
                (os.POSIX_SPAWN_DUP2, stdout_w, 1),
                (os.POSIX_SPAWN_DUP2, stderr_w, 2),
            ],
            setpgroup=group,
            setsigmask=[],
            # Python ignores these two; a server must find the defaults, as it would without us.
            setsigdef=[_SIGPIPE, _SIGXFSZ],
        )
    except OSError:
        for fd in (stdin_r, stdin_w, stdout_r, stdout_w, stderr_r, stderr_w, watchdog_pipe):
            os.close(fd)
        raise
    finally:
        # The server is in the group now, or could not be started: the holder has done its work.
        os.kill(group, _SIGKILL)
        os.waitpid(group, 0)
        os.close(holder_pipe)
    os.close(stdin_r)
    os.close(stdout_w)
    os.close(stderr_w)
    upstream = Upstream(pid, group, stdin_w, stdout_r, stderr_r)
    upstream.watchdog = watchdog
    upstream.watchdog_pipe = watchdog_pipe
    return upstream


def _open_group() -> tuple[int, int]:
    """A process group for the server before there is a server: its id, which is its holder's, and the holder's pipe.

    We may be killed between starting the server and telling a watchdog which group it leads. So the group comes first,
    then the watchdog over it, and only then is the server started into it.
    """
    read_end, write_end = os.pipe()
    holder = os.fork()
    if holder == 0:
        try:
            os.setpgid(0, 0)
            os.close(write_end)
            os.read(read_end, 1)  # ends with us
        finally:
            os._exit(0)
    os.close(read_end)
    try:
        os.setpgid(holder, holder)  # whoever of the two comes first
    except OSError:
        pass
    return holder, write_end


def _start_watchdog(group: int) -> tuple[int, int]:
    """Its pid and our end of its pipe, once it is out of reach of a SIGKILL to our group.

    Forked before anything heavy is imported: the child shares our few pages and owns almost none.
    """
    read_end, write_end = os.pipe()
    ready_r, ready_w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            os.write(ready_w, b"r")
            _watch(read_end, group)
        finally:
            os._exit(0)
    os.close(read_end)
    os.close(ready_w)
    os.read(ready_r, 1)
    os.close(ready_r)
    return pid, write_end


def _watch(pipe: int, group: int) -> None:
    """In the watchdog. Anything read means a clean end; end of file means the shim is gone."""
    import time

    if pipe != 3:
        os.dup2(pipe, 3)
    # Every other descriptor must go: an inherited pipe end would keep the client or the server waiting.
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.closerange(4, MAX_DESCRIPTORS)
    while True:
        try:
            if os.read(3, 1):
                return
            break
        except InterruptedError:
            continue
    for number, grace in ((_SIGTERM, WATCHDOG_TERM_GRACE_S), (_SIGKILL, WATCHDOG_TERM_GRACE_S)):
        try:
            os.killpg(group, number)
            deadline = time.monotonic() + grace
            while time.monotonic() < deadline:
                os.killpg(group, 0)
                time.sleep(WATCHDOG_POLL_S)
        except (ProcessLookupError, PermissionError):
            return
