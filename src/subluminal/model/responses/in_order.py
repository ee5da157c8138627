"""The order of a stream: what waits behind a call that is not judged yet."""

from __future__ import annotations

from collections import deque

from subluminal.model.responses.held import Held, Sized, unnamed
from subluminal.model.responses.judged import Judgements
from subluminal.model.words import Piece

# A delta of a few characters is an event of two hundred bytes, so that a call is streamed in many times its size.
_STREAMED_TIMES = 16


class InOrder:
    """Pieces go in as they come, and out when nothing before them waits any more."""

    __slots__ = ("_judgements", "_max_bytes", "_out", "_queue", "_size")

    def __init__(self, max_call_bytes: int, judgements: Judgements) -> None:
        self._judgements = judgements
        self._max_bytes = _STREAMED_TIMES * max_call_bytes
        self._out: list[Piece] = []
        self._queue: deque[Piece | Held] = deque()  # begins with a call that is not ready, or is empty
        self._size = 0  # bytes in it

    @property
    def kept(self) -> int:
        return self._size

    def put(self, piece: Piece | Held) -> None:
        if isinstance(piece, Held) or self._queue:
            self._queue.append(piece)
            self._size += _size(piece)
            self._flush()
            self._give_up()
        else:
            self._out.append(piece)

    def put_at_once(self, piece: Piece) -> None:
        self._out.append(piece)

    def grown(self, size: int) -> None:
        """More of a call that waits here, or its end."""
        self._size += size
        self._flush()
        self._give_up()

    def drop(self, dropped: set[int]) -> None:
        """Calls that will not pass, by `id`."""
        if dropped:
            self._queue = deque(piece for piece in self._queue if id(piece) not in dropped)
            self._size = sum(map(_size, self._queue))
        self._flush()

    def taken(self) -> list[Piece]:
        """What may go out. Bytes that stand side by side are one piece."""
        pieces: list[Piece] = []
        raws: list[bytes] = []
        for piece in self._out:
            if isinstance(piece, bytes):
                raws.append(piece)
                continue
            if raws:
                pieces.append(b"".join(raws))
                raws.clear()
            pieces.append(piece)
        if raws:
            pieces.append(b"".join(raws))
        self._out.clear()
        return pieces

    def _flush(self) -> None:
        """What stands before the first call that is not ready."""
        queue = self._queue
        while queue:
            piece = queue[0]
            ready = piece.ready if isinstance(piece, Held) else piece
            if ready is None:
                return
            self._size -= _size(piece)
            queue.popleft()
            self._out.append(ready)

    def _give_up(self) -> None:
        """No longer waits for calls of which, or behind which, more has come than is held."""
        while self._size > self._max_bytes and self._queue:
            held = self._queue[0]
            assert isinstance(held, Held)
            size = held.size
            call = held.call or unnamed()
            held.give_up(*self._judgements.new(call, held.allowed, held.refused, held.fault, cut=True))
            self._size -= size
            self._flush()


def _size(piece: Piece | Held) -> int:
    if isinstance(piece, Held | Sized):
        return piece.size
    return len(piece) if isinstance(piece, bytes) else 0
