"""Lines of a producer that is being heard. Its envelope is the same in each, byte for byte, but for type, moment and
number: so it need not be read again, and only what follows it is.

    familiar = Familiar(event)       the envelope of an event that `reading` has read
    familiar.read(line, seq)         what `reading` would read of this line; None: it must be asked
    familiar.events(lines, i, seq)   the same of the next lines: start, decision and end, or just one, or none

None is always right, and is the answer to anything but the three events of a call, in the form in which our own
producers write them, with the number that comes next. Of the envelope `ts` and `source.seq` stand in what is read: who
asks has read the others before.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import fields

from subluminal.contracts import events as ev
from subluminal.contracts.moments import is_moment
from subluminal.contracts.vocabulary import INTERFACE_VERSION
from subluminal.ledger.fold.reading import MAX_SEQ, AnyEvent

_MOMENT = len("2025-12-15T12:34:56.789Z")
_REST = b'{"call":'
_KIND_AT = len('{"type":"tool_call_')
_ENVELOPE = frozenset(ev.Envelope.__struct_fields__)


def _body(event: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """What an event tells beside its envelope. A member that is unknown here may be one of the envelope again: it is
    for `reading`. Ours have names that no reader looks for."""
    told = [
        (found.name, found.type, msgspec.field(name=found.encode_name, default=found.default))
        if not found.required
        else (found.name, found.type, msgspec.field(name=found.encode_name))
        for found in fields(event)
        if found.name not in _ENVELOPE
    ]
    ours = [
        ("ts", str, msgspec.field(name=" ts", default="")),
        ("source", Any, msgspec.field(name=" seq", default=None)),
    ]
    return msgspec.defstruct(event.__name__, [*told, *ours], forbid_unknown_fields=True)


Start, Decision, End = _body(ev.ToolCallStart), _body(ev.ToolCallDecision), _body(ev.ToolCallEnd)


def _kind(word: str, body: type[msgspec.Struct]) -> tuple[bytes, int, int, Any]:
    """How its line begins, where its moment begins and ends, and what reads the rest."""
    begins = b'{"type":"tool_call_%b","v":"%b","ts":"' % (word.encode(), INTERFACE_VERSION.encode())
    return begins, len(begins), len(begins) + _MOMENT, msgspec.json.Decoder(body).decode


_KINDS = {ord(word[0]): _kind(word, body) for word, body in (("start", Start), ("decision", Decision), ("end", End))}


class Numbered(msgspec.Struct):
    seq: int


class Familiar:
    __slots__ = ("_after_moment", "_after_seq", "_moment", "_skipped")

    def __init__(self, event: AnyEvent) -> None:
        quoted = msgspec.json.encode
        source = event.source
        names = (event.run_id, event.agent_id, event.client, event.env, source.host_id, source.proc_id, source.shim_id)
        self._after_moment = (
            b'","run_id":%b,"agent_id":%b,"client":%b,"env":%b,'
            b'"source":{"host_id":%b,"proc_id":%b,"shim_id":%b,"seq":' % tuple(map(quoted, names))
        )
        told = b"" if event.principal is UNSET else b',"principal":' + quoted(event.principal)
        told += b"" if event.workload is UNSET else b',"workload":' + quoted(event.workload)
        self._after_seq = b"}" + told + b',"call":'
        self._skipped = len(self._after_moment) + len(self._after_seq)
        self._moment = ""  # the last one that was found to exist

    def read(self, line: bytes, seq: int) -> Any:
        kind = _KINDS.get(line[_KIND_AT]) if len(line) > _KIND_AT else None
        if kind is None or seq > MAX_SEQ:
            return None
        begins, at, after, decode = kind
        number = b"%d" % seq
        envelope = self._after_moment + number + self._after_seq
        if not line.startswith(begins) or not line.startswith(envelope, after):
            return None
        moment = line[at:after].decode("latin-1")
        if moment != self._moment:
            if not is_moment(moment):
                return None
            self._moment = moment
        try:
            event = decode(_REST + line[after + self._skipped + len(number) :])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        event.ts = moment
        event.source = Numbered(seq)
        return event

    def events(self, lines: list[bytes], place: int, seq: int) -> list[Any]:
        first = self.read(lines[place], seq)
        if type(first) is Start and place + 2 < len(lines):
            second = self.read(lines[place + 1], seq + 1)
            if type(second) is Decision:
                third = self.read(lines[place + 2], seq + 2)
                if type(third) is End:
                    return [first, second, third]
        return [] if first is None else [first]
