"""The agent's process as the event loop sees it: stdout to read with flow control, stderr counted and let go, an exit.

Own protocol instead of `asyncio.create_subprocess_exec`: there the wait for the exit may last until the pipes close
(some Python versions), which a background process can hold open for ever, and the pipes cannot be closed by us.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Sequence
from typing import cast

from subluminal.agents.base import RunRequest

STDOUT, STDERR = 1, 2


class AgentProcess(asyncio.SubprocessProtocol):
    """A leader of its own session, with the null device as stdin."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.stdout = asyncio.StreamReader(loop=loop)
        self.stderr_bytes = 0
        self.exited: asyncio.Future[int] = loop.create_future()
        self._transport: asyncio.SubprocessTransport | None = None

    @classmethod
    async def start(cls, command: Sequence[str], request: RunRequest) -> AgentProcess:
        loop = asyncio.get_running_loop()
        _, process = await loop.subprocess_exec(
            cls,
            *command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if request.show_stderr else subprocess.PIPE,
            cwd=request.cwd,
            env={**os.environ, **request.env},
            start_new_session=True,
        )
        return process

    @property
    def pid(self) -> int:
        assert self._transport is not None
        pid = self._transport.get_pid()
        assert pid is not None
        return pid

    @property
    def exit_code(self) -> int | None:
        return self.exited.result() if self.exited.done() and not self.exited.cancelled() else None

    def close(self) -> None:
        """Let go of the pipes, whoever else may hold them."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        pipe = self._transport.get_pipe_transport(STDOUT)
        assert pipe is not None
        self.stdout.set_transport(pipe)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == STDOUT:
            self.stdout.feed_data(data)
        else:
            self.stderr_bytes += len(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == STDOUT:
            self.stdout.feed_eof()

    def process_exited(self) -> None:
        assert self._transport is not None
        code = self._transport.get_returncode()
        if not self.exited.done():
            self.exited.set_result(-1 if code is None else code)
