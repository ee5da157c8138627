"""What one side of a connection may make us keep or wait for."""

from __future__ import annotations

MAX_HEAD_BYTES = 32 * 1024
MAX_HEADERS = 128
# A chunk's size line, and a trailer: nobody needs more, and both are dropped.
MAX_CHUNK_LINE = 256
MAX_TRAILER_BYTES = 8 * 1024
# Bytes of a refused request that are read and dropped, so that its sender gets to read the answer.
MAX_DISCARDED_BYTES = 4 * 1024 * 1024
# Of one read. asyncio's own 256 KB are more than malloc keeps at hand: each read would map and unmap memory.
READ_BYTES = 64 * 1024
# asyncio holds a buffer of this size for every TLS connection, 256 KB unless told otherwise. A record has 16 KB.
TLS_READ_BYTES = 32 * 1024
# What waits to be written to one side before the other is asked to pause.
HIGH_WATER = 256 * 1024

MAX_CONNECTIONS = 16_384
# From the first byte of a head to its end, and between two pieces of a body.
HEAD_SECONDS = 10
BODY_SECONDS = 30
# A connection without a request. Longer than what clients keep theirs for, so that they close first.
IDLE_SECONDS = 120
# For a client that was answered for the last time, to read it and close.
LEAVE_SECONDS = 5
SWEEP_SECONDS = 5

CONNECT_SECONDS = 10
# Servers close idle connections after 5 s (Node, uvicorn); ours are given up before.
POOL_IDLE_SECONDS = 4
# Every event stream that a client keeps open holds one.
POOL_CONNECTIONS = 8_192
# Dials under way at once: what a server's queue of connections takes.
POOL_DIALLING = 64
# As many as clients may have: when all of them come back at once, they are served one after the other.
POOL_WAITING = MAX_CONNECTIONS
