"""Where clients keep their transcripts, and which files below a directory are some."""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct

CLAUDE, CODEX = "claude", "codex"
CLIENTS = (CLAUDE, CODEX)
SUFFIXES = (".jsonl", ".jsonl.zst")
# More files than years of work leave; the newest count.
MAX_FILES = 100_000


class File(Struct, frozen=True, order=True):
    """`client` is empty where the place does not tell: then the first lines do."""

    modified_ms: int
    path: str
    size: int
    client: str = ""


def default_places(environ: Mapping[str, str], client: str | None = None) -> dict[str, str]:
    """Directory -> client, of those that a client of this user writes to."""
    home = environ.get("HOME") or os.path.expanduser("~")
    claude = environ.get("CLAUDE_CONFIG_DIR") or os.path.join(home, ".claude")
    codex = environ.get("CODEX_HOME") or os.path.join(home, ".codex")
    places = {
        os.path.join(claude, "projects"): CLAUDE,
        os.path.join(codex, "sessions"): CODEX,
        os.path.join(codex, "archived_sessions"): CODEX,
    }
    return {place: of for place, of in places.items() if client in (None, of) and os.path.isdir(place)}


def transcript_files(place: str, client: str = "", since_ms: int = 0) -> list[File]:
    """A file itself, or all below a directory, oldest first; links to directories are not followed."""
    if os.path.isfile(place):
        return _file(place, client, since_ms)
    found: list[File] = []
    for directory, names, files in os.walk(place):
        names.sort()
        for name in sorted(files):
            if name.endswith(SUFFIXES):
                found += _file(os.path.join(directory, name), client or _client_of(directory, name), since_ms)
    return sorted(found)[-MAX_FILES:]


def _file(path: str, client: str, since_ms: int) -> list[File]:
    try:
        info = os.stat(path)
    except OSError:
        return []
    modified_ms = info.st_mtime_ns // 1_000_000
    return [File(modified_ms, path, info.st_size, client)] if modified_ms >= since_ms else []


def _client_of(directory: str, name: str) -> str:
    if name.startswith("rollout-"):
        return CODEX
    return CLAUDE if "/projects/" in f"{directory}/" or "/subagents" in directory else ""
