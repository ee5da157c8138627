"""Which model message each call of a client came from, and who made it, out of the transcripts that lie on this disk.

Clients send the calls of one message one after another, so that times alone take the second for a reaction to the
first. A transcript that cannot be read, or that is one too many, leaves its calls to their times.
"""

from __future__ import annotations

import os

from subluminal.agents.transcripts.found import File, default_places, transcript_files
from subluminal.agents.transcripts.reading import read_transcript
from subluminal.agents.transcripts.seen import Unread
from subluminal.ledger.read.refused import Told

# As much as is read within a few seconds; the newest first.
MAX_BYTES = 100 << 20

Messages = dict[str, list[Told]]

# path -> when it was, how large, and what it told: a page asks again and again.
Read = dict[str, tuple[int, int, Messages]]
_read: Read = {}


def transcript_messages(since_ms: int) -> Messages:
    """The client's id of a call -> where it stands, of transcripts that were written to since.

    A provider names calls as it likes, and some count from one in every session: an id may stand in several.
    """
    found: Messages = {}
    left = MAX_BYTES
    kept: Read = {}
    for file in _newest(since_ms):
        left -= file.size
        if left < 0:
            break
        known = _read.get(file.path)
        if known is None or known[:2] != (file.modified_ms, file.size):
            known = (file.modified_ms, file.size, _messages(file))
        kept[file.path] = known
        for use_id, told in known[2].items():
            found.setdefault(use_id, []).extend(told)
    _keep(kept, since_ms, left)
    return found


def _keep(kept: Read, since_ms: int, left: int) -> None:
    """And of earlier ones, which were not asked for now, as much as there is room for: the next may ask for them."""
    for path, known in list(_read.items()):
        if path not in kept and known[0] < since_ms and left >= known[1]:
            left -= known[1]
            kept[path] = known
    _read.clear()
    _read.update(kept)


def _newest(since_ms: int) -> list[File]:
    places = default_places(os.environ)
    return sorted((file for place in places for file in transcript_files(place, places[place], since_ms)), reverse=True)


def _messages(file: File) -> Messages:
    """The transcript is the actor: a sub-agent has one of its own."""
    run = read_transcript(file, Unread())
    found: Messages = {}
    for call in run.calls if run is not None else ():
        if call.message:
            found.setdefault(call.use_id, []).append(Told(call.at_ms, file.path, call.message))
    return found
