"""Which request is what, by its method and the end of its path, and where it goes at the provider.

    POST .../messages                  Anthropic Messages
    POST .../messages/count_tokens     its request holds the history as well; the answer passes
    POST .../responses                 OpenAI Responses, GET .../responses/ID: one that was asked for before
    POST .../responses/compact         its request holds the history as well; the answer passes
    GET  .../models, .../models/ID     passes

Everything else is unknown: a tool call could come by it unseen.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from subluminal.http.heads import HttpFault
from subluminal.model.anthropic.api import API as ANTHROPIC
from subluminal.model.responses.api import API as RESPONSES

if TYPE_CHECKING:
    from subluminal.model.words import Api

_VERSION = re.compile(rb"v[0-9]+\Z")
_DOTS = (b".", b"..")


class Operation(Struct, frozen=True):
    """`reads_request`: its body is the API's own. `reads_answer`: tool calls may be in the answer."""

    api: Api
    reads_request: bool = False
    reads_answer: bool = False
    known: bool = True


_MESSAGES = Operation(ANTHROPIC, True, True)
_COUNT_TOKENS = Operation(ANTHROPIC, True)
_RESPONSES = Operation(RESPONSES, True, True)
_COMPACT = Operation(RESPONSES, True)
_RESPONSE = Operation(RESPONSES, False, True)
_PASSED = {api: Operation(api) for api in (ANTHROPIC, RESPONSES)}
_UNKNOWN = {api: Operation(api, known=False) for api in (ANTHROPIC, RESPONSES)}


def operation(method: bytes, target: bytes) -> Operation:
    """Raises HttpFault for a path that two readers could take differently."""
    path = target.partition(b"?")[0]
    segments = path.split(b"/")[1:]
    if b"%" in path or b"\\" in path or b";" in path or any(segment in _DOTS for segment in segments):
        raise HttpFault(400, "the path has encoded characters or dot segments; write it plainly")
    if b"" in segments[:-1]:
        raise HttpFault(400, "the path has two slashes in a row; write it plainly")
    last, before = segments[-1], segments[-2] if len(segments) > 1 else b""
    api = api_of(target)
    if method == b"POST":
        if last == b"messages":
            return _MESSAGES
        if last == b"responses":
            return _RESPONSES
        if (before, last) == (b"messages", b"count_tokens"):
            return _COUNT_TOKENS
        if (before, last) == (b"responses", b"compact"):
            return _COMPACT
    elif method == b"GET":
        if before == b"responses" and last:
            return _RESPONSE
        if b"models" in (last, before):
            return _PASSED[api]
    elif method == b"HEAD":  # an answer without content has no tool call
        return _PASSED[api]
    return _UNKNOWN[api]


def api_of(target: bytes) -> Api:
    """In whose form errors are told."""
    return RESPONSES if b"responses" in target.partition(b"?")[0].split(b"/") else ANTHROPIC


def asks_for_stream(target: bytes) -> bool:
    """Of a GET: what its query says, plainly. Who says it otherwise gets no stream."""
    return b"stream=true" in target.partition(b"?")[2].split(b"&")


def joined(base: bytes, target: bytes) -> bytes:
    """Where a request goes: behind the path of the provider's address, as its own clients join the two. Some have the
    version in the address and some in the path: where both have it, it stands once."""
    first = target[1:].partition(b"/")[0]
    if _VERSION.match(first) and base.rpartition(b"/")[2] == first:
        target = target[1 + len(first) :]
    return base + target
