"""One direction of lines out: written as far as the descriptor takes them, the rest kept in order."""

from __future__ import annotations

import os
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# Above this much waiting, the side that produces it is not read any more.
HIGH_WATER = 1024 * 1024
_JOIN_BYTES = 256 * 1024


class FileSegment:
    """A message held in an unlinked file, on its way out. Owns the descriptor."""

    __slots__ = ("fd", "left", "offset")

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self.offset = 0
        self.left = size

    def write_to(self, fd: int) -> int:
        """Bytes written; raises BlockingIOError when the reader is full."""
        try:
            done = os.sendfile(fd, self.fd, self.offset, min(self.left, 1 << 20))
        except OSError as fault:
            if isinstance(fault, (BlockingIOError, BrokenPipeError)):
                raise
            # Not every system sends files into pipes.
            done = os.write(fd, os.pread(self.fd, 65536, self.offset))
        self.offset += done
        self.left -= done
        if self.left == 0:
            self.close()
        return done

    def close(self) -> None:
        os.close(self.fd)


class Outflow:
    """`fd` must be non-blocking. `broken` is set once its reader has gone; everything after that is dropped."""

    __slots__ = ("_behind", "_inside", "_queue", "broken", "fd", "newline", "size")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.size = 0
        self.broken = False
        self.newline = b"\n"  # empty for a last line that came without one
        self._queue: deque[bytes | FileSegment] = deque()
        self._inside = False
        self._behind: list[bytes | FileSegment] = []

    def send_lines(self, messages: Sequence[bytes | FileSegment]) -> None:
        """Each with its newline; runs of plain bytes as one write."""
        if self._inside:
            self._behind += messages
            return
        newline = self.newline
        if len(messages) == 1 and type(messages[0]) is bytes:
            self.send(messages[0] + newline)
            return
        plain: list[bytes] = []
        for message in messages:
            if isinstance(message, FileSegment):
                if plain:
                    self.send(b"\n".join(plain) + b"\n")
                    plain = []
                self.send_file(message)
                self.send(newline)
            else:
                plain.append(message)
        if plain:
            self.send((plain[0] if len(plain) == 1 else b"\n".join(plain)) + newline)

    def send_piece(self, data: bytes) -> None:
        """A part of a line. Whole lines wait until it has ended."""
        self._inside = True
        self.send(data)

    @property
    def lines_wait(self) -> bool:
        return bool(self._behind)

    def end_line(self) -> None:
        self.send(self.newline)
        self._inside = False
        if self._behind:
            behind, self._behind = self._behind, []
            self.send_lines(behind)

    def send(self, data: bytes) -> None:
        """Write now if nothing waits; else queue behind what does."""
        if self._queue:
            self._queue.append(data)
            self.size += len(data)
            return
        if self.broken:
            return
        try:
            done = os.write(self.fd, data)
        except BlockingIOError:
            done = 0
        except OSError:
            self.broken = True
            return
        if done != len(data):
            self._queue.append(data[done:])
            self.size = len(data) - done

    def send_file(self, segment: FileSegment) -> None:
        self._queue.append(segment)
        self.size += segment.left
        self.flush()

    def flush(self) -> None:
        """As much as the reader takes."""
        queue = self._queue
        while queue and not self.broken:
            piece = queue[0]
            try:
                if isinstance(piece, FileSegment):
                    self.size -= piece.write_to(self.fd)
                    if piece.left == 0:
                        queue.popleft()
                    continue
                if len(queue) > 1 and len(piece) < _JOIN_BYTES:
                    piece = self._joined()
                done = os.write(self.fd, piece)
            except BlockingIOError:
                return
            except OSError:
                self.broken = True
                break
            self.size -= done
            if done == len(piece):
                queue.popleft()
            else:
                queue[0] = piece[done:]
        if self.broken:
            self.drop()

    def _joined(self) -> bytes:
        """Small pieces become one write."""
        queue = self._queue
        parts: list[bytes] = []
        total = 0
        while queue and total < _JOIN_BYTES:
            piece = queue[0]
            if isinstance(piece, FileSegment):
                break
            parts.append(piece)
            total += len(piece)
            queue.popleft()
        joined = b"".join(parts)
        queue.appendleft(joined)
        return joined

    def drop(self) -> None:
        for piece in self._queue:
            if isinstance(piece, FileSegment):
                piece.close()
        self._queue.clear()
        self.size = 0

    @property
    def waiting(self) -> bool:
        return bool(self._queue)
