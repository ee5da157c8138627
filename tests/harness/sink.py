"""Reading the event stream of a shim: from a file, a pipe or a spool directory.

Every line is checked when it is read: one JSON object, valid for contract A. A test that only looks at one field
still fails when the shim emits something malformed.
"""

from __future__ import annotations

import glob
import json
import os
import threading
from collections.abc import Callable
from typing import Any

from harness.waiting import GENEROUS_S, WaitedInVain, wait_for
from subluminal.contracts.events import decode_event

EventDict = dict[str, Any]


class Sink:
    """Common reading side. `raw()` is everything written so far; the rest follows from it."""

    argument: str  # the value for --events

    def raw(self) -> bytes:
        raise AssertionError("a sink has a source")

    def lines(self) -> list[bytes]:
        """Complete lines, newline included. An unfinished last line is not there yet."""
        return _complete_lines(self.raw())

    def events(self) -> list[EventDict]:
        return [_checked(line) for line in self.lines()]

    def events_of(self, *types: str) -> list[EventDict]:
        return [event for event in self.events() if event["type"] in types]

    def types(self) -> list[str]:
        return [event["type"] for event in self.events()]

    def of_call(self, call_id: str) -> list[EventDict]:
        return [event for event in self.events() if event.get("call", {}).get("call_id") == call_id]

    def wait_for(self, wanted: Callable[[EventDict], bool], timeout: float = GENEROUS_S) -> EventDict:
        """The first event for which `wanted` holds."""
        return self.wait_count(wanted, 1, timeout)[0]

    def wait_type(self, kind: str, timeout: float = GENEROUS_S) -> EventDict:
        return self.wait_for(lambda event: event["type"] == kind, timeout)

    def wait_count(
        self, wanted: Callable[[EventDict], bool], count: int, timeout: float = GENEROUS_S
    ) -> list[EventDict]:
        def found() -> list[EventDict]:
            return [event for event in self.events() if wanted(event)]

        try:
            return wait_for(found, timeout, f"{count} such events", enough=lambda found: len(found) >= count)
        except WaitedInVain as error:
            error.add_note(f"there are: {self.types()}")
            raise


class EventFile(Sink):
    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.argument = f"file:{self.path}"

    def raw(self) -> bytes:
        try:
            with open(self.path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return b""


class OneRun(EventFile):
    """What a record of several runs says of one."""

    def __init__(self, record: EventFile, run_id: str) -> None:
        super().__init__(record.path)
        self.run_id = run_id

    def events(self) -> list[EventDict]:
        return [event for event in super().events() if event["run_id"] == self.run_id]


class EventPipe(Sink):
    """`Agent(..., pass_fds=[pipe.write_fd])`, then `close_writer()`, so that the end of the stream can be seen."""

    def __init__(self) -> None:
        self._read_fd, self.write_fd = os.pipe()
        self.argument = f"fd:{self.write_fd}"
        self._data = bytearray()
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()

    def _drain(self) -> None:
        while data := os.read(self._read_fd, 1 << 16):
            self._data += data
        os.close(self._read_fd)

    def close_writer(self) -> None:
        os.close(self.write_fd)

    def wait_end(self, timeout: float = GENEROUS_S) -> None:
        self._reader.join(timeout)
        assert not self._reader.is_alive(), "the event stream is still open"

    def raw(self) -> bytes:
        return bytes(self._data)


class Spool(Sink):
    """All journals of a home: `SUB_HOME/spool/*.jsonl`, in the order of their names."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = os.fspath(directory)
        self.argument = "ledger"

    def raw(self) -> bytes:
        parts = []
        for path in sorted(glob.glob(os.path.join(glob.escape(self.directory), "*.jsonl"))):
            with open(path, "rb") as file:
                parts.append(b"".join(_complete_lines(file.read())))
        return b"".join(parts)


def _complete_lines(data: bytes) -> list[bytes]:
    return [line + b"\n" for line in data.split(b"\n")[:-1]]


def _checked(line: bytes) -> EventDict:
    try:
        decode_event(line)
        event = json.loads(line)
    except ValueError as error:
        raise AssertionError(f"not an event of contract A: {error}\n{line[:2000]!r}") from error
    assert isinstance(event, dict)
    return event
