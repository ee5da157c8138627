"""An agent client as a process of its own, to be killed: it starts a tool server, makes one call and then idles.

Run as a script it is that client. Signals keep their default action, so it simply dies, as a client does that has no
handler left. `ClientProcess` is how a test starts it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType

READY_TIMEOUT_S = 20
REQUESTS = (
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "echo", "arguments": {}}},
)


class ClientProcess:
    """`with ClientProcess(shim.command, shim.env) as client: client.signal(SIGKILL)`

    `server_pid` is what the client started. The marker is on that tree only: that the client itself is gone is no
    achievement.
    """

    def __init__(self, command: Sequence[str], env: dict[str, str], cwd: str | os.PathLike[str] | None = None) -> None:
        from harness.processes import new_marker

        self.command = list(command)
        self.marker = new_marker()
        self.env = {**env, "CLIENT_MARKER": self.marker}
        self.cwd = cwd

    def __enter__(self) -> ClientProcess:
        self.process = subprocess.Popen(
            [sys.executable, "-S", __file__, *self.command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=self.env,
            cwd=self.cwd,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], READY_TIMEOUT_S)
        words = os.read(self.process.stdout.fileno(), 100).split() if readable else []
        if words[:1] != [b"ready"]:
            self.__exit__(None, None, None)
            raise AssertionError(f"the client could not make its call; it said {words}")
        self.server_pid = int(words[1])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from harness.processes import kill_marked

        self.process.kill()
        self.process.wait(READY_TIMEOUT_S)
        kill_marked(self.marker)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def signal_group(self, number: int) -> None:
        """What a terminal does on Ctrl-C: the client and everything that shares its process group."""
        os.killpg(self.process.pid, number)


def main(command: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    env = {**os.environ, "HARNESS_MARKER": os.environ["CLIENT_MARKER"]}
    del env["CLIENT_MARKER"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
    assert server.stdin is not None and server.stdout is not None
    for request in REQUESTS:
        server.stdin.write(json.dumps(request).encode() + b"\n")
        server.stdin.flush()
        if not server.stdout.readline():
            sys.exit("the server closed its stdout")
    os.write(1, f"ready {server.pid}\n".encode())  # one write: the reader takes what one read gives
    while True:
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1:])
