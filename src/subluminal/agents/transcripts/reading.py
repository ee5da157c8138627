"""One transcript, plain or compressed, read in bounded memory.

A torn tail, a line beyond the bound, one that is no JSON or nested without end is a line that was not read: it is
counted, and the next one is read. What is no transcript at all is said with its path.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from msgspec import DecodeError, json

from subluminal.adapters.tools.names import Tools
from subluminal.agents.lines import BadLine, LineSplitter, mend_json
from subluminal.agents.transcripts import claude, codex
from subluminal.agents.transcripts.found import CLAUDE, CODEX, File
from subluminal.agents.transcripts.seen import SeenRun, Session, Unread
from subluminal.model.refused import PREFIX as REFUSED_PREFIX

CHUNK = 1 << 20
_SNIFFED = 1 << 16
# A frame may ask for as much memory as it likes; Codex writes with the default window of 8 MiB at most.
MAX_WINDOW = 64 << 20
_READERS: dict[str, Any] = {CLAUDE: claude.Reader, CODEX: codex.Reader}

Progress = Callable[[int], None]


def read_transcript(file: File, unread: Unread, progress: Progress | None = None) -> SeenRun | None:
    """The calls of one file; None, and a sentence in `unread.files`, where it is none."""
    try:
        chunks = _chunks(file.path)
        first = next(chunks, b"")
        client = file.client or _sniffed(first)
        if client not in _READERS:
            unread.files[file.path] = "no transcript of Claude Code or Codex" if first.strip() else "empty"
            return None
        reader = _READERS[client](_called)
        splitter = LineSplitter()
        decode = json.Decoder(reader.shape).decode
        seen = _take(reader, splitter.feed(first), decode, unread)
        for chunk in chunks:
            seen += _take(reader, splitter.feed(chunk), decode, unread)
            if progress is not None:
                progress(len(chunk))
        seen += _take(reader, splitter.finish(), decode, unread)
    except OSError as error:
        unread.files[file.path] = (error.strerror or "cannot be read").lower()
        return None
    except _Unreadable as unreadable:
        unread.files[file.path] = str(unreadable)
        return None
    session: Session = reader.session
    unread.calls += session.unread
    if not seen:
        unread.files[file.path] = "no line of it is a transcript's"
        return None
    return SeenRun(session.run_id or os.path.basename(file.path), client, session.calls)


class _Unreadable(Exception):
    pass


def _take(reader: Any, lines: Iterator[bytes | BadLine], decode: Any, unread: Unread) -> int:
    """How many lines were a transcript's, whether or not they tell of a call."""
    seen = 0
    for line in lines:
        if isinstance(line, BadLine):
            unread.lines += 1
            continue
        if not any(word in line for word in reader.words):
            seen += line[:1] == b"{"
            continue
        try:
            read = decode(line)
        except (DecodeError, UnicodeDecodeError, RecursionError):
            try:
                read = decode(mend_json(line))
            except (DecodeError, UnicodeDecodeError, RecursionError):
                unread.lines += 1
                continue
        seen += 1
        reader.take(read)
    return seen


@lru_cache(4_096)
def _called(name: str) -> tuple[str, str] | None:
    """None: no tool, but how a call that we refused was told to the model."""
    if not name:
        return None
    server_name, tool_name = Tools("").called(name)
    return None if tool_name.startswith(REFUSED_PREFIX) else (server_name, tool_name)


def _sniffed(head: bytes) -> str:
    head = head[:_SNIFFED]
    if b'"session_meta"' in head or b'"response_item"' in head:
        return CODEX
    return CLAUDE if b'"sessionId"' in head or b'"tool_use"' in head else ""


def _chunks(path: str) -> Iterator[bytes]:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise _Unreadable("not a regular file")
        if path.endswith(".zst"):
            yield from _decompressed(file)
            return
        while chunk := file.read(CHUNK):
            yield chunk


def _decompressed(file: Any) -> Iterator[bytes]:
    try:
        import zstandard
    except ImportError:
        raise _Unreadable("compressed, and the package `zstandard` is missing (the extra `transcripts`)") from None
    reader = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).stream_reader(file, read_across_frames=True)
    try:
        while chunk := reader.read(CHUNK):
            yield chunk
    except zstandard.ZstdError:
        raise _Unreadable("compressed, and damaged") from None
