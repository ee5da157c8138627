"""Another process that connects to us over loopback and holds the connection until it is told to let go."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from harness.waiting import GENEROUS_S

HOLDER = """
import os, socket, sys
family, host, port, user = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if user:
    os.setuid(user)  # here, for it may not be allowed to start our interpreter
connection = socket.socket(family)
connection.connect((host, port))
{script}
sys.stdin.read()
"""


class Caller:
    """`accepted` is our end."""

    def __init__(self, process: subprocess.Popen[bytes], accepted: socket.socket) -> None:
        self.process = process
        self.accepted = accepted

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self) -> str:
        """What its script says next."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()


def listen(host: str = "127.0.0.1", *, both: bool = False) -> socket.socket:
    """`both`: one socket for IPv6 and IPv4."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    if both:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind((host, 0))
    listener.listen(128)
    listener.settimeout(GENEROUS_S)
    return listener


@contextmanager
def calling(
    listener: socket.socket,
    *,
    host: str = "127.0.0.1",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    user: int = 0,
    script: str = "",
) -> Iterator[Caller]:
    """`user`: whose process it is, where we are root. `script` runs in it once it is connected, and may print lines."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    arguments = [str(int(family)), host, str(listener.getsockname()[1]), str(user)]
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER.format(script=script), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=None if env is None else dict(env),
        cwd=cwd,
    )
    try:
        accepted, _ = listener.accept()
        with accepted:
            yield Caller(process, accepted)
    finally:
        process.kill()
        process.communicate()
