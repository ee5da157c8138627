"""What the client says: bytes to lines, lines to the exchange, and messages too large to hold.

From the client, a message must be judged before the server sees its end, and a second tool name may stand in its last
bytes; so while a policy is enforced a large one waits in an unlinked file until it has been read to the end. When
nothing can be refused it streams on at once.
"""

from __future__ import annotations

import signal
from time import time_ns

from subluminal.adapters.stdio.flow import FileSegment
from subluminal.adapters.stdio.framing import CR, read_line, split_lines
from subluminal.mcp.message.exact import read_scan
from subluminal.mcp.message.reading import CALL
from subluminal.mcp.message.wire import read_message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.adapters.stdio.flow import Outflow
    from subluminal.adapters.upstream.server import Server
    from subluminal.host.config import Config
    from subluminal.host.oversize import Oversize
    from subluminal.mcp.exchange import Exchange
    from subluminal.producer.producer import Producer
    from subluminal.producer.turn import Turn

# Lines of one read that are carried out together. A client that sends more at once does not wait for the last of them
# before its first is on its way.
LINES_PER_TURN = 64
# Lines of one read that are judged under one lock of the run's state and stored at once, which saves a sixth of each.
# Other processes wait for a fifth of a millisecond at the most.
LINES_PER_LOCK = 8


class ClientSide:
    """`open` until the client has closed our stdin."""

    def __init__(
        self,
        exchange: Exchange,
        turn: Turn,
        producer: Producer,
        to_server: Outflow,
        upstream: Server,
        config: Config,
    ) -> None:
        self.open = True
        self._exchange = exchange
        self._turn = turn
        self._producer = producer
        self._gate = producer.gate
        self._to_server = to_server
        self._upstream = upstream
        self._max_inspect = config.max_inspect_bytes
        self._max_message = config.max_message_bytes
        self._part = b""
        self._big: Oversize | None = None

    @property
    def streaming(self) -> bool:
        """A large message is passing. It passes under the policy that let it begin."""
        return self._big is not None and not self._big.hold

    def feed(self, data: bytes, wall_ms: int, read_ns: int) -> None:
        if self._big is not None:
            data = self._more(data, wall_ms, read_ns)
        elif self._part:
            data = self._part + data
        end = data.find(b"\n")
        if end >= 0 and end == len(data) - 1 and end <= self._max_inspect:  # nearly always: one line, and all of it
            self._part = b""
            self._read(data[:end], wall_ms, read_ns)
            self._turn.carry_out(wall_ms, read_ns)
        else:
            self._feed_lines([data] if end < 0 else split_lines(data), wall_ms, read_ns)

    def _read(self, line: bytes, wall_ms: int, read_ns: int) -> None:
        reading = read_line(line) if CR in line else read_message(line)
        if reading.kind == CALL:
            self._exchange.client_call(reading, line, len(line), wall_ms, read_ns)
        else:
            self._exchange.client_message(reading, line, wall_ms, read_ns)

    def _feed_lines(self, lines: list[bytes], wall_ms: int, read_ns: int) -> None:
        """The last of `lines` has not ended."""
        self._part = lines.pop()
        limit, many = self._max_inspect, len(lines) > 1
        for number, line in enumerate(lines):
            if many and number % LINES_PER_LOCK == 0:
                self._producer.let_state_go()
                self._producer.keep_state(min(len(lines) - number, LINES_PER_LOCK))
            if len(line) > limit:
                self._producer.let_state_go()
                self._begin(line, wall_ms, read_ns)
                self._end(wall_ms, read_ns)
            else:
                self._read(line, wall_ms, read_ns)
            if number % LINES_PER_TURN == LINES_PER_TURN - 1:
                self._producer.let_state_go()
                self._turn.carry_out(wall_ms, read_ns)
        if many:
            self._producer.let_state_go()
        self._turn.carry_out(wall_ms, read_ns)
        if len(self._part) > limit:
            part, self._part = self._part, b""
            self._begin(part, wall_ms, read_ns)

    def last_line(self, now_ns: int) -> None:
        """Some servers process a last line without a newline, so it is judged like any other, and goes on without."""
        if not self._part and self._big is None:
            return
        wall_ms = time_ns() // 1_000_000
        self._to_server.newline = b""
        if self._big is not None:
            self._end(wall_ms, now_ns)
        else:
            part, self._part = self._part, b""
            self._exchange.client_message(read_line(part), part, wall_ms, now_ns)
        self._turn.carry_out(wall_ms, now_ns)

    # -- messages in pieces ---------------------------------------------------------------------------------------

    def _begin(self, part: bytes, wall_ms: int, read_ns: int) -> None:
        from subluminal.host.oversize import Oversize  # few sessions have such a message

        self._big = Oversize(self._gate.may_refuse, self._max_message)
        if not self._big.hold:
            self._turn.carry_out(wall_ms, read_ns)
        self._feed_big(self._big, part)

    def _feed_big(self, big: Oversize, chunk: bytes) -> None:
        big.feed(chunk)
        if not big.hold:
            self._to_server.send_piece(chunk)

    def _more(self, data: bytes, wall_ms: int, now_ns: int) -> bytes:
        """Bytes up to the newline belong to the large message; returns what follows it."""
        assert self._big is not None
        end = data.find(b"\n")
        self._feed_big(self._big, data if end < 0 else data[:end])
        if end < 0:
            return b""
        self._end(wall_ms, now_ns)
        return data[end + 1 :]

    def _end(self, wall_ms: int, now_ns: int) -> None:
        """The whole message has been seen."""
        big, self._big = self._big, None
        assert big is not None
        big.scan.finish()
        reading = read_scan(big.scan)
        held = FileSegment(*big.release()) if big.hold and big.fault is None else None
        hashed = big.stream_hash()
        passes = self._exchange.client_other(reading, held, big.size, wall_ms, now_ns, hashed, big.fault)
        if held is not None:
            if not passes:
                held.close()
        elif not big.hold:
            if passes:
                self._to_server.end_line()
            else:
                # The run was terminated while it passed. The server has not seen its end, and must not.
                self._upstream.signal(signal.SIGKILL)
