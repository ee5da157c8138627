"""Start the ledger daemon, and find its socket: the part the shim needs. Imports nothing but `os` and `sys`.

Whoever calls `spawn_ledgerd` twice gets one daemon: it holds a lock on `SUB_HOME/ledgerd.pid` and a second one ends at
once. The daemon is nobody's child (double fork), in a session of its own, and keeps no descriptor of its starter.
"""

from __future__ import annotations

import os
import sys

# sockaddr_un holds 108 bytes on Linux and 104 on macOS, the end included.
MAX_SOCKET_PATH = 103
# On a machine that is busy with calls the daemon still has a quarter of a processor.
NICENESS = 5
_DAEMON_SETTINGS = ("SUB_LEDGER_IDLE_S",)


def ledgerd_argv() -> list[str]:
    return [sys.executable, "-P", "-m", "subluminal", "ledgerd", "--foreground", "--quiet"]


def spawn_ledgerd(home: str) -> None:
    """Start the daemon for this home and return at once; it may need a tenth of a second until it listens."""
    pid = os.fork()
    if pid == 0:
        _become_daemon(home)
    while True:
        try:
            os.waitpid(pid, 0)
            return
        except InterruptedError:
            continue
        except ChildProcessError:
            return


def _become_daemon(home: str) -> None:
    """In the child: never returns, never runs the starter's clean-up."""
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        os.closerange(3, 1024)
        os.chdir("/")
        _yield_to_others()
        # It outlives the run that happened to start it: it must not be taken for a part of that run, and needs nothing
        # of its identity, policy or secrets.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SUB_")}
        environment["SUB_HOME"] = home
        for name in _DAEMON_SETTINGS:
            if name in os.environ:
                environment[name] = os.environ[name]
        argv = ledgerd_argv()
        os.execve(argv[0], argv, environment)
    finally:
        os._exit(127)


def _yield_to_others() -> None:
    """The record can wait, an agent's call cannot: lower priority, and not bound to the cores of whoever started us.

    Where Linux groups processes by session (autogroup), a session of one process has as much of the processors as one
    with all the shims of an agent, whatever its `nice` says: there the group's own counts.
    """
    try:
        os.nice(NICENESS)
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    except (AttributeError, OSError):
        pass
    try:
        group = os.open("/proc/self/autogroup", os.O_WRONLY)
        os.write(group, b"%d" % NICENESS)
        os.close(group)
    except OSError:
        pass


def socket_address(path: str) -> tuple[str, int]:
    """The name to bind or connect to, and a directory descriptor to close afterwards (-1: none).

    A path too long for a socket address is reached through /proc/self/fd where there is one.
    """
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH or not os.path.isdir("/proc/self/fd"):
        return path, -1
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    return f"/proc/self/fd/{directory}/{os.path.basename(path)}", directory
