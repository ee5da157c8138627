"""A run's state written by Python alone and with the C part, step by step: both files must be the same to the byte."""

from __future__ import annotations

import os
import random
import tempfile
from fcntl import LOCK_UN, flock
from hashlib import blake2b
from typing import Any, NamedTuple
from zlib import crc32

from subluminal.core.engine.state import KEY_BYTES, LABEL, StateUnavailable
from subluminal.host.run import table as room
from subluminal.host.run.files import create_file, salt_of
from subluminal.host.run.pages import CRC, EXTENTS_AT, FRONT_AT, PAGE, TABLE_ROOM, TABLES_AT, WORDS_AT

STEPS = 150  # of one run
WRITERS = 3
KEYS = [blake2b(bytes([number]), digest_size=KEY_BYTES).digest() for number in range(30)]


class Step(NamedTuple):
    """One turn of a process. `damage`: which bytes of a copy are others before it looks, with a checksum to match."""

    writer: int
    asked: list[tuple[int, bytes]]
    calls: list[list[tuple[Any, ...]]]  # published together, with the last
    damage: tuple[int, int] | None


def step(rng: random.Random) -> Step:
    """As rules ask and write, and now and then as they do not."""
    keys = KEYS[: rng.choice((4, 4, 4, 30))]
    new = [rng.randbytes(KEY_BYTES) for _ in range(rng.randrange(3))]
    asked = [(rng.randrange(LABEL), rng.choice(keys)) for _ in range(rng.randrange(6))]
    asked += [(rng.randrange(2, LABEL), key) for key in new if rng.random() < 0.9]
    calls = [[_op(rng, keys, new) for _ in range(_many(rng))] for _ in range(rng.choice((1, 1, 1, 4)))]
    damage = (rng.randrange(1 << 16), rng.randrange(1, 256)) if rng.random() < 0.02 else None
    return Step(rng.randrange(WRITERS), asked, calls, damage)


def _many(rng: random.Random) -> int:
    return rng.randrange(5) if rng.random() < 0.98 else rng.randrange(30)


def _op(rng: random.Random, keys: list[bytes], new: list[bytes]) -> tuple[Any, ...]:
    key = rng.choice(keys)
    # What a key holds is mostly of one pool and one length.
    pool = KEYS.index(key) % LABEL if rng.random() < 0.95 else rng.randrange(LABEL)
    if new and rng.random() < 0.4:
        key, pool = rng.choice(new), rng.randrange(2, LABEL)
    if rng.random() < 0.02:
        return (LABEL, key, rng.randbytes(rng.randrange(40)))
    count = 3 if rng.random() < 0.9 else rng.choice((1, 2, 5, 66))
    draw = rng.random()
    most = 1000 if draw < 0.8 else 1 << 62 if draw < 0.99 else 1 << 64  # the last cannot be written
    return (pool, key, tuple(rng.randrange(-most, most) for _ in range(count)))


class _Processes:
    """Of one run, each with its own eyes. `taken`, `changed`: what is done in C, if anything is."""

    def __init__(self, path: str, taken: Any, changed: Any) -> None:
        self._functions = taken, changed
        fds = [os.open(path, os.O_RDWR) for _ in range(WRITERS)]
        self.tables = [room.Table(fd, salt_of(fd)) for fd in fds]

    def do(self, step: Step) -> tuple[object, ...]:
        room._taken, room._changed = self._functions
        table = self.tables[step.writer]
        try:
            table.begin()
            try:
                found: list[object] = [table.get(*asked) for asked in step.asked]
                found += [table.commit(ops, 1, number < len(step.calls)) for number, ops in enumerate(step.calls, 1)]
                return *found, table.calls, table.stopped
            finally:
                flock(table.fd, LOCK_UN)
        except (StateUnavailable, ArithmeticError, room.struct.error) as fault:
            return (type(fault), str(fault))

    def close(self) -> None:
        for table in self.tables:
            table.close()


class Tables:
    def __init__(self, core: Any) -> None:
        self._core = core
        self._took = False
        self._left = 0
        self._worlds: list[_Processes] = []

    def same_after(self, step: Step) -> bool:
        """Whether C had a part in it."""
        if not self._left:
            self._begin_anew()
        self._left -= 1
        self._took = False
        if step.damage is not None:
            self._left = 0
            return self._same_of_damaged(step)
        plain, native = (world.do(step) for world in self._worlds)
        assert plain == native
        files = [os.pread(world.tables[0].fd, EXTENTS_AT, 0) for world in self._worlds]
        assert files[0] == files[1]
        if not self._left:
            whole = [os.pread(world.tables[0].fd, 1 << 23, 0) for world in self._worlds]
            assert whole[0] == whole[1]
        return self._took

    def _begin_anew(self) -> None:
        for world in self._worlds:
            world.close()
        self._left = STEPS
        with tempfile.TemporaryDirectory() as directory:
            first, second = os.path.join(directory, "plain"), os.path.join(directory, "native")
            create_file(first, "run")
            with open(first, "rb") as made, open(second, "wb") as copy:
                copy.write(made.read())
            functions = (self._seen(self._core.table_taken), self._seen(self._core.table_changed))
            self._worlds = [_Processes(first, None, None), _Processes(second, *functions)]

    def _seen(self, function: Any) -> Any:
        def seen(*arguments: Any) -> Any:
            found = function(*arguments)
            self._took = self._took or found is not None
            return found

        return seen

    def _same_of_damaged(self, step: Step) -> bool:
        """What C takes of bytes that nobody wrote, its twin takes as well."""
        assert step.damage is not None
        where, other = step.damage
        table = self._worlds[0].tables[step.writer]
        room._taken = None
        try:
            table.begin()
        except StateUnavailable:
            return False
        flock(table.fd, LOCK_UN)
        raw = bytearray(os.pread(table.fd, PAGE, WORDS_AT))
        copy = where & 1
        at = TABLES_AT - WORDS_AT + copy * TABLE_ROOM
        known = bytes(table._image), bytes(table._tail)
        raw[at + CRC.size + (where >> 1) % (TABLE_ROOM - CRC.size)] ^= other
        start = at + FRONT_AT
        length = int.from_bytes(raw[start : start + 4], "little")
        appended = int.from_bytes(raw[start + 4 : start + 8], "little")
        if length < PAGE and appended < PAGE:
            before = crc32(raw[at + CRC.size : start], table._salt)
            tail = raw[start + length : start + length + appended]
            crc = crc32(raw[start : start + length], crc32(tail, before))
            CRC.pack_into(raw, at, crc)
        image, tail = bytearray(known[0]), bytearray(known[1])
        page = bytes(raw)
        found = self._core.table_taken(page, at, copy, image, table._seldom, tail, table._tail_crc, room._ROOM)
        if found is None:
            assert (image, tail) == known
            return False
        assert table._load(page, copy)
        assert found == (table._version, table.calls, table._tail_crc)
        assert (image, tail) == (table._image, table._tail)
        return True
