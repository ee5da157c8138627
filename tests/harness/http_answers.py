"""A loopback server that answers every request with the bytes it was given, or never. It keeps what it was asked.

What begins to speak TLS is answered in clear text, as every request.
"""

from __future__ import annotations

import socket
import threading
from types import TracebackType

TLS = b"\x16\x03"
JSON = b'{"jsonrpc":"2.0","id":1,"result":{}}'


def reply(status: str, body: bytes = JSON, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Content-Type: application/json", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class HttpAnswers:
    """`answer` None: the request is taken and nobody ever answers. `together`: nobody is, until so many have asked."""

    def __init__(self, answer: bytes | None, together: int = 1) -> None:
        self.answer = answer
        self.requests: list[bytes] = []
        self._barrier = threading.Barrier(together)
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._open: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/mcp"

    def __enter__(self) -> HttpAnswers:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._barrier.abort()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in self._open:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            self.requests.append(_request(connection))
            self._barrier.wait()
            if self.answer is not None:
                connection.sendall(self.answer)
                connection.close()
        except (OSError, threading.BrokenBarrierError):
            return


def _request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data and not data.startswith(TLS):
        more = connection.recv(65536)
        if not more:
            return data
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    sizes = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while len(body) < int(sizes[0] if sizes else 0):
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body
