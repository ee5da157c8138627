"""What is agreed with the server: the session, the revision, and where messages go. Headers follow from it."""

from __future__ import annotations

import asyncio
import re

import msgspec

from subluminal.adapters.upstream.remote.answers import Answer
from subluminal.adapters.upstream.remote.faults import Fault
from subluminal.adapters.upstream.remote.limits import MAX_ID_BYTES
from subluminal.adapters.upstream.remote.messages import INITIALIZE, Outgoing
from subluminal.http.heads import Headers, is_value
from subluminal.mcp.headers import METHOD, NAME, PROTOCOL_VERSION, SESSION_ID, ParameterHeaders, header_value
from subluminal.mcp.message.reading import UNREADABLE, read_value

# The first revision in which requests say which one they are of.
_STATES_VERSION = "2025-06-18"
_VERSION = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class _InitializeResult(msgspec.Struct, gc=False):
    protocol_version: str = msgspec.field(default="", name="protocolVersion")


_initialize_result = msgspec.json.Decoder(_InitializeResult).decode


class Session:
    """`number` counts the sessions. `lost`: the server has forgotten the last one, and it is to be begun again."""

    def __init__(self) -> None:
        self.id: bytes | None = None
        self.version = ""
        self.endpoint: bytes | None = None  # of the transport of 2024-11-05: where messages go
        self.number = 0
        self.lost = False
        self.modern = ""  # the revision that the client's last stateless request named
        self.initialize: Outgoing | None = None
        self.initialized: Outgoing | None = None
        self.parameters = ParameterHeaders()
        self.steady = asyncio.Event()  # not while it is begun again
        self.steady.set()

    def forget(self) -> None:
        self.id = None
        self.version = ""

    def is_modern(self, outgoing: Outgoing) -> bool:
        """A message that belongs to no session: it says its revision itself, or there is no other to go by."""
        if outgoing.version or outgoing.method == INITIALIZE:
            return bool(outgoing.version)
        return bool(self.modern) and self.number == 0

    def begun(self, answer: Answer) -> None:
        """The head of the answer to `initialize`."""
        session_id = answer.header(SESSION_ID)
        if session_id is not None and (len(session_id) > MAX_ID_BYTES or not is_value(session_id)):
            raise Fault("it gave an id of a session that cannot be sent back.")
        self.id = session_id

    def agreed(self, outgoing: Outgoing, result: bytes) -> None:
        """The result of `initialize`."""
        try:
            version = _initialize_result(result).protocol_version
        except UNREADABLE:
            version = ""
        self.version = version if _VERSION.fullmatch(version) else ""
        self.initialize = outgoing
        self.number += 1
        self.lost = False

    def learn_tools(self, result: bytes) -> None:
        self.parameters.learn(read_value(result))

    def headers(self, outgoing: Outgoing | None = None) -> Headers:
        """Of a message; or, without one, of a request that concerns the session."""
        if outgoing is not None and self.is_modern(outgoing):
            return self._modern_headers(outgoing)
        headers: Headers = []
        if self.id is not None:
            headers.append((SESSION_ID, self.id))
        if self.version >= _STATES_VERSION and self.endpoint is None:
            headers.append((PROTOCOL_VERSION, self.version.encode("ascii")))
        return headers

    def _modern_headers(self, outgoing: Outgoing) -> Headers:
        version = self.modern = outgoing.version or self.modern
        headers = [(PROTOCOL_VERSION, header_value(version))]
        if outgoing.method:
            headers.append((METHOD, header_value(outgoing.method)))
        if outgoing.name is not None:
            headers.append((NAME, header_value(outgoing.name)))
            if outgoing.method == "tools/call" and self.parameters.knows(outgoing.name):
                headers += self.parameters.of_call(outgoing.name, outgoing.arguments)
        return headers
