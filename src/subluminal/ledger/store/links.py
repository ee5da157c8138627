"""The chain by its segments. A segment carries the hash after its last event (`head`), and of the hash after each event
the beginning (`marks`): the head proves that all of it is whole, the marks name the event that is not.
"""

from __future__ import annotations

import sqlite3
from hashlib import sha256

from subluminal.ledger.store.chain import GENESIS, link
from subluminal.ledger.store.encoding import unpack_lines

# Of 32: whoever can forge a line can write its mark as well, so a mark only has to tell honest ones apart.
MARK_BYTES = 4


def marks(heads: list[bytes]) -> bytes:
    return b"".join([head[:MARK_BYTES] for head in heads])


def follow(head: bytes, lines: list[bytes]) -> list[bytes]:
    """The hash after each of the lines: `chain.link`, one after the other."""
    heads = []
    for line in lines:
        linked = sha256(head)
        linked.update(line)
        head = linked.digest()
        heads.append(head)
    return heads


def hash_at(connection: sqlite3.Connection, run_no: int, n: int) -> bytes | None:
    """The hash after event n of a run; None where there is no such event, or it cannot be read."""
    if n == 0:
        return GENESIS
    sql = "SELECT first_n, head, lines FROM segments WHERE run_no = ? AND first_n <= ? ORDER BY first_n DESC LIMIT 2"
    found = connection.execute(sql, (run_no, n)).fetchall()
    if not found:
        return None
    first_n, _, stored = found[0]
    head = found[1][1] if len(found) > 1 else GENESIS
    try:
        lines = unpack_lines(stored)
    except Exception:  # zlib.error and ValueError alike: the segment was damaged
        return None
    if n >= first_n + len(lines) or not isinstance(head, bytes):
        return None
    for line in lines[: n - first_n + 1]:
        head = link(head, line)
    return head
