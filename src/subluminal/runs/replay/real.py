"""The server itself, for calls that are not on record: started for the first of them, greeted as the client greeted.

One call at a time. What it asks of the client is declined: the client of a replay talks to the record.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct

from subluminal.contracts.jsontext import to_json
from subluminal.mcp.message.reading import id_key

# How long a server may take to end by itself.
END_S = 2.0
_GREETING_ID = b'"subluminal-replay"'


class _Heard(Struct):
    method: str = ""
    id: Raw = Raw()
    params: Raw = Raw()


class RealServer:
    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._greeting = b'{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"sub","version":"1"}}'

    def overheard(self, line: bytes) -> None:
        """What the client says: with its own greeting the server is greeted too."""
        if b'"initialize"' in line:
            message = _read(line)
            if message.method == "initialize" and bytes(message.params):
                self._greeting = bytes(message.params)

    def answer(self, line: bytes, id_raw: bytes) -> bytes:
        try:
            if self._process is None:
                self._start()
            return self._ask(line, id_raw)
        except OSError as fault:
            return self._failed(id_raw, fault.strerror or "it has ended")

    def end(self) -> None:
        if self._process is None:
            return
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except OSError:
            pass
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _start(self) -> None:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        greeting = b'{"jsonrpc":"2.0","id":%b,"method":"initialize","params":%b}' % (_GREETING_ID, self._greeting)
        self._ask(greeting, _GREETING_ID)
        self._send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    def _ask(self, line: bytes, id_raw: bytes) -> bytes:
        assert self._process is not None and self._process.stdout is not None
        self._send(line)
        while said := self._process.stdout.readline():
            message = _read(said)
            if not message.method and bytes(message.id) and id_key(bytes(message.id)) == id_key(id_raw):
                return said.rstrip(b"\r\n")
            if message.method and bytes(message.id):
                refused = b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32601,"message":"not in a replay"}}'
                self._send(refused % bytes(message.id))
        return self._failed(id_raw, "it has ended")

    def _send(self, line: bytes) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def _failed(self, id_raw: bytes, why: str) -> bytes:
        message = f"This call is not on record, and {self._command[0]} could not be asked: {why}."
        error = to_json({"code": -32603, "message": message}).encode("utf-8", "replace")
        return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id_raw, error)


def _read(line: bytes) -> _Heard:
    try:
        return msgspec.json.decode(line, type=_Heard)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _Heard()
