"""Which recorded call a call is: the same server, tool and arguments, first come first served, each once.

What is on record several times is answered in its order; what is asked more often than then is a miss, unless the last
answer may be repeated. Members of the arguments that differ from run to run (an id, a time) can be left out by name,
and only by name. `_meta` never counts. A miss names the call that is nearest to it, and what differs.
"""

from __future__ import annotations

import difflib
import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from subluminal.contracts.canonical import canonical_bytes, digest, read_args
from subluminal.contracts.errors import CanonicalError
from subluminal.contracts.history import whole_arguments
from subluminal.contracts.vocabulary import ALLOW
from subluminal.runs.replay.tape import Taped


class Miss(Struct, eq=False):
    """A call that is not on record. `nearest`: the recorded one that is most like it; `keys`: in which they differ."""

    nearest: str | None = None
    keys: list[str] = []


class Picked(Struct, eq=False):
    """`how`: by `arguments`, by what is left of them (`ignoring`), or once more (`repeated`)."""

    args_hash: str
    call: Taped | None = None
    how: str = "arguments"
    miss: Miss | None = None


class Used:
    """The recorded calls that have been answered, in all processes of a replay: a server may be started again."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._offset = 0
        self._numbers: set[int] = set()

    @contextmanager
    def held(self) -> Iterator[set[int]]:
        """What is used; nobody else picks meanwhile. Numbers that are added are used from now on."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            more = os.pread(descriptor, os.fstat(descriptor).st_size - self._offset, self._offset)
            self._numbers.update(map(int, more.split()))
            known = set(self._numbers)
            yield self._numbers
            new = b"".join(b"%d\n" % number for number in sorted(self._numbers - known))
            os.write(descriptor, new)
            self._offset += len(more) + len(new)
        finally:
            os.close(descriptor)


class Picker:
    """The calls of one server."""

    def __init__(self, calls: Sequence[Taped], used: Used, ignore: frozenset[str], repeat_last: bool) -> None:
        self._calls = calls
        self._used = used
        self._ignore = ignore
        self._repeat_last = repeat_last
        self._exact: dict[tuple[str, str], list[Taped]] = {}
        self._stripped: dict[tuple[str, str], list[Taped]] = {}
        for call in calls:
            self._exact.setdefault((call.tool_name, call.args_hash), []).append(call)
            if ignore and (value := whole_arguments(call.args_preview, call.args_hash)) is not None:
                self._stripped.setdefault((call.tool_name, self._rest(value)), []).append(call)

    def pick(self, tool_name: str, arguments: bytes | None) -> Picked:
        value, args_hash = None, ""
        if arguments is not None:
            try:
                value, canonical = read_args(arguments)
                args_hash = digest(canonical)
            except CanonicalError:
                pass
        same = self._exact.get((tool_name, args_hash), [])
        if not args_hash:  # not known to be the same: no answer may be given, but a refusal can be one again
            same = [call for call in same if call.action != ALLOW]
        alike: list[Taped] = []
        if self._ignore and isinstance(value, dict):
            alike = self._stripped.get((tool_name, self._rest(value)), [])
        with self._used.held() as used:
            for how, calls in (("arguments", same), ("ignoring", alike)):
                for call in calls:
                    if call.number not in used:
                        used.add(call.number)
                        return Picked(args_hash, call, how)
            if self._repeat_last and (same or alike):
                return Picked(args_hash, (same or alike)[-1], "repeated")
            return Picked(args_hash, miss=self._nearest(tool_name, value, used))

    def _rest(self, value: dict[str, Any]) -> str:
        return digest(canonical_bytes({key: item for key, item in value.items() if key not in self._ignore}))

    def _nearest(self, tool_name: str, value: Any, used: set[int]) -> Miss:
        """The call of this tool with the fewest members that differ, of those not answered yet if there is one."""
        calls = [call for call in self._calls if call.tool_name == tool_name]
        if not calls:
            names = sorted({call.tool_name for call in self._calls})
            near = difflib.get_close_matches(tool_name, names, 1)
            return Miss(next((call.call_id for call in self._calls if near and call.tool_name == near[0]), None))
        best: tuple[tuple[bool, int, int], Taped, list[str]] | None = None
        for call in calls:
            other = whole_arguments(call.args_preview, call.args_hash)
            keys = [] if other is None or not isinstance(value, dict) else _differing(value, other)
            unknown = 1_000_000 if other is None else len(keys)
            rank = (call.number in used, unknown, call.number)
            if best is None or rank < best[0]:
                best = rank, call, keys
        assert best is not None
        return Miss(best[1].call_id, best[2])


def _differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    absent = object()
    return sorted(key for key in one.keys() | other.keys() if one.get(key, absent) != other.get(key, absent))
