"""What the server says: bytes to lines, lines to the exchange. Large messages stream through and are scanned."""

from __future__ import annotations

from time import monotonic_ns, time_ns

from subluminal.adapters.stdio.flow import FileSegment
from subluminal.adapters.stdio.framing import split_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.adapters.stdio.flow import Outflow
    from subluminal.host.config import Config
    from subluminal.host.oversize import Oversize
    from subluminal.mcp.exchange import Exchange
    from subluminal.producer.turn import Turn


class ServerSide:
    """`open` until its stdout has ended."""

    def __init__(self, exchange: Exchange, turn: Turn, to_client: Outflow, config: Config) -> None:
        self.open = True
        self._exchange = exchange
        self._turn = turn
        self._to_client = to_client
        self._max_inspect = config.max_inspect_bytes
        self._max_message = config.max_message_bytes
        self._part = b""
        self._big: Oversize | None = None

    def feed(self, data: bytes, wall_ms: int, read_ns: int) -> None:
        if self._big is not None:
            data = self._more(data)
        elif self._part:
            data = self._part + data
        end = data.find(b"\n")
        if end >= 0 and end == len(data) - 1 and end <= self._max_inspect:  # nearly always: one line, and all of it
            self._part = b""
            self._exchange.server_message(data[:end], read_ns)
            self._turn.carry_out(wall_ms, read_ns)
        else:
            self._feed_lines([data] if end < 0 else split_lines(data), wall_ms, read_ns)

    def _feed_lines(self, lines: list[bytes], wall_ms: int, read_ns: int) -> None:
        """The last of `lines` has not ended."""
        self._part = lines.pop()
        exchange, limit = self._exchange, self._max_inspect
        for line in lines:
            if len(line) > limit and not exchange.holds_list(len(line)):
                self._begin(line, wall_ms, read_ns)
                self._end()
            else:
                exchange.server_message(line, read_ns)
        self._turn.carry_out(wall_ms, read_ns)
        if len(self._part) > limit and not exchange.holds_list(len(self._part)):
            part, self._part = self._part, b""
            self._begin(part, wall_ms, read_ns)

    def last_line(self) -> bool:
        """What stands behind the last newline passes as it is. True: the client's stream now ends inside a line."""
        torn, self._big = self._big is not None, None
        if self._part:
            part, self._part = self._part, b""
            now_ns = monotonic_ns()
            self._to_client.newline = b""
            self._exchange.server_message(part, now_ns)
            self._turn.carry_out(time_ns() // 1_000_000, now_ns)
            self._to_client.newline = b"\n"
            torn = True
        return torn

    # -- messages in pieces ---------------------------------------------------------------------------------------

    def _begin(self, part: bytes, wall_ms: int, read_ns: int) -> None:
        from subluminal.host.oversize import Oversize  # few sessions have such a message

        self._turn.carry_out(wall_ms, read_ns)  # what was said before goes before
        self._big = Oversize(self._exchange.may_edit, self._max_message, strict=False)
        self._feed_big(self._big, part)

    def _feed_big(self, big: Oversize, piece: bytes) -> None:
        big.feed(piece)
        if not big.hold:
            self._to_client.send_piece(piece)

    def _more(self, data: bytes) -> bytes:
        assert self._big is not None
        end = data.find(b"\n")
        self._feed_big(self._big, data if end < 0 else data[:end])
        if end < 0:
            return b""
        self._end()
        return data[end + 1 :]

    def _end(self) -> None:
        big, self._big = self._big, None
        assert big is not None
        big.scan.finish()
        if big.hold:
            self._pass_held(big)
        else:
            self._to_client.end_line()
        self._exchange.server_scanned(big.scan, big.size, big.stream_hash())

    def _pass_held(self, big: Oversize) -> None:
        """It waited because it might have been a list from which tools are left out."""
        refused = self._exchange.withheld(big.scan, big.fault)
        if refused:
            big.drop()
            self._exchange.calls.outputs += refused
        else:
            self._to_client.send_lines([FileSegment(*big.release())])
