"""An agent on real pipes: starts a tool server (or a shim around one) and talks JSON-RPC to it.

One thread, one poll loop. Whatever the agent waits for, it keeps writing, reading and draining stderr, so it can hold
any number of calls outstanding without a deadlock, and every wait has a deadline: a test fails, it never hangs.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any

from harness.processes import MARKER_VARIABLE, descendants, kill_marked, memory_kib, new_marker, processes_with
from harness.waiting import GENEROUS_S, WaitedInVain, wait_for, while_passing

READ_BYTES = 1 << 18

Message = dict[str, Any]


class Agent:
    """`with Agent(command) as agent: agent.initialize(); agent.call("echo", {})`

    `received` holds every raw line in order; `messages` the parsed ones (batches opened up). `stderr` is everything
    the process wrote there so far.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: dict[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        *,
        timeout: float = GENEROUS_S,
        new_session: bool = True,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.command = list(command)
        self.env = dict(os.environ if env is None else env)
        self.marker = self.env.setdefault(MARKER_VARIABLE, new_marker())
        self.cwd = cwd
        self.timeout = timeout
        self.new_session = new_session
        self.pass_fds = tuple(pass_fds)
        self.received: list[bytes] = []
        self.messages: list[Message] = []
        self.stdout_closed = False
        self._stderr = bytearray()
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._replies: dict[str, Message] = {}
        self._next_id = 0
        self._searched = 0

    def __enter__(self) -> Agent:
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.env,
            cwd=self.cwd,
            bufsize=0,
            start_new_session=self.new_session,
            pass_fds=self.pass_fds,
        )
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self._stdin: int | None = self.process.stdin.fileno()
        self._stdout: int | None = self.process.stdout.fileno()
        self._stderr_fd: int | None = self.process.stderr.fileno()
        for fd in (self._stdin, self._stdout, self._stderr_fd):
            os.set_blocking(fd, False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        kill_marked(self.marker)
        self.process.wait(self.timeout)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            try:
                stream.close()
            except OSError:
                pass
        if error is not None and self._stderr:
            error.add_note("stderr of the process under test:\n" + self.stderr[-4000:])

    # --- the pump

    def _pump(self, done: Callable[[], bool], timeout: float | None, what: str) -> None:
        """Move bytes until `done()`; `WaitedInVain` if that takes too long."""
        try:
            wait_for(done, self.timeout if timeout is None else timeout, what, meanwhile=self._move)
        except WaitedInVain as error:
            tail = self.received[-1][:300] if self.received else b"nothing"
            error.add_note(f"received {len(self.received)} lines, last: {tail!r}")
            raise

    def _move(self, wait_s: float) -> None:
        poll = select.poll()
        for fd in (self._stdout, self._stderr_fd):
            if fd is not None:
                poll.register(fd, select.POLLIN)
        if self._outgoing and self._stdin is not None:
            poll.register(self._stdin, select.POLLOUT)
        for fd, _ in poll.poll(wait_s * 1000):
            if fd == self._stdin:
                self._write_some()
            else:
                self._read_some(fd)

    def _write_some(self) -> None:
        assert self._stdin is not None
        try:
            with memoryview(self._outgoing) as view:
                written = os.write(self._stdin, view[:READ_BYTES])
            del self._outgoing[:written]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._outgoing.clear()
            self._stdin = None

    def _read_some(self, fd: int) -> None:
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return
        if fd == self._stderr_fd:
            self._stderr += data
            if not data:
                self._stderr_fd = None
            return
        if not data:
            self._stdout, self.stdout_closed = None, True
            return
        self._incoming += data
        while (end := self._incoming.find(b"\n", self._searched)) >= 0:
            self._accept(bytes(self._incoming[: end + 1]))
            del self._incoming[: end + 1]
            self._searched = 0
        self._searched = len(self._incoming)

    def _accept(self, line: bytes) -> None:
        self.received.append(line)
        try:
            message = json.loads(line)
        except ValueError:
            return
        for each in message if isinstance(message, list) else [message]:
            if isinstance(each, dict):
                self.messages.append(each)
                if "method" not in each:
                    self._replies.setdefault(json.dumps(each.get("id")), each)

    # --- sending

    def send_raw(self, data: bytes, *, wait: bool = True) -> None:
        """Exactly these bytes. With `wait`, returns when the pipe has taken them all."""
        self._outgoing += data
        if wait:
            self._pump(lambda: not self._outgoing, None, f"{len(data)} bytes to be written")

    def send(self, message: Any, *, wait: bool = True) -> None:
        self.send_raw(json.dumps(message, separators=(",", ":")).encode() + b"\n", wait=wait)

    def notify(self, method: str, params: Message | None = None) -> None:
        self.send({"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})})

    def start_request(self, method: str, params: Any = None, id: Any = None, *, wait: bool = True) -> Any:
        """Send a request and return its id at once; `reply(id)` waits for the answer."""
        if id is None:
            self._next_id += 1
            id = self._next_id
        self._replies.pop(json.dumps(id), None)
        self.send(
            {"jsonrpc": "2.0", "id": id, "method": method, **({} if params is None else {"params": params})}, wait=wait
        )
        return id

    def start_call(self, tool: str, args: Any = None, id: Any = None, *, wait: bool = True, **params: Any) -> Any:
        whole = {"name": tool, "arguments": {} if args is None else args, **params}
        return self.start_request("tools/call", whole, id, wait=wait)

    # --- receiving

    def reply(self, id: Any, timeout: float | None = None) -> Message:
        key = json.dumps(id)
        self._pump(lambda: key in self._replies or self.stdout_closed, timeout, f"the reply to {key}")
        if key not in self._replies:
            raise WaitedInVain(f"stdout was closed before the reply to {key}")
        return self._replies[key]

    def replies(self, ids: Iterable[Any], timeout: float | None = None) -> list[Message]:
        wanted = list(ids)
        keys = [json.dumps(id) for id in wanted]
        self._pump(
            lambda: self.stdout_closed or all(key in self._replies for key in keys), timeout, f"{len(keys)} replies"
        )
        return [self.reply(id, 0.001) for id in wanted]

    def request(self, method: str, params: Any = None, id: Any = None, timeout: float | None = None) -> Message:
        return self.reply(self.start_request(method, params, id), timeout)

    def call(self, tool: str, args: Any = None, id: Any = None, timeout: float | None = None, **params: Any) -> Message:
        return self.reply(self.start_call(tool, args, id, **params), timeout)

    def call_text(self, tool: str, args: Any = None) -> str:
        """The text of a result; a refusal or an error fails the test with the whole reply."""
        reply = self.call(tool, args)
        assert "result" in reply, reply
        return str(reply["result"]["content"][0]["text"])

    def receive(self, wanted: Callable[[Message], bool], timeout: float | None = None) -> Message:
        """The first message, past or to come, for which `wanted` holds."""
        self._pump(
            lambda: any(map(wanted, self.messages)) or self.stdout_closed, timeout, "a message that fits the condition"
        )
        for message in self.messages:
            if wanted(message):
                return message
        raise WaitedInVain("stdout was closed before a message that fits the condition")

    def pump_until(self, done: Callable[[], bool], timeout: float | None = None, what: str = "a condition") -> None:
        self._pump(done, timeout, what)

    def settle(self, seconds: float) -> None:
        """Keep the pipes moving for a while: for tests that show that something does *not* arrive."""
        for left in while_passing(seconds):
            self._move(left)

    # --- handshake and end

    def initialize(self, revision: str = "2025-06-18") -> Message:
        info = {"name": "harness", "version": "1"}
        params = {"protocolVersion": revision, "capabilities": {"sampling": {}}, "clientInfo": info}
        reply = self.request("initialize", params)
        self.notify("notifications/initialized")
        result: Message = reply["result"]
        return result

    def close_stdin(self) -> None:
        assert self.process.stdin is not None
        if not self.process.stdin.closed:
            self.process.stdin.close()
        self._stdin = None

    def close_stdout(self) -> None:
        """Stop listening, as an agent does that dies: the process gets EPIPE when it writes."""
        assert self.process.stdout is not None
        self._stdout, self.stdout_closed = None, True
        self.process.stdout.close()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def signal_group(self, number: int) -> None:
        assert self.new_session, "the process shares the test's own group"
        os.killpg(self.process.pid, number)

    def wait_exit(self, timeout: float | None = None) -> int:
        """The exit code, negative for a signal, as in `subprocess`. Output is drained meanwhile."""
        self._pump(lambda: self.process.poll() is not None, timeout, "the process to exit")
        while self._stdout is not None or self._stderr_fd is not None:
            before = (len(self.received), len(self._stderr), self._stdout, self._stderr_fd)
            self._move(0.02)
            if before == (len(self.received), len(self._stderr), self._stdout, self._stderr_fd):
                break  # a grandchild may hold the pipes open for ever
        assert self.process.returncode is not None
        return self.process.returncode

    def finish(self, timeout: float | None = None) -> int:
        """The polite end: close stdin and wait."""
        self.close_stdin()
        return self.wait_exit(timeout)

    # --- looking

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def stderr(self) -> str:
        return self._stderr.decode("utf-8", "replace")

    def descendants(self) -> list[int]:
        return descendants(self.pid)

    def tree(self) -> list[int]:
        """Every live process that was started by this one, re-parented or not, itself included."""
        return processes_with(self.marker)

    def memory_kib(self, field: str = "VmRSS") -> int:
        return memory_kib(self.pid, field)
