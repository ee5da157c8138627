"""Who asks something of a process that serves many runs: what they say of themselves, and whose process they are.

    visitor_of(headers, session, peer=peer)      VisitorRefused: what is said of the run is not to be read

Headers are words of whoever writes them: bounded, of printable ASCII, and never twice. What is addressed to us and is
not so is refused; a client's own header that is not so names nobody.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from subluminal.host.peers import Peer
    from subluminal.producer.pool import Seat

RUN_ID_HEADER = b"subluminal-run-id"
AGENT_ID_HEADER = b"subluminal-agent-id"
# For us alone: never passed on to a server.
IDENTITY_HEADERS = (RUN_ID_HEADER, AGENT_ID_HEADER)
# How clients name their own sessions, and whose name each is. The first that is there counts.
CLIENT_SESSION_HEADERS = {b"x-claude-code-session-id": "claude", b"session-id": "codex", b"thread-id": "codex"}
# In every event and in the head of a state file.
MAX_ID_CHARS = 256


class VisitorRefused(Exception):
    """`why` is a sentence for whoever sent it, without what was sent."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Visitor:
    """`run_id` and `agent_id` by header, `client` by its own words, `client_session` as the client calls it.

    `session` tells unnamed visitors apart: the session of MCP, or the connection where there is none. One object for a
    connection or session: who it is, is found out once (`visitors`) and kept here, with the producer of its run.
    """

    __slots__ = ("acting", "agent_id", "client", "client_session", "peer", "run_id", "seat", "session")

    def __init__(
        self,
        session: str,
        *,
        run_id: str | None = None,
        agent_id: str | None = None,
        client: str | None = None,
        client_session: str | None = None,
        peer: Peer | None = None,
    ) -> None:
        self.session = session
        self.run_id = run_id
        self.agent_id = agent_id
        self.client = client
        self.client_session = client_session
        self.peer = peer
        self.acting: object = None
        self.seat: Seat | None = None


def visitor_of(
    headers: Iterable[tuple[bytes, bytes]], session: str, *, client: str | None = None, peer: Peer | None = None
) -> Visitor:
    """`headers` as they were sent. `client` is known otherwise, such as from `initialize`."""
    said: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        key = name.lower()
        if key in IDENTITY_HEADERS or key in CLIENT_SESSION_HEADERS:
            said.setdefault(key, []).append(value)
    client_session = None
    for key, whose in CLIENT_SESSION_HEADERS.items():
        try:
            own_word = _text(key, said.get(key, []))
        except VisitorRefused:
            continue
        if own_word is not None:
            client_session = f"{whose}:{own_word}"
            client = client or whose
            break
    return Visitor(
        session,
        run_id=_text(RUN_ID_HEADER, said.get(RUN_ID_HEADER, [])),
        agent_id=_text(AGENT_ID_HEADER, said.get(AGENT_ID_HEADER, [])),
        client=client,
        client_session=client_session,
        peer=peer,
    )


def _text(header: bytes, values: list[bytes]) -> str | None:
    """A variable that a client expands and that is not set arrives as nothing: nobody is named then."""
    if len(values) > 1:
        raise VisitorRefused(f"the header {_shown(header)} is there more than once; send it once")
    text = values[0].strip(b" \t") if values else b""
    if not text:
        return None
    if len(text) > MAX_ID_CHARS:
        raise VisitorRefused(f"the header {_shown(header)} is longer than {MAX_ID_CHARS} characters; shorten it")
    if not all(0x20 <= byte < 0x7F for byte in text):
        raise VisitorRefused(f"the header {_shown(header)} has characters other than printable ASCII; use only these")
    return text.decode("ascii")


def _shown(header: bytes) -> str:
    return header.decode("ascii").title()
