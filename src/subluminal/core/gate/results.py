"""Results kept whole, for who replays a run: masked as previews are, deflated, bounded. Loaded where they are wanted.

    results.keep(record, "OK", raw, size)     at the end of a call; what the end event says of it
    results.said("fs", "tools/list", raw)     what a server says of itself, without which no client would begin
    results.take()                            frames that have gathered, for whoever writes them

Frames are written before the events that vouch for them: see `contracts.kept_results`.
"""

from __future__ import annotations

from zlib import DEFLATED, compressobj

from subluminal.contracts.jsontext import to_json
from subluminal.contracts.kept_results import frame, link, opening

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from subluminal.contracts.identity import Identity, Source
    from subluminal.core.gate.record import CallRecord
    from subluminal.core.redact.redactor import Redactor

# The answer has been passed on, but the next one waits: the fastest level takes half of JSON away all the same.
LEVEL = 1
# Window and memory of the deflater. By default it clears 256 KiB for each result, whatever its size.
SMALL_BYTES = 64 * 1024
SMALL, LARGE = (12, 4), (15, 8)


class Results:
    """Those of one producer. `wants` tells whether results of a server are kept."""

    __slots__ = ("_frames", "_head", "_max_result", "_opening", "_redactor", "_room", "_said", "_wants")

    def __init__(
        self,
        identity: Identity,
        source: Source,
        redactor: Redactor,
        wants: Callable[[str], bool],
        max_result_bytes: int,
        max_results_bytes: int,
    ) -> None:
        self._opening = opening(identity.run_id, source.shim_id)
        self._head = b""
        self._redactor = redactor
        self._wants = wants
        self._max_result = max_result_bytes
        self._room = max_results_bytes
        self._frames: list[bytes] = []
        self._said: set[tuple[str, str, int]] = set()

    def keep(self, record: CallRecord, status: str, raw: bytes | None, size: int) -> str | None:
        """`result_kept` as JSON; None where there is nothing to keep. `raw` None: too large to hold."""
        call = record.call
        if raw == b"" or not self._wants(call.server_name):
            return None
        if raw is None or len(raw) > self._max_result:
            return to_json({"state": "too_large", "bytes": size if raw is None else len(raw)})
        names = {"call_id": record.call_id, "server_name": call.server_name, "tool_name": call.tool_name}
        state, head = self._add({**names, "args_hash": record.args_hash, "status": status}, raw)
        kept: dict[str, Any] = {"state": state, "bytes": len(raw)}
        if head is not None:
            kept["hash"] = head.hex()
        return to_json(kept)

    def said(self, server_name: str, method: str, result: bytes) -> None:
        """Once, whoever asks again: sessions come and go."""
        if not self._room or not self._wants(server_name) or len(result) > self._max_result:
            return
        key = (server_name, method, hash(result))
        if key not in self._said:
            self._said.add(key)
            self._add({"server_name": server_name, "method": method}, result)

    def _add(self, header: dict[str, Any], raw: bytes) -> tuple[str, bytes | None]:
        if not self._room:
            return "no_room", None
        masked, flags = self._redactor.mask(raw)
        state = "masked" if flags else "whole"
        packed = frame({**header, "state": state, "bytes": len(raw)}, _deflated(masked))
        if len(packed) > self._room:
            self._room = 0  # nor anything after it: a record with holes would answer the wrong call
            return "no_room", None
        self._room -= len(packed)
        if not self._head:
            self._head = link(b"", self._opening)
            self._frames.append(self._opening)
        self._head = link(self._head, packed)
        self._frames.append(packed)
        return state, self._head

    def take(self) -> bytes:
        gathered = b"".join(self._frames)
        self._frames.clear()
        return gathered


def _deflated(data: bytes) -> bytes:
    deflating = compressobj(LEVEL, DEFLATED, *(SMALL if len(data) <= SMALL_BYTES else LARGE))
    return deflating.compress(data) + deflating.flush()
